"""Which numbers of a record are estimates: what is not marked is exact, what is marked says how far it may be off."""
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.cli import comparison_as_json
from hooklab.hooks.tensor_files import TensorFile, write_tensors
from hooklab.stats.records.doubts import DEVIATION_ERROR, estimates_of
from hooklab.stats.records.reading import RUN, read_records
from hooklab.stats.records.together import merge_here

pytestmark = pytest.mark.usefixtures("one_thread")


class Convs(nn.Module):
    "Outputs of 20,000 to 150,000 numbers; one layer runs twice."
    def __init__(self):
        super().__init__()
        self.small, self.large, self.again = nn.Conv2d(3, 5, 3), nn.Conv2d(5, 24, 1), nn.Conv2d(24, 24, 1)
        self.out = nn.Linear(24, 3)

    def forward(self, x):
        x = self.large(self.small(x))
        return self.out(self.again(self.again(x).relu()).mean((2, 3)))


class Words(nn.Module):
    "Few rows of the embedding move in a step."
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(900, 60), nn.Linear(60, 3)

    def forward(self, x): return self.out(self.words(x).mean(1))


MODELS = {"convolutions": (Convs, lambda: torch.randn(8, 3, 30, 30)),
          "wide": (lambda: nn.Sequential(nn.Linear(60, 700), nn.Sigmoid(), nn.Linear(700, 3)),
                   lambda: torch.randn(130, 60)),
          "words": (Words, lambda: torch.randint(900, (12, 7)))}


def recorded(make, batch, steps=5, prepare=lambda model, x: (model, x), optimizer=torch.optim.SGD, **options):
    "A record, and the true numbers of each step, by layer or parameter."
    torch.manual_seed(0)
    model, x = prepare(make(), batch())
    opt = optimizer(model.parameters(), .1)
    truth, outputs = [], {}
    for name, m in model.named_children():
        def look(m, i, o, name=name): outputs.setdefault(name, []).append(o.detach().double().flatten())
        m.register_forward_hook(look)
    with hl.ActivationStats.for_diagnosis(**options).on(model, optimizer=opt) as s:
        for _ in range(steps):
            outputs.clear()
            before = {name: p.detach().double().clone() for name, p in model.named_parameters()}
            opt.zero_grad()
            F.cross_entropy(model(x).float(), torch.arange(len(x)) % 3).backward()
            opt.step()
            whole = {name: torch.cat(o) for name, o in outputs.items()}
            true = {("activations", name): (o.std().item(), o.mean().item()) for name, o in whole.items()}
            for name, p in model.named_parameters():
                true["updates", name] = (p.double() - before[name]).norm().item(), before[name].norm().item()
            truth.append(true)
            s.step()
    return s, truth


def checked(s, truth, rtol=2e-5):
    "All numbers against the true ones; the names of those that are estimates anywhere."
    rough = set()
    for t, true in enumerate(truth):
        for (kind, name), (first, second) in true.items():
            history = s.histories[kind]
            if name not in history.names: continue
            i = history.index(name)
            names = ("std", "mean") if kind == "activations" else ("update", "data")
            for what, x in zip(names, (first, second)):
                doubt, found = history.doubt(what)[i, t].item(), history.values(what)[i, t].item()
                assert abs(found - x) <= (rtol + 4*doubt)*abs(x) + 1e-7, (name, what, t, found, x, doubt)
                if doubt: rough.add((name, what))
    return rough


@pytest.mark.parametrize("name", MODELS)
def test_what_is_not_marked_is_exact_and_what_is_marked_is_near(name):
    rough = checked(*recorded(*MODELS[name]))
    assert rough == {"convolutions": {("large", "std"), ("again", "std")},
                     "wide": {("0", "std"), ("1", "std"), ("0.weight", "update"), ("0.weight", "data")},
                     "words": {("words.weight", "update"), ("words.weight", "data")}}[name]


