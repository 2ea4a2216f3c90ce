"""Find the bug: what the pages show is what ran, nothing tells the answer, and a case can be solved in a browser, with
a mouse, a finger or the keyboard, whatever the browser keeps."""
import ast
import io
import json
import shutil
import sys
import tokenize
from contextlib import redirect_stdout

import matplotlib
import pytest
import torch
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from support.browsing import DESKTOP, PHONE, becomes, eventually, open_page, press, show_as, wait, without_scripts
from support.checks import REPO
from support.portions import swept
from tests.bench import record_cases
from tests.bench.bench_programs import Nothing, alone
from tests.bench.case_looks import prepared
from tests.bench.programs.meaning import AREAS

sys.path.insert(0, str(REPO/"tools"))
import site_cases  # noqa: E402
from site_looks import LOOKS, plain  # noqa: E402

CASES = {case["name"]: case for case in site_cases.read_cases(REPO/"nbs/cases")}
EASY, QUIET = CASES["speech_detector_sums_gradients"], CASES["token_predicts_itself"]


# ---- what is recorded

def test_there_are_enough_of_each_kind():
    cases = [*CASES.values()]
    assert len(cases) >= 60 and [case["level"] for case in cases[:5]] == [0]*5 and cases[5]["level"]
    assert sum(case["quiet"] and not case["healthy"] for case in cases) >= 10
    assert sum(case["healthy"] for case in cases) >= 5
    areas = {record_cases.programs_by_name()[name][1].AREA for name, case in CASES.items() if not case["healthy"]}
    assert areas == {*AREAS}
    assert len({site_cases.address(case) for case in cases}) == len(cases)


def test_the_words_are_those_of_the_list_and_of_what_was_measured():
    known = record_cases.programs_by_name()
    assert {case["program"] for case in record_cases.CASES} == {*CASES}
    for case in record_cases.CASES:
        kept = CASES[case["program"]]
        now = record_cases.told(case, *known[case["program"]], kept["looks"])
        stale = [part for part in now if now[part] != kept[part]]
        assert not stale, f"{case['program']}: {stale} are of another day: make cases"


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_small_and_fair(name):
    case = CASES[name]
    assert (REPO/f"nbs/cases/{name}.json").stat().st_size <= 40_000
    for text in case["texts"].values():
        lines = text.splitlines()
        assert 25 <= len(lines) <= 70 and "repaired" not in text
        words = [token.type for token in tokenize.generate_tokens(io.StringIO(text).readline)]
        assert tokenize.COMMENT not in words, "a comment may tell the answer"
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef
        documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
        assert not any(map(ast.get_docstring, documented)), "a docstring may tell the answer"
    right = [choice for choice in case["choices"] if choice["right"]]
    assert len(right) == 1 and len(case["choices"]) >= 5
    assert all(choice["reply"] for choice in case["choices"])
    lines = case["texts"]["patient"].splitlines()
    assert bool(case["lines"]) != case["healthy"] and len(case["lines"]) <= 9
    assert all(lines[number - 1].strip() for number in case["lines"])
    assert case["decides"] in {*LOOKS, "program"} and (REPO/f"nbs/{case['lesson']}.ipynb").exists()


def test_the_names_of_a_look_are_no_names_of_a_program():
    "The lines of a look run in the notebook after the program, and must not replace what the program needs."
    def bound(text):
        nodes = ast.parse(text).body
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef): yield node.name
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    for case in CASES.values():
        program = {*bound(case["texts"]["patient"])}
        for name, look in LOOKS.items():
            ours = {*bound(plain(case, name)), *bound(look.ours)}
            assert not ours & program, f"{case['name']}: {name}"


@pytest.mark.parametrize("name", ["analog_layer_without_zero_grad", *swept(10, [
    n for n in CASES if n != "analog_layer_without_zero_grad"])])
