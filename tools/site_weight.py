"""Keeps the site light: of the renderer's stylesheets only the rules that some page uses, and of its scripts none.

A theme is a stylesheet for everything that a site may ever have. A rule stays when the classes, ids and elements of its
selector occur on a page or in a script of ours, and a variable when something reads it."""
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from site_problems import attributes

BASE = Path("assets/base.css")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
FUNCTION = re.compile(r":(?:not|is|where|has)\([^()]*\)")  # what stands in them need not be there
NAMED = re.compile(
    r"\.(\*?-?[a-zA-Z_](?:[\w-]|\\.)*)|#([a-zA-Z_][\w-]*)|\[([\w-]+)[^\]]*\]|(?<![\w.#:\[-])([a-zA-Z][\w-]*)"
)
VARIABLE = re.compile(r"var\(\s*(--[\w-]+)")
NESTED = ("@media", "@supports", "@layer", "@container")
ALWAYS = {"html", "body", "root"}


def vocabulary(text: str) -> set[str]:
    "What a selector may name of a page: its elements, `.classes`, `#ids`, `[attributes` and `--variables`."
    found = set()
    for tag, name, value in attributes(text):
        if not name: found.add(tag.lower())
        else: found.add(f"[{name.lower()}")
        if name == "class": found.update(f".{word}" for word in value.split())
        elif name == "id": found.add(f"#{value}")
        elif name == "style": found.update(VARIABLE.findall(value))
    return found


def spoken(script: str) -> set[str]:
    "The same for a script: the classes that it sets, the elements that it makes, and what its selectors name."
    found = {
        tag.lower()
        for pair in re.findall(r"<([a-zA-Z][\w-]*)|createElement(?:NS)?\([^)]*[\"'`](\w+)", script)
        for tag in pair
        if tag
    }
    for words in re.findall(r"""class(?:Name|List\.\w+)?\s*[=(]\s*\\?["'`]([^"'`]+)""", script):
        found |= {f".{word}" for word in words.split()}
    code = re.sub(r"(?m)(^|\s)//.*$", "", script)
    for quoted in re.findall(r"""\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`""", code):
        if re.search(r"(^|[\s,>(])[.#\[]?[\w-]*[.#\[][a-zA-Z]", quoted[1:-1]): found |= needs(quoted[1:-1])
    found |= {
        f"[{name}"
        for pair in re.findall(r"""setAttribute\(["'`]([\w-]+)|\s([\w-]+)=\\?["'`]""", script)
        for name in pair
        if name
    }
    return found | {f"[{name}" for name in ("tabindex", "role", "hidden")} | set(re.findall(r"--[\w-]+", script))


def rules(css: str) -> Iterator[tuple[str, str | None]]:
    "(what stands before the braces, what stands in them) of the rules of a stylesheet; @import and its like have none."
    at, start, deep, opened = 0, 0, 0, 0
    for mark in re.finditer(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|url\([^)]*\)|[{};]', css):
        at = mark.end()
        if mark[0] == "{":
            if not deep: opened = at
            deep += 1
        elif mark[0] == "}":
            deep -= 1
            if not deep:
                yield css[start:opened - 1].strip(), css[opened:at - 1].strip()
                start = at
        elif mark[0] == ";" and not deep:
            yield css[start:at - 1].strip(), None
            start = at


def split(text: str, mark: str) -> list[str]:
    "The parts of a text between marks that stand in no brackets and in no string."
    parts, deep, start = [], 0, 0
    for found in re.finditer(rf"{STRING.pattern}|[()\[\]{{}}{mark}]", text):
        if found[0] in "([{": deep += 1
        elif found[0] in ")]}": deep -= 1
        elif found[0] == mark and not deep:
            parts.append(text[start:found.start()])
            start = found.end()
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def needs(selector: str) -> set[str]:
    "What must be on a page for a selector to mean anything."
    bare = re.sub(
        r"\[class[*^~|$]?=\W*([\w-]+)[^\]]*\]", r".*\1", selector
    )  # some class that begins or goes on like this
    bare = STRING.sub("", bare)
    while (shorter := FUNCTION.sub("", bare)) != bare: bare = shorter
    bare = re.sub(r"::?[\w-]+(\([^()]*\))?", "", bare)
    marks = (
        (f".{name}", f"#{place}", f"[{attribute}".lower(), tag.lower())
        for name, place, attribute, tag in NAMED.findall(bare)
    )
    return {mark.replace("\\", "") for found in marks for mark in found if len(mark) > 1 or mark.isalpha()} - ALWAYS


