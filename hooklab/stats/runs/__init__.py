"""Find where two recorded runs diverge by more than noise (`compare_runs`).

    comparing_runs   `compare_runs`: where two runs diverge, and what to look at
    run_verdict      a row for each layer, and what the first one says about the cause
    run_differences  how far two runs are apart in each step
    run_noise        how much of this is due to rounding, or to the seed
"""
