"""Pipelines of two stages over gloo: calls by microbatch, under names of the whole model."""
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, SplitPoint, pipeline
from torch.nn import functional as F

import hooklab as hl
from hooklab.hooks.distributed import Microbatch, running_microbatch
from support.processes import failures_in
from support.sharded import PIPELINES_ABORT, llama, stage_from, words
from support.traces import ours

pytestmark = pytest.mark.skipif(PIPELINES_ABORT or not dist.is_gloo_available(), reason="torch has no pipelines here")
N = 4  # microbatches
SCHEDULES = ScheduleGPipe, Schedule1F1B


@pytest.fixture(scope="module")
def failures(tmp_path_factory): return failures_in(2, CHECKS, tmp_path_factory.mktemp("two"), warnings_are_errors)


def warnings_are_errors(): warnings.simplefilter("error", hl.HookWarning)
def loss(out, target): return F.cross_entropy(out.flatten(0, 1), target.flatten())


def train(schedule, rank, step):
    x = words(step)
    given = (x[:, :-1].contiguous(),) if rank == 0 else ()
    schedule.step(*given, target=x[:, 1:] if rank == 1 else None)


def on_cpu(model, rank): return PipelineStage(model, rank, 2, torch.device("cpu"))


def last(m, *given): return given[-1][0] if isinstance(given[-1], tuple) else given[-1]


def expected(step):
    "For each microbatch: outputs and their gradients in one process, by layer."
    model, found = llama(), []
    for x in words(step).chunk(N):
        with hl.hook_outputs(model, names="*") as outputs, hl.hook_outputs(model, names="*", grad=True) as gradients:
            loss(model(x[:, :-1]), x[:, 1:]).backward()
            found.append({h.name: (h.stored, last(None, g.stored)) for h, g in zip(outputs, gradients)})
    return found


def check_calls_by_microbatch(rank):
    for make in SCHEDULES:
        model = stage_from(llama(), rank)
        schedule = make(on_cpu(model, rank), N, loss_fn=loss)
        with (hl.Hooks(model, last, names="*") as outputs,
              hl.Hooks(model, last, kind="backward_pre", names="*") as gradients):
            for step in range(2):  # the first one begins with a run on nothing
                train(schedule, rank, step)
                wanted = expected(step)
                assert {h.name for h in outputs} < wanted[0].keys()
                for own, which in (outputs, 0), (gradients, 1):
                    for h in own:
                        assert h.n_calls == len(h.calls) == N, (make, h)
                        for seen, of_all in zip(h.calls, wanted):
                            torch.testing.assert_close(seen, of_all[h.name][which], rtol=1e-6, atol=1e-6)
        assert ours(model) == []


def check_keep_and_no_root(rank):
    model = stage_from(llama(), rank)
    schedule = Schedule1F1B(on_cpu(model, rank), N, loss_fn=loss)
    layer = model.blocks[str(rank)].norm1
    with hl.hook_output(layer) as alone, hl.Hooks(model, last, names="*.norm1", keep=2) as two:
        train(schedule, rank, 0)
        assert len(alone.calls) == 1 and len(two[0].calls) == 2 and two[0].n_calls == N
        assert torch.equal(alone.stored, two[0].calls[-1])


def check_functions(rank):
    model, seen = stage_from(llama(), rank), []
    schedule = ScheduleGPipe(on_cpu(model, rank), N, loss_fn=loss)
    with hl.hook_calls(model, F.silu) as kept, hl.hook_calls(model, F.silu, f=lambda call: seen.append(call.name)):
        for step in range(2):
            train(schedule, rank, step)
            assert len(kept) == N and len(seen) == N*(step + 1) and set(seen) == set(kept.by_name)
    assert set(seen) == {f"blocks.{rank}.feed_forward.act/silu#0"}


def check_trial_is_no_call(rank):
    "The function is not called in the run that is only there to learn the shapes."
    for make in SCHEDULES:
        model, seen = stage_from(llama(), rank), []
        schedule = make(on_cpu(model, rank), N, loss_fn=loss)
        def note(m, *given, seen=seen): seen.append(running_microbatch())
        with hl.Hooks(model, note, names="blocks.*.norm1"): train(schedule, rank, 0)
        assert seen == [Microbatch(rank, 2, i, N) for i in range(N)], seen
        seen.clear()
        handle = model.register_forward_pre_hook(lambda m, args, seen=seen: seen.append(running_microbatch()))
        train(make(on_cpu(model, rank), N, loss_fn=loss), rank, 0)
        handle.remove()
        assert [m.trial for m in seen] == [True] + [False]*N


def check_names_of_the_tracer(rank):
    model = llama()
    names = list(hl.layers(model))
    pipe = pipeline(model, (words(0, 2)[:, :-1],), split_spec={"blocks.1": SplitPoint.BEGINNING})
    stage = pipe.build_stage(rank, torch.device("cpu"), None)
    own = list(hl.layers(stage.submod))
    assert own and set(own) - {"blocks"} <= set(names)  # the tracer has `blocks` run, and calls the blocks in it
    schedule = ScheduleGPipe(stage, N, loss_fn=loss)
    wanted = expected(0)
    with hl.Hooks(stage.submod, last, names="blocks.*") as hooks:
        train(schedule, rank, 0)
        for h in hooks:
            if h.n_calls == 0: continue
            for seen, of_all in zip(h.calls, wanted):
                torch.testing.assert_close(seen, of_all[h.name][0], rtol=1e-6, atol=1e-6)
        assert any(h.n_calls == N for h in hooks)


CHECKS = [check_calls_by_microbatch, check_keep_and_no_root, check_functions, check_trial_is_no_call,
          check_names_of_the_tracer]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_two_stages(check, failures):
    found = [text for name, text in failures.items() if name.startswith(check.__name__)]
    if found: pytest.fail("\n".join(found), pytrace=False)


def test_outside_of_a_pipeline():
    seen = []
    with hl.Hook(nn.Identity(), lambda *given: seen.append(running_microbatch())) as h: h.module(torch.ones(1))
    assert seen == [None]