@pytest.mark.parametrize("prepare", [
    lambda model, x: (model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)),
    lambda model, x: (model.double(), x.double())], ids=["channels last", "64 bits"])
def test_in_any_form(prepare):
    rough = checked(*recorded(*MODELS["convolutions"], prepare=prepare))
    assert {what for _, what in rough} <= {"std"}


def test_in_short_numbers():
    s, truth = recorded(*MODELS["wide"], prepare=lambda model, x: (model.bfloat16(), x.bfloat16()))
    of_outputs = [{key: x for key, x in true.items() if key[0] == "activations"} for true in truth]
    assert ("0", "std") in checked(s, of_outputs, 1e-4)


@pytest.mark.parametrize("options", [{"counts": True}, {"with_hist": True}, {"hist_sample": 512}], ids=str)
def test_with_counts(options):
    s, truth = recorded(*MODELS["convolutions"], **options)
    rough = checked(s, truth)
    assert ("again", "std") in rough or "hist_sample" in options
    assert (s.history.doubt("near_zero")[s.history.index("again")] > 0).any() == ("hist_sample" not in options)
    assert "under" in s.history.whats and "under" in estimates_of(s.history) or "hist_sample" in options


def test_a_plain_record_has_no_estimates():
    s, truth = recorded(*MODELS["convolutions"], samples=False)
    assert not checked(s, truth) and all(not estimates_of(h) for h in s.histories.values())
    assert {row["estimated"] for row in s.table()} == {""}


def test_counts_of_a_sample_are_estimates():
    model = nn.Linear(4, 60)
    with hl.ActivationStats(counts=True, hist_sample=100).on(model) as s:
        model(torch.randn(5, 4))
        s.step()
    assert [*estimates_of(s.history)] == ["nan", "inf", "under", "over", "around_zero"]
    assert (s.history.doubt("under") < .06).all()


@pytest.mark.slow
def test_in_compiled_code():
    s, _ = recorded(*MODELS["wide"], prepare=lambda model, x: (torch.compile(model), x))
    rough = estimates_of(s.history)["std"]
    assert rough[s.history.index("0")].all() and not rough[s.history.index("2")].any()


def test_each_row_names_its_estimates():
    s, _ = recorded(*MODELS["wide"])
    rows = {(row["kind"], row["layer"], row["step"]): row["estimated"] for row in s.table()}
    samples = "sample_mean sample_square var_samples var_units silent_units"
    assert rows["activations", "0", 0] == samples and rows["activations", "0", 3] == f"std near_zero {samples}"
    assert rows["activations", "2", 3] == samples and rows["updates", "0.weight", 0] == "ratio update data"
    assert rows["gradients", "0", 4] == "std near_zero" and rows["updates", "0.bias", 4] == ""
    written = []
    class Writer:
        def add_scalar(self, name, value, step): written.append(name)
    s.to_tensorboard(Writer())
    assert "activations/0/std" in written and not any("estimated" in name for name in written)


