"""Prints the course as one PDF, dist/hooklab-course.pdf: the lessons of the built site, appendices and glossary.

    python tools/book.py        needs Chromium and chromedriver, and selenium (the extra `dev`)

The pages are joined into one, so that links between them lead to a place in the book; headings make its outline."""
import base64
import os
import re
import runpy
import shutil
import sys
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).resolve().parent.parent
DOCS, BOOK = ROOT/"_docs", ROOT/"dist"/"hooklab-course.pdf"
LAST = ["explain/glossary.html", "explain/references.html"]
# What a page offers on the screen and paper cannot.
NOT_PRINTED = (".offer, .toc-short, .code-copy-button, .page-navigation, .quarto-page-breadcrumbs, .anchorjs-link, "
               "button, .read-more, .quarto-title-meta")
STYLE = """
html { color-scheme: light; font-size: 10pt; }
body { margin: 0; }
.book-front { display: grid; align-content: center; min-height: 240mm; text-align: center; }
.book-front h1 { font-size: 34pt; margin: 0; }
.book-front p { max-width: none; color: var(--muted); font-size: 14pt; }
.book-contents { break-before: page; }
.book-contents a { text-decoration: none; }
.book-contents li { margin: .25em 0; }
article { break-before: page; max-width: none; padding: 0; }
a.term { text-decoration: none; }
details.code-fold { break-inside: auto; }
"""
FOOTER = ('<div style="width: 100%; font: 8px sans-serif; color: #666; text-align: center">'
          '<span class="pageNumber"></span></div>')


def chapters(docs: Path) -> list[Path]:
    "The pages in their order: lessons by number, clinic and ward after the tenth, appendices, and what explains words."
    lessons = [file for file in (docs/"lessons").glob("*.html") if file.stem != "index"]
    lessons.sort(key=lambda file: f"10-the-{file.stem}" if file.stem in ("clinic", "ward") else file.stem)
    return [*lessons, *(docs/name for name in LAST if (docs/name).exists())]


def place(file: Path, docs: Path, fragment: str = "") -> str:
    "The name of a page, or of a place on it, within the book."
    page = re.sub(r"\W+", "-", file.relative_to(docs).with_suffix("").as_posix())
    return f"{page}--{fragment}" if fragment else page


def chapter(file: Path, docs: Path, book: set[Path], address: str) -> tuple[str, Tag]:
    "The title of a page, and its text as a part of the book."
    soup = BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")
    main = soup.main
    for part in main.select(NOT_PRINTED): part.decompose()
    for details in main.find_all("details"): details["open"] = ""
    names = {tag["id"] for tag in main.find_all(id=True)}
    for tag in main.find_all(id=True): tag["id"] = place(file, docs, tag["id"])
    for tag in main.find_all(True):
        for key in ("aria-labelledby", "aria-describedby", "for"):
            if tag.get(key) in names: tag[key] = place(file, docs, tag[key])
        if "src" in tag.attrs: tag["src"] = os.path.relpath(file.parent/tag["src"], docs)
        tag.attrs.pop("loading", None)
    for link in main.find_all("a", href=True):
        url = urlsplit(link["href"])
        if url.scheme or url.netloc: continue
        target = Path(os.path.normpath(file.parent/unquote(url.path))) if url.path else file
        if target in book: link["href"] = "#" + place(target, docs, unquote(url.fragment))
        elif address: link["href"] = f"{address}/{url._replace(path=target.relative_to(docs).as_posix()).geturl()}"
        else: link.attrs = {}  # on paper, a page that is not in the book is nowhere
    number = re.match(r"(\d\d)-", file.name)
    title = (f"{number[1]} · " if number else "") + main.h1.get_text(" ", strip=True)
    main.name, main.attrs = "article", {"id": place(file, docs), "class": "content"}
    main.h1.string = title
    return title, main


def bound(docs: Path, facts: dict) -> str:
    "All chapters as one page."
    files = chapters(docs)
    parts = [chapter(file, docs, set(files), facts.get("address", "").rstrip("/")) for file in files]
    contents = "".join(f'<li><a href="#{text["id"]}">{escape(title)}</a></li>' for title, text in parts)
    front = (f'<section class="book-front"><h1>{escape(facts["name"])}</h1><p>{escape(facts["description"])}</p>'
             f'<p>The course, as of version {facts["version"]}</p></section>')
    # a page has one `main`, a book has many articles
    css = "\n".join((docs/name).read_text(encoding="utf-8") for name in stylesheets(docs))
    css = css.replace("main.content", "article")
    return (f'<!doctype html><html lang="en" data-bs-theme="light"><head><meta charset="utf-8">'
            f'<title>{escape(facts["name"])}</title><style>{css}{STYLE}</style></head><body>{front}'
            f'<nav class="book-contents"><h1>Contents</h1><ul>{contents}</ul></nav>'
            f'{"".join(str(text) for _, text in parts)}</body></html>')


def stylesheets(docs: Path) -> list[str]:
    "The stylesheets of the site."
    soup = BeautifulSoup((docs/"index.html").read_text(encoding="utf-8"), "html.parser")
    names = [link["href"] for link in soup.head.find_all("link", rel="stylesheet")]
    return [name for name in names if (docs/name).exists()]


def printed(page: Path) -> bytes:
    "A page as Chromium prints it."
    from selenium import webdriver
    from selenium.webdriver.support.wait import WebDriverWait
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    driver = shutil.which("chromedriver")
    if not (program and driver): sys.exit("The book is printed by a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "force-color-profile=srgb"):
        options.add_argument(f"--{flag}")
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    chrome.command_executor.client_config.timeout = 600  # a book takes longer than a page
    try:
        chrome.get(page.as_uri())
        # `get` may return before the document is there
        there = "return location.href === new URL(arguments[0]).href && document.readyState === 'complete'"
        WebDriverWait(chrome, 60).until(lambda _: chrome.execute_script(there, page.as_uri()), f"{page} is not there")
        chrome.execute_async_script("""Promise.all([...document.images].map((image) => image.decode().catch(() => 0)))
            .then(arguments[0])""")
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": False, "printBackground": True,
                 "marginTop": .6, "marginBottom": .7, "marginLeft": .7, "marginRight": .7, "displayHeaderFooter": True,
                 "headerTemplate": "<span></span>", "footerTemplate": FOOTER, "generateTaggedPDF": True,
                 "generateDocumentOutline": True, "transferMode": "ReturnAsBase64"}
        return base64.b64decode(chrome.execute_cdp_cmd("Page.printToPDF", paper)["data"])
    finally: chrome.quit()


def make_book(docs: Path, book: Path, facts: dict) -> int:
    "Writes the book, and says how many pages it has."
    page = docs/"book.html"  # among the pages, so that pictures and styles are found
    page.write_text(bound(docs, facts), encoding="utf-8")
    try: pdf = printed(page)
    finally: page.unlink()
    book.parent.mkdir(exist_ok=True)
    book.write_bytes(pdf)
    return len(re.findall(rb"/Type */Page\b", pdf))


if __name__ == "__main__":
    if not (DOCS/"lessons").exists(): sys.exit("There is no site yet: build it with `make site`")
    n_pages = make_book(DOCS, BOOK, runpy.run_path(str(ROOT/"tools"/"site.py"))["package"]())
    print(f"{n_pages} pages, {BOOK.stat().st_size/1e6:.1f} MB: {BOOK.relative_to(ROOT)}")
