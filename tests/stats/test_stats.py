"Statistics: right numbers, on anything a layer may return, and nothing changed by them."
import copy
import gc
import io
import math
import pickle
import warnings
import weakref

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.utils._pytree import tree_leaves

import hooklab as hl
from hooklab.stats.measure import measuring, meter_groups, stacked_outputs
from hooklab.stats.records import moments
from hooklab.stats.records.history import History
from support.portions import one_in


def net(**bn): return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, **bn), nn.ReLU(inplace=True), nn.Linear(16, 4))
def batches(n=6, size=32): return torch.randn(n, size, 8, generator=torch.Generator().manual_seed(0))


def train(model, xs, s=None, lr=.1, opt=None):
    opt = opt or torch.optim.SGD(model.parameters(), lr)
    losses = []
    for x in xs:
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        if s is not None: s.step()
        losses.append(loss.detach())
    return losses


def by_hand(o) -> dict:
    "The numbers of one tensor, by the formulas that everybody knows."
    o = o.detach().float()
    return {"mean": o.mean(), "std": o.std(), "near_zero": (o <= .05).float().mean(), "hist": o.histc(40, 0, 10)}


def seen_by_hand(model, xs, names, **how):
    "What raw hooks see in each step."
    named, rows, row = dict(model.named_modules()), [], {}
    def look(name): return lambda m, i, o: row.__setitem__(name, by_hand(o))
    handles = [named[name].register_forward_hook(look(name)) for name in names]
    for x in xs:
        train(model, [x], **how)
        rows.append([row[name] for name in names])
    for h in handles: h.remove()
    return rows


def assert_rows_equal(found, wanted):
    assert len(found) == len(wanted)
    for row, right in zip(found, wanted):
        for given_, numbers in zip(row, right, strict=True):
            for what in ("mean", "std", "near_zero"):
                torch.testing.assert_close(given_[what], numbers[what].item(), rtol=1e-5, atol=1e-6, equal_nan=True, msg=lambda m: f"{what}: {m}")
            if "hist" in given_: assert torch.equal(given_["hist"], numbers["hist"])


# The numbers

@pytest.mark.parametrize("options", [{}, {"with_hist": True}, {"counts": True}, {"with_hist": True, "every": 1}])
def test_as_by_hand(options):
    torch.manual_seed(0)
    model = net()
    twin, xs = copy.deepcopy(model), batches()*3
    with hl.ActivationStats(**options).on(model) as s: train(model, xs, s)
    assert s.names == ["0", "1", "3"]
    assert_rows_equal(s.stats, seen_by_hand(twin, xs, s.names))
    assert s.layer_stats(1) == [[row[1][what] for row in s.stats] for what in ("mean", "std", "near_zero")]
    assert s.stats_tensor.shape == (2, 3, 6)


def test_large_and_small_layers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 40, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(40, 2, 3, stride=2), nn.Flatten(), nn.LazyLinear(3))
    xs = torch.randn(4, 8, 3, 16, 16)
    model(xs[0])
    twin = copy.deepcopy(model)
    assert 8*40*16*16 > stacked_outputs.MAX_STACKED["cpu"]
    for options in ({"with_hist": True}, {"with_hist": True, "hist_sample": 1000}):
        with hl.ActivationStats(**options).on(model) as s: train(model, xs, s, lr=0)
        right = seen_by_hand(twin, xs, s.names, lr=0)
        for row in s.stats if "hist_sample" in options else []:
            for given_ in row:
                assert given_.pop("hist").sum() <= 1000
        assert_rows_equal(s.stats if "hist_sample" not in options else [[{k: v for k, v in g.items() if k != "hist"} for g in row] for row in s.stats], right)


def test_a_sample_is_like_the_whole():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4000))
    exact, sample = hl.ActivationStats(with_hist=True), hl.ActivationStats(with_hist=True, hist_sample=4096)
    with exact.on(model), sample.on(model):
        for x in batches(3)*5:
            model(x)
            exact.step()
            sample.step()
    whole, part = exact.history.values("hist"), sample.history.values("hist")
    assert part.sum(1).max() <= 4096
    assert ((whole/whole.sum(1, keepdim=True) - part/part.sum(1, keepdim=True)).abs() < .03).all()
    for what in ("under", "over", "around_zero"): torch.testing.assert_close(exact.history.values(what), sample.history.values(what), atol=.03, rtol=0)


shapes = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)

@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(shapes, st.floats(-1e3, 1e3), st.floats(1e-2, 1e2), st.integers(0, 2**31)), min_size=1, max_size=6), st.booleans())
def test_streams_as_one_batch(parts, twice):
    "However numbers are cut into calls, they are measured as if they had come at once."
    calls = [torch.randn(shape, generator=torch.Generator().manual_seed(seed))*scale + shift for shape, shift, scale, seed in parts]
    model = nn.Identity()
    whole = nn.Sequential(model)
    with hl.ActivationStats(with_hist=True, modules=[model]).on(whole) as s:
        for _ in range(1 + twice):  # in the second step, the calls are expected
            for x in calls: whole(x)
            s.step()
    flat = torch.cat([x.reshape(-1) for x in calls])
    if not len(flat): return
    for (found,) in s.stats:
        double = flat.double()
        assert found["mean"] == pytest.approx(double.mean().item(), rel=1e-4, abs=1e-4*double.abs().max().item())
        if len(flat) > 1: assert found["std"] == pytest.approx(double.std().item(), rel=1e-3, abs=1e-6*double.abs().max().item())
        else: assert math.isnan(found["std"])
        assert found["near_zero"] == pytest.approx((flat <= .05).float().mean().item(), rel=1e-6)
        assert torch.equal(found["hist"], flat.histc(40, 0, 10))


def test_deviation_far_from_zero():
    class Far(nn.Module):
        def forward(self, x): return x + 1000
    far = Far()
    model = nn.Sequential(nn.Linear(8, 500), far)
    with hl.ActivationStats(modules=[far]).on(model) as s:
        for x in batches(3):
            right = model(x).double().std().item()
            s.step()
            assert s.layer_stats(0)[1][-1] == pytest.approx(right, rel=1e-3)


@pytest.mark.parametrize("n", [2**24 + 3])
def test_many_numbers(n):
    x = torch.rand(n)
    out, work = torch.empty(4, 1), torch.empty(1, n)
    moments.write_statistics(x[None], out, work, moments.RowSizes([n], work))
    assert out[1].item() == pytest.approx(x.double().mean().item(), rel=1e-5)
    assert (out[2]/n).item() == pytest.approx(x.double().var(correction=0).item(), rel=1e-4)


LARGE = {
    "in a row": lambda x: x,
    "channels last": lambda x: x.unflatten(1, (-1, 10, 10)).to(memory_format=torch.channels_last),
    "transposed": lambda x: x.T, "expanded": lambda x: x[:, :1].expand(-1, 3000), "every second": lambda x: x[:, ::2],
    "half": lambda x: x.half(), "far from zero": lambda x: x + 1000, "all the same": lambda x: x*0 + 3,
    "of a prime number": lambda x: x.flatten()[:99_991], "negated": lambda x: torch._neg_view(x),
    "one is infinite": lambda x: x.index_fill(1, torch.tensor(7), -torch.inf),
    "one is NaN": lambda x: x.index_fill(1, torch.tensor(7), torch.nan)}


