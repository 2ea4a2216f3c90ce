"""What the heads of a transformer attend to: weights, logits and summary statistics.

    attending  `attention`: what a transformer attends to, in all or some layers
    weights    `attention_weights`: what one attention call attends to, including `flex_attention`
    numbers    `head_numbers`: what each head of one call does, in a few numbers
    logits     the input of a call's softmax, for some heads and queries, in blocks
"""
