"""Finds what is wrong with finished pages: dead links, pictures without a text, anything loaded from another host."""
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from bs4 import BeautifulSoup
from bs4.element import PreformattedString

REMOTE = re.compile(r"\s*(https?:)?//", re.I)
CSS_REMOTE = re.compile(r"""(?:url\(\s*|@import\s+)["']?\s*((?:https?:)?//[^\s"')]+)""", re.I)
JS_REMOTE = re.compile(
    r"""(?:\bimport\b\s*\(?|\bfrom\b|\bfetch\(|\bimportScripts\(|\bsrc\s*=|\bnew\s+(?:Worker|WebSocket|EventSource)\()\s*["'`]"""
    r"""((?:https?:|wss?:)?//[^"'`\s]+)"""
)
LOADS = {"script": ["src"], "img": ["src", "srcset"], "link": ["href"], "iframe": ["src"], "source": ["src", "srcset"],
         "video": ["src", "poster"], "audio": ["src"], "embed": ["src"], "object": ["data"], "track": ["src"],
         "image": ["href", "xlink:href"], "use": ["href", "xlink:href"], "input": ["src"], "form": ["action"]}
# The tags of a page, without reading it as a tree: text and code hold no bare `<`.
HIDDEN = re.compile(r"<!--.*?-->|(?<=>)[^<]*(?=</script>)|(?<=<script>).*?(?=</script>)", re.S)
INSIDE = re.compile(r"<(style|script)\b[^>]*>(.*?)</\1>", re.S)
TAG = re.compile(r"""<([a-zA-Z][\w-]*)((?:\s+[^\s<>=/"']+(?:\s*=\s*(?:"[^"]*"|'[^']*'))?)*)\s*/?>""")
ATTRIBUTE = re.compile(r"""\s([^\s<>=/"']+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'))?""")


@dataclass(frozen=True)
class Links:
    "Where the links of a page lead, and where links to it may lead."
    hrefs: tuple[str, ...]
    ids: frozenset[str]


@lru_cache(maxsize=1)  # a page is asked for several times in a row
def attributes(text: str) -> list[tuple[str, str, str]]:
    "(tag, attribute, value) of all elements of a page; elements that are alike, such as those of code, come once."
    found = []
    for tag, inside in dict.fromkeys(TAG.findall(HIDDEN.sub("", text))):
        found.append((tag, "", ""))
        for name, double, single in ATTRIBUTE.findall(inside):
            found.append((tag, name, (double or single).replace("&amp;", "&")))
    return found


def links_of(text: str) -> Links:
    "The links and the places of a page."
    every = attributes(text)
    hrefs = dict.fromkeys(value for tag, name, value in every if name in ("href", "src") and tag != "use")
    hrefs |= dict.fromkeys(part.split()[0] for _, name, value in every if name == "srcset" for part in value.split(","))
    return Links(tuple(hrefs), frozenset(value for _, name, value in every if name == "id"))


def problems(docs: Path) -> list[str]:
    "One line for each fault of the pages, stylesheets and scripts of a folder."
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(docs.rglob("*.html"))}
    trees = {file: BeautifulSoup(text, "html.parser") for file, text in texts.items()}
    found = {file: page_problems(tree, str(tree)) for file, tree in trees.items()}  # written in one way
    return all_problems(docs, {file: links_of(text) for file, text in texts.items()}, found)


def all_problems(docs: Path, links: dict[Path, Links], found: dict[Path, list[str]]) -> list[str]:
    "The faults of a site whose pages have been looked at one by one."
    lines = [
        f"{file.relative_to(docs).as_posix()}: {problem}"
        for file in links
        for problem in (*dead_links(file, links), *found.get(file, ()))
    ]
    for file in (*docs.rglob("*.css"), *docs.rglob("*.js")):
        text = file.read_text(encoding="utf-8")
        lines += [
            f"{file.relative_to(docs).as_posix()}: loads {url} from the network: "
            "keep a copy in nbs/assets, or do without"
            for url in (CSS_REMOTE if file.suffix == ".css" else JS_REMOTE).findall(text)
        ]
    return list(dict.fromkeys(lines))


def target(file: Path, url: SplitResult) -> Path:
    "The file that a link on the page `file` leads to."
    path = Path(os.path.normpath(file.parent/unquote(url.path))) if url.path else file
    return path/"index.html" if path.is_dir() else path


def dead_links(file: Path, links: dict[Path, Links]) -> list[str]:
    "Links within the site that lead nowhere."
    found = []
    for href in links[file].hrefs:
        url = urlsplit(href)
        if url.scheme or url.netloc: continue
        place = target(file, url)
        if place not in links and not place.exists(): found.append(f"dead link {href}")
        elif url.fragment and place in links and unquote(url.fragment) not in links[place].ids:
            found.append(f"dead link {href} (the page exists, but not this anchor)")
    return found


def page_problems(soup: BeautifulSoup, text: str) -> list[str]:
    "What can be seen on a page alone."
    return [*raw_links(soup), *raw_code(soup), *unlabeled_pictures(soup), *remote_loads(text)]


def raw_links(soup: BeautifulSoup) -> list[str]:
    "Links that are shown as they were typed: nbdev makes links of symbols in backticks, also inside another link."
    return [
        f"shown as text: “…{text.strip()[:60]}…”: a link's text must not hold a symbol in backticks"
        for text in soup.find_all(string=re.compile(r"\]\(\S"))
        if not text.find_parent(["code", "pre", "script", "style", "math"])
    ]


def raw_code(soup: BeautifulSoup) -> list[str]:
    "Backticks that are shown as they were typed."
    return [
        f"shown as text: “…{text.strip()[:60]}…”: a backtick, where no code can be marked or one of a pair is missing"
        for text in soup.find_all(string=re.compile("`"))
        if not isinstance(text, PreformattedString) and not text.find_parent(["code", "pre", "script", "style"])
    ]


def unlabeled_pictures(soup: BeautifulSoup) -> list[str]:
    "Pictures without a text for readers who cannot see them."
    pictures = [p for p in soup.find_all(["img", "svg"]) if p.find_parent("svg") is None
                and p.get("aria-hidden") != "true" and p.get("role") != "presentation"]
    return [f"picture {n} of the page has no alternative text: add `#| fig-alt: …` to its cell"
            for n, p in enumerate(pictures, 1) if not (p.get("alt") or p.get("aria-label") or "").strip()]


def remote_loads(text: str) -> list[str]:
    "What the page would load from another host. A link that the reader may follow is not loaded."
    urls = []
    for tag, name, value in attributes(text):
        if name in LOADS.get(tag, ()) and REMOTE.match(value): urls.append(value)
        if name == "style": urls += CSS_REMOTE.findall(value)
    for tag, inside in INSIDE.findall(text): urls += (CSS_REMOTE if tag == "style" else JS_REMOTE).findall(inside)
    return [f"loads {url} from the network: keep a copy in nbs/assets, or do without" for url in urls]
