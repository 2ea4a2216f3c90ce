"""Finishes the pages that Quarto or smalldocs rendered, the same way for both: what is in the text, and the frame."""
import base64
import json
import os
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from html import escape, unescape
from multiprocessing import get_context
from pathlib import Path
from urllib.parse import urlsplit

import moving
from bs4 import BeautifulSoup, Tag
from latex2mathml.converter import convert
from nbdev.doclinks import NbdevLookup
from site_around import (
    hang_references,
    page_cards,
    read_references,
    say_language,
    write_full_text,
    write_sitemap,
)
from site_frame import Navigation, anchor, around, head, toc_short
from site_gallery import cell_of, figures, figures_of, hang_gallery, show_code
from site_problems import Links, all_problems, links_of, page_problems, target
from site_search import entries, write_index
from site_symbols import public_names
from site_trees import Code, Finished, fragment, read
from site_weight import lighten, vocabulary
from site_words import EXPLAINED_ON, LEFT_ALONE, Word, address_words, explain_words, read_glossary

MOVED = Path(__file__).with_name("moved_pages.txt")
BREAKS = re.compile(r"[(\[](?![)\]])|=(?![ =])|,(?! )|\.(?=[A-Za-z_])")  # where code may go on below
SPARE = "\0"  # an empty line that is not seen
LINES = re.compile(r"(<code\b[^>]*>)(.*)(?=</code>)", re.S)  # of code that can be copied
COLUMNS = re.compile(r"\S {2,}\S|<")  # of a table in an output, or marks of HTML

WRITTEN_WHOLE = "source", "cases"  # folders of pages that site_source.py and site_cases.py write as they stay
COPIED = '<span><code>{0}</code><button type="button" class="code-copy-button"></button></span>'
RUN_IT = f'<span class="run-it">Run it: {COPIED.format("make lab")} or {COPIED.format("hooklab lessons --open")}</span>'


@dataclass(frozen=True)
class Known:
    "What every page is told of others: public names, words of the glossary, works that a lesson rests on."
    public: frozenset[str]
    words: list[Word]
    works: dict[str, list[str]]


@dataclass
class Report:
    "What is known of a page that is finished and written: its tree stays in the process that made it."
    links: Links
    vocabulary: set[str]
    problems: list[str] = field(default_factory=list)
    search: dict | None = None
    figures: list[dict] = field(default_factory=list)
    title: str = ""


def finish_site(docs: Path, nav: Navigation) -> list[str]:
    "Finishes the pages of `docs`, writes what search reads, drops what is not loaded, and says what is wrong."
    files = sorted(
        (f for f in docs.rglob("*.html") if f.relative_to(docs).parts[0] not in WRITTEN_WHOLE),
        key=lambda file: -file.stat().st_size,
    )
    anchors = {file: frozenset(re.findall(r'\bid="([^"]+)"', file.read_text(encoding="utf-8"))) for file in files}
    gallery = [docs/"gallery.html"] if docs/"gallery.html" in anchors else []
    NbdevLookup()  # reads the index of all symbols, once for all processes
    known = known_of(docs)
    work = partial(finish_page, docs=docs, nav=nav, anchors=anchors, known=known)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        sources = sorted(file for name in WRITTEN_WHOLE for file in docs.glob(f"{name}/**/*.html"))
        source = pool.map(report_of, sources, chunksize=20)
        first = [file for file in files if file not in gallery]
        reports = dict(zip(first, pool.map(work, first, chunksize=2))) | dict(zip(sources, source))
    lessons = {file: reports[file] for file in sorted(reports) if file.parent.name == "lessons"}
    for file in gallery: reports[file] = finish_page(file, docs, nav, anchors, known, lessons)
    # before the index, whose words are no classes
    lighten(docs, set().union(*(report.vocabulary for report in reports.values())))
    searched = [report.search for _, report in sorted(reports.items()) if report.search]
    write_index(docs, searched, known.public)
    write_full_text(docs, {page["name"].removesuffix(".html") for page in searched if page["kind"] == "inside"})
    write_sitemap(docs, nav.facts)
    links = {file: report.links for file, report in sorted(reports.items())}
    return all_problems(docs, links, {file: report.problems for file, report in reports.items()})


