"""Names are text, not commands: no name of a layer, class, file, key or run reaches a terminal or a CI as it is where
it would be obeyed, and nothing else of it is changed. A twin with plain names says which line breaks are of the layout.
"""
import ast
import json
import re
import sys
import warnings
from html.parser import HTMLParser
from types import ModuleType
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hooklab as hl
from hooklab import cli
from hooklab.debug.bug_report import report
from hooklab.debug.comparing.comparison import ComparedRow, Comparison
from hooklab.debug.drift.checks import Drift
from hooklab.diagnosis.result import Diagnosis
from hooklab.diagnosis.sarif import sarif
from hooklab.drawing import for_xml
from hooklab.findings.found import Finding
from hooklab.hooks.distributed import ProcessPlace
from hooklab.hooks.names import class_name, in_lines, printable
from hooklab.hooks.tree import shape_text
from hooklab.profiling.columns import COLUMNS
from hooklab.stats.measure.meter_groups import why_left_out
from support.checks import REPO

COMMANDS = [*range(32), *range(127, 160), 0x61c, 0x200e, 0x200f, *range(0x2028, 0x202f), *range(0x2066, 0x206a),
            0xdfff, 0xdc80, 0xd800]  # in this order they make no pair
NASTY = "".join(map(chr, COMMANDS))
OBEYED = re.compile(f"[{re.escape(NASTY)}]")
LETTERS = "块ж🙂é\u0301ש"  # of any script


# ---- the function

def test_what_is_escaped_and_what_stays():
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    obeyed = {*COMMANDS, *range(0xd800, 0xe000)}
    assert printable(every) == "".join(repr(x)[1:-1] if ord(x) in obeyed else x for x in every)
    assert printable("a\n::error::ci") == r"a\n::error::ci" and printable(LETTERS) == LETTERS
    assert printable(printable(NASTY + "\\")) == printable(NASTY + "\\") == repr(NASTY)[1:-1] + "\\"
    assert in_lines(["a\nb", 1]) == "a\\nb\n1" and class_name(type("X\n", (), {})()) == r"X\n"


# ---- all that is printed, raised and warned with

class Names:
    "The names of a model: plain ones, or ones that a terminal obeys."
    def __init__(self, nasty): self.nasty = nasty
    def __call__(self, name): return f"{name}\n::error::{NASTY}{LETTERS}" if self.nasty else name

    def kind(self, name):
        "The same without what no class can have in its name."
        return "".join(c for c in self(name) if c not in "\0\ud800\udc80\udfff")

    def file(self, name):
        "The same without what a file of safetensors cannot have in its name."
        allowed = "".join(c for c in NASTY if c not in "\0\ud800\udc80\udfff")
        return f"{name}\n::error::{allowed}{LETTERS}.safetensors" if self.nasty else f"{name}.safetensors"


def net(names, classes=True, bad=False):
    "A model with a layer in a layer, attention, a key, and a layer that never runs."
    name = names if classes else Names(False)

    def inner(self, x):
        a, b = self._modules.values()
        x = b(F.softmax(a(x), -1))
        return x.log() if bad else x

    def outer(self, x):
        first, block, _, act = self._modules.values()
        x = act(block(first(x)))
        h = x.view(1, 1, *x.shape)
        return F.scaled_dot_product_attention(h, h, h)[0, 0]

    block = type(name.kind("Block"), (nn.Module,), {"forward": inner})()
    block._modules.update({names("a"): nn.Linear(6, 6), names("b"): nn.Linear(6, 6)})
    m = type(name.kind("Net"), (nn.Module,), {"forward": outer})()
    m._modules.update({names("first"): nn.Linear(6, 6), names("block"): block, names("idle"): nn.Linear(6, 6),
                       names("act"): type(name.kind("Act"), (nn.ReLU,), {})()})
    return m


class Keys(nn.Module):
    "Returns a dict."
    def __init__(self, names):
        super().__init__()
        self.names, self.lin = names, nn.Linear(6, 6)

    def forward(self, x): return {self.names("out"): self.lin(x), self.names("other"): x}