def test_pictures_and_the_page_mark_estimates(tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    s, _ = recorded(*MODELS["wide"])
    assert s.history.plot("std").get_ylabel().endswith("(≈ of 2 of 3: estimated)")
    assert "≈" not in s.history.plot("mean").get_ylabel()
    plt.close("all")
    page = s.report(tmp_path/"run.html").read_text()
    row = page.partition('<th scope="row">0</th>')[2].partition("</tr>")[0]
    mean, std, *_ = row.split("<td>")[1:]
    assert "≈" not in mean and "→ ≈" in std and not std.startswith("≈")  # the first step is measured as a whole
    assert "≈" not in page.partition('<th scope="row">2</th>')[2].partition("</tr>")[0]


def test_files_and_parts_of_a_record_keep_what_is_exact(tmp_path):
    s, _ = recorded(*MODELS["words"])
    s.save(tmp_path/"run.safetensors")
    path = tmp_path/"run.safetensors"
    for found in (hl.ActivationStats.load(path), read_records(path), s.snapshot()):
        for kind, history in s.histories.items():
            for what in history.whats:
                torch.testing.assert_close(found.histories[kind].doubt(what), history.doubt(what), equal_nan=True)


def test_an_estimate_of_one_process_makes_the_whole_one(tmp_path):
    records = [recorded(*MODELS["wide"])[0].snapshot() for _ in range(2)]
    exact = records[1].history.tables()
    exact[:, records[1].history.rows.index("unseen")] = 0
    records[1].history.fill(records[1].steps, exact)
    merge_here(records)
    assert [*estimates_of(records[0].history)][:2] == ["std", "near_zero"]


@pytest.fixture
def earlier_file(tmp_path):
    "A file of a version that did not note what is exact."
    def make(s, name="earlier"):
        path = tmp_path/f"{name}.safetensors"
        s.save(path)
        file = TensorFile(path, RUN)
        about = json.loads(json.dumps(file.facts))
        tensors = {key: file.file.get_tensor(key) for key in (*about["facts"], "log")}
        for kind, facts in about["facts"].items():
            kept = [i for i, row in enumerate(facts["rows"]) if row not in ("unseen", "doubt", "sampled")]
            facts["rows"] = [facts["rows"][i] for i in kept]
            tensors[kind] = tensors[kind][:, kept].contiguous()
        about.pop("looked", None)  # of silent units
        write_tensors(path, {key: (t.dtype, t.shape) for key, t in tensors.items()}, tensors.get, about)
        return path
    return make


def test_in_an_earlier_file_nobody_knows_of_large_tensors(earlier_file):
    s, _ = recorded(*MODELS["wide"])
    old = hl.ActivationStats.load(earlier_file(s))
    assert old.history.rows == s.history.rows and old.gradients.rows == s.gradients.rows
    assert old.history.doubt("std").isnan().all(1).tolist() == [True, True, False]
    assert not old.history.doubt("mean").any()
    assert old.updates.doubt("data").isnan().all(1).tolist() == [True, False, False, False]
    assert "std" in {row["estimated"].partition(" ")[0] for row in old.table()}
    model = MODELS["wide"][0]()
    opt = torch.optim.SGD(model.parameters(), .1)
    with old.resume(model, optimizer=opt) as more:
        for _ in range(2):
            model(MODELS["wide"][1]()).sum().backward()
            opt.step()
            more.step()
    doubt = more.history.doubt("std")[0]
    assert doubt.isnan().tolist() == [True]*5 + [False]*2 and doubt[-1] == DEVIATION_ERROR


def test_an_earlier_file_of_a_plain_record_is_exact(earlier_file):
    s, _ = recorded(*MODELS["wide"], samples=False)
    old = read_records(earlier_file(s))
    assert all(not estimates_of(h) for h in old.histories.values())


def test_a_comparison_leaves_out_what_nobody_knows(earlier_file):
    s, _ = recorded(*MODELS["wide"])
    found = json.loads(comparison_as_json(hl.compare(earlier_file(s), s)))
    assert found["same"] and "only partly compared" in found["verdict"]
    assert {row["estimated"] for row in found["rows"]} == {True, False}


@pytest.mark.parametrize("factor", [0., torch.nan])
def test_what_does_not_move_or_is_not_finite_is_an_estimate_all_the_same(factor):
    def run():
        torch.manual_seed(0)
        model = nn.Linear(30, 900)
        optimizer = torch.optim.SGD(model.parameters(), .1)
        with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
            for step in range(6):
                optimizer.zero_grad()
                (model(torch.ones(3, 30)).square().mean()*(factor if step == 4 else 1.)).backward()
                optimizer.step()
                s.step()
        return s
    a, b = run(), run()
    assert a.updates.doubt("update")[0, 4] == 1 and a.updates.doubt("data")[0, 4] == DEVIATION_ERROR
    c = hl.compare(a, b)
    assert c.same and "only partly compared" not in c.verdict, c


class Gives(nn.Module):
    "Returns what a function makes of its input."
    def __init__(self, f):
        super().__init__()
        self.f, self.p = f, nn.Parameter(torch.ones(1))

    def forward(self, x): return self.f(x)


def of_samples(model, batches, include=True, called=None):
    with hl.ActivationStats(samples=True, include_paramless=include).on(model) as s:
        for x in batches:
            (called or model)(x)
            s.step()
    return s


SAMPLED = {  # a shape, and whether all of its numbers are in the samples
    (6, 5): True, (16, 32): True, (17, 5): False, (6, 33): False, (6, 63): False, (5,): True, (40,): False,
    (3, 4, 7): True, (3, 5, 7): False, (1, 2, 2, 9): True, (2, 4, 1, 9): False, (2, 2, 2, 2, 3): False}


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("shape", SAMPLED, ids=str)
def test_statistics_of_samples_are_exact_where_they_are_of_all_numbers(shape):
    torch.manual_seed(0)
    batches = [torch.randn(shape) for _ in range(3)]
    h = of_samples(nn.Sequential(Gives(lambda x: x)), batches).history
    assert set(estimates_of(h)) >= {"sample_mean", "sample_square", "silent_units"} or SAMPLED[shape]
    assert not SAMPLED[shape] or not estimates_of(h)
    for t, x in enumerate(batches):
        x = x.reshape(len(x), -1, x.shape[-1] if x.dim() > 1 else 1).double()
        true = {"sample_mean": x.mean(), "sample_square": x.square().mean(), "var_samples": x.var(0).mean(),
                "var_units": x.var(2).mean(), "silent_units": (x <= 0).all(0).all(0).double().mean()}
        for what, right in true.items():
            if h.doubt(what)[0, t] == 0:
                torch.testing.assert_close(h.values(what)[0, t].double(), right, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_of_a_layer_that_runs_twice_only_the_first_call_is_in_the_samples():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.once, self.twice = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x): return self.twice(self.twice(self.once(x)))

    h = of_samples(Twice(), [torch.randn(6, 4)]*3).history
    assert (h.doubt("silent_units") != 0).any(1).tolist() == [False, True]


def test_larger_batches_that_come_later_and_empty_ones():
    h = of_samples(nn.Sequential(Gives(lambda x: x)), [torch.randn(n, 4) for n in (3, 16, 3, 20, 0, 2)]).history
    assert h.doubt("sample_mean").isnan().tolist() == [[False, True, False, True, False, False]]


def test_probabilities_of_all_rows_are_exact():
    h = of_samples(nn.Sequential(nn.Softmax(-1)), [torch.randn(8, 10), torch.randn(300, 10)]).history
    for what in ("sums_to_one", "peaked", "even"): assert h.doubt(what)[0].isnan().tolist() == [False, True]


@pytest.mark.slow
def test_statistics_of_samples_in_compiled_code():
    model = nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 40))
    h = of_samples(model, [torch.randn(6, 4)]*3, called=torch.compile(model)).history
    assert not h.doubt("var_units")[0].any() and h.doubt("var_units")[1].isnan().all()


