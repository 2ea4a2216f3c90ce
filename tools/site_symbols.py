"""What the source says of each symbol: its signature, its comments, and the members of a class. Nothing is imported."""
import ast
import io
import re
import tokenize
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
FOR_SUBCLASSES = "Called ", "For subclasses: "  # how the docstring of a method begins that is not for users to call
SHOWN_AS = {"__getitem__": "…", "__call__": "…"}  # special methods that have an entry if they have a docstring
EVENT, OF_EVENT = re.compile("before_|after_"), "Called at this event of the training loop."


def comments_of(code: str) -> dict[int, str]:
    "{line: its comment}"
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}


@dataclass(frozen=True, eq=False)
class Module:
    "A file of the package, and the page of the reference that it is exported from."
    name: str  # as in `hooks/hook`
    page: str | None  # as in `lib/hooks/hook`
    body: list[ast.stmt] = field(repr=False)
    comments: dict[int, str] = field(repr=False)
    public: frozenset[str] = field(repr=False)  # what its page documents


@dataclass(frozen=True)
class Parameter:
    name: str
    type: ast.expr | None = None
    default: str | None = None
    text: str = ""
    kind: str = ""  # `*` before what may only be given by name, and `/` after what may not


@dataclass(frozen=True, eq=False)
class Symbol:
    "A function or class, with what stands in its source."
    name: str
    node: ast.stmt
    module: Module

    @property
    def is_class(self) -> bool: return isinstance(self.node, ast.ClassDef)

    @property
    def id(self) -> str: return self.name.lower()

    @property
    def documented(self) -> bool: return self.name in self.module.public

    @property
    def place(self) -> str:
        "Its address: on a page of the reference, or else the line of its source."
        if self.documented and self.module.page: return f"{self.module.page}.html#{self.id}"
        return self.source

    @property
    def source(self) -> str: return f"source/{self.module.name}.html#L{self.node.lineno}"

    @cached_property
    def lineage(self) -> list["Symbol"]:
        "The class and its bases in this package, in the order in which Python looks in them."
        found = [self]
        for base in getattr(self.node, "bases", ()):
            if known := symbol(ast.unparse(base)): found += known.lineage
        last = {s.name: i for i, s in enumerate(found)}  # a base of two bases stands after both
        return [s for i, s in enumerate(found) if last[s.name] == i]

    @cached_property
    def other_bases(self) -> list[ast.expr]:
        "The bases of the class that are not in this package."
        found = {ast.unparse(base): base for s in self.lineage for base in getattr(s.node, "bases", ())}
        return [base for name, base in found.items() if not symbol(name)]

    @cached_property
    def is_record(self) -> bool:
        "Whether its fields are the parameters of its constructor."
        marks = [ast.unparse(d) for s in self.lineage for d in s.node.decorator_list]
        return any("dataclass" in mark for mark in marks) or "NamedTuple" in map(ast.unparse, self.other_bases)

    @cached_property
    def parameters(self) -> list[Parameter]:
        "What it is called with."
        if not self.is_class: return parameters(self.node, self.module)
        for s in self.lineage:
            for f in s.node.body:
                if getattr(f, "name", "") == "__init__": return parameters(f, s.module, method=True)
        if not self.is_record: return []
        fields = {}
        for s in reversed(self.lineage):
            for f in s.node.body:
                if not isinstance(f, ast.AnnAssign) or "init=False" in ast.unparse(f.value or f.target): continue
                fields[f.target.id] = Parameter(f.target.id, f.annotation, f.value and default_of(f.value))
        return list(fields.values())

    @cached_property
    def returned(self) -> Parameter | None:
        "What it returns."
        return None if self.is_class else returned(self.node, self.module)

    @cached_property
    def text(self) -> str: return ast.get_docstring(self.node) or ""

    @cached_property
    def members(self) -> dict[str, "Member"]:
        "The public members of the class, its own and those of its bases, by name."
        if not self.is_class: return {}
        found = {}
        for owner in self.lineage:
            for member in (m for part in owner.node.body for m in members_of(owner, part)):
                if not (first := found.get(member.name)): found[member.name] = member
                elif not first.text: found[member.name] = replace(member, owner=first.owner, line=first.line)
        return {name: m for name, m in found.items() if m.text or m.owner is self}