def said_by(act):
    "What this raises or warns with, with its notes, as texts."
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try: act()
        except Exception as e:
            return [str(e) if e.args[1:] or not e.args else str(e.args[0]), *getattr(e, "__notes__", ()),
                    *(str(w.message) for w in found)]
    assert found, "neither an error nor a warning"
    return [str(w.message) for w in found]


def fails(*args): raise ValueError("no")


def x(): return torch.randn(4, 6)


def taken_off(hooks):
    "The text of hooks that are on, and then are not."
    text = repr(hooks)
    with warnings.catch_warnings(action="ignore"): hooks.remove()
    return text


def looked_at(names):
    "Texts of hooks, edits and features."
    m, block = net(names), names("block")
    with hl.hook_outputs(m, names="*") as h:
        m(x())
        yield "hooks", [repr(h), repr(h[block]), repr(hl.hooks_on(m)), report(m)]
    keys = Keys(names)
    with hl.hook_outputs(keys, names="*", root=keys) as h, hl.hook_output(keys) as own:
        keys(x())
        yield "keys", [repr(h), repr(own), shape_text(x())]
    with hl.hook_outputs(m, names="*", grad=True) as h:
        m(x()).sum().backward()
        yield "gradients", [repr(h)]
    with hl.hook_calls(m, [F.softmax, F.scaled_dot_product_attention]) as h, \
            hl.edit_calls(m, F.softmax, lambda call: None) as e:
        m(x())
        yield "calls", [repr(h), repr(h[0]), repr(e)]
    yield "tensors", [taken_off(hl.parameter_hooks(m, quiet=True)),
                      taken_off(hl.tensor_hook(x().requires_grad_(), print))]
    yield "edits", [taken_off(hl.edit_output(net(names), lambda m, i, o: o, names="*"))]
    yield "state", [taken_off(hl.state_dict_hook(net(names), print))]
    yield "extractor", [repr(hl.FeatureExtractor(net(names), {block: names("new")})),
                        repr(hl.BatchExtractor(net(names), block, inputs=names("column")))]
    with hl.by_token(m, names=[block]) as seen:
        m(x())
        yield "by token", [repr(seen)]
    yield "attention", [repr(hl.attention(m, x()))]
    said = []
    for check in (hl.VerboseExecution, hl.ForwardCheck):
        with check(m, file=said.append) as report_of: report_of(x())
    with hl.checked_gradients(m, file=said.append): m(x()).sum().backward()
    yield "lines", said
    with hl.Timeline(m) as lanes: m(x()).sum().backward()
    yield "traces", [repr(lanes), repr(hl.calls(m, x()))]
    columns = [column for column in COLUMNS if column != "time"]
    yield "profile", [repr(hl.summary(m, x(), columns=columns, depth=None)), repr(hl.cost(m, x(), repeat=1, warmup=0)),
                      repr(hl.summary(m)), repr(hl.summary(keys, x(), columns="output"))]
    learner = hl.Learner(([(x(), x())], [(x(), x())]), m, F.mse_loss, lr=.01)
    type_of = type(names.kind("Cb"), (hl.Callback,), {})
    yield "learner", [repr(hl.module_summary(learner)), repr(type_of())]
    recorder = hl.Recorder()
    recorder.rows = [{"epoch": 0, names("metric"): .5}]
    yield "progress", [recorder.table()]


