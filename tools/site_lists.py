"""The pages that list the pages of a section: nbs/lessons/index.qmd and its like say what the section is for, and here
follows what is in it, so that no list can be out of date."""
import re
from pathlib import Path

from site_frame import Navigation, Page, Part

PLACE = "::: {#pages}\n:::\n"


def write_lists(nbs: Path, to: Path, nav: Navigation, names: dict[str, list[tuple[str, str]]]):
    "Fills the place for the pages in the list of each section; `names` are what a page documents, with their places."
    for section in nav.sections:
        file = f"{section.index}.qmd"
        if not (nbs/file).exists(): continue
        up = "../"*section.index.count("/")
        parts = [listing([page for page in section.entries if isinstance(page, Page)], up, names)]
        parts += [group(part, up, nav, names) for part in section.entries if isinstance(part, Part)]
        (to / file).write_text(
            (nbs / file).read_text(encoding="utf-8").replace(PLACE, "\n\n".join(parts) + "\n"), encoding="utf-8"
        )


def group(part: Part, up: str, nav: Navigation, names: dict) -> str:
    "A group of pages below a heading of its own."
    if "#" in part.index: return f"## {part.text}\n\n{listing([*part.pages()], up, names)}"
    page = nav.by_name[part.index]
    return f"## [{part.text}]({up}{part.index}.ipynb)\n\n{page.about}\n\n{listing([*part.pages()], up, names)}"


def listing(pages: list[Page], up: str, names: dict) -> str:
    "A line for each page: its title, what it is about, the names that it documents."
    return (
        "\n".join(["::: {.page-list}", *(item(page, up, names.get(page.name, [])) for page in pages), ":::"])
        if pages
        else ""
    )


def item(page: Page, up: str, names: list[tuple[str, str]]) -> str:
    number = f"{page.number} " if page.number else ""
    title = re.sub(r"[\[\]]", "", page.title)
    documented = ", ".join(f"[`{name}`]({up}{place})" for name, place in names)
    lines = [f"- [{number}{title}]({up}{page.name}{page.suffix})", *(f"\n    {text}\n" for text in (page.about, documented) if text)]
    return "\n".join(lines)