def first_layer(history): return torch.cat([history.stats_tensor[:, 0], history.values("near_zero")[:1]])


@pytest.mark.parametrize("what", LARGE)
def test_large_outputs(what):
    "Too large to be copied: measured as they are, in the first step and when their shape is known."
    model, x = nn.Sequential(Returns(LARGE[what])), torch.randn(60, 3000)
    right = LARGE[what](x).double()
    with warnings.catch_warnings(action="error"), hl.ActivationStats().on(model) as s:
        for _ in range(3):
            model(x)
            s.step()
    n, near = right.numel(), (right <= .05).double().mean()
    assert s.history.values("n").tolist() == [[n]*3]
    found, close = first_layer(s.history), dict(rtol=1e-5, atol=1e-5, equal_nan=True)
    deviation = right.std() if right.isfinite().all() else torch.tensor(torch.nan).double()
    expected = torch.stack([right.mean(), deviation, near])[:, None].expand(3, 3).float()
    torch.testing.assert_close(found, expected, **close)


@pytest.mark.parametrize("width", [8, 3000])
def test_a_step_in_inference_mode(width):
    "The memory to work in is used again, and what is made in that mode cannot be written afterwards."
    model, x = nn.Sequential(nn.Linear(8, width)), torch.randn(60, 8)
    with warnings.catch_warnings(action="error"), hl.ActivationStats(with_hist=width == 8).on(model) as s:
        for inference in True, False, True, False:
            with torch.inference_mode(inference): right = model(x).std().item()
            s.step()
    assert s.layer_stats(0)[1] == pytest.approx([right]*4)


@pytest.mark.parametrize("scale", [2.**10, 3., 2.**100, 2.**126])
def test_large_gradients_are_unscaled(scale):
    "Also where their squares would be too large."
    model, scaler = nn.Sequential(nn.Linear(8, 3000)), torch.amp.GradScaler("cpu", init_scale=scale)
    x, g = torch.randn(60, 8), torch.rand(60, 3000)
    with warnings.catch_warnings(action="error"), hl.ActivationStats(grads=True).on(model, scaler=scaler) as s:
        for _ in range(2):
            scaler.scale((model(x)*g).sum()).backward()
            s.step()
    found = torch.stack([g.mean(), g.std(), (g <= .05).float().mean()])[:, None].expand(3, 2)
    torch.testing.assert_close(first_layer(s.gradients), found)


def bin_edges():
    edges = torch.arange(0, 10.01, .25)
    x = [edges]
    for direction in (-100., 100.):
        near = edges
        for _ in range(3):
            near = torch.nextafter(near, torch.tensor(direction))
            x.append(near)
    return torch.cat(x)


def test_bins_at_their_edges():
    x = torch.cat([bin_edges(), torch.tensor([float("inf"), -float("inf"), float("nan"), 1e30, -1e30, 10.])])[None]
    out, work = torch.empty(len(moments.row_names(True, True)), 1), torch.empty_like(x)
    moments.write_statistics(x, out, work, moments.RowSizes([x.shape[1]], work))
    assert torch.equal(out[-40:, 0], x.histc(40, 0, 10))
    plain = moments.row_statistics(x, with_hist=True)
    assert torch.equal(out[3:], plain[3:])
    assert out[4:9, 0].tolist() == [1, 2, (x < 0).sum(), (x > 10).sum(), (x.abs() <= .05).sum()]


# Anything that a layer may return

class Returns(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f, self.weight = f, nn.Parameter(torch.ones(1))
    def forward(self, x): return self.f(x*self.weight)


odd = {
    "tuple": (lambda x: (None, (x, x + 1)), lambda x: x),
    "dict": (lambda x: {"a": x, "b": 1}, lambda x: x),
    "half": (lambda x: x.half(), lambda x: x.half().float()),
    "bfloat16": (lambda x: x.bfloat16(), lambda x: x.bfloat16().float()),
    "double": (lambda x: x.double(), lambda x: x),
    "integer": (lambda x: (x*5).long(), lambda x: (x*5).long().float()),
    "boolean": (lambda x: x > 0, lambda x: (x > 0).float()),
    "complex": (lambda x: torch.complex(x, x + 1), lambda x: torch.complex(x, x + 1).abs()),
    "sparse": (lambda x: x.relu().to_sparse(), lambda x: x.relu()),
    "channels last": (lambda x: x.reshape(2, 2, 4, 4).contiguous(memory_format=torch.channels_last), lambda x: x),
    "strided": (lambda x: x.t()[::2], lambda x: x.t()[::2]),
    "expanded": (lambda x: x[:1].expand(50, -1), lambda x: x[:1].expand(50, -1)),
    "scalar": (lambda x: x.sum(), None),
    "one": (lambda x: x[:1, :1], None),
    "empty": (lambda x: x[:0], None),
    "nothing": (lambda x: None, None),
    "nan": (lambda x: x*float("nan"), lambda x: x*float("nan")),
    "one nan": (lambda x: torch.where(x == x.max(), float("nan"), x), lambda x: torch.where(x == x.max(), float("nan"), x)),
    "nested": (lambda x: torch.nested.as_nested_tensor([x[:3], x[3:]], layout=torch.jagged), lambda x: x),
    "inference": (lambda x: x.detach(), lambda x: x),
}

@pytest.mark.parametrize("what", odd)
@pytest.mark.parametrize("options", [{}, {"with_hist": True}, {"with_hist": True, "hist_sample": 20}])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_odd_outputs(what, options):
    f, same = odd[what]
    torch.manual_seed(0)
    model = nn.Sequential(Returns(f))
    with hl.ActivationStats(**options).on(model) as s:
        for x in batches(3, 8)*4:
            with torch.inference_mode(what == "inference"): model(x)
            s.step()
    if what == "nothing": return
    assert len(s.stats) == 3
    for x, (found,) in zip(batches(3, 8)*4, s.stats):
        if same is not None:
            right = by_hand(same(x))
            if "hist_sample" in options: found.pop("hist")
            assert_rows_equal([[found]], [[right]])
        elif what == "empty": assert all(math.isnan(found[k]) for k in ("mean", "std", "near_zero"))
        else: assert not math.isnan(found["mean"]) and math.isnan(found["std"])


class Picky(torch.Tensor):
    "Adds behavior to torch's functions, and asks for more than torch does."
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("new_empty", "__getitem__") and not isinstance(args[1], tuple): raise TypeError("a tuple is wanted")
        return super().__torch_function__(func, types, args, kwargs or {})


class Opaque(torch.Tensor):
    "Has its numbers in another tensor, without saying so."
    @staticmethod
    def __new__(cls, inner): return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
    def __init__(self, inner): self.inner = inner
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None): raise NotImplementedError(f"no {func}")


class Stubborn(list):
    "Cannot be looked into."
    def __iter__(self): raise LookupError("not for you")


every_option = pytest.mark.parametrize("options", [{}, {"with_hist": True, "grads": True}, {"counts": True}, {"with_hist": True, "hist_sample": 20, "grads": True}])


@every_option
def test_subclasses_of_tensor(options): check_subclasses(options, compiled=False)


# not in the slow part: once fastai is imported, its `as_subclass` never ends in compiled code
@pytest.mark.parametrize("options", [{}, {"with_hist": True, "hist_sample": 20, "grads": True, "counts": True}])
def test_subclasses_of_tensor_in_compiled_code(options): check_subclasses(options, compiled=True)


