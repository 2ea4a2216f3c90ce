"""Find where two models first diverge, and which layer is the cause (`compare`, `record`).

    comparing         `compare`: where two models, or two runs, first diverge
    comparison        `Comparison`: the result as a verdict in words, a table and a plot
    recording         `record`: one run of a model in a file, to compare later or elsewhere
    passes            run a model once, and record every call with its inputs and outputs
    tensor_store      copies of many tensors: whole within a memory budget, beyond it a sample of each
    properties        what is known of a call, by which its partner is found
    pairing           which call of one model is which call of another
    places            where the numbers of two models can be compared, and in which layout
    forcing           run a model with another's numbers at every place that both have
    few_bits          read the numbers of a tensor of any dtype, and measure how large they are and how far apart
    judging           how much error each layer adds itself, and how much of it rounding explains
    second_look       which suspects are not at fault: other masks, merged weights, other ways to the same result
    symptoms          what kind of fault it is, from the layers and from the numbers
    findings          the rows of a comparison, the words for each fault, and the proof
    verdicts          the faults of two passes, as a comparison; also of compiled code
    backward          whose gradients are wrong although the outputs are right
    fingerprints      what a record says about layers and parameters, and the hash of a tensor
    lost_digits       the rounding error of a run
    records           recorded runs, read as passes
    records_compared  a record in place of a model
    side_by_side      two passes of which no model can run with the other's numbers
"""
