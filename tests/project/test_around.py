"""What goes with the pages: references, changelog, words, Markdown, one text, a book, and what needs an address."""
import re
import sys

import pytest
from bs4 import BeautifulSoup
from selenium.webdriver.common.keys import Keys

from support.browsing import CLIPBOARD, becomes, eventually, press, wait
from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import book  # noqa: E402
import site_around  # noqa: E402
import site_words  # noqa: E402


def page(body): return BeautifulSoup(f"<html><head></head><body><main>{body}</main></body></html>", "html.parser")


# ---- works that the lessons rest on

def test_every_work_has_a_title_with_a_link_authors_and_a_year_or_a_place(pages):
    works = pages["explain/references.html"].main.select("section li")
    assert len(works) > 40
    addresses = [work.a["href"] for work in works]
    assert len(addresses) == len(set(addresses)) and all(url.startswith("https://") for url in addresses)
    for work in works:
        said = work.get_text(" ", strip=True).removeprefix(work.a.get_text(" ", strip=True)).lstrip(" .")
        assert re.match(r"[^\d.]+", said), f"no author: {work.get_text()}"
        assert re.search(r"\b(19|20)\d\d\b|documentation|tutorials|University", said), f"no year: {work.get_text()}"


def test_lessons_end_with_what_they_rest_on(pages, site):
    with_works = [file.stem for file in sorted((site/"lessons").glob("[01]*.html"))
                  if pages[f"lessons/{file.name}"].select(".read-more li a[href^='https']")]
    assert len(with_works) >= 12
    links = [a.get_text() for a in pages["lessons/12-cam.html"].select(".read-more a")]
    assert any("Grad-CAM" in text for text in links) and links[-1] == "All references"


# ---- files of the repository

def test_changelog_and_contributing_are_pages(pages, repo):
    for name in ("changelog", "contributing"):
        main, text = pages[f"explain/{name}.html"].main, (repo/f"{name.upper()}.md").read_text(encoding="utf-8")
        headings = [h.get_text(strip=True).strip("#¶") for h in main.find_all(["h2"]) if h.get("id") != "read-more"]
        assert headings == re.findall(r"^## (.+)$", text, re.M)
        assert "include" not in main.get_text()
    assert pages["explain/contributing.html"].main.find("a", href="architecture.html")


def test_a_file_is_included_with_its_links(tmp_path):
    proc, root = tmp_path/"proc", tmp_path/"root"
    for folder in (proc/"a", root): folder.mkdir(parents=True)
    (proc/"a/x.qmd").write_text("---\ntitle: X\n---\n\n{{< include /X.md >}}\n")
    (proc/"a/y.qmd").write_text("---\ntitle: Y\n---\n\n{{< include /Y.md >}}\n")
    (root/"X.md").write_text("# X\n\nSee [y](Y.md#b) and [n](nbs/lib/n.ipynb).\n")
    (root/"Y.md").write_text("# Y\n\n## B\n")
    site_around.include_files(proc, root)
    assert (proc/"a/x.qmd").read_text() == "---\ntitle: X\n---\n\nSee [y](/a/y.qmd#b) and [n](/lib/n.ipynb).\n\n"
    assert "# Y" not in (proc/"a/y.qmd").read_text().replace("## B", "")


# ---- words

GLOSSARY = """<table>
    <tr><td><strong>dead unit</strong></td><td>Zero for every input. <a href="#">Lesson 5</a>.</td></tr>
    <tr><td><strong>pass</strong></td><td>One call of the <a href="#">model</a>, whole.</td></tr>
    <tr><td><strong>forward pass</strong></td><td>Computing the output.</td></tr>
    <tr><td><strong>call</strong></td><td>x</td></tr></table>"""


