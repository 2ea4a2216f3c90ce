"Gradient norms: those that torch gives beside the record, in every kind of loop."
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.hooks.attached import hooks_on

torch.set_num_threads(1)
CLOSE = {"rtol": 1e-6, "atol": 1e-9}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def batch(i):
    g = torch.Generator().manual_seed(i)
    return torch.randn(12, 6, generator=g), torch.randint(3, (12,), generator=g)


def loss_of(model, i):
    x, y = batch(i)
    return F.cross_entropy(model(x), y)


def norms(params): return torch.stack([torch.nan if p.grad is None else p.grad.norm() for p in params])


class ByHand:
    "A record, and beside it the norms that torch gives."
    def __init__(self, model, optimizers, scaler=None, **options):
        self.model, self.params = model, list(model.parameters())
        self.stats = hl.ActivationStats(**options).on(model, optimizer=optimizers, scaler=scaler)
        self.now, self.before = [], []

    def after_backward(self): self.unclipped = self.measured()
    def at_step(self): self.clipped = self.measured()

    def measured(self):
        return [math.nan if p.grad is None else p.grad.detach().coalesce().float().norm().item() if p.grad.is_sparse
                else p.grad.detach().float().norm().item() for p in self.params]

    def end_step(self):
        self.now.append(self.clipped)
        self.before.append(self.unclipped)
        self.stats.step()

    def check(self, unknown=(), **close):
        "`unknown` are steps in which no norm before clipping is known."
        close = CLOSE | close
        self.stats.remove()
        assert not hooks_on(self.model)
        updates, log = self.stats.updates, self.stats.log
        names = [name for name, _ in self.model.named_parameters()]
        rows = [updates.names.index(name) for name in names if name in updates.names]
        known = [i for i, name in enumerate(names) if name in updates.names]
        for what, found in ("grad_norm", self.now), ("grad_norm_unclipped", self.before):
            wanted = torch.tensor(found)
            if what.endswith("unclipped"): wanted[list(unknown)] = math.nan
            there = wanted[updates.steps][:, known].T
            torch.testing.assert_close(updates.values(what)[rows], there, equal_nan=True, **close)
            total = torch.tensor([math.nan if torch.tensor(one).isnan().all() else
                                  math.sqrt(sum(x*x for x in one if x == x)) for one in found])
            if what.endswith("unclipped"): total[list(unknown)] = math.nan
            torch.testing.assert_close(log.values(what).float(), total, equal_nan=True, **close)


def train(hand, optimizer, backward, steps, clip=None):
    "Steps in which `backward(i)` computes the gradients."
    for i in range(steps):
        hand.model.zero_grad()
        backward(i)
        hand.after_backward()
        if clip: nn.utils.clip_grad_norm_(hand.params, clip)
        hand.at_step()
        for one in optimizer if isinstance(optimizer, list) else [optimizer]: one.step()
        hand.end_step()


def through_data(params):
    for p in params: p.grad.data.clamp_(-.02, .02)


CLIPS = {
    "not at all": lambda params: None,
    "norm": lambda params: nn.utils.clip_grad_norm_(params, .1),
    "values": lambda params: nn.utils.clip_grad_value_(params, .02),
    "a part": lambda params: nn.utils.clip_grad_norm_(params[:2], .1),
    "a part by hand": lambda params: torch._foreach_mul_([p.grad for p in params[:2]], .3),
    "through .data": through_data,
    "new tensors": lambda params: [setattr(p, "grad", p.grad*.3) for p in params],
}


@pytest.mark.parametrize("options", [{}, {"turns": 2}, {"loop": True, "turns": 2}, {"every": 3}], ids=str)
@pytest.mark.parametrize("clip", CLIPS)
def test_the_norms_are_those_of_torch(clip, options):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), .01)
    hand = ByHand(model, optimizer, **options)
    for i in range(20):
        optimizer.zero_grad()
        loss_of(model, i).backward()
        hand.after_backward()
        CLIPS[clip](hand.params)
        hand.at_step()
        optimizer.step()
        hand.end_step()
    hand.check(unknown=[1] if clip == "a part by hand" else [])  # in the first step but one that is seen, then no more


