"""The library and README.md are what the notebooks make, and nothing in the tree gives away where it was made."""
import ast
import re
import subprocess

import pytest

from checks import copy_tree, stale_exports


def test_library_and_readme_are_exported(repo, tmp_path):
    stale = stale_exports(copy_tree(repo, tmp_path/"tree"))
    if stale: pytest.fail("\n".join(stale), pytrace=False)


def test_links_of_readme_lead_somewhere(repo):
    text = (repo/"README.md").read_text(encoding="utf-8")
    links = re.findall(r"(?:\]\(|(?:src|href)=\")(?![a-z]+:|#)([^)#\"\s]+)", text)
    assert links, "README.md has no link into the repository"
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
    r"[\w.+-]+[@][\w-]+\.(?:com|org|net|edu|io|ai)\b",  # somebody's address
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


def test_a_public_name_is_defined_once(repo):
    "Where another module has a function of the same name, the links of the reference would lead to either."
    public, places = set(), {}
    for file in sorted((repo/"hooklab").glob("[!_]*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef): places.setdefault(node.name, []).append(file.name)
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__" and isinstance(node.value, ast.List):
                public |= {name.value for name in node.value.elts}
    assert len(public) > 100 and {name: files for name, files in places.items() if name in public and len(files) > 1} == {}
