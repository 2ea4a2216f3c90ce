"""The rule that keeps the house as it is, as functions of a tree: which wing may import which, and how code is written.

Each function returns what breaks a clause, as (file, line, what is wrong)."""
import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FLOORS = [{"hooks", "drawing"}, {"errors", "findings"}, {"edit", "features", "debug", "profiling", "data_sets"},
          {"training", "checkpoints"}, {"stats"}, {"diagnosis"}, {"checking"}, {"exercises"}, {"cli", "fastai"},
          {"__main__"}, {"all"}]
FLOOR = {wing: number for number, wings in enumerate(FLOORS) for wing in wings}
MOST_LINES, MOST_CHARACTERS = 420, 120  # a rule states beside its function all that is known about what it finds
MOST_CELL_LINES, MOST_CLASS_LINES, MOST_METHODS = 60, 200, 20  # of a cell with functions; of a cell that is one class
FEW_LINES = 60  # a room that is shorter and has one importer is a part of that
MOST_IN_A_CHAIN = 4
ENGINE = {"Group", "LayerHook", "Callback"}  # a chain begins below these bases
REGISTERS = re.compile(r"register_(?!hook$|prehook$)\w*hook")  # those two are of tensors and of nodes of the graph
RERUN = "_current_graph_task_id"

Found = Iterator[tuple[str, int, str]]


class Import(NamedTuple):
    "`name` of the room `target`, imported in `room`; `name` is empty where the room itself is imported."
    room: str
    target: str
    name: str
    line: int
    for_types: bool  # only type checkers read it
    late: bool  # in a function
    known_as: str  # what it is called in `room`: `name`, or what stands behind `as`


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


def imports(tree: Path) -> list[Import]:
    "What rooms import from rooms, in functions too, but not what only type checkers read."
    return [one for one in all_imports(tree) if not one.for_types]


@cache
def all_imports(tree: Path) -> list[Import]:
    "What rooms import from rooms, in functions and for type checkers too."
    known, found = rooms(tree), []
    for room, file in known.items():
        package = ["hooklab", *room.split(".")]
        if file.name != "__init__.py": package.pop()
        for node in ast.walk(parsed(file)):
            if not isinstance(node, ast.Import | ast.ImportFrom): continue
            if isinstance(node, ast.Import):
                named = [(alias.name, "", alias.asname or alias.name) for alias in node.names]
            else:
                start = package[:len(package) - node.level + 1] if node.level else []
                source = ".".join([*start, *([node.module] if node.module else [])])
                named = [(source, alias.name, alias.asname or alias.name) for alias in node.names]
            for source, name, known_as in named:
                if source.partition(".")[0] != "hooklab": continue
                target = source.partition(".")[2]
                inside = f"{target}.{name}".strip(".")
                target, name = (inside, "") if inside in known else (target, name)
                found.append(Import(room, target, name, node.lineno, node.for_types, node.inner, known_as))
    return found


def wing(room: str) -> str: return room.partition(".")[0]
def package(room: str) -> str: return room.rpartition(".")[0]
def file_of(room: str) -> str: return f"hooklab/{room.replace('.', '/')}.py"


@cache
def public_names(tree: Path) -> frozenset[str]:
    "What `hooklab.all` offers: its list `__all__`, or the lists `_all_` from which that is made."
    if "all" not in rooms(tree): return frozenset()
    found = set()
    for node in parsed(rooms(tree)["all"]).body:
        if isinstance(node, ast.Assign) and node.targets[0].id in ("__all__", "_all_"):
            found |= set(ast.literal_eval(node.value))
    return frozenset(found)


def against_the_floors(tree: Path) -> Found:
    "1. A room imports from its own wing or from a lower floor; the package itself only lends its version."
    for one in imports(tree):
        here, there = wing(one.room), wing(one.target)
        if here == there or (not there and one.name == "__version__"): continue
        if FLOOR.get(there, 99) >= FLOOR[here]:
            yield file_of(one.room), one.line, f"{here} stands on no {there or 'hooklab'}: {one.target}"