def check_subclasses(options, compiled):
    torch._dynamo.reset()
    found = []
    for kind in (torch.Tensor, Picky):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Identity(), nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 30))
        called = torch.compile(model, backend="eager") if compiled else model
        with hl.ActivationStats(include_paramless=True, **options).on(called) as s:
            train(called, [x.as_subclass(kind) for x in batches(3)], s)
        found.append(s)
    plain, picky = found
    for kind, history in plain.histories.items():
        assert torch.equal(history.tables(), picky.histories[kind].tables()) and type(picky.histories[kind].kept.chunks[0]) is torch.Tensor


@every_option
def test_what_cannot_be_measured_is_left_out_and_told_once(options):
    class Wrap(nn.Module):
        def __init__(self, wrap):
            super().__init__()
            self.wrap, self.weight = wrap, nn.Parameter(torch.ones(1))
        def forward(self, x): return self.wrap(x.detach())

    class Inside(nn.Module):
        def forward(self, x): return x.inner if isinstance(x, Opaque) else list.__getitem__(x, 0)

    for wrap, name in ((Opaque, "Opaque"), (lambda x: Stubborn([x]), "Stubborn")):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), Wrap(wrap), Inside(), nn.Linear(16, 4))
        twin = copy.deepcopy(model)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with hl.ActivationStats(**options).on(model) as s: losses = train(model, batches(3), s)
        assert losses == train(twin, batches(3))
        means = s.stats_tensor[0]
        assert means[1].isnan().all() and not means[[0, 2]].isnan().any()
        outputs, *gradients = [str(w.message) for w in said]
        assert outputs.startswith("1: its output, a " + name + ", can't be measured and is left out") and said[0].category is hl.HookWarning
        assert len(gradients) <= 1 and all(f"1: the gradient of its output, a {name}, cannot" in text for text in gradients)


def test_memory_to_work_in_is_of_no_subclass():
    scratch = moments.Scratch()
    assert type(scratch.like(torch.ones(3, 2).as_subclass(Picky))) is torch.Tensor


def test_counts():
    model = nn.Sequential(Returns(lambda x: x))
    x = torch.tensor([[float("nan"), float("inf"), -float("inf"), -1, 0., .04, 11, 10]])
    with hl.ActivationStats(counts=True).on(model) as s:
        for _ in range(2):
            model(x)
            s.step()
    for (found,) in s.stats:
        counted = {"nan": 1, "inf": 2, "under": 2, "over": 2, "around_zero": 2}
        assert {k: found[k]*8 for k in moments.COUNT_ROWS} == counted


def test_shapes_that_change():
    torch.manual_seed(0)
    model = net()
    xs = [torch.randn(n, 8) for n in (4, 4, 2, 8, 4, 2)]
    twin = copy.deepcopy(model)
    with hl.ActivationStats(with_hist=True).on(model) as s: train(model, xs, s)
    assert_rows_equal(s.stats, seen_by_hand(twin, xs, s.names))


def test_layers_that_run_in_some_batches_only():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.i = nn.Linear(8, 8), nn.Linear(8, 8), 0
        def forward(self, x):
            self.i += 1
            return self.b(self.a(x)) if self.i % 2 else self.a(x)
    model = Sometimes()
    with hl.ActivationStats().on(model) as s: train(model, batches(), s, lr=0)
    means = torch.tensor(s.layer_stats("b")[0])
    assert means.isnan().tolist() == [False, True]*3
    with torch.no_grad():
        for x, mean in zip(batches()[::2], means[::2]): assert mean.item() == pytest.approx(model.b(model.a(x)).mean().item(), abs=1e-6)
    assert not torch.tensor(s.layer_stats("a")[0]).isnan().any()


def test_lstm_and_attention():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.attention = nn.LSTM(8, 12, batch_first=True), nn.MultiheadAttention(12, 2, batch_first=True)
        def forward(self, x):
            o, _ = self.rnn(x)
            return self.attention(o, o, o)[0]
    model, x = Both(), torch.randn(3, 5, 8)
    with hl.ActivationStats(grads=True).on(model) as s:
        for _ in range(3):
            model(x).sum().backward()
            s.step()
    assert s.names == ["rnn", "attention"]
    assert s.stats[2][0]["mean"] == pytest.approx(model.rnn(x)[0].mean().item(), abs=1e-6)
    assert not s.gradients.values("mean").isnan().any()


# Steps

def test_micro_batches_are_one_row():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    xs = batches(8, 4)
    with hl.ActivationStats(with_hist=True).on(model) as whole: train(model, xs.view(2, 16, 8), whole, lr=0)
    with hl.ActivationStats(with_hist=True).on(model) as parts:
        for i, x in enumerate(xs):
            model(x).sum().backward()
            if i % 4 == 3: parts.step()
    torch.testing.assert_close(parts.stats_tensor, whole.stats_tensor)
    assert torch.equal(parts.history.values("hist"), whole.history.values("hist"))


def test_a_step_that_does_not_end():
    "Many calls need no more room than some, and are merged rightly."
    model = nn.Sequential(nn.Linear(8, 4))
    xs = batches(500, 2)
    with hl.ActivationStats(with_hist=True).on(model) as s:
        for x in xs: model(x)
        assert len(s.session.meters["activations"].step.tables) == meter_groups.MAX_CALLS
        s.step()
        model(xs[0])
        s.step()
    with hl.ActivationStats(with_hist=True).on(model) as whole:
        for x in (xs.view(-1, 8), xs[0]):
            model(x)
            whole.step()
    torch.testing.assert_close(s.stats_tensor, whole.stats_tensor)
    assert torch.equal(s.history.values("hist"), whole.history.values("hist"))


@pytest.mark.parametrize("every", [1, 2, 5])
def test_every(every):
    model = net()
    with hl.ActivationStats(every=every).on(model) as s: train(model, batches(11), s)
    assert s.steps == list(range(0, 11, every)) and len(s.stats) == math.ceil(11/every)


def test_evaluation_is_not_recorded():
    torch.manual_seed(0)
    model, xs = net(), batches()
    model[1].eval()  # frozen statistics do not make it evaluation
    with hl.ActivationStats().on(model) as s:
        for x in xs[:3]:
            model.eval()(x*100)
            model.train()
            model[1].eval()
            model(x)
            s.step()
        model.eval()(xs[3])
        s.step()  # nothing was trained: no row
    assert len(s.stats) == 3
    assert s.stats[2][1]["mean"] == pytest.approx(model[:2](xs[2]).mean().item(), abs=1e-5)


@pytest.mark.parametrize("rows, steps", [(2, 50), (5, 100), (10, 25), (300, 2000)])
def test_bounded(rows, steps):
    history = History(["a", "b"], moments.row_names(False, True), rows)
    for step in range(steps):
        assert history.wants_next == (step % history.stride == 0)
        history.add(torch.full((len(history.rows), 2), float(step)), step)
        assert len(history) <= rows and sum(len(c) for c in history.kept.chunks) <= rows
    assert len(history) >= rows//2 and history.steps == list(range(0, steps, history.stride))[:len(history)]
    assert torch.equal(history.tables()[:, 0, 0], torch.tensor(history.steps, dtype=torch.float32))


def test_long_run():
    model = nn.Sequential(nn.Linear(8, 2))
    x = torch.randn(4, 8)
    s = hl.ActivationStats(max_rows=8)
    with s.on(model):
        for _ in range(100):
            model(x)
            s.step()
    assert s.steps == list(range(0, 100, 16)) and len(s.stats) == 7