def known_of(docs: Path) -> Known:
    "What the glossary and the list of references say, as they are rendered."
    glossary, references = docs/"explain/glossary.html", docs/"explain/references.html"
    return Known(public_names(), read_glossary(read(glossary)) if glossary.exists() else [],
                 read_references(read(references)) if references.exists() else {})


def report_of(file: Path) -> Report:
    "What is known of a page as it stands."
    text = file.read_text(encoding="utf-8")
    return Report(links_of(text), vocabulary(text))


def finish_page(file: Path, docs: Path, nav: Navigation, anchors: dict[Path, frozenset[str]], known: Known,
                lessons: dict[Path, Report] | None = None) -> Report:
    "Finishes one page and writes it."
    soup, address = read(file), file.relative_to(docs).as_posix()
    name, top = address.removesuffix(".html"), "../"*address.count("/")
    kind = soup.body["data-kind"] = nav.kind(name)
    finish_figures(soup, file)
    if lessons: hang_gallery(soup, docs, lessons)
    link_to_source(soup, file, docs, anchors)
    search = entries(soup, address, nav.facts["name"])
    explain(soup, name, kind, known, top)
    if found := soup.find(id="not-found"):
        found.append(data(soup, "all-pages", known_pages(nav)))
        found.append(data(soup, "moved-pages", moved_pages(docs)))
    finish_main(soup, name, nav)
    title, figured = soup.h1.get_text(" ", strip=True), figures_of(soup, file, name)
    cards = cards_of(soup, name, nav)
    finish_frame(soup, name, top, file, nav)
    moving.place(soup, name)
    soup.head.append(Finished(cards))
    say_language(soup, docs, name)
    text = str(soup)
    file.write_text(text, encoding="utf-8")
    if twin(file).exists():
        markdown = moving.unmarked(twin(file).read_text(encoding="utf-8"))
        markdown = re.sub(r"\]\(/source/(\S+?)\.html", rf"]({top}source/\1.llms.md", markdown)
        twin(file).write_text(markdown, encoding="utf-8")
    return Report(links_of(text), vocabulary(text), page_problems(soup, text), search, figured, title)


def explain(soup: BeautifulSoup, name: str, kind: str, known: Known, top: str):
    "What words mean, and what a lesson rests on."
    if name == "explain/glossary": address_words(soup)
    elif kind in EXPLAINED_ON and name not in LEFT_ALONE: explain_words(soup, known.words, top)
    if works := known.works.get(name.removeprefix("lessons/")): hang_references(soup, works, top)


def cards_of(soup: BeautifulSoup, name: str, nav: Navigation) -> str:
    "What the head says to search engines, once the site has an address."
    about = soup.head.find("meta", attrs={"name": "description"})
    return page_cards(nav.facts, name, soup.title.get_text(strip=True), about["content"] if about else "")


def twin(file: Path) -> Path:
    "The same page as Markdown."
    return file.with_suffix(".llms.md")


def finish_figures(soup: BeautifulSoup, file: Path):
    "Gives each cell that draws a name to link to, and each picture a file: a page that holds pictures is slow to load."
    show_code(soup)
    for number, figure in enumerate(figures(soup), 1): cell_of(figure).attrs.setdefault("id", f"figure-{number}")
    known = {picture.read_bytes(): picture for picture in file.with_name(f"{file.stem}_files").rglob("*.png")}
    for image in soup.main.find_all("img"):
        if image["src"].startswith("data:image/png;base64,") and (
            picture := known.get(base64.b64decode(image["src"].partition(",")[2]))
        ):
            image.attrs |= {"src": picture.relative_to(file.parent).as_posix(), "loading": "lazy"}
        if (picture := file.parent/image["src"]).suffix != ".png" or not picture.exists(): continue
        width, height = (str(int.from_bytes(picture.read_bytes()[i:i+4])) for i in (16, 20))
        image.attrs |= {"width": width, "height": height}  # so that its place is kept until it is there
        if not image.find_parent("a"): image.wrap(soup.new_tag("a", href=image["src"], title="Full size"))


