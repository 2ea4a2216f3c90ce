"""Names in backticks that lead to the reference: those of what users call, and nothing else.

nbdev makes a link of every name that some module defines. Here a link stays if the name is public, or is documented on
the page itself, and if it means that symbol: where code of the page has a parameter or a variable of this name, and
never calls the function, the text is about those."""
import ast
import re
from functools import cache

from nbdev.doclinks import NbdevLookup
from site_symbols import Member, Symbol, documented_on, public_names, symbol, symbols

LINKED = re.compile(r"\[`([^`\s]+?)(\(\))?`\]\(([^)\s]*)\)")
DOTTED = re.compile(r"(?<![\[`])`(([A-Z]\w*)\.[a-z_]\w*)(?:\(\))?`(?![`\]])")
FENCED = re.compile(r"(^```.*?^```)", re.M | re.S)


def member_id(of: Symbol, m: Member) -> str: return f"{of.id}.{m.name.lower()}"


def is_known(s: Symbol | None, page: str) -> bool:
    "Whether the text of a page may lead to a symbol: to what everybody can import, or what the page itself documents."
    return bool(s and s.documented and (s.name in public_names() or s.module.page == page))


def place_of(name: str, page: str, about: Symbol | None = None) -> str | None:
    "The address of what a text calls `name`: a member of the class that it is about, a symbol, or `Class.member`."
    owner, _, last = name.rpartition(".")
    of = about if not owner else symbol(owner) if owner[0].isupper() else None
    if of and of.is_class and last in of.members:
        known = of is about and of.documented or is_known(of, page)
        return f"{of.module.page}.html#{member_id(of, of.members[last])}" if known else None
    known = None if owner else symbol(name)
    return known.place if is_known(known, page) else None


@cache
def attributes_on(page: str) -> dict[str, str]:
    "{name: address} of the attributes of the classes that a page documents."
    classes = [s for s in reversed(symbols().values()) if s.is_class and s.documented and s.module.page == page]
    owned = [(m.owner if m.owner.documented else s, m) for s in classes for m in s.members.values() if not m.is_method]
    return {m.name: f"/{of.module.page}.html#{member_id(of, m)}" for of, m in owned}


@cache
def documented_parameters(page: str) -> frozenset[str]:
    "The names of the parameters of all that a page documents."
    found = [symbol(name) for name in documented_on(page)]
    calls = [part for s in found if s for part in (s, *s.members.values())]
    return frozenset(p.name.lstrip("*") for part in calls for p in part.parameters)


def parameters_in(body: list[ast.stmt], page: str) -> frozenset[str]:
    """The names that mean something else on a page than the function of that name: parameters and variables, of which
    its code calls no function."""
    nodes = [node for part in body for node in ast.walk(part)]
    given = {node.arg for node in nodes if isinstance(node, ast.arg | ast.keyword) and node.arg}
    given |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    given |= documented_parameters(page)
    called = {getattr(node.func, "id", getattr(node.func, "attr", "")) for node in nodes if isinstance(node, ast.Call)}
    called |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "hl"}
    return frozenset(given - called - documented_on(page))


def link_names(text: str, page: str, own: frozenset[str] = frozenset()) -> str:
    """Keeps of nbdev's links those that lead to what is public; `own` are names that the page uses for something else.
    Leads `Hook.stored` to its address, where nbdev knows none, and `calls`, on the page of a class that has such an
    attribute, to that, and not to a function of that name on another page."""
    def judged(match):
        name, brackets, address = match.groups()
        if NbdevLookup().doc(name) != address: return match[0]  # somebody has written it
        code = f"`{name}{brackets or ''}`"
        if "." in name: return f"[{code}](/{place})" if (place := place_of(name, page)) else code
        is_here = address.startswith(f"/{page}.html#") and name in documented_on(page)
        if not (is_here or brackets) and (place := attributes_on(page).get(name)): return f"[{code}]({place})"
        means_it = bool(brackets) or is_here or name not in own
        return match[0] if means_it and is_known(symbol(name), page) else code
    def member(match):
        place = place_of(match[1], page)
        return f"[{match[0]}](/{place})" if place else match[0]
    parts = FENCED.split(LINKED.sub(judged, text))
    return "".join(part if part.startswith("```") else DOTTED.sub(member, part) for part in parts)
