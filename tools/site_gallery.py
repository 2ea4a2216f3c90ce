"""The gallery: every figure of the lessons on one page, those that show a symptom under its name."""
import re
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import moving
from bs4 import BeautifulSoup, Tag
from site_frame import LESSON

if TYPE_CHECKING:
    from site_pages import Report


def figures(soup: BeautifulSoup) -> list[Tag]:
    return [figure for figure in soup.main.find_all("figure") if (figure.img or figure.svg) and figure.figcaption]


def cell_of(figure: Tag) -> Tag: return figure.find_parent(class_="cell") or figure


def caption_of(figure: Tag) -> str:
    "The caption of a figure in one line, with backticks around code."
    texts = figure.figcaption.find_all(string=True)
    return " ".join("".join(f"`{text}`" if text.find_parent("code") else text for text in texts).split())


def show_code(soup: BeautifulSoup):
    "Makes code of what is in backticks in captions, which the renderer leaves as they are."
    for caption in soup.main.find_all("figcaption"):
        for text in caption.find_all(string=re.compile("`.+`")): text.replace_with(with_code(text))


def with_code(text: str) -> BeautifulSoup:
    "A text that has code in backticks."
    return BeautifulSoup(re.sub("`([^`]+)`", r"<code>\1</code>", escape(text, quote=False)), "html.parser")


def figures_of(soup: BeautifulSoup, file: Path, page: str) -> list[dict]:
    "What the gallery shows of the figures of a page. A cell that says `#| symptom: zeros` shows what zeros look like."
    notebook = (moving.NBS/page).with_suffix(".ipynb")
    symptoms = moving.marked(notebook, "symptom") if notebook.exists() else {}
    return [{"id": cell_of(figure)["id"], "image": picture_of(figure, file),
             "caption": (caption := caption_of(figure)),
             "symptom": symptoms.get(moving.plain(caption))} for figure in figures(soup)]


def picture_of(figure: Tag, file: Path) -> dict[str, str]:
    "The attributes of an `img` that shows the picture of a figure on the page `file`, seen from its folder."
    if figure.img: return dict(figure.img.attrs)
    number = f'data-figure="{figure.svg["data-figure"]}"'
    files = file.with_name(f"{file.stem}_files").glob("*.svg")
    saved = next(path for path in files if number in path.read_text(encoding="utf-8"))
    return {"src": saved.relative_to(file.parent).as_posix(), "loading": "lazy", "alt": figure.svg["aria-label"],
            "width": figure.svg["width"], "height": figure.svg["height"]}


def hang_gallery(soup: BeautifulSoup, docs: Path, lessons: dict[Path, "Report"]):
    """Shows every figure of the lessons once, each a link to the place where it is made: those that show a symptom
    where the page asks for it with an empty block of that id, `::: {#shows-zeros}`, the others below, by lesson."""
    symptoms, new = defaultdict(list), soup.new_tag
    for file, report in lessons.items():
        page = file.relative_to(docs).as_posix()
        lesson = LESSON.search(page)
        others = new("div", attrs={"class": "gallery-row"})
        for figure in report.figures:
            said = lesson[1] if lesson else report.title
            if figure["symptom"]: symptoms[figure["symptom"]].append(hung(figure, page, said))
            else: others.append(hung(figure, page))
        if not others.contents: continue
        heading = new("h3", id=file.stem)
        heading.append(link := new("a", href=page))
        link.string = (f"{lesson[1]} · " if lesson else "") + report.title
        soup.find(id="gallery").extend([heading, others])
    for symptom, links in symptoms.items():
        block = soup.find(id=f"shows-{symptom}")
        if block is None: raise ValueError(f"A figure asks for {{#shows-{symptom}}}, which the gallery lacks")
        block["class"] = "gallery-row"
        block.extend(links)
    soup.main.append(new("script", src="assets/gallery.js"))  # a filter


def opening(caption: str) -> str:
    "A caption up to its first mark, but for commas of a list: the rest is where the link leads."
    found = re.match(r"(?:\S+ ){3,}?\S+?(?=[:;.!?…](?: |$)|, (?!.*, (?:and|or) )| \()", caption)
    return found[0] if found else caption


def hung(figure: dict, page: str, lesson: str = "") -> Tag:
    "The picture of a figure with its caption, and the lesson where that is not said above it."
    place, caption = Tag(name="a", attrs={"href": f"{page}#{figure['id']}"}), Tag(name="span")
    source = f"{page.rpartition('/')[0]}/{figure['image']['src']}"
    place.append(Tag(name="img", attrs=figure["image"] | {"src": source, "class": []}, can_be_empty_element=True))
    caption.append(with_code((f"{lesson} · " if lesson else "") + opening(figure["caption"])))
    place.append(caption)
    return place