def compared(names):
    "Texts of comparisons and of a hunt for NaN."
    torch.manual_seed(0)
    one = net(names)
    other = net(names)
    other.load_state_dict(one.state_dict())
    with torch.no_grad(): other._modules[names("block")]._modules[names("b")].weight.mul_(2)
    plain = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    found = hl.compare(one, other, x())
    assert not found.same
    yield "compare", [repr(found), repr(hl.compare(one, other, x(), backward=torch.sum)), repr(found.first)]
    yield "compare with others", [repr(hl.compare(plain, one, x()))]
    row = ComparedRow(names("a"), names("b"), 1, 1., 1., 0., "fault", f"it is {names('c')}", names("Kind"))
    alone = ComparedRow(names("d"), None, 0, 0., 0., 0., "only in a")
    yield "rows", [repr(Comparison([row, alone, row], lines=[names("line")], notes=[names("note")]))]
    bad = net(names, bad=True)
    yield "nan", said_by(lambda: watched(bad, x()))
    spoiled = net(names)
    with torch.no_grad(): spoiled._modules[names("first")].weight.fill_(torch.nan)
    yield "nan in parameters", said_by(lambda: watched(spoiled, x()))
    yield "nan in data", said_by(lambda: watched(net(names), x()*torch.nan))
    yield "nan watch", [taken_off(hl.find_nan(net(names)))]
    drift = Drift(1, 0, names("weight"), names("tp"), [[0], [1]], [1], [names("shape"), "nothing"], None)
    yield "drift", [str(drift), str(drift._replace(has=[])), str(ProcessPlace(0, 2, {names("dp"): 1}))]


def watched(m, given):
    with hl.find_nan(m): m(given)


def trained(names, path=None, lr=50.):
    "What was recorded of a run."
    torch.manual_seed(0)
    m = net(names)
    opt = torch.optim.SGD(m.parameters(), lr=lr)
    with hl.ActivationStats.for_diagnosis().on(m, optimizer=opt) as s:
        for _ in range(6):
            opt.zero_grad()
            loss = m(x()*100).square().mean()
            loss.backward()
            opt.step()
            s.step(loss.detach())
    if path: s.save(path)
    return s


def findings_of(names):
    layers = [names("a"), names("b")]
    found = [Finding("dead units", "certain", f"{layers[0]} is dead.", layers, (0, 3), advice=f"Look at {layers[1]}."),
             Finding("loss does not fall", "likely", f"because of {layers[0]}", steps=(0, 3), advice="Look.",
                     follows="dead units")]
    return Diagnosis(found, 4, 2, [f"what {layers[0]} does"])


def recorded(names, folder):
    "Texts about runs and their files."
    path = folder/names.file("run")
    s = trained(names, path)
    loaded = hl.ActivationStats.load(path)
    heads = s.attention
    told = hl.diagnose(loaded)
    assert told and any(names("") in str(f.layers) or f.layers for f in told)
    yield "stats", [repr(s), repr(loaded), repr(s.history), repr(heads), repr(s.log)]
    yield "diagnosis", [repr(told), *map(str, told)]
    yield "findings", [repr(findings_of(names)), *map(str, findings_of(names)), findings_of(names).findings[0].where]
    nothing = Finding("nothing recorded", "certain", f"of {names('a')}", steps=(0, -1), advice=f"Look at {names('b')}.")
    yield "nothing", [repr(Diagnosis([nothing], 0, 0, []))]
    log = sarif(findings_of(names), run=names("run"))
    texts = [result["message"]["text"] for result in log["runs"][0]["results"]]
    yield "sarif", [*texts, log["runs"][0]["properties"]["title"], *log["runs"][0]["properties"]["not judged"]]
    found = hl.compare_runs(path, trained(names, lr=5.))
    assert not found.same
    yield "runs", [repr(found), found.verdict]
    torch.manual_seed(0)
    m = net(names)
    target = torch.zeros(4, 6)
    found = hl.preflight(m, F.mse_loss, ((x(), target), (x(), target)), torch.optim.SGD(m.parameters(), 1.),
                         overfit=False)
    assert any(f.layers for f in found)
    yield "preflight", [repr(found)]


