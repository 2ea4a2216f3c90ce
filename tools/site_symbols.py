"""What the source says of each symbol: its signature, its comments, and the members of a class. Nothing is imported."""
import ast
import io
import re
import tokenize
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
FOR_SUBCLASSES = "Called ", "For subclasses: "  # how the docstring of a method begins that is not for users to call


def comments_of(code: str) -> dict[int, str]:
    "{line: its comment}"
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
        return any(re.match(r"(\w+\.)?dataclass\b", ast.unparse(d)) for s in self.lineage for d in s.node.decorator_list) \
            or "NamedTuple" in map(ast.unparse, self.other_bases)

    @cached_property
    def parameters(self) -> list[Parameter]:
        "What it is called with."
        if not self.is_class: return parameters(self.node, self.module)
        made = next(((f, s) for s in self.lineage for f in s.node.body if isinstance(f, FUNCTIONS) and f.name == "__init__"), None)
        if made: return parameters(made[0], made[1].module, method=True)
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
            for part in owner.node.body:
                if not (member := member_of(owner, part)): continue
                if not (first := found.get(member.name)): found[member.name] = member
                elif not first.text: found[member.name] = first.with_text_of(member)
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

    @property
    def for_subclasses(self) -> bool: return self.text.startswith(FOR_SUBCLASSES)

    def with_text_of(self, other: "Member") -> "Member":
        return Member(self.name, self.owner, self.is_method, other.text, self.type or other.type, self.parameters, self.line)


def member_of(owner: Symbol, part: ast.stmt) -> Member | None:
    "What a statement in the body of a class adds to its public members."
    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id[0] != "_":
        return Member(part.target.id, owner, False, owner.module.comments.get(part.end_lineno, ""), part.annotation, line=part.lineno)
    if not isinstance(part, FUNCTIONS) or part.name[0] == "_": return None
    marks = {ast.unparse(d) for d in part.decorator_list}
    if "overload" in marks or any(mark.endswith((".setter", ".deleter")) for mark in marks): return None
    text = ast.get_docstring(part) or ""
    if marks & {"property", "cached_property"}: return Member(part.name, owner, False, text, part.returns, line=part.lineno)
    given = parameters(part, owner.module, method="staticmethod" not in marks)
    return Member(part.name, owner, True, text, part.returns, tuple(given), part.lineno)


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
    return Parameter("", f.returns, text=module.comments.get(f.returns.end_lineno, "") if f.returns.end_lineno < f.body[0].lineno else "")


@cache
def modules() -> dict[str, Module]:
    "Every module of the package, by name."
    package, found = ROOT/"hooklab", {}
    for file in sorted(package.rglob("[!_]*.py")):
        code, name = file.read_text(encoding="utf-8"), file.relative_to(package).with_suffix("").as_posix()
        body = ast.parse(code).body
        page = re.search(r"File to edit: \S*/nbs/(\S+)\.ipynb", code)
        public = frozenset(n for part in body if isinstance(part, ast.Assign) and getattr(part.targets[0], "id", "") == "__all__"
                           for n in ast.literal_eval(part.value))
        found[name] = Module(name, page and page[1], body, comments_of(code), public)
    return found


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