def test_the_total_is_what_clipping_returns():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .1)
    totals = []
    with hl.ActivationStats(turns=2).on(model, optimizer=optimizer) as stats:
        for i in range(30):
            optimizer.zero_grad()
            loss_of(model, i).backward()
            totals.append(nn.utils.clip_grad_norm_(model.parameters(), 1e-3))
            optimizer.step()
            stats.step()
    torch.testing.assert_close(stats.log.values("grad_norm_unclipped").float(), torch.stack(totals), **CLOSE)
    torch.testing.assert_close(stats.log.values("grad_norm").float(), torch.full((30,), 1e-3), rtol=2e-3, atol=0)
    assert len(stats.log) == 30 and len(stats.updates) < 10


def test_gradients_of_several_batches():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .1)
    hand = ByHand(model, optimizer)
    def backward(i):
        for j in range(3): (loss_of(model, 10*i + j)/3).backward()
    train(hand, optimizer, backward, 5, clip=.1)
    hand.check()


def test_passes_that_reach_other_parameters():
    "A pass that the chosen parameter does not hear of is not taken for clipping: in that step the norm is unknown."
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    optimizer = torch.optim.SGD(model.parameters(), .1)
    hand = ByHand(model, optimizer)
    def backward(i):
        x = torch.randn(5, 4)
        model["b"](model["a"](x)).sum().backward()
        if i >= 3: model["a" if i % 2 else "b"](x).square().sum().backward()
    train(hand, optimizer, backward, 8)
    found = hand.stats.log.values("grad_norm_unclipped")
    first = found[3:].isnan().nonzero().flatten().tolist()
    assert len(first) <= 1
    hand.check(unknown=[3 + i for i in first])


@pytest.mark.parametrize("clip", [None, .01])
def test_heads_that_take_turns(clip):
    "In the first step a part runs that never runs again: where it was listened to, nothing is heard any more."
    torch.manual_seed(0)
    model = nn.ModuleDict({"body": nn.Linear(4, 4), "a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    optimizer = torch.optim.SGD(model.parameters(), .1)
    hand = ByHand(model, optimizer)
    def backward(i): model["b" if i else "a"](model["body"](torch.randn(5, 4)).detach()).square().sum().backward()
    train(hand, optimizer, backward, 5, clip)
    hand.check(unknown=[] if clip else [1])  # a call that clips is heard wherever passes go


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler(unscale, fused):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024., growth_interval=3)
    hand = ByHand(model, optimizer, scaler)
    for i in range(10):
        optimizer.zero_grad()
        scale = scaler.get_scale()
        scaler.scale(loss_of(model, i)).backward()
        hand.unclipped = hand.clipped = [x/scale for x in hand.measured()]
        if unscale:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(hand.params, .05)
            hand.at_step()
        scaler.step(optimizer)
        scaler.update()
        hand.end_step()
    hand.check(rtol=2e-6)


def test_a_step_that_a_scaler_skips_has_the_norm_before_it_alone():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.)
    with hl.ActivationStats().on(model, optimizer=optimizer, scaler=scaler) as stats:
        for i in range(4):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, i)*(math.inf if i == 2 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            stats.step()
    now, before = (stats.log.values(what) for what in ("grad_norm", "grad_norm_unclipped"))
    assert now.isnan().tolist() == [False, False, True, False] and not before[2].isfinite()
    assert before[[0, 1, 3]].isfinite().all()


def test_two_optimizers_and_a_parameter_that_both_have():
    model = net()
    params = list(model.parameters())
    optimizers = [torch.optim.SGD(params[:3], .1), torch.optim.Adam(params[2:], .01)]
    hand = ByHand(model, optimizers)
    train(hand, optimizers, lambda i: loss_of(model, i).backward(), 6, clip=.1)
    hand.check()


def test_networks_that_take_turns():
    "Of a GAN, each optimizer's norms are those at its own step, whatever the other's pass adds afterwards."
    torch.manual_seed(0)
    model = nn.ModuleDict({"g": nn.Linear(3, 4), "d": nn.Linear(4, 1)})
    one, other = (torch.optim.SGD(model[name].parameters(), .05) for name in "dg")
    wanted = []
    with hl.ActivationStats().on(model, optimizer=[one, other]) as stats:
        for _ in range(6):
            squares = 0.
            for optimizer, sign in (one, 1), (other, -1):
                optimizer.zero_grad()
                (sign*model["d"](model["g"](torch.randn(8, 3))).square().mean()).backward()
                part = [p for group in optimizer.param_groups for p in group["params"]]
                squares = squares + norms(part).square().sum()
                optimizer.step()
            wanted.append(squares.sqrt())
            stats.step()
    for what in ("grad_norm", "grad_norm_unclipped"):
        torch.testing.assert_close(stats.log.values(what).float(), torch.stack(wanted), **CLOSE)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.body, self.frozen = nn.Embedding(7, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight
        self.spare = nn.Linear(5, 5)  # never runs
        self.frozen.requires_grad_(False)

    def forward(self, x): return self.head(self.frozen(self.body(self.embed(x))))


def test_tied_frozen_and_idle_weights():
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), .1)
    hand = ByHand(model, optimizer)
    train(hand, optimizer, lambda i: model(torch.randint(7, (9,))).logsumexp(1).mean().backward(), 4)
    hand.check()
    assert not {"frozen.weight", "head.weight"} & {*hand.stats.updates.names}


