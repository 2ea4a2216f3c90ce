"""How the code is laid out, in numbers, so that a redesign can be compared before and after.

    python tests/support/house.py [TREE] [--json FILE] [--no-uses]

prints the numbers of a tree: of this repository, or of another checkout. They are

1. Size: rooms (modules of hooklab without `__init__` and `_modidx`), lines, classes, functions (each `def`, methods and
   local ones too), and how many modules and packages are side by side in each wing and in each package.
2. Ladders: bases with exactly one subclass, and chains. A chain is a class of ours, a base of it that is ours, a base
   of that, and so on; its length counts the class itself. Chains are given twice: whole, and below the engine's bases,
   where these and what they derive from do not count.
3. Circles: rooms that import each other, directly or through others, once with the imports that only type checkers read
   and once without. What functions import counts in both.
4. Density: tokens by line, by wing. Tokens are those of Python's `tokenize`, with the one that ends a statement, but
   without comments, docstrings, indentation, and the ends of lines that end no statement. They are divided by all lines
   that are not blank, and again by those of code alone, without the lines of docstrings and of comments.
5. Mechanisms that there should be few of, counted in the code without `__init__`:
   - function modes outside hooks: classes of rooms outside the wing `hooks` that have `TorchFunctionMode` as a base,
     or a class of ours that has it, at any distance;
   - files that walk graphs: those that read `next_functions` of anything;
   - functions that search frames: functions, methods and local ones too, that read `f_back` or call `_getframe` or
     `currentframe`, and loop, by a statement or a comprehension; what is inside of a further function counts there;
   - lines of checking, diagnosing and measure: all lines of the rooms of these three packages of stats, together.
6. String keys of facts: how often rooms that write or read the facts of a run ask them for a name in quotes, by a
   subscript or by `get`, if it is the name of a field in stats/records/facts. Facts are the attributes in `FACTS`, and
   the variables that a function binds to something made of them, in an assignment, a loop or a comprehension; in the
   rules, also parameters that are dicts, and what functions of rules give as dicts. Left out are rooms in which such
   names are those of a file or of another tool.
7. Uses: how many files and functions of hooklab are entered by ten typical uses (house_uses.py), and how often the
   deepest stack of calls moves from one file to another (entered.py). The number of functions depends on Python's
   version: since 3.12, a comprehension is no function of its own."""
import argparse
import ast
import json
import os
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.rules import ENGINE, Import, all_imports, package, parsed, reached, rooms, wing

TESTS = Path(__file__).resolve().parents[1]
REPO = TESTS.parent
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Class = tuple[str, str]  # the room, and the name with what it is inside of, as in `Outer.Inner`


# ---- 1. size

def modules(tree: Path) -> dict[str, Path]:
    "The rooms without the `__init__` of wings and packages."
    return {room: file for room, file in rooms(tree).items() if file.name != "__init__.py"}


def size(tree: Path) -> dict[str, int]:
    nodes = Counter(type(node) for file in modules(tree).values() for node in ast.walk(parsed(file)))
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in modules(tree).values())
    return {"rooms": len(modules(tree)), "lines": lines, "classes": nodes[ast.ClassDef],
            "functions": nodes[ast.FunctionDef] + nodes[ast.AsyncFunctionDef]}


def entries(tree: Path) -> dict[str, int]:
    "{wing or package: how many modules and packages are directly inside}; the library itself is `hooklab`."
    inside = defaultdict(set)
    for room in modules(tree):
        parts = room.split(".")
        for n, part in enumerate(parts): inside[".".join(parts[:n]) or "hooklab"].add(part)
    return {place: len(names) for place, names in sorted(inside.items())}


# ---- 2. ladders

@cache
def links(tree: Path) -> dict[str, list[Import]]:
    "What each room imports from ours."
    found = {room: [] for room in rooms(tree)}
    for one in all_imports(tree): found[one.room].append(one)
    return found


def defined(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.ClassDef]]:
    for part in ast.iter_child_nodes(node):
        path = f"{inside}{part.name}." if isinstance(part, DEFINITIONS) else inside
        if isinstance(part, ast.ClassDef): yield path[:-1], part
        yield from defined(part, path)


