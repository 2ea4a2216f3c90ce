"The form of a lesson: what a reader can count on finding in each."
import ast
import json
import re

import pytest

from hooklab.exercises.notebooks import lesson_exercises, lesson_predictions, lesson_readings
from support.checks import REPO
from support.lesson_claims import claimed, sentence, tried
from support.lesson_times import times

pages = {path.stem: json.loads(path.read_text(encoding="utf-8"))["cells"] for path in sorted((REPO/"nbs"/"lessons").glob("[0-9]*.ipynb"))}
each = pytest.mark.parametrize("name", pages)


def text(cell): return "".join(cell["source"])
def code(name): return [cell for cell in pages[name] if cell["cell_type"] == "code"]
def prose(name): return [text(cell) for cell in pages[name] if cell["cell_type"] == "markdown"]
def lines(source): return [line for line in source.splitlines() if line.strip() and not line.startswith("#|")]
def exercises_begin(name): return next(i for i, cell in enumerate(pages[name]) if "## Exercises" in text(cell))
def draws(cell): return any("image/svg+xml" in output.get("data", {}) for output in cell["outputs"])


def test_lessons_are_numbered_without_a_gap():
    assert [name[:2] for name in pages] == [f"{i + 1:02}" for i in range(len(pages))]


@each
def test_begins_with_a_question_and_what_it_takes(name):
    title, badge = prose(name)[:2]
    assert re.fullmatch(r"# .+\?\n\n> .+\n\n- short: .{3,26}(\n- skip_exec: true)?", title.strip())
    takes = r"\d+ minutes to read · \d+ minutes of exercises · \d+ seconds to run · (beginner|intermediate|advanced) · needs"
    assert re.match(takes, badge) and "You will be able to" in badge


@each
def test_takes_as_long_as_it_says(name):
    badge = prose(name)[1]
    stated = [*map(int, re.match(r"(\d+) minutes to read · (\d+) minutes of exercises", badge).groups())]
    read, exercises = times(pages[name])
    assert abs(stated[0] - read) <= 2 and stated[1] == exercises, "python tests/support/lesson_times.py"


@each
def test_ends_with_what_can_be_done_now_and_the_next_question(name):
    assert "## What you can do now" in prose(name)[-1] and re.search(r"\*\*Next:\*\* \[.+\]\(.+\.ipynb\)", prose(name)[-1])
    assert any(re.search("^## .*trap", part, re.M | re.I) for part in prose(name)), "a lesson shows a trap or two"


@each
def test_says_with_how_many_other_seeds_it_was_tried(name):
    row = tried().get(name)
    again = f"try it again: python -m tests.bench claims --only {name[:2]}"
    assert row and row["asserts"] == claimed(pages[name]), again
    assert sentence(row) in prose(name)[-1].splitlines(), "python tests/support/lesson_claims.py"


@each
def test_cells_are_short(name):
    assert 25 <= len(pages[name]) <= 64
    for cell in code(name):
        source = text(cell)
        most = 15 if re.search(r"^(class |import |from )", source, re.M) or "Solution" in source else 12
        assert len(lines(source)) <= most, f"{len(lines(source))} lines: {source[:60]}"
    for part in prose(name):
        part = re.sub(r"^\*\*Tried with\*\* .+", "", part, flags=re.M)  # what each lesson says
        for piece in re.split(r"</?details>", re.sub(r"```.+?```", "", part, flags=re.S)):
            assert len(re.sub(r"<[^>]+>|[#*`|-]", "", piece).split()) <= 65, piece[:60]
    sizes = sorted(len(lines(text(cell))) for cell in code(name))
    assert sizes[len(sizes)//2] <= 8


@each
def test_main_text_has_six_lines_of_code_at_a_time(name):
    "But for what is folded, and for one function or class, which cannot be torn apart."
    for cell in code(name):
        source = "".join(line for line in cell["source"] if not line.startswith("%"))
        statements = ast.parse(source).body
        one = len(statements) == 1 and isinstance(statements[0], (ast.FunctionDef, ast.ClassDef))
        if "#| code-fold: true" not in source: assert one or len(lines(source)) <= 6, source[:60]
        nodes = list(ast.walk(ast.Module(statements, [])))
        assert not any(isinstance(node, ast.NamedExpr) for node in nodes), f"a walrus: {source[:60]}"
        for node in nodes:  # `loss.backward(), opt.step()`; a tuple of names that ends a cell only shows their values
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Tuple): continue
            shows = node is statements[-1] and not any(isinstance(part, ast.Call) for part in node.value.elts)
            assert shows, f"several statements in a tuple: {source[:60]}"


