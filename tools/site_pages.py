"""Finishes the pages that Quarto or smalldocs rendered, the same way for both, and finds what is wrong with them."""
import base64
import json
import os
import re
from collections.abc import Iterator
from copy import copy
from functools import cache
from html import escape
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import moving
from bs4 import BeautifulSoup, Comment, Tag
from bs4.element import PreformattedString
from latex2mathml.converter import convert
from nbdev.doclinks import NbdevLookup

# Runs before the page is painted, so that the page does not flash in the other theme.
THEME = """(() => { let theme; try { theme = localStorage.getItem("hooklab-theme"); } catch {}
document.documentElement.dataset.bsTheme = theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"); })()"""
SKIP_LINK = '<a class="skip-link" href="#quarto-document-content">Skip to the text</a>'
TOOLS = """<div class="site-tools">
<button type="button" class="search-open" aria-haspopup="dialog" aria-keyshortcuts="/"><svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 4 4"/></svg><span>Search</span><kbd aria-hidden="true">/</kbd></button>
<button type="button" class="theme-toggle" aria-label="Switch between light and dark"><svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="5.5"/><path class="half" d="M8 2.5a5.5 5.5 0 0 1 0 11z"/></svg></button>
</div>"""
LESSON = re.compile(r"(?:^|/)(\d\d)-[\w-]+\.html$")
REMOTE = re.compile(r"\s*(https?:)?//", re.I)
CSS_REMOTE = re.compile(r"""(?:url\(\s*|@import\s+)["']?\s*((?:https?:)?//[^\s"')]+)""", re.I)
JS_REMOTE = re.compile(r"""(?:\bimport\b\s*\(?|\bfrom\b|\bfetch\(|\bimportScripts\(|\bsrc\s*=|\bnew\s+(?:Worker|WebSocket|EventSource)\()\s*["'`]((?:https?:|wss?:)?//[^"'`\s]+)""")
LOADS = {"script": ["src"], "img": ["src", "srcset"], "link": ["href"], "iframe": ["src"], "source": ["src", "srcset"], "video": ["src", "poster"],
         "audio": ["src"], "embed": ["src"], "object": ["data"], "track": ["src"], "image": ["href", "xlink:href"],
         "use": ["href", "xlink:href"], "input": ["src"], "form": ["action"]}
NOT_SEARCHED = {"h1", "script", "style", "button", "nav", "math", "svg", "toc-short", "offer", "source-link", "code-fold"}


def read(file: Path) -> BeautifulSoup:
    "A page as a tree."
    return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


@cache
def parsed(text: str) -> Tag:
    "The first element of a piece of HTML, to be copied."
    return BeautifulSoup(text, "html.parser").find()


def fragment(text: str) -> Tag:
    "The first element of a piece of HTML, read once however often it is needed."
    return copy(parsed(text))


def tags(top: Tag) -> Iterator[Tag]:
    "All elements below one, which `find_all` finds several times more slowly."
    return (part for part in top.descendants if isinstance(part, Tag))


def read_pages(docs: Path) -> dict[Path, BeautifulSoup]:
    "All pages of a site."
    return {file: read(file) for file in sorted(docs.rglob("*.html"))}


def finish_pages(docs: Path, pages: dict[Path, BeautifulSoup], facts: dict):
    "Finishes every page of `docs`, and writes what search reads."
    anchors = {file: ids(soup) for file, soup in pages.items()}
    for file, soup in pages.items(): finish_figures(soup, file)
    hang_gallery(docs, pages)
    for file, soup in pages.items(): moving.place(soup, file.relative_to(docs).with_suffix("").as_posix())
    sections = []
    for css in docs.rglob("*.css"):
        text = css.read_text(encoding="utf-8")
        # themes import fonts from the network; the site uses the fonts of the reader's machine
        css.write_text(re.sub(r"""@import\s+(url\()?\s*["']?(https?:)?//[^;]*;""", "", text), encoding="utf-8")
    (docs/"search.json").unlink(missing_ok=True)  # of the renderer's own search, which is off
    for file, soup in pages.items():
        name = file.relative_to(docs).as_posix()
        link_to_source(soup, file, docs, anchors)
        finish_head(soup, file, "../"*name.count("/"))
        finish_frame(soup, file, facts)
        if name.startswith("source/"): finish_source(soup.main)
        if name != "404.html": sections += page_sections(soup, name)
        if not name.startswith("source/"): finish_main(soup, name.removesuffix(".html"), facts["modules"])
        file.write_text(str(soup), encoding="utf-8")
    # a script, not JSON: a page opened from the disk may load scripts but not fetch files
    (docs/"assets"/"search.js").write_text(f"window.siteSections = {json.dumps(sections, ensure_ascii=False)};\n", encoding="utf-8")


