"Checks that need several processes."
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def failures_in(n, checks, folder, prepare=None, backend="gloo") -> dict[str, str]:
    """What failed in `n` processes, by the name of the check and the process; each calls `prepare` first."""
    try: started(_work, (n, folder, checks, prepare, backend), n, gpu=backend == "nccl")
    except mp.ProcessExitedException:  # torch now and then aborts a process that has done its work and ends
        if len(list(folder.glob("done*"))) < n: raise
    assert len(list(folder.glob("done*"))) == n
    return {file.stem: file.read_text() for file in folder.glob("*.txt")}


def started(work, args, n, join=True, gpu=False):
    """`work(rank, *args)` in `n` processes. They are forked, for it takes a new one seconds to import torch; but
    where there is a GPU, a fork of a process that has gone backward once can go backward no more."""
    way = "spawn" if gpu or torch.cuda.is_available() else "fork"
    return mp.start_processes(work, args, nprocs=n, join=join, start_method=way)


def failures_in_two(checks, folder, prepare=None): return failures_in(2, checks, folder, prepare)


def _work(rank, n, folder, checks, prepare, backend):
    torch.set_num_threads(1)
    if backend == "nccl": torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=rank, world_size=n)
    if prepare: prepare()
    for check in checks:
        try: check(rank)
        except BaseException: (folder/f"{check.__name__} {rank}.txt").write_text(traceback.format_exc())
    dist.barrier()  # so all have done their work when one of them says so
    (folder/f"done {rank}").touch()
    dist.destroy_process_group()
