"""Writes README.md from nbs/index.ipynb: the home page, as it reads in a checkout of the repository."""
import re
from pathlib import Path

from nbdev.process import NBProcessor
from site_around import INCLUDE

repo = Path(__file__).parent.parent
home = repo/"nbs"/"index.ipynb"
# pages that only show a file of the repository, such as CONTRIBUTING.md
FILES = {page.relative_to(repo).as_posix(): shown[1] for page in sorted(repo.glob("nbs/**/*.qmd"))
         if (shown := INCLUDE.search(page.read_text(encoding="utf-8")))}


def readme(path: Path = home) -> str:
    "The text of README.md for a notebook of the folder nbs."
    parts = [part for cell in NBProcessor(path, rm_directives=False, process=True).nb.cells for part in shown(cell)]
    return "<!-- Made from nbs/index.ipynb by `make export`. -->\n" + "\n\n".join(parts) + "\n"


def shown(cell):
    "What a reader of the page sees of a cell, as pieces of Markdown."
    flags = cell.directives_
    if "hide" in flags or cell.cell_type == "raw": return
    if cell.cell_type == "markdown":
        yield plain(cell.source)
        return
    source = "\n".join(line for line in cell.source.splitlines() if not line.startswith("#|")).strip()
    if source and flags.get("echo") != "false": yield f"```python\n{source}\n```"
    texts = [output for output in cell.outputs if not any(kind.startswith("image/") for kind in output.get("data", {}))]
    text = "".join(part for output in texts for part in output.get("text", output.get("data", {}).get("text/plain", [])))
    if text.strip(): yield f"```\n{text.strip()}\n```"


def plain(text):
    "Markdown without Quarto's fences and attributes, with links that lead somewhere from the top of the repository."
    if text.startswith("# "):
        text = re.sub(r"^- [\w-]+: .*\n?", "", text, flags=re.M)  # what the title tells the site
        text = re.sub(r"^# (.)", lambda first: f"# hooklab: {first[1].lower()}", text)  # the site has the name above it
    text = re.sub(r"^:{3,}.*\n?", "", text, flags=re.M)
    text = re.sub(r"^<!-- moving: \S+ -->\n*", "", text, flags=re.M)  # a place of the site
    text = re.sub(r"(?<=[)\]])\{[^}\n]*\}|(?<=\S) +\{[.#][^}\n]*\}$", "", text, flags=re.M)  # of links, of headings
    text = re.sub(r"(\]\(|\b(?:src|srcset|href)=\")(?![a-z]+:|#|/)", r"\1nbs/", text)
    for page, file in FILES.items(): text = text.replace(f"]({page})", f"]({file})")
    return text.replace("nbs/../", "").strip()


if __name__ == "__main__": (repo/"README.md").write_text(readme(), encoding="utf-8")
