"""What the site folds, and which names it makes links of: decided by what code defines, uses and shows."""
import ast
import json
import os
import re
import sys
from html import unescape
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from fastcore.nbio import mk_cell

from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import site_code  # noqa: E402
import site_links  # noqa: E402
import site_symbols  # noqa: E402

CODE_LINK = re.compile(r'<a [^>]*?href="([^"#]*)#([^"]+)"[^>]*><code>([^<]+)</code></a>')
COLORS = re.compile(r'</?span[^>]*>')


def tree(site: Path, page: str) -> BeautifulSoup:
    "The text of a page, without the colors of its code."
    text = (site/page).read_text(encoding="utf-8")
    return BeautifulSoup(COLORS.sub("", text[text.index("<main"):text.index("</main>")]), "html.parser")


def cells(page: str) -> list[dict]: return json.loads((REPO/"nbs"/page).read_text(encoding="utf-8"))["cells"]
def body(code: str) -> list[ast.stmt]: return ast.parse(code).body


def open_code(page: BeautifulSoup) -> list[str]:
    "The code of cells that is not folded."
    return [code.get_text() for code in page.select(".cell pre.sourceCode code") if not code.find_parent("details")]


# ---- checks

@pytest.mark.parametrize("code, kept, checks", [
    ("x = f()\nassert x == 1\nx", "x = f()\nx", "assert x == 1"),
    ("x = f()\n# it is one\nassert x == 1, (\n    x)", "x = f()", "# it is one\nassert x == 1, (\n    x)"),
    ("x = f()\nfor i in x: assert i\ntorch.testing.assert_close(x, y)", "x = f()",
     "for i in x: assert i\ntorch.testing.assert_close(x, y)"),
    ("x = 1; assert x", "x = 1; assert x", ""),
    ("assert x", "assert x", ""),
    ("with edit():\n    assert net(x)\nx", "with edit():\n    assert net(x)\nx", ""),
    ("%%time\nassert x", "%%time\nassert x", ""),
    ("x = 1", "x = 1", "")])
def test_checks_are_taken_out_of_code(code, kept, checks): assert site_code.without_checks(code) == (kept, checks)


def test_checks_of_a_lesson_are_folded(site):
    lessons, folded = sorted((site/"lessons").glob("[0-9]*.html")), 0
    for file in lessons:
        page = tree(site, f"lessons/{file.name}")
        for code in open_code(page):
            assert not re.search(r"^assert ", code, re.M) or site_code.without_checks(code)[1] == "", file.name
        folds = page.select("details.code-fold")
        checks = [fold.code.get_text() for fold in folds if fold.summary.get_text() == "Check"]
        assert all(re.match(r"#|assert |for |[\w.]*assert_", code) for code in checks), file.name
        folded += len(checks)
    assert len(lessons) > 20 and folded > 40


# ---- plumbing

def test_what_uses_the_library():
    library = site_code.Library()
    assert not library.is_used(body("import hooklab as hl\nimport torch"))
    assert not library.is_used(body("model, x = torch.nn.Linear(1, 1), torch.ones(1, 1)"))
    assert not library.is_used(body("Path(hl.__file__)")), "the name of a module is no use of what it offers"
    assert library.is_used(body("def f(m):\n    with hl.hook_output(m) as h: local = m(x)\n    return h"))
    assert library.is_used(body("f(model)")) and not library.is_used(body("local + 1"))
    assert library.is_used(body("with f(model) as h: pass")) and library.is_used(body("h.stored"))
    assert not library.is_used(body("from hooklab.all import layers")) and library.is_used(body("layers(model, 'a')"))


@pytest.mark.parametrize("code, outputs, label", [
    ("import json", [], "Show the imports"),
    ("draw(results)", [{"data": {"image/svg+xml": "<svg/>"}}], "Show how this is drawn"),
    ("table(results)", [{"data": {"text/html": "<table>"}}], "Show how this is computed"),
    ("model = net()", [], "Show the setup"),
    ("hl.layers(model, 'a')", [{"data": {"text/plain": "{}"}}], "")])
def test_plumbing_has_a_label(code, outputs, label):
    library = site_code.Library()
    library.is_used(body("import hooklab as hl"))
    assert site_code.plumbing(mk_cell(code, outputs=outputs), body(code), library) == label


def test_an_explanation_shows_code_only_where_it_is_about_hooklab(site):
    open_on = {}
    for file in sorted((REPO/"nbs/explain").glob("*.ipynb")):
        if shown := open_code(tree(site, f"explain/{file.stem}.html")): open_on[file.stem] = shown
    for page, shown in open_on.items():
        code = [cell for cell in cells(f"explain/{page}.ipynb") if cell["cell_type"] == "code"]
        said = "".join("".join(cell["source"]) for cell in code)
        assert "hl." in said and not any(site_code.only_imports(body(code)) for code in shown), page
    assert len(open_on["which-hook"]) > 20 and len(open_on["how-the-engine-works"]) > 5
    assert not {"performance", "how-right-is-compare", "how-right-is-the-diagnosis", "how-right-on-planted-faults",
                "architecture", "how-right-are-the-checks-of-checkpoints", "what-works-where",
                "what-is-promised"} & set(open_on)