# Nothing is changed, nothing is left

@pytest.mark.parametrize("options", [{}, {"with_hist": True, "grads": True}, {"every": 2, "grads": True}, {"hist_sample": 8, "with_hist": True}])
def test_bit_identical(options):
    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Dropout(.5), nn.Linear(16, 4))
    plain, watched = build(), build()
    torch.manual_seed(1)
    wanted = train(plain, batches())
    torch.manual_seed(1)
    with hl.ActivationStats(**options).on(watched, optimizer=(opt := torch.optim.SGD(watched.parameters(), .1))) as s: found = train(watched, batches(), s, opt=opt)
    assert all(map(torch.equal, wanted, found)) and torch.get_rng_state().equal(torch.get_rng_state())
    for (name, a), (again, b) in zip(plain.state_dict().items(), watched.state_dict().items(), strict=True): assert name == again and torch.equal(a, b)
    assert not hl.hooks_on(watched) and not opt._optimizer_step_pre_hooks and not opt._optimizer_step_post_hooks


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["forward", "backward", "step", "loop"])
def test_errors_leave_nothing(error, where):
    model, armed = net(), []
    def fail(*_):
        if armed: raise error("on purpose")
    handles = [model[2].register_forward_hook(fail)] if where == "forward" else []
    opt = torch.optim.SGD(model.parameters(), .1)
    if where == "step": opt.register_step_pre_hook(fail)
    s = hl.ActivationStats(grads=True)
    with pytest.raises(error), s.on(model, optimizer=opt):
        train(model, batches(3), s, opt=opt)
        armed.append(True)
        loss = model(batches(1)[0]).sum()
        if where == "backward": loss.register_hook(fail)
        loss.backward()
        opt.step()
        fail()
    for h in handles: h.remove()
    assert not hl.hooks_on(model) and len(s.stats) == 3 and len(s.updates.stats) == 3
    with s.on(model): train(model, batches(2), s)
    assert len(s.stats) == 2


def test_errors_while_attaching():
    class Refuses(nn.Linear):
        def register_forward_hook(self, *_, **__): raise RuntimeError("no hooks here")
    model = nn.Sequential(nn.Linear(8, 8), Refuses(8, 8))
    with pytest.raises(RuntimeError, match="no hooks"): hl.ActivationStats().on(model)
    assert not hl.hooks_on(model)


def test_the_model_is_let_go():
    model = net()
    with hl.ActivationStats(grads=True).on(model) as s: train(model, batches(3), s)
    gone = weakref.ref(model[0])
    del model
    gc.collect()
    assert gone() is None and len(s.stats) == 3


def test_no_graph_is_kept():
    model = net()
    with hl.ActivationStats(grads=True, with_hist=True).on(model) as s:
        for x in batches():
            out = model(x)
            loss = out.square().mean()
            loss.backward()
            node = weakref.ref(out)
            del out, loss
            s.step()
            assert node() is None


def test_copies_of_a_watched_model():
    model = net()
    with hl.ActivationStats().on(model) as s:
        train(model, batches(2), s)
        twin, stored = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        buffer = io.BytesIO()
        torch.save(model, buffer)
        train(twin, batches(2))
        train(stored, batches(2))
        assert len(s.stats) == 2 and not any(h.n_calls for m in s.session.meters.values() for h in m.hooks)


# Gradients, scalers, updates

def test_gradients_by_hand():
    torch.manual_seed(0)
    model = net()
    twin = copy.deepcopy(model)
    with hl.ActivationStats(grads=True, with_hist=True).on(model) as s: train(model, batches()*2, s)
    rows, row = [], {}
    def keep(name): return lambda m, i, o: o.register_hook(lambda g: row.__setitem__(name, by_hand(g))) and None
    for name in s.names: twin.get_submodule(name).register_forward_hook(keep(name))
    twin[2].inplace = False
    for x in batches()*2:
        train(twin, [x])
        rows.append([row[name] for name in s.names])
    assert_rows_equal(s.gradients.stats, rows)
    assert s.gradients.kind == "gradients" and s.gradients.names == s.names
    only = hl.ActivationStats(is_forward=False)
    with only.on(model): train(model, batches(2), only)
    assert only.gradients is only.history and len(only.stats) == 2


def test_scaler(tmp_path):
    torch.manual_seed(0)
    model = net()
    twin = copy.deepcopy(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.**10, growth_interval=2)
    opt = torch.optim.SGD(model.parameters(), .1)
    bad = 3
    with hl.ActivationStats(grads=True).on(model, optimizer=opt, scaler=scaler) as s:
        for i, x in enumerate(batches()):
            loss = model(x).square().mean()*(float("inf") if i == bad else 1)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            s.step()
    with hl.ActivationStats(grads=True).on(twin) as plain:
        train(twin, [x for i, x in enumerate(batches()) if i != bad], plain)
    kept = [i for i in range(6) if i != bad]
    torch.testing.assert_close(s.gradients.values("std")[:, :bad], plain.gradients.values("std")[:, :bad])
    torch.testing.assert_close(s.gradients.values("std")[:, kept][:, :bad], plain.gradients.values("std")[:, :bad])
    s.save(tmp_path/"run")
    assert hl.ActivationStats.load(tmp_path/"run").skipped == [bad]
    assert s.skipped == [bad] and s.updates.values("update")[:, bad].eq(0).all()
    with hl.ActivationStats(grads=True).on(model, scaler=torch.amp.GradScaler("cpu", enabled=False)) as off: train(model, batches(2), off)
    assert off.skipped == []


def test_updates():
    torch.manual_seed(0)
    model = net()
    opt = torch.optim.SGD(model.parameters(), .1)
    rows = []
    with hl.ActivationStats(every=2).on(model, optimizer=opt) as s:
        for x in batches():
            before = [p.detach().clone() for p in model.parameters()]
            train(model, [x], s, opt=opt)
            rows.append([((p.detach() - b).norm()/b.norm()) for p, b in zip(model.parameters(), before)])
    torch.testing.assert_close(s.updates.values("ratio"), torch.tensor(rows[::2]).T, equal_nan=True)
    assert s.updates.names == [name for name, _ in model.named_parameters()] and s.updates.steps == [0, 2, 4]


class Handed(torch.optim.Optimizer):
    "An optimizer to `isinstance`, and only a wrapper: what accelerate makes."
    def __init__(self, optimizer): self.optimizer = optimizer
    @property
    def param_groups(self): return self.optimizer.param_groups
    def step(self, closure=None): return self.optimizer.step(closure)
    def zero_grad(self, set_to_none=True): self.optimizer.zero_grad(set_to_none)


class Imitates:
    "Takes on the class of what it wraps: what Lightning does."
    def __init__(self, optimizer):
        self._optimizer = optimizer
        self.__class__ = type("Imitation", (Imitates, type(optimizer)), {})
    def __getattr__(self, name): return getattr(self._optimizer, name)
    def step(self, closure=None): return self._optimizer.step(closure)


class Ahead(torch.optim.Optimizer):
    "Has dictionaries of hooks that are never read, and another name for its optimizer."
    def __init__(self, base):
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        self._base, self.param_groups, self.defaults, self.state = base, base.param_groups, base.defaults, base.state
    def step(self, closure=None): return self._base.step(closure)


