"""Layer outputs as features: of one batch, or of a dataset and stored in files.

    extractor        the outputs of some layers, as a dict
    dataset          a whole dataset, on disk
    batch_extractor  columns in, columns out
    on_ray           a data set of Ray Data
    tokens           the activations of every generated token
    positions        the tensors of several passes as one
    wanted           which layers are wanted, under which names
    shards           which sample is in which file
    heads            a package: what the heads of a transformer attend to
"""
