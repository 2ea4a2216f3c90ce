"""Builds the site: notebooks -> nbdev -> Quarto, or smalldocs where there is no Quarto -> _docs.

    python tools/site.py                      build what has changed
    python tools/site.py --serve --port 8000  serve _docs on this machine
"""
import argparse
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml
from site_frame import Navigation, patterns, read_pages
from site_lists import write_lists

ROOT = Path(__file__).resolve().parent.parent
NBS, PROC, DOCS, STAMP = (ROOT/name for name in ("nbs", "_proc", "_docs", "_proc/.built"))


def package() -> dict:
    "The facts of settings.ini, the version, and the page that each module is exported from."
    config = ConfigParser(interpolation=None, delimiters=["="])
    config.read(ROOT/"settings.ini", encoding="utf-8")
    name = config["package"]["name"]
    version = re.search(r'^__version__ = "(.+)"', (ROOT/name/"__init__.py").read_text(encoding="utf-8"), re.M)[1]
    origins = {file.relative_to(ROOT/name).with_suffix("").as_posix(): re.search(r"File to edit: \S*/nbs/(\S+)\.ipynb", file.read_text(encoding="utf-8"))
               for file in sorted((ROOT/name).rglob("[!_]*.py"))}
    return {**config["package"], "version": version, "modules": {module: origin and origin[1] for module, origin in origins.items()}}


def fingerprint(*patterns: str) -> str:
    "One hash of all files that match, names included: it changes when a file changes, comes or goes."
    files = sorted({f for p in patterns for f in ROOT.glob(p) if f.is_file() and ".ipynb_checkpoints" not in f.parts})
    return hashlib.sha256(b"".join(hashlib.sha256(f"{f}\0".encode() + f.read_bytes()).digest() for f in files)).hexdigest()


def check_notebooks():
    "Ends with one line when a notebook cannot be read, or when nbdev would drop text from it without a word."
    if not (NBS/"index.ipynb").exists(): sys.exit("The home page is missing: get it back with `git checkout -- nbs/index.ipynb`")
    for file in sorted(f for f in NBS.rglob("*.ipynb") if ".ipynb_checkpoints" not in f.parts):
        name = file.relative_to(ROOT)
        try: first = json.loads(file.read_text(encoding="utf-8"))["cells"][0]
        except (ValueError, LookupError, TypeError) as error:
            sys.exit(f"{name} is not a readable notebook ({error}): get the last good one back with `git checkout -- {name}`")
        title, *others = [line for line in "".join(first["source"]).splitlines() if line.strip()] or [""]
        if first["cell_type"] != "markdown" or not title.startswith("# "):
            sys.exit(f"{name} has no title: begin it with a Markdown cell `# Title`, `> what it is about`, in `make lab`")
        if lost := [line for line in others if not line.startswith((">", "- "))]:
            sys.exit(f"{name}: nbdev shows only the title of the first cell, not “{lost[0][:60]}”: move that to a cell of its own, in `make lab`")


def check_sidebar(contents: list):
    "Ends with one line when the sidebar leaves a notebook out, or has one that is not there."
    found = {name: set(NBS.glob(name)) for name in patterns(contents)}
    for name, files in found.items():
        if not files and "*" not in name: sys.exit(f"_quarto.yml lists {name}, which is not in nbs: take it out of the sidebar, or write it with `make lab`")
    for file in sorted(f for f in NBS.rglob("*.ipynb") if ".ipynb_checkpoints" not in f.parts):
        if not any(file in files for files in found.values()):
            sys.exit(f"{file.relative_to(ROOT)} is not in the sidebar: add it where it belongs in _quarto.yml, under `contents`")


def documented(facts: dict) -> dict[str, list[tuple[str, str]]]:
    "The public names that each page documents, with their places, from the index that nbdev keeps."
    from site_symbols import public_names
    index, public = ROOT/facts["name"]/"_modidx.py", public_names()
    if not (index.exists() and public): return {}
    read = {}
    exec(compile(index.read_text(encoding="utf-8"), index, "exec"), read)
    found = {}
    for module, symbols in read["d"]["syms"].items():
        for symbol, (place, _) in symbols.items():
            name = symbol.removeprefix(f"{module}.")
            if name in public and "." not in name:
                found.setdefault(place.partition(".html")[0], []).append((name, place))
    return found