def link_to_source(soup: BeautifulSoup, file: Path, docs: Path, anchors: dict[Path, set[str]]):
    "Leads a link that nbdev made of a symbol which its page does not show, such as an internal class, to its source."
    for link in soup.main.find_all("a", href=True):
        url = urlsplit(link["href"])
        if not (url.fragment and link.code) or url.fragment in anchors.get(target(file, url), {url.fragment}): continue
        if code := NbdevLookup().code(link.get_text().removesuffix("()")):
            module, line = re.search(r"/hooklab/(.+)\.py#L(\d+)$", code).groups()
            link["href"] = f"{os.path.relpath(docs/'source', file.parent)}/{module}.html#L{line}"


def finish_frame(soup: BeautifulSoup, name: str, top: str, file: Path, nav: Navigation):
    "Puts the frame of this site around the text, in place of the renderer's, and the site's own head."
    markdown = twin(file).name if twin(file).exists() else ""
    about = soup.head.find("meta", attrs={"name": "description"})
    toc = contents_of(soup) if soup.body["data-kind"] != "home" else ""
    for crumbs in soup.main.find_all(class_="quarto-page-breadcrumbs"): crumbs.decompose()
    for pages in soup.main.find_all(class_="page-navigation"): pages.decompose()
    header = soup.main.find(id="title-block-header")
    if header: header.insert(0, Finished(nav.breadcrumb(name, top)))
    if header: header.insert_after(Finished(toc_short(toc, "On this page")))  # on a phone it stays in sight
    soup.main.attrs = {
        "id": "quarto-document-content",
        "class": "content",
        "tabindex": "-1",
    }  # the skip link moves the focus here
    end_once(soup.main, name, nav)
    soup.main.append(Finished(nav.page_navigation(name, top)))
    before, after = around(nav, name, top, with_methods(toc, soup), "On this page", markdown)
    text, kind = soup.main.extract(), soup.body["data-kind"]
    title = nav.tab_title(name, soup.title.get_text(strip=True))
    for part, inner in (
        (soup.head, [head(title, about["content"] if about else "", top, markdown)]),
        (soup.body, [before, text, after]),
    ):
        part.clear()
        part.attrs = {}
        for piece in inner: part.append(piece if isinstance(piece, Tag) else Finished(piece))
    soup.body["data-kind"] = kind


def contents_of(soup: BeautifulSoup) -> str:
    "The table of contents as the renderer made it, without what only its own script needs."
    toc = soup.find(id="TOC")
    return (
        re.sub(r"<a [^>]*?href=(\"[^\"]*\")[^>]*>", r"<a href=\1>", re.sub(r"<ul[^>]*>", "<ul>", str(toc.ul)))
        if toc and toc.ul
        else ""
    )


def with_methods(toc: str, soup: BeautifulSoup) -> str:
    "The table of contents with the methods of each class below its name."
    for reference in soup.main.select("section > .reference"):
        section = reference.parent
        methods = [dt for title in reference.find_all(class_="members-title", string="Methods")
                   for dl in title.find_next_siblings("dl") for dt in dl.find_all("dt", id=True)]
        links = (f'<li><a href="#{dt["id"]}">{dt.select_one("a.member").get_text()}</a></li>' for dt in methods)
        entry = f'<a href="#{section["id"]}">{section.find(re.compile("^h[2-6]$")).get_text()}</a>'
        if methods: toc = toc.replace(entry, f"{entry}<ul>{''.join(links)}</ul>", 1)
    return toc


def known_pages(nav: Navigation) -> list[tuple[str, str]]:
    "Address and title of each page that a reader may have meant, for the page of a wrong address."
    kinds = "lesson", "howto", "reference", "explain", "gallery", "list"
    return [(f"{page.name}.html", page.title) for name, page in nav.by_name.items() if nav.kind(name) in kinds]


