"""The rule that keeps the house as it is, as functions of a tree: which wing may import which, and how code is written.

Each function returns what breaks a clause, as (file, line, what is wrong)."""
import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FLOORS = [{"hooks", "drawing"}, {"edit", "features", "debug", "profiling"}, {"training"}, {"stats"}, {"exercises"},
          {"cli", "fastai"}, {"__main__"}, {"all"}]
FLOOR = {wing: number for number, wings in enumerate(FLOORS) for wing in wings}
MOST_LINES, MOST_CELL_LINES, MOST_CHARACTERS = 250, 60, 120
REGISTERS = re.compile(r"register_(?!hook$|prehook$)\w*hook")  # those two are of tensors and of nodes of the graph
RERUN = "_current_graph_task_id"

Found = Iterator[tuple[str, int, str]]


class Import(NamedTuple):
    "`name` of the room `target`, imported in `room`; `name` is empty where the room itself is imported."
    room: str
    target: str
    name: str
    line: int


@cache
def parsed(file: Path) -> ast.Module:
    "The code of a file; its nodes know whether they stand in a function or below `if TYPE_CHECKING`."
    return marked(ast.parse(file.read_text(encoding="utf-8")))


def marked(node: ast.AST, inner: bool = False, for_types: bool = False) -> ast.AST:
    "The same tree, each node with `inner` and `for_types`."
    node.inner, node.for_types = inner, for_types
    inner = inner or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for part in ast.iter_child_nodes(node):
        types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and part in node.body
        marked(part, inner, for_types or types)
    return node


def rooms(tree: Path) -> dict[str, Path]:
    "The rooms of the library by their names, as in `hooks.gradient`; a wing's `__init__` has the wing's name."
    top = tree/"hooklab"
    names = {file: ".".join(file.relative_to(top).with_suffix("").parts) for file in sorted(top.rglob("*.py"))}
    return {name.removesuffix(".__init__"): file for file, name in names.items() if name not in ("__init__", "_modidx")}


def name_in(tree: Path, file: Path) -> str: return file.relative_to(tree).as_posix()


@cache
def imports(tree: Path) -> list[Import]:
    "What rooms import from rooms, in functions too, but not what only type checkers read."
    known, found = rooms(tree), []
    for room, file in known.items():
        package = ["hooklab", *room.split(".")]
        if file.name != "__init__.py": package.pop()
        for node in ast.walk(parsed(file)):
            if node.for_types or not isinstance(node, ast.Import | ast.ImportFrom): continue
            if isinstance(node, ast.Import): named = [(alias.name, "") for alias in node.names]
            else:
                start = package[:len(package) - node.level + 1] if node.level else []
                source = ".".join([*start, *([node.module] if node.module else [])])
                named = [(source, alias.name) for alias in node.names]
            for source, name in named:
                if source.partition(".")[0] != "hooklab": continue
                target = source.partition(".")[2]
                inside = f"{target}.{name}".strip(".")
                target, name = (inside, "") if inside in known else (target, name)
                found.append(Import(room, target, name, node.lineno))
    return found


def wing(room: str) -> str: return room.partition(".")[0]
def file_of(room: str) -> str: return f"hooklab/{room.replace('.', '/')}.py"


def against_the_floors(tree: Path) -> Found:
    "1. A room imports from its own wing or from a lower floor; the package itself only lends its version."
    for one in imports(tree):
        here, there = wing(one.room), wing(one.target)
        if here == there or (not there and one.name == "__version__"): continue
        if FLOOR.get(there, 99) >= FLOOR[here]:
            yield file_of(one.room), one.line, f"{here} stands on no {there or 'hooklab'}: {one.target}"


def circles(tree: Path) -> Found:
    "2. The rooms of a wing do not import each other in a circle."
    leads = {room: {one.target for one in imports(tree) if one.room == room} - {room} for room in rooms(tree)}
    def reached(start):
        found, todo = set(), [start]
        while todo:
            new = leads.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found
    for room in leads:
        back = sorted(other for other in leads[room] if wing(other) == wing(room) and room in reached(other))
        if back: yield file_of(room), 1, f"imports {', '.join(back)}, which in the end imports {room}"


