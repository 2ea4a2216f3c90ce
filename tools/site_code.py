"""The code on the pages of the reference: a step of nbdev's (`doc_procs` in pyproject.toml), so every renderer gets it."""
import ast

from nbdev.process import Processor

FOLD = '#| code-fold: true\n#| code-summary: "Source"\n'


class show_code(Processor):
    "Folds exported code under the symbols it documents, shows it where it documents none, and leaves imports out."
    def begin(self):
        cells, at = [], 0
        for cell in self.nb.cells:
            if getattr(cell, "has_sd", False):  # nbdev puts symbols right after their code, the last one first
                cells.insert(at, cell)
                cells[-1].source = FOLD + cells[-1].source.removeprefix(FOLD)
            elif cell.cell_type != "code" or not cell.directives_.keys() & {"default_exp", "export", "exporti"}: cells.append(cell)
            elif not all(isinstance(part, (ast.Import, ast.ImportFrom)) for part in cell.parsed_()):
                at = len(cells)
                cells.append(cell)
        self.nb.cells = cells
