"""The pages of "Find the bug": a list of the cases, and a page and a notebook for each. They make no request, and can
be read without scripts: the looks are pictures and tables in folds, and so is the answer."""
import difflib
import json
import re
from html import escape
from pathlib import Path

from site_frame import Navigation, frame, head, text_of
from site_looks import CHECKED, LOOKS, code, folds, plain, shown
from site_source import colored_lines

LEVELS = {0: "Start here", 1: "Easy", 2: "A little harder", 3: "Hard"}
GRADES = {"cause": "counted as the cause", "symptom or place": "counted as a true symptom",
          "wrong": "not counted as the cause", "alarm": "there is nothing to fix"}
SMALL = "speech_detector_sums_gradients"  # the case that the home page shows
ABOUT_PARTS = ("<code>Parts</code> holds the model, the optimizer, the data, and the loss. <code>record</code> watches "
               "the run and changes nothing. <code>train</code> returns the error on held-out data: lower is "
               "better.")
ABOUT_LOOKS = ("Recorded while this very program ran. The lines below each look run in this case's notebook, which "
               "has <code>Parts</code>, <code>Losses</code>, and <code>batches</code>, too.")


def read_cases(folder: Path) -> list[dict]:
    "All cases, the easy ones first."
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda case: (case["level"], case["title"]))


def address(case: dict) -> str:
    "What the page of a case is called: after what the program does, for its own name may tell what is wrong."
    return re.sub(r"[^a-z0-9]+", "-", case["title"].lower()).strip("-")


# ---- the program

def listing(text: str) -> str:
    "The program, a line that one can choose in each row; imports are folded."
    def row(number, line):
        n = f'<span class="n">{number}</span>'
        if not line.strip(): return f'<span class="code-line">{n} </span>'
        choice = f'<input type="radio" name="line" value="{number}" aria-label="Line {number}">'
        return f'<label class="code-line">{choice}{n}{line}</label>'
    lines = text.rstrip().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith(("import ", "from ")))
    rows = [row(number, line) for number, line in enumerate(colored_lines(text.rstrip()), 1)]
    folded = (f'<details class="scaffolding"><summary>{first} lines of imports</summary><code>{"".join(rows[:first])}'
              "</code></details>")
    return (f'<div class="program" role="group" aria-label="The program">{folded}<code>{"".join(rows[first:])}</code>'
            "</div>")


def difference(case: dict) -> str:
    "What the repair changes."
    a, b = (case["texts"][whose].splitlines() for whose in ("patient", "twin"))
    rows = []
    for line in list(difflib.unified_diff(a, b, lineterm="", n=1))[2:]:
        if line.startswith("@@"):
            if rows: rows.append("<span>…</span>")
            continue
        mark = {"+": "ins", "-": "del"}.get(line[0], "span")
        rows.append(f"<{mark}>{escape(line, quote=False)}</{mark}>")
    lines = "\n".join(rows)
    return f'<pre class="difference"><code>{lines}</code></pre>'


# ---- the answer

def decided(case: dict) -> str:
    "The look that shows the fault, and the lines that measured it."
    name = case["decides"]
    if case["healthy"] or name not in LOOKS: return ""
    look = LOOKS[name]
    lines, tool = (plain(case, name), "") if look.plain else (look.ours, " with hooklab")
    title = look.title[0].lower() + look.title[1:]
    return f"<h3>The look that shows it: {title}</h3><p>These lines measured it{tool}:</p>{code(lines)}"


def repair(case: dict) -> str:
    if case["healthy"]: return ""
    lines = ", ".join(map(str, case["lines"]))
    return f"<h3>The repair</h3>{difference(case)}<p>Any of these lines counts as right: {lines}.</p>"


def before_and_after(case: dict) -> str:
    "The looks of the program beside those of the repaired one: the look that decides comes first."
    if case["healthy"]: return ""
    pairs = []
    for name in sorted(LOOKS, key=lambda name: name != case["decides"]):
        if case["looks"]["patient"][name] == case["looks"]["twin"][name]: continue
        opened = " open" if name == case["decides"] else ""
        pairs.append(f'<details class="pair"{opened}><summary>{LOOKS[name].title}</summary><div class="beside">'
                     f'<section><h4>This program</h4>{shown(case, name, "patient", True)}</section><section>'
                     f'<h4>Repaired</h4>{shown(case, name, "twin", True)}</section></div></details>')
    return f'<h3>Before and after</h3>{"".join(pairs)}'