def errors(names, folder):
    "Messages of errors and warnings."
    m, block, a = net(names), names("block"), names("no such layer")
    def err(name, *acts): return name, [text for act in acts for text in said_by(act)]
    stats = trained(names)
    broken = broken_net(names)
    yield err("no layer", lambda: hl.layers(m, a), lambda: hl.layers(m, nn.Conv2d), lambda: hl.hook_outputs(m, names=a),
              lambda: hl.layers(m, type(names.kind("Kind"), (), {})), lambda: hl.layers(m, m),
              lambda: hl.layers(type(names.kind("Odd"), (), {})()), lambda: hl.hook_outputs(m)[a])
    yield err("not a layer", lambda: hl.Hook(m, type(names.kind("Odd"), (), {})()),
              lambda: hl.Hooks({names("list"): nn.ModuleList()}, print), lambda: hl.Hooks({names("t"): x()}, print),
              lambda: hl.Hooks({names("one"): m, names("two"): m}, print))
    yield err("never ran", lambda: run_with(hl.hook_outputs(m, names="*"), m))
    yield err("nothing runs", lambda: hl.execution_order(lists(names), x()))
    yield err("in place", lambda: changed_in_place(m), lambda: stored_and_changed(names))
    yield err("edits", lambda: run_with(hl.edit_output(m, fails, names=block), m),
              lambda: run_with(hl.edit_calls(m, F.softmax, fails), m), lambda: run_with(
                  hl.edit_output(m, lambda m, i, o: o[:, :2], names=names("first")), m))
    yield err("calls", lambda: hl.hook_calls(m, a), lambda: hl.calls(m, x())[a], lambda: hl.hook_calls(m, m),
              lambda: hl.hook_calls(m, type(names.kind("Kind"), (), {})))
    yield err("features", lambda: hl.FeatureExtractor(m, [names("idle")])(x()), lambda: hl.FeatureExtractor(m, [a]),
              lambda: hl.FeatureExtractor(m, {"*": names("new")}), lambda: hl.by_token(m)[a],
              lambda: hl.FeatureExtractor(m, "*", stop=True)(x()))
    yield err("attention", lambda: hl.attention(m, x())[a], lambda: hl.attention(m, x(), names=block),
              lambda: hl.attention(m._modules[block], x()))
    yield err("profile", lambda: hl.summary(m, x())[a], lambda: hl.cost(m, x(), repeat=1)[a],
              lambda: hl.summary(broken, x()), lambda: hl.cost(broken, x(), repeat=1), lambda: hl.summary(m, (4, 6)))
    yield err("stats", lambda: stats.history.index(a), lambda: hl.diagnose(m), lambda: stats.attention.plot(a),
              lambda: hl.compare_runs(stats, m))
    yield err("files", lambda: hl.record(m, folder/names.file("no")/names.file("file"), x()), lambda: hl.record(
        m, folder, x()), lambda: hl.compare(folder/names.file("no"), m), lambda: hl.load_features(
        folder/names.file("no"), a))
    yield err("comparison", lambda: hl.compare(m, net(names), x(), pairs={a: block}), lambda: hl.compare(
        m, net(names), x())[a], lambda: hl.compare(broken, net(names), x()), lambda: hl.compare(m, broken, x()))
    yield "left out", [why_left_out(names("a"), type(names.kind("Odd"), (), {})(), ValueError(names("b")), False)]
    yield "cut off", cut_off(folder/names.file("cut"))


def broken_net(names):
    m = net(names)
    m._modules[names("block")].forward = fails
    return m


def run_with(hooks, m):
    with hooks: m(x())


def lists(names):
    "Runs, and none of its layers does."
    m = type(names.kind("Idle"), (nn.Module,), {"forward": lambda self, x: x})()
    m._modules[names("a")] = nn.Linear(6, 6)
    return m


def changed_in_place(m):
    with hl.Hooks(m, lambda m, i, o: o.mul_(1), names="*", detach=False): m(x())


def stored_and_changed(names):
    m = net(names)
    with hl.hook_outputs(m, names="*", detach=False) as h:
        m(x())
        h[names("first")].stored.data.mul_(1)
        h[names("first")].stored.detach().mul_(2)
        return h[names("first")].stored


def cut_off(path):
    path.write_bytes(b"\x20\0\0\0\0\0\0\0{")
    return said_by(lambda: hl.compare(path, path))


