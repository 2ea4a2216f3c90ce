"""Pictures of runs of all kinds: long, short, broken and empty; the live figure; the page about a run."""
import re
import warnings
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
import torch
from torch import nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import hooklab as hl
import hooklab.stats.live
from hooklab.diagnosis.result import section_of_page
from hooklab.drawing import label_ends, thin_out
from hooklab.stats.records.history import WeightHistory
from hooklab.stats.records.moments import row_names
from support.portions import SWEEP, sample


def history(layers=3, steps=10, kind="activations", with_hist=True, first=0, every=1, spoil=None):
    "A history as a run would leave it, with numbers of our own; `spoil` changes them: step, number, layer."
    torch.manual_seed(0)
    h = hl.History([f"encoder.block{i}.linear" for i in range(layers)], row_names(with_hist, with_hist))
    h.kind = kind
    tables = torch.rand(steps, len(h.rows), layers)
    tables[:, 0] = 100
    tables[:, 3:] *= 100
    if spoil: spoil(tables)
    h.fill(range(first, first + steps*every, every), tables)
    return h


def updates(parameters=3, steps=10):
    h = WeightHistory([f"layer{i}.weight" for i in range(parameters)], ["update", "data"])
    torch.manual_seed(0)
    h.fill(range(steps), torch.rand(steps, 2, parameters)*torch.tensor([1e-3, 1.])[:, None])
    return h


