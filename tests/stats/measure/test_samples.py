"Statistics that tell samples and units apart: right numbers, odd outputs, compiled code, merging."
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import hooklab as hl
from hooklab.stats.measure.sampled_numbers import (
    SILENT_STEPS,
    OutputLayout,
    Samples,
    layouts_of,
    part_of,
    probabilities_in,
)
from hooklab.stats.records.moments import merge_tables
from hooklab.stats.records.statistics import SAMPLE_ROWS, STATISTICS, row_names

READ = [what for what in SAMPLE_ROWS if not STATISTICS[what].is_doubt]


def recorded(model, batches, called=None, **options):
    s = hl.ActivationStats(include_paramless=True, samples=True, **options)
    with s.on(model):
        for x in batches:
            (called or model)(x)
            s.step()
    return s


def by_hand(part: Tensor) -> dict:
    "Of a part: samples, positions, groups of units."
    part = part.double().flatten(-2)
    part = part.reshape(len(part), -1, part.shape[-1])
    return {"n_samples": len(part), "sample_mean": part.mean(), "sample_square": part.square().mean(),
            "var_samples": part.var(0).mean(), "var_units": part.var(2).mean(),
            "silent_units": (part <= 0).all(0).all(0).double().mean()}


@pytest.mark.parametrize("shape, layout", [
    ((40, 7), OutputLayout()), ((5, 3), OutputLayout()), ((40, 9, 100), OutputLayout()),
    ((20, 40, 6, 7), OutputLayout(has_channels=True)), ((7, 20, 33), OutputLayout(batch=1)), ((12,), OutputLayout()),
    ((300, 2, 3, 4, 50), OutputLayout())])
def test_numbers_are_those_of_the_part(shape, layout):
    for x in (torch.randn(shape) + 3, torch.randn(shape).transpose(0, -1).contiguous().transpose(0, -1),
              torch.randn(shape).bfloat16()):
        samples = Samples([layout], torch.device("cpu"))
        for _ in range(3):  # the room is made, made to fit, and used again
            samples.see(0, x)
            found = dict(zip(SAMPLE_ROWS, samples.take()[:, 0]))
            for what, right in by_hand(part_of(x, layout).float()).items():
                mine = found[what]/(1 if what == "n_samples" else found["n_samples"])
                torch.testing.assert_close(mine, torch.as_tensor(right).float(), rtol=1e-4, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("size", [5, 31, 32, 33, 34, 40, 47, 50, 62, 63, 64, 100])
def test_units_are_spread_over_all(size):
    for x, layout in ((torch.arange(size).expand(7, size), OutputLayout()),
                      (torch.arange(size)[:, None].expand(3, size, 5), OutputLayout(has_channels=True))):
        units = part_of(x, layout)[(0,)*(x.dim() - 1)].flatten().tolist()
        assert units == sorted(set(units)) and len(units) == min(size, 32)
        assert size > 63 or max(units) >= size - 3 and min(units) <= 2


def test_the_last_units_count():
    model = nn.Sequential(nn.Linear(4, 48), nn.ReLU())
    with torch.no_grad(): model[0].bias[32:] = -1000
    s = recorded(model, [torch.rand(16, 4)]*3)
    with torch.no_grad(): model[0].bias[:32] = 1000
    assert s.history.values("silent_units")[1].min() > .2
    assert recorded(model, [torch.rand(16, 4)]*3).history.values("silent_units")[1].min() > .2


def test_all_samples_or_all_units_alike():
    class Same(nn.Module):
        def forward(self, x): return x[:1].expand_as(x) + 100

    class Units(nn.Module):
        def forward(self, x): return x[:, :1].expand_as(x) + 100

    s = recorded(nn.Sequential(Same()), [torch.randn(32, 50)]*3)
    assert (s.history.values("var_samples") < 1e-9).all() and (s.history.values("var_units") > .02).all()
    s = recorded(nn.Sequential(Units()), [torch.randn(32, 50)]*3)
    assert (s.history.values("var_units") < 1e-9).all() and (s.history.values("var_samples") > .02).all()


def test_layouts():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.LayerNorm(4), nn.Dropout(), nn.GroupNorm(2, 8), nn.Identity())
    found = layouts_of(dict(net.named_children()), net)
    assert [layout.has_channels for layout in found] == [True, True, False, False, True, True]
    time_first = nn.Sequential(nn.Embedding(5, 4), nn.LSTM(4, 4))
    assert [layout.batch for layout in layouts_of(dict(time_first.named_children()), time_first)] == [1, 1]