def reached(leads: dict[str, set[str]]) -> dict[str, set[str]]:
    "{node: all nodes to which a way leads from it}."
    def from_here(start):
        found, todo = set(), [start]
        while todo:
            new = leads.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found
    return {node: from_here(node) for node in leads}


def in_circles(leads: dict[str, set[str]]) -> dict[str, list[str]]:
    "{node: the nodes it leads to from which a way leads back}, of those that are in a circle."
    ways = reached(leads)
    back = {node: sorted(other for other in others if node in ways.get(other, ())) for node, others in leads.items()}
    return {node: others for node, others in back.items() if others}


def circles(tree: Path) -> Found:
    "2. The rooms of a wing do not import each other in a circle, not for type checkers either."
    leads = {room: set() for room in rooms(tree)}
    for one in all_imports(tree):
        if one.target in leads and wing(one.target) == wing(one.room): leads[one.room].add(one.target)
    for room, others in in_circles({room: others - {room} for room, others in leads.items()}).items():
        yield file_of(room), 1, f"imports {', '.join(others)}, which in the end imports {room}"


def circles_of_packages(tree: Path) -> Found:
    "2. A package of a wing is in no circle with other packages, or with rooms beside it."
    def part(room): return ".".join(room.split(".")[:2])
    known = rooms(tree)
    packages, leads = {part(room) for room in known if room.count(".") == 2}, {}
    for one in all_imports(tree):
        if "." not in one.target or wing(one.target) != wing(one.room) or one.target not in known: continue
        if part(one.target) != part(one.room): leads.setdefault(part(one.room), set()).add(part(one.target))
    for node, others in in_circles(leads).items():
        if node not in packages: continue
        yield f"hooklab/{node.replace('.', '/')}", 1, f"imports {', '.join(others)}, which in the end imports {node}"


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
    "6. A room has at most 400 lines."
    for file in rooms(tree).values():
        n = n_lines(file)
        if n > MOST_LINES: yield name_in(tree, file), 1, f"has {n} lines, and {MOST_LINES} are allowed"


def n_lines(file: Path) -> int: return len(file.read_text(encoding="utf-8").splitlines())


def small_rooms(tree: Path) -> Found:
    """6. A room with one importer and fewer than 60 lines is merged into that, unless it is imported late, in a
    function: then it is apart because it is slow to import."""
    for room, file in rooms(tree).items():
        importers = {(one.room, one.late) for one in all_imports(tree) if one.target == room}
        if file.name == "__init__.py" or len(importers) != 1 or n_lines(file) >= FEW_LINES: continue
        (only, late), = importers
        if not late and wing(only) == wing(room):
            yield name_in(tree, file), 1, f"has {n_lines(file)} lines, and only {only} imports it"


def long_cells(tree: Path) -> Found:
    """6. An export cell is short: with functions in it, or more than one class, at most 60 lines; one that is a single
    class may have 200 lines and 20 methods."""
    for notebook, number, code in cells(tree, "nbs/lib"):
        if not re.match(r"#\|\s*exporti?\b", code): continue
        n, one = len(code.strip().splitlines()), only_class(code)
        most = MOST_CLASS_LINES if one else MOST_CELL_LINES
        if n > most: yield notebook, number, f"this cell has {n} lines, and {most} are allowed"
        methods = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in one.body) if one else 0
        if methods > MOST_METHODS:
            yield notebook, number, f"{one.name} has {methods} methods, and {MOST_METHODS} are allowed"


