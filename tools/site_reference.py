"""What a page of the reference says of a symbol: its signature, a table of its parameters, and the members of a class.

Each member has an address, as in `hook.html#hook.stored`. The page gets HTML, its Markdown copy gets Markdown."""
import ast
import os
import re
from functools import cache
from html import escape

from site_symbols import ROOT, Member, Parameter, Symbol, aliases, symbol, symbols

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
TICKS = re.compile(r"`([^`]+)`")


class Page:
    "Writes symbols for one page: links are relative to it."
    def __init__(self, page: str): self.page = page

    def link(self, place: str, html: str) -> str:
        "A link to a place of the site, or to torch's pages."
        if place.startswith(f"{self.page}.html#"): place = place.removeprefix(f"{self.page}.html")
        elif not place.startswith("https:"): place = os.path.relpath(place, os.path.dirname(self.page) or ".")
        return f'<a href="{escape(place)}">{html}</a>'

    def type(self, annotation: ast.expr | None) -> str:
        "A type as code; the names of ours and of torch lead to their pages."
        if annotation is None: return ""
        def linked(match):
            name = match[0]
            if name[0] in "'\"": return escape(name)
            if name in aliases(): return self.type(aliases()[name])
            if page := TORCH_PAGES.get(name): return self.link(TORCH + page, name)
            if (known := symbol(name)) and known.is_class: return self.link(known.place, name)
            return name
        return NAME.sub(linked, type_text(annotation))

    def words(self, text: str, about: Symbol | None = None, known: set[str] = frozenset()) -> str:
        "A sentence of a docstring or a comment. `about` is the class whose members it names, `known` are parameters."
        def code(match):
            html = f"<code>{escape(match[1])}</code>"
            name = match[1].removesuffix("()")
            if name in known: return html
            place = place_of(name, about)
            return self.link(place, html) if place else html
        return re.sub(TICKS.pattern, code, escape(text, quote=False))

    def text(self, text: str, **about) -> str:
        "The paragraphs of a docstring."
        return "".join(f"<p>{self.words(' '.join(part.split()), **about)}</p>" for part in re.split(r"\n\s*\n", text) if part)

    def signature(self, name: str, parameters, returned: ast.expr | None = None, types=False) -> str:
        "How something is called, with the types if there is no table of its parameters."
        parts = []
        for p in parameters:
            if p.kind == "*": parts.append("*")
            kind = f'<span class="type">: {self.type(p.type)}</span>' if types and p.type else ""
            equals = f' = {escape(p.default)}' if kind and p.default else f"={escape(p.default)}" if p.default else ""
            parts.append(f"{p.name}{kind}{equals}")
            if p.kind == "/": parts.append("/")
        inside = " ".join(f"<span>{part}{',' if i + 1 < len(parts) else ''}</span>" for i, part in enumerate(parts))
        arrow = f' <span class="type">-&gt; {self.type(returned)}</span>' if returned else ""
        return f"{name}({inside}){arrow}"

    def table(self, parameters, returned: Parameter | None = None, about: Symbol | None = None) -> str:
        "The parameters as a table, a row each, and what is returned as its last row."
        known = {p.name.lstrip("*") for p in parameters}
        def row(name, p):
            default = f"<code>{escape(p.default)}</code>" if p.default else ""
            kind = f"<code>{self.type(p.type)}</code>" if p.type else ""
            return (f'<tr role="row"><th role="rowheader" scope="row">{name}</th><td role="cell" class="type">{kind}</td>'
                    f'<td role="cell" class="default">{default}</td>'
                    f'<td role="cell">{self.words(p.text, about, known)}</td></tr>')
        rows = [row(f"<code>{p.name}</code>", p) for p in parameters]
        if returned: rows.append(row("returns", returned))
        heads = "".join(f'<th role="columnheader" scope="col">{head}</th>' for head in ("name", "type", "default", "meaning"))
        return (f'<div class="table-scroll"><table class="parameters" role="table"><thead role="rowgroup"><tr role="row">{heads}</tr>'
                f'</thead><tbody role="rowgroup">{"".join(rows)}</tbody></table></div>')

    def member(self, of: Symbol, m: Member) -> str:
        "A member of a class: its address, how it is used, what it is, and whose it is."
        commented = any(p.text for p in m.parameters)
        name = f'<a class="member" href="#{member_id(of, m)}">{m.name}</a>'
        if m.is_method: head = self.signature(name, m.parameters, m.type, types=not commented)
        else: head = f'{name}<span class="type">: {self.type(m.type)}</span>' if m.type else name
        says = self.text(m.text, about=of, known={p.name.lstrip("*") for p in m.parameters})
        if m.owner is not of: says += f'<p class="from">from {self.link(member_place(m), f"<code>{m.owner.name}</code>")}</p>'
        if commented:
            says += f'<details><summary>Parameters</summary>{self.table(m.parameters, about=of)}</details>'
        return f'<div><dt id="{member_id(of, m)}"><code>{head}</code></dt><dd>{says}</dd></div>'

    def members(self, of: Symbol) -> str:
        "The members of a class: attributes, methods, and, folded, what only a subclass needs."
        every = list(of.members.values())
        attributes = [m for m in every if not m.is_method]
        methods = [m for m in every if m.is_method and not m.for_subclasses]
        inner = [m for m in every if m.for_subclasses]
        def group(title, members):
            rows = "".join(self.member(of, m) for m in members)
            return f'<dl class="members" aria-label="{title} of {of.name}">{rows}</dl>'
        html = "".join(f'<p class="members-title">{title}</p>{group(title, found)}'
                       for title, found in (("Attributes", attributes), ("Methods", methods)) if found)
        if inner: html += f'<details class="members-fold"><summary>For subclasses</summary>{group("For subclasses", inner)}</details>'
        return html

    def symbol(self, s: Symbol) -> str:
        "All that the page says of a symbol, below its heading, as HTML."
        word = "class" if s.is_class else "async def" if isinstance(s.node, ast.AsyncFunctionDef) else "def"
        table = any(p.text for p in s.parameters) and not (s.is_class and s.is_record) or s.returned and s.returned.text
        head = self.signature(f"<b>{s.name}</b>", s.parameters, s.returned and s.returned.type, types=not table and not s.is_record)
        if s.is_class and not s.parameters: head = f"<b>{s.name}</b>"
        html = f'<p class="signature"><code><span class="keyword">{word}</span> {head}</code></p>'
        html += self.text(s.text, about=s, known={p.name.lstrip("*") for p in s.parameters})
        if bases := [self.type(base) for base in s.other_bases if ast.unparse(base) not in ("NamedTuple", "object")]:
            html += f'<p class="from">A subclass of {", ".join(f"<code>{base}</code>" for base in bases)}</p>'
        if table: html += self.table(s.parameters, s.returned, about=s if s.is_class else None)
        return f'<div class="reference">{html}{self.members(s)}</div>'


