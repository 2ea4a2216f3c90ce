"""Hands the facts of settings.ini to setuptools, and packs the lessons into the wheel."""
import re
from configparser import ConfigParser
from pathlib import Path
from shutil import copy2

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

here = Path(__file__).parent
config = ConfigParser(interpolation=None, delimiters=["="])
config.read(here/"settings.ini", encoding="utf-8")
package, extras = config["package"], config["extras"]
version = re.search(r'^__version__ = "(.+)"', (here/package["name"]/"__init__.py").read_text(encoding="utf-8"), re.M)[1]


def lines(value): return [line.strip() for line in value.splitlines() if line.strip()]


class BuildWithLessons(build_py):
    "The wheel carries the lesson notebooks, for `hooklab lessons`."
    def run(self):
        super().run()
        if self.editable_mode: return  # an editable install reads them where they are written, in nbs/lessons
        target = Path(self.build_lib)/package["name"]/"lessons"
        target.mkdir(parents=True, exist_ok=True)
        for notebook in sorted((here/"nbs"/"lessons").glob("*.ipynb")): copy2(notebook, target)


class CompleteSdist(sdist):
    "An sdist from which the wheel can be built: with settings.ini and the lessons."
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for file in [here/"settings.ini", *sorted((here/"nbs"/"lessons").glob("*.ipynb"))]:
            target = Path(base_dir)/file.relative_to(here)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy2(file, target)


setup(
    name=package["name"],
    version=version,
    description=package["description"],
    long_description=(here/"README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=package["author"],
    license_expression=package["license"],
    keywords=package["keywords"].split(),
    classifiers=lines(package["classifiers"]),
    python_requires=">=" + package["min_python"],
    project_urls={"Repository": package["repository"]} if "repository" in package else {},
    packages=find_packages(include=[package["name"] + "*"]),
    package_data={package["name"]: ["py.typed", "exercises/*.safetensors", "findings/*.json"]},
    install_requires=lines(package["requirements"]),
    extras_require={name: lines(requirements) for name, requirements in extras.items()},
    entry_points={"console_scripts": lines(package["console_scripts"]),
                  "nbdev": [f"{package['name']}={package['name']}._modidx:d"]},
    cmdclass={"build_py": BuildWithLessons, "sdist": CompleteSdist},
)
