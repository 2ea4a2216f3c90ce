"""What a comparison prints, draws and gives to pandas."""
import math
import re

import pytest

from hooklab.debug.comparing.comparison import ComparedRow, Comparison


def row(a, kind="equal", error=0., own=0., b="", **more):
    return ComparedRow(a, a if b == "" else b, more.pop("call", 0), error, own, 1e-7, kind, **more)


def faulty(n=20, at=9):
    kinds = ["equal"]*at + ["fault"] + ["inherited"]*(n - at - 1)
    return Comparison([row(f"layers.{i}", kind, .1*(kind != "equal"), .2*(kind == "fault"), layer="Linear",
                           what="weight is transposed" if kind == "fault" else "") for i, kind in enumerate(kinds)],
                      lines=["A proof."], notes=["A note."])


def test_in_words():
    text = str(faulty()).split("\n\n")[0].splitlines()
    assert text == ["They first diverge in layers.9 (Linear).",
                    "Given the same inputs, its results differ by 0.2 (relative); rounding explains 1.0e-07.",
                    "What differs: weight is transposed.", "A proof.", "A note."]


def test_asserted():
    c = faulty()
    with pytest.raises(AssertionError, match=r"first diverge in layers\.9"): assert c.same, c
    assert c.first is c["layers.9"] is c.faults[0]
    with pytest.raises(LookupError, match=r"nope.*layers\.0"): c["nope"]


def test_without_a_fault():
    c = Comparison([row("a"), row("")])
    said = "The same, bit for bit, in every output that was compared (2)."
    assert c.same and c.first is None and str(c).startswith(said)
    c = Comparison([row("a"), row("b", "noise", 3e-7, layer="GELU"), row("", "backward noise", 1e-8)])
    first = str(c).splitlines()[0]
    assert first == ("The same, apart from rounding: the outputs differ by at most 3.0e-07 (relative). "
                     "Equal bit for bit: 1 of 3.")
    assert str(Comparison([])) == "There was nothing to compare."


def test_gradients():
    c = Comparison([row("a"), row("a", "backward fault", .5, .5), row("b", "backward fault", .1, .1, call=1)])
    text = str(c)
    said = "In the backward pass they first diverge in a.\nGiven the same gradients, its gradients differ by 0.5"
    assert text.startswith(said)
    assert "Also at fault: b (call 1)." in text and re.search(r"layer +call +error", text)


def test_partners():
    c = Comparison([row("a", b="x"), row("b", "only in a", b=None), row(None, "only in b", b="y")])
    text = str(c)
    assert "in the reference: b." in text and "in the candidate: y." in text
    assert re.search(r"reference +candidate +error", text) and re.search(r"b +- +only in a", text)
    assert c["x"] is c["a"] and c["y"].name == "y"
    fault = Comparison([row("a", "fault", 1., 1., b="x")])
    assert str(fault).startswith("They first diverge in a, which is x in the candidate.")


def test_the_table_shows_what_is_near():
    lines = str(faulty(40, 20)).split("\n\n")[1].splitlines()
    around = [f"layers.{i}" for i in range(16, 25)]
    assert [line.split()[0] for line in lines] == ["layer", "…", *around, "…", "layers.39"]
    assert lines[1] == "… 16 more"


def test_numbers_that_are_not_finite():
    other = row("a", "fault", math.inf, math.inf, what="it returns 2 instead of 3")
    c = Comparison([other, row("b", "equal", 0., math.nan)])
    assert "∞" in str(c) and "?" in str(c) and "Given the same" not in str(c)
    assert c.plot() is not None


def test_html():
    html = faulty()._repr_html_()
    assert html.startswith("<p><strong>They first diverge in layers.9 (Linear).</strong>")
    assert html.count("font-weight:bold") == 1
    assert "<table" in html and "more</td>" in html
    assert "&lt;b&gt;" in Comparison([row("<b>")])._repr_html_()


def test_pandas():
    pd = pytest.importorskip("pandas")
    c = faulty()
    frame = pd.DataFrame(c.rows)
    assert list(frame.columns) == ["a", "b", "call", "error", "own", "noise", "kind", "what", "layer", "overflow"]
    assert frame.query("kind == 'fault'").a.tolist() == ["layers.9"]


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_plot(style):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    with plt.style.context(style):
        ax = faulty().plot()
        ax.figure.canvas.draw()
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert "own, of a layer at fault" in labels and ax.get_yscale() == "log"
        assert [text.get_text() for text in ax.texts] == ["layers.9"]
        _, mine = plt.subplots()
        assert faulty().plot(mine) is mine
        empty = Comparison([]).plot()
        assert "nothing to compare" in empty.texts[0].get_text()
        assert Comparison([row("a")]).plot() is not None
    plt.close("all")