def never_ran(t): t[:] = 0
def one_never_ran(t): t[:, :, 0] = 0
def every_second_step(t): t[::2] = 0
def nan_at_the_end(t): t[len(t)//2:, 1:3, t.shape[2]//2:] = torch.nan
def nan_everywhere(t): t[:, 1:3] = torch.nan
def inf(t): t[-1, 1], t[-1, 2] = torch.inf, torch.nan
def overflow(t): t[-1, 2] = torch.inf
def huge(t): t[-1, 1], t[-1, 2] = 3e38, 3e38
def tiny(t): t[:, 1:3] = 1e-42
def all_zero(t): t[:, 1:3] = 0
def single_numbers(t): t[:, 0], t[:, 2], t[:, 3:] = 1, 0, t[:, 3:] > 50


runs = {"usual": history(), "no layers": history(0, 0), "no steps": history(3, 0), "one step": history(3, 1), "one layer": history(1, 20),
        "two steps": history(2, 2), "many layers": history(12, 6), "uneven": history(9, 10, every=7, first=3), "no histogram": history(with_hist=False),
        "gradients": history(kind="gradients"), "sample": history(), "long names": history(10)}
runs |= {f"{spoil.__name__}, {layers} layers": history(layers, spoil=spoil) for layers in (1, 3, 12) for spoil in
         (never_ran, one_never_ran, every_second_step, nan_at_the_end, nan_everywhere, inf, overflow, huge, tiny, all_zero, single_numbers)}
runs["uneven"].steps[4:] = [step + 50 for step in runs["uneven"].steps[4:]]
runs["sample"].sampled = 64  # of 100
runs["long names"].names = ["model.text_encoder.encoder.layers.11.self_attention.output_projection"]*10
QUICK = {f"{spoil.__name__}, 3 layers" for spoil in (one_never_ran, nan_at_the_end, inf, all_zero)}
LIKE_OTHERS = {"one layer", "two steps", "gradients", "sample"}


def is_quick(name):
    "Most of what is spoilt, and what looks like another run, is for the slow tests."
    return ("," not in name or name in QUICK) and name not in LIKE_OTHERS


def each(quick):
    "Of the slow ones a sample, in which each way to spoil a run is."
    others = sample(3, [name for name in runs if not quick(name)], kind=lambda name: name.partition(",")[0])
    return pytest.mark.parametrize("h", [
        *(pytest.param(runs[name], id=name) for name in runs if quick(name)),
        *(pytest.param(runs[name], id=name, marks=SWEEP) for name in others)])


each_run = each(is_quick)
# what a page and given axes show is drawn in figures of their own too
IN_PART = "usual", "no layers", "no steps", "no histogram", "inf, 3 layers"
each_run_in_part = each(IN_PART.__contains__)
single = {"plot": lambda h, ax: h.plot("std", ax=ax), "mean": lambda h, ax: h.plot("mean", ax=ax), "n": lambda h, ax: h.plot("n", ax=ax), "dead_chart": lambda h, ax: h.dead_chart(ax=ax),
          "plot_flow": lambda h, ax: h.plot_flow(ax=ax), "color_dim": lambda h, ax: h.color_dim(0, ax=ax), "plot_hist": lambda h, ax: h.plot_hist(0, ax=ax)}


@pytest.fixture(autouse=True)
def nothing_said_nothing_left():
    "Drawing says nothing, and leaves no figure open that it was not asked for."
    plt.close("all")  # those of other files
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of what an earlier test has left to be collected
        yield
    plt.close("all")


def drawn(fig):
    "As the figure is shown: what is wrong with it is found only then."
    fig.set_dpi(50)
    fig.canvas.draw()


def words(ax): return [t.get_text() for t in ax.texts if t.get_text()]


@each_run_in_part
def test_draws_on_given_axes(h):
    "All of them in one figure, which is drawn once."
    names = [name for name in single if h.has_hist and h.names or name not in ("color_dim", "plot_hist")]
    fig, axes = plt.subplots(1, len(names))
    for name, ax in zip(names, axes):
        known = [*fig.axes]
        assert single[name](h, ax) is ax
        scale = [other.get_ylabel() for other in fig.axes if other not in known]
        if ax.has_data(): assert ax.get_xlabel() and (ax.get_ylabel() or scale[0]), name
        else: assert words(ax), f"{name}: nothing is drawn and nothing said"
    drawn(fig)
    assert plt.get_fignums() == [fig.number]


@each_run_in_part
def test_draws_figures_of_its_own(h):
    drawn(h.plot().figure)
    drawn(h.plot_flow().figure)
    axes = h.plot_all()
    drawn(axes.flat[0].figure)
    assert len([ax for ax in axes.flat if ax.figure]) == max(len(h.names), 1)
    if h.names:
        axes = h.plot_layer_stats(-1)
        assert [ax.get_title() for ax in axes if not words(ax)] in (["mean", "std", "% near zero"], ["mean", "% near zero"], ["% near zero"], [])
        drawn(axes[0].figure)


@pytest.mark.parametrize("parameters, steps", [(0, 0), (3, 0), (1, 1), (3, 10), (40, 10)])
def test_draws_updates(parameters, steps):
    h = updates(parameters, steps)
    ax = plt.subplots()[1]
    assert h.plot(ax=ax) is ax
    drawn(ax.figure)
    if steps: assert "length of update" in ax.get_ylabel() + ax.figure.axes[-1].get_ylabel()
    drawn(h.plot_all().flat[0].figure)


def test_guide_line_of_updates():
    ax = updates().plot()
    assert [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "--"] == [1e-3]
    assert ax.get_yscale() == "log" and "usual, about 1e-3" in words(ax)


def test_a_parameter_that_begins_at_zero_is_no_alarm():
    h = updates(2, 3)
    tables = h.tables()
    tables[0, 1, 0] = 0
    h.fill(h.steps, tables)
    assert h.values()[0, 0].isinf()
    ax = h.plot()
    assert not ax.get_title(loc="left")
    assert [len(line.get_xdata()[torch.tensor(line.get_ydata()).isfinite().numpy()]) for line in ax.lines[:2]] == [2, 3]


def test_lines_are_the_numbers_over_true_steps():
    h = history(2, 5, first=7, every=4)
    ax = h.plot("mean")
    for line, values in zip(ax.lines, h.values("mean")):
        assert list(line.get_xdata()) == [7, 11, 15, 19, 23]
        torch.testing.assert_close(torch.tensor(line.get_ydata()).float(), values)
    assert words(ax) == h.names  # each line has its name


def test_image_has_the_numbers_in_rows_from_the_top():
    h = history(9, 5, first=10, every=10)
    image = h.dead_chart().images[0]
    torch.testing.assert_close(torch.tensor(image.get_array().filled()).float(), h.values("near_zero"))
    assert image.get_extent() == [5, 55, 8.5, -.5]
    assert [t.get_text() for t in image.axes.get_yticklabels()] == h.names


def test_missing_steps_are_gray():
    image = runs["uneven"].dead_chart().images[0]
    steps = runs["uneven"].steps
    empty = image.get_array().mask.all(0)
    shown = [3 + 7*column for column in range(len(empty)) if not empty[column]]
    assert len(shown) == len(steps) and max(abs(a - b) for a, b in zip(shown, steps)) < 7


def test_color_dim_is_the_histogram():
    h = history(2, 6)
    ax = h.color_dim("encoder.block1.linear", figsize=(5, 2))
    image, bar = ax.images[0], ax.figure.axes[1]
    torch.testing.assert_close(torch.tensor(image.get_array().filled()).float(), h.hist(1))
    assert image.origin == "lower" and image.get_extent() == [-.5, 5.5, 0, 10] and list(ax.figure.get_size_inches()) == [5, 2]
    assert (ax.get_xlabel(), ax.get_ylabel(), bar.get_ylabel()) == ("step", "value of the output", "numbers per bin")
    assert ax.get_title(loc="left") == "encoder.block1.linear"


def test_a_sample_says_so():
    for ax in runs["sample"].color_dim(0), runs["sample"].plot_hist(0): assert "sample of 64" in ax.get_title(loc="right")
    all_in_it = history()
    all_in_it.sampled = 4096
    assert "sample" not in all_in_it.color_dim(0).get_title(loc="right")
    assert "sample" not in runs["usual"].color_dim(0).get_title(loc="right")


def test_numbers_outside_of_the_histogram_are_told():
    def below(t): t[:, 4:], t[:, 6], t[:, 9] = 0, 60, 40
    assert history(1, spoil=below).color_dim(0).get_title(loc="right") == "60% below 0"


def test_hist_takes_the_nearest_step():
    h = history(1, 5, every=10)
    for asked, found in (-1, 40), (0, 0), (14, 10), (999, 40), (-99, 0):
        ax = h.plot_hist(0, asked)
        assert ax.get_title(loc="left").endswith(f"step {found}")
        assert [bar.get_height() for bar in ax.patches] == pytest.approx(h.values("hist")[0, :, h.steps.index(found)].tolist())


def test_not_finite_is_told_with_layer_and_step():
    for layers in 3, 12:
        ax = history(layers, spoil=nan_at_the_end).plot()
        assert ax.get_title(loc="left") == f"orange: not finite, first in encoder.block{layers//2}.linear at step 5"
    assert not runs["usual"].plot().get_title(loc="left")


def test_flow_is_of_the_steps_asked_for():
    h = history(4, 11, kind="gradients", every=5)
    ax = h.plot_flow([0, 26, -1])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["step 0", "step 25", "step 50", "std", "|mean|"]
    torch.testing.assert_close(torch.tensor(ax.lines[0].get_ydata()).float(), h.values("std")[:, 0])
    assert [t.get_text() for t in ax.get_xticklabels()] == h.names


def test_thinned_keeps_what_stands_out():
    x, y = torch.arange(100_000).numpy(), torch.rand(100_000).numpy()
    y[51_234], y[70_000], y[1000:3000] = 100, -100, float("nan")
    few_x, few_y = thin_out(x, y)
    assert len(few_x) <= 1002 and {51_234, 70_000} <= set(few_x.tolist()) and (few_y == 100).any()
    assert (few_x[1:] >= few_x[:-1]).all() and (y[few_x][few_y == few_y] == few_y[few_y == few_y]).all()


def test_why_there_is_nothing_is_said():
    assert words(runs["never_ran, 3 layers"].plot()) == ["There is no standard deviation of the output: none of these layers ran."]
    assert words(runs["single_numbers, 3 layers"].plot()) == ["There is no standard deviation of the output: it needs more than one value."]
    assert words(runs["no steps"].plot()) == ["No activations were recorded yet."]


def test_names_that_have_no_room_are_left_out():
    h = history(100, 4096, with_hist=False)
    ax = h.plot()
    drawn(ax.figure)
    boxes = [t.get_window_extent() for t in ax.get_yticklabels()]
    assert 10 < len(boxes) < 100 and not any(a.overlaps(b) for a, b in zip(boxes, boxes[1:]))
    drawn(h.plot_flow().figure)
    drawn(h.plot_all().flat[0].figure)


def run(steps=6, record=None, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    s = record or hl.ActivationStats(**options)
    with s.on(model, optimizer=opt):
        for _ in range(steps):
            model(torch.randn(16, 6)).square().mean().backward()
            opt.step()
            opt.zero_grad()
            s.step()
    return s


def test_stats_hand_on_to_the_history():
    s = run(with_hist=True, grads=True)
    for draw in lambda ax: s.color_dim(0, ax=ax), lambda ax: s.plot_hist(0, ax=ax), lambda ax: s.dead_chart(ax=ax):
        ax = plt.subplots()[1]
        assert draw(ax) is ax
    assert len(s.plot_layer_stats("0")) == 3 and len(s.plot_all().flat) == 2
    axes = s.plot()
    assert [ax.get_xlabel() for ax in axes] == ["step"]*3 + ["layer, from input to output", "step"]
    drawn(axes[0].figure)
    drawn(run(is_forward=False).plot()[0].figure)


def test_what_a_histogram_is_of_is_kept(tmp_path):
    s = run(with_hist=True, grads=True, hist_sample=10)
    s.save(tmp_path/"run.safetensors")
    again = hl.ActivationStats.load(tmp_path/"run.safetensors")
    assert s.history.sampled == again.history.sampled == again.gradients.sampled == 10


# The live figure

class Shown:
    "Stands for what a notebook shows."
    def __init__(self): self.images, self.updates = [], []
    def display(self, image, display_id): self.images.append(image); return self
    def update(self, image): self.updates.append(image)


@pytest.fixture
def notebook(monkeypatch):
    import IPython.display
    shown = Shown()
    monkeypatch.setattr(IPython.display, "display", shown.display)
    monkeypatch.setattr(hooklab.stats.live, "in_jupyter", lambda: True)
    return shown


def test_live_figure_is_updated_in_place(notebook):
    s = run(record=hl.ActivationStats(grads=True).live(every_seconds=0))
    assert len(notebook.images) == 1 and notebook.updates and not plt.get_fignums()
    assert notebook.updates[-1].data.startswith(b"\x89PNG") and "steps 0 to 5" in notebook.updates[-1].alt
    run(record=s)
    assert len(notebook.images) == 2, "another run has a figure of its own"


def test_live_figure_is_not_drawn_in_each_step(notebook, monkeypatch):
    now, drawings = [0.], []
    monkeypatch.setattr(hooklab.stats.live.time, "monotonic", lambda: now[0])
    def picture(stats):
        drawings.append(now[0])
        now[0] += 1  # drawing takes a second
        return b""
    monkeypatch.setattr(hooklab.stats.live, "overview_as_png", picture)
    s = hl.ActivationStats().live(every_seconds=5)
    for now[0] in torch.arange(1., 100.).tolist(): s.live_plot.update()
    assert drawings == [1, 22, 43, 64, 85], "drawing takes no more than a twentieth of the time"


def test_live_figure_in_a_learner(notebook):
    learn = hl.synth_learner(cbs=hl.ActivationStats().live(every_seconds=1000), quiet=True)
    learn.fit(2)
    assert len(notebook.images) == 1 and len(notebook.updates) == 1, "one at the beginning, and one of all at the end"
    assert "steps 0 to 19" in notebook.updates[-1].alt


def test_live_figure_shows_a_run_that_fails(notebook):
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ZeroDivisionError), hl.ActivationStats().live(every_seconds=1000).on(model) as s:
        for _ in range(3):
            model(torch.ones(1, 2))
            s.step()
        1/0
    assert "steps 0 to 2" in notebook.updates[-1].alt and not hl.hooks_on(model)


def test_what_cannot_be_drawn_does_not_stop_the_training(notebook, monkeypatch):
    def fails(stats): raise MemoryError("no room")
    monkeypatch.setattr(hooklab.stats.live, "overview_as_png", fails)
    with pytest.warns(UserWarning, match="couldn't be drawn and won't be updated: MemoryError: no room") as said:
        s = run(record=hl.ActivationStats().live(every_seconds=0))
    assert len(s.stats) == 6 and len(said) == 1


def test_live_figure_outside_of_a_notebook():
    with pytest.warns(UserWarning, match="needs Jupyter"): s = hl.ActivationStats().live()
    assert len(run(record=s).stats) == 6


# The page

class Page(HTMLParser):
    "Tags of a page; those that were not closed, or not opened."
    void = "meta", "img", "br", "path", "link"
    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.wrong = [], [], []
        self.feed(text)
        self.close()
    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void + ("wbr",): self.open.append(tag)
    def handle_startendtag(self, tag, attrs): self.tags.append((tag, dict(attrs)))
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: self.wrong.append(tag)


def test_page_needs_nothing_else(tmp_path):
    text = run(with_hist=True, grads=True).report(tmp_path/"run.html", "A <b> & c").read_text("utf-8")
    page = Page(text)
    assert not page.open and not page.wrong
    assert not re.search(r"https?://|@import|url\(|<script|<link", text)
    images = [attrs for tag, attrs in page.tags if tag == "img"]
    assert len(images) == 6 + 2 and all(i["src"].startswith("data:image/png;base64,") and i["alt"] for i in images)
    assert "A &lt;b&gt; &amp; c" in text and "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert hooklab.__version__ in text and torch.__version__ in text
    assert not plt.get_fignums()


def test_page_begins_with_the_diagnosis(tmp_path):
    s = hl.ActivationStats()
    s.history = history(3, 40, with_hist=False, spoil=nan_at_the_end)
    text = s.report(tmp_path/"run.html").read_text("utf-8")
    assert section_of_page(hl.diagnose(s)) in text and "NaN" in text
    assert text.index("Diagnosis") < text.index("Pictures") < text.index("Layers")


def test_page_escapes_names(tmp_path):
    s = hl.ActivationStats()
    s.history = history(2, spoil=one_never_ran)
    s.history.names = ['<script>"x', "a&b"]
    page = Page(s.report(tmp_path/"run.html").read_text("utf-8"))
    assert not page.wrong and "script" not in dict(page.tags)


@each_run_in_part
def test_page_of_any_run(h, tmp_path):
    s = hl.ActivationStats(with_hist=h.has_hist)
    s.history = h
    page = Page(s.report(tmp_path/"run.html").read_text("utf-8"))
    assert not page.open and not page.wrong
    rows = [tag for tag, attrs in page.tags if tag == "th" and attrs.get("scope") == "row"]
    assert len(rows) == len(h.names)*bool(len(h))


def test_page_of_fifty_layers_is_small(tmp_path):
    s = hl.ActivationStats(with_hist=True)
    s.history, s.gradients, s.updates = history(50, 500), history(50, 500, "gradients"), updates(100, 500)
    assert s.report(tmp_path/"run.html").stat().st_size < 1_000_000


def test_a_line_that_ends_at_zero_on_a_logarithmic_axis_has_its_name_beside_the_axis():
    fig, ax = plt.subplots()
    ax.set_yscale("log")
    values = np.array([[1., 0.], [1., 1e-3]])
    ax.plot([0, 1], values.T)
    label_ends(ax, ["a", "b"], np.array([0, 1]), values, ["black", "red"])
    assert all(-.2 <= label.xyann[1] <= 1.2 and 0 <= label.xy[1] <= 1 for label in ax.texts) and len(ax.texts) == 2
    plt.close(fig)
