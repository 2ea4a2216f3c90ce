"""What a page of the reference says of a symbol: how it is called, its parameters in a table, the members of a class.

Each member has an address, as in `hook.html#hook.stored`. The page gets HTML, its Markdown copy gets Markdown."""
import ast
import os
import re
from functools import cache
from html import escape

from site_links import member_id, place_of
from site_symbols import ROOT, SHOWN_AS, Member, Parameter, Symbol, aliases, symbol

TORCH = "https://docs.pytorch.org/docs/stable/"
TORCH_PAGES = {
    "nn.Module": "generated/torch.nn.Module.html", "Module": "generated/torch.nn.Module.html",
    "Tensor": "tensors.html#torch.Tensor", "torch.Tensor": "tensors.html#torch.Tensor",
    "nn.Parameter": "generated/torch.nn.parameter.Parameter.html", "torch.Size": "size.html",
    "torch.device": "tensor_attributes.html#torch.device", "torch.dtype": "tensor_attributes.html#torch.dtype",
    "torch.optim.Optimizer": "optim.html#torch.optim.Optimizer", "Optimizer": "optim.html#torch.optim.Optimizer",
    "torch.amp.GradScaler": "amp.html#torch.amp.GradScaler", "DataLoader": "data.html#torch.utils.data.DataLoader",
    "Dataset": "data.html#torch.utils.data.Dataset", "torch.Generator": "generated/torch.Generator.html"}
NAME = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_][\w.]*")
HEADS = "name", "type", "default", "meaning"


def names(parameters) -> frozenset[str]: return frozenset(p.name.lstrip("*") for p in parameters)


class Page:
    "Writes symbols for one page: links are relative to it."
    def __init__(self, page: str): self.page = page

    def link(self, place: str, html: str) -> str:
        "A link to a place of the site, or to torch's pages."
        if place.startswith(f"{self.page}.html#"): place = place.removeprefix(f"{self.page}.html")
        elif not place.startswith("https:"): place = os.path.relpath(place, os.path.dirname(self.page) or ".")
        return f'<a href="{escape(place)}">{html}</a>'

    # ---- words and types

    def words(self, text: str, about: Symbol | None = None, known: frozenset[str] = frozenset()) -> str:
        "A sentence of a docstring or a comment. `about` is the class whose members it names, `known` are parameters."
        def code(match):
            html, name = f"<code>{match[1]}</code>", match[1].removesuffix("()")
            place = None if name in known else place_of(name, self.page, about)
            return self.link(place, html) if place else html
        return re.sub(r"`([^`]+)`", code, escape(text, quote=False))

    def text(self, text: str, **about) -> str:
        "The paragraphs of a docstring."
        parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
        return "".join(f"<p>{self.words(part, **about)}</p>" for part in parts if part)

    def type(self, annotation: ast.expr | None) -> str:
        "A type as code; the names of ours and of torch lead to their pages."
        def linked(match):
            name = match[0]
            if name in aliases(): return self.type(aliases()[name])
            if name in TORCH_PAGES: return self.link(TORCH + TORCH_PAGES[name], name)
            known = symbol(name)
            return self.link(known.place, name) if known and known.is_class else escape(name)
        return NAME.sub(linked, type_text(annotation)).replace("[", "[<wbr>") if annotation else ""

    # ---- how it is called

    def given(self, parameters, types: bool, brackets: str = "()") -> str:
        "Parameters in their parentheses, with their types if no table has them."
        parts = []
        for p in parameters:
            if p.kind == "*": parts.append("*")
            kind = f'<span class="type">: {self.type(p.type)}</span>' if types and p.type else ""
            default = f"{' = ' if kind else '='}{escape(p.default)}" if p.default else ""
            parts.append(f"{p.name}{kind}{default}")
            if p.kind == "/": parts.append("/")
        left, right = brackets
        ends = [","]*(len(parts) - 1) + [right]  # the last bracket does not stand on a line of its own
        return left + (" ".join(f"<span>{part}{end}</span>" for part, end in zip(parts, ends)) or right)

    def arrow(self, returned: ast.expr | None) -> str:
        return f' <span class="type">-&gt; {self.type(returned)}</span>' if returned else ""

    def table(self, parameters, returned: Parameter | None = None, about: Symbol | None = None) -> str:
        "The parameters as a table, a row each, and what is returned as its last row."
        def row(name, p):
            codes = self.type(p.type), escape(p.default or "")
            kind, default = (f"<code>{code}</code>" if code else "" for code in codes)
            return (f'<tr role="row"><th role="rowheader" scope="row">{name}</th>'
                    f'<td role="cell" class="type">{kind}</td>'
                    f'<td role="cell" class="default">{default}</td>'
                    f'<td role="cell">{self.words(p.text, about, names(parameters))}</td></tr>')
        rows = [row(f"<code>{p.name}</code>", p) for p in parameters]
        if returned: rows.append(row("returns", returned))
        # roles, because a row that is no row to the layout is none to a screen reader either
        heads = "".join(f'<th role="columnheader" scope="col">{head}</th>' for head in HEADS)
        return ('<div class="table-scroll"><table class="parameters" role="table">'
                f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>'
                f'<tbody role="rowgroup">{"".join(rows)}</tbody></table></div>')

    # ---- members

    def member(self, of: Symbol, m: Member) -> str:
        "A member of a class: its address, how it is used, and what it is."
        in_table = any(p.text for p in m.parameters)
        head = f'<a class="member" href="#{member_id(of, m)}">{SHOWN_AS.get(m.name, m.name)}</a>'
        if m.is_method:
            brackets = "[]" if m.name == "__getitem__" else "()"
            head += self.given(m.parameters, not in_table, brackets) + self.arrow(m.type)
        elif m.type: head += f'<span class="type">: {self.type(m.type)}</span>'
        says = self.text(m.text, about=of, known=names(m.parameters))
        if in_table: says += f"<details><summary>Parameters</summary>{self.table(m.parameters, about=of)}</details>"
        return f'<div><dt id="{member_id(of, m)}"><code>{head}</code></dt><dd>{says}</dd></div>'

    def kept(self, of: Symbol, members: list[Member]) -> str:
        "The attributes that are parameters of the constructor, as one entry: the table above says what they are."
        places = [(member_id(of, m), m.name) for m in members]
        codes = (f'<code id="{at}"><a class="member" href="#{at}">{name}</a></code>' for at, name in places)
        return f"<div><dt>{', '.join(codes)}</dt><dd><p>As given to the constructor.</p></dd></div>"

    def members(self, of: Symbol) -> str:
        "The members of a class: attributes, methods, and, folded, what only a subclass needs."
        every = list(of.members.values())
        kept = [m for m in every if m.is_parameter and m.name in names(of.parameters)]
        attributes = [m for m in every if not m.is_method and m not in kept]
        methods = [m for m in every if m.is_method and not m.for_subclasses]
        inner = [m for m in every if m.for_subclasses]
        html = ""
        as_given = self.kept(of, kept) if kept else ""
        for what, members, more in (("Attributes", attributes, as_given), ("Methods", methods, "")):
            if members or more: html += f'<p class="members-title">{what}</p>{self.listed(of, members, more)}'
        if not inner: return html
        return f'{html}<details class="inner"><summary>For subclasses</summary>{self.listed(of, inner)}</details>'

    def listed(self, of: Symbol, members: list[Member], more: str = "") -> str:
        "Members as lists: its own, then those of each base, under its name."
        html = ""
        for owner in {of: None} | {m.owner: None for m in members}:
            rows = "".join(self.member(of, m) for m in members if m.owner is owner) + (more if owner is of else "")
            if owner is not of: html += f'<p class="from">from {self.link(owner.place, owner.name)}</p>'
            if rows: html += f'<dl class="members">{rows}</dl>'
        return html

    # ---- all of it

    def symbol(self, s: Symbol) -> str:
        "All that the page says of a symbol, below its heading."
        word = "class" if s.is_class else "async def" if isinstance(s.node, ast.AsyncFunctionDef) else "def"
        is_record = s.is_class and s.is_record  # its fields are in the list of attributes
        in_table = any(p.text for p in (*s.parameters, s.returned) if p) and not is_record
        call = self.given(s.parameters, types=not in_table and not is_record)
        if s.returned: call += self.arrow(s.returned.type)
        if s.is_class and not s.parameters: call = ""  # an exception takes what any exception takes
        html = f'<p class="signature"><code><span class="keyword">{word}</span> <b>{s.name}</b>{call}</code></p>'
        # of a function, words such as `stored` are about what it returns
        about = s if s.is_class else symbol(type_text(s.returned.type)) if s.returned else None
        html += self.text(s.text, about=about, known=names(s.parameters))
        if bases := [f"<code>{self.type(b)}</code>" for b in s.other_bases if ast.unparse(b) != "NamedTuple"]:
            html += f'<p class="from">A subclass of {", ".join(bases)}</p>'
        if in_table: html += self.table(s.parameters, s.returned, about=about)
        return f'<div class="reference">{html}{self.members(s)}</div>'