@dataclass(frozen=True)
class Member:
    "A method, a property or an annotated attribute of a class."
    name: str
    owner: Symbol
    is_method: bool
    text: str
    type: ast.expr | None = None  # of an attribute, or what a method returns
    parameters: tuple[Parameter, ...] = ()
    line: int = 0
    is_parameter: bool = False  # of the constructor, kept under its name

    @property
    def for_subclasses(self) -> bool: return self.text.startswith(FOR_SUBCLASSES)


def members_of(owner: Symbol, part: ast.stmt) -> list[Member]:
    "What a statement in the body of a class adds to its public members."
    if isinstance(part, ast.AnnAssign): return attribute(owner, part.target, part, type=part.annotation)
    if isinstance(part, ast.Assign) and "of_history" in ast.unparse(part.value):  # methods of a `History`
        history, names = symbol("History"), [t.id for t in getattr(part.targets[0], "elts", part.targets)]
        return [replace(history.members[name], owner=owner, line=part.lineno) for name in names]
    if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Tuple):  # methods that are functions elsewhere
        named = [(name.id, value) for name, value in zip(part.targets[0].elts, getattr(part.value, "elts", ()))]
        functions = {name: symbol(ast.unparse(value)) for name, value in named if isinstance(value, ast.Attribute)}
        return [method_from(owner, name, f, part.lineno) for name, f in functions.items() if f and not f.is_class]
    if isinstance(part, ast.Assign) and isinstance(part.value, ast.Name):  # events that a method stands for
        names = [target.id for target in part.targets if EVENT.match(target.id)]
        return [Member(name, owner, True, OF_EVENT, line=part.lineno) for name in names]
    if not isinstance(part, FUNCTIONS): return []
    if part.name == "__init__": return kept_parameters(owner, part) + set_on_self(owner, part)
    marks = {ast.unparse(d) for d in part.decorator_list}
    if "overload" in marks: return []
    if any(mark.endswith((".setter", ".deleter")) for mark in marks): return set_on_self(owner, part)
    text = text_of(part, owner.module)
    if part.name[0] == "_" and not (part.name in SHOWN_AS and text): return set_on_self(owner, part)
    if marks & {"property", "cached_property"}: return attribute(owner, part, part, text, type=part.returns)
    if not text and EVENT.match(part.name): text = OF_EVENT
    given = parameters(part, owner.module, method="staticmethod" not in marks)
    return [Member(part.name, owner, True, text, part.returns, tuple(given), part.lineno), *set_on_self(owner, part)]


def method_from(owner: Symbol, name: str, f: Symbol, line: int) -> Member:
    "The method that a class has by this name; its first parameter is the object."
    return Member(name, owner, True, f.text, f.node.returns, tuple(parameters(f.node, f.module, method=True)), line)


def text_of(f: ast.FunctionDef, module: Module) -> str:
    "The docstring of a function; of one that is a single line, also a sentence behind it."
    if text := ast.get_docstring(f): return text
    behind = module.comments.get(f.lineno, "")
    return behind if f.lineno == f.end_lineno and behind[:1].isupper() else ""


def attribute(owner: Symbol, target: ast.AST, line: ast.stmt, text: str | None = None, **more) -> list[Member]:
    "An attribute, unless it is private; what it is stands behind it."
    name = getattr(target, "name", None) or getattr(target, "attr", None) or getattr(target, "id", "_")
    if text is None: text = owner.module.comments.get(line.end_lineno, "")
    return [] if name[0] == "_" else [Member(name, owner, False, text, line=line.lineno, **more)]


def set_on_self(owner: Symbol, f: ast.FunctionDef) -> list[Member]:
    "The attributes that a method sets and gives a type, as in `self.n_calls: int = 0`."
    return [m for part in ast.walk(f) if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Attribute)
            for m in attribute(owner, part.target, part, type=part.annotation)]


def kept_parameters(owner: Symbol, init: ast.FunctionDef) -> list[Member]:
    "The attributes that keep a parameter of the constructor under its name, also as in `self.rows = list(rows)`."
    given, found = {p.name: p for p in parameters(init, owner.module, method=True) if p.text}, []
    for part in (part for part in ast.walk(init) if isinstance(part, ast.Assign)):
        target, value = part.targets[0], part.value
        several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        for to, what in zip(target.elts, value.elts) if several else [(target, value)]:
            if isinstance(what, ast.Call) and len(what.args) == 1: what = what.args[0]
            name = getattr(to, "attr", None)
            if name in given and getattr(what, "id", None) == name:
                p = given[name]
                found += attribute(owner, to, part, p.text, type=p.type, is_parameter=True)
    return found