def test_the_texts_are_what_ran(name):
    "A text, run alone, has the score of the program with that answer to `repaired`."
    _, program = record_cases.programs_by_name()[name]
    for whose, text in CASES[name]["texts"].items():
        repaired = CASES[name]["healthy"] or whose == "twin"
        with alone(0): space = prepared(text)
        with alone(0): there = program.train(program.build(repaired), Nothing())
        with alone(0): here = space["train"](space["build"](), Nothing())
        assert str(float(here)) == str(float(there)), whose


@pytest.mark.parametrize("name", ["analog_layer_without_zero_grad", *swept(15, [
    n for n in CASES if n != "analog_layer_without_zero_grad"])])
def test_the_notebook_measures_what_the_page_shows(name):
    "Every cell runs, with hooks of torch alone and with hooklab, and each recorded number is among those it measures."
    matplotlib.use("Agg")
    case, space = CASES[name], {"__name__": "__main__"}
    with alone(0), redirect_stdout(io.StringIO()):
        for cell in site_cases.notebook(case)["cells"]:
            if cell["cell_type"] == "code": exec("".join(cell["source"]), space)
    matplotlib.pyplot.close("all")
    looks, measured = case["looks"]["patient"], {"loss": {"loss": space["record"].losses}, "outputs": space["stds"],
                                                 "gradients": space["norms"], "updates": space["moved"]}
    for what, found in measured.items():
        for line, numbers in looks[what]["lines"].items():
            seen = torch.tensor([float(x) for x in found[None if line == "(not in the model)" else line]]).double()
            first = next(float(x) for x in numbers if x is not None)  # later ones may differ from machine to machine
            near = torch.isclose(seen, torch.tensor(first).double(), rtol=.02, atol=1e-6, equal_nan=True)
            assert near.any(), f"{what} of {line}: {first} is not among {seen[:5]}"


# ---- the pages

def test_what_a_page_loads_is_small(site):
    assert (site/"assets/cases.js").stat().st_size <= 60_000
    for case in CASES.values(): assert (site/f"cases/{site_cases.address(case)}.js").stat().st_size <= 40_000
    for page in site.rglob("*.html"):  # nothing else is heavier for it
        if page.parent.name == "cases" or page.name in ("clinic.html", "index.html"): continue
        assert "assets/cases." not in page.read_text(encoding="utf-8"), page.name


def test_a_case_and_the_lesson_for_it_lead_to_each_other(site):
    for case in CASES.values():
        name = f"cases/{site_cases.address(case)}"
        page, lesson = ((site/f"{at}.html").read_text(encoding="utf-8") for at in (name, case["lesson"]))
        assert f'../{case["lesson"]}.html' in page and f"{name}.html" in lesson


def test_the_home_page_shows_a_case_as_it_is(site):
    shown = next("".join(cell["source"]) for cell in json.loads((REPO/"nbs/index.ipynb").read_text())["cells"]
                 if "case-in-small" in "".join(cell["source"]))
    code = [line.strip() for line in shown.partition("```python")[2].partition("```")[0].strip().splitlines()]
    program = [line.strip() for line in CASES[site_cases.SMALL]["texts"]["patient"].splitlines()]
    assert any(program[i:i + len(code)] == code for i in range(len(program)))
    assert f"has {len(CASES)} such programs" in shown
    home = (site/"index.html").read_text(encoding="utf-8")
    assert f"cases/{site_cases.address(CASES[site_cases.SMALL])}.html" in home and "case-figure" in home


# ---- in a browser

def click(browser, what):
    "Clicks in the middle of the window, where no bar is above it."
    element = browser.find_element(By.CSS_SELECTOR, what)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def page(case): return f"cases/{site_cases.address(case)}.html"
def said(browser, where): return browser.find_element(By.ID, where).text
def list_says(visit, words):
    "Opens the list until it says this: what one page stores may reach the next, in another process, a moment later."
    def check():
        browser = visit("clinic.html")
        assert said(browser, "case-score") == words
        return browser
    return eventually(check)


