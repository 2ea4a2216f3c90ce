"""What goes with the pages: files of the repository as pages, works to read next to a lesson, the whole text in one
file, and what needs an address.

`repository` and `address` in settings.ini say where the repository and the site are to be found. As long as they do
not, nothing leads there: there are no links to edit a page or to open it elsewhere, no cards, no map of the site."""
import re
from html import escape
from pathlib import Path
from urllib.parse import quote

from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
REFERENCES = "explain/references"
INCLUDE = re.compile(r"^\{\{< include /(\S+) >\}\}$", re.M)
LESSON = re.compile(r"lessons/([\w-]+)\.html$")
WITHOUT = re.compile(r"(source|lib/exercises)/|404|gallery")  # the code itself, solutions, and pages without text


# ---- files of the repository

def include_files(proc: Path, root: Path):
    "Puts a file of the repository where a page says {{< include /FILE >}}, with links as they are on the site."
    texts = {page: page.read_text(encoding="utf-8") for page in proc.rglob("*.qmd")}
    pages = {match[1]: page for page, text in texts.items() if (match := INCLUDE.search(text))}
    for name, page in pages.items():
        found = re.sub(r"\A# .*\n+", "", (root/name).read_text(encoding="utf-8")).replace("](nbs/", "](/")
        for other, place in pages.items():
            found = found.replace(f"]({other}", f"](/{place.relative_to(proc).as_posix()}")
        page.write_text(INCLUDE.sub(lambda _, found=found: found, texts[page]), encoding="utf-8")


# ---- works to read next to a lesson

def read_references(soup: BeautifulSoup) -> dict[str, list[str]]:
    "{lesson: the works that its line in the list of references names}, without the links to lessons."
    found = {}
    for item in soup.main.find_all("li"):
        lessons = [LESSON.search(link["href"])[1] for link in item.find_all("a", href=LESSON)]
        work = re.sub(r"\s*Lessons? <a .*$", "", item.decode_contents(), flags=re.S)
        for lesson in lessons: found.setdefault(lesson, []).append(work)
    return found


def hang_references(soup: BeautifulSoup, works: list[str], top: str):
    "Ends a lesson with what it rests on."
    items = "".join(f"<li>{work}</li>" for work in works)
    more = f'<li><a href="{top}{REFERENCES}.html">All references</a></li>'
    html = (f'<aside class="read-more" aria-labelledby="read-more"><h2 id="read-more">Read more</h2>'
            f"<ul>{items}{more}</ul></aside>")
    aside, following = BeautifulSoup(html, "html.parser"), soup.main.find(class_="page-navigation")
    if following: following.insert_before(aside)
    else: soup.main.append(aside)


# ---- one text

def write_full_text(docs: Path, inside: set[str] = frozenset()):
    "Writes the text of all pages for readers into one file, without those `inside`, for contributors."
    short = docs/"llms.txt"
    if not short.exists(): return
    listed = short.read_text(encoding="utf-8")
    names = re.findall(r"\]\((\S+?)\.llms\.md\)", listed)
    names = [name for name in names if not WITHOUT.match(name) and name not in inside]
    pages = [(docs/f"{name}.llms.md").read_text(encoding="utf-8") for name in sorted(names, key=reading_order)]
    text = "\n\n---\n\n".join(re.sub(r"<!-- .*? -->\n+", "", page, flags=re.S).strip() for page in pages)
    (docs/"llms-full.txt").write_text(text + "\n", encoding="utf-8")
    line = "The text of all pages in one file is in llms-full.txt."
    if line not in listed: short.write_text(listed.replace("\n## Pages", f"\n{line}\n\n## Pages", 1), encoding="utf-8")


def reading_order(name: str) -> tuple:
    "Home first, then lessons, how-to, explanation, reference."
    folders = ["", "lessons", "howto", "explain", "lib"]
    folder = name.partition("/")[0] if "/" in name else ""
    return folders.index(folder) if folder in folders else len(folders), name


# ---- what needs an address

def page_links(facts: dict, name: str) -> list[tuple[str, str]]:
    "(text, address) of links that lead from a page to the repository."
    repository, source = facts.get("repository", "").rstrip("/"), f"nbs/{quote(name)}.ipynb"
    if not repository or not (ROOT/source).exists(): return []
    links = [("Edit this page", f"{repository}/edit/main/{source}"), ("Report a problem", f"{repository}/issues/new")]
    if name.startswith("lessons/") and repository.startswith("https://github.com/"):
        place = repository.replace("https://github.com", "https://colab.research.google.com/github")
        links.append(("Open in Colab", f"{place}/blob/main/{source}"))
    return links


def page_cards(facts: dict, name: str, title: str, about: str) -> str:
    "What the head of a page says to search engines and to programs that show a card for a link."
    if not (address := facts.get("address", "").rstrip("/")) or name == "404": return ""
    url = f"{address}/{quote(name)}.html"
    said = {"og:title": title, "og:description": about, "og:type": "article", "og:url": url,
            "og:site_name": facts["name"], "og:image": f"{address}/assets/middle.png"}
    tags = "".join(f'<meta property="{key}" content="{escape(value)}">' for key, value in said.items() if value)
    return f'<link rel="canonical" href="{url}">{tags}<meta name="twitter:card" content="summary_large_image">'


def write_sitemap(docs: Path, facts: dict):
    "Lists the pages for search engines."
    if not (address := facts.get("address", "").rstrip("/")): return
    names = sorted(file.relative_to(docs).as_posix() for file in docs.rglob("*.html"))
    urls = "\n".join(f"<url><loc>{address}/{quote(name)}</loc></url>" for name in names
                     if name != "404.html" and not name.startswith("source/"))  # who looks for code has the repository
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    (docs/"sitemap.xml").write_text(f"{head}\n{urls}\n</urlset>\n", encoding="utf-8")


# ---- other languages

def languages(docs: Path) -> list[str]:
    "The folders of other languages at the top of the site: `zh` holds pages in Chinese, named as they are named here."
    return sorted(f.name for f in docs.iterdir() if f.is_dir() and re.fullmatch(r"[a-z]{2}(-[A-Z]{2})?", f.name))


def say_language(soup: BeautifulSoup, docs: Path, name: str, own: str = "en"):
    "Says in which language a page is, and links to the same page in the others."
    others = languages(docs)
    first, _, rest = name.partition("/")
    here, plain = (first, rest) if first in others else (own, name)
    soup.html["lang"] = here
    there = {lang: f"{lang}/{plain}" if lang != own else plain for lang in [own, *others]}
    there = {lang: place for lang, place in there.items() if (docs/f"{place}.html").exists()}
    if len(there) < 2: return
    for lang, place in there.items():
        href = "../"*name.count("/") + f"{place}.html"
        soup.head.append(soup.new_tag("link", rel="alternate", hreflang=lang, href=href))
