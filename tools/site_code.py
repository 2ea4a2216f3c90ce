"""The code on the pages of the reference: a step of nbdev's (`doc_procs` in pyproject.toml), so every renderer gets it."""
import ast
import re

from nbdev.process import Processor
from site_reference import documentation, link_members

FOLD = '#| code-fold: true\n#| code-summary: "{}"\n'
IMPORTS = ast.Import | ast.ImportFrom


def only_checks(body: list[ast.stmt]) -> bool:
    "Whether code only asserts."
    def checks(node):
        if isinstance(node, ast.Assert): return True
        if isinstance(node, ast.For | ast.With): return only_checks(node.body)
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and \
            ast.unparse(node.value.func).rpartition(".")[2].startswith("assert_")
    return bool(body) and all(map(checks, body))


class show_code(Processor):
    """Writes what the reference says of a symbol, folds its code below, shows exported code where it documents none, folds
    imports and cells that only check, and leaves exported imports out."""
    def begin(self):
        cells, at = [], 0
        page = re.sub(r".*/nbs/|\.ipynb$", "", self.nb.path_)
        in_reference = page.startswith("lib/")
        for cell in self.nb.cells:
            if cell.cell_type == "markdown": cell.source = link_members(cell.source, page)
            directives = cell.directives_.keys() if cell.cell_type == "code" and hasattr(cell, "directives_") else set()
            body = cell.parsed_() if cell.cell_type == "code" and cell.source and in_reference else []
            if getattr(cell, "has_sd", False):  # nbdev puts symbols right after their code, the last one first
                name = ast.unparse(cell.parsed_()[0].value.args[0])
                text = documentation(name, page)
                cell.outputs = [{"output_type": "display_data", "metadata": {}, "data": {"text/markdown": text}}]
                cells.insert(at, cell)
                fold(cells[-1], "Source")
            elif directives & {"default_exp", "export", "exporti"}:
                if all(isinstance(part, IMPORTS) for part in cell.parsed_()): continue
                at = len(cells)
                cells.append(cell)
            else:
                if body and all(isinstance(part, IMPORTS) for part in body): fold(cell, "Imports")
                elif body and only_checks(body) and not cell.get("outputs"): fold(cell, "Check")
                cells.append(cell)
        self.nb.cells = cells


def fold(cell, summary: str):
    "Folds the code of a cell, once."
    if not cell.source.startswith("#| code-fold"): cell.source = FOLD.format(summary) + cell.source