def errors(case: dict) -> str:
    "How good the program is on data that it has not seen."
    here = f"Its <code>train</code> returns {case['looks']['patient']['score']}"
    if case["healthy"]: return f"<p>{here}.</p>"
    return f"<p>{here}; that of the repaired program returns {case['looks']['twin']['score']}.</p>"


def tools(case: dict) -> str:
    "What hooklab says of the program, right or wrong."
    def told(found):
        said = [f"<b>{escape(what)}</b> ({escape(sure)}: {GRADES[grade]})" for sure, what, grade in found]
        return ", ".join(said) or "nothing"
    first = case["said"]["first"]
    before = "The first rules were written with this program, so there is no earlier result." if (
        first is None) else f"Before any rule was written with this program in view: {told(first)}."
    return (f"<h3>What hooklab reports</h3><p>The word in parentheses is its certainty: certain, likely, possible, "
            f"or only a note.</p><ul><li>{before}</li><li>Today: {told(case['said']['today'])}.</li></ul>")


def answer(case: dict, top: str, nav: Navigation) -> str:
    "What was wrong, how one sees it, the repair, what hooklab says of it, and where it was reported."
    right = next(choice["words"] for choice in case["choices"] if choice["right"])
    where = f"<code>{escape(case['source'])}</code>"
    source = f"Reported in {case['year']}: {where}, rewritten as a small program."
    if "#" not in case["source"]: source = f"It trains the way a public project does: {where}."
    lesson = nav.by_name[case["lesson"]]
    learn = f'<p>A lesson that prepares you for it: <a href="{top}{lesson.name}.html">{text_of(lesson.title)}</a></p>'
    return (f'<details id="solution"><summary><h2>The answer</h2></summary><p class="right"><b>{text_of(right)}</b></p>'
            f"<p>{text_of(case['why'])}</p>{errors(case)}{repair(case)}{decided(case)}{before_and_after(case)}{tools(case)}"
            f"<p>{source}</p>{learn}</details>")


def questions(case: dict) -> str:
    options = "".join(f'<label><input type="radio" name="choice" value="{k}"> <span>{text_of(choice["words"])}</span>'
                      "</label>" for k, choice in enumerate(case["choices"]))
    return ('<form id="answer" hidden><h2>Your answer</h2><p id="line-said">Choose the faulty line in the '
            "program. If a line is missing, choose one next to it. One is enough; several may count.</p><fieldset>"
            f'<legend>What is wrong?</legend>{options}</fieldset><p><button type="submit">Answer</button> '
            '<button type="button" id="give-up">Show the answer</button></p><p id="reply" role="status"></p></form>')


# ---- the page of a case, its data and its notebook

def case_page(case: dict, nav: Navigation, following: dict | None) -> str:
    at, name, top = address(case), f"cases/{address(case)}", "../"
    about = f"A bug to find: {case['task']}"
    extra = (f'\n<link rel="stylesheet" href="{top}assets/cases.css"><script src="{at}.js" defer></script>'
             f'<script src="{top}assets/cases.js" defer></script>')
    after = ""
    if following: after = f'<a href="{address(following)}.html">The next case: {escape(following["title"])}</a>'
    crumbs = (f'<nav class="quarto-page-breadcrumbs" aria-label="Breadcrumbs"><ol class="breadcrumb">'
              f'<li class="breadcrumb-item"><a href="{top}clinic.html">Find the bug</a></li></ol></nav>')
    main = (f'<header id="title-block-header" class="quarto-title-block">{crumbs}<div class="quarto-title">'
            f'<h1 class="title">{escape(case["title"])}</h1></div></header><div id="case" data-name="{at}">'
            f'<p>{escape(case["task"])}</p><blockquote><p>{escape(case["complaint"])}</p></blockquote>'
            f'<p id="points" role="status"></p><div class="case-columns"><section class="case-program"><h2>The program'
            f'</h2><p>{ABOUT_PARTS}</p>{listing(case["texts"]["patient"])}</section><div class="case-side"><section>'
            f"<h2>Looks</h2><p>{ABOUT_LOOKS}</p>{folds(case)}</section>{questions(case)}</div>"
            f'</div>{answer(case, top, nav)}<p class="offer"><a href="{at}.ipynb" download>Download as a '
            f"notebook</a> {after}</p></div>")
    titled = head(f"{case['title']} – {nav.facts['name']}", about, top)
    return frame(nav, name, top, "case", titled + extra, main, "", "", "")


def case_script(case: dict) -> str:
    "What the script of a case page knows: the lines at fault, and the choices with their replies."
    known = {"version": case["version"], "name": address(case), "lines": case["lines"], "choices": case["choices"]}
    return f"window.hooklabCase = {json.dumps(known, ensure_ascii=False)};\n"