def test_a_cell_that_says_how_it_is_folded_stays_so():
    cell = mk_cell("#| code-fold: true\n#| code-summary: \"Mine\"\nimport json")
    site_code.fold(cell, "Show the imports")
    assert cell.source.count("code-fold") == 1 and "Mine" in cell.source


# ---- what only the inside of a module needs

def test_what_a_cell_defines():
    assert site_code.defined(body("A, (B, c) = 1, (2, 3)\nD: int = 4\ndef f(): x = 1\nclass G: y = 2")) == [
        "A", "B", "c", "D", "f", "G"]
    assert site_code.defined(body('_all_ = ["Hook", "Hooks"]')) == ["_all_", "Hook", "Hooks"]


@pytest.mark.parametrize("code, page, label", [
    ("def _joining(): pass\nclass MemberHook: pass", "lib/hooks/hook", "Inside: _joining, MemberHook"),
    ("a = b = c = d = 1", "lib/hooks/hook", "Inside: a, b, c, …"),
    ("class Hook: pass\ndef _removed(): pass", "lib/hooks/hook", ""),
    ('_all_ = ["Hook"]', "lib/all", ""),
    ("register(1)", "lib/hooks/hook", ""),
    ("class Port: pass", "lib/hooks/group", "")])  # a page for contributors: what is inside is what it is about
def test_what_is_inside(code, page, label): assert site_code.inside_of(body(code), page) == label


def test_a_page_of_the_reference_shows_no_code_that_nobody_calls(site):
    public, shown, folded = site_symbols.public_names(), set(), 0
    pages = {module.page for module in site_symbols.modules().values() if module.public & public} - {"lib/all"}
    for page in sorted(pages):
        content, documented = tree(site, f"{page}.html"), site_symbols.documented_on(page)
        folded += sum(fold.summary.get_text().startswith("Inside: ") for fold in content.select("details.code-fold"))
        code = set(open_code(content))
        for cell in cells(f"{page}.ipynb"):
            directive, _, source = "".join(cell["source"]).partition("\n")
            if cell["cell_type"] != "code" or not re.match(r"#\| exporti?$", directive): continue
            if source.strip() in code and not documented.intersection(site_code.defined(body(source))): shown.add(page)
    assert folded > 150 and not shown


def test_one_empty_line_between_functions_is_seen(site):
    "And two are copied where the file has two."
    for page in ("lib/hooks/hook", "lib/hooks/group", "lessons/02-four-signatures", "howto/my-own-loop"):
        text = (site/f"{page}.html").read_text(encoding="utf-8")
        code = re.findall(r"<pre\b.*?</pre>", text, re.S)
        seen = [re.sub(r"<[^>]*>", "", re.sub(r"<span hidden>\n</span>", "", part)) for part in code]
        assert code and not any("\n\n\n" in part for part in seen), page
        assert any("<span hidden>\n</span>" in part for part in code) or not page.startswith("lib/"), page


# ---- links

def test_only_public_names_become_links():
    def link(text, page, own=()): return site_links.link_names(text, page, frozenset(own))
    place = {name: site_links.NbdevLookup().doc(name) for name in ("names", "layers", "Hook", "LayerHook", "weights")}
    assert all(place.values()), "nbdev knows them all"
    for name in ("names", "LayerHook", "weights"):
        assert link(f"[`{name}`]({place[name]})", "howto/x") == f"`{name}`"
    for name in ("layers", "Hook"): assert link(of := f"[`{name}`]({place[name]})", "howto/x") == of
    of = f"[`layers`]({place['layers']})"
    assert link(of, "howto/x", {"layers"}) == "`layers`"
    assert link(of := f"[`layers()`]({place['layers']})", "howto/x", {"layers"}) == of, "with brackets: the function"
    assert link(of := f"[`layers`]({place['layers']})", "lib/hooks/select", {"layers"}) == of, "documented right here"
    assert link(of := "[`names`](../elsewhere.ipynb#names)", "howto/x") == of, "somebody has written it"


def test_what_a_page_uses_for_something_else():
    def own(code, page="howto/x"): return site_links.parameters_in(body(code), page)
    assert own("hl.summary(model, layers=3)") == {"layers"} and own("layers = 3") == {"layers"}
    assert own("found = hl.layers(model, layers='a')") == {"found"} and own("layers = layers(model)") == frozenset()
    assert "stop" in own("", "lib/features/extractor"), "a parameter of what the page documents"
    assert "layers" not in own("", "lib/hooks/select"), "what the page documents"