def commands(names, folder, capsys, monkeypatch):
    "What the command prints and what it says on stderr."
    module = ModuleType("hostile")
    module.make, module.odd, module.broken = (lambda: net(names)), (lambda: lists(names)), lambda: broken_net(names)
    monkeypatch.setitem(sys.modules, "hostile", module)
    monkeypatch.chdir(folder)
    one, other = folder/names.file("one"), folder/names.file("other")
    torch.manual_seed(0)
    m = net(names)
    hl.record(m, one, x())
    with torch.no_grad(): m._modules[names("first")].weight.mul_(2)
    torch.manual_seed(0)
    hl.record(m, other, x())
    run, log = folder/names.file("run"), folder/names.file("log")
    trained(names, run)
    for args in (["summary", "hostile:make", "--size", "4,6"], ["summary", "hostile:broken", "--size", "4,6"],
                 ["summary", "hostile:make", "--size", "4,6", "--json"], ["summary", "hostile:make", "--size", "4,7"],
                 ["summary", f"hostile:{names('none')}"], ["summary", "hostile:nothing"], ["compare", one, one],
                 ["compare", one, other], ["compare", one, run], ["compare", one, folder/names.file("no")],
                 ["compare", run, run], ["diagnose", run], ["diagnose", run, "--json"], ["diagnose", one],
                 ["diagnose", run, "--sarif", log], ["diagnose", folder/names.file("no")], ["lessons", one],
                 [names("what")], ["report"]):
        try: cli.main([*map(str, args)])
        except SystemExit as end:
            if isinstance(end.code, str): print(end.code, file=sys.stderr)
        said = capsys.readouterr()
        yield " ".join(map(str, args)).replace(str(folder), "")[:30] if not names.nasty else None, [said.out, said.err]
    yield "the log", [log.read_text(encoding="utf-8")]


def texts(nasty, folder, make, *more):
    folder.mkdir()
    return list(make(Names(nasty), *([folder] if make in (recorded, errors, commands) else []), *more))


@pytest.mark.parametrize("make", [looked_at, compared, recorded, errors, commands])
def test_no_text_has_a_name_that_is_obeyed(make, tmp_path, monkeypatch, request):
    monkeypatch.setenv("COLUMNS", "2000")
    more = [request.getfixturevalue("capsys"), monkeypatch] if make is commands else []
    plain = texts(False, tmp_path/"plain", make, *more)
    nasty = texts(True, tmp_path/"nasty", make, *more)
    assert len(plain) == len(nasty) > 5
    seen = 0
    for (name, one), (_, other) in zip(plain, nasty):
        assert [len(text.split("\n")) for text in other] == [len(text.split("\n")) for text in one], (name, one, other)
        for text in other:
            raw = {hex(ord(c)) for c in OBEYED.findall(text)} - {"0xa"}
            assert not raw, (name, raw, text)
            assert not any(line.startswith("::error") for line in text.split("\n")), (name, text)
            seen += LETTERS in text
    assert seen > 10


# ---- HTML, data and pictures

class Text(HTMLParser):
    "All text of a page, and of its attributes."
    def __init__(self, page):
        super().__init__()
        self.texts, self.tags = [], set()
        self.feed(page)
        self.close()

    def handle_data(self, data): self.texts.append(data)
    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.texts += [value for _, value in attrs if value]

    def __contains__(self, name): return for_xml(name).replace(chr(13), r"\r") in "".join(self.texts)


def html_names(name): return f"{name}<i>&\"'$\\frac{{x}}{{${NASTY}{LETTERS}"
html_names.kind = lambda name: Names(True).kind(name) + "<i>&\"'"


def test_html_has_the_true_name(tmp_path):
    m = net(html_names)
    other = net(html_names)
    torch.manual_seed(0)
    stats = trained(html_names, tmp_path/"a.safetensors")
    first, block = html_names("first"), html_names("block")
    page = stats.report(tmp_path/"run.html", title=html_names("title")).read_text(encoding="utf-8")
    shown = {
        "page": (page, [first, html_names("title"), f"{block}.{html_names('a')}"]),
        "summary": (hl.summary(m, x(), depth=None)._repr_html_(), [first, html_names.kind("Net")]),
        "compare": (hl.compare(m, other, x())._repr_html_(), [first]),
        "calls": (hl.calls(m, x())._repr_html_(), [first]),
        "diagnosis": (findings_of(html_names)._repr_html_(), [html_names("a"), html_names("b")]),
        "runs": (hl.compare_runs(stats, trained(html_names, lr=5.))._repr_html_(), [first])}
    for what, (html, names) in shown.items():
        text = Text(html)
        assert "i" not in text.tags or what in ("page", "diagnosis"), what  # those have an `<i>` of their own
        assert html.count("<i>") == html.count("</i>"), what
        for name in names: assert name in text, (what, name)
        html.encode("utf-8")


