"""Figures that move: hooklab measures their data on the networks of the lessons.

Below a cell of a notebook that says `#| moving: learning-rate` comes a moving figure of that name. The static one, to
which the text refers, stays. A picture below the comment `<!-- moving: digit -->` is replaced by its moving figure; a
comment without a picture is a place where nothing was before. nbs/assets/moving/learning-rate.js draws the figure, and
tools/moving/learning_rate.py measures what it shows. `make figures` (python -m moving) measures again.
"""
import hashlib
import inspect
import json
import re
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import yaml
from bs4 import BeautifulSoup, Comment, Tag

NBS = Path(__file__).resolve().parents[2]/"nbs"
ASSETS = NBS/"assets"/"moving"
# which module measures the data of a figure
DATA = {"learning-rate": "learning_rate", "six-hooks": "six_hooks", "first-weights": "first_weights",
        "patching": "patching", "digit": "digit", "units": "units", "layer-names": "layer_names", "cover": "cover"}
COMMENT = re.compile(r"^\s*moving: (\S+)\s*$")


def data_file(name: str) -> Path: return ASSETS/f"{name}-data.js"
def module(name: str) -> ModuleType: return import_module(f"moving.{DATA[name]}")


def fingerprint(name: str) -> str:
    "Changes with the program that measures, and with what it takes from lessons."
    used = [inspect.getsource(module(name)), *(lesson.code for lesson in module(name).lessons)]
    return hashlib.sha256("\0".join(used).encode()).hexdigest()[:16]


def torch_version() -> str:
    "The release, without its patch: the numbers of a training run may be others in another one."
    return ".".join(version("torch").split(".")[:2])


def write(name: str):
    "Measures what a figure shows, and writes it as a script: a page opened from the disk may load scripts, not data."
    data = {"made_from": fingerprint(name), "torch": torch_version(), **module(name).measure()}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    data_file(name).write_text(f'(window.movingData ??= {{}})["{name}"] = {text};\n', encoding="utf-8")


def read(name: str) -> dict:
    "The data of a figure, as its page gets them."
    return json.loads(re.search(r" = (\{.*\});$", data_file(name).read_text(encoding="utf-8"), re.S)[1])


@cache
def cells(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]]


def marked(notebook: Path, word: str) -> dict[str, str]:
    "The caption of each figure of a notebook whose cell says `#| word: value`, and the value."
    return {plain(yaml.safe_load(re.search(r"^#\| fig-cap: (.+)$", cell, re.M)[1])): found[1]
            for cell in cells(notebook) if (found := re.search(rf"^#\| {word}: (\S+)$", cell, re.M))}


def plain(text: str) -> str: return " ".join(re.sub("[`*_]", "", text).split())


def unmarked(text: str) -> str:
    "Markdown without the places of moving figures."
    return re.sub(r"^<!-- moving: \S+ -->\n*", "", text, flags=re.M)


def place(soup: BeautifulSoup, page: str):
    "Makes the places of the moving figures of a page, and loads what draws them."
    notebook = (NBS/page).with_suffix(".ipynb")
    if not notebook.exists(): return
    wanted = marked(notebook, "moving")
    areas = {}
    for figure in soup.main.find_all("figure"):
        if figure.figcaption and (name := wanted.get(plain(figure.figcaption.get_text()))):
            cell = figure.find_parent(class_="cell") or figure
            cell.insert_after(area := soup.new_tag("div"))
            areas[name] = area
    for comment in soup.main.find_all(string=lambda text: isinstance(text, Comment)):
        if name := COMMENT.match(comment): areas[name[1]] = picture_below(comment).wrap(soup.new_tag("div"))
    if missing := set(wanted.values()) - areas.keys():
        raise ValueError(f"{page} has no figure for {', '.join(missing)}: its cell needs `#| fig-cap:` too")
    assets = "../"*page.count("/") + "assets/"
    for name, area in areas.items():
        area.attrs |= {"class": "moving", "data-figure": name}
        # right after it: what follows is laid out when the figure has its size, and does not jump
        area.insert_after(*(soup.new_tag("script", src=f"{assets}moving/{name}{part}.js") for part in ("-data", "")))
    if not areas: return
    first = soup.main.find(class_="moving")
    first.insert_before(soup.new_tag("link", rel="stylesheet", href=f"{assets}moving.css"))
    first.insert_before(soup.new_tag("script", src=f"{assets}moving.js"))


def picture_below(comment: Comment) -> Tag:
    "The picture that comes next, or, where something else comes next, an empty place for the figure."
    below = comment.find_next_sibling()
    if below and below.name == "figure": return below
    if below and (below.name == "p" or "quarto-figure" in below.get("class", [])) and below.figure: return below.figure
    picture = below and (below if below.name == "picture" else below.picture)
    if picture: return picture.wrap(Tag(name="figure"))
    comment.insert_after(empty := Tag(name="figure", attrs={"hidden": ""}))
    return empty
