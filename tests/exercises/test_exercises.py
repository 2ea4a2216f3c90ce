"""Each exercise of each lesson: its solution passes, its stub and the typical mistakes are told what is wrong."""
import ast
import contextlib
import importlib
import inspect
import io
import json
import linecache
import pkgutil
import re
import runpy
import sys

import nbformat
import pytest
import torch

import hooklab
import hooklab.exercises
from hooklab.exercises.checking import CHECKS, TRIES, NotYet, check
from hooklab.exercises.notebooks import learner_notebook, lesson_exercises, lesson_predictions, lesson_readings
from support.checks import REPO

lessons = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((REPO/"nbs"/"lessons").glob("[0-9]*.ipynb"))}
exercises = {id: parts for nb in lessons.values() for id, parts in lesson_exercises(nb).items()}
readings = {each.id: each for nb in lessons.values() for each in lesson_readings(nb).values()}

# For each exercise a list of mistakes: the solution with one piece replaced, a whole answer or a letter, and a piece of what its author should be told.
files = [runpy.run_path(file) for file in sorted((REPO/"tests"/"exercises"/"mistakes").glob("lesson_??.py"))]
mistakes = {id: wrong for file in files for id, wrong in file["mistakes"].items()}
rights = {id: given for file in files for id, given in file.get("right", {}).items()}  # answers that are unusual, and right