class Loose:
    "No optimizer at all."
    def __init__(self, optimizer): self.optimizer = optimizer
    def step(self, closure=None): return self.optimizer.step(closure)
    def zero_grad(self, set_to_none=True): self.optimizer.zero_grad(set_to_none)


@pytest.mark.parametrize("wrap", [Handed, Imitates, Ahead, Loose, lambda o: Handed(Imitates(o)), lambda o: Loose(Handed(Loose(o)))])
def test_an_optimizer_in_a_wrapper(wrap):
    found = []
    for around in (lambda o: o, wrap):
        torch.manual_seed(0)
        model = net()
        inner = torch.optim.SGD(model.parameters(), .1)
        outer, steps = around(inner), []
        with hl.ActivationStats().on(model, optimizer=outer, auto=True) as s, hl.step_hook(outer, lambda o, args, kwargs: steps.append(o)):
            train(model, batches(3), opt=outer)
        assert steps == [inner]*3 and s.steps == [0, 1, 2] and not inner._optimizer_step_post_hooks and not inner._optimizer_step_pre_hooks
        found.append(s.updates.tables())
    assert torch.equal(*found)


def test_what_leads_to_no_optimizer():
    loop = Loose(None)
    loop.optimizer = Loose(loop)
    for given_ in (loop, Loose(None), nn.Linear(1, 1), "adam", [loop], []):
        with pytest.raises(TypeError, match="expected a torch optimizer, or an object with one as its .optimizer, got a"):
            hl.ActivationStats().on(model := net(), optimizer=given_)
        assert not hl.hooks_on(model)
    with pytest.raises(TypeError, match="expected a torch optimizer"): hl.step_hook(loop, print)


def test_several_optimizers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Tanh(), nn.Linear(16, 4))
    one, other = torch.optim.SGD(model[0].parameters(), .1), torch.optim.Adam(model[3].parameters())
    with hl.ActivationStats().on(model, optimizer=[one, other]) as s:
        for x in batches(4):
            model(x).square().mean().backward()
            one.step()
            if len(s.steps) != 2: other.step()
            s.step()
    assert s.updates.names == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert (s.updates.values("update")[:2] > 0).all() and (s.updates.values("update")[2:] > 0).tolist() == [[True, True, False, True]]*2


# Steps that end by themselves

def loop(auto, options={}, accumulate=1, scale=0, bad=(), wrap=lambda model: model, make=lambda ps: torch.optim.SGD(ps, .1, momentum=.9)):
    "A training run, with `step()` behind that of the optimizer or without."
    torch.manual_seed(0)
    model = net()
    called, opt = wrap(model), make(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.**10, growth_interval=2) if scale else None
    s = hl.ActivationStats(with_hist=True, **options).on(called, optimizer=opt, scaler=scaler, auto=auto)
    for i, x in enumerate(batches(12)):
        def closure():
            opt.zero_grad()
            (loss := called(x).square().mean()).backward()
            return loss
        if isinstance(opt, torch.optim.LBFGS): opt.step(closure)
        else:
            loss = called(x).square().mean()*(math.inf if i in bad else 1)
            (scaler.scale(loss) if scaler else loss).backward()
            if (i + 1) % accumulate: continue
            if scaler:
                scaler.step(opt)
                scaler.update()
            else: opt.step()
            opt.zero_grad()
        if not auto: s.step()
    called(batches(1)[0])  # belongs to no step
    s.remove()
    assert not hl.hooks_on(model) and not opt._optimizer_step_post_hooks and not (scaler and "update" in vars(scaler))
    return s


@pytest.mark.parametrize("how", [
    {}, {"options": {"every": 3}}, {"options": {"grads": True}}, {"options": {"max_rows": 4}}, {"accumulate": 3, "options": {"grads": True, "every": 2}},
    {"make": lambda ps: torch.optim.LBFGS(list(ps), max_iter=3)},
    {"scale": 1, "bad": (3, 7), "options": {"grads": True}}, {"scale": 1, "accumulate": 2, "options": {"every": 2}},
    {"wrap": lambda model: torch.compile(model, backend="eager")}, {"wrap": lambda model: torch.compile(model, backend="eager"), "options": {"every": 3}},
], ids=["plain", "every", "gradients", "bounded", "accumulated", "LBFGS", "scaler", "scaler, accumulated", "compiled", "compiled, every"])
def test_steps_that_end_by_themselves_are_those_of_a_loop_that_ends_them(how):
    torch._dynamo.reset()
    by_hand_, by_itself = loop(False, **how), loop(True, **how)
    assert by_itself.steps == by_hand_.steps and by_itself.skipped == by_hand_.skipped == list(how.get("bad", ()))
    for kind, history in by_hand_.histories.items():
        torch.testing.assert_close(by_itself.histories[kind].tables(), history.tables(), rtol=0, atol=0, equal_nan=True)


def test_a_step_of_several_optimizers_ends_when_each_has_made_its_own():
    model = net()
    one, other = torch.optim.SGD(model[0].parameters(), .1), torch.optim.SGD(model[3].parameters(), .1)
    with hl.ActivationStats().on(model, optimizer=[one, other], auto=True) as s:
        for x in batches(4):
            for _ in range(3):
                model(x).square().mean().backward()
                one.step()
            other.step()
    assert s.steps == [0, 1, 2, 3] and (s.history.values("n") == 3*32*torch.tensor([[16.], [16.], [4.]])).all()


def test_auto_is_asked_for_rightly():
    model = net()
    with pytest.raises(ValueError, match=r"got no optimizer; write on\(model, optimizer=optimizer, auto=True\)"): hl.ActivationStats().on(model, auto=True)
    opt = torch.optim.SGD(model.parameters(), .1)
    with hl.ActivationStats().on(model, optimizer=opt, auto=True) as s:
        train(model, batches(2), opt=opt)
        with pytest.raises(RuntimeError, match=r"leave out step\(\)"): s.step()
    assert s.steps == [0, 1]
    with s.on(model): train(model, batches(3), s)  # the next time by hand
    assert s.steps == [0, 1, 2]


def test_a_scaler_that_is_watched_can_be_copied_and_watched_twice():
    model, scaler = net(), torch.amp.GradScaler("cpu")
    opt = torch.optim.SGD(model.parameters(), .1)
    one, other = (hl.ActivationStats().on(model, optimizer=opt, scaler=scaler, auto=True) for _ in range(2))
    twins = copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))
    def go(scaler):
        scaler.scale(model(batches(1)[0]).square().mean()).backward()
        scaler.step(opt)
        scaler.update()
    go(scaler)
    assert len(one.steps) == len(other.steps) == 1
    for twin in twins: assert twin.update.__self__ is twin and "hooklab" not in repr(vars(twin))
    one.remove()  # the other one is on top
    go(scaler)
    assert len(one.steps) == 1 and len(other.steps) == 2
    other.remove()
    go(scaler)
    assert len(other.steps) == 2


# Nothing recorded

def ran(model, mode=True, steps=True, times=3, **options):
    s = hl.ActivationStats(**options)
    with s.on(model.train(mode)):
        for x in batches(times):
            model(x)
            if steps: s.step()
    return s


def no_model_ran():
    s = hl.ActivationStats().on(model := net())
    train(copy.deepcopy(model), batches(3))
    for _ in range(3): s.step()
    s.remove()
    return s