def test_dead_units_of_a_sample_are_marked_in_pictures_once_they_are_known():
    plt = pytest.importorskip("matplotlib.pyplot")
    model = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 3))
    s = of_samples(model, [torch.rand(8, 4)]*22)
    assert [row["layer"] for row in s.table() if "dead_units" in row["estimated"]] == ["0", "1"]*3
    assert s.history.plot("dead_units").get_ylabel().endswith("(≈ of 2 of 3: estimated)")
    plt.close("all")


def test_samples_of_several_processes_are_exact_only_if_all_are():
    records = [of_samples(nn.Sequential(nn.Linear(4, 5)), [torch.randn(n, 4)]*2).snapshot() for n in (6, 16)]
    merge_here(records)
    assert not estimates_of(records[0].history) and records[0].history.values("n_samples")[0].tolist() == [22, 22]
    records = [of_samples(nn.Sequential(nn.Linear(4, 5)), [torch.randn(n, 4)]*2).snapshot() for n in (6, 17)]
    merge_here(records)
    assert "var_samples" in estimates_of(records[0].history)


def test_in_an_earlier_file_nobody_knows_whether_samples_are_all(earlier_file):
    s, _ = recorded(*MODELS["words"])
    s.history.log = None
    old = read_records(earlier_file(s))
    assert not s.history.doubt("var_units")[1].any() and old.history.doubt("var_units").isnan().all()


