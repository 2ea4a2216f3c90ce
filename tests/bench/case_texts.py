"""The two texts of a program, faulty and repaired, as a case of the site shows them, and as they run.

A program of programs/ says with `repaired` which of the two it is. Here that is settled: each question about it is
answered and goes, with all that only the other text uses; so do docstrings and comments, which may tell the cause."""
import ast
import difflib
from pathlib import Path
from types import ModuleType

ABOUT = {"SOURCE", "YEAR", "AREA", "CAUSE", "TRUE", "PLACE"}
QUESTION = "repaired"


def place_of_question(function: ast.FunctionDef) -> int | None:
    "Which argument says which text it is; None if none does."
    names = [arg.arg for arg in function.args.args]
    return names.index(QUESTION) if QUESTION in names else None


def asked(tree: ast.Module) -> dict[str, int]:
    "{function, method or class: which argument says which text it is, not counting `self`}."
    found = {}
    for node in ast.walk(tree):
        of_class = isinstance(node, ast.ClassDef)
        for f in node.body if of_class else [node] if isinstance(node, ast.FunctionDef) else ():
            if not isinstance(f, ast.FunctionDef) or (place := place_of_question(f)) is None: continue
            has_self = f.args.args[0].arg in ("self", "cls")
            found[node.name if f.name == "__init__" and of_class else f.name] = place - has_self
    return found


class Settled(ast.NodeTransformer):
    "Answers each question which text it is."
    def __init__(self, repaired: bool, asked: dict[str, int]): self.repaired, self.asked = repaired, asked

    def is_question(self, node: ast.AST) -> bool:
        return QUESTION in (getattr(node, "id", None), getattr(node, "attr", None))

    def visit_Name(self, node): return ast.Constant(self.repaired) if self.is_question(node) else node

    def visit_Attribute(self, node):
        return ast.Constant(self.repaired) if self.is_question(node) else self.generic_visit(node)

    def visit_FunctionDef(self, node):
        place = place_of_question(node)
        if place is not None:
            from_end = len(node.args.args) - place
            if from_end <= len(node.args.defaults): del node.args.defaults[-from_end]
            del node.args.args[place]
        for i, arg in reversed([*enumerate(node.args.kwonlyargs)]):
            if arg.arg == QUESTION: del node.args.kwonlyargs[i], node.args.kw_defaults[i]
        return self.generic_visit(without_docstring(node))

    def visit_ClassDef(self, node): return self.generic_visit(without_docstring(node))

    def visit_Call(self, node):
        name = getattr(node.func, "id", getattr(node.func, "attr", None))
        node.keywords = [k for k in node.keywords if k.arg != QUESTION]
        super_call = name == "__init__"
        place = None if super_call else self.asked.get(name)
        given = [i for i, arg in enumerate(node.args) if self.is_question(arg)]
        if place is not None and (given or place < len(node.args)): del node.args[given[0] if given else place]
        node = self.generic_visit(node)
        node.args = spread_out(node.args)
        node.keywords = [ast.keyword(key.value, value) for k in node.keywords for key, value in (
            zip(k.value.keys, k.value.values) if k.arg is None and isinstance(k.value, ast.Dict) else
            [(ast.Constant(k.arg), k.value)])]
        return node

    def visit_Assign(self, node):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = [(t, v) for t, v in zip(target.elts, value.elts) if not self.is_question(t)]
            if len(pairs) < len(target.elts):
                if not pairs: return None
                targets, values = zip(*pairs)
                node.targets = [targets[0] if len(pairs) == 1 else ast.Tuple([*targets], ast.Store())]
                node.value = values[0] if len(pairs) == 1 else ast.Tuple([*values], ast.Load())
        elif self.is_question(target): return None
        return self.generic_visit(node)

    def visit_UnaryOp(self, node):
        node = self.generic_visit(node)
        if isinstance(node.op, ast.Not) and is_bool(node.operand): return ast.Constant(not node.operand.value)
        return node

    def visit_BoolOp(self, node):
        node = self.generic_visit(node)
        ends, values = isinstance(node.op, ast.Or), []  # what ends the question, and what says nothing
        for value in node.values:
            if is_bool(value) and value.value != ends: continue
            values.append(value)
            if is_bool(value): break
        if not values: return ast.Constant(not ends)
        if is_bool(values[-1]) and len(values) == 1: return values[0]
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)

    def visit_IfExp(self, node):
        node = self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if is_bool(node.test) else node

    def visit_If(self, node):
        node = self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if is_bool(node.test) else node

    def visit_comprehension(self, node):
        node = self.generic_visit(node)
        node.ifs = [test for test in node.ifs if not (is_bool(test) and test.value)]
        return node


