"""Where each page stands, and what stands around its text: tabs, the sidebar of its section, previous and next.

The renderer writes the text alone. The frame around it is the same for Quarto and for smalldocs, and a page of the
source gets it without a renderer."""
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import yaml
from site_around import page_links

# A section is known by the folder of the page that lists it.
KINDS = {"lessons": "lesson", "howto": "howto", "lib": "reference", "explain": "explain", "inside": "inside"}
BELONGS = {"inside": "lib"}  # a section without a tab of its own: it is reached from the end of another one's sidebar
LESSON = re.compile(r"^lessons/(\d\d)-")
ICONS = {name: f'<svg viewBox="0 0 16 16" aria-hidden="true">{shape}</svg>' for name, shape in {
    "menu": '<path d="M2 4h12M2 8h12M2 12h12"/>',
    "search": '<circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 4 4"/>',
    "theme": '<circle cx="8" cy="8" r="5.5"/><path class="half" d="M8 2.5a5.5 5.5 0 0 1 0 11z"/>'}.items()}
# Runs before the page is painted, so that the page does not flash in the other theme.
THEME = """(() => { let theme; try { theme = localStorage.getItem("hooklab-theme"); } catch {}
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.bsTheme = theme || (dark ? "dark" : "light"); })()"""
STYLES = ["assets/base.css", "assets/site.css"]  # what is left of the theme (site_weight.py), and the look of this site
SCRIPTS = ["assets/site.js", "assets/search.js", "assets/around.js"]
LICENCE, CONTRIBUTING = "explain/licence", "explain/contributing"  # pages that every footer leads to
CHANGELOG = "explain/changelog"  # it is in no section: the footer alone leads to it
SKIP_LINK = '<a class="skip-link" href="#quarto-document-content">Skip to main content</a>'
NO_SCRIPTS = (
    '<noscript><aside class="no-scripts" aria-label="Without JavaScript">All text, code, and figures are here. '
    "JavaScript adds search, a theme switch, copy buttons, and animated figures."
    "</aside></noscript>"
)
TOOLS = (
    '<button type="button" class="search-open" aria-label="Search" aria-haspopup="dialog" aria-keyshortcuts="/">'
    f'{ICONS["search"]}<span>Search</span><kbd aria-hidden="true">/</kbd></button>'
    f'<button type="button" class="theme-toggle" aria-label="Switch between light and dark">{ICONS["theme"]}</button>'
)


@dataclass(frozen=True)
class Page:
    "What navigation says about a page."
    name: str  # its address, without .html
    title: str
    short: str = ""  # what the sidebar calls it; the title where that is short enough
    about: str = ""
    order: float = float("inf")
    suffix: str = ".ipynb"  # of the file that it is made of

    @property
    def number(self) -> str:
        "The number of a lesson, by which texts speak of it."
        return found[1] if (found := LESSON.match(self.name)) else ""


@dataclass
class Part:
    "A section of the site, or a group of pages in one."
    text: str
    index: str  # the address of the page that lists it
    entries: list["Page | Part"] = field(default_factory=list)

    def pages(self) -> Iterator[Page]:
        "All pages in the order in which they are read."
        for entry in self.entries: yield from entry.pages() if isinstance(entry, Part) else [entry]

    @property
    def folder(self) -> str: return self.index.partition("/")[0]


def told(lines: list[str], name: str) -> Page:
    "A page as the first cell of its notebook describes it: `# Title`, `> about`, `- short: Its name in the sidebar`."
    facts = dict(re.findall(r"^- ([\w-]+): *(.+)$", "\n".join(lines), re.M))
    about = " ".join(line[1:].strip() for line in lines if line.startswith(">"))
    return Page(
        name,
        lines[0].removeprefix("#").strip(),
        facts.get("short", "").strip("\"'"),
        about,
        float(facts.get("order", "inf")),
    )


def front(file: Path, name: str) -> Page:
    "A page as the beginning of its Markdown file describes it."
    facts = yaml.safe_load(file.read_text(encoding="utf-8").split("---")[1])
    short, about = facts.get("short", ""), facts.get("description", "")
    return Page(name, facts["title"], short, about, facts.get("order", float("inf")), ".qmd")