def type_text(annotation: ast.expr) -> str:
    "An annotation in words: one in quotes is read, and long module names go."
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str): annotation = ast.parse(annotation.value, mode="eval").body
    class Unquoted(ast.NodeTransformer):
        def visit_Subscript(self, node): return node if ast.unparse(node.value) == "Literal" else self.generic_visit(node)
        def visit_Constant(self, node):
            return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node
    return ast.unparse(Unquoted().visit(ast.parse(ast.unparse(annotation), mode="eval").body))


def member_id(of: Symbol, m: Member) -> str: return f"{of.id}.{m.name.lower()}"


def member_place(m: Member) -> str:
    "Where a member of a base is at home: on the page that documents the base, or in its source."
    return f"{m.owner.module.page}.html#{member_id(m.owner, m)}" if m.owner.documented else f"source/{m.owner.module.name}.html#L{m.line}"


def place_of(name: str, about: Symbol | None = None) -> str | None:
    "The address of what a text calls `name`: a member of the class that it is about, a symbol, or `Class.member`."
    if about and about.is_class and (m := about.members.get(name)):
        return f"{about.module.page}.html#{member_id(about, m)}" if about.documented else None
    owner, _, last = name.rpartition(".")
    if owner and owner[:1].isupper() and (of := symbol(owner)) and of.documented and (m := of.members.get(last)):
        return f"{of.module.page}.html#{member_id(of, m)}"
    known = None if owner else symbol(name)
    return known.place if known and known.documented else None


def source_head(s: Symbol) -> str:
    "The lines of a symbol up to its docstring, as they are in its file."
    lines = (ROOT/"hooklab"/f"{s.module.name}.py").read_text(encoding="utf-8").splitlines()
    f = s.node
    end = next((b.lineno for b in f.body), f.lineno + 1) - 1
    return "\n".join(lines[f.lineno - 1:max(end, f.lineno)])


def markdown(s: Symbol) -> str:
    "All that the Markdown copy of the page says of a symbol, below its heading."
    code = source_head(s)
    if s.is_class:
        made = next((f for f in s.node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
        if made: code += "\n" + source_head(Symbol("__init__", made, s.module))
    lines = [f"```python\n{code}\n```", s.text]
    for m in s.members.values():
        if m.for_subclasses: continue
        given = "(" + ", ".join(p.name for p in m.parameters) + ")" if m.is_method else ""
        kind = f" ({type_text(m.type)})" if m.type else ""
        lines.append(f"- `{s.name}.{m.name}{given}`{kind}: {' '.join(m.text.split())}")
    return "\n\n".join(line for line in lines if line)


def documentation(name: str, page: str) -> str:
    "The Markdown of a symbol on its page: source link, heading, and what `Page` says of it."
    s = symbol(name)
    if s is None: raise LookupError(f"{name}, which {page}.ipynb exports, is not in hooklab/: run `nbdev-export`")
    return f"""---

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


# ---- links in prose

LINKED = re.compile(r"\[`([a-z_]\w*)`\]\(([^)\s]*)\)")
DOTTED = re.compile(r"(?<![\[`])`(([A-Z]\w*)\.[a-z_]\w*)(?:\(\))?`(?![`\]])")


@cache
def attributes_on(page: str) -> dict[str, str]:
    "{name: address} of the attributes of the classes that a page documents."
    return {m.name: f"/{page}.html#{member_id(s, m)}" for s in reversed(symbols().values())
            if s.is_class and s.documented and s.module.page == page for m in s.members.values() if not m.is_method}


def link_members(text: str, page: str) -> str:
    """Leads `Hook.stored` in prose to its address, where nbdev knows none, and `calls` on the page of a class that has such
    an attribute to that, and not to a function of that name on another page."""
    def member(match):
        place = place_of(match[1])
        return f"[{match[0]}](/{place})" if place else match[0]
    def own(match):
        elsewhere = not match[2].startswith(f"/{page}.html#")
        place = attributes_on(page).get(match[1]) if elsewhere else None
        return f"[`{match[1]}`]({place})" if place else match[0]
    parts = re.split(r"(^```.*?^```)", LINKED.sub(own, text), flags=re.M | re.S)
    return "".join(part if part.startswith("```") else DOTTED.sub(member, part) for part in parts)
