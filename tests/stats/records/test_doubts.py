"""Which numbers of a record are estimates: what is not marked is exact, what is marked says how far it may be off."""
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.cli import comparison_as_json
from hooklab.hooks.tensor_files import TensorFile, write_tensors
from hooklab.stats.records.doubts import OF_DEVIATION, estimated
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
    assert "under" in s.history.whats and "under" in estimated(s.history) or "hist_sample" in options


def test_a_plain_record_has_no_estimates():
    s, truth = recorded(*MODELS["convolutions"], samples=False)
    assert not checked(s, truth) and all(not estimated(h) for h in s.histories.values())
    assert {row["estimated"] for row in s.table()} == {""}


def test_counts_of_a_sample_are_estimates():
    model = nn.Linear(4, 60)
    with hl.ActivationStats(counts=True, hist_sample=100).on(model) as s:
        model(torch.randn(5, 4))
        s.step()
    assert [*estimated(s.history)] == ["nan", "inf", "under", "over", "around_zero"]
    assert (s.history.doubt("under") < .06).all()


@pytest.mark.slow
def test_in_compiled_code():
    s, _ = recorded(*MODELS["wide"], prepare=lambda model, x: (torch.compile(model), x))
    rough = estimated(s.history)["std"]
    assert rough[s.history.index("0")].all() and not rough[s.history.index("2")].any()


def test_each_row_names_its_estimates():
    s, _ = recorded(*MODELS["wide"])
    rows = {(row["kind"], row["layer"], row["step"]): row["estimated"] for row in s.table()}
    assert rows["activations", "0", 0] == "" and rows["activations", "0", 3] == "std near_zero"
    assert rows["activations", "2", 3] == "" and rows["updates", "0.weight", 0] == "ratio update data"
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
            for what in history.whats: assert torch.equal(found.histories[kind].doubt(what), history.doubt(what))


def test_an_estimate_of_one_process_makes_the_whole_one(tmp_path):
    records = [recorded(*MODELS["wide"])[0].snapshot() for _ in range(2)]
    exact = records[1].history.tables()
    exact[:, records[1].history.rows.index("unseen")] = 0
    records[1].history.fill(records[1].steps, exact)
    merge_here(records)
    assert [*estimated(records[0].history)] == ["std", "near_zero"]


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
            kept = [i for i, row in enumerate(facts["rows"]) if row not in ("unseen", "doubt")]
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
    assert doubt.isnan().tolist() == [True]*5 + [False]*2 and doubt[-1] == OF_DEVIATION


def test_an_earlier_file_of_a_plain_record_is_exact(earlier_file):
    s, _ = recorded(*MODELS["wide"], samples=False)
    old = read_records(earlier_file(s))
    assert all(not estimated(h) for h in old.histories.values())


def test_a_comparison_leaves_out_what_nobody_knows(earlier_file):
    s, _ = recorded(*MODELS["wide"])
    found = json.loads(comparison_as_json(hl.compare(earlier_file(s), s)))
    assert found["same"] and "Not everything of" in found["verdict"]
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
    assert a.updates.doubt("update")[0, 4] == 1 and a.updates.doubt("data")[0, 4] == OF_DEVIATION
    c = hl.compare(a, b)
    assert c.same and "Not everything of" not in c.verdict, c
