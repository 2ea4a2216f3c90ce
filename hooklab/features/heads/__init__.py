"""What the heads of a transformer attend to: weights, logits and numbers of them.

    attending  what a transformer attends to, in all layers or some
    weights    what one call of attention attends to, `flex_attention` too
    numbers    what each head of one call does, in a few numbers
    logits     what the softmax of a call gets, for some heads and queries, in blocks
"""
