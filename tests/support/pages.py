"""The pages of the site, for tests that read them."""
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from bs4 import BeautifulSoup

COLORS = re.compile(r'<span class="\w\w">([^<]*)</span>')  # of code: half of all elements


def without_colors(text: str) -> str: return COLORS.sub(r"\1", text)
def to_the_title(text: str) -> str: return text[:text.index("</header>", text.index("<main"))]
def from_the_neighbors(text: str) -> str: return text[re.search('<nav class="page-navigation"|<footer', text).start():]


class Pages(Mapping):
    "Every page by its name, read as a tree when it is asked for, and once; the colors of code are left out."
    def __init__(self, site: Path):
        self.files = {file.relative_to(site).as_posix(): file for file in sorted(site.rglob("*.html"))}
        self.texts = {name: file.read_text(encoding="utf-8") for name, file in self.files.items()}
        self.trees = {}

    def tree(self, name: str, part: Callable[[str], str]) -> BeautifulSoup:
        if (name, part) not in self.trees:
            self.trees[name, part] = BeautifulSoup(part(self.texts[name]), "html.parser")
        return self.trees[name, part]

    def __getitem__(self, name: str) -> BeautifulSoup: return self.tree(name, without_colors)
    def __iter__(self): return iter(self.files)
    def __len__(self): return len(self.files)

    def top(self, name: str) -> BeautifulSoup:
        "A page down to its title."
        return self.tree(name, to_the_title)

    def bottom(self, name: str) -> BeautifulSoup:
        "A page from the links to its neighbors on."
        return self.tree(name, from_the_neighbors)

    def having(self, part: str) -> list[BeautifulSoup]:
        "The pages that have something written in them."
        return [self[name] for name, text in self.texts.items() if part in text]
