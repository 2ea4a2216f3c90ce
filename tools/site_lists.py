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
        more = section.index != INSIDE  # those who change hooklab look for a title, and the rest is on its page
        parts = [page_list([page for page in section.entries if isinstance(page, Page)], up, names, more)]
        parts += [f"{heading(part, up, nav)}\n\n{page_list([*part.pages()], up, names, more)}"
                  for part in section.entries if isinstance(part, Part)]
        (to / file).write_text(
            (nbs / file).read_text(encoding="utf-8").replace(PLACE, "\n\n".join(parts) + "\n"), encoding="utf-8"
        )


def heading(part: Part, up: str, nav: Navigation) -> str:
    "The heading of a group of pages, with what its own page is about if it has one."
    if "#" in part.index: return f"## {part.text}"
    return f"## [{part.text}]({up}{part.index}.ipynb)\n\n{nav.by_name[part.index].about}"


def page_list(pages: list[Page], up: str, names: dict, more: bool) -> str:
    "A line for each page with its title and, if there is to be more, what it is about and the names that it documents."
    items = (item(page, up, names.get(page.name, []), more) for page in pages)
    return "\n".join(["::: {.page-list}", *items, ":::"]) if pages else ""


def item(page: Page, up: str, names: list[tuple[str, str]], more: bool) -> str:
    number, title = f"{page.number} " if page.number else "", re.sub(r"[\[\]]", "", page.title)
    documented = ", ".join(f"[`{name}`]({up}{place})" for name, place in names)
    below = [f"\n    {text}\n" for text in (page.about, documented) if more and text]
    return "\n".join([f"- [{number}{title}]({up}{page.name}{page.suffix})", *below])
