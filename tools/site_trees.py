"""A page as a tree, of no more elements than somebody asks for: it is read, searched and written faster."""
import re
from copy import copy
from functools import cache
from html import unescape
from pathlib import Path

from bs4 import BeautifulSoup, Tag
from bs4.element import PreformattedString

# What the renderers write and nobody sees: operators have the color of the text, and assets/site.css draws icons.
UNSEEN = re.compile(r'<span class="op">([^<]*)</span>|<i class="bi[^"]*"></i>')
AS_BEFORE = re.compile(r'(<span class="(\w\w)">[^<]*)</span><span class="\2">')  # a token of the same color follows
CODE = re.compile(r"(<pre\b[^>]*>)(.*?)(?=</pre>)", re.S)
QUOTE = re.compile(r"&(?:quot|#39|#x27);(?=[^<>]*(?:<|$))")  # in a text, where it may stand as it is


class Finished(PreformattedString):
    "HTML that is written as it is, and not read again."
    PREFIX = SUFFIX = ""


class Code(Finished):
    "What stands in a `pre`: more than half of all elements of a page are the colors of its code."
    @property
    def plain(self) -> str:
        "The text alone."
        return unescape(re.sub(r"<[^>]*>", "", self))


def read(file: Path) -> BeautifulSoup:
    "A page as a tree, without what nobody sees; its code is not taken apart."
    text = AS_BEFORE.sub(r"\1", UNSEEN.sub(lambda found: found[1] or "", file.read_text(encoding="utf-8")))
    codes = [QUOTE.sub(lambda found: unescape(found[0]), code) for _, code in CODE.findall(text)]
    soup = BeautifulSoup(CODE.sub(r"\1", text), "html.parser")
    for pre, code in zip(soup.find_all("pre"), codes): pre.append(Code(code))
    return soup


@cache
def parsed(text: str) -> Tag:
    "The first element of a piece of HTML, to be copied."
    return BeautifulSoup(text, "html.parser").find()


def fragment(text: str) -> Tag:
    "The first element of a piece of HTML, read once however often it is needed."
    return copy(parsed(text))