@cache
def classes(tree: Path) -> dict[Class, ast.ClassDef]:
    return {(room, path): node for room, file in modules(tree).items() for path, node in defined(parsed(file))}


def looked_up(tree: Path, room: str, name: str, inside: str = "", asked: frozenset = frozenset()) -> Class | None:
    "The class of ours that `name` is in a room, below `inside`; imports are followed as far as they go."
    if room not in links(tree) or (room, name) in asked: return None
    for n in range(inside.count("."), -1, -1):  # from the innermost scope to that of the room
        own = (room, ".".join([*inside.split(".")[:n], name]))
        if own in classes(tree) and own != (room, inside): return own
    for link in links(tree)[room]:
        if link.name == "*": rest = name
        elif name == link.known_as or name.startswith(f"{link.known_as}."): rest = link.name + name[len(link.known_as):]
        else: continue
        found = looked_up(tree, link.target, rest.strip("."), "", asked | {(room, name)})
        if found: return found
    return None


@cache
def bases(tree: Path) -> dict[Class, list[Class]]:
    "{class of ours: its bases that are ours}."
    def named(base): return ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
    found = {one: [looked_up(tree, one[0], named(base), one[1]) for base in node.bases]
             for one, node in classes(tree).items()}
    return {one: [base for base in of if base] for one, of in found.items()}


def ancestors(tree: Path, one: Class) -> set[Class]:
    return {above for base in bases(tree)[one] for above in (base, *ancestors(tree, base))}


def chain(tree: Path, one: Class, left_out: frozenset = frozenset()) -> list[Class]:
    "The longest way up from a class, itself first."
    above = [chain(tree, base, left_out) for base in bases(tree)[one] if base not in left_out]
    return [one, *max(above, key=len, default=[])]


def chains(tree: Path, left_out: frozenset = frozenset()) -> dict:
    "The longest chain, in how many rooms it is, and how many classes are in one of more than two."
    found = [chain(tree, one, left_out) for one in classes(tree) if one not in left_out]
    longest = max(found, key=len, default=[])
    return {"longest": len(longest), "rooms": len({room for room, _ in longest}), "classes": [*map(".".join, longest)],
            "in more than two": sum(len(one) > 2 for one in found)}


def ladders(tree: Path) -> dict:
    below = defaultdict(list)
    for one, above in bases(tree).items():
        for base in above: below[base].append(one)
    alone = {".".join(base): ".".join(of[0]) for base, of in sorted(below.items()) if len(of) == 1}
    engine = {one for one in classes(tree) if one[1] in ENGINE}
    engine |= {above for one in engine for above in ancestors(tree, one)}
    return {"bases with one subclass": alone,
            "most ancestors": max((len(ancestors(tree, one)) for one in classes(tree)), default=0),
            "whole chains": chains(tree), "chains below the engine": chains(tree, frozenset(engine))}


# ---- 3. circles

def circles(tree: Path, for_types: bool) -> list[list[str]]:
    "The groups of rooms of which each leads to each other, with or without the imports for types."
    leads = {room: {one.target for one in of if for_types or not one.for_types} & links(tree).keys()
             for room, of in links(tree).items()}
    ways = reached(leads)
    groups = {tuple(sorted({room, *(other for other in found if room in ways[other])})) for room, found in ways.items()}
    return [list(group) for group in sorted(groups) if len(group) > 1]


# ---- 4. density

LEFT_OUT = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def counted(file: Path) -> Counter:
    "The tokens of a file, its lines that are not blank, and those of code."
    texts = [node.body[0] for node in ast.walk(parsed(file))
             if isinstance(node, DEFINITIONS | ast.Module) and ast.get_docstring(node) is not None]
    docstrings = {(text.lineno, text.col_offset) for text in texts}
    with tokenize.open(file) as opened: found = list(tokenize.generate_tokens(opened.readline))
    kept, in_docstring = [], False
    for token in found:
        in_docstring = in_docstring or token.start in docstrings
        if not in_docstring and token.type not in LEFT_OUT: kept.append(token)
        if token.type == tokenize.NEWLINE: in_docstring = False
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    written = {number for number, line in lines if line.strip()}
    code = {number for token in kept for number in range(token.start[0], token.end[0] + 1)}
    return Counter(tokens=len(kept), written=len(written), code=len(written & code))