def moved_pages(docs: Path) -> list[tuple[str, str]]:
    "Addresses of earlier releases, and where these pages and the code behind them are today."
    lines = (line for line in MOVED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    found = []
    for line in lines:
        old, now = line.split(" = ")
        if not (docs/f"{now}.html").exists(): continue  # a site of some pages
        sources = [f"source/{name.removeprefix('lib/').replace('-', '_')}.html" for name in (old, now)]
        found += [(f"{old}.html", f"{now}.html"), *([tuple(sources)] if (docs/sources[1]).exists() else [])]
    return found


def data(soup: BeautifulSoup, name: str, rows: list) -> Tag:
    "Rows for a script of the page."
    script = soup.new_tag("script", attrs={"type": "application/json", "id": name})
    script.string = json.dumps(rows, ensure_ascii=False).replace("<", "\\u003c")
    return script


def end_once(main: Tag, name: str, nav: Navigation):
    "Takes out the last line of a lesson where it only names the next one: the link to that follows on every page."
    following, paragraphs = nav.neighbors(name)[1], main.find_all("p")
    last = paragraphs[-1] if paragraphs else None
    if following is None or last is None or not (label := last.find("strong", string="Next:")): return
    if not (link := label.find_next("a")) or not link["href"].endswith(f"{Path(following.name).name}.html"): return
    for part in (label, link): part.extract()
    if not last.get_text(strip=True): last.extract()


def finish_main(soup: BeautifulSoup, page: str, nav: Navigation):
    "What stands in the text: maths, tables, drawings, what the page offers."
    main = soup.main
    for span in main.select("span.math"):
        if span.find("math"): continue  # Quarto has made it already
        display = "display" in span["class"]
        tex = re.sub(r"^\\[\[(]|\\[\])]$", "", span.get_text().strip())
        span.clear()
        span.append(fragment(convert(tex, display="block" if display else "inline")))
    for block in main.find_all(class_="code-copy-outer-scaffold"):
        for pre in block.find_all("pre"):
            pre.string = Code(LINES.sub(lambda code: code[1] + boxes_of_lines(code[2]), pre.contents[0]))
    set_levels(main)
    for table in main.find_all("table"):
        for cell in table.find_all("th"):
            if not cell.get_text(strip=True): cell.name = "td"  # it would be read as the head of something
        if table.find_parent(class_="table-scroll") is None:
            table.wrap(soup.new_tag("div", attrs={"class": "table-scroll"}))
        as_cards(table)
        set_apart_groups(soup, table)
    for text in [text for code in main.select("td code") for text in code.find_all(string=re.compile(r"[\w.]{25}"))]:
        text.replace_with(
            BeautifulSoup(re.sub(r"([._]+)(?=\w)", r"\1<wbr>", escape(text)), "html.parser")
        )  # so that a long name leaves room for other columns
    for svg in main.find_all("svg"):
        if alt := svg.attrs.pop("alt", None): svg.attrs |= {"role": "img", "aria-label": alt}
    for output in main.select(".cell-output > pre"):
        if "\n" not in output.contents[0].plain.strip():
            output["class"] = [*output.get("class", []), "one-line"]  # not a table: it may go on below
        elif output.contents[0].plain.startswith("patient("): output["class"] = [*output.get("class", []), "patient"]
        else: output.string = Code(LINES.sub(lambda text: text[1] + wrapped_sentences(text[2]), output.contents[0]))
    header = main.find(id="title-block-header")
    if header and nav.kind(page) == "lesson":
        offered = f'<a href="{Path(page).name}.ipynb" download>Download the notebook</a>'
        header.append(fragment(f'<p class="offer download">{offered}{RUN_IT}</p>'))
        set_apart_what_it_takes(soup, header)
    up = "../"*page.count("/")
    for module, origin in nav.sources.items():
        if header and origin == page:
            link = f'<a href="{up}source/{module}.html">Source of this module</a>'
            header.append(fragment(f'<p class="offer">{link}</p>'))


def set_levels(main: Tag):
    "Tells those who listen that a symbol right below the title is one level down, as its heading looks everywhere."
    for heading in main.find_all(re.compile("^h[2-6]$")):
        if heading.name == "h2": return
        if heading.name == "h3": heading["aria-level"] = "2"


def set_apart_what_it_takes(soup: BeautifulSoup, header: Tag):
    "Puts what stands between the title of a lesson and its first code into a box of its own: it is set smaller."
    box = soup.new_tag("div", attrs={"class": "lesson-head"})
    for part in [*header.next_siblings]:
        if isinstance(part, Tag) and (part.name == "section" or "cell" in part.get("class", [])): break
        box.append(part.extract())
    header.insert_after(box)


def as_cards(table: Tag):
    "Lets a table of words be cards on a phone, where its last column would be out of sight: a cell names its column."
    columns = [head.get_text(" ", strip=True) for head in table.select("thead :is(th, td)")]
    rows = [row.find_all(["td", "th"]) for row in table.select("tbody tr")]
    if {"dataframe", "parameters"} & {*table.get("class", [])} or len(columns) < 2: return
    in_groups = table.select_one("th[scope=colgroup]")
    if len(columns) > 5 and not in_groups: return
    if not any(sum(len(cell.get_text()) for cell in row) > 48 for row in rows): return  # fits
    table["class"] = [*table.get("class", []), "cards", *(["in-line"] if len(columns) > 5 else [])]
    for row in rows if len(columns) > 2 else []:  # of two, the second says what the first one is
        for column, cell in zip(columns[1:], row[1:]):
            if column and cell.get_text(strip=True) and "colspan" not in cell.attrs: cell["data-label"] = column


def set_apart_groups(soup: BeautifulSoup, table: Tag):
    "Marks the rows of a table that begin a group. Above many come links to them: a phone shows few at once."
    rows = [row for row in table.select("tbody tr") if begins_group(row)]
    for row in rows: row["class"] = [*row.get("class", []), "group"]
    if len(rows) < 4: return
    jump = soup.new_tag("nav", attrs={"class": "jump", "aria-label": "Groups of the table"})
    for row in rows:
        text = row.get_text(" ", strip=True)
        row["id"] = f"rows-{anchor(text)}"
        jump.append(link := soup.new_tag("a", href=f"#{row['id']}"))
        link.string = text[:1].upper() + text[1:]
    (table.find_parent(class_="table-scroll") or table).insert_before(jump)


def begins_group(row: Tag) -> bool:
    "Is this a row with one cell, in bold or a heading, that says what the next rows are about?"
    first, *others = row.find_all(["td", "th"]) or [row]
    if any(cell.get_text(strip=True) for cell in others): return False
    text, bold = first.get_text(strip=True), first.find("strong", recursive=False)
    return first.get("scope") == "colgroup" or bool(bold and bold.get_text(strip=True) == text)


def wrapped_sentences(output: str) -> str:
    "Lets sentences in an output go on below, as in a report: if a line is too long, all without columns are boxes."
    def is_sentence(line, longer_than):
        return len(unescape(line)) > longer_than and " " in line and not COLUMNS.search(line)
    lines = output.split("\n")
    if not any(is_sentence(line, 90) for line in lines): return output
    return "\n".join(boxes_of_lines(line) if is_sentence(line, 45) else line for line in lines)


def breakable(line: str) -> str:
    "Lets code without a space that is wider than a phone go on below after a dot, comma, bracket or equals sign."
    text = unescape(re.sub("<[^>]*>", "", line))
    long = {i for run in re.finditer(r"\S{26,}", text) for i in range(*run.span())}
    at = 0
    def between(part):
        nonlocal at
        if part[0][0] == "<": return part[0]
        start, at = at, at + len(unescape(part[0]))
        if part[0][0] == "&": return part[0]
        return BREAKS.sub(lambda mark: f"{mark[0]}<wbr>" if start + mark.end() in long else mark[0], part[0])
    return re.sub(r"<[^>]*>|&\w+;|[^<&]+", between, line) if long else line


def boxes_of_lines(code: str) -> str:
    """Makes a box of each line, so that what does not fit goes on below, further in than the line began. Of two empty
    lines, as a file has them between functions, one is seen; both are copied."""
    one_line_each = re.sub(
        r"(<span[^>]*>)([^<]*)</span>",
        lambda token: token[1] + token[2].replace("\n", f"</span>\n{token[1]}") + "</span>",
        code,
    )
    def box(line):
        line = breakable(line)
        indent = len(line) - len(line.lstrip(" "))
        style = f' style="--indent: {indent}ch"' if indent else ""
        return f'<span class="code-line"{style}>{line}</span>'
    def unseen(found): return "\n\n" + SPARE*(len(found[0]) - 2)
    lines = re.sub(r"\n{3,}", unseen, one_line_each).splitlines()
    return "\n".join(map(box, lines)).replace(SPARE, "<span hidden>\n</span>")
