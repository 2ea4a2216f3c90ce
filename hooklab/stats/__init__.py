"""Statistics of a training run: records them, draws them, keeps them in files and says what is wrong.

    activation_stats  `ActivationStats`: record a run, in any loop
    attention_stats   `AttentionStats`: what each head of attention does
    trainers          callbacks for Lightning and Hugging Face
    live              a figure that follows the run
    autosave          the record in a file while the run goes on
    page              one HTML file about a run
    measure           a package: from a running model to tables of numbers
    records           a package: what was recorded, to read, draw, merge and save
    diagnosing        a package: from a record to what is wrong
    checking          a package: two batches before a run
    runs              a package: where two recorded runs part
"""
