"""Says which copy of a model drifts away from the others, and when (`replicas`).

    watch   which copy of a model drifts away from those of the other processes, and when
    checks  what processes send one another to compare their copies, and how a difference is reported
    layout  which tensors should be equal on which processes
"""
