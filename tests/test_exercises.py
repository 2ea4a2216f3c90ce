"""Each exercise of each lesson: its solution passes, its stub and the typical mistakes are told what is wrong."""
import contextlib
import importlib
import io
import json
import pkgutil
import re

import nbformat
import pytest

import hooklab
from conftest import REPO
from hooklab.exercises import NotYet, _checks, check, learner_notebook, lesson_exercises

lessons = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((REPO/"nbs"/"lessons").glob("*.ipynb"))}
exercises = {id: parts for nb in lessons.values() for id, parts in lesson_exercises(nb).items()}

# A mistake is the solution with one piece replaced, or a whole answer, and a piece of what its author should be told.
mistakes = {
    "01a": [
        ("hook.stored.shape", "hook.stored", "the tensor itself"),
        ("return hook.stored.shape", "hook.stored.shape", "Is the `return` missing?"),
        ("return hook.stored.shape", "return model(x).shape", "shape of what the whole model makes"),
        ("model(x)", "layer(x)", "run the whole model on `x`"),
        ("        return", "    return", "was let go"),
        ("def layer_shape(model, layer, x):\n    shapes = []\n    layer.register_forward_hook(lambda m, i, o: shapes.append(o.shape))\n"
         "    model(x)\n    return shapes[0]", "a hook stays on the model when"),
        ("def layer_shape(model, layer, x):\n    shapes = []\n    h = layer.register_forward_hook(lambda m, i, o: shapes.append(i[0].shape))\n"
         "    model(x)\n    h.remove()\n    return shapes[0]", "is the shape of what `stem` takes"),
        ("def layer_shape(model, layer, x):\n    shapes = {}\n    layer.register_forward_hook(lambda m, i, o: shapes.setdefault(0, o.shape))\n"
         "    model(x)\n    return shapes[0]", "replaces the layer's output"),
        ("def layer_shape(model, layer, x):\n    shapes = []\n    layer.register_forward_hook(lambda m, o: shapes.append(o.shape))\n"
         "    model(x)\n    return shapes[0]", "with three arguments"),
    ],
    "01b": [
        (" if not list(m.children())", "", "without layers of their own"),
        ("named_modules", "named_children", "sees the top level only"),
        ("dict.fromkeys(leaves.values(), 0)", "__import__('collections').Counter()", "let every count start at 0"),
        ("counts[leaves[m]] += 1", "counts[leaves[m]] = 1", "`act` runs twice"),
        ("    for handle in handles: handle.remove()\n", "", "a hook stays on the model when"),
        ("def count_calls(model, x):\n    names = [name for name, m in model.named_modules() if not list(m.children())]\n"
         "    counts = dict.fromkeys(names, 0)\n    handles = []\n    for name in names:\n"
         "        def count(m, i, o): counts[name] += 1\n"
         "        handles.append(model.get_submodule(name).register_forward_hook(count))\n"
         "    model(x)\n    for h in handles: h.remove()\n    return counts", "Fix it with `name=name`"),
    ],
    "01c": [
        ("o.std() / i[0].std()", "i[0].std() / o.std()", "Upside down"),
        ("o.std() / i[0].std()", "o.std() / i.std()", "the tensor is `i[0]`"),
        ("o.std() / i[0].std()", "o.std()", "divide by the spread of what the layer took"),
        ("o.std() / i[0].std()", "o.std() / x.std()", "each layer has its own"),
        ("hooks.stored]", "hooks.stored[:1]]", "One number for each of the 3 layers"),
        ("def gains(model, x):\n    got = []\n    hs = [m.register_forward_hook(lambda m, i, o: got.append(o.std() / i[0].std())) for m in model]\n"
         "    model(x)\n    for h in hs: h.remove()\n    return got", "But when the model fails"),
        ("def gains(model, x):\n    got = []\n    for m in model: m.register_forward_hook(lambda m, i, o: got.append(o.std() / i[0].std()))\n"
         "    model(x)\n    return got", "a hook stays on the model when"),
        ("def gains(model, x):\n    with hl.Hooks(model, lambda m, i, o: o.std() / i[0].std()) as hooks:\n        try: model(x)\n"
         "        except Exception: return []\n        return hooks.stored", "your function hides it"),
    ],
}


def answer(source, parts):
    "The function that a cell defines, under the name that the check is given."
    namespace = {"hl": hooklab}
    exec(compile(source, "<answer>", "exec"), namespace)
    return namespace[re.search(r'check\("\w+", (\w+)\)', "".join(parts["check"]["source"]))[1]]


def told(id, source):
    "What `check` tells the author of an answer."
    with pytest.raises(NotYet) as raised, contextlib.redirect_stdout(io.StringIO()): check(id, answer(source, exercises[id]))
    assert raised.value._render_traceback_() == [f"Not yet. {raised.value}"]  # this is all that Jupyter shows
    return str(raised.value)


def source(id, part): return "".join(exercises[id][part]["source"])


@pytest.mark.parametrize("id", exercises)
def test_solution_passes(id, capsys):
    check(id, answer(source(id, "solution"), exercises[id]))
    assert capsys.readouterr().out.startswith(f"ok: {id}, ")


@pytest.mark.parametrize("id", exercises)
def test_stub_says_that_nothing_is_written(id):
    assert "Nothing is written here yet" in told(id, source(id, "stub"))


@pytest.mark.filterwarnings("ignore:.*never called:hooklab.hook.HookWarning")  # from an answer that hides an error
@pytest.mark.parametrize("id, mistake", [(id, mistake) for id in mistakes for mistake in mistakes[id]])
def test_mistake_is_named(id, mistake):
    *change, expected = mistake
    wrong = change[0]
    if len(change) == 2:
        assert change[0] in source(id, "solution"), "the solution has changed: change the mistake with it"
        wrong = source(id, "solution").replace(*change)
    assert expected in told(id, wrong)


def test_lessons_checks_and_mistakes_belong_together():
    for module in pkgutil.iter_modules(hooklab.__path__):
        if re.fullmatch(r"exercises_\d\d", module.name): importlib.import_module(f"hooklab.{module.name}")
    assert set(exercises) == set(_checks) == set(mistakes)


@pytest.mark.parametrize("name", lessons)
def test_lesson_has_three_exercises_of_its_own(name):
    ids = list(lesson_exercises(lessons[name]))
    assert ids == [name[:2] + letter for letter in "abc"]


@pytest.mark.parametrize("name", lessons)
def test_learner_gets_no_solution(name):
    lesson = json.dumps(lessons[name])
    nb = learner_notebook(lessons[name])
    assert json.dumps(lessons[name]) == lesson, "the lesson itself was changed"
    nbformat.validate(nbformat.from_dict(nb))
    text = "\n".join("".join(cell["source"]) for cell in nb["cells"])
    for id, parts in lesson_exercises(lessons[name]).items():
        assert "".join(parts["solution"]["source"]) not in text
        assert "".join(parts["check"]["source"]) in text and "".join(parts["hint"]["source"]) in text
    assert "eval: false" not in text and 'code-summary: "Solution"' not in text
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in nb["cells"] if cell["cell_type"] == "code")
    assert len(nb["cells"]) == len(lessons[name]["cells"]) - 3