def clipped_by_hand(steps=6, every=1, optimizer=torch.optim.SGD):
    "Gradients are shortened in place, and in the other steps left alone."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    opt = optimizer(model.parameters(), .1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=opt) as s:
        for step in range(steps):
            opt.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()*3
            loss.backward()
            if step % every == 0:
                for p in model.parameters(): p.grad.mul_(.37)
            opt.step()
            s.step(loss)
    return s


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_norms_before_clipping_are_marked_like_all_else(optimizer, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    s = clipped_by_hand(every=2, optimizer=optimizer)
    words = s.log.unclipped_is()
    assert "estimate" in words and "exact" in words
    s.save(tmp_path/"run.safetensors")
    for found in (s, hl.ActivationStats.load(tmp_path/"run.safetensors"), s.snapshot()):
        doubt, values = found.updates.doubt("grad_norm_unclipped"), found.updates.values("grad_norm_unclipped")
        for t, word in enumerate(words):
            assert (doubt[:, t].isnan() == ((word != "exact") & ~values[:, t].isnan())).all()
        rows = [row for row in found.table() if row["kind"] == "updates" and row["layer"] == "0.weight"]
        assert ["grad_norm_unclipped" in row["estimated"].split() for row in rows] == [w == "estimate" for w in words]
        assert not any("grad_norm " in f"{row['estimated']} " for row in rows)
        assert "(≈ of 4 of 4: estimated)" in found.updates.plot("grad_norm_unclipped").get_ylabel()
        for step, word in enumerate(words): assert ("≈" in str(found.grad_norms(step))) == (word == "estimate")
    plt.close("all")


def test_without_a_log_nobody_knows_whether_norms_are_exact():
    s = clipped_by_hand().snapshot()
    s.updates.log = None
    there = ~s.updates.values("grad_norm_unclipped").isnan()
    assert there.any() and torch.equal(s.updates.doubt("grad_norm_unclipped").isnan(), there)


def test_what_nobody_knows_the_error_of_changes_no_diagnosis(monkeypatch):
    from hooklab.diagnosis import diagnosing
    made, run = [], diagnosing.Run
    monkeypatch.setattr(diagnosing, "Run", lambda *given: made.append(given) or run(*given))
    s = clipped_by_hand(30)
    hl.diagnose(s)
    assert [*estimates_of(s.updates)] == ["grad_norm_unclipped"] and len(made) == 1


def test_pictures_of_histograms_say_of_how_many_numbers_they_are(earlier_file):
    plt = pytest.importorskip("matplotlib.pyplot")
    s, _ = recorded(*MODELS["wide"], with_hist=True)
    def note(s, layer, step): return s.history.plot_hist(layer, step).get_title(loc="right")
    assert "sample" not in note(s, "0", 0) and note(s, "0", -1).endswith("sample of 8,192")
    assert s.history.color_dim("1").get_title(loc="right").endswith("sample of 8,192")
    assert "sample" not in note(s, "2", -1) and "sample" not in s.history.color_dim("2").get_title(loc="right")
    assert note(read_records(earlier_file(s)), "0", -1).endswith("maybe a sample")
    few, _ = recorded(*MODELS["wide"], with_hist=True, hist_sample=2000)
    assert note(few, "0", -1).endswith("sample of 2,000") and "sample" not in note(few, "2", -1)
    plt.close("all")