def another_optimizer():
    model = net()
    with hl.ActivationStats().on(model, optimizer=torch.optim.SGD(model.parameters(), .1), auto=True) as s: train(model, batches(3))
    return s


def no_backward():
    with hl.ActivationStats(is_forward=False).on(model := net()) as s:
        model(batches(1)[0])
        s.step()
    return s


nothing = {
    "eval mode": (lambda: ran(net(), mode=False), "the model was always in eval mode when called"),
    "eval mode, no step": (lambda: ran(net(), mode=False, steps=False), "the model was always in eval mode when called"),
    "eval mode, gradients": (lambda: ran(net(), mode=False, grads=True), "the model was always in eval mode when called"),
    "no step": (lambda: ran(net(), steps=False), "train mode, but step() was not called after that"),
    "no pass": (lambda: ran(net(), times=0), "the model was not called"),
    "a copy": (no_model_ran, "Did you train a copy"),
    "another optimizer": (another_optimizer, "the optimizer made no step after that"),
    "no backward": (no_backward, "produced no gradient"),
}


@pytest.mark.parametrize("what", nothing)
def test_nothing_recorded_is_a_warning_and_no_health(what, tmp_path):
    make, why = nothing[what]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        s = make()
    (said,) = said
    assert said.category is hl.HookWarning and str(said.message).startswith("Nothing was recorded: ") and why in str(said.message)
    s.save(tmp_path/"run")
    for seen in (s, hl.ActivationStats.load(tmp_path/"run")):
        d = hl.diagnose(seen)
        assert d and len(d) == 1 and "nothing recorded" in d and "dead units" not in d and d.n_steps == 0
        assert str(d).startswith(str(said.message)) and "unusual" not in str(d)
        assert why in seen.report(tmp_path/"run.html").read_text() and "Nothing was recorded: " in d._repr_html_()


def test_nothing_recorded_is_not_told_on_top_of_an_exception():
    torch._dynamo.reset()  # where something was compiled, silence has another reason
    with warnings.catch_warnings():
        warnings.simplefilter("error", hl.HookWarning)
        for s in (hl.ActivationStats(), hl.ActivationStats(grads=True)):
            with pytest.raises(ZeroDivisionError), s.on(net()): 1/0
            s.on(net())
            with pytest.raises(ZeroDivisionError):
                try: 1/0
                finally: s.remove()
        s = hl.ActivationStats()
        s.remove()  # it was never on
        with s.on(model := net()):
            assert "nothing recorded" in hl.diagnose(s)
            train(model, batches(2), s)
        s.remove()
        learn = hl.synth_learner(cbs=s, quiet=True)
        learn.fit(0)  # no loop of one's own


def test_a_layer_that_alone_is_watched_and_not_called_is_told_once():
    model = nn.Sequential(nn.Linear(8, 4))
    model.idle = nn.Linear(2, 2)
    model.forward = lambda x: model[0](x)
    with pytest.warns(hl.HookWarning) as said:
        with hl.ActivationStats(modules="idle").on(model) as s: train(model, batches(2), s)
    assert [str(w.message).startswith("idle: hooked, but never called") for w in said] == [True]


# Where the model computes

def keep_elsewhere(model):
    "Parameters on meta until they are used: what accelerate does to a model that is too large."
    for m in model.modules():
        if not (kept := {name: p.detach() for name, p in m.named_parameters(recurse=False)}): continue
        def put(m, kept=kept, device=None):
            for name, p in kept.items(): m._parameters[name] = nn.Parameter(p if device is None else torch.empty_like(p, device=device), requires_grad=False)
        m.register_forward_pre_hook(lambda m, i, put=put: put(m))
        m.register_forward_hook(lambda m, i, o, put=put: put(m, device="meta"))
        put(m, device="meta")


@pytest.mark.parametrize("options", [{}, {"with_hist": True}, {"with_hist": True, "hist_sample": 20}])
def test_parameters_that_are_elsewhere_until_they_are_used(options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    twin = copy.deepcopy(model)
    keep_elsewhere(model)
    assert all(p.is_meta for p in model.parameters())
    found = []
    for m in (model, twin):
        with hl.ActivationStats(**options).on(m) as s:
            for x in batches(3):
                m(x)
                s.step()
        found.append(s.history.tables())
    assert torch.equal(*found)


def test_a_run_without_numbers_says_so(tmp_path):
    model = net().to("meta")
    opt = torch.optim.SGD(model.parameters(), .1)
    with hl.ActivationStats(with_hist=True).on(model, optimizer=opt) as s: train(model, torch.empty(2, 8, 8, device="meta"), s, opt=opt)
    assert len(s.steps) == 2
    for read in (lambda: s.stats, lambda: s.stats_tensor, lambda: s.hist(0), lambda: s.updates.values(), lambda: s.save(tmp_path/"run")):
        with pytest.raises(RuntimeError, match="the model ran on the meta device, where tensors have shapes but no values"): read()
    assert "meta device" in str(hl.diagnose(s)) and "nothing recorded" in hl.diagnose(s)
    assert "meta device" in s.report(tmp_path/"run.html").read_text()


# In compiled code

@pytest.mark.parametrize(
    "backend", ["aot_eager", *(pytest.param(name, marks=pytest.mark.slow) for name in ("eager", "inductor"))])
@pytest.mark.parametrize("options", one_in(3, [{"with_hist": True, "hist_sample": 100}, {"with_hist": True}, {}]))
def test_compiled(backend, options):
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = net()
    twin, earlier = copy.deepcopy(model), torch.compile(net(), backend=backend)
    earlier(batches(1)[0]).sum().backward()  # another instance of the class
    counters.clear()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with hl.ActivationStats(every=2, **options).on(compiled) as s:
        for x in batches(8): train(compiled, [x], s)
        compiled.eval()(batches(1)[0])
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 2  # to train and to evaluate
    with hl.ActivationStats(every=2, **options).on(twin) as plain: train(twin, batches(8), plain)
    torch.testing.assert_close(s.stats_tensor, plain.stats_tensor, rtol=1e-4, atol=1e-5)
    assert s.steps == plain.steps == [0, 2, 4, 6]
    if options == {"with_hist": True} and backend != "inductor": assert torch.equal(s.history.values("hist"), plain.history.values("hist"))


@pytest.mark.parametrize("dtype", one_in(2, [torch.float32, torch.bfloat16]))
def test_a_sample_of_large_outputs_in_compiled_code(dtype):
    "It is the sample of the plain run, and a number that is not finite is seen wherever it stands."
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 300), nn.GELU(), nn.Unflatten(1, (3, 10, 10))).to(dtype)
    compiled = torch.compile(copy.deepcopy(model), backend="aot_eager", fullgraph=True)
    inputs = batches(4, 400).view(4, 200, 16).to(dtype)
    inputs[3, 77] = float("nan")
    found = []
    for called in model, compiled:
        with hl.ActivationStats(samples=True, counts=True, include_paramless=True).on(called) as s:
            train(called, inputs, s, lr=0.)
        found.append(s)
    plain, traced = found
    def later(s): return s.stats_tensor[..., 1:]  # the plain run measures the first step whole
    torch.testing.assert_close(later(traced), later(plain), rtol=1e-3, atol=1e-4, equal_nan=True)
    assert later(traced)[0, :, 2].isnan().all() and later(traced)[..., :2].isfinite().all()