def test_rows_and_keys_have_the_true_name():
    names = Names(True)
    m = net(names)
    first, kind = names("first"), names.kind("Act")
    with hl.hook_outputs(m, names="*") as h:
        m(x())
        assert first in h.stored if isinstance(h.stored, dict) else h[first].stored is not None
    assert first in hl.execution_order(m, x()) and first in {row.layer for row in hl.calls(m, x())}
    assert {first, names("block")} < {row.name for row in hl.summary(m, x(), depth=None).rows}
    assert kind in {row.type for row in hl.summary(m, x()).rows} and hl.cost(m, x(), repeat=1)[first].calls == 1
    found = trained(names)
    assert first in found.names and first in {row["layer"] for row in found.history.table()}
    assert findings_of(names).rows[0]["layers"] == [names("a"), names("b")]
    log = json.loads(json.dumps(sarif(findings_of(names), run="run")))
    locations = log["runs"][0]["results"][0]["locations"][0]["logicalLocations"]
    assert [place["fullyQualifiedName"] for place in locations] == [printable(names("a")), printable(names("b"))], (
        "a viewer shows these, beside code")


TEX = ["$x$", "$\\frac{x}{$", "$a", "\\$_^{", "a_b<&>", "块 é", "l\ud800", "n\n\x1b$y$", "t\t$"]


def tex_net(n=8):
    m = nn.Sequential()
    for i, name in enumerate(TEX[:n]): m._modules[name] = nn.Linear(6, 6) if i % 2 == 0 else nn.ReLU()
    return m


def as_drawn(name): return for_xml(name).replace("\n", r"\n").replace("\t", r"\t")


def tex_run(m, lr=.1):
    torch.manual_seed(0)
    opt = torch.optim.SGD(m.parameters(), lr)
    with hl.ActivationStats(with_hist=True, grads=True, include_paramless=True).on(m, optimizer=opt) as s:
        for i in range(3):
            opt.zero_grad()
            m(x()*(torch.nan if i == 2 else 1)).square().mean().backward()
            opt.step()
            s.step()
    return s


class Attends(nn.Module):
    def forward(self, x): return F.scaled_dot_product_attention(x, x, x)


def pictures():
    "Everything that is drawn of models whose layers have such names."
    few, many = tex_net(), tex_net(9)
    runs = {"few": tex_run(few), "many": tex_run(many)}
    for size, run in runs.items(): yield f"outputs of {size}", run.history.plot()
    yield "updates", runs["few"].histories["updates"].plot()
    yield "flow", runs["few"].histories["gradients"].plot_flow()
    history = runs["few"].history
    yield "all", history.plot_all()
    yield "histogram", history.plot_hist(0)
    yield "one layer", history.plot_layer_stats(0)
    with hl.Timeline(few) as lanes: few(x()).sum().backward()
    yield "timeline", lanes.plot()
    yield "calls", hl.calls(few, x()).plot()
    yield "cost", hl.cost(few, x(), repeat=1).plot()
    other = tex_net()
    yield "compare", hl.compare(few, other, x()).plot()
    a, b = (tex_run(tex_net(), lr) for lr in (.1, .2))
    yield "runs", hl.compare_runs(a, b).plot()
    heads, batch = nn.Sequential(), torch.randn(1, 1, 4, 4, requires_grad=True)
    heads._modules[TEX[1]] = Attends()
    yield "attention", hl.attention(heads, batch).plot(f"{TEX[1]}/scaled_dot_product_attention#0", tokens=TEX[:4])
    with hl.AttentionStats().on(heads) as s:
        heads(batch)
        s.step()
    yield "heads", s.plot()