def private_names(tree: Path) -> Found:
    "3. No `_name` is imported across rooms, nor taken from a room that was imported."
    for one in imports(tree):
        if one.name.startswith("_") and one.name != "__version__":
            yield file_of(one.room), one.line, f"{one.name} belongs to {one.target} alone"
    for room, file in rooms(tree).items():
        whole = {one.target.rpartition(".")[2] for one in imports(tree) if one.room == room and not one.name}
        for node in ast.walk(parsed(file)):
            private = isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr)
            if private and isinstance(node.value, ast.Name) and node.value.id in whole:
                yield name_in(tree, file), node.lineno, f"{node.attr} belongs to {node.value.id} alone"


def torch_hooks(tree: Path) -> Found:
    """4. Torch's functions that register hooks are in hooks/ only, and so is the question whether this is a rerun of
    checkpointing. Exercises do by hand what a learner does by hand."""
    for room, file in rooms(tree).items():
        if wing(room) in ("hooks", "exercises"): continue
        for node in ast.walk(parsed(file)):
            word = getattr(node, "attr", getattr(node, "id", getattr(node, "value", None)))
            if not isinstance(word, str): continue
            if REGISTERS.fullmatch(word): yield name_in(tree, file), node.lineno, f"{word} is called in hooks/ only"
            if word == RERUN: yield name_in(tree, file), node.lineno, "whether this is a rerun is asked in hooks/ only"


def matplotlib_at_once(tree: Path) -> Found:
    "5. matplotlib is imported inside functions only."
    for file in rooms(tree).values():
        for node in ast.walk(parsed(file)):
            if not isinstance(node, ast.Import | ast.ImportFrom) or node.inner or node.for_types: continue
            sources = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(source.partition(".")[0] == "matplotlib" for source in sources):
                yield name_in(tree, file), node.lineno, "matplotlib is imported inside functions only"


def cells(tree: Path, folder: str = "nbs") -> Iterator[tuple[str, int, str]]:
    "(notebook, number of the cell, code) of each code cell, without the lines that only IPython reads."
    for file in sorted((tree/folder).rglob("*.ipynb")):
        if ".ipynb_checkpoints" in file.parts: continue
        for number, cell in enumerate(json.loads(file.read_text(encoding="utf-8"))["cells"], 1):
            code = "".join(cell["source"])
            if cell["cell_type"] != "code": continue
            yield name_in(tree, file), number, re.sub(r"^\s*[%!].*$", "", code, flags=re.M)


def long_rooms(tree: Path) -> Found:
    "6. A room has at most 250 lines."
    for file in rooms(tree).values():
        n = len(file.read_text(encoding="utf-8").splitlines())
        if n > MOST_LINES: yield name_in(tree, file), 1, f"has {n} lines, and {MOST_LINES} are allowed"


def long_cells(tree: Path) -> Found:
    "6. An export cell has at most 60 lines."
    for notebook, number, code in cells(tree, "nbs/lib"):
        n = len(code.strip().splitlines())
        if re.match(r"#\|\s*exporti?\b", code) and n > MOST_CELL_LINES:
            yield notebook, number, f"this cell has {n} lines, and {MOST_CELL_LINES} are allowed"


def long_lines(tree: Path) -> Found:
    "6. A line of the library has at most 120 characters."
    for file in rooms(tree).values():
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > MOST_CHARACTERS: yield name_in(tree, file), number, f"this line has {len(line)} characters"


def constructors_gone_around(tree: Path) -> Found:
    "7. `X.__new__(` is written only in hooks/, for copies and pickles."
    for room, file in rooms(tree).items():
        for node in ast.walk(parsed(file)):
            around = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__new__"
            if around and wing(room) != "hooks" and ast.unparse(node.func.value) != "super()":
                yield name_in(tree, file), node.lineno, "a constructor is gone around"