def test_a_closure_has_the_norms_of_its_last_call():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), .1, max_iter=3)
    hand = ByHand(model, optimizer)
    for i in range(4):
        def closure(i=i):
            optimizer.zero_grad()
            loss = loss_of(model, i)
            loss.backward()
            hand.after_backward()
            hand.at_step()
            return loss
        optimizer.step(closure)
        hand.end_step()
    hand.check()


def test_sparse_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2))
    optimizers = [torch.optim.SparseAdam(model[0].parameters()), torch.optim.SGD(model[2].parameters(), .1)]
    hand = ByHand(model, optimizers)
    train(hand, optimizers, lambda i: model(torch.randint(20, (6, 3))).square().mean().backward(), 4)
    hand.check()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_other_numbers(dtype):
    model = net().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), .1)
    hand = ByHand(model, optimizer)
    def backward(i):
        x, y = batch(i)
        F.cross_entropy(model(x.to(dtype)), y).backward()
    train(hand, optimizer, backward, 3)
    hand.check()


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.reentrant = nn.ModuleList(nn.Linear(6, 6) for _ in range(3)), reentrant

    def forward(self, x):
        for layer in self.layers: x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    model = Checkpointed(reentrant)
    optimizer = torch.optim.SGD(model.parameters(), .1)
    hand = ByHand(model, optimizer)
    train(hand, optimizer, lambda i: model(batch(i)[0].requires_grad_()).square().mean().backward(), 4, clip=.01)
    hand.check()


def test_compiled_models():
    model = net()
    run = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), .1)
    hand = ByHand(model, optimizer)
    train(hand, optimizer, lambda i: loss_of(run, i).backward(), 4, clip=.05)
    hand.check()


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()

    @staticmethod
    def backward(ctx, g): raise RuntimeError("broken")


def test_a_backward_pass_that_fails_leaves_the_next_ones_as_they_are():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .1)
    hand = ByHand(model, optimizer)
    def backward(i):
        if i % 2:
            broken = model[2](Fails.apply(model[:2](batch(i)[0]))).sum()
            with pytest.raises(RuntimeError, match="broken"): broken.backward()
            optimizer.zero_grad()
        loss_of(model, i).backward()
    train(hand, optimizer, backward, 6, clip=.05)
    hand.check()


@pytest.mark.parametrize("way", ["torch.func", "autograd.grad", "by hand"])
@pytest.mark.parametrize("clips", [True, False])
@pytest.mark.filterwarnings("error")
def test_gradients_that_no_backward_pass_accumulates(way, clips):
    "They are written to `.grad`, and no warning is given. Before clipping, the norm is what the call saw, or unknown."
    model = net()
    optimizer, params = torch.optim.SGD(model.parameters(), .1), dict(model.named_parameters())
    def of_sample(given, x, y):
        return F.cross_entropy(torch.func.functional_call(model, given, (x[None],)), y[None])
    def gradients(i):
        x, y = batch(i)
        if way == "autograd.grad": return torch.autograd.grad(loss_of(model, i), params.values())
        if way == "by hand": return [torch.full_like(p, .1*i + .2) for p in params.values()]
        given = {name: p.detach() for name, p in params.items()}
        each = torch.func.vmap(torch.func.grad(of_sample), (None, 0, 0))(given, x, y)
        return [g.mean(0) for g in each.values()]
    now, before = [], []
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i in range(12):
            model(batch(i)[0])
            for p, g in zip(params.values(), gradients(i)): p.grad = g.detach().clone()
            before.append(norms(params.values()).norm() if clips else torch.tensor(torch.nan))
            if clips: nn.utils.clip_grad_norm_(params.values(), .05)
            now.append(norms(params.values()).norm())
            optimizer.step()
            stats.step()
    for what, wanted in ("grad_norm", now), ("grad_norm_unclipped", before):
        torch.testing.assert_close(stats.log.values(what).float(), torch.stack(wanted), equal_nan=True, **CLOSE)
    assert {*stats.log.unclipped_is()} == {"exact" if clips else "unknown"}


