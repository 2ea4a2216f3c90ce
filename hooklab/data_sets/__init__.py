"""Look at batches and data sets, without a model.

    batch          which part of a batch is what, and where its samples are
    reading_sets   reads training and validation data, as far as time allows
    splits         order, classes and scale of training and validation data, and samples in both
    target_values  classes that never occur, targets that never change, look random or are among the inputs
"""