def test_a_word_is_explained_where_a_page_first_uses_it():
    words = site_words.read_glossary(page(GLOSSARY))
    assert {word.id: word.meaning for word in words} == {
        "dead-unit": "Zero for every input.", "pass": "One call of the model, whole.",
        "forward-pass": "Computing the output."}
    soup = page("""<h2>Dead units</h2><p><code>dead unit</code> and <a href="#">a dead unit</a>: in each forward pass,
        dead units-like, dead units and <em>Dead units</em>, in each pass.</p><p>A dead unit, a call.</p>""")
    before = soup.get_text()
    site_words.explain_words(soup, words, "../")
    assert [(a.get_text(), a["href"]) for a in soup.select("a.term")] == [
        ("forward pass", "../explain/glossary.html#forward-pass"), ("dead units", "../explain/glossary.html#dead-unit"),
        ("pass", "../explain/glossary.html#pass")]
    assert soup.select_one("a.term[data-meaning='Zero for every input.']")
    assert soup.get_text() == before


def test_every_word_of_the_glossary_has_an_address_and_pages_lead_to_it(pages, site):
    glossary = pages["explain/glossary.html"]
    ids = [row["id"] for row, _, _ in site_words.rows(glossary)]
    assert len(ids) == len(set(ids)) > 50
    words = [word.lower() for _, word, _ in site_words.rows(glossary)]
    assert words == sorted(words), "the glossary is not in alphabetical order"
    used = set()
    for file in (site/"lessons").glob("*.html"):
        terms = [a["href"].partition("#")[2] for a in pages[f"lessons/{file.name}"].select("a.term")]
        assert len(terms) == len(set(terms)), f"{file.name} explains a word twice"
        used |= set(terms)
    assert used <= set(ids) and len(used) > 20


def test_a_meaning_is_shown_by_keyboard_and_pointer_and_taken_away(visit):
    chrome = visit("lessons/05-stats.html")
    term = chrome.find_element("css selector", "a.term")
    meaning = term.get_attribute("data-meaning")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", term)
    tip = wait(chrome, lambda b: b.find_element("id", "meaning"))
    becomes((True, meaning), lambda: (tip.is_displayed(), tip.text))
    assert term.get_attribute("aria-describedby") == "meaning"
    assert tip.rect["x"] >= 0 and tip.rect["x"] + tip.rect["width"] <= 1280
    press(chrome, Keys.ESCAPE)
    wait(chrome, lambda b: not tip.is_displayed() and not term.get_attribute("aria-describedby"), "the meaning stays")


# ---- Markdown

def test_a_page_is_copied_as_markdown(visit, browser):
    chrome = visit("howto/my-loss-is-nan.html")
    allowed = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    chrome.execute_cdp_cmd("Browser.grantPermissions", {"permissions": allowed})
    button = chrome.find_element("css selector", ".copy-page")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].click()", button)
    def copied():
        text = chrome.execute_async_script(CLIPBOARD)
        assert text.startswith("# My loss is NaN\n")
        return text
    text = eventually(copied)
    lines = text.splitlines()
    assert "## Find the layer" in lines and "import hooklab as hl" in lines
    assert text.count("```") % 2 == 0 and "](" in text and "<" not in re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
    assert "Copy" not in lines[-1]
    chrome = visit("explain/contributing.html")
    assert '\n   ```python\n   def has_no_loss(net, x)' in chrome.execute_script("return pageAsMarkdown()")
    chrome = visit("explain/which-hook.html")
    table = chrome.execute_script("return pageAsMarkdown()")
    assert "\n|---|---|---|\n" in table and "`hl.hook_output(layer)`" in table


def test_the_whole_text_is_one_file(site):
    text = (site/"llms-full.txt").read_text(encoding="utf-8")
    titles = re.findall(r"^# (.+)$", text, re.M)
    assert "llms-full.txt" in (site/"llms.txt").read_text(encoding="utf-8")
    assert {"What is my network doing in the middle?", "My loss is NaN", "Glossary", "Changelog", "Hook"} <= set(titles)
    assert "Numbers of a tensor" not in titles, "pages for contributors are in it"
    assert "AUTOGENERATED" not in text and "Checks of lesson" not in text


# ---- what needs an address

def test_nothing_leads_to_an_address_that_is_not_known(site, pages):
    assert not (site/"sitemap.xml").exists()
    for name in ("index.html", "lessons/05-stats.html"):
        soup = pages[name]
        assert not soup.find("link", rel="canonical") and not soup.find("meta", property="og:url")
        assert not soup.find("a", string=re.compile("Edit this page|Colab|Report a problem"))


