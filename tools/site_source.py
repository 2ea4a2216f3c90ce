"""The pages of the code: a number for each line, an outline of the file, and the frame of the site.

They are two hundred and have hundreds of lines each, so they are written as they stay: no renderer reads them, and no
parser."""

import ast
from functools import cache
from html import escape
from pathlib import Path

from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String, Token
from site_frame import Navigation, frame, head, toc_short

# The classes by which pandoc, Quarto and smalldocs call what is colored, so that code looks the same everywhere.
COLORED = [
    (Keyword, "kw"),
    (Name.Builtin, "bu"),
    (Name.Function, "fu"),
    (Name.Class, "fu"),
    (Name.Decorator, "at"),
    (String, "st"),
    (Number, "dv"),
    (Comment, "co"),
]


@cache
def color(kind: Token) -> str:
    "The class of a token, or nothing where it has the color of the text."
    return next((name for known, name in COLORED if kind in known), "")


def colored_lines(code: str) -> list[str]:
    "Each line of the code as HTML; a text of several lines is colored in each."
    lines, spans = [""], []
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(code):
        name = "kw" if kind in Name and text in ("self", "cls") else color(kind)
        if spans and spans[-1][0] == name: spans[-1][1] += text
        else: spans.append([name, text])
    for name, text in spans:
        first, *others = (
            f'<span class="{name}">{escape(line, quote=False)}</span>'
            if name and line.strip()
            else escape(line, quote=False)
            for line in text.split("\n")
        )
        lines[-1] += first
        lines += others
    return lines


def outline(code: str) -> str:
    "Links to the classes and functions of a file, and to the methods of its classes."
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    def links(body, deep):
        found = {
            node.name: node for node in body if isinstance(node, kinds) and not node.name.startswith("__")
        }.values()  # overloads once
        def methods(node): return links(node.body, False) if deep and isinstance(node, ast.ClassDef) else ""
        items = [f'<li><a href="#L{node.lineno}">{node.name}</a>{methods(node)}</li>' for node in found]
        return f"<ul>{''.join(items)}</ul>" if items else ""
    return links(ast.parse(code).body, True)


def source_page(module: str, code: str, nav: Navigation) -> str:
    "The whole page of one module."
    name, top, markdown = f"source/{module}", "../"*(module.count("/") + 1), f"{Path(module).name}.llms.md"
    package, origin, toc = nav.facts["name"], nav.sources.get(module), outline(code)
    title = f"{package}/{module}.py"
    exported = (
        f'<p class="offer"><a href="{top}{origin}.html">Its page: {escape(nav.by_name[origin].title)}</a></p>'
        if origin
        else ""
    )
    lines = "".join(f'<span id="L{number}">{line}\n</span>' for number, line in enumerate(colored_lines(code), 1))
    return frame(
        nav,
        name,
        top,
        "source",
        head(f"{title} – {package}", f"The code of {title}", top, markdown),
        f'<header id="title-block-header" class="quarto-title-block">{nav.breadcrumb(name, top)}'
        f'<div class="quarto-title"><h1 class="title">{title.replace("/", "/<wbr>")}</h1></div>'
        f'{exported}{toc_short(toc, "In this file")}</header>\n'
        f'<div class="sourceCode" id="L"><pre class="sourceCode python"><code>{lines}</code></pre></div>',
        toc,
        "In this file",
        markdown,
    )


def source_markdown(module: str, code: str, nav: Navigation) -> str:
    "The same as Markdown, for those who read with a program."
    origin, top = nav.sources.get(module), "../"*(module.count("/") + 1)
    exported = f"Exported from [its page]({top}{origin}.llms.md).\n\n" if origin else ""
    return f"# {nav.facts['name']}/{module}.py\n\n{exported}````python\n{code}\n````\n"


def source_pages(package: Path, nav: Navigation) -> dict[str, str]:
    "{file: text} of a page for each module, so that source links work offline and show the code of this build."
    found = {}
    for module in nav.facts["modules"]:
        code = (package/f"{module}.py").read_text(encoding="utf-8").rstrip()
        found[f"source/{module}.html"] = source_page(module, code, nav)
        found[f"source/{module}.llms.md"] = source_markdown(module, code, nav)
    return found


def write_source_pages(docs: Path, pages: dict[str, str]):
    "Writes the pages of the code, and names them where programs look for pages."
    for name, text in pages.items():
        (docs/name).parent.mkdir(parents=True, exist_ok=True)
        (docs/name).write_text(text, encoding="utf-8")
    with (docs/"llms.txt").open("a", encoding="utf-8") as file:
        file.writelines(
            f"- [{text[2:].splitlines()[0]}]({name})\n" for name, text in pages.items() if name.endswith(".md")
        )