class Unquoted(ast.NodeTransformer):
    "Takes the quotes from types, and not from the values of `Literal`."
    def visit_Subscript(self, node): return node if ast.unparse(node.value) == "Literal" else self.generic_visit(node)

    def visit_Constant(self, node):
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


@cache
def type_text(annotation: ast.expr) -> str:
    "An annotation as code, without the quotes around a type."
    return ast.unparse(Unquoted().visit(ast.parse(ast.unparse(annotation), mode="eval").body))


# ---- the page, and its copy in Markdown

def source_head(s: Symbol, node: ast.stmt) -> str:
    "The lines of a function or a class up to what it does, as they are in its file."
    lines = (ROOT/"hooklab"/f"{s.module.name}.py").read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[node.lineno - 1:max(node.body[0].lineno - 1, node.lineno)])


def markdown(s: Symbol) -> str:
    "All that the Markdown copy of the page says of a symbol, below its heading."
    own = [f for f in s.node.body if s.is_class and isinstance(f, ast.FunctionDef) and f.name == "__init__"]
    code = "\n".join(source_head(s, node) for node in (s.node, *own))
    lines = []
    for m in s.members.values():
        given = f"({', '.join(p.name for p in m.parameters)})" if m.is_method else ""
        kind = f": `{type_text(m.type)}`" if m.type else ""
        if not m.for_subclasses: lines.append(f"- `{s.name}.{m.name}{given}`{kind}. {' '.join(m.text.split())}")
    return "\n\n".join(part for part in (f"```python\n{code}\n```", s.text, "\n".join(lines)) if part)


def documentation(name: str, page: str) -> str:
    "The Markdown of a symbol on its page: source link, heading, and what is said of it, on the page and in its copy."
    s = symbol(name)
    if s is None: raise LookupError(f"{name}, which {page}.ipynb exports, is not in hooklab/: run `nbdev-export`")
    return f"""***

[source](/{s.source}){{.source-link}}

### {s.name}

::: {{.content-hidden when-format="llms-txt"}}
```{{=html}}
{Page(page).symbol(s)}
```
:::

::: {{.content-visible when-format="llms-txt"}}
{markdown(s)}
:::
"""