def only_class(code: str) -> ast.ClassDef | None:
    "The class of a cell that has no other class, and no function beside it; constants may be there."
    made = [node for node in ast.parse(code).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    return made[0] if len(made) == 1 and isinstance(made[0], ast.ClassDef) else None


class Kind(NamedTuple):
    "A class of ours: where it is defined, and by room and name, which classes of ours it is made from."
    room: str
    node: ast.ClassDef
    bases: list[tuple[str, str]]


@cache
def kinds(tree: Path) -> dict[tuple[str, str], Kind]:
    "The classes of the library by room and name, those within others left out."
    made = {(room, node.name): node for room, file in rooms(tree).items()
            for node in parsed(file).body if isinstance(node, ast.ClassDef)}
    sources = {(one.room, one.known_as): (one.target, one.name) for one in all_imports(tree)}
    def base(room, node):
        name = ast.unparse(node).partition("[")[0].rpartition(".")[2]
        here = (room, name)
        return here if here in made else sources.get(here)
    return {key: Kind(key[0], node, [b for part in node.bases if (b := base(key[0], part)) in made])
            for key, node in made.items()}


def only_children(tree: Path) -> Found:
    "12. A class that has one subclass and no other use is joined with it."
    children = {}
    for key, kind in kinds(tree).items():
        for base in kind.bases: children.setdefault(base, []).append(key)
    for base, found in children.items():
        if len(found) > 1 or base[1] in public_names(tree): continue
        if is_used(tree, base[1], kinds(tree)[found[0]].node): continue
        yield file_of(base[0]), kinds(tree)[base].node.lineno, f"{base[1]} is there for {found[0][1]} alone"


def is_used(tree: Path, name: str, child: ast.ClassDef) -> bool:
    "Is there a use of this name in the library, other than in the child and in what is imported for it?"
    inside = {id(node) for node in ast.walk(child)}
    return any(node not in inside for node in uses(tree).get(name, ()))


@cache
def uses(tree: Path) -> dict[str, set[int]]:
    "Where each name is used in the library: the ids of the nodes."
    found = {}
    for file in rooms(tree).values():
        for node in ast.walk(parsed(file)):
            name = getattr(node, "id", getattr(node, "attr", None))
            if name: found.setdefault(name, set()).add(id(node))
    return found


def long_chains(tree: Path) -> Found:
    "13. A chain of classes has at most four of ours, below the bases of the engine."
    def chain(key):
        longest = max((chain(base) for base in kinds(tree)[key].bases if base[1] not in ENGINE), key=len, default=[])
        return [key[1], *longest]
    for key, kind in kinds(tree).items():
        found = chain(key)
        if len(found) > MOST_IN_A_CHAIN: yield file_of(kind.room), kind.node.lineno, " < ".join(found)


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


def modules_named_like_public(tree: Path) -> Found:
    "8. No module or package has the name of something public: importing it would hide that."
    for room, file in rooms(tree).items():
        for part in room.split("."):
            if part in public_names(tree): yield name_in(tree, file), 1, f"{part} is a public name"


def names_in_two_rooms(tree: Path) -> Found:
    """9. No two rooms of a wing define the same name, and nobody defines a public name again, unless it begins with an
    underscore. The room `fastai` has fastai's names for what is ours elsewhere."""
    places = {}
    for room, file in rooms(tree).items():
        if room == "fastai": continue
        for name, node in top_names(parsed(file)).items():
            scope = "" if name in public_names(tree) else wing(room)
            places.setdefault((scope, name), []).append((file, node))
    for (_, name), found in places.items():
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


def walrus_on_one_line(tree: Path) -> Found:
    "14. No `:=` in an `if`, `for` or `while` whose body is on the same line: a reader sees only one of the two."
    for room, file in rooms(tree).items():
        if wing(room) == "exercises": continue
        for node in ast.walk(parsed(file)):
            if not isinstance(node, ast.If | ast.For | ast.While) or node.body[0].lineno != node.lineno: continue
            asked = node.iter if isinstance(node, ast.For) else node.test
            if any(isinstance(part, ast.NamedExpr) for part in ast.walk(asked)):
                yield name_in(tree, file), node.lineno, "name the value in a line before"


CLAUSES = [against_the_floors, circles, circles_of_packages, private_names, torch_hooks, matplotlib_at_once, long_rooms,
           small_rooms, long_cells, long_lines, constructors_gone_around, names_of_wings, modules_named_like_public,
           names_in_two_rooms, text_times_question, tuples_as_statements, only_children, long_chains,
           walrus_on_one_line]


def broken(tree: Path) -> dict[str, list[tuple[str, int, str]]]:
    "{clause: what breaks it}."
    return {clause.__name__: sorted(set(clause(tree))) for clause in CLAUSES}