def test_units_that_are_silent_and_dead():
    model = nn.Sequential(nn.Linear(4, 10), nn.ReLU())
    with torch.no_grad(): model[0].bias[:4] = -1000
    s = recorded(model, [torch.rand(16, 4) + 1 for _ in range(SILENT_STEPS + 5)])
    silent, dead = s.history.values("silent_units")[1], s.history.values("dead_units")[1]
    assert silent.min() >= .4 and dead[:SILENT_STEPS - 1].isnan().all() and (dead[SILENT_STEPS - 1:] >= .4).all()
    with torch.no_grad(): model[0].bias[:] = 1000
    assert not recorded(model, [torch.rand(16, 4)]*(SILENT_STEPS + 1)).history.values("dead_units")[1, -1]


def test_a_unit_that_speaks_now_and_then_is_not_dead():
    samples = Samples([OutputLayout()], torch.device("cpu"))
    for step in range(SILENT_STEPS + 5):
        samples.see(0, torch.full((8, 3), -1.) if step % 7 else torch.ones(8, 3))
        table = dict(zip(SAMPLE_ROWS, (samples.take()/8)[:, 0]))
    assert table["silent_units"] == 1 and table["dead_units"] == 0


@pytest.mark.parametrize("last, scale, right", [
    (nn.Tanh(), 1000, 1), (nn.Tanh(), .01, 0), (nn.Sigmoid(), 1000, 1), (nn.Sigmoid(), .01, 0),
    (nn.ReLU(), 1000, torch.nan), (nn.Identity(), 1, torch.nan)])
def test_ends_of_tanh_and_sigmoid(last, scale, right):
    sizes = 1 + torch.rand(32, 20)  # none is near 0, where a sigmoid is far from its ends at every scale
    given = scale*torch.where(torch.rand(32, 20) < .5, sizes, -sizes)
    found = recorded(nn.Sequential(nn.Flatten(), last), [given]*2).history.values("ended_units")
    expected = torch.tensor([right, right], dtype=torch.float32)
    torch.testing.assert_close(found[1], expected, equal_nan=True, atol=.05, rtol=0)
    assert found[0].isnan().all()


def test_ends_of_layers_that_are_not_torchs():
    class Squash(nn.Module):
        def forward(self, x): return torch.tanh(x)

    class Pass(nn.Module):
        def forward(self, x): return x

    assert recorded(nn.Sequential(Squash()), [1000*torch.randn(32, 20)]).history.values("ended_units").item() > .9
    assert recorded(nn.Sequential(Pass()), [1000*torch.randn(32, 20)]).history.values("ended_units").isnan().all()


def test_recurrent_layers():
    net = nn.Sequential(nn.RNN(8, 20, batch_first=True))
    with torch.no_grad():
        for p in net.parameters(): p.mul_(1000)
    assert recorded(net, [torch.randn(16, 6, 8)]).history.values("ended_units").item() > .9


def test_whole_rows():
    s = recorded(nn.Sequential(nn.Softmax(1)), [torch.zeros(8, 10), 1000*torch.eye(8, 10), torch.randn(8, 10)]).history
    told = [s.values(what)[0].tolist() for what in ("sums_to_one", "peaked", "even")]
    assert told == [[1, 1, 1], [0, 1, 0], [1, 0, 0]]
    assert recorded(nn.Sequential(nn.Linear(8, 8)), [torch.zeros(8, 8)]).history.values("sums_to_one").isnan().all()
    heads = torch.randn(2, 3, 5, 5).softmax(1)
    assert probabilities_in(heads, 1)[0] == 1 and probabilities_in(heads, -1)[0] == 0
    assert probabilities_in(torch.randn(2, 5000), -1).isnan().all()


class Gives(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f, self.p = f, nn.Parameter(torch.ones(1))
    def forward(self, x): return self.f(x)


@pytest.mark.parametrize("f", [
    lambda x: x.sum(), lambda x: x.to_sparse(), lambda x: torch.nested.nested_tensor([x, x[:2]]), lambda x: x[:0],
    lambda x: None, lambda x: {"a": "b"}])
def test_what_cannot_be_told_is_nan(f):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = hl.ActivationStats(samples=True).on(net := nn.Sequential(nn.Linear(4, 4), Gives(f)))
        for _ in range(3):
            net(torch.randn(6, 4))
            s.step()
        s.remove()
    for what in READ[1:]: assert s.history.values(what)[1].isnan().all()
    assert (s.history.values("n_samples")[0] == 6).all() and not s.history.values("n_samples")[1].any()


@pytest.mark.parametrize("f", [
    lambda x: (x, x), lambda x: {"y": [x]}, lambda x: x.to(torch.complex64), lambda x: x > 0, lambda x: x.long(),
    lambda x: x.double(), lambda x: x.T, lambda x: x[:, None].expand(-1, 3, -1)])
def test_odd_outputs_that_can_be_told(f):
    s = recorded(nn.Sequential(Gives(f)), [torch.randn(6, 4)]*3)
    assert s.history.values("sample_square").isfinite().all() and s.history.values("n_samples").all()


def test_packed_sequences_and_attention():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.attention = nn.LSTM(4, 8, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)
        def forward(self, x):
            self.lstm(pack_padded_sequence(x, [5, 4, 2], batch_first=True))
            return self.attention(*[self.lstm(x)[0]]*3)[0]
    s = recorded(Net(), [torch.randn(3, 5, 4)]*3)
    assert s.history.values("var_samples").isfinite().all()


def test_a_batch_of_one_and_other_sizes():
    s = recorded(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 1)), [torch.randn(n, 4) for n in (1, 7, 1, 30, 7)])
    assert s.history.values("n_samples")[0].tolist() in ([1, 1, 1, 7, 7], [1, 7, 1, 16, 7])
    assert s.history.values("var_samples")[0].isnan()[[0, 2]].all() and s.history.values("var_units")[1].isnan().all()
    assert s.history.values("var_units")[0].isfinite().all()