def answer(source, parts):
    "The function that a cell defines, under the name that the check is given."
    namespace = {"hl": hooklab, "torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    exec(compile(source, "<answer>", "exec"), namespace)
    linecache.cache["<answer>"] = len(source), None, source.splitlines(keepends=True), ""  # as Jupyter does
    return namespace[re.search(r'check\("\w+", (\w+)\)', "".join(parts["check"]["source"]))[1]]


def told(id, source):
    "What `check` tells the author of an answer."
    TRIES.clear()
    given = source if id in readings else answer(source, exercises[id])
    with pytest.raises(NotYet) as raised, contextlib.redirect_stdout(io.StringIO()): check(id, given)
    assert raised.value._render_traceback_() == [f"Not yet. {raised.value}"]  # this is all that Jupyter shows
    return re.sub(r"stopped at `[^`]*` with", "stopped with", str(raised.value))


def source(id, part): return "".join(exercises[id][part]["source"])


def changed(id, change):
    "A whole answer, or the solution with one piece replaced."
    if len(change) == 1: return change[0]
    assert change[0] in source(id, "solution"), "the solution has changed: change the mistake with it"
    return source(id, "solution").replace(*change)


@pytest.mark.parametrize("id", exercises)
def test_solution_passes(id, capsys):
    check(id, answer(source(id, "solution"), exercises[id]))
    assert capsys.readouterr().out.startswith(f"ok: {id}, ")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("id, change", [(id, change) for id in rights for change in rights[id]])
def test_what_is_right_but_unusual_passes(id, change, capsys):
    check(id, answer(changed(id, change), exercises[id]))
    assert capsys.readouterr().out.startswith(f"ok: {id}, ")


@pytest.mark.parametrize("id", readings)
def test_right_letter_passes_and_each_other_has_a_reason(id, capsys):
    asked, asks = readings[id], CHECKS.get(id) or (told(id, ""), CHECKS[id])[1]
    assert asks.right == asked.right and {asks.right, *asks.against} == {*asked.letters} and len(asked.letters) >= 4
    for letter, reason in asks.against.items():
        assert told(id, letter) == reason and len(reason.split()) >= 12, letter
    assert len({*asks.against.values()}) == len(asks.against), "each letter has a reason of its own"
    TRIES.clear()
    for n, given in enumerate((asked.right, asked.right.lower(), f"  {asked.right}\n")):
        check(id, given)
        out = capsys.readouterr().out
        assert out == f"ok: {id}, {asks.why} · try 1\n", n


@pytest.mark.parametrize("id", readings)
def test_what_is_no_letter_is_told_what_is_expected_and_is_no_try(id):
    letters = f"{', '.join(readings[id].letters[:-1])} or {readings[id].letters[-1]}"
    nothing = ("", " "), "Nothing is written here yet"
    another = ("Z", "AB", "?", "B: this one", "the answer is A"), "is none of them"
    no_text = (None, 3, True, ..., [readings[id].right], len, torch.ones(2), Odd()), "asks for a letter"
    for given, expected in (nothing, another, no_text):
        for each in given:
            said = told(id, each)
            assert expected in said and letters in said and TRIES[id] == 0, said


def test_tries_of_a_letter_are_counted(capsys):
    id, asked = next(iter(readings.items()))
    TRIES.clear()
    wrong = [letter for letter in asked.letters if letter != asked.right]
    for n, letter in enumerate(wrong, 1):
        with pytest.raises(NotYet) as raised: check(id, letter)
        assert ("hl.solution" in str(raised.value)) == (n >= 3)
    check(id, asked.right)
    assert capsys.readouterr().out.endswith(f" · try {len(wrong) + 1}\n")
    check(id, asked.right)
    assert capsys.readouterr().out.endswith(" · try 1\n")


@pytest.mark.parametrize("id", exercises)
def test_exercise_that_asks_for_a_function_says_so_to_a_letter(id):
    with pytest.raises(NotYet, match="asks for a function, and yours is 'C'"): check(id, "C")


def test_not_enough_evidence_is_always_an_answer_and_sometimes_right():
    pattern = r"^- \*\*([A-Z])\*\*: not enough evidence: .{20}"
    worded = {id: re.search(pattern, each.question, re.M) for id, each in readings.items()}
    assert all(worded.values()), worded
    right = [id for id, found in worded.items() if found[1] == readings[id].right]
    assert 2 <= len(right) <= len(readings)/2
    assert len({each.right for each in readings.values()}) >= 4, "no letter is a good guess"


@pytest.mark.parametrize("id", exercises)
def test_stub_says_that_nothing_is_written(id):
    assert "Nothing is written here yet" in told(id, source(id, "stub"))


@pytest.mark.filterwarnings("ignore:.*never called:hooklab.HookWarning")  # from an answer that hides an error
@pytest.mark.parametrize("id, mistake", [(id, mistake) for id in mistakes for mistake in mistakes[id]])
def test_mistake_is_named(id, mistake):
    *change, expected = mistake
    assert expected in told(id, changed(id, change))


class Odd:
    "A result that nothing can be done with."
    def __bool__(self): raise TypeError("neither true nor false")
    __eq__ = __len__ = __iter__ = __float__ = __getattr__ = __bool__
    __hash__ = object.__hash__


ODD = {
    "list": list, "pair": lambda: (None, None), "dict": lambda: {"a": [1]}, "text": lambda: "twice",
    "complex": lambda: 1j, "nan": lambda: float("nan"), "huge": lambda: 10**400, "true": lambda: True,
    "function": lambda: len, "class": lambda: dict, "layer": lambda: torch.nn.ReLU(), "bytes": lambda: b"1",
    "empty": lambda: torch.ones(0), "tensor": lambda: torch.ones(2, 3, 4), "whole": lambda: torch.arange(6),
    "tensors": lambda: [torch.ones(2), torch.ones(3)], "names": lambda: {"0": torch.ones(2)},
    "meta": lambda: torch.ones(3, device="meta"), "generator": lambda: (i for i in "ab"),
    "nested": lambda: ([1, (2,)], {3: None}), "object": Odd,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("id", exercises)
def test_no_result_makes_a_check_stumble(id):
    names = re.search(r"def \w+\((.*)\)", source(id, "stub"))[1]
    for kind, odd in ODD.items():
        wrong = eval(f"lambda {names}: odd()", {"odd": odd})
        with pytest.raises(NotYet) as told, contextlib.redirect_stdout(io.StringIO()):
            check(id, wrong)
            raise AssertionError(f"{kind} passes, which does not depend on what the answer is given")
        assert "The check cannot work with" not in str(told.value), f"{kind}: a sentence of its own"


def test_after_three_tries_the_solution_is_offered(capsys):
    TRIES.clear()
    said = []
    for _ in range(4):
        with pytest.raises(NotYet) as raised: check("01a", lambda *args: "no")
        said.append(str(raised.value))
    assert ["hl.solution(\"01a\")" in each for each in said] == [False, False, True, True]
    hooklab.solution("01a")
    assert capsys.readouterr().out.strip() in source("01a", "solution")
    check("01a", answer(source("01a", "solution"), exercises["01a"]))
    with pytest.raises(NotYet) as raised: check("01a", lambda *args: "no")
    assert "solution" not in str(raised.value).partition("\n")[2]


def imported(name):
    "What is in scope in a lesson as a learner gets it: what its cells import."
    scope = {}
    for cell in learner_notebook(lessons[name])["cells"]:
        if cell["cell_type"] != "code": continue
        for node in ast.parse(re.sub(r"^%.*", "", "".join(cell["source"]), flags=re.M)).body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)): continue
            with contextlib.suppress(ImportError): exec(ast.unparse(node), scope)  # lesson 16 needs transformers
    return scope