def density(tree: Path) -> dict[str, dict[str, float]]:
    "{wing: tokens by line}; the library itself is `hooklab`, as `all` is a room."
    sums = defaultdict(Counter)
    for room, file in modules(tree).items():
        for where in ("hooklab", wing(room)): sums[where] += counted(file)
    return {where: {"by line": round(n["tokens"]/n["written"], 2), "by line of code": round(n["tokens"]/n["code"], 2)}
            for where, n in sorted(sums.items()) if n["code"]}


# ---- 5. mechanisms

FRAMES = {"f_back", "_getframe", "currentframe"}
LOOPS = ast.For | ast.AsyncFor | ast.While | ast.comprehension
JUDGES = "checking.", "diagnosis.", "stats.measure."


def function_modes(tree: Path) -> list[Class]:
    "The classes that derive from torch's function mode, with those in `hooks`."
    def is_one(one): return any(ast.unparse(b).split(".")[-1] == "TorchFunctionMode" for b in classes(tree)[one].bases)
    return [one for one in classes(tree) if any(map(is_one, (one, *ancestors(tree, one))))]


def names_read(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.attr if isinstance(node, ast.Attribute) else node.id
            for node in nodes if isinstance(node, ast.Attribute | ast.Name)}


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    "What is inside of a function, without what is inside of functions and classes in it."
    for part in ast.iter_child_nodes(function):
        if isinstance(part, DEFINITIONS): continue
        yield part
        yield from own_nodes(part)


def searches_frames(function: ast.AST) -> bool:
    nodes = [*own_nodes(function)]
    return bool(FRAMES & names_read(nodes)) and any(isinstance(node, LOOPS) for node in nodes)


