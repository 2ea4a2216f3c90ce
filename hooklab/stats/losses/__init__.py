"""Compare the losses of a run layer by layer (`compare_losses`).

    comparing_losses  `compare_losses`: which loss drives which layer, and whether losses fight
    loss_report       losses compared, as a table and as a picture
    loss_conflicts    losses that fight, outweigh others, or have no gradient
    pulls             the gradient of each loss in each layer, in one step
"""
