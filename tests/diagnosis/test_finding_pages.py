"Each finding has a section on one page, which says what the table says, shows a run that has it, and can be linked."
import json
import re

import pytest

from hooklab.checking import checklist  # noqa: F401 (registers what preflight finds)
from hooklab.checking.result import Preflight
from hooklab.diagnosis.diagnosing import FAULTS
from hooklab.diagnosis.result import Diagnosis
from hooklab.findings.found import Finding
from hooklab.findings.rules import KINDS, RULES, address_of, anchor, kinds_with_a_page, page_of, pages, usual_advice

LARGEST = 300_000  # bytes of a page as a notebook, with its figures
ALL_PAGES = pages()
NO_LONGER_LOOKED_FOR = "kept without a copy", "first weights", "optimizer makes odd steps"


def cells(repo, name): return json.loads((repo/f"nbs/{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def sections(repo, page):
    "The cells below each heading of the second level."
    found, heading = {}, None
    for cell in cells(repo, f"lib/faults/{page}"):
        text = "".join(cell["source"])
        if match := re.match(r"## (.+)", text): heading = match[1]
        if heading: found.setdefault(heading, []).append(cell)
    return found


def words(cell): return "".join(cell["source"])


def printed(cell): return "".join("".join(output.get("text", [])) for output in cell.get("outputs", []))


def test_every_finding_is_on_one_page():
    ids = [what for page in ALL_PAGES.values() for what in page]
    assert {*ids} == FAULTS.keys() | KINDS["preflight"].keys() and len({*ids}) == len(ids)
    assert all(kind.page and kind.lesson and kind.look_first for kind in kinds_with_a_page().values())


@pytest.mark.parametrize("page", ALL_PAGES)
def test_the_headings_of_a_page_are_its_findings(repo, page):
    assert list(sections(repo, page)) == list(ALL_PAGES[page])
    assert (repo/f"nbs/lib/faults/{page}.ipynb").stat().st_size < LARGEST


@pytest.mark.parametrize("page", ALL_PAGES)
def test_a_section_shows_a_run_that_has_the_fault(repo, page):
    for what, found in sections(repo, page).items():
        text = "".join(map(printed, found))
        if what in NO_LONGER_LOOKED_FOR:
            assert "hooklab no longer looks for this" in words(found[0]) and text, what
            continue
        assert re.search(rf"^(certain|likely|possible|note): {re.escape(what)}\b", text, re.M) or \
            (what == "nothing recorded" and text.startswith("Nothing was recorded: ")), what
        outputs = [output for cell in found for output in cell.get("outputs", [])]
        assert any("image/svg+xml" in output.get("data", {}) for output in outputs), what


@pytest.mark.parametrize("page", ALL_PAGES)
def test_a_section_says_what_the_table_says(repo, page):
    for what, found in sections(repo, page).items():
        about, text = ALL_PAGES[page][what], "\n".join(map(words, found))
        assert words(found[0]).startswith(f"## {what}\n\n{about.symptom} "), what
        assert f"Look first at: {about.look_first}. " in text and f"(../../lessons/{about.lesson}.ipynb)" in text, what
        assert (repo/f"nbs/lessons/{about.lesson}.ipynb").exists(), what
        if what in NO_LONGER_LOOKED_FOR: continue
        causes = re.search(r"\| common cause \| what helps \|\n\|---\|---\|\n((?:\|.+\|\n)+)", text + "\n")
        assert causes and len(causes[1].splitlines()) >= 2, what


def test_the_table_links_every_section(repo):
    html = "".join("".join(output["data"]["text/html"]) for cell in cells(repo, "lib/faults/symptoms")
                   for output in cell.get("outputs", []))
    links = re.findall(rf'<td[^>]*><a href="((?:{"|".join(ALL_PAGES)})\.html#[\w-]+)">(.+?)</a>', html)
    in_order = dict.fromkeys(address.partition(".")[0] for address, _ in links)
    assert links == [(page_of(what).removeprefix("lib/faults/"), what) for page in in_order for what in ALL_PAGES[page]]
    assert in_order.keys() == ALL_PAGES.keys()
    for lesson in re.findall(r'href="\.\./\.\./lessons/([\w-]+)\.html"', html):
        assert (repo/f"nbs/lessons/{lesson}.ipynb").exists()


@pytest.mark.parametrize("what", NO_LONGER_LOOKED_FOR)
def test_what_is_no_longer_looked_for_still_answers(what):
    earlier = Finding(what, "likely", "Seen.", ["0"], (0, 9), advice="Look.")
    for result in (Diagnosis([earlier], 10, 1, []), Preflight([earlier], [], .1)):
        assert what in result and earlier.page in repr(result)
    assert earlier.page == earlier.row["page"] == page_of(what)
    assert what not in Diagnosis([], 10, 1, []) and what not in Preflight([], [], .1)
    assert what not in {kind.what for each in RULES for kind in each.kinds}


FOUND = Finding("NaN or Inf", "certain", "Seen.", steps=(0, 1), advice="Look.")


def test_the_page_of_a_finding():
    assert FOUND.page == FOUND.row["page"] == page_of("NaN or Inf") == "lib/faults/loss.html#nan-or-inf"
    assert page_of("no zero_grad") == "lib/faults/loop.html#no-zero_grad"
    assert page_of("samples leak") == "lib/faults/preflight.html#samples-leak"
    with pytest.raises(KeyError, match="there is no finding 'no zero grad'; there are .*no zero_grad"):
        page_of("no zero grad")
    unknown = Finding("something else", "certain", "Seen.", steps=(0, 1), advice="Look.")
    assert unknown.page == "" and "More" not in f"{unknown}{Diagnosis([unknown], 1, 1, [])._repr_html_()}"


@pytest.mark.parametrize("result", [Diagnosis([FOUND], 2, 1, []), Preflight([FOUND], [], .1)])
def test_text_and_html_lead_to_the_page(result, monkeypatch):
    assert f"  More: {FOUND.page}" in repr(result).splitlines()
    assert f"<code>{FOUND.page}</code>" in result._repr_html_() and "<a " not in result._repr_html_()
    monkeypatch.setenv("HOOKLAB_SITE", "https://docs.example/")
    address = f"https://docs.example/{page_of(FOUND.what)}"
    assert FOUND.page == address_of(FOUND.what) == address
    assert f"  More: {address}" in repr(result).splitlines()
    assert f'<a href="{address}">' in result._repr_html_()


def test_a_result_of_nothing_leads_to_its_page():
    nothing = Diagnosis([Finding("nothing recorded", "certain", "Why.", steps=(0, -1), advice="Record.")], 0, 1, [])
    assert repr(nothing).endswith("More: lib/faults/loop.html#nothing-recorded")
    assert "<code>lib/faults/loop.html#nothing-recorded</code>" in nothing._repr_html_()


def test_anchors_are_those_of_the_site():
    markdown = pytest.importorskip("smalldocs.markdown")
    ids = [*kinds_with_a_page()]
    assert [*map(anchor, ids)] == [*map(markdown.pandoc_id, ids)]


@pytest.mark.parametrize("what", FAULTS)
def test_advice_needs_no_model(what): assert len(usual_advice(what)) > 20