def mechanisms(tree: Path) -> dict[str, int]:
    files = {room: [*ast.walk(parsed(file))] for room, file in modules(tree).items()}
    functions = [node for nodes in files.values() for node in nodes
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    judges = [file for room, file in modules(tree).items() if room.startswith(JUDGES)]
    return {"function modes outside hooks": sum(wing(room) != "hooks" for room, _ in function_modes(tree)),
            "files that walk graphs": sum("next_functions" in names_read(nodes) for nodes in files.values()),
            "functions that search frames": sum(map(searches_frames, functions)),
            "lines of checking, diagnosing and measure": sum(
                len(file.read_text(encoding="utf-8").splitlines()) for file in judges)}


# ---- 6. string keys of facts

FACTS = {"stats.measure.": {"facts"}, "stats.records.": {"facts"}, "stats.runs.": {"facts"},
         "diagnosis.": {"facts", "params", "optimizers", "inputs", "looks"}}  # attributes that are facts
OTHER_VALUES = "stats.records.reading", "diagnosis.verdict"  # they read a file, and findings of other tools


def facts_named(tree: Path) -> set[str]:
    "The names of all facts, as a file has them."
    return {part.target.id.rstrip("_") for node in ast.walk(parsed(rooms(tree)["stats.records.facts"]))
            if isinstance(node, ast.ClassDef) for part in node.body if isinstance(part, ast.AnnAssign)}


def has_dicts(kind: ast.AST | None) -> bool: return kind is not None and "dict" in ast.unparse(kind)


def asked_by_name(function: ast.AST, facts: set[str], known: set[str], names: set[str]) -> Iterator[ast.AST]:
    "Where a function asks facts for a name; `known` are functions and variables that have facts."
    def are_facts(node):
        if isinstance(node, ast.Attribute) and node.attr in facts or isinstance(node, ast.Name) and node.id in known:
            return True
        return any(are_facts(part) for part in ast.iter_child_nodes(node))

    for node in ast.walk(function):
        bound = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        of = getattr(node, "iter", getattr(node, "value", None))
        if isinstance(node, ast.For | ast.comprehension | ast.Assign | ast.NamedExpr) and are_facts(of):
            known = known | {part.id for one in bound for part in ast.walk(one)
                             if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    for node in ast.walk(function):
        is_get = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if is_get: key, of = (node.args or [None])[0], node.func.value
        elif isinstance(node, ast.Subscript): key, of = node.slice, node.value
        else: continue
        if isinstance(key, ast.Constant) and key.value in names and are_facts(of): yield node


def keys_of_facts(tree: Path) -> dict[str, int]:
    "{room: how often it asks facts for a name}."
    names, found = facts_named(REPO), {}
    functions = {room: [node for node in ast.walk(parsed(file)) if isinstance(node, ast.FunctionDef)]
                 for room, file in modules(tree).items() if room.startswith((*FACTS,)) and room not in OTHER_VALUES}
    rules = [one for room, of in functions.items() if room.startswith("diagnosis.") for one in of]
    give = {one.name for one in rules if has_dicts(one.returns)}
    for room, of in functions.items():
        facts, places = FACTS[f"{package(room)}."], set()
        for one in of:
            known = {arg.arg for arg in ast.walk(one) if isinstance(arg, ast.arg) and has_dicts(arg.annotation)}
            known = known | give if one in rules else set()
            places |= {(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
                       for node in asked_by_name(one, facts, known, names)}
        if places: found[room] = len(places)
    return found


# ---- 7. uses

def uses(tree: Path, *names: str) -> dict[str, dict]:
    "{use: what it enters}, measured in a process that imports the hooklab of the tree; all uses where none is named."
    python = [sys.executable, "-P", "-W", "ignore", "-m", "support.house_uses", tree.resolve(), *names]
    there = os.environ | {"PYTHONPATH": f"{tree.resolve()}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(python, env=there, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


# ---- all of it

def measured(tree: Path, with_uses: bool = True) -> dict:
    found = {"size": size(tree), "entries": entries(tree), "ladders": ladders(tree),
             "circles": {"for types too": circles(tree, True), "without": circles(tree, False)},
             "density": density(tree), "mechanisms": mechanisms(tree), "string keys of facts": keys_of_facts(tree)}
    return {**found, "uses": uses(tree)} if with_uses else found


def shown(found: dict) -> Iterator[str]:
    yield ", ".join(f"{n:,} {what}" for what, n in found["size"].items())
    yield "side by side: " + ", ".join(f"{place} {n}" for place, n in found["entries"].items())
    alone = found["ladders"]["bases with one subclass"]
    yield f"\n{len(alone)} bases with one subclass"
    for base, child in alone.items(): yield f"    {base} < {child}"
    yield f"most ancestors of a class: {found['ladders']['most ancestors']}"
    for what in ("whole chains", "chains below the engine"):
        n = found["ladders"][what]
        yield f"{what}: {n['in more than two']} classes in one of more than two"
        yield f"    the longest is {n['longest']}, in {n['rooms']} rooms: {' < '.join(n['classes'])}"
    for what, groups in found["circles"].items():
        yield f"\n{len(groups)} circles, imports for types {'counted' if what == 'for types too' else 'left out'}"
        for group in groups: yield f"    {len(group)} rooms: {', '.join(group)}"
    yield "\ntokens         by line   by line of code"
    for where, n in found["density"].items(): yield f"{where:14}{n['by line']:8.2f}{n['by line of code']:18.2f}"
    yield "\nmechanisms"
    for what, n in found["mechanisms"].items(): yield f"    {what}: {n:,}"
    keys = found["string keys of facts"]
    yield f"\n{sum(keys.values())} string keys of facts"
    for room, n in keys.items(): yield f"    {room} {n}"
    if "uses" not in found: return
    yield "\none use enters                files  functions  moves between files"
    for name, n in found["uses"].items(): yield f"{name:28}{len(n['files']):7}{n['functions']:11}{n['moves']:21}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", nargs="?", type=Path, default=REPO)
    parser.add_argument("--json", type=Path, help="a file for the same numbers")
    parser.add_argument("--no-uses", dest="uses", action="store_false", help="read the code, and run nothing")
    asked = parser.parse_args()
    if not (asked.tree/"hooklab").is_dir(): parser.error(f"there is no hooklab in {asked.tree}")
    found = measured(asked.tree, asked.uses)
    print(*shown(found), sep="\n")
    if asked.json: asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