def test_pictures_draw_names_as_they_are(monkeypatch):
    from matplotlib.text import Text as Drawn
    seen = set()
    monkeypatch.setitem(plt.rcParams, "figure.dpi", 40)  # quicker
    try:
        for what, axes in pictures():
            first = axes if hasattr(axes, "figure") else list(getattr(axes, "flat", axes))[0]
            with warnings.catch_warnings(action="ignore"):  # the font has not all letters
                first.figure.canvas.draw()
            found = [t for t in first.figure.findobj(Drawn) for name in map(as_drawn, TEX) if name in t.get_text()]
            assert found, what
            for t in found:
                if t.get_text().startswith("$\\mathdefault{"): continue  # a number of an axis
                assert not t.get_parse_math() and not t.get_usetex(), (what, t)
                seen.add(t.get_text())
            plt.close("all")
    finally: plt.close("all")
    for name in map(as_drawn, TEX[:8]): assert any(name in text for text in seen), name


def test_a_picture_as_svg_has_them_too(tmp_path):
    s = tex_run(tex_net())
    ax = s.history.plot()
    with plt.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings(action="ignore"):
        ax.figure.savefig(tmp_path/"plot.svg")
    plt.close("all")
    text = "".join(ElementTree.parse(tmp_path/"plot.svg").getroot().itertext())
    for name in TEX[:8]: assert as_drawn(name) in text, name


# ---- addresses

@pytest.mark.parametrize("name", [
    "javascript:alert(1)", "http://x/y", "//host/x", "a b%41.safetensors", "块/ж.st", "x\n\ud800", "\udc80",
    "/runs/a:b c", "data:text/html,<b>", "run.safetensors", "C:x", "?q#f"])
def test_the_file_of_a_run_is_a_uri_without_another_scheme(name):
    result = sarif(findings_of(Names(False)), run=name)["runs"][0]["results"][0]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    parts = urlsplit(uri)
    assert re.fullmatch(r"[\w.~%/:-]+", uri, re.ASCII) and not (parts.query or parts.fragment or parts.netloc)
    assert parts.scheme == ("file" if name.startswith("/") else "")
    path = unquote(parts.path, errors="surrogateescape" if name == "\udc80" else "surrogatepass")
    assert path == (f"/{name.lstrip('/')}" if name.startswith("/") else name)


# ---- the code

OURS = {"cli.py: ', '.join(names)", "trainers.py: ' or '.join(names)", "comparing_runs.py: name",
        "watch.py: none_ran(names)", "batch_extractor.py: names"}  # of ours, and the last two printable already
OUTSIDE = re.compile(r"(?:^|[._(\s\[])(?:name|names|folder|path|layer|parent|__name__|error|e)\)?\]?$")


def bare(node):
    "Names from outside in the message of an error or a warning that are neither quoted nor printable."
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("printable", "class_name", "in_lines"): return
    if isinstance(node, ast.FormattedValue):
        if node.conversion == ord("r"): return
        if OUTSIDE.search(ast.unparse(node.value)): yield ast.unparse(node.value)
    for child in ast.iter_child_nodes(node): yield from bare(child)


def test_no_error_or_warning_has_a_bare_name_in_it():
    found, n = [], 0
    for file in sorted((REPO/"hooklab").rglob("*.py")):
        if "exercises" in file.parts or file.name in ("_modidx.py", "__init__.py"): continue  # of lessons' own models
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise): says = node.exc
            else: says = node if getattr(getattr(node, "func", None), "attr", "") in ("warn", "add_note") else None
            kind = getattr(getattr(says, "func", None), "id", "")
            if says is None or kind == "NotLookedAt": continue  # its text is printed by `Preflight`
            n += 1
            found += [f"{file.name}:{node.lineno}: {name}" for name in bare(says) if f"{file.name}: {name}" not in OURS]
    assert n > 300 and not found, "\n".join(found)
