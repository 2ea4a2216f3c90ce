"""Checkpoints: is the resumed run the run? (`check_resume`).

    marks          a few bytes for each value, by which two runs are compared
    walking        what a run holds, by path
    variables      the globals and closed-over variables that the functions of a run use
    reruns         a run, made again, saved and resumed
    new_process    the same in a new process
    resume_report  what did not come back, in sentences
    resuming       `check_resume`
    trainer_runs   runs of Hugging Face, Lightning and accelerate
"""