def finish_figures(soup: BeautifulSoup, file: Path):
    "Gives each cell that draws a name to link to, and each picture a file: a page that holds its pictures is slow to load."
    for number, figure in enumerate(figures(soup), 1): cell(figure).attrs.setdefault("id", f"figure-{number}")
    known = {picture.read_bytes(): picture for picture in file.with_name(f"{file.stem}_files").rglob("*.png")}
    for image in soup.main.find_all("img"):
        if image["src"].startswith("data:image/png;base64,") and (picture := known.get(base64.b64decode(image["src"].partition(",")[2]))):
            image.attrs |= {"src": picture.relative_to(file.parent).as_posix(), "loading": "lazy"}
        if (picture := file.parent/image["src"]).suffix != ".png" or not picture.exists(): continue
        width, height = (str(int.from_bytes(picture.read_bytes()[i:i+4])) for i in (16, 20))
        image.attrs |= {"width": width, "height": height}  # so that its place is kept until it is there
        if not image.find_parent("a"): image.wrap(soup.new_tag("a", href=image["src"], title="Full size"))


def figures(soup: BeautifulSoup) -> list[Tag]: return [figure for figure in soup.main.find_all("figure") if figure.img and figure.figcaption]
def cell(figure: Tag) -> Tag: return figure.find_parent(class_="cell") or figure


def hang_gallery(docs: Path, pages: dict[Path, BeautifulSoup]):
    "Shows every figure of the lessons on one page, each a link to the place where it is made."
    gallery = pages[docs/"gallery.html"].find(id="gallery") if docs/"gallery.html" in pages else None
    if gallery is None: return
    new = pages[docs/"gallery.html"].new_tag
    for file, soup in pages.items():
        if file.parent.name != "lessons" or not figures(soup): continue
        page = file.relative_to(docs).as_posix()
        heading, row = new("h2", id=file.stem), new("div", attrs={"class": "gallery-row"})
        heading.append(link := new("a", href=page))
        lesson = LESSON.search(page)
        link.string = (f"{lesson[1]} · " if lesson else "") + soup.h1.get_text(" ", strip=True)
        for figure in figures(soup):
            row.append(place := new("a", href=f"{page}#{cell(figure)['id']}"))
            place.append(new("img", attrs=figure.img.attrs | {"src": f"{file.parent.name}/{figure.img['src']}", "class": []}))
            place.append(caption := new("span"))
            caption.string = figure.figcaption.get_text(" ", strip=True)
        gallery.extend([heading, row])


def ids(soup: BeautifulSoup) -> set[str]: return {tag.attrs["id"] for tag in tags(soup) if "id" in tag.attrs}


def target(file: Path, url: SplitResult) -> Path:
    "The file that a link on the page `file` leads to."
    path = Path(os.path.normpath(file.parent/unquote(url.path))) if url.path else file
    return path/"index.html" if path.is_dir() else path


def link_to_source(soup: BeautifulSoup, file: Path, docs: Path, anchors: dict[Path, set[str]]):
    "Leads the links that nbdev made of a symbol which its page does not show, such as an internal class, to its source."
    for link in soup.main.find_all("a", href=True):
        url = urlsplit(link["href"])
        if not (url.fragment and link.code) or url.fragment in anchors.get(target(file, url), {url.fragment}): continue
        if code := NbdevLookup().code(link.get_text().removesuffix("()")):
            module, line = re.search(r"/hooklab/(.+)\.py#L(\d+)$", code).groups()
            link["href"] = f"{os.path.relpath(docs/'source', file.parent)}/{module}.html#L{line}"


def finish_head(soup: BeautifulSoup, file: Path, top: str):
    "Adds the theme and the site's script, and drops what would load maths from the network."
    for tag in soup.head.find_all(["script", "link"]):
        if "katex" in tag.get("src", "") + tag.get("href", ""): tag.decompose()
    script = soup.new_tag("script")
    script.string = THEME
    soup.head.insert(0, script)
    soup.head.insert(0, fragment('<meta charset="utf-8">'))
    for tag in soup.head.find_all("meta", charset=True)[1:]: tag.decompose()
    soup.head.append(fragment(f'<script src="{top}assets/site.js" defer></script>'))
    if twin(file).exists(): soup.head.append(fragment(f'<link rel="alternate" type="text/markdown" href="{twin(file).name}">'))


def twin(file: Path) -> Path: return file.with_suffix(".llms.md")