def start_renderer(config: dict) -> subprocess.Popen:
    """Starts Quarto where it is installed, else smalldocs. It writes the texts only: what stands around them is made by
    site_frame.py, for both."""
    config["website"] = {key: value for key, value in config["website"].items() if key not in ("sidebar", "navbar")}
    config["website"] |= {"page-navigation": False, "bread-crumbs": False}
    (PROC/"_quarto.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    shutil.rmtree(PROC/"_docs", ignore_errors=True)
    renderer = ["quarto"] if shutil.which("quarto") else [sys.executable, "-m", "smalldocs.cli"]
    return subprocess.Popen(
        [*renderer, "render", str(PROC)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def write_learner_notebooks(docs: Path):
    "Puts beside each lesson the notebook that its page offers: the learner's version."
    from hooklab.exercises.notebooks import learner_notebook
    for file in sorted((NBS/"lessons").glob("*.ipynb")):
        try: nb = learner_notebook(json.loads(file.read_text(encoding="utf-8")))
        except ValueError as error: sys.exit(f"{file.relative_to(ROOT)}: {error} Fix it with `make lab`, then `make site`")
        (docs/"lessons"/file.name).write_text(json.dumps(nb, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def build():
    "Builds the site into _docs, unless it is what the files would give."
    done = f"Open {DOCS.relative_to(ROOT)}/index.html in a browser, or run `make serve`."
    facts = package()
    every_page = (f"{facts['name']}/**/*.py", "tools/site*.py", "tools/moving/__init__.py", "tools/search_synonyms.txt", "tools/moved_pages.txt", "pyproject.toml")
    code = fingerprint(*every_page)
    everything = fingerprint(*every_page, "nbs/**/*", "*.md", "_quarto.yml", "settings.ini")
    stamp = f"{code} {everything} {bool(shutil.which('quarto'))}"
    built = STAMP.read_text() if STAMP.exists() else ""
    if built == stamp and DOCS.exists(): return print(f"The site is up to date. {done}")
    check_notebooks()
    config = yaml.safe_load((ROOT/"_quarto.yml").read_text(encoding="utf-8"))
    contents = config["website"]["sidebar"]["contents"]
    check_sidebar(contents)
    from site_around import include_files
    from site_cases import write_cases
    from site_notebooks import process_notebooks
    from site_pages import finish_site  # only now: to be up to date should take no time
    from site_source import source_pages, write_source_pages
    from site_symbols import symbols
    symbols()  # reads the package once, for all processes
    # a changed library or builder changes any page
    try: process_notebooks(everything=not built.startswith(code))
    except Exception as error:  # such as code that cannot be read, or a symbol that was not exported
        shutil.rmtree(PROC, ignore_errors=True)  # a page that was begun would count as done
        sys.exit(f"A notebook cannot be made into a page ({' '.join(str(error).split())[:300]}): "
                 "fix it with `make lab`, run `make export`, then `make site`")
    include_files(PROC, ROOT)
    nav = Navigation(contents, read_pages(NBS), facts)
    write_lists(NBS, PROC, nav, documented(facts))
    renderer = start_renderer(config)
    source = source_pages(ROOT/facts["name"], nav)  # meanwhile
    said, _ = renderer.communicate()
    if renderer.returncode: sys.exit(f"{said}\nThe pages cannot be rendered: fix what is named above, then `make site`")
    write_source_pages(PROC/"_docs", source)
    write_learner_notebooks(PROC/"_docs")
    write_cases(PROC/"_docs", NBS/"cases", nav)
    if found := finish_site(PROC/"_docs", nav):
        problem = "problem" if len(found) == 1 else "problems"
        sys.exit("\n".join([*found, f"The site has {len(found)} {problem}: fix what is named above, then `make site`"]))
    shutil.rmtree(DOCS, ignore_errors=True)
    shutil.move(PROC/"_docs", DOCS)
    STAMP.write_text(stamp)
    print(f"{sum(1 for _ in DOCS.rglob('*.html'))} pages. {done}")


class Handler(SimpleHTTPRequestHandler):
    "Serves the site, with its own page for what is not there."
    def log_message(self, *args): pass

    def send_error(self, code, message=None, explain=None):
        if code != 404: return super().send_error(code, message, explain)
        # the page's relative links start at the top, wherever the missing address was
        page = (DOCS/"404.html").read_text(encoding="utf-8").replace("<head>", '<head><base href="/">', 1).encode()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


def serve(port: int):
    "Serves _docs on this machine until Ctrl-C."
    if not (DOCS/"index.html").exists(): sys.exit("There is no site yet: build it with `make site`")
    try: server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(DOCS)))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES): raise
        sys.exit(f"Port {port} is in use or not allowed: try another with `python tools/site.py --serve --port {port + 1}`")
    print(f"hooklab is at http://127.0.0.1:{server.server_port}/ (Ctrl-C stops it)", flush=True)
    with suppress(KeyboardInterrupt): server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the site, or serve it.")
    parser.add_argument("--serve", action="store_true", help="serve _docs instead of building it")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    os.chdir(ROOT)  # nbdev looks for the project from here
    if args.serve: serve(args.port)
    else: build()
