"""Find which copy of a model drifts away from the others, and when (`replicas`).

    watch   `replicas`: which copy of a model drifts away from those in the other processes, and when
    checks  what processes send each other to compare their copies, and how a difference is reported
    layout  which tensors should be equal on which processes
"""