@each
def test_reader_predicts_before_seeing(name):
    asked = [i for i, cell in enumerate(pages[name]) if "**Predict first.**" in text(cell)]
    pattern = r"\*\*Predict first\.\*\* (.+?)<details><summary>Answer</summary>(.+)</details>"
    predictions = lesson_predictions({"cells": pages[name]})
    assert 2 <= len(asked) <= 3 and [*predictions] == asked, "a comment with the guesses below the answer"
    assert all(len({*each.options}) == len(each.options) in (2, 3, 4) for each in predictions.values())
    for i in asked:
        question, answer = re.search(pattern, text(pages[name][i]), re.S).groups()
        assert question.strip().endswith("?") and len(answer.split()) >= 8, question
        assert any(cell.get("outputs") for cell in pages[name][i + 1:i + 4]), "what comes next shows who was right"


@each
def test_help_comes_in_three_steps(name):
    titles = ["Hint 1: the idea", "Hint 2: the call to use", "Hint 3: a skeleton"]
    for id, parts in lesson_exercises({"cells": pages[name]}).items():
        hints = re.findall(r"<details><summary>(.+?)</summary>(.+?)</details>", text(parts["hints"]), re.S)
        assert [title for title, _ in hints] == titles, id
        idea, call, skeleton = (hint for _, hint in hints)
        assert "```" not in idea and "`" in call and "..." in skeleton, id
        skeleton = re.search(r"```python\n(.+?)```", skeleton, re.S)[1]
        ast.parse(skeleton)
        name_of_stub = text(parts["stub"]).split("\n")[1].split("(")[0]
        assert skeleton.startswith(name_of_stub), f"{id}: another function"


@each
def test_reading_has_runs_a_figure_and_two_hints(name):
    for at, asked in lesson_readings({"cells": pages[name]}).items():
        start = next(i for i, cell in enumerate(pages[name]) if text(cell).startswith(f"### Exercise {asked.id}: "))
        assert re.search(r"^Reading · difficulty [123] of 3 · \d+ minutes$", asked.task, re.M)
        made = pages[name][start + 1:at]
        assert made and all(cell["cell_type"] == "code" and "#| code-fold: true\n" in text(cell) for cell in made)
        assert sum(map(draws, made)) == 1 and "assert " in text(made[-1]), "one figure, and what it must show"
        titles = re.findall(r"<details><summary>(.+?)</summary>", text(pages[name][at]))
        assert titles == ["Hint 1: the idea", "Hint 2: where to look", "Answer"] and len(asked.why.split()) >= 20


@each
def test_leads_on_and_back(name):
    whole = "\n".join(prose(name))
    assert "## On your own model" in prose(name)[-2], "a task on the reader's own model and data, before the end"
    read_more = re.search(r"^\*\*Read more:\*\* .+$", prose(name)[-1], re.M)
    assert read_more and 1 <= len(re.findall(r"\]\(https?://", read_more[0])) <= 3
    earlier = [other for other in pages if other < name]
    assert not earlier or any(f"]({other}.ipynb" in whole for other in earlier), "nothing of an earlier lesson"


@each
def test_figures_come_soon_and_tell_what_is_seen(name):
    figures = [cell for cell in code(name) if draws(cell)]
    of_readings = [cell for cell in figures if pages[name].index(cell) > exercises_begin(name)]
    assert 3 <= len(figures) - len(of_readings) <= 6 and pages[name].index(figures[0]) <= 7
    for cell in figures:
        caption, alternative = (re.search(rf'^#\| fig-{what}: "(.+)"$', text(cell), re.M) for what in ("cap", "alt"))
        assert caption and alternative and len(caption[1]) > 20 and len(alternative[1]) > 40 and caption[1] != alternative[1], text(cell)[:60]


@each
def test_figures_are_light_and_legible_on_a_phone(name):
    for cell in code(name):
        drawn = ["".join(output.get("data", {}).get("image/svg+xml", [])) for output in cell["outputs"]]
        for svg in filter(None, drawn):
            assert len(svg) < 80_000, f"{len(svg)}: {text(cell)[:60]}"
            width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
            letters = min(map(float, re.findall(r"font(?:-size)?: (?:\w+ )*([\d.]+)px", svg)), default=99)
            assert round(letters*358/width, 2) >= 9, f"{letters} in {width}: {text(cell)[:60]}"


@each
def test_loading_and_drawing_are_folded(name):
    folded = [bool(re.search(r"^#\| code-fold: true", text(cell), re.M)) for cell in code(name)]
    first = next(i for i, cell in enumerate(code(name)) if draws(cell))
    assert folded[0] and folded[1] and folded[first], "imports, data and the first figure"


@each
def test_outputs_are_the_same_on_another_machine_and_another_day(name):
    for cell in code(name):
        for output in cell["outputs"]:
            shown = "".join(output.get("text", [])) + "".join(output.get("data", {}).get("text/plain", []))
            assert not re.search(r"0x[0-9a-f]{6,}|(?:^|\s)(?:/\w+){2,}|\d\d:\d\d:\d\d|\d+(?:\.\d+)? ?(?:ms|µs)\b", shown), shown


@each
def test_hands_and_library_are_compared(name):
    source = "\n".join(text(cell) for cell in code(name))
    assert re.search(r"^\s*assert |; assert |: assert ", source, re.M) and "hl." in source and 'check("' in source
