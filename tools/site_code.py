"""The code on the pages, and what the reference says of it.

A step of nbdev's (`doc_procs` in pyproject.toml), so every renderer gets it."""
import ast
import re

from fastcore.nbio import mk_cell
from nbdev.process import Processor
from site_reference import documentation, link_members

FOLD = '#| code-fold: true\n#| code-summary: "{}"\n'
MAGIC = re.compile(r"\A(%%.*\n)((?:#\|.*\n)+)")  # a cell has to begin with `%%writefile`, a page's with its options


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


class show_code(Processor):
    """Writes what the reference says of a symbol and folds its code below; shows exported code that documents none.
    Imports and cells that only check are folded, exported imports left out."""
    def begin(self):
        cells, at = [], 0
        page = re.sub(r".*/nbs/|\.ipynb$", "", self.nb.path_)
        for cell in self.nb.cells:
            if cell.cell_type == "markdown": cell.source = link_members(cell.source, page)
            else: cell.source = MAGIC.sub(r"\2\1", cell.source)
            if getattr(cell, "has_sd", False):  # nbdev puts symbols right after their code, the last one first
                name = ast.unparse(cell.parsed_()[0].value.args[0])
                cells.insert(at, mk_cell(documentation(name, page), "markdown"))
                fold(cells[-1], "Source")
            elif cell.cell_type == "code" and cell.directives_.keys() & {"default_exp", "export", "exporti"}:
                if only_imports(cell.parsed_()): continue
                at = len(cells)
                cells.append(cell)
            else:
                if cell.cell_type == "code" and page.startswith("lib/") and (body := cell.parsed_()):
                    if only_imports(body): fold(cell, "Imports")
                    elif only_checks(body) and not cell.get("outputs"): fold(cell, "Check")
                cells.append(cell)
        self.nb.cells = cells


def fold(cell, summary: str):
    "Folds the code of a cell, once."
    if not cell.source.startswith("#| code-fold"): cell.source = FOLD.format(summary) + cell.source