SETUP = '''from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

import hooklab as hl


@dataclass
class Parts:
    "What the program has before its loop."
    model: Any
    optimizer: Any
    data: Any
    loss: Any = None
    call: Any = None
    valid: Any = None
    scaler: Any = None


def batches(given):
    "A list of batches as a loader."
    return DataLoader(given, batch_size=None) if isinstance(given, list) else given'''


def notebook(case: dict) -> dict:
    "The program and all its looks, to run: without hooklab and with it."
    about = f"# {case['title']}\n\n{case['task']}\n\n> {case['complaint']}\n\nIt needs `pip install hooklab`."
    cells = [("markdown", about), ("code", SETUP), ("code", case["texts"]["patient"].rstrip())]
    for name, look in LOOKS.items():
        texts = [plain(case, name)] if look.ours == CHECKED and name != "preflight" else [plain(case, name), look.ours]
        cells.append(("markdown", f"## {look.title}\n\n{look.shows}"))
        cells += [("code", f"torch.manual_seed(0)\n{text}" if "build()" in text else text) for text in texts if text]
    def cell(kind, text, k):
        made = {"cell_type": kind, "id": f"cell-{k}", "metadata": {}, "source": text.splitlines(keepends=True)}
        return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": [cell(kind, text, k) for k, (kind, text) in enumerate(cells)], "nbformat": 4, "nbformat_minor": 5,
            "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}}


# ---- all pages

TOOLS = """<section id="case-tools" hidden><h2>Your progress</h2><p id="case-score" role="status"></p>
<p>Points stay in this browser. To take them along, copy them here, and paste them into the other browser.</p>
<p><label for="case-copy">Progress as text</label></p><textarea id="case-copy" spellcheck="false"></textarea>
<p><button type="button" id="case-export">Copy my progress</button>
<button type="button" id="case-import">Read it back</button></p></section>
<link rel="stylesheet" href="assets/cases.css"><script src="assets/cases.js" defer></script>"""


def list_of(cases: list[dict]) -> str:
    "The cases by level, with what was seen in each."
    found = []
    for level, title in LEVELS.items():
        mine = [case for case in cases if case["level"] == level]
        items = "".join(f'<li data-case="{address(case)}"><a href="cases/{address(case)}.html">{escape(case["title"])}'
                        f'</a> <span>{escape(case["complaint"])}</span></li>' for case in mine)
        found.append(f'<h2>{title}</h2><ol class="cases">{items}</ol>')
    return "".join(found)


def put(page: Path, mark: str, text: str, before: bool = False):
    "Puts text after the first mark in a page, or before the last one."
    html = page.read_text(encoding="utf-8")
    start, found, end = html.rpartition(mark) if before else html.partition(mark)
    if not found: raise ValueError(f"{page.name} has no {mark}")
    page.write_text(f"{start}{text}{found}{end}" if before else f"{start}{found}{text}{end}", encoding="utf-8")


def prepared_for(cases: list[dict]) -> str:
    links = ", ".join(f'<a href="../cases/{address(case)}.html">{escape(case["title"])}</a>' for case in cases)
    return f'<p class="cases"><small>Real bugs that this lesson prepares you for: {links}</small></p>'


def write_cases(docs: Path, folder: Path, nav: Navigation):
    "Writes the pages, data and notebooks of all cases, and hangs them into the list, the lessons and the home page."
    if not (cases := read_cases(folder)): return
    place = docs/"cases"
    place.mkdir(exist_ok=True)
    for case, following in zip(cases, [*cases[1:], None]):
        made = {"html": case_page(case, nav, following), "js": case_script(case),
                "ipynb": json.dumps(notebook(case), indent=1, ensure_ascii=False) + "\n"}
        for suffix, text in made.items(): (place/f"{address(case)}.{suffix}").write_text(text, encoding="utf-8")
    put(docs/"clinic.html", '<div id="case-list">', list_of(cases) + TOOLS)
    for lesson in dict.fromkeys(case["lesson"] for case in cases):
        mine = [case for case in cases if case["lesson"] == lesson]
        put(docs/f"{lesson}.html", "</main>", prepared_for(mine), before=True)
    small = next(case for case in cases if case["name"] == SMALL)
    put(docs/"index.html", '<div id="case-in-small">', '<link rel="stylesheet" href="assets/cases.css">'
        f'{shown(small, "loss", "patient")}<p><a href="cases/{address(small)}.html">Solve this one</a></p>')