def finish_frame(soup: BeautifulSoup, file: Path, facts: dict):
    "What stands around the text: skip link, search, theme, sidebar, footer."
    soup.body.insert(0, fragment(SKIP_LINK))
    soup.main["tabindex"] = "-1"  # so that the skip link moves the focus there
    tools = fragment(TOOLS)
    if "repository" in facts: tools.insert(0, fragment(f'<a class="repository" href="{facts["repository"]}">Repository</a>'))
    header, sidebar = soup.find(id="quarto-header"), soup.find(id="quarto-sidebar") or soup.new_tag("nav")
    header.find(class_="navbar-container").append(tools)
    for image in header.find_all(class_="navbar-logo"): image["role"] = "presentation"  # the name stands beside it
    for section in [tag for tag in tags(sidebar) if "sidebar-item-section" in tag.get("class", ())]:
        if not any(link.name == "a" for part in section.find_all("ul", recursive=False) for link in tags(part)):
            section.decompose()  # a folder that has no page yet
    for tag in [*tags(sidebar)]:
        if "href" in tag.attrs and (lesson := LESSON.search(tag["href"])):  # texts speak of lessons by number
            tag.insert(0, fragment(f'<span class="lesson-number">{lesson[1]}</span>'))
        if tag.get("data-bs-toggle") == "collapse" and "href" not in tag.attrs: tag.attrs |= {"role": "button", "tabindex": "0"}
        if "sidebar-item-toggle" in tag.get("class", ()) and not tag.find_previous_sibling("a", href=True):
            tag["tabindex"] = "-1"  # does what the name beside it does
    if lesson := LESSON.search(file.name):
        for crumb in soup.select(".breadcrumb-item:first-child a"): crumb.string = f"Lesson {lesson[1]}"
    for nav, label in ((sidebar, "Pages"), (soup.find("nav", class_="page-navigation"), "Previous and next page"), (soup.find(id="TOC"), "On this page")):
        if nav: nav["aria-label"] = label
    markdown = f' · <a href="{twin(file).name}">This page as Markdown</a>' if twin(file).exists() else ""
    soup.body.append(fragment(f'<footer class="site-footer">{facts["name"]} {facts["version"]} · {facts["license"]} licence{markdown}</footer>'))


def finish_source(main: Tag):
    "Names the lines of a source page L1, L2, …; assets/site.css draws their numbers."
    for pre in main.find_all("pre", class_="numberSource"): pre["class"].remove("numberSource")
    for line in main.find_all(id=re.compile(r"^L-\d+$")):
        line["id"] = line["id"].replace("-", "")
        line.a.attrs = {"href": f"#{line['id']}", "class": "line", "aria-label": f"Line {line['id'][1:]}"}


def finish_main(soup: BeautifulSoup, page: str, modules: dict[str, str]):
    "What stands in the text: maths, tables, drawings, what the page offers, a short table of contents."
    main = soup.main
    for span in main.select("span.math"):
        if span.find("math"): continue  # Quarto has made it already
        display = "display" in span["class"]
        tex = re.sub(r"^\\[\[(]|\\[\])]$", "", span.get_text().strip())
        span.clear()
        span.append(fragment(convert(tex, display="block" if display else "inline")))
    for block in main.find_all(class_="code-copy-outer-scaffold"):
        for code in block.find_all("code"): wrap_code(code)
    for table in main.find_all("table"):
        if table.find_parent(class_="table-scroll") is None: table.wrap(soup.new_tag("div", attrs={"class": "table-scroll"}))
    for text in [text for code in main.select("td code") for text in code.find_all(string=re.compile(r"[\w.]{25}"))]:
        text.replace_with(BeautifulSoup(re.sub(r"([._]+)(?=\w)", r"\1<wbr>", escape(text)), "html.parser"))  # so that a long name leaves room for other columns
    for svg in main.find_all("svg"):
        if alt := svg.attrs.pop("alt", None): svg.attrs |= {"role": "img", "aria-label": alt}
    for output in main.select(".cell-output > pre"):
        if "\n" not in output.get_text().strip(): output["class"] = [*output.get("class", []), "one-line"]  # not a table: it may go on below
    header = main.find(id="title-block-header")
    if header and page.startswith("lessons/"):
        header.append(fragment(f'<p class="offer download"><a href="{Path(page).name}.ipynb" download>Download the notebook</a></p>'))
    for module, origin in modules.items():
        if header and origin == page: header.append(fragment(f'<p class="offer"><a href="{"../"*page.count("/")}source/{module}.html">Source of this module</a></p>'))
    if header and (toc := soup.find(id="TOC")):  # beside the text there is no room for it on a phone
        short = fragment(f'<details class="toc-short"><summary>On this page</summary>{toc.ul}</details>')
        for tag in short.find_all(id=True): del tag["id"]
        for link in short.find_all("a"): link.attrs = {"href": link["href"]}
        header.append(short)


class Finished(PreformattedString):
    "HTML that is written as it is, and not read again."
    PREFIX = SUFFIX = ""