def names_of_wings(tree: Path) -> Found:
    "8. No public name equals a wing's."
    wings = {wing(room) for room in rooms(tree)}
    for file in rooms(tree).values():
        for name, node in top_names(parsed(file)).items():
            if name in wings: yield name_in(tree, file), node.lineno, f"{name} is the name of a wing"


def top_names(code: ast.Module) -> dict[str, ast.AST]:
    "What a room defines for others to see: functions, classes and constants without an underscore."
    found = {}
    for node in code.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef): found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {part.id: node for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return {name: node for name, node in found.items() if not name.startswith("_")}


def names_in_two_rooms(tree: Path) -> Found:
    """9. No two rooms define a name that is the same, unless it begins with an underscore.

    The room `fastai` has fastai's names for what is ours elsewhere."""
    places = {}
    for room, file in rooms(tree).items():
        if room == "fastai": continue
        for name, node in top_names(parsed(file)).items(): places.setdefault(name, []).append((file, node))
    for name, found in places.items():
        first = name_in(tree, found[0][0])
        for file, node in found[1:]: yield name_in(tree, file), node.lineno, f"{name} is also in {first}"


class Written(NamedTuple):
    "A file, or a cell of a notebook (`cell` is its number, and 0 of a file), with its products and its expressions."
    file: str
    cell: int
    products: list[ast.BinOp]
    statements: list[ast.Expr]


@cache
def written(tree: Path) -> list[Written]:
    "All code: library, tests, tools, notebooks. Their trees are large: each is made and walked once, and not kept."
    folders = [file for folder in ("hooklab", "tests", "tools") for file in sorted((tree/folder).rglob("*.py"))]
    files = [file for file in [*folders, tree/"setup.py"] if file.exists()]
    sources = [(name_in(tree, file), 0, file.read_text(encoding="utf-8")) for file in files]
    sources += [cell for cell in cells(tree) if "eval: false" not in cell[2]]
    return [looked_over(*source) for source in sources]


def looked_over(file: str, cell: int, code: str) -> Written:
    tree = ast.parse(code)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp | ast.Expr)]
    products = [node for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)]
    shown = tree.body[-1] if cell and tree.body else None  # at the end of a cell stands a value to look at
    return Written(file, cell, products, [node for node in nodes if isinstance(node, ast.Expr) and node is not shown])


QUESTIONS = {"bool", "isinstance", "any", "all", "hasattr", "startswith", "endswith", "callable", "is_tensor"}


def is_question(node: ast.AST) -> bool:
    "Whether an expression is True or False, as far as one can see."
    if isinstance(node, ast.BoolOp): return all(map(is_question, node.values))
    if isinstance(node, ast.Call): return ast.unparse(node.func).rpartition(".")[2] in QUESTIONS
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def is_text(node: ast.AST) -> bool:
    "Whether an expression is a text or a list as it is written."
    if isinstance(node, ast.Constant): return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple)


def text_times_question(tree: Path) -> Found:
    '10. No text or list is multiplied by a condition, as in `"s"*(n != 1)`.'
    for code in written(tree):
        for node in code.products:
            a, b = node.left, node.right
            if (is_text(a) and is_question(b)) or (is_text(b) and is_question(a)):
                yield code.file, code.cell or node.lineno, f"write a condition: {ast.unparse(node)[:60]}"


def tuples_as_statements(tree: Path) -> Found:
    "11. No statement is a tuple, as in `a(), b()`; at the end of a cell it is a value to look at."
    for code in written(tree):
        for node in code.statements:
            if isinstance(node.value, ast.Tuple):
                yield code.file, code.cell or node.lineno, f"write a line for each: {ast.unparse(node)[:60]}"


CLAUSES = [against_the_floors, circles, private_names, torch_hooks, matplotlib_at_once, long_rooms, long_cells,
           long_lines, constructors_gone_around, names_of_wings, names_in_two_rooms, text_times_question,
           tuples_as_statements]


def broken(tree: Path) -> dict[str, list[tuple[str, int, str]]]:
    "{clause: what breaks it}."
    return {clause.__name__: sorted(set(clause(tree))) for clause in CLAUSES}