def test_no_link_of_the_site_leads_to_what_is_not_public(site):
    symbols, public = site_symbols.symbols(), site_symbols.public_names()
    public_places, others = set(), set()
    for s in symbols.values():
        (public_places if s.name in public else others).add((s.module.page, s.id))
        members = s.members.values() if s.name in public else ()
        public_places |= {(m.owner.module.page, site_links.member_id(m.owner, m)) for m in members}
    wrong, seen = [], 0
    for file in sorted(site.rglob("*.html")):
        page = file.relative_to(site).with_suffix("").as_posix()
        if page.startswith("source/"): continue
        text = file.read_text(encoding="utf-8")
        own = meant_otherwise(page)
        for href, place, name in CODE_LINK.findall(text[text.index("<main"):text.index("</main>")]):
            target = os.path.normpath(f"{os.path.dirname(page)}/{href}").removesuffix(".html") if href else page
            is_private = target.startswith("source/") or (target, unescape(place)) in others - public_places
            is_parameter = name in own and "." not in place  # which may be an attribute, too: `hook.html#hook.name`
            if is_private and target != page or is_parameter: wrong.append((page, name, target))
            seen += 1
    assert seen > 500 and not wrong, wrong[:20]


def meant_otherwise(page: str) -> frozenset[str]:
    "The names of parameters and variables of a page, of which it calls no function."
    if not (REPO/"nbs"/f"{page}.ipynb").exists(): return frozenset()
    code = [mk_cell("".join(cell["source"])) for cell in cells(f"{page}.ipynb") if cell["cell_type"] == "code"]
    return site_links.parameters_in([part for cell in code for part in site_code.statements(cell)], page)


# ---- how right the diagnosis is

def test_the_page_of_the_diagnosis_begins_with_its_figures(site):
    "The first sentence follows the results, a chart comes next, and the long table is sorted."
    page = tree(site, "explain/how-right-is-the-diagnosis.html")
    results = REPO/"tests/bench/results"
    def figures(name): return json.loads((results/f"{name}.json").read_text(encoding="utf-8"))["figures"]
    measured = figures("diagnose")
    looks = json.loads((results/"first_looks.json").read_text(encoding="utf-8"))
    sets = [what.removesuffix("cases") for what in measured if what.endswith("cases")]
    def rate(percent): return f"{percent:.{0 if percent >= 9.95 or not percent else 1}f}%"
    def of_all(key, n_of):
        ns = [n_of({what: round(n[0]) for what, n in measured[f"{name}cases"].items()}) for name in sets]
        hits = [round(measured[f"{name}hooklab, percent"][key][0]/100*n) for name, n in zip(sets, ns)]
        return rate(100*sum(hits)/sum(ns)), sum(ns)
    planted, n_planted = of_all("harmed: cause", lambda n: n["faults"] - n["harmless"])
    alarms, n_healthy = of_all("false alarms, any", lambda n: n["healthy"])
    text = page.find("header").find_next("p").get_text()
    ledger = figures("ledger")
    sure = ledger["without the set: certain or likely, percent"]
    assert re.findall(r"\d[\d.]*%", text) == [
        rate(ledger["cause at any level, percent"]["all looks"][0]), rate(sure["cause"][0]), rate(sure["misled"][0]),
        rate(sure["unusual healthy programs"][0]), planted, alarms]
    def programs(healthy):
        return sum(look["figures"][f"{name}: programs"][0]["programs"] for name, look in looks.items()
                   if ("healthy" in name) == healthy)
    assert [int(n) for n in re.findall(r"\b\d+\b(?!\.?\d*%|\.)", text)] == [
        programs(False), programs(True), n_planted, n_healthy]
    typed = [cell for cell in cells("explain/how-right-is-the-diagnosis.ipynb")[:5] if cell["cell_type"] == "markdown"]
    assert not re.search(r"\d+ ?%", "".join("".join(cell["source"]) for cell in typed))
    assert page.find("svg").sourceline <= page.find("h2").sourceline
    (ledger_of_kinds,) = page.select(".cell-output details")
    older = tree(site, "explain/how-right-on-planted-faults.html")
    faults, healthy, spikes = older.select(".cell-output details")
    assert all("open" not in part.attrs for part in (ledger_of_kinds, faults, healthy, spikes))
    rows = [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in faults.select("tbody tr")]
    kinds = {row["kind"] for name in sets for row in measured[f"{name}faults by kind"]}
    assert {row[0] for row in rows if "out of reach" not in row[0]} == kinds and len(rows[0]) == len(sets) + 2
    def counts_in(row): return [tuple(map(int, re.findall(r"\d+", cell)[:2])) for cell in row[1:-1] if cell != "–"]
    counts = map(counts_in, rows[:len(kinds)])
    found = [sum(n for n, _ in row)/sum(of for _, of in row) for row in counts]
    assert found == sorted(found)


# ---- headings and heads of tables

def test_headings_and_heads_of_tables_say_something(site):
    "No level is left out, and no column is headed by nothing."
    for file in sorted(site.rglob("*.html")):
        if file.relative_to(site).parts[0] == "source": continue
        text = file.read_text(encoding="utf-8")
        main = text[text.index("<main"):text.index("</main>")]
        levels = [int(told or tag) for tag, told in re.findall(r'<h([1-6])\b(?:[^>]*?aria-level="(\d)")?', main)]
        assert levels[0] == 1 and all(b <= a + 1 for a, b in zip(levels, levels[1:])), f"{file.name}: {levels}"
        assert not re.search(r"<th[^>]*>\s*</th>", main), file.name
