"""The sdist and the wheel hold what they should, and the wheel works where nothing else of the project is."""
import site
import subprocess
import sys
import venv
from configparser import ConfigParser
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from support.checks import copy_tree


@pytest.fixture(scope="module")
def settings(repo):
    config = ConfigParser(interpolation=None, delimiters=["="])
    config.read(repo/"settings.ini", encoding="utf-8")
    return config


@pytest.fixture(scope="module")
def wheel(repo, tmp_path_factory):
    "The wheel, built from the sdist, and both without the network."
    tree = copy_tree(repo, tmp_path_factory.mktemp("package")/"tree")
    built = subprocess.run([sys.executable, "-m", "build", "--no-isolation"], cwd=tree, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return next((tree/"dist").glob("*.whl"))


@pytest.fixture(scope="module")
def metadata(wheel):
    with ZipFile(wheel) as files:
        return HeaderParser().parsestr(files.read(next(n for n in files.namelist() if n.endswith("/METADATA"))).decode())


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    "An environment that holds the wheel and, lent by this one through a .pth file, what it requires."
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, symlinks=True)
    python = home/"bin"/"python"
    packages = Path(subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip())
    (packages/"lent.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    return home


def lines(value): return [line.strip() for line in value.splitlines() if line.strip()]


def plain(requirement): return requirement.replace(" ", "").replace('"', "'")


def test_metadata_equal_settings(metadata, settings, wheel):
    package, extras = settings["package"], settings["extras"]
    one = {"Name": "name", "Summary": "description", "Author": "author", "License-Expression": "license"}
    assert {key: metadata[key] for key in one} == {key: package[name] for key, name in one.items()}
    assert metadata["Requires-Python"] == f">={package['min_python']}"
    assert metadata["Keywords"].replace(",", " ").split() == package["keywords"].split()
    assert metadata.get_all("Classifier") == lines(package["classifiers"])
    assert metadata.get_all("Project-URL", []) == ([f"Repository, {package['repository']}"] if "repository" in package else [])
    assert sorted(metadata.get_all("Provides-Extra")) == sorted(extras)

    required, per_extra = [], {name: [] for name in extras}
    for requirement, _, extra in (plain(r).partition(";extra=='") for r in metadata.get_all("Requires-Dist")):
        (per_extra[extra.rstrip("'")] if extra else required).append(set_of_parts(requirement))
    assert required == [set_of_parts(r) for r in lines(package["requirements"])]
    assert per_extra == {name: [set_of_parts(r) for r in lines(value)] for name, value in extras.items()}


def set_of_parts(requirement):
    "Builders sort the bounds of a version: `a>=1,<2` and `a<2,>=1` are one."
    from packaging.requirements import Requirement
    parsed = Requirement(requirement)
    return parsed.name, parsed.extras, parsed.specifier


def test_version_is_that_of_the_code(metadata, repo):
    assert f'__version__ = "{metadata["Version"]}"' in (repo/"hooklab"/"__init__.py").read_text()


def test_wheel_holds_types_lessons_and_licence(wheel, repo):
    with ZipFile(wheel) as files: names = set(files.namelist())
    assert "hooklab/exercises/induction.safetensors" in names
    assert {"hooklab/py.typed", *(p.relative_to(repo).as_posix() for p in (repo/"hooklab").rglob("*.py"))} <= names
    assert {n for n in names if n.endswith(".ipynb")} == {f"hooklab/lessons/{p.name}" for p in (repo/"nbs/lessons").glob("*.ipynb")}
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"hooklab"}, "the wheel installs more than hooklab"


def test_wheel_works_where_nothing_else_is(installed, tmp_path, settings):
    code = "import hooklab; print(hooklab.__file__); print(hooklab.__version__)"
    file, version = subprocess.check_output([installed/"bin"/"python", "-c", code], cwd=tmp_path, text=True).split("\n")[:2]
    assert Path(file).resolve().is_relative_to(installed.resolve())
    for line in lines(settings["package"]["console_scripts"]):
        said = subprocess.run([installed/"bin"/line.split("=")[0], "--version"], cwd=tmp_path, capture_output=True, text=True)
        assert (said.returncode, version in said.stdout) == (0, True), said.stderr
    said = subprocess.run([installed/"bin"/"python", "-m", "hooklab", "lessons", "here"], cwd=tmp_path, capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "") and any((tmp_path/"here").glob("01-*.ipynb"))
    code = "from hooklab.exercises.induction import copy_model; print(len(copy_model().layers))"
    assert subprocess.check_output([installed/"bin"/"python", "-c", code], cwd=tmp_path, text=True) == "2\n"


def test_no_module_hides_a_public_name(repo):
    "Once every module has been imported, `hooklab.compare` and its like are what they were, and no modules."
    code = """if True:
        import importlib, pkgutil, types
        import hooklab as hl
        for module in pkgutil.walk_packages(hl.__path__, "hooklab."):
            if module.name != "hooklab.__main__": importlib.import_module(module.name)
        import hooklab.all
        modules = [name for name in hooklab.all.__all__ if isinstance(getattr(hl, name), types.ModuleType)]
        assert not modules and callable(hl.compare) and callable(hl.preflight), modules
        print(len(hooklab.all.__all__))"""
    assert int(subprocess.check_output([sys.executable, "-c", code], text=True, cwd=repo)) > 100