def test_the_first_of_several_calls_counts():
    layer = nn.Linear(3, 3)
    s = hl.ActivationStats(samples=True).on(layer)
    for _ in range(3):
        for n in (4, *[9]*70): layer(torch.randn(n, 3))
        s.step()
    s.remove()
    assert s.history.values("n_samples").tolist() == [[4, 4, 4]] and s.history.values("n")[0, 0] == 3*(4 + 630)


def test_compiled_code_gives_the_same():
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 40), nn.Tanh(),
                        nn.Linear(40, 10), nn.Softmax(1))
    batches = [torch.randn(32, 1, 8, 8) for _ in range(3)]
    eager = recorded(net, batches)
    s = hl.ActivationStats(include_paramless=True, samples=True).on(net)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for x in batches:
        compiled(x)
        s.step()
    s.remove()
    for what in READ:
        torch.testing.assert_close(s.history.values(what), eager.history.values(what), equal_nan=True,
                                   rtol=1e-4, atol=1e-5)
        assert torch.equal(s.history.doubt(what) == 0, eager.history.doubt(what) == 0)


def test_tables_of_two_processes_are_weighted():
    s = [recorded(nn.Sequential(nn.Softmax(1), nn.Linear(4, 4)), [torch.randn(n, 4)]*2) for n in (4, 12)]
    names = row_names(False, False, True, True)
    both = merge_tables(torch.stack([one.history.tables()[0] for one in s]))
    got = dict(zip(names, both))
    assert got["n_samples"].tolist() == [16, 16]
    assert torch.allclose(got["sums_to_one"]/16, torch.tensor([1., torch.nan]), equal_nan=True)
    right = sum(n*one.history.values("var_samples")[:, 0] for n, one in zip((4, 12), s))/16
    torch.testing.assert_close(got["var_samples"]/16, right)


def test_large_outputs_keep_their_mean_and_every_nan():
    net, x = nn.Sequential(nn.Identity(), nn.ReLU()), torch.randn(64, 40, 50)
    bad = x.clone()
    bad[0, 0, 0] = torch.nan
    s, exact = recorded(net, [x, x, x, bad]), hl.ActivationStats(include_paramless=True).on(net)
    net(x)
    exact.step()
    exact.remove()
    got, right = s.history.values, exact.history.values
    torch.testing.assert_close(got("mean")[:, :3], right("mean").expand(2, 3), rtol=1e-4, atol=1e-5)
    for what in ("std", "near_zero"):
        torch.testing.assert_close(got(what)[:, 2], right(what)[:, 0], rtol=.05, atol=0)
    assert s.history.values("mean")[:, 3].isnan().all() and (s.history.values("n") == 128_000).all()


def test_values_are_saved_and_in_tables(tmp_path):
    s = recorded(nn.Sequential(nn.Linear(4, 6)), [torch.randn(8, 4)]*2)
    s.save(tmp_path/"run.safetensors")
    loaded = hl.ActivationStats.load(tmp_path/"run.safetensors")
    for what in READ: assert torch.allclose(loaded.history.values(what), s.history.values(what), equal_nan=True)
    assert "var_samples" in s.table()[0] and s.stats[0][0]["n_samples"] == 8
    with pytest.raises(LookupError): hl.ActivationStats().history.values("var_samples")


def test_with_histograms():
    s = recorded(nn.Sequential(nn.Linear(4, 6)), [torch.rand(8, 4)]*2, with_hist=True)
    plain = hl.ActivationStats(True).on(net := nn.Sequential(nn.Linear(4, 6)))
    net(torch.rand(8, 4))
    plain.step()
    plain.remove()
    hist, under = s.history.values("hist"), s.history.values("under")
    assert s.history.has_hist and hist.shape == (1, 40, 2) and (hist.sum(1) + under*48 == 48).all()


def test_a_hook_of_ones_own_has_no_samples():
    with pytest.raises(TypeError, match="samples="):
        hl.ActivationStats(samples=True, hook=lambda m, i, o: 1).on(nn.Linear(2, 2))