def read_pages(nbs: Path) -> dict[str, Page]:
    "What every notebook and Markdown file says about itself, by the address of its page."
    found = {}
    for file in sorted(
        f for f in nbs.rglob("*") if f.suffix in (".ipynb", ".qmd") and ".ipynb_checkpoints" not in f.parts
    ):
        name = file.relative_to(nbs).with_suffix("").as_posix()
        if file.suffix == ".qmd":
            found[name] = front(file, name)
        else:
            found[name] = told(
                "".join(json.loads(file.read_text(encoding="utf-8"))["cells"][0]["source"]).splitlines(), name
            )
    return found


def patterns(entry: str | list | dict) -> list[str]:
    "The files and patterns in a part of the sidebar of _quarto.yml."
    if isinstance(entry, str): return [entry]
    if isinstance(entry, dict): return patterns(entry.get("href") or []) + patterns(entry.get("contents") or [])
    return [name for part in entry for name in patterns(part)]


def head(title: str, about: str, top: str, markdown: str = "") -> str:
    "What stands in the head of every page."
    lines = [
        '<meta charset="utf-8">',
        f"<script>{THEME}</script>",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f'<meta name="description" content="{escape(about)}">' if about else "",
        f'<link rel="icon" href="{top}assets/favicon.svg">',
        *(f'<link rel="stylesheet" href="{top}{name}">' for name in STYLES),
        *(f'<script src="{top}{name}" defer></script>' for name in SCRIPTS),
        f'<link rel="alternate" type="text/markdown" href="{markdown}">' if markdown else "",
    ]
    return "\n".join(filter(None, lines))


def toc_short(toc: str, title: str) -> str:
    "The table of contents where beside the text there is no room for it."
    return f'<details class="toc-short"><summary>{title}</summary>{toc}</details>' if toc else ""