def choice_of(case, right): return next(k for k, choice in enumerate(case["choices"]) if choice["right"] == right)


def answer(browser, case, number, choice):
    if number: click(browser, f".program label:has([value='{number}'])")
    click(browser, f"[name=choice][value='{choice}']")
    click(browser, "#answer [type=submit]")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_a_case_is_solved(visit, size):
    "Looks cost a point each and wrong answers two; each gets its reply; the right one shows all that is known."
    case = EASY
    browser = visit(page(EASY), size=size)
    assert said(browser, "points").startswith("10 points of 10 left")
    assert not browser.find_element(By.ID, "solution").is_displayed()
    click(browser, "[data-look=gradients] > summary")
    becomes("9 points of 10 left. A look costs one, a wrong answer two.", said, browser, "points")
    assert browser.find_element(By.CSS_SELECTOR, "[data-look=gradients] svg").is_displayed()
    wrong, right = choice_of(case, False), choice_of(case, True)
    answer(browser, case, None, wrong)
    becomes("Also choose the faulty line: click it in the program.", said, browser, "reply")
    answer(browser, case, 9, wrong)
    becomes(f"No. {case['choices'][wrong]['reply']}", said, browser, "reply")
    answer(browser, case, 9, right)
    becomes("That is what's wrong, but not in this line. It costs one point.", said, browser, "reply")
    answer(browser, case, case["lines"][0], right)
    becomes("Right. 6 points.", said, browser, "reply")
    solution = browser.find_element(By.ID, "solution")
    assert solution.is_displayed() and case["source"] in solution.text and "optimizer.zero_grad()" in solution.text
    browser = list_says(visit, "1 solved, 6 points.")
    assert browser.find_element(By.CSS_SELECTOR, f"[data-case={site_cases.address(EASY)}] .state").text == "6 points"


def test_a_case_is_solved_with_the_keyboard(visit):
    case = EASY
    browser = visit(page(EASY))
    browser.execute_script("document.querySelector('.scaffolding summary').focus()")
    press(browser, Keys.TAB, *[Keys.DOWN]*30)
    def chosen(b, name): return b.execute_script(f"return document.querySelector('[name={name}]:checked')?.value")
    at = int(wait(browser, lambda b: chosen(b, "line"), "no line is chosen"))
    shown = browser.find_elements(By.CSS_SELECTOR, ".program > code [name=line]")
    lines = [int(i.get_attribute("value")) for i in shown]
    away = lines.index(case["lines"][0]) - lines.index(at)
    press(browser, *[Keys.DOWN if away > 0 else Keys.UP]*abs(away))
    becomes(str(case["lines"][0]), chosen, browser, "line")
    for _ in range(15):  # over the looks to the choices
        press(browser, Keys.TAB)
        if browser.switch_to.active_element.get_attribute("name") == "choice": break
    press(browser, Keys.SPACE, *[Keys.DOWN]*choice_of(case, True))
    becomes(str(choice_of(case, True)), chosen, browser, "choice")
    press(browser, Keys.TAB, Keys.ENTER)
    becomes("Right. 10 points.", said, browser, "reply")
    assert browser.switch_to.active_element.tag_name == "summary", "the answer is where the keyboard is"


def test_a_healthy_program_is_healthy(visit):
    case = next(case for case in CASES.values() if case["healthy"])
    browser = visit(page(case))
    answer(browser, case, None, choice_of(case, True))
    becomes("Right. 10 points.", said, browser, "reply")


def test_who_looks_at_the_answer_gets_no_points(visit):
    browser = visit(page(QUIET))
    click(browser, "#give-up")
    becomes("The answer was shown, so this case has no points.", said, browser, "points")
    assert browser.find_element(By.CSS_SELECTOR, "#solution .right").is_displayed()
    answer(browser, QUIET, QUIET["lines"][0], choice_of(QUIET, True))
    becomes("Right.", said, browser, "reply")
    list_says(visit, "None solved yet.")