def images_kept_for_backward(model, x, monkeypatch):
    "Shapes and types of what the compiler keeps of a batch from the forward pass, but for a few numbers by channel."
    from torch._inductor import compile_fx
    class FoundOut(Exception): pass
    divide, kept = compile_fx.min_cut_rematerialization_partition, []
    def divided(*args, **options):
        results = divide(*args, **options)[0].graph.output_node().args[0]
        values = [node.meta["val"] for node in results if hasattr(node, "meta")]
        kept.extend((tuple(t.shape), t.dtype) for t in values if t.dim() == 4 and len(t) == len(x))
        raise FoundOut
    monkeypatch.setattr(compile_fx, "min_cut_rematerialization_partition", divided)
    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False), pytest.raises(Exception, match="FoundOut"):
        torch.compile(model, fullgraph=True)(x)
    monkeypatch.undo()
    return sorted(kept, key=str)


@pytest.mark.slow
def test_compiled_code_keeps_no_more_for_the_backward_pass(monkeypatch):
    "It would keep the mask of each ReLU, whose writing takes longer than the statistics."
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3),
        nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )
    x = torch.randn(4, 3, 32, 32)
    plain = images_kept_for_backward(model, x, monkeypatch)
    assert plain
    for options in {}, {"samples": True, "include_paramless": True, "counts": True}:
        with hl.ActivationStats(**options).on(model): kept = images_kept_for_backward(model, x, monkeypatch)
        assert kept == plain, options


def test_compiled_before_it_was_watched():
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = net()
    compiled = torch.compile(model, backend="eager")
    train(compiled, batches(2))
    with hl.ActivationStats().on(compiled) as s: train(compiled, batches(4), s)
    assert len(s.stats) == 4 and not s.stats_tensor.isnan().any()


def test_compiled_micro_batches():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 4))
    compiled = torch.compile(model, backend="eager")
    with hl.ActivationStats(with_hist=True).on(compiled) as s:
        for x in batches(3): compiled(x)
        s.step()
    with hl.ActivationStats(with_hist=True).on(model) as whole:
        model(batches(3).view(-1, 8))
        whole.step()
    torch.testing.assert_close(s.stats_tensor, whole.stats_tensor)


# Without waiting

def test_nothing_depends_on_the_numbers():
    "Elsewhere than on a CPU: on the meta device there are no numbers that could be waited for."
    model = nn.Sequential(nn.Conv2d(3, 40, 3), nn.BatchNorm2d(40), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(40*14*14, 4)).to("meta")
    opt = torch.optim.SGD(model.parameters(), .1)
    for options in ({}, {"with_hist": True}, {"counts": True}, {"with_hist": True, "hist_sample": 50}):
        with hl.ActivationStats(grads=True, **options).on(model, optimizer=opt) as s: train(model, torch.empty(4, 8, 3, 16, 16, device="meta"), s, opt=opt)
        assert len(s.steps) == 4 and s.history.kept.chunks[0].is_meta


@pytest.fixture
def fake():
    "A GPU that has no numbers: what would wait for them raises."
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), warnings.catch_warnings():
        warnings.simplefilter("error", hl.HookWarning)  # of what could not be measured
        try: nn.Linear(1, 1)(torch.ones(1))
        except RuntimeError as e: pytest.skip(f"this torch makes no fake tensors on a GPU that is not there: {str(e).splitlines()[0]}")
        yield


@pytest.mark.parametrize("options", [{}, {"with_hist": True}, {"counts": True}, {"with_hist": True, "hist_sample": 50}, {"every": 2}])
def test_no_pass_on_a_gpu_waits_for_it(fake, options):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8*14*14, 10))
    with hl.ActivationStats(grads=True, **options).on(model) as s:
        for _ in range(4):
            model(torch.randn(4, 3, 16, 16))
            if s.history.wants_next:  # without a GPU there is no backward pass, so gradients are set by hand
                for h, shape in zip(s.session.meters["gradients"].hooks, ((4, 8, 14, 14), (4, 8, 14, 14), (4, 10))): h.measure(torch.randn(shape))
            s.step()
        meters = s.session.meters["activations"]
        assert meters.step.stacks.stacks and meters.device.type == "cuda"
    assert len(s.steps) == (2 if options.get("every") else 4)
    assert s.history.kept.chunks[0].device.type == s.gradients.kept.chunks[0].device.type == "cuda"


def test_what_waits_for_a_gpu_is_noticed(fake, monkeypatch):
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    with pytest.raises(DataDependentOutputException): torch.ones(1).item()
    with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)): torch.ones(3).long().bincount()
    measured = measuring.row_statistics
    def waits(x, *options): return measured(x, *options)*x.sum().item()
    monkeypatch.setattr(measuring, "row_statistics", waits)
    model = nn.Sequential(nn.Linear(8, 4))
    with pytest.raises(hl.HookWarning, match="can't be measured"), hl.ActivationStats().on(model): model(torch.randn(2, 8))


# Kept

def test_save_and_load(tmp_path):
    model = net()
    opt = torch.optim.SGD(model.parameters(), .1)
    with hl.ActivationStats(with_hist=True, grads=True, every=2).on(model, optimizer=opt) as s: train(model, batches(), s, opt=opt)
    s.save(tmp_path/"run.safetensors")
    again = hl.ActivationStats.load(tmp_path/"run.safetensors")
    assert again.names == s.names and again.steps == s.steps
    for kind, history in s.histories.items():
        mine = again.histories[kind]
        assert torch.equal(mine.tables(), history.tables()) and mine.names == history.names and mine.steps == history.steps and type(mine) is type(history)
    assert again.table() == s.table() and torch.equal(again.hist(0), s.hist(0))
    with again.on(model): train(model, batches(2), again)  # it records again
    torch.save({}, tmp_path/"other")
    from safetensors.torch import save_file
    save_file({"x": torch.ones(1)}, tmp_path/"other.safetensors")
    with pytest.raises(ValueError, match="no statistics"): hl.ActivationStats.load(tmp_path/"other.safetensors")


def test_table_and_tensorboard():
    model = net()
    with hl.ActivationStats(grads=True).on(model) as s: train(model, batches(), s)
    table = s.table()
    assert len(table) == 2*3*6
    assert table[0].keys() == {"kind", "step", "layer", "mean", "std", "near_zero", "estimated"}
    written = {}
    class Writer:
        def add_scalar(self, name, value, step): written[name, step] = value
    s.to_tensorboard(Writer())
    assert written["gradients/3/std", 5] == s.gradients.layer_stats("3")[1][5] and len(written) == 2*3*6*3


# Asked wrongly

