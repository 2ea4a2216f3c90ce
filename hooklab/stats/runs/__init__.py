"""Says where two recorded runs part by more than noise (`compare_runs`).

    comparing_runs   where two runs part, and what to look at
    run_verdict      a row for each layer, and what the first one says about the cause
    run_differences  how far two runs are apart in each step
    run_noise        what of it is rounding, or the seed
"""