def test_an_optimizer_that_works_in_the_backward_pass():
    "Each parameter has its own, which makes its step when the gradient has come, and clears it."
    model = net()
    optimizers = {p: torch.optim.SGD([p], .1) for p in model.parameters()}
    wanted = []

    def step(p):
        wanted[-1].append(p.grad.norm())
        optimizers[p].step()
        optimizers[p].zero_grad()
    with hl.ActivationStats().on(model, optimizer=[*optimizers.values()]) as stats:
        for p in optimizers: p.register_post_accumulate_grad_hook(step)
        for i in range(3):
            wanted.append([])
            loss_of(model, i).backward()
            stats.step()
    totals = torch.stack([torch.stack(one).norm() for one in wanted])
    torch.testing.assert_close(stats.log.values("grad_norm").float(), totals, **CLOSE)


# The table

def trained(clip=None, steps=4, **options):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), .1)
    with hl.ActivationStats(**options).on(model, optimizer=optimizer) as stats:
        for i in range(steps):
            optimizer.zero_grad()
            loss_of(model, i).backward()
            if clip: nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            stats.step()
    return stats


def test_the_table_has_the_largest_first():
    stats = trained(clip=.1)
    table = stats.grad_norms()
    lengths = [row["grad_norm"] for row in table.rows]
    assert table.step == 3 and lengths == sorted(lengths, reverse=True) and len(lengths) == 4
    assert abs(table.grad_norm - .1) < 1e-4 < table.grad_norm_unclipped - .1
    lines = repr(table).splitlines()
    assert lines[0] == "Gradient norms at the optimizer step, in step 3"
    assert lines[1].split() == ["norm", "before", "clipping"]
    assert lines[2].startswith("(all together)") and lines[3].startswith(table.rows[0]["parameter"])
    assert stats.grad_norms(step=1).step == 1 and stats.grad_norms(-2).step == 2
    assert "before clipping" not in repr(trained().grad_norms())


def test_tables_and_tensorboard_have_the_norms_by_name():
    stats = trained(clip=.1)
    rows = [row for row in stats.table() if row["kind"] == "updates"]
    assert {"grad_norm", "grad_norm_unclipped"} <= rows[0].keys()
    written = []
    class Writer:
        def add_scalar(self, name, x, step): written.append(name)
    stats.to_tensorboard(Writer())
    assert "updates/0.weight/grad_norm" in written and "updates/0.weight/grad_norm_unclipped" in written


def test_a_record_without_an_optimizer_says_how_to_get_norms():
    model = net()
    with hl.ActivationStats().on(model) as stats:
        loss_of(model, 0).backward()
        stats.step()
    with pytest.raises(LookupError, match=r"need the optimizer: start with stats.on\(model, optimizer=optimizer\)"):
        stats.grad_norms()
    with pytest.raises(LookupError, match="nothing has been recorded yet"): hl.ActivationStats().grad_norms()


def test_an_optimizer_that_is_replaced_has_no_norms():
    model = net()
    old, new = (torch.optim.SGD(model.parameters(), .1) for _ in range(2))
    with hl.ActivationStats().on(model, optimizer=old) as stats:
        for optimizer in old, new:
            optimizer.zero_grad()
            loss_of(model, 0).backward()
            optimizer.step()
            stats.step()
    assert stats.grad_norms(0).grad_norm > 0
    with pytest.raises(LookupError, match="the optimizer made no step"): stats.grad_norms(1)


def test_a_file_has_the_norms(tmp_path):
    stats = trained(clip=.1)
    stats.save(tmp_path/"run.safetensors")
    found = hl.ActivationStats.load(tmp_path/"run.safetensors")
    assert repr(found.grad_norms()) == repr(stats.grad_norms())
