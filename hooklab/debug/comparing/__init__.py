"""Says where two models part first, and which layer is at fault by itself (`compare`, `record`).

    comparing         where two models, or two runs, part first
    comparison        what was found, as a verdict in words, a table and a picture
    recording         one run of a model in a file, for a comparison later or elsewhere
    passes            run a model once, and note every call with what went in and what came out
    spill             copies of many tensors: in memory within a budget, beyond it in a temporary file
    pairing           which call of one model is which call of another
    places            where the numbers of two models can be laid side by side, in which layout
    forcing           run a model with another's numbers at every place that both have
    few_bits          the numbers of a tensor in whatever dtype: how they are read, how large they are, how far apart
    judging           what each layer adds by itself, and what arithmetic explains
    second_look       which suspects are not at fault: other masks, merged weights, other ways to the same result
    symptoms          what kind of fault it is, from the layers and from the numbers
    findings          the rows of a comparison, the words for each fault, and the proof
    backward          whose gradients are wrong although the outputs are right
    fingerprints      what a record says of layers and parameters, and a hash of a tensor
    losses            what a run loses to its own precision
    records           recorded runs, read as passes
    records_compared  a record against a model, which is given the recorded numbers
    side_by_side      a record against a record
"""