@pytest.mark.parametrize("id", [*exercises, *readings])
def test_call_that_is_printed_runs_in_the_lesson(id, capsys):
    TRIES.clear()
    TRIES[id] = 2
    wrong = (lambda *args: "no") if id in exercises else next(iter(CHECKS[id].against))
    with pytest.raises(NotYet) as raised: check(id, wrong)
    exec(re.search(r"solution: `(.+)`$", str(raised.value))[1], imported(next(name for name in lessons if id.startswith(name[:2]))))
    assert capsys.readouterr().out.strip()


MODULES = {*sys.stdlib_module_names, "hl", "hooklab", "torch", "nn", "F", "np", "plt", "numpy", "matplotlib", "sklearn"}


def texts(name):
    "Everything a learner may read in a lesson: its prose and hints, and the messages of its checks."
    yield from ("".join(cell["source"]) for cell in lessons[name]["cells"] if cell["cell_type"] == "markdown")
    room = importlib.import_module(f"hooklab.exercises.lesson_{name[:2]}")
    for node in ast.walk(ast.parse(inspect.getsource(room))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str): yield node.value


@pytest.mark.parametrize("name", lessons)
def test_names_in_what_a_learner_reads_are_in_scope(name):
    scope, found = imported(name), 0
    for text in texts(name):
        for code in re.findall(r"```python\n(.+?)```|`([^`\n]+)`", text, re.S):
            try: nodes = [*ast.walk(ast.parse("".join(code).strip()))]
            except SyntaxError: continue
            for chain in (ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)):
                root = re.fullmatch(r"(\w+)(\.\w+)+", chain)
                if not root or root[1] not in MODULES or f"import {root[1]}" in text: continue
                eval(chain, scope)
                found += 1
    assert found >= 3, "or this test looks at nothing"


@pytest.mark.parametrize("id", exercises)
def test_solution_is_printed(id, capsys):
    hooklab.solution(id)
    assert capsys.readouterr().out.strip() == re.sub(r"^#\|.*\n", "", source(id, "solution"), flags=re.M).strip()


@pytest.mark.parametrize("id", readings)
def test_letter_is_printed(id, capsys):
    hooklab.solution(id)
    assert capsys.readouterr().out == f"{readings[id].right}: {readings[id].why}\n"


def test_solution_of_no_exercise_names_those_that_are():
    with pytest.raises(LookupError, match="no exercise '99z'; there are 01a, "): hooklab.solution("99z")
    with pytest.raises(LookupError, match="no exercise '05x'"): hooklab.solution("05x")


@pytest.mark.parametrize("raised, expected", [
    (AssertionError(), "stopped with AssertionError."), (RuntimeError("\n"), "stopped with RuntimeError."),
    (NotImplementedError("no mean of bool"), "stopped with NotImplementedError: no mean of bool."), (NotImplementedError(), "Nothing is written here yet")])
