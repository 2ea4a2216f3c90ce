"""Says what is wrong with a recorded run: evidence, faults, findings, causes first.

    diagnosis         what the statistics say, how sure that is, what usually helps
    findings          what a diagnosis returns: findings, causes before consequences
    finding_pages     how each finding shows, and the page that tells more
    fault_table       every fault, with the function that looks for it and the advice
    evidence          the numbers that a diagnosis looks at, and its limits
    layer_faults      faults of single layers
    run_faults        faults of the whole run
    loop_faults       mistakes of the loop, and of what the optimizer has
    data_faults       faults of the inputs, and samples that come out alike
    loss_faults       the course of the loss, the wrong sign, an activation too many, a loss that stands still
    attention_faults  heads that look everywhere alike or at one key, logits that explode
    sarif             a diagnosis as code scanning and other programs read it
"""
