"""One process plays rank 77 of 128, on a mesh of 16 by 8, in a group that sends nothing: what does it record, and how
much would it send?"""
import pickle

import pytest
import torch
import torch.distributed as dist

import hooklab as hl
from hooklab.hooks.distributed import CUT, EQUAL, ProcessPlace
from hooklab.stats.records import together
from support import sharded

WORLD, RANK, DP, TP, STEPS = 128, 77, 16, 8, 3
CUT_IN_BLOCK = ("attention.q", "attention.k", "attention.v", "feed_forward.gate", "feed_forward.act", "feed_forward.up")


def with_parts_of(told, rank):
    "What another rank would tell: the same layers, at its place on the mesh."
    where = {"dp": rank//TP, "tp": rank % TP}
    def moved(parts):
        return {name: part._replace(where={dim: where[dim] for dim in part.where}) for name, part in parts.items()}
    kinds = {kind: of | {"parts": moved(of["parts"])} for kind, of in told["kinds"].items()}
    heads = told["heads"] and told["heads"] | {"parts": moved(told["heads"]["parts"])}
    return told | {"process": ProcessPlace(rank, WORLD, where), "kinds": kinds, "heads": heads}


class Sent:
    "Counts what would be sent, and gives back what came: all others have zeros."
    def __init__(self, monkeypatch):
        self.bytes, self.messages, self.told = 0, 0, 0
        monkeypatch.setattr(dist, "all_reduce", self.all_reduce)
        monkeypatch.setattr(together, "from_all", self.from_all)

    def all_reduce(self, x, *args, **kwargs):
        self.bytes += x.nbytes
        self.messages += 1

    def from_all(self, what, *args, **kwargs):
        self.told = len(pickle.dumps(what))
        return [with_parts_of(what, rank) for rank in range(WORLD)]


@pytest.fixture
def rank_of_128(monkeypatch):
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    for name, size in {"WIDTH": 64, "HEADS": 8, "HIDDEN": 128}.items(): monkeypatch.setattr(sharded, name, size)
    dist.init_process_group("fake", rank=RANK, world_size=WORLD, store=fake.FakeStore())
    yield sharded.mesh_of(dp=DP, tp=TP)
    dist.destroy_process_group()


def recorded(model, steps=STEPS):
    stats = hl.ActivationStats.for_diagnosis()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with stats.on(model, optimizer):
        for step in range(steps):
            loss = sharded.loss_of(model, sharded.words(step))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            stats.step(loss)
    return stats


def size_of(stats):
    "The bytes of the numbers of a record."
    return sum(history.tables().nbytes for history in stats.histories.values())


@pytest.mark.parametrize("divide", [sharded.tensor_parallel, sharded.sequence_parallel])
def test_rank_77_of_128(rank_of_128, monkeypatch, divide):
    mesh = rank_of_128
    stats = recorded(sharded.fully_sharded(divide(sharded.llama(), mesh["tp"]), mesh["dp"]))
    assert stats.process == ProcessPlace(RANK, WORLD, {"dp": RANK//TP, "tp": RANK % TP})
    assert "rank 77 of 128 (dp 9, tp 5) alone" in repr(stats)
    cut = {f"blocks.{block}.{name}" for block in range(sharded.BLOCKS) for name in CUT_IN_BLOCK}
    if divide is sharded.tensor_parallel: assert set(stats.history.cut) == cut
    assert cut <= set(stats.history.cut) and set(stats.history.cut.values()) == {"a part along tp"}
    part = stats.history.parts["blocks.1.feed_forward.act"]
    assert part.along == {"tp": CUT} and part.where == {"tp": 5} and part.counts
    of_weights = stats.updates.parts
    assert of_weights["blocks.0.attention.q.weight"].along == {"dp": CUT, "tp": CUT}
    assert of_weights["blocks.0.norm1.weight"].along == {"dp": CUT, "tp": EQUAL}

    before = size_of(stats)
    Sent(monkeypatch)
    stats.combine()
    assert stats.combined and len(stats.steps) == STEPS and "all 128 processes together" in repr(stats)
    assert size_of(stats) == before  # the record of all is as large as that of one


def longer(stats, steps):
    "The record, as if the run had gone on and on."
    for history in [*stats.histories.values(), stats.log, stats.attention]:
        tables = history.table() if history is stats.log else history.tables()
        tables = tables.repeat(steps//STEPS + 1, *[1]*(tables.dim() - 1))[:steps]
        history.fill([*range(steps)], *([history.heads] if history is stats.attention else []), tables)
    return stats


def test_what_500_steps_send(rank_of_128, monkeypatch):
    "Sums of the size of the record, whatever the number of processes; and a few KB that each tells all others."
    mesh = rank_of_128
    stats = recorded(sharded.fully_sharded(sharded.tensor_parallel(sharded.llama(), mesh["tp"]), mesh["dp"]))
    short = len(pickle.dumps(together.metadata_of(stats)))
    longer(stats, 500)
    kept, sent = size_of(stats), Sent(monkeypatch)
    stats.combine()
    assert len(stats.steps) == 500
    assert sent.bytes < 4*kept and sent.messages < 40 and sent.told < 2*short
    print(f"{len(stats.names)} layers, 500 steps: the record {kept/1e6:.2f} MB, sent {sent.bytes/1e6:.2f} MB in "
          f"{sent.messages} messages, told {sent.told/1e3:.1f} KB")