def test_errors_say_what_to_do():
    model = net()
    with pytest.raises(ValueError, match="every=0"): hl.ActivationStats(every=0)
    with pytest.raises(ValueError, match="hist_sample=0"): hl.ActivationStats(hist_sample=0)
    with pytest.raises(ValueError, match="max_rows=1"): hl.ActivationStats(max_rows=1)
    with pytest.raises(TypeError, match="torch.nn.Module"): hl.ActivationStats().on("model")
    with pytest.raises(LookupError, match="linaer"): hl.ActivationStats(modules="linaer").on(model)
    with pytest.raises(ValueError, match="no layer of this Sequential has parameters"): hl.ActivationStats().on(nn.Sequential(nn.ReLU()))
    with pytest.raises(RuntimeError, match="nothing is being recorded"): hl.ActivationStats().step()
    with pytest.raises(TypeError, match="optimizer"): hl.ActivationStats().on(model, optimizer=model)
    for given_ in ("run.html", hl.ActivationStats()):
        with pytest.raises(TypeError, match="the page of a run|its statistics"): hl.report(given_)
    assert not hl.hooks_on(model)
    with hl.ActivationStats().on(model) as s: train(model, batches(2), s)
    with pytest.raises(LookupError, match="with_hist=True"): s.hist(0)
    with pytest.raises(LookupError, match="no layer '7'.*3 were recorded: 0, 1, 3"): s.layer_stats("7")
    with pytest.raises(LookupError, match="'median' was not recorded"): s.history.values("median")
    assert hl.ActivationStats().stats == [] and hl.ActivationStats().stats_tensor.shape == (2, 0, 0)


def test_by_name_and_pattern():
    model = net()
    for modules, names in (("3", ["3"]), (nn.Linear, ["0", "3"]), (["0", nn.BatchNorm1d], ["0", "1"]), ([model[3]], ["3"])):
        with hl.ActivationStats(modules=modules).on(model) as s: train(model, batches(2), s)
        assert s.names == names
    with hl.ActivationStats(include_paramless=True).on(model) as s: train(model, batches(2), s)
    assert s.names == ["0", "1", "2", "3"]


def test_vmap():
    model = nn.Sequential(nn.Linear(8, 4))
    with hl.ActivationStats().on(model) as s:
        for x in batches(3):
            torch.vmap(model)(x)
            s.step()
    assert len(s.stats) == 3
    assert s.stats[2][0]["mean"] == pytest.approx(model(batches(3)[2]).mean().item(), abs=1e-6)


@pytest.mark.parametrize("modules, said", [("*", ["idle: hooked, but never called"]), (None, [])])
def test_a_layer_that_never_runs_is_named_where_it_was_asked_for(modules, said):
    model = nn.Sequential(nn.Linear(8, 4))
    model.idle = nn.Linear(2, 2)
    model.forward = lambda x: model[0](x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with hl.ActivationStats(modules=modules).on(model) as s: train(model, batches(2), s)
    assert [str(w.message)[:30] for w in caught if w.category is hl.HookWarning] == said
    assert torch.tensor(s.layer_stats("idle")).isnan().all()


def test_checkpointed():
    from torch.utils.checkpoint import checkpoint
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.again = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), True
        def forward(self, x): return checkpoint(self.body, x, use_reentrant=False) if self.again else self.body(x)
    model = Again()
    with hl.ActivationStats(grads=True).on(model) as s: train(model, batches(3), s, lr=0)
    model.again = False
    with hl.ActivationStats(grads=True).on(model) as plain: train(model, batches(3), plain, lr=0)
    assert torch.equal(s.stats_tensor, plain.stats_tensor)
    assert torch.equal(s.gradients.values("std"), plain.gradients.values("std")) and torch.equal(s.history.values("n"), plain.history.values("n"))


def test_autocast():
    model = net()
    xs = batches(3)
    with hl.ActivationStats().on(model) as s, torch.autocast("cpu", torch.bfloat16):
        for x in xs:
            out = model(x)
            s.step()
    assert s.stats[-1][2]["mean"] == pytest.approx(out.float().mean().item(), abs=1e-6)


def test_another_model_in_the_next_fit():
    s = hl.ActivationStats()
    learn = hl.synth_learner(n_trn=3, model=nn.Linear(1, 1), cbs=s, quiet=True)
    learn.fit(1)
    assert s.names == ["Linear"]
    learn.model = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))
    learn.fit(1)
    assert s.names == ["0", "2"] and len(s.stats) == 3 and not s.stats_tensor.isnan().any() and not hl.hooks_on(learn.model)


@pytest.mark.peers
def test_real_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter
    with hl.ActivationStats().on(model := net()) as s: train(model, batches(), s)
    with SummaryWriter(tmp_path) as writer: s.to_tensorboard(writer)
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [e.value for e in read.Scalars("activations/0/mean")] == pytest.approx(s.layer_stats(0)[0]) and len(read.Tags()["scalars"]) == 9


# ---- under the transforms of torch.func

def gradients_of_a_sample(m, p, x):
    return torch.vmap(torch.func.grad(lambda p, one: torch.func.functional_call(m, p, (one,)).sum()), (None, 0))(p, x)


TRANSFORMS = {
    "grad": lambda m, p, x: torch.func.grad(lambda p: torch.func.functional_call(m, p, (x,)).sum())(p),
    "jvp": lambda m, p, x: torch.func.jvp(lambda x: torch.func.functional_call(m, p, (x,)), (x,), (x.exp(),)),
    "vmap": lambda m, p, x: torch.vmap(lambda one: torch.func.functional_call(m, p, (one,)))(x),
    "vmap of grad": gradients_of_a_sample}


@pytest.mark.parametrize("options", [{}, {"with_hist": True}, {"grads": True, "samples": True}], ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_step_under_a_transform_is_recorded_like_another(transform, options):
    torch.manual_seed(0)
    m, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(5, 4)
    p = {name: v.detach() for name, v in m.named_parameters()}
    alone = TRANSFORMS[transform](m, p, x)
    with hl.ActivationStats(**options).on(m) as s, warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.HookWarning)  # of gradients, which are not to be had there
        for _ in range(3):
            recorded = TRANSFORMS[transform](m, p, x)
            s.step()
    for a, b in zip(tree_leaves(alone), tree_leaves(recorded), strict=True): assert torch.equal(a, b)
    assert len(s.steps) == 3 and not hl.hooks_on(m)
    hidden = m[0](x)
    for i, expected in enumerate([hidden, m[2](hidden.relu())]):
        for step in range(3):
            torch.testing.assert_close(s.history.values("mean")[i, step], expected.mean())
            torch.testing.assert_close(s.history.values("std")[i, step], expected.std())


class Closed(dict):
    "A container that lets nobody look into it."
    def values(self): raise RuntimeError("closed")
    items = __iter__ = values


class Close(nn.Module):
    def forward(self, x): return Closed(x=x)


class Open(nn.Module):
    def forward(self, closed): return closed["x"]


def test_what_cannot_be_looked_at_under_a_transform_is_left_out_and_does_not_stop_the_model():
    torch.manual_seed(0)
    m, x = nn.Sequential(nn.Linear(4, 4), Close(), Open()), torch.randn(5, 4)
    p = {name: v.detach() for name, v in m.named_parameters()}
    alone = TRANSFORMS["grad"](m, p, x)
    with hl.ActivationStats(include_paramless=True).on(m) as s, pytest.warns(hl.HookWarning, match="^1: its output"):
        for _ in range(2):
            recorded = TRANSFORMS["grad"](m, p, x)
            s.step()
    assert all(torch.equal(alone[name], recorded[name]) for name in p)
    assert s.history.values("n").tolist() == [[20, 20], [0, 0], [20, 20]]


def test_a_record_for_a_diagnosis_takes_no_model_by_position():
    for wrong in nn.Linear(2, 2), torch.optim:
        with pytest.raises(TypeError, match=r"got a \w+\. Pass the model afterward: .*_diagnosis\(\)\.on\(model\)"):
            hl.ActivationStats.for_diagnosis(wrong)
    assert hl.ActivationStats.for_diagnosis(turns=3).turns == 3