def wrap_code(code: Tag):
    "Makes a box of each line, so that what does not fit goes on below, further in than the line began."
    one_line_each = re.sub(r"(<span[^>]*>)([^<]*)</span>", lambda token: token[1] + token[2].replace("\n", f"</span>\n{token[1]}") + "</span>", code.decode_contents())
    boxes = "\n".join(f'<span class="code-line" style="--indent: {len(line) - len(line.lstrip(" "))}ch">{line}</span>' for line in one_line_each.splitlines())
    code.clear()
    code.append(Finished(boxes))


def page_sections(soup: BeautifulSoup, name: str) -> list[dict]:
    "What search knows of a page: one entry for its beginning and one for each heading."
    title, crumb = (soup.h1 or soup.title).get_text(" ", strip=True), soup.find(class_="breadcrumb-item")
    where = crumb.get_text(" ", strip=True) if crumb else ""
    found = [{"href": name, "title": title, "section": "", "where": where, "text": ""}]
    def visit(node):
        for child in node.children:
            if isinstance(child, Comment): continue
            if not isinstance(child, Tag): found[-1]["text"] += str(child)
            elif re.fullmatch("h[2-6]", child.name):
                anchor = child.get("id") or child.get("data-anchor-id")
                if anchor: found.append({"href": f"{name}#{anchor}", "title": title, "section": child.get_text(" ", strip=True),
                                         "where": f"{where} › {title}".removeprefix(" › "), "text": ""})
            elif child.name not in NOT_SEARCHED and not NOT_SEARCHED.intersection(child.get("class", [])): visit(child)
    if not name.startswith("source/"): visit(soup.main)  # the reference page has the same words
    found = [entry | {"text": " ".join(entry["text"].split())} for entry in found]
    return [entry for entry in found if entry["text"] or not entry["section"]]  # a heading right above another says nothing


def problems(docs: Path, pages: dict[Path, BeautifulSoup]) -> list[str]:
    "One line for each dead link, picture without alternative text, and reference that would load another host."
    anchors = {file: ids(soup) for file, soup in pages.items()}
    found = []
    for file, soup in pages.items():
        name = file.relative_to(docs).as_posix()
        found += [f"{name}: {problem}" for problem in (*dead_links(file, soup, anchors), *raw_links(soup), *unlabelled_pictures(soup), *remote_loads(soup))]
    for file in (*docs.rglob("*.css"), *docs.rglob("*.js")):
        text = file.read_text(encoding="utf-8")
        found += [f"{file.relative_to(docs).as_posix()}: loads {url} from the network: keep a copy in nbs/assets, or do without"
                  for url in (CSS_REMOTE if file.suffix == ".css" else JS_REMOTE).findall(text)]
    return list(dict.fromkeys(found))


def dead_links(file: Path, soup: BeautifulSoup, anchors: dict[Path, set[str]]) -> list[str]:
    "Links within the site that lead nowhere."
    found = []
    for tag, attribute in ((tag, a) for tag in tags(soup) for a in ("href", "src") if a in tag.attrs and tag.name != "use"):
        url = urlsplit(tag[attribute])
        if url.scheme or url.netloc: continue
        place = target(file, url)
        if not place.exists(): found.append(f"dead link {tag[attribute]}")
        elif url.fragment and place in anchors and unquote(url.fragment) not in anchors[place]:
            found.append(f"dead link {tag[attribute]} (there is such a page, but no such place on it)")
    return found


def raw_links(soup: BeautifulSoup) -> list[str]:
    "Links that are shown as they were typed: nbdev makes links of symbols in backticks, also inside another link."
    return [f"shown as text: “…{text.strip()[:60]}…”: a link's text must not hold a symbol in backticks" for text in soup.find_all(string=re.compile(r"\]\(\S"))
            if not text.find_parent(["code", "pre", "script", "style", "math"])]


def unlabelled_pictures(soup: BeautifulSoup) -> list[str]:
    "Pictures without a text for readers who cannot see them."
    pictures = [p for p in soup.find_all(["img", "svg"]) if p.find_parent("svg") is None
                and p.get("aria-hidden") != "true" and p.get("role") != "presentation"]
    return [f"picture {n} of the page has no alternative text: add `#| fig-alt: …` to its cell"
            for n, p in enumerate(pictures, 1) if not (p.get("alt") or p.get("aria-label") or "").strip()]


def remote_loads(soup: BeautifulSoup) -> list[str]:
    "What the page would load from another host. A link that the reader may follow is not loaded."
    every = [*tags(soup)]
    urls = [tag[a] for tag in every for a in LOADS.get(tag.name, ()) if REMOTE.match(tag.get(a, ""))]
    for tag in every:
        if tag.name == "style" or "style" in tag.attrs: urls += CSS_REMOTE.findall(tag.get("style") or tag.get_text())
        if tag.name == "script" and "src" not in tag.attrs: urls += JS_REMOTE.findall(tag.get_text())
    return [f"loads {url} from the network: keep a copy in nbs/assets, or do without" for url in urls]