class Navigation:
    "The pages of the site in their sections, as _quarto.yml lists them."
    def __init__(self, contents: list, pages: dict[str, Page], facts: dict):
        self.facts = facts
        self.by_name = pages
        # a pattern leaves out what stands elsewhere by name
        self.named = {name.rpartition(".")[0] for name in patterns(contents)} | {CHANGELOG}
        self.sections = [part for entry in contents if "section" in entry and (part := self.part(entry)).entries]
        for part in [*self.sections, *(p for s in self.sections for p in s.entries if isinstance(p, Part))]:
            self.by_name.setdefault(part.index.partition("#")[0], Page(part.index.partition("#")[0], part.text))
        self.place = {page.name: (section, group) for section in self.sections for page, group in self.grouped(section)}
        titles = Counter(page.title for page in pages.values())
        self.shared = {title for title, pages_with_it in titles.items() if pages_with_it > 1}
        self.sources = {module: origin for module, origin in facts["modules"].items() if origin in self.place}

    def part(self, entry: dict, parent: str = "") -> Part:
        "A section or group of _quarto.yml. What has no page that lists it is listed by its section's."
        index = entry["href"].rpartition(".")[0] if "href" in entry else f"{parent}#{anchor(entry['section'])}"
        found = Part(entry["section"], index)
        contents = entry.get("contents") or []
        for content in ([contents] if isinstance(contents, str) else contents):
            if isinstance(content, dict): found.entries += [part] if (part := self.part(content, index)).entries else []
            else: found.entries += self.matching(content)
        return found

    def matching(self, pattern: str) -> list[Page]:
        "The pages of a pattern, sorted by their `order`, then by name."
        name = pattern.rpartition(".")[0]
        if "*" not in name: return [self.by_name[name]] if name in self.by_name else []
        found = [
            page
            for page in self.by_name.values()
            if re.fullmatch(name.replace("*", "[^/]*"), page.name) and page.name not in self.named
        ]
        return sorted(found, key=lambda page: (page.order, page.name))

    def grouped(self, section: Part) -> Iterator[tuple[Page, Part | None]]:
        "Every page of a section with its group, in the order in which they are read."
        yield self.by_name[section.index], None
        for entry in section.entries:
            if isinstance(entry, Page): yield entry, None
            elif "#" in entry.index: yield from ((page, entry) for page in entry.pages())
            else: yield from ((page, entry) for page in (self.by_name[entry.index], *entry.pages()))

    def home(self, name: str) -> str:
        "The page that stands for this one in the sidebar: for the code of a module the page that it is exported from."
        return self.sources.get(name.removeprefix("source/"), name) if name.startswith("source/") else name

    def kind(self, name: str) -> str:
        "What a page is for."
        if name in ("index", "404", "gallery", "clinic"): return {"index": "home", "404": "missing"}.get(name, name)
        if name.startswith("source/"): return "source"
        if name.startswith("lib/exercises/lesson-"): return "check"  # shows solutions
        section, _ = self.place.get(name, (None, None))
        if section and section.index == name: return "list"
        return KINDS.get(section.folder if section else name.partition("/")[0], "other")

    def tab_title(self, name: str, title: str) -> str:
        "The title of a page as a tab or a bookmark has it, where no two may be alike: with its lesson, or its group."
        page = self.by_name.get(name)
        if page is None or name not in self.place: return title
        if page.number: return f"Lesson {page.number}: {title}"
        if page.title not in self.shared: return title
        section, group = self.place[name]
        return title.replace(page.title, f"{page.title} · {(group or section).text}")

    def neighbors(self, name: str) -> tuple[Page | None, Page | None]:
        "The pages before and after one in its section."
        if name not in self.place: return None, None
        order = [page for page, _ in self.grouped(self.place[name][0])]
        at = next(i for i, page in enumerate(order) if page.name == name)
        return order[at - 1] if at else None, order[at + 1] if at + 1 < len(order) else None

    # ---- the pieces of the frame; `top` leads from the page to where the site begins

    def header(self, name: str, top: str) -> str:
        "The bar at the top and the tabs."
        section, _ = self.place.get(self.home(name), (None, None))
        current = section and BELONGS.get(section.folder, section.folder)
        menu = (
            '<button type="button" class="menu-toggle" popovertarget="quarto-sidebar" aria-controls="quarto-sidebar" '
            f'aria-expanded="false" aria-label="Pages in this section">{ICONS["menu"]}</button>'
            if section
            else ""
        )
        repository = (
            f'<a class="repository" href="{self.facts["repository"]}">Repository</a>'
            if "repository" in self.facts
            else ""
        )
        tabs = "".join(
            f'<a href="{top}{tab.index}.html"{here(tab.index == name, tab.folder == current)}>{escape(tab.text)}</a>'
            for tab in self.sections
            if tab.folder not in BELONGS
        )
        return (
            f'{SKIP_LINK}<header id="quarto-header"><div class="bar">{menu}'
            f'<a class="navbar-brand" href="{top}index.html"><img class="navbar-logo" src="{top}assets/favicon.svg" '
            f'alt="" role="presentation" width="28" height="28">'
            f'<span class="navbar-title">{escape(self.facts["name"])}</span></a>'
            f'<div class="site-tools">{repository}{TOOLS}</div></div>'
            f'<nav class="site-tabs" aria-label="Sections">{tabs}</nav></header>'
        )

    def sidebar(self, name: str, top: str) -> str:
        """The section that a page is in: its own group open, the others as links to the page that lists them. Where no
        group has a page of its own, as in the lessons, all are open."""
        section, group = self.place.get(self.home(name), (None, None))
        if section is None: return ""
        current = self.home(name)
        lines = []
        all_open = all("#" in entry.index for entry in section.entries if isinstance(entry, Part))
        for entry in section.entries:
            if isinstance(entry, Page):
                lines.append(f'<li class="sidebar-item">{self.link(entry, name, current, top)}</li>')
            else: lines.append(self.group(entry, all_open or entry is group, name, current, top))
        for part in (p for p in self.sections if BELONGS.get(p.folder) == section.folder):
            lines.append(
                f'<li class="sidebar-item sidebar-apart"><a class="sidebar-link" href="{top}{part.index}.html">'
                f"{escape(part.text)}</a></li>"
            )
        mark = here(section.index == name)
        title = f'<a class="sidebar-title" href="{top}{section.index}.html"{mark}>{escape(section.text)}</a>'
        return (f'<nav id="quarto-sidebar" class="site-sidebar" popover aria-label="{escape(section.text)}">{title}'
                f'<ul>{"".join(lines)}</ul></nav>')

    def group(self, part: Part, opened: bool, name: str, current: str, top: str) -> str:
        mark = here(part.index == name, part.index == current)
        link = f'<a class="sidebar-link" href="{top}{address(part.index)}"{mark}>{escape(part.text)}</a>'
        if not opened: return f'<li class="sidebar-item sidebar-group">{link}</li>'
        inner = "".join(f'<li class="sidebar-item">{self.link(page, name, current, top)}</li>' for page in part.pages())
        return f'<li class="sidebar-item sidebar-group">{link}<ul>{inner}</ul></li>'

    def link(self, page: Page, name: str, current: str, top: str) -> str:
        number = f'<span class="lesson-number">{page.number}</span>' if page.number else ""
        mark, text = here(page.name == name, page.name == current), text_of(page.short or page.title)
        return f'<a class="sidebar-link" href="{top}{page.name}.html"{mark}>{number}{text}</a>'

    def breadcrumb(self, name: str, top: str) -> str:
        "Where a page stands: the section and the group, not the title that follows."
        section, group = self.place.get(self.home(name), (None, None))
        if section is None: return ""
        steps = [(tab.text, tab.index) for tab in self.sections if tab.folder == BELONGS.get(section.folder)]
        if section.index != name: steps.append((section.text, section.index))
        if not steps: return ""
        if group and group.index != name: steps.append((group.text, group.index))
        page = self.by_name.get(self.home(name))
        if name.startswith("source/"): steps.append((page.short or page.title, page.name))
        links = [f'<a href="{top}{address(index)}">{text_of(text)}</a>' for text, index in steps]
        crumbs = [f'<li class="breadcrumb-item">{link}</li>' for link in links]
        if page.number and not name.startswith("source/"):
            crumbs.append(f'<li class="breadcrumb-item" aria-current="page">{page.number}</li>')
        listed = f'<ol class="breadcrumb">{"".join(crumbs)}</ol>'
        return f'<nav class="quarto-page-breadcrumbs" aria-label="Breadcrumbs">{listed}</nav>'

    def page_navigation(self, name: str, top: str) -> str:
        "Links to the pages before and after."
        links = [
            f'<a class="pagination-link" rel="{rel}" href="{top}{page.name}.html"><small>{label}</small>'
            f"<span>{page.number} {text_of(page.title)}</span></a>"
            if page
            else "<span></span>"
            for page, rel, label in zip(self.neighbors(name), ("prev", "next"), ("Previous", "Next"))
        ]
        return (
            f'<nav class="page-navigation" aria-label="Previous and next page">{"".join(links)}</nav>'
            if any(self.neighbors(name))
            else ""
        )

    def footer(self, name: str, markdown: str) -> str:
        "Version and license, the page as Markdown, and links to the repository."
        copy = f' · <a href="{markdown}">This page as Markdown</a>' if markdown else ""
        more = "".join(f' · <a href="{escape(url)}">{text}</a>' for text, url in page_links(self.facts, name))
        top, licence = "../"*name.count("/"), f"{self.facts['license']} license"
        if LICENCE in self.by_name: licence = f'<a href="{top}{LICENCE}.html">{licence}</a>'
        if CONTRIBUTING in self.by_name: more += f' · <a href="{top}{CONTRIBUTING}.html">Contributing</a>'
        version = self.facts["version"]
        if CHANGELOG in self.by_name: version = f'<a href="{top}{CHANGELOG}.html">{version}</a>'
        said = f"{self.facts['name']} {version} · {licence}"
        return f'<footer class="site-footer">{said}{copy}{more}</footer>'