def default_of(value: ast.expr) -> str:
    "A default as it is shown; that of a field that is made anew for each object is its factory's."
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        options = {k.arg: k.value for k in value.keywords}
        if "default" in options: return ast.unparse(options["default"])
        made = ast.unparse(options["default_factory"]) if "default_factory" in options else "…"
        return {"list": "[]", "dict": "{}", "set": "set()"}.get(made, f"{made}()")
    return ast.unparse(value).replace("'", '"') if isinstance(value, ast.Constant) else ast.unparse(value)


def parameters(f: ast.FunctionDef, module: Module, method=False) -> list[Parameter]:
    "The parameters of a function, each with the comment at the end of its line."
    given, found = f.args, []
    comments = {line: text for line, text in module.comments.items() if line < f.body[0].lineno}
    def add(arg, default=None, kind="", stars=""):
        text = comments.get((default or arg).end_lineno, "")
        found.append(Parameter(stars + arg.arg, arg.annotation, default and default_of(default), text, kind))
    plain = [*given.posonlyargs, *given.args]
    defaults = [None]*(len(plain) - len(given.defaults)) + given.defaults
    for i, (arg, default) in enumerate(zip(plain, defaults)):
        if not (method and i == 0): add(arg, default, "/" if i + 1 == len(given.posonlyargs) else "")
    if given.vararg: add(given.vararg, stars="*")
    for i, (arg, default) in enumerate(zip(given.kwonlyargs, given.kw_defaults)):
        add(arg, default, "*" if i == 0 and not given.vararg else "")
    if given.kwarg: add(given.kwarg, stars="**")
    return found


def returned(f: ast.FunctionDef, module: Module) -> Parameter | None:
    "What a function returns, with the comment behind it."
    if f.returns is None: return None
    text = module.comments.get(f.returns.end_lineno, "") if f.returns.end_lineno < f.body[0].lineno else ""
    return Parameter("", f.returns, text=text)


@cache
def modules() -> dict[str, Module]:
    "Every module of the package, by name."
    package, found = ROOT/"hooklab", {}
    for file in sorted(package.rglob("[!_]*.py")):
        code, name = file.read_text(encoding="utf-8"), file.relative_to(package).with_suffix("").as_posix()
        body = ast.parse(code).body
        page = re.search(r"File to edit: \S*/nbs/(\S+)\.ipynb", code)
        named = {part.targets[0].id: part.value for part in body
                 if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name)}
        public = frozenset(ast.literal_eval(named["__all__"])) if "__all__" in named else frozenset()
        found[name] = Module(name, page and page[1], body, comments_of(code), public)
    return found


@cache
def public_names() -> frozenset[str]:
    "All that `import hooklab as hl` offers."
    file = ROOT/"hooklab"/"all.py"
    if not file.exists(): return frozenset()
    statements = ast.parse(file.read_text(encoding="utf-8")).body
    lists = [part.value for part in statements if isinstance(part, ast.Assign) and part.targets[0].id == "__all__"]
    return frozenset(ast.literal_eval(lists[0]))


@cache
def documented_on(page: str) -> frozenset[str]:
    "The names that a page of the reference documents: those that its modules export."
    return frozenset(name for module in modules().values() if module.page == page for name in module.public)


@cache
def symbols() -> dict[str, Symbol]:
    "Every function and class of the package, by name: no two rooms have the same."
    return {part.name: Symbol(part.name, part, module) for module in modules().values() for part in module.body
            if isinstance(part, (*FUNCTIONS, ast.ClassDef))}


def symbol(name: str) -> Symbol | None:
    "The function or class of this name, with or without its module."
    return symbols().get(name.rpartition(".")[2])


@cache
def aliases() -> dict[str, ast.expr]:
    "Names that stand for a longer type, such as `Layers`."
    return {part.targets[0].id: part.value for module in modules().values() for part in module.body
            if isinstance(part, ast.Assign) and re.fullmatch("[A-Z][a-z]+", getattr(part.targets[0], "id", ""))
            and isinstance(part.value, ast.BinOp | ast.Subscript)}
