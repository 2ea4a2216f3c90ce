"""The code on the pages, and what the reference says of it.

A step of nbdev's (`doc_procs` in pyproject.toml), so every renderer gets it. What is folded is decided by what a cell
defines, uses and shows, so that a page needs no list of cells."""
import ast
import re

from fastcore.nbio import mk_cell
from nbdev.process import Processor
from site_links import link_names, parameters_in
from site_reference import documentation
from site_symbols import documented_on, public_names

FOLD = '#| code-fold: true\n#| code-summary: "{}"\n'
MAGIC = re.compile(r"\A(%%.*\n)((?:#\|.*\n)+)")  # a cell has to begin with `%%writefile`, a page's with its options
FIRST_FEW = 3  # names in the line of a fold
PARTS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef


def only_imports(body: list[ast.stmt]) -> bool:
    return all(isinstance(part, ast.Import | ast.ImportFrom) for part in body)


def only_checks(body: list[ast.stmt]) -> bool:
    "Whether code only asserts."
    def checks(node):
        if isinstance(node, ast.Assert): return True
        if isinstance(node, ast.For | ast.With): return only_checks(node.body)
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and \
            ast.unparse(node.value.func).rpartition(".")[2].startswith("assert_")
    return bool(body) and all(map(checks, body))


def without_checks(code: str) -> tuple[str, str]:
    """The code without the statements that only check, and these; of code that does nothing else, all and nothing. A
    `with` that checks something in its block stays: it shows a use."""
    try: body = ast.parse(code).body
    except SyntaxError: return code, ""  # a magic of IPython
    lines, taken, others = code.splitlines(), set(), set()
    for part in body:
        found = set(range(part.lineno, part.end_lineno + 1))
        if only_checks([part]) and not isinstance(part, ast.With):  # with the comment above it
            while min(found) > 1 and re.match(r"#(?!\|)", lines[min(found) - 2]): found.add(min(found) - 1)
            taken |= found
        else: others |= found
    taken -= others
    if not others or not taken: return code, ""
    def joined(numbers): return "\n".join(lines[number - 1] for number in numbers).strip("\n")
    return joined(n for n in range(1, len(lines) + 1) if n not in taken), joined(sorted(taken))


# ---- what a cell defines

def defined(body: list[ast.stmt]) -> list[str]:
    "The names that statements give to something, and those that a list `_all_` makes public, as nbdev has it."
    found = []
    for part in body:
        if isinstance(part, PARTS): found.append(part.name)
        targets = getattr(part, "targets", None) or [getattr(part, "target", None)]
        found += [name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)]
        if isinstance(part, ast.Assign) and "_all_" in found: found += ast.literal_eval(part.value)
    return list(dict.fromkeys(found))


def inside_of(body: list[ast.stmt], page: str) -> str:
    "What stands on the fold of a cell that a public page exports and no user calls; nothing for any other cell."
    names, documented = defined(body), documented_on(page)
    if not names or not documented & public_names() or documented.intersection(names): return ""
    return f"Inside: {', '.join(names[:FIRST_FEW])}{', …' if len(names) > FIRST_FEW else ''}"


# ---- what a cell uses

class Library:
    "Knows, cell after cell, which code uses hooklab, or something that was made with it."
    def __init__(self): self.modules, self.names = set(), set()

    def is_used(self, body: list[ast.stmt]) -> bool:
        "Whether code uses a public name of hooklab, itself or by way of what an earlier cell has made."
        nodes = [node for part in body for node in ast.walk(part)]
        for node in nodes:
            if isinstance(node, ast.Import):
                self.modules |= {a.asname or a.name for a in node.names if a.name.partition(".")[0] == "hooklab"}
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hooklab":
                self.names |= {a.asname or a.name for a in node.names}
        if only_imports(body): return False
        used = any(self.is_ours(node) for node in nodes)
        if used: self.names |= {name for part in body for name in made(part)}
        return used

    def is_ours(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name): return isinstance(node.ctx, ast.Load) and node.id in self.names
        return isinstance(node, ast.Attribute) and node.attr in public_names() and \
            isinstance(node.value, ast.Name) and node.value.id in self.modules


def made(part: ast.AST):
    "The names that code binds, without those within a function or class."
    if isinstance(part, PARTS): yield part.name
    else:
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store): yield part.id
        for child in ast.iter_child_nodes(part): yield from made(child)


def plumbing(cell, body: list[ast.stmt], library: Library) -> str:
    "What stands on the fold of a cell of an explanation that has nothing to do with hooklab; nothing for any other."
    if library.is_used(body): return ""
    if only_imports(body): return "Show the imports"
    if draws(cell): return "Show how this is drawn"
    return "Show how this is computed" if cell.get("outputs") else "Show the setup"


def draws(cell) -> bool:
    "Whether a picture comes out of a cell."
    return any(kind.startswith("image/") for output in cell.get("outputs", []) for kind in output.get("data", {}))


class show_code(Processor):
    """Writes what the reference says of a symbol and folds its code below; shows exported code that documents none, or
    folds it where no user needs it. Folds imports, checks and plumbing, and leaves exported imports out."""
    def begin(self):
        self.page = re.sub(r".*/nbs/|\.ipynb$", "", self.nb.path_)
        self.library = Library()
        code = [body for cell in self.nb.cells if cell.cell_type == "code" and (body := statements(cell))]
        own = parameters_in([part for body in code for part in body], self.page)
        cells, at = [], 0
        for cell in self.nb.cells:
            if cell.cell_type == "markdown": cell.source = link_names(cell.source, self.page, own)
            else: cell.source = MAGIC.sub(r"\2\1", cell.source)
            if getattr(cell, "has_sd", False):  # nbdev puts symbols right after their code, the last one first
                name = ast.unparse(cell.parsed_()[0].value.args[0])
                cells.insert(at, mk_cell(documentation(name, self.page), "markdown"))
                fold(cells[-1], "Source")
            elif cell.cell_type == "code" and cell.directives_.keys() & {"default_exp", "export", "exporti"}:
                if only_imports(cell.parsed_()): continue
                at = len(cells)
                if summary := inside_of(cell.parsed_(), self.page): fold(cell, summary)
                cells.append(cell)
            else: cells += self.folded(cell) if cell.cell_type == "code" else [cell]
        self.nb.cells = cells

    def folded(self, cell) -> list:
        "A cell that is not exported, folded as pages of its folder are; its checks may become a cell of their own."
        if not (body := statements(cell)) or "echo" in cell.directives_: return [cell]
        if self.page.startswith("lib/"):
            if only_imports(body): fold(cell, "Imports")
            elif only_checks(body) and not cell.get("outputs"): fold(cell, "Check")
            return [cell]
        if self.page.startswith("explain/") and (summary := plumbing(cell, body, self.library)): fold(cell, summary)
        if not self.page.startswith("lessons/") or is_folded(cell): return [cell]
        if only_checks(body) and not cell.get("outputs"): fold(cell, "Check")
        cell.source, checks = without_checks(cell.source)
        if not checks: return [cell]
        apart = mk_cell(checks)
        fold(apart, "Check")
        return [cell, apart]


def statements(cell) -> list[ast.stmt]:
    "What stands in a cell of code, or nothing where it cannot be read."
    return cell.parsed_() or []


def is_folded(cell) -> bool: return "code-fold" in cell.directives_ or cell.source.startswith("#| code-fold")


def fold(cell, summary: str):
    "Folds the code of a cell, once; a label that a cell brings along stays."
    if not is_folded(cell): cell.source = FOLD.format(summary) + cell.source