def address(index: str) -> str:
    "The address of a page, or of a part of it, from its name."
    name, _, part = index.partition("#")
    return f"{name}.html#{part}" if part else f"{name}.html"


def here(page: bool, around: bool = False) -> str:
    "Marks the link to the page that one is on, or to what the page belongs to."
    return ' aria-current="page"' if page else ' aria-current="true"' if around else ""


def anchor(text: str) -> str:
    "The anchor that both renderers give to a heading."
    return re.sub(r"[^\w.-]+", "-", text.lower()).strip("-")


def text_of(markdown: str) -> str:
    "A title as HTML: backticks become code."
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(markdown, quote=False))


def frame(
    nav: Navigation, name: str, top: str, kind: str, head: str, main: str, toc: str, toc_title: str, markdown: str
) -> str:
    "A whole page around the text `main`."
    before, after = around(nav, name, top, toc, toc_title, markdown)
    return (f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body data-kind="{kind}">{before}'
            f'<main class="content" id="quarto-document-content" tabindex="-1">{main}</main>{after}</body></html>\n')


def around(nav: Navigation, name: str, top: str, toc: str, toc_title: str, markdown: str) -> tuple[str, str]:
    "What stands before the text and after it."
    beside = f'<nav id="TOC" aria-labelledby="toc-title"><h2 id="toc-title">{toc_title}</h2>{toc}</nav>' if toc else ""
    return (f'{nav.header(name, top)}{NO_SCRIPTS}<div id="quarto-content">{nav.sidebar(name, top)}',
            f'<div id="quarto-margin-sidebar">{beside}</div></div>{nav.footer(name, markdown)}')
