"""The glossary: an address for each of its words, and their meaning where a page first uses them.

A word that is explained is a link to the glossary, so it works with the keyboard and without a script;
nbs/assets/around.js shows its meaning beside it on hover and focus."""
import re
from copy import copy
from dataclasses import dataclass

from bs4 import BeautifulSoup, NavigableString, Tag

PAGE = "explain/glossary"
# On these a word is explained; a page of code, of a finding or for contributors has readers who know the words.
EXPLAINED_ON = {"lesson", "howto", "explain", "reference", "home"}
LEFT_ALONE = {PAGE, "explain/references", "explain/changelog", "explain/contributing"}
NOT_IN = {"a", "code", "pre", "strong", "summary", "button", "details", "table", "blockquote", "math"}
# How a word stands in texts, where that is not simply the word, with or without an s.
SPOKEN = {
    "ablate": r"ablat(?:e[sd]?|ing|ion)", "alias, view": r"alias(?:es)?", "NaN, inf": r"NaNs?",
    "attention head, pattern": r"attention (?:heads?|patterns?)", "frozen": r"frozen|freez(?:es?|ing)",
    "in place": r"in[ -]place",
    "control": r"(?<=\bthe )control|(?<=\ba )control", "graph": r"(?<=\bthe )graph", "handle": r"(?<=\bthe )handle",
    "head": r"(?<=\bthe )head(?=[ ,.])", "pass": r"(?<=\beach )pass|(?<=\bone )pass|(?<=\bthe same )pass",
    "patch": r"patch(?:ed|ing)", "probe": r"(?<=\ba )probe|probes", "saturated": r"saturat(?:ed|es?|ion)",
    "gradient of an input": r"gradients? of (?:an|its|the) inputs?",
    "gradient of an output": r"gradients? of (?:an|its|the) outputs?",
    "scaled dot product attention": r"scaled[ -]dot[ -]product attention",
    "vanishing, exploding gradient": r"(?:vanishing|exploding) gradients?|gradients? (?:vanish|explode)s?",
}
# Words that stand in every other sentence, and would be explained where nobody asks.
COMMON = {"activation", "book", "call", "extra", "guard", "hook", "kind", "layer", "node, edge", "port", "rank",
          "replica", "root", "share", "stage", "tree", "unit", "worker", "wrapper"}


@dataclass(frozen=True)
class Word:
    "A word of the glossary: its address there, what it means, and how it stands in texts."
    id: str
    meaning: str
    pattern: re.Pattern


def slug(text: str) -> str:
    "A word as the name of a place on a page."
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def rows(soup: BeautifulSoup) -> list[tuple[Tag, str, Tag]]:
    "(row, word, cell with its meaning) of each word of the glossary."
    found = [(row, row.find_all("td")) for row in soup.main.find_all("tr")]
    return [(row, cells[0].get_text(" ", strip=True), cells[1]) for row, cells in found if len(cells) == 2]


def meaning(cell: Tag) -> str:
    "What a word means, without the link that follows."
    cell = copy(cell)
    if (link := cell.find_all("a")[-1:]) and str(link[0].next_sibling or ".").strip() == ".":
        if link[0].next_sibling: link[0].next_sibling.extract()
        link[0].extract()
    return " ".join(cell.get_text().split())


def read_glossary(soup: BeautifulSoup) -> list[Word]:
    "The words that are explained on pages, longest first: a forward pass is explained as that, and not as a pass."
    found = [(word, meaning(cell)) for _, word, cell in rows(soup) if word not in COMMON]
    def pattern(word):
        text = SPOKEN.get(word) or re.escape(word) + "s?"
        return re.compile(rf"(?<![\w-])(?:{text})(?![\w-])", re.I if word.islower() and len(word) > 3 else 0)
    return sorted((Word(slug(word), means, pattern(word)) for word, means in found), key=lambda word: -len(word.id))


def address_words(soup: BeautifulSoup):
    "Gives each word of the glossary an address."
    for row, word, _ in rows(soup): row["id"] = slug(word)


def explain_words(soup: BeautifulSoup, words: list[Word], top: str):
    "Makes each word of the glossary a link to its meaning where the page first uses it in a sentence."
    left = list(words)
    for part in soup.main.find_all(["p", "li"]):
        if not left: return
        if part.find_parent(NOT_IN) or part.find_parent(class_="cell-output"): continue
        for text in part.find_all(string=True):
            if not left: return
            if any(parent.name in NOT_IN for parent in text.parents if parent is not soup): continue
            mark_words(text, left, top)


def mark_words(text: NavigableString, left: list[Word], top: str):
    "Explains in a piece of text those words that are still to be explained, and takes them from the list."
    while text is not None:
        matches = [(word.pattern.search(text), word) for word in left]
        found = [(match.start(), -len(match[0]), word, match) for match, word in matches if match]
        if not found: return
        _, _, word, match = min(found, key=lambda one: one[:2])
        left.remove(word)
        href = f"{top}{PAGE}.html#{word.id}"
        link = Tag(name="a", attrs={"class": "term", "href": href, "data-meaning": word.meaning})
        link.string = match[0]
        before, after = text[:match.start()], NavigableString(text[match.end():])
        text.replace_with(NavigableString(before), link, after)
        text = after
