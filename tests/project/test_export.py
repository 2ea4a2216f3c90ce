"""The library and README.md are what the notebooks make, and nothing in the tree gives away where it was made."""
import ast
import importlib
import inspect
import json
import re
import subprocess
import sys

import pytest

from support.checks import copy_tree, stale_exports


def test_library_and_readme_are_exported(repo, tmp_path):
    stale = stale_exports(copy_tree(repo, tmp_path/"tree"))
    if stale: pytest.fail("\n".join(stale), pytrace=False)


def test_links_of_readme_lead_somewhere(repo):
    text = (repo/"README.md").read_text(encoding="utf-8")
    links = re.findall(r"(?:\]\(|(?:src|href)=\")(?![a-z]+:|#)([^)#\"\s]+)", text)
    assert links, "README.md has no link into the repository"
    assert {"LICENSE", "CONTRIBUTING.md"} <= {*links}, "a page that shows a file is a link to the file"
    assert not [link for link in links if not (repo/link).exists()]


@pytest.fixture(scope="module")
def tracked(repo):
    "The files of the repository, those that are about to be added too."
    if not (repo/".git").exists(): pytest.skip("not a git repository, so it cannot be told which files belong to it")
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=repo, capture_output=True, check=True)
    return [repo/name for name in listed.stdout.decode().split("\0") if name and (repo/name).is_file()]


# In brackets, so that this file does not hold what it looks for.
nowhere_else = re.compile("|".join([
    r"[/]work/", r"[/]tmp/", r"[/]root/", r"[/]home/\w", r"[/]Users/\w",  # a path of one machine
    r"(?<![\w.+-])[\w.+-]+[@][\w-]+\.(?:com|org|net|edu|io|ai)\b",  # a person's address
    r"pythonhosted[.]org", r"pypi[.]org/simple", r"index[-_]url", r"find[-_]links"]))  # a package registry


def test_files_name_no_machine_person_or_registry(repo, tracked):
    texts = {path.relative_to(repo): path.read_text(encoding="utf-8", errors="ignore") for path in tracked if path.name != "LICENSE"}
    found = [f"{path}: {match[0]}" for path, text in texts.items() for match in nowhere_else.finditer(text)]
    assert not found, "these belong to one machine or person: " + "; ".join(found)


def test_top_level_is_as_designed(repo, tracked):
    top = {path.relative_to(repo).parts[0] for path in tracked}
    files = {"settings.ini", "setup.py", "pyproject.toml", "_quarto.yml", "Makefile", "README.md", "CONTRIBUTING.md",
             "CHANGELOG.md", "LICENSE", ".gitignore", ".gitattributes"}
    folders = {"nbs", "hooklab", "tests", "tools", ".ci", ".github"}
    assert top == files | folders


def test_the_map_of_a_folder_with_packages_and_of_a_package_lists_what_is_in_it(repo):
    packages = sorted((repo/"hooklab").glob("*/*/__init__.py"))
    assert packages
    for file in {*packages, *(package.parents[1]/"__init__.py" for package in packages)}:
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")), clean=False)
        listed = re.findall(r"^    (\w+) +\S", text, re.M)
        here = [path.stem for path in file.parent.iterdir() if path.suffix == ".py" or (path/"__init__.py").exists()]
        assert sorted(listed) == sorted(name for name in here if name != "__init__"), file