class Known(frozenset):
    "What the pages name; a class may also be known by a part of its name."
    def __contains__(self, mark: str) -> bool:
        if not mark.startswith(".*"): return super().__contains__(mark)
        return any(mark[2:] in name for name in self if name.startswith("."))


def pruned(css: str, known: set[str]) -> str:
    "A stylesheet without the rules that no page can use."
    lines = []
    for before, inside in rules(css):
        if inside is None:
            if not before.startswith(("@import", "@charset")): lines.append(f"{before};")
        elif before.startswith(NESTED):
            if inner := pruned(inside, known): lines.append(f"{before}{{{inner}}}")
        elif before.startswith("@"): lines.append(f"{before}{{{inside}}}")
        elif kept := [selector for selector in split(before, ",") if all(mark in known for mark in needs(selector))]:
            lines.append(f"{','.join(kept)}{{{';'.join(split(inside, ';'))}}}")
    return "\n".join(lines)


def without_unread(css: str, read: set[str]) -> str:
    "A stylesheet without variables, fonts and animations that nothing in it or in `read` refers to."
    while True:
        used = read | set(VARIABLE.findall(css))
        shorter = "\n".join(filter(None, (still_read(before, inside, css, used) for before, inside in rules(css))))
        if shorter == css: return css
        css = shorter


def still_read(before: str, inside: str | None, css: str, used: set[str]) -> str:
    "A rule of `css` as far as something refers to it."
    if inside is None: return f"{before};"
    if before.startswith(NESTED):
        inner = "\n".join(filter(None, (still_read(*rule, css, used) for rule in rules(inside))))
        return f"{before}{{{inner}}}" if inner else ""
    if "keyframes" in before and not re.search(rf"animation[\w-]*:[^;}}]*\b{before.split()[1]}\b", css): return ""
    if before == "@font-face":
        family = re.search(r"font-family:\s*[\"']?([^;\"']+)", inside)[1]
        if not re.search(rf"font(?:-family)?:[^;}}]*{family}", css.replace(inside, "")): return ""
    if before.startswith("@"): return f"{before}{{{inside}}}"
    kept = [one for one in split(inside, ";") if not one.startswith("--") or one.partition(":")[0].strip() in used]
    return f"{before}{{{';'.join(kept)}}}" if kept else ""


def stylesheets(docs: Path) -> list[Path]:
    "The renderer's stylesheets, in the order in which a page would load them: the theme, then the layout."
    return sorted(
        (docs / "site_libs").rglob("*.css"),
        key=lambda file: ("bootstrap" not in file.as_posix() and "themes" not in file.as_posix(), file.as_posix()),
    )


def compact(css: str) -> str:
    "A stylesheet without comments and without the room that only its authors need."
    css = re.sub(rf"{COMMENT.pattern}|({STRING.pattern})", lambda found: found[1] or "", css, flags=re.S)
    room = rf"({STRING.pattern})|\s*([{{}};,]|(?<=[\w-]):(?= ))\s*|\s+"
    return re.sub(room, lambda found: found[1] or found[2] or " ", css).replace(";}", "}").strip()


def lighten(docs: Path, known: set[str]):
    "Writes what the pages use of the renderer's stylesheets into one file, and deletes what no page loads."
    scripts = "\n".join(file.read_text(encoding="utf-8") for file in sorted((docs/"assets").rglob("*.js")))
    own = "\n".join(file.read_text(encoding="utf-8") for file in sorted((docs/"assets").rglob("*.css")))
    known = Known(known | spoken(scripts))
    css = COMMENT.sub("", "\n".join(file.read_text(encoding="utf-8") for file in stylesheets(docs)))
    read = set(VARIABLE.findall(own)) | {mark for mark in known if mark.startswith("--")}
    (docs/BASE).write_text(without_unread(pruned(css, known), read) + "\n", encoding="utf-8")
    for file in (docs/"assets").glob("*.css"):
        if file != docs/BASE: file.write_text(compact(file.read_text(encoding="utf-8")) + "\n", encoding="utf-8")
    shutil.rmtree(docs/"site_libs", ignore_errors=True)
    (docs/"search.json").unlink(missing_ok=True)  # of the renderer's own search, which is off
