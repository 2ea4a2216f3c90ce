"""What a lesson defines, so that a figure shows the very network of its lesson."""
import ast
import base64
import json
from types import SimpleNamespace

import torch

from moving import NBS


def bound(node: ast.stmt) -> set[str]:
    "The names that a statement gives a value."
    if isinstance(node, ast.FunctionDef | ast.ClassDef): return {node.name}
    if not isinstance(node, ast.Assign): return set()
    return {part.id for target in node.targets for part in ast.walk(target)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def local(node: ast.stmt) -> set[str]:
    "The names that a function, or the functions of a class, give a value of their own."
    if not isinstance(node, ast.FunctionDef | ast.ClassDef): return set()
    return {part.arg if isinstance(part, ast.arg) else part.id for part in ast.walk(node)
            if isinstance(part, ast.arg) or isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


class Lesson:
    """Named definitions of a lesson, with all that they use and its imports, and whole cells, such as one that trains:
    those that define the names in `cells`. Nothing else of the lesson runs."""
    def __init__(self, name: str, *names: str, cells: tuple[str, ...] = ()):
        notebook = json.loads((NBS/f"{name}.ipynb").read_text(encoding="utf-8"))
        sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        parsed = [ast.parse(source).body for source in sources if "#| eval: false" not in source]
        self.name, self.statements, self.chosen = name, [node for nodes in parsed for node in nodes], []
        for wanted in names: self.choose(wanted)
        for wanted in cells:
            for node in next(nodes for nodes in parsed if any(wanted in bound(node) for node in nodes)): self.take(node)
        self.code = "\n".join(ast.unparse(node) for node in self.chosen)

    def choose(self, name: str):
        "Takes the first definition of a name."
        node = next((node for node in self.statements if name in bound(node)), None)
        if node is None: raise LookupError(f"{self.name} does not define {name}")
        self.take(node)

    def take(self, node: ast.stmt):
        "Takes a statement, and what it uses of the lesson."
        if node in self.chosen: return
        self.chosen.append(node)
        known = set().union(*map(bound, self.statements)) - local(node)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in known: self.choose(part.id)

    def load(self) -> SimpleNamespace:
        "Runs the definitions, in the order of the lesson."
        torch.set_num_threads(1)
        imports = [node for node in self.statements if isinstance(node, ast.Import | ast.ImportFrom)]
        chosen = [node for node in self.statements if node in self.chosen]
        names = {}
        exec(compile(ast.Module([*imports, *chosen], []), self.name, "exec"), names)
        return SimpleNamespace(**names)


def packed(numbers: torch.Tensor, low: float, high: float) -> str:
    "Numbers between two bounds as bytes, 0 for the lower and 255 for the upper one, in base64."
    steps = ((numbers - low)/(high - low)).nan_to_num(1.).clamp(0, 1).mul(255).round()
    return base64.b64encode(bytes(steps.flatten().int().tolist())).decode()


def unpacked(text: str, low: float, high: float) -> torch.Tensor:
    "The numbers again, as exact as they were kept."
    return torch.tensor(list(base64.b64decode(text)))/255*(high - low) + low