def spread_out(args: list[ast.expr]) -> list[ast.expr]:
    "Arguments without stars before lists that are written there."
    def is_written(arg): return isinstance(arg, ast.Starred) and isinstance(arg.value, ast.List)
    return [each for arg in args for each in (arg.value.elts if is_written(arg) else [arg])]


def is_bool(node: ast.AST) -> bool: return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def without_docstring(node):
    if ast.get_docstring(node, clean=False) is not None: node.body = node.body[1:]
    return node


def never_empty(tree: ast.AST):
    "A block from which all has gone passes."
    for node in ast.walk(tree):
        if getattr(node, "body", None) == [] and hasattr(node, "lineno"): node.body = [ast.Pass()]


def without_unused(tree: ast.Module, kept: set[str]) -> ast.Module:
    "The same without top-level functions, classes, names and imports that nothing uses."
    while True:
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        body = []
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                node.names = [a for a in node.names if (a.asname or a.name).partition(".")[0] in used]
                if not node.names: continue
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                elsewhere = {n.id for other in tree.body if other is not node for n in ast.walk(other)
                             if isinstance(n, ast.Name)}
                if node.name not in elsewhere and node.name not in kept: continue
            if isinstance(node, ast.Assign):
                names = {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                if names and not names & (used | kept): continue
            body.append(node)
        if len(body) == len(tree.body): return tree
        tree.body = body


def tells(node: ast.stmt) -> bool:
    "Is this about the program, and no part of it? `Parts` is given to a text."
    if isinstance(node, ast.ImportFrom): return node.module == "tests.bench.programs"
    if not isinstance(node, ast.Assign): return False
    return {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)} <= ABOUT


def lines_at_fault(faulty: str, repaired: str) -> list[int]:
    """The lines of the faulty text that the repair changes, counted from 1. Where it only adds lines, those before and
    after are meant; a function that is added for the repair is not the place."""
    a, b = faulty.splitlines(), repaired.splitlines()
    hunks = [h for h in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes() if h[0] != "equal"]
    def is_helper(hunk):
        added = [line for line in b[hunk[3]:hunk[4]] if line]
        starts = ("def ", "class ", "import ", "from ")
        return hunk[0] == "insert" and any(line.startswith(starts) for line in added) and all(
            line.startswith((" ", "@", *starts)) for line in added)
    found = set()
    for what, i, j, *_ in [h for h in hunks if not is_helper(h)] or hunks:
        found |= {*range(i, j)} if what != "insert" else {i - 2, i - 1, i, i + 1}
    there = [k for k in sorted(found) if 0 <= k < len(a)]
    return [k + 1 for k in there if a[k].strip() and not a[k].startswith(("import ", "from "))]


def text_of(program: ModuleType | Path, repaired: bool) -> str:
    "What a program consists of where this is settled."
    file = program if isinstance(program, Path) else Path(program.__file__)
    tree = without_docstring(ast.parse(file.read_text(encoding="utf-8")))
    tree.body = [node for node in tree.body if not tells(node)]
    tree = Settled(repaired, asked(tree)).visit(tree)
    never_empty(tree)
    tree = without_unused(ast.fix_missing_locations(tree), {"build", "train"})
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
