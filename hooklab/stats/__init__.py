"""Statistics of a training run: record them, plot them, save them.

    activation_stats  `ActivationStats`: record a run, in any loop
    attention_stats   `AttentionStats`: what each attention head does
    trainers          callbacks for Lightning and Hugging Face
    live              a figure that follows the run
    autosave          saves the record while the run goes on
    page              one HTML file about a run
    measure           a package: from a running model to tables of numbers
    records           a package: what was recorded: read, plot, merge and save it
    runs              a package: where two recorded runs diverge
    losses            a package: how hard each loss pulls at each layer, and whether losses fight
"""