def test_any_error_of_an_answer_is_told(raised, expected):
    def wrong(*args): raise raised
    with pytest.raises(NotYet) as told: check("01a", wrong)
    assert expected in re.sub(r" at `.*?`", "", str(told.value))


def test_lessons_checks_and_mistakes_belong_together():
    for module in pkgutil.iter_modules(hooklab.exercises.__path__):
        if re.fullmatch(r"lesson_\d\d", module.name): importlib.import_module(f"hooklab.exercises.{module.name}")
    assert {*exercises, *readings} == set(CHECKS) == set(mistakes) and not {*exercises} & {*readings}


READS = {"05", "07", "08", "09", "10", "18"}  # lessons with an exercise whose answer is a letter


@pytest.mark.parametrize("name", lessons)
def test_lesson_has_three_exercises_of_its_own_and_perhaps_one_to_read(name):
    ids = list(lesson_exercises(lessons[name]))
    assert ids == [name[:2] + letter for letter in "abc"]
    reads = [each.id for each in lesson_readings(lessons[name]).values()]
    assert reads == ([name[:2] + "r"] if name[:2] in READS else [])


@pytest.mark.parametrize("name", lessons)
def test_learner_gets_no_solution(name):
    lesson = json.dumps(lessons[name])
    nb, cells = learner_notebook(lessons[name]), lessons[name]["cells"]
    assert json.dumps(lessons[name]) == lesson, "the lesson itself was changed"
    nbformat.validate(nbformat.from_dict(nb))
    text = "\n".join("".join(cell["source"]) for cell in nb["cells"])
    for parts in lesson_exercises(lessons[name]).values():
        assert "".join(parts["solution"]["source"]) not in text
        assert "".join(parts["check"]["source"]) in text and "".join(parts["hints"]["source"]) in text
    assert not re.search(r"^#\|", text, re.M), "a setting of the site"
    assert not re.search(r"^- (?:order|skip_exec|toc-depth): ", text, re.M) and "](../" not in text, "what a learner's folder has not"
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in nb["cells"] if cell["cell_type"] == "code")
    captions = [caption for cell in cells for caption in re.findall(r'^#\| fig-cap: "(.+)"$', "".join(cell["source"]), re.M)]
    asked, reads = lesson_predictions(lessons[name]).values(), lesson_readings(lessons[name]).values()
    assert len(nb["cells"]) == len(cells) - 3 + len(captions) + len(asked) + len(reads)
    for each in reads:
        assert each.question in text and each.why not in text and f'check("{each.id}", "")  # A, B, ' in text
        runs = re.search(rf"### Exercise {each.id}: .+?(?={re.escape(each.question)})", text, re.S)[0]
        assert not re.search(rf'check\("{each.id}", "\w', text) and not re.search(r"\bassert\b", runs), "the letter"
    for each in asked: assert each.question in text and each.answer not in text and f'guess("{each.id}", "")' in text
    assert "import check, guess, lesson_style" in text
    for caption in captions: assert f"*{caption}*" in text


@pytest.mark.parametrize("name", lessons)
def test_code_that_the_site_folds_is_folded_for_a_learner(name):
    solutions = [parts["solution"]["source"] for parts in lesson_exercises(lessons[name]).values()]
    folds = [cell["source"] for cell in lessons[name]["cells"] if "#| code-fold: true\n" in cell["source"]]
    folded = [re.sub(r"^#\|.*\n?", "", "".join(lines), flags=re.M) for lines in folds if lines not in solutions]
    of_reading = "fig-cap" in "".join(folds[-1]) and name[:2] in READS  # the last figure; what it asserts is left out
    if of_reading: folded[-1] = re.sub(r"\n *assert .*", "", folded[-1])
    hidden = [cell["source"].replace("check, guess, ", "check, ") for cell in learner_notebook(lessons[name])["cells"]
              if cell["metadata"].get("jupyter", {}).get("source_hidden")]
    assert hidden == folded and len(hidden) >= 3