def test_progress_is_taken_along(visit):
    browser = visit(page(EASY))
    answer(browser, EASY, EASY["lines"][0], choice_of(EASY, True))
    browser = list_says(visit, "1 solved, 10 points.")
    area = browser.find_element(By.ID, "case-copy")
    click(browser, "#case-export")
    kept = area.get_attribute("value")
    assert json.loads(kept)["cases"][site_cases.address(EASY)]["done"]
    browser.execute_script("localStorage.clear()")
    browser = list_says(visit, "None solved yet.")
    for text in "", "[]", "no JSON", '{"version": 1, "cases": {"x": 3}}', kept.replace('"version":1', '"version":99'):
        area = browser.find_element(By.ID, "case-copy")
        area.clear()
        area.send_keys(text)
        click(browser, "#case-import")
        assert said(browser, "case-score").startswith("This isn't progress for these cases"), text
    area.clear()
    area.send_keys(kept)
    click(browser, "#case-import")
    becomes("1 solved, 10 points.", said, browser, "case-score")


@pytest.mark.parametrize("stored", ["no JSON", '{"HERE": {"looks": 3}, "other": null}'])
def test_what_was_stored_by_others_does_no_harm(visit, stored):
    browser = visit()
    stored = stored.replace("HERE", site_cases.address(EASY))
    browser.execute_script("localStorage.setItem('hooklab-cases', arguments[0])", stored)
    assert said(visit(page(EASY)), "points").startswith("10 points of 10 left")


def test_without_storage_a_case_can_be_solved(visit, browser):
    "As where a browser keeps nothing: it works, and says that points are not kept."
    script = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    try:
        visit(page(EASY))
        assert "This browser doesn't store data" in said(browser, "points")
        answer(browser, EASY, EASY["lines"][0], choice_of(EASY, True))
        becomes("Right. 10 points.", said, browser, "reply")
        assert "This browser doesn't store data" in said(visit("clinic.html"), "case-score")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
        visit()


@pytest.mark.parametrize("data", [None, "window.hooklabCase = {version: 99}", "not a script ("])
def test_a_case_without_its_data_says_so_and_the_others_work(browser, site, tmp_path, data):
    copied = tmp_path/"site"
    (copied/"cases").mkdir(parents=True)
    shutil.copytree(site/"assets", copied/"assets")
    for name in EASY, QUIET:
        for file in (site/"cases").glob(f"{site_cases.address(name)}.*"): shutil.copy(file, copied/"cases")
    script = (copied/page(EASY)).with_suffix(".js")
    script.unlink()
    if data: script.write_text(data)
    show_as(browser)
    open_page(browser, (copied/page(EASY)).as_uri())
    assert "could not be loaded" in said(browser, "points")
    assert browser.find_element(By.CSS_SELECTOR, ".program").is_displayed()
    assert browser.find_element(By.CSS_SELECTOR, "#solution > summary").is_displayed()
    assert not browser.find_element(By.ID, "answer").is_displayed()
    open_page(browser, (copied/page(QUIET)).as_uri())
    assert said(browser, "points").startswith("10 points of 10 left")


def test_without_scripts_all_of_a_case_can_be_read(browser, site):
    with without_scripts(browser, site/page(EASY), PHONE):
        look = browser.find_element(By.CSS_SELECTOR, "[data-look=loss]")
        if not look.get_attribute("open"): click(browser, "[data-look=loss] > summary")
        assert look.find_element(By.CSS_SELECTOR, "svg").is_displayed()
        assert browser.find_element(By.CSS_SELECTOR, "#solution > summary").is_displayed()
        assert not browser.find_element(By.ID, "answer").is_displayed()
        assert not browser.find_elements(By.CSS_SELECTOR, "main button:not(form[hidden] button)")
