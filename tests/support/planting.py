"""A NaN planted in one call of one layer, on some of the processes; and the ways to divide the model that it is planted
in."""
import contextlib

import torch
from torch.distributed.pipelining import PipelineStage
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import hooklab as hl
from hooklab.hooks.select import named_layers, unwrap

from .sharded import fully_sharded, llama, loss_of, mesh_of, sequence_parallel, stage_from, tensor_parallel, words

MICROBATCHES, STEPS = 4, 3
nan = float("nan")


class BadGradient(torch.autograd.Function):
    "What it is given; the gradient is NaN at one place."
    @staticmethod
    def forward(ctx, x): return x.view_as(x)
    @staticmethod
    def backward(ctx, g): return spoiled(g.clone())


def spoiled(t):
    "`t`, where one number of the part that is here is NaN."
    part = t.detach()
    part = part.to_local() if hasattr(part, "to_local") else part
    with torch.no_grad(): part.view(-1)[part.numel()//2] = nan
    return t


@contextlib.contextmanager
def planted(layer, direction, is_now):
    "While it is on, `layer` returns a NaN, or makes one of a gradient, in the calls for which `is_now()`."
    plain = layer.forward

    def forward(x):
        if not is_now(): return plain(x)
        return spoiled(plain(x)) if direction == "forward" else plain(BadGradient.apply(x))

    layer.forward = forward
    try: yield
    finally: del layer.forward


def data_parallel(model, ways): return DistributedDataParallel(model)
def sharded(model, ways): return fully_sharded(model, mesh_of(dp=ways))
def tensor(model, ways): return tensor_parallel(model, mesh_of(tp=ways))
def sequence(model, ways): return sequence_parallel(model, mesh_of(tp=ways))


def grid(model, ways):
    mesh = mesh_of(dp=ways//2, tp=2)
    return fully_sharded(tensor_parallel(model, mesh["tp"]), mesh["dp"])


WAYS = {"DDP": data_parallel, "FSDP2": sharded, "tensor": tensor, "sequence": sequence, "2 x 2": grid}


def rows_of(way, rank, ways, step):
    "The rows that a process has."
    x = words(step, 2*ways)
    if way in ("tensor", "sequence"): return x
    return x.chunk(ways//2)[rank//2] if way == "2 x 2" else x.chunk(ways)[rank]


def plant_in(way, rank, ways, layer, direction, bad_rank, step, on_find):
    "A short training, in which one process makes a NaN."
    model = WAYS[way](llama(), ways)
    inner, now = unwrap(model), []
    def is_now(): return rank == bad_rank and now[-1] == step
    found = dict(named_layers(inner))[layer]
    with planted(found, direction, is_now), hl.find_nan(model, on_find):
        for i in range(step + 1):
            now.append(i)
            model.zero_grad()
            loss_of(model, rows_of(way, rank, ways, i)).backward()


def pipeline_loss(out, target): return F.cross_entropy(out.flatten(0, 1), target.flatten())


def plant_in_stage(make, rank, stages, layer, direction, bad_rank, microbatch, step, on_find):
    "The same in a pipeline."
    from hooklab.hooks.distributed import running_microbatch
    model, now = stage_from(llama(), rank, stages), []
    schedule = make(PipelineStage(model, rank, stages, torch.device("cpu")), MICROBATCHES, loss_fn=pipeline_loss)

    def is_now():
        part = running_microbatch()
        return part and not part.trial and part.index == microbatch and now[-1] == step

    context = contextlib.nullcontext()
    if rank == bad_rank: context = planted(dict(named_layers(model))[layer], direction, is_now)
    with context, hl.find_nan(model, on_find):
        for i in range(step + 1):
            now.append(i)
            model.zero_grad()
            x = words(i)
            given = [x[:, :-1].contiguous()] if rank == 0 else []
            schedule.step(*given, target=x[:, 1:] if rank == stages - 1 else None)