def test_a_public_name_is_defined_once(repo):
    "Where another module has a function of the same name, the links of the reference would lead to either."
    public, places = set(), {}
    for file in sorted((repo/"hooklab").rglob("[!_]*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef): places.setdefault(node.name, []).append(file.name)
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__" and isinstance(node.value, ast.List):
                public |= {name.value for name in node.value.elts}
    assert public >= {*importlib.import_module("hooklab.all").__all__} and {name: files for name, files in places.items() if name in public and len(files) > 1} == {}


# Modules that export more than `hl` has: names for trainers, for those who write lessons, and those of fastai.
MORE_THAN_HL = {"stats.trainers", "exercises.checking", "exercises.notebooks", "fastai"}

# Helpers that few programs need: they have their place in the reference, and are imported from their rooms.
FROM_THEIR_ROOMS = {
    "hooks.select": "named_layers outermost unwrap", "hooks.tree": "named_tensors map_tensors shape_text",
    "training.callback": "CancelBackwardException CancelStepException CancelBatchException CancelTrainException "
                         "CancelValidException CancelEpochException",
    "training.data": "tensor_loaders tabular synth_data", "training.learner": "RegModel",
    "training.progress": "ProgressCallback", "exercises.progress": "guess how_far"}
HELPERS = [(room, name) for room, names in FROM_THEIR_ROOMS.items() for name in names.split()]


def rooms(repo) -> list[str]:
    "The modules that a notebook writes, from below `hooklab`, but not the checks of the single lessons."
    files = [file.relative_to(repo/"hooklab").with_suffix("") for file in sorted((repo/"hooklab").rglob("[!_]*.py"))]
    return [".".join(file.parts) for file in files if file.name != "all" and not file.name.startswith("lesson_")]


def test_the_list_of_public_names_is_what_the_modules_export(repo):
    listed, exported = importlib.import_module("hooklab.all").__all__, {}
    for room in rooms(repo):
        for name in importlib.import_module(f"hooklab.{room}").__all__: exported.setdefault(name, room)
    place = "a list `_all_` in nbs/lib/all.ipynb"
    wrong = [f"{name} is exported by hooklab.{module} and in no list: write it into {place}, or `#| exporti` above its cell"
             for name, module in exported.items()
             if name not in listed and module not in MORE_THAN_HL and (module, name) not in HELPERS]
    wrong += [f"{name} is a helper, which hooklab.{module} exports and `hl` does not have: take it out of {place}"
              for module, name in HELPERS if name in listed or exported.get(name) != module]
    wrong += [f"{name} is exported by no module: take it out of {place}" for name in listed if name not in exported]
    wrong += [f"{name} is listed twice: take it once out of {place}" for name in sorted({*listed}) if listed.count(name) > 1]
    if wrong: pytest.fail("\n".join([*wrong, "Then run `make export`."]), pytrace=False)


# Importing all that there is, where no optional library is installed.
IMPORTED = """
import sys
from importlib.abc import MetaPathFinder
class NotInstalled(MetaPathFinder):
    packages = "accelerate", "fastai", "fastcore", "lightning", "matplotlib", "pytorch_lightning", "ray", "transformers"
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self.packages: return
        asked.append(name)
        raise ModuleNotFoundError(name)
asked = []
sys.meta_path.insert(0, NotInstalled())
import hooklab
assert "torch" not in sys.modules, "import hooklab imports torch"
print(*dir(hooklab))
from hooklab import *
assert all(globals()[name] is getattr(hooklab, name) for name in dir(hooklab))
from hooklab.fastai import *
import torch
hooklab.BatchExtractor(torch.nn.Linear(1, 1), "", "x")
assert not asked, f"it tries to import what is optional: {asked}"
try: import fastai
except ModuleNotFoundError: pass
else: raise AssertionError(f"hooklab.fastai is taken for fastai: {fastai}")
slow = "IPython", "PIL", "pandas", "scipy", "sklearn", "torch._dynamo", "torch.utils.flop_counter", "torchvision"
assert not {*slow} & {*sys.modules}, "it imports what is slow to import"
"""


def test_names_of_the_package_are_those_of_the_list():
    "They are had without what is optional, or slow to import."
    listed = importlib.import_module("hooklab.all").__all__
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    assert (done.stderr, done.stdout.split()) == ("", sorted(listed))


@pytest.mark.parametrize("name", ["picture", "in_jupyter", "name_of", "Plots", "Cancel", "nn", "_all_",
                                  *(name for _, name in HELPERS)])
def test_what_is_not_in_the_list_is_not_public(name):
    with pytest.raises(AttributeError, match=f"hooklab has no '{name}'"): getattr(importlib.import_module("hooklab"), name)


def test_everything_public_is_shown_at_work(repo):
    "Each public function, class and method is used in a cell that readers see; of a class, an output that shows one is enough."
    from hooklab.training.callback import EVENTS
    modules = [importlib.import_module(f"hooklab.{room}") for room in rooms(repo)]
    used, shown = "", ""
    for path in (repo/"nbs").rglob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] != "code" or re.search(r"^#\|\s*(?:exporti?|hide|default_exp)\b", source, re.M): continue
            used += re.sub(r"^\s*(?:from|import) .*$", "", source, flags=re.M) + "\n"
            for output in cell["outputs"]: shown += "".join(output.get("text", [])) + "".join(output.get("data", {}).get("text/plain", [])) + "\n"
    used, shown = set(re.findall(r"\w+", used)), set(re.findall(r"\w+", shown))
    used |= {"lightning_callback", "transformers_callback"} if {"lightning", "transformers"} <= used else set()  # the methods that call them
    called_by_the_engine = {*EVENTS, "clean_up", "enters", "overlooked", "why_silent", "given", "left_alone"}
    missing = []
    for module in modules:
        for name in getattr(module, "__all__", []):
            thing = getattr(module, name)
            if name not in used and not (inspect.isclass(thing) and name in shown): missing.append(name)
            if not inspect.isclass(thing): continue
            for method, value in vars(thing).items():
                public = not method.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
                if public and method not in used | called_by_the_engine: missing.append(f"{name}.{method}")
    assert len(used) > 500 and not missing, f"show these in a cell of lib, lessons or howto, or begin their names with _: {missing}"
