"""The English of pages, docstrings and messages: words that a native writer would not choose, counted."""
import ast
import json
import re
from collections.abc import Iterator
from functools import cache

import pytest

from support.checks import REPO

# How often each still stands. A number here may only fall: whoever takes one out writes the lower number.
WORST = json.loads((REPO/"tests/support/worst_words.json").read_text(encoding="utf-8"))
# An id of a finding, what learners may type, a title of a paper.
KEPT = re.compile("not initialised|(?:not |un)normalised|initialised to zero|Towards Best Practices")
CODE = re.compile(r"```.*?```|`[^`\n]*`|\$[^$\n]*\$|<[a-z/!][^>\n]*>|\]\([^)]*\)|\{[^}\n]*\}|^#\|.*$|https?://\S+",
                  re.DOTALL | re.MULTILINE)


def pages() -> Iterator[str]:
    "What is written in notebooks and pages, without code. Cases are made by a program."
    for file in sorted((REPO/"nbs").rglob("*.ipynb")):
        if file.is_relative_to(REPO/"nbs/cases") or ".ipynb_checkpoints" in file.parts: continue
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown": yield source
            else: yield from re.findall(r"^#\| (?:fig-cap|fig-alt|code-summary): (.*)$", source, re.MULTILINE)
    for file in (*sorted((REPO/"nbs").rglob("*.qmd")), REPO/"CHANGELOG.md", REPO/"CONTRIBUTING.md"):
        yield file.read_text(encoding="utf-8")


def texts_of_code() -> Iterator[str]:
    "Docstrings, messages and the comments on parameters."
    for file in sorted((REPO/"hooklab").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        yield from re.findall(r"# (.*)$", source, re.MULTILINE)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value: yield node.value


@cache
def text() -> str: return KEPT.sub("", "\n".join(CODE.sub(" ", part) for part in (*pages(), *texts_of_code())))


def counted() -> dict[str, int]:
    return {word: len(re.findall(word, text(), re.IGNORECASE | re.MULTILINE)) for word in WORST}


def test_the_worst_words_become_fewer():
    now = counted()
    risen = {word: f"{now[word]}, and was {most}" for word, most in WORST.items() if now[word] > most}
    assert not risen, f"say it in other words: {risen}"
    fallen = {word: now[word] for word, most in WORST.items() if now[word] < most}
    assert not fallen, f"write the lower numbers into tests/support/worst_words.json: {fallen}"


SPELLING = {
    "behaviour": "behavior", "colour": "color", "initialis": "initializ", "normalis": "normaliz", "centre": "center",
    "optimis(?!t|m)": "optimiz", "grey": "gray", "neighbour": "neighbor", "labell": "label", "modell": "model",
    "analyse": "analyze", "artefact": "artifact", "recognis": "recogniz", "summaris": "summariz", "favour": "favor",
    "honour": "honor", "towards": "toward", "afterwards": "afterward", "whilst": "while", r"\d %": "3%"}


@pytest.mark.parametrize("british", SPELLING)
def test_spelling_is_american(british):
    assert not re.findall(rf"\b\w*{british}\w*", text(), re.IGNORECASE), SPELLING[british]
