"""The pages that list the pages of a section: nbs/lessons/index.qmd and its like say what the section is for, and here
follows what is in it, so that no list can be out of date."""
import re
from pathlib import Path

from site_frame import Navigation, Page, Part

PLACE = "::: {#pages}\n:::\n"
INSIDE = "inside/index"


def write_lists(nbs: Path, to: Path, nav: Navigation, names: dict[str, list[tuple[str, str]]]):
    "Fills the place for the pages in the list of each section; `names` are what a page documents, with their places."
    for section in nav.sections:
        file = f"{section.index}.qmd"
        if not (nbs/file).exists(): continue
        up = "../"*section.index.count("/")
        listing = titles if section.index == INSIDE else page_list
        parts = [listing([page for page in section.entries if isinstance(page, Page)], up, names)]
        parts += [f"{heading(part, up, nav)}\n\n{listing([*part.pages()], up, names)}"
                  for part in section.entries if isinstance(part, Part)]
        (to / file).write_text(
            (nbs / file).read_text(encoding="utf-8").replace(PLACE, "\n\n".join(parts) + "\n"), encoding="utf-8"
        )


def heading(part: Part, up: str, nav: Navigation) -> str:
    "The heading of a group of pages, with what its own page is about if it has one."
    if "#" in part.index: return f"## {part.text}"
    return f"## [{part.text}]({up}{part.index}.ipynb)\n\n{nav.by_name[part.index].about}"


def titles(pages: list[Page], up: str, names: dict) -> str:
    "The titles alone: those who change hooklab look for one, and what a module does is on its page."
    links = (f"- [{title(page)}]({address(page, up)})" for page in pages)
    return "\n".join(["::: {.page-list}", *links, ":::"]) if pages else ""


def page_list(pages: list[Page], up: str, names: dict) -> str:
    "A line for each page: its title, what it is about, the names that it documents."
    items = (item(page, up, names.get(page.name, [])) for page in pages)
    return "\n".join(["::: {.page-list}", *items, ":::"]) if pages else ""


def title(page: Page) -> str: return re.sub(r"[\[\]]", "", page.title)


def address(page: Page, up: str) -> str: return f"{up}{page.name}{page.suffix}"


def item(page: Page, up: str, names: list[tuple[str, str]]) -> str:
    number = f"{page.number} " if page.number else ""
    documented = ", ".join(f"[`{name}`]({up}{place})" for name, place in names)
    below = [f"\n    {text}\n" for text in (page.about, documented) if text]
    lines = [f"- [{number}{title(page)}]({address(page, up)})", *below]
    return "\n".join(lines)
