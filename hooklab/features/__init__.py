"""Layer outputs as features: for one batch, or for a data set and stored in files.

    extractor        the outputs of some layers, as a dict
    dataset          a whole data set, on disk
    batch_extractor  columns in, columns out
    on_ray           a Ray data set
    tokens           the activations of every generated token
    positions        the tensors of several passes as one
    wanted           which layers were asked for, under which names
    shards           which sample is in which file
    heads            a package: what the heads of a transformer attend to
"""
