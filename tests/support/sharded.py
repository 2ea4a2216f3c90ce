"A tiny Llama, and ways to divide it between processes: the same run can be made in one process and in several."
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

release = tuple(int(part) for part in torch.__version__.split(".")[:2])
ADDS_GRADIENTS = release == (2, 8)  # `fully_shard` with gloo, where it should average them
PIPELINES_ABORT = release == (2, 9)  # without a GPU
WORDS, WIDTH, HEADS, HIDDEN, BLOCKS, LENGTH = 32, 16, 4, 32, 2, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (-1, WIDTH//HEADS)).transpose(1, 2) for m in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.act, self.down = nn.SiLU(), nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x): return self.down(self.act(self.gate(x))*self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(WIDTH), Attention()
        self.norm2, self.feed_forward = nn.RMSNorm(WIDTH), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleDict({str(i): Block() for i in range(BLOCKS)})
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        x = self.embed(x) if self.embed is not None else x
        for block in self.blocks.values(): x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def llama(seed=0):
    torch.manual_seed(seed)
    model = Llama()
    for p in model.parameters():  # norms that do something
        if p.dim() == 1: nn.init.uniform_(p, .5, 1.5)
    return model


def words(step, rows=8): return torch.randint(WORDS, (rows, LENGTH + 1), generator=torch.Generator().manual_seed(step))



def loss_of(model, x):
    x = x.to(next(model.parameters()).device)
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def tensor_parallel(model, mesh):
    "Heads and hidden units are divided; what is between the blocks is the same on all."
    for block in model.blocks.values():
        parallelize_module(block, mesh, {
            "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
            "attention.out": RowwiseParallel(), "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(), "feed_forward.down": RowwiseParallel()})
    return parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})


def sequence_parallel(model, mesh):
    "The same, and between the blocks each process has a part of the positions."
    for block in model.blocks.values():
        parallelize_module(block, mesh, {
            "norm1": SequenceParallel(), "norm2": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=Shard(1)), "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(), "feed_forward.down": RowwiseParallel(output_layouts=Shard(1))})
    return parallelize_module(model, mesh, {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})


def fully_sharded(model, mesh=None, **options):
    for block in model.blocks.values(): fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def stage_from(model, stage, stages=2):
    "The part of a model that a stage of a pipeline has. Its layers keep their names."
    first = [round(i*BLOCKS/stages) for i in range(stages + 1)]
    own = range(first[stage], first[stage + 1])
    model.blocks = nn.ModuleDict({str(i): model.blocks[str(i)] for i in own})
    if stage > 0: model.embed = None
    if stage < stages - 1: model.norm = model.head = None
    return model


def mesh_of(device="cpu", **sizes): return init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
