"""Search: what it knows, and that it finds what people ask for, tried with its own program in a browser."""
import json
import re
import statistics
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from selenium.webdriver.common.by import By

from support.browsing import press, wait
from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import site_search  # noqa: E402

# Ordinary queries, and the pages that answer each: written before the search was.
QUERIES = json.loads(Path(__file__).with_name("search_queries.json").read_text(encoding="utf-8"))
ASK = """const find = searchEngine(siteIndex), answers = {};
for (const query of arguments[0]) {
    const start = performance.now(), hits = find(query).hits;
    answers[query] = { hits: hits.map((hit) => hit.href), took: performance.now() - start };
}
return answers;"""


@pytest.fixture(scope="module")
def index(site):
    text = (site/"assets/search-index.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("window.siteIndex = ").rstrip().removesuffix(";"))


@pytest.fixture
def ask(visit, browser):
    "Asks the program of search, and gives {query: addresses of the pages found, best first}."
    loaded = "return !!(window.siteIndex && window.searchEngine)"
    if not browser.execute_script(loaded):
        visit("lessons/05-stats.html").execute_script("siteSearch()")
        wait(browser, lambda b: b.execute_script(loaded))
    return lambda *queries: browser.execute_script(ASK, queries)


def pages_of(answer, most=None): return [href.partition(".html")[0] for href in answer["hits"][:most]]


# ---- what it knows

def test_the_index_has_every_page_that_readers_look_for(site, index):
    known = {page[0] for page in index["pages"]}
    made = {file.relative_to(site).as_posix() for file in site.rglob("*.html")}
    assert known <= made
    left_out = made - known
    assert all(re.match(r"404\.html|source/|lib/exercises/lesson-", name) for name in left_out), sorted(left_out)
    assert any(name.startswith("lib/exercises/lesson-") for name in left_out)


def test_the_index_leads_to_places_that_exist(site, index):
    def anchors_of(page): return set(re.findall(r'\bid="([^"]+)"', (site/page).read_text(encoding="utf-8")))
    anchors = {page: anchors_of(page) for page, *_ in index["pages"]}
    for page, anchor, *_ in index["sections"]:
        name = index["pages"][page][0]
        assert not anchor or anchor in anchors[name], f"{name}#{anchor}"


def test_the_index_is_small(site):
    assert (site/"assets/search-index.js").stat().st_size < 1_000_000


def test_the_index_holds_no_solution(index):
    texts = " ".join(section[3] for section in index["sections"])
    assert "difficulty 1 of 3" in texts, "the exercises themselves can be found"
    assert "Solution" not in texts


def test_a_page_for_contributors_is_known_as_such(index):
    kinds = {page: kind for page, _, kind, _ in index["pages"]}
    assert kinds["lib/stats/records/moments.html"] == "inside"
    assert kinds["lib/stats/diagnosing/diagnosis.html"] == "reference"
    assert kinds["lessons/05-stats.html"] == "lesson"
    assert kinds["howto/ddp.html"] == "howto"
    assert kinds["index.html"] == "home"


def page(body): return BeautifulSoup(f"<body><main><h1>T</h1>{body}</main></body>", "html.parser")


def test_a_page_is_read_in_parts():
    parts = site_search.page_sections(page("""Before. <h2 id="a">One <code>x</code></h2><p>Text.</p><pre>code_here</pre>
        <details class="code-fold"><pre>folded</pre></details><h2 id="b">B</h2><h3 id="c">C</h3>C it is."""))
    assert [(part["anchor"], part["heading"], part["text"], part["prose"]) for part in parts] == [
        ("", "", "Before.", "Before."), ("a", "One x", "Text.code_here", "Text."), ("c", "C", "C it is.", "C it is.")]


def test_members_of_a_class_have_places_of_their_own():
    member = '<dt id="hook.n"><code><a class="member" href="#hook.n">n</a>: int</code></dt><dd>How often.</dd>'
    html = f'<h3 id="hook">Hook</h3><p>Watches.</p><dl class="members"><div>{member}</div></dl>'
    _, *parts = site_search.page_sections(page(html))
    assert [(part["anchor"], part["heading"], part["prose"]) for part in parts] == [
        ("hook", "Hook", "Watches."), ("hook.n", "Hook.n", "How often.")]


def test_words_are_whole_and_in_parts():
    assert site_search.words("The FeatureExtractor of hook_outputs, __init__ and a ReLU6: x2") == [
        "featureextractor", "feature", "extractor", "hook_outputs", "hook", "outputs", "relu6", "re", "lu", "x2"]


def test_numbers_are_written_as_they_are_read():
    def read(text):
        value, shift = 0, 1
        for c in text: value, shift = value + site_search.DIGITS.index(c) % 32*shift, 32*shift
        return value
    for n in (0, 1, 31, 32, 33, 1023, 1024, 99999): assert read(site_search.number(n)) == n


# ---- what it finds

def test_ordinary_queries_are_answered_in_the_first_three(ask):
    expected = {query: pages for group in QUERIES.values() for query, pages in group.items()}
    answers = ask(*expected)
    best = {query: pages_of(answers[query], 3) for query in expected}
    missed = {query: best[query] for query, right in expected.items() if not {*best[query]} & {*right}}
    assert len(missed) <= len(expected)*4/42, missed
    assert all(answer["hits"] for answer in answers.values())
    assert statistics.median(answer["took"] for answer in answers.values()) < 30


def test_no_query_of_the_field_finds_nothing(ask):
    queries = """captum circuit distillation embedding fp16 fsdp gpt2 heatmap jupyter lime lora lstm onnx occlusion
        overfitting pruning quantization residual resnet scheduler shap softmax tensorflow token vit wandb warmup xai
        zero_grad""".split()
    answers = ask(*queries)
    assert [query for query in queries if not answers[query]["hits"]] == []


@pytest.mark.parametrize("typed, same", [
    ("actvation stats", "activation stats"), ("gradeint clipping", "gradient clipping"),
    ("initialisation", "initialization"), ("register forward hook", "register_forward_hook"),
    ("gradients explode", "exploding gradients"), ("hooking layers", "hook layer"),
    ("the hook of a layer", "hook layer"), ("attention Pattern", "attention pattern")])
def test_other_ways_to_type_it_find_the_same(ask, typed, same):
    answers = ask(typed, same)
    assert {*pages_of(answers[typed], 3)} & {*pages_of(answers[same], 3)}, answers


@pytest.mark.parametrize("name, place", [
    ("hook_outputs", "lib/hooks/hook.html#hook_outputs"), ("hook outputs", "lib/hooks/hook.html#hook_outputs"),
    ("FeatureExtractor", "lib/features/extractor.html#featureextractor"),
    ("featureextractr", "lib/features/extractor.html"),
    ("find_nan", "lib/debug/nan/watch.html#find_nan"), ("layers", "lib/hooks/select.html#layers")])
def test_a_name_leads_to_its_place_in_the_reference(ask, name, place):
    first = ask(name)[name]["hits"][0]
    assert first.startswith(place), first


def test_a_page_is_one_hit_and_contributors_pages_come_after_lessons(ask, index):
    kinds = {page: kind for page, _, kind, _ in index["pages"]}
    answers = ask(*QUERIES["review"])
    for query, answer in answers.items():
        found = [href.partition("#")[0] for href in answer["hits"]]
        assert len(found) == len(set(found)), query
        assert kinds[found[0]] not in ("inside", "gallery"), f"{query}: {found[0]}"


# ---- the window

def test_the_window_says_what_it_understood(visit):
    chrome = visit("howto/ddp.html")
    press(chrome, "/")
    press(chrome, "gradeint clipping")
    said = (By.CSS_SELECTOR, "dialog.search [role=status]")
    def corrected(b): return "“gradient”" in b.find_element(*said).text
    wait(chrome, corrected)
    assert "“gradeint”" in chrome.find_element(*said).text
    best = chrome.find_element(By.CSS_SELECTOR, "dialog.search li a")
    assert best.get_attribute("href").partition("#")[0].endswith("lib/edit/clip.html")
    assert best.find_element(By.CSS_SELECTOR, ".kind").text == "Reference"
    assert {mark.text.lower() for mark in best.find_elements(By.TAG_NAME, "mark")} & {"gradient", "gradients"}
    chrome.find_element(By.CSS_SELECTOR, ".search-close").click()
    wait(chrome, lambda b: not b.find_element(By.CSS_SELECTOR, "dialog.search").is_displayed(), "search stays open")


def test_where_nothing_is_found_there_is_a_way_on(visit):
    chrome = visit("lessons/05-stats.html")
    chrome.execute_script("siteSearch('xyzzyxq')")
    links = wait(chrome, lambda b: b.find_elements(By.CSS_SELECTOR, "dialog.search li a"))
    for link in links: assert Path(link.get_attribute("href").removeprefix("file://")).exists()
    chrome.execute_script("document.querySelector('dialog.search').close()")
