"""Check model, loss, data and optimizer on two batches before a run (`preflight`).

    checklist       `preflight`: two batches before a run, and what they say about model, loss, data and optimizer
    result          findings with advice, what is fine, and what was not checked
    arguments       what preflight is given: errors for what can't be checked, and everything is put back
    flight          makes each pass once, with or without a change, and keeps what came of it
    passes          are two passes the same, which samples changed, what do layers get?
    batch_values    inputs and targets, and batch norm
    loss_calls      what loss functions were called with, and with which gradients
    first_loss      the first loss, and its inputs
    loss_fit        does the loss fit the targets? Which dimension, which reduction, what of padding?
    reduction       the terms of the loss: is each a mean over the samples, and only once?
    precision       are small numbers that guard a logarithm lost in the dtype?
    influence       is the input used, and every label? Do samples stay apart?
    masks           does what a mask hides reach the output, or nothing but the padding?
    gradients       which parameters get a gradient
    optimizers      is all that the loss depends on registered, and does the optimizer have it?
    cut_gradients   does the loss change with what no gradient reaches?
    functions       dropout in eval mode, a softmax over samples, a view for a permutation
    structure       linear layers in a row, and one layer in several places
    initialization  parameters that nothing has filled, scales of norms
    operations      what single operations get: a column and a row, labels as logits; results that nothing reads
    sequences       does a model see what it predicts? Is the target too far ahead?
    recurrence      is a state handed on, and do gradients go back along a sequence?
    train_and_eval  does a pass in eval mode change train mode, a batch the next one, and do running statistics fit?
    overfitting     does a model learn 16 samples with its optimizer?
"""
