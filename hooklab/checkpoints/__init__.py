"""Checkpoints: were my weights loaded (`match_weights`), what changed between two (`compare`), and is the resumed run
the run (`check_resume`)?

The map; a room imports only from those above it:

    tensor_names       what is the same in the names of two code bases
    reading            the tensors of a file, a folder or a nested checkpoint, read when they are needed
    matching           which tensor is which, and how sure that is
    found_weights      `match_weights`: the steps, the state dict and what is left over
    comparing_weights  what changed between two checkpoints
    loading            what an error of `load_state_dict` means, and loads that load little

    marks              a few bytes for each value, by which two runs are compared
    walking            what a run holds, by path
    variables          the globals and closed-over variables that the functions of a run use
    reruns             a run, made again, saved and resumed
    new_process        the same in a new process
    resume_report      what did not come back, in sentences
    resuming           `check_resume`
    trainer_runs       runs of Hugging Face, Lightning and accelerate
"""