def test_with_an_address_there_are_links_cards_and_a_map(tmp_path):
    facts = {"name": "hooklab", "repository": "https://github.com/a/b", "address": "https://a.example/b/"}
    links = dict(site_around.page_links(facts, "lessons/05-stats"))
    assert links["Edit this page"] == "https://github.com/a/b/edit/main/nbs/lessons/05-stats.ipynb"
    assert links["Open in Colab"] == "https://colab.research.google.com/github/a/b/blob/main/nbs/lessons/05-stats.ipynb"
    assert "Open in Colab" not in dict(site_around.page_links(facts, "howto/ddp"))
    assert site_around.page_links(facts, "404") == site_around.page_links({"name": "hooklab"}, "howto/ddp") == []
    cards = BeautifulSoup(site_around.page_cards(facts, "howto/ddp", 'A "title"', "about it"), "html.parser")
    assert cards.link["href"] == "https://a.example/b/howto/ddp.html"
    assert cards.find("meta", property="og:title")["content"] == 'A "title"'
    (tmp_path/"x.html").touch()
    site_around.write_sitemap(tmp_path, facts)
    assert "<loc>https://a.example/b/x.html</loc>" in (tmp_path/"sitemap.xml").read_text()


def test_a_page_in_another_language_says_so_and_leads_to_its_twin(tmp_path):
    for name in ("explain/x.html", "explain/y.html", "zh/explain/x.html"):
        (tmp_path/name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/name).touch()
    soups = {}
    for name in ("explain/x", "explain/y", "zh/explain/x"):
        soups[name] = page("")
        site_around.say_language(soups[name], tmp_path, name)
    assert [soup.html["lang"] for soup in soups.values()] == ["en", "en", "zh"]
    links = {name: [(link["hreflang"], link["href"]) for link in soup.find_all("link")] for name, soup in soups.items()}
    assert links["explain/x"] == [("en", "../explain/x.html"), ("zh", "../zh/explain/x.html")]
    assert links["explain/y"] == [] and links["zh/explain/x"][0] == ("en", "../../explain/x.html")


# ---- the book

@pytest.mark.slow
def test_the_book_has_every_lesson_and_its_links_lead_somewhere(site):
    facts = {"name": "hooklab", "description": "d", "version": "1"}
    soup = BeautifulSoup(book.bound(site, facts), "html.parser")
    chapters = [h.get_text() for h in soup.select("article h1")]
    numbers = [file.name[:2] for file in sorted((REPO/"nbs"/"lessons").glob("[0-9]*.ipynb"))]
    assert [title[:2] for title in chapters if title[:2].isdigit()] == numbers and chapters[-1] == "References"
    assert chapters[9].startswith("10") and "patient" in chapters[10], "the clinic stands after lesson 10"
    assert "or none" in chapters[11], "and the ward after it"
    ids = [tag["id"] for tag in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    inner = {a["href"].removeprefix("#") for a in soup.find_all("a", href=re.compile("^#"))}
    assert len(inner) > 50 and inner <= set(ids), sorted(inner - set(ids))[:5]
    assert all(a["href"].startswith(("#", "https://")) for a in soup.find_all("a", href=True))
    pictures = [image["src"] for image in soup.find_all("img") if not image["src"].startswith("data:")]
    assert all((site/picture).exists() for picture in pictures)
    assert all("open" in details.attrs for details in soup.find_all("details"))


def test_a_book_is_printed(tmp_path):
    if not (book.shutil.which("chromium") and book.shutil.which("chromedriver")): pytest.skip("needs Chromium")
    for folder in ("lessons", "explain", "assets"): (tmp_path/folder).mkdir()
    (tmp_path/"index.html").write_text("<html><head></head></html>")
    for name in ("01-one", "02-two"):
        text = f"<main><h1>{name}</h1><p id='x'><a href='01-one.html#x'>There</a></p></main>"
        (tmp_path/f"lessons/{name}.html").write_text(text)
    facts = {"name": "n", "description": "d", "version": "1"}
    pages = book.make_book(tmp_path, tmp_path/"dist/book.pdf", facts)
    assert pages == 4 and (tmp_path/"dist/book.pdf").read_bytes().startswith(b"%PDF")
    assert not (tmp_path/"book.html").exists()
