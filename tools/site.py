"""Builds the site: notebooks -> nbdev -> Quarto, or smalldocs where there is no Quarto -> _docs.

    python tools/site.py                      build what has changed
    python tools/site.py --serve --port 8000  serve _docs on this machine
"""
import argparse
import errno
import gc
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

ROOT = Path(__file__).resolve().parent.parent
NBS, PROC, DOCS, STAMP = (ROOT/name for name in ("nbs", "_proc", "_docs", "_proc/.built"))
SHORT_TYPES = {"__main__.": "", "torch.nn.modules.module.Module": "nn.Module", "torch.Tensor": "Tensor",
               "collections.abc.": "", "typing.": "", "pathlib.Path": "Path"}
# nbdev makes a link of each symbol in backticks, also within the text of a link: [[`Hook`](/lib/hooks/hook.html#hook) here](page.ipynb)
INNER_LINK = re.compile(r"\[(`[^`]+`)\]\([^)]*\)")
LINK_IN_LINK = re.compile(r"\[((?:[^\[\]]*\[`[^`]+`\]\([^)]*\))+[^\[\]]*)\](?=\()")
SIGNATURE = re.compile(r"(?<=^```python\n)def .*?(?=\n```$)", re.M | re.S)
SOURCE_LINK = re.compile(r"\[source\]\(\S*/blob/\w+/hooklab/(\S+?)\.py#L(\d+)\)\{.*?\}")


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


def listed(entry: str | list | dict) -> list[str]:
    "The files and patterns in a part of the sidebar."
    if isinstance(entry, str): return [entry]
    if isinstance(entry, dict): return listed(entry.get("href") or []) + listed(entry.get("contents") or [])
    return [name for part in entry for name in listed(part)]


def check_sidebar():
    "Ends with one line when the sidebar leaves a notebook out, or has one that is not there."
    found = {name: set(NBS.glob(name)) for name in listed(yaml.safe_load((ROOT/"_quarto.yml").read_text(encoding="utf-8"))["website"]["sidebar"]["contents"])}
    for name, files in found.items():
        if not files and "*" not in name: sys.exit(f"_quarto.yml lists {name}, which is not in nbs: take it out of the sidebar, or write it with `make lab`")
    for file in sorted(f for f in NBS.rglob("*.ipynb") if ".ipynb_checkpoints" not in f.parts):
        if not any(file in files for files in found.values()):
            sys.exit(f"{file.relative_to(ROOT)} is not in the sidebar: add it where it belongs in _quarto.yml, under `contents`")


def process_notebooks(everything: bool):
    "Lets nbdev write the notebooks as pages into _proc: documented symbols, links, no hidden cells."
    from nbdev.serve import proc_nbs
    try: proc_nbs(n_workers=0, force=everything)
    except Exception as error:  # whatever a cell raises: nbdev runs imports and exported cells
        shutil.rmtree(PROC, ignore_errors=True)  # a page that was begun would count as done
        sys.exit(f"A notebook cannot be made into a page ({' '.join(str(error).split())[:300]}): "
                 "run `nbdev-test` to see which cell fails, fix it, then `make site`")


def spaced(signature: re.Match) -> str:
    "A signature as nbdev writes it, `x:int=1)->package.module.Type`, with the spaces that code has and without our modules."
    lines = [re.match(r"(.*?)( # .*)?$", line).groups("") for line in signature[0].splitlines()]
    annotated = [(re.sub(r"(?<=[\s*])(\w+):(?=\S)", r"\1: ", re.sub(r"\bhooklab\.(?:[a-z_]\w*\.)+", "", code)), comment) for code, comment in lines]
    return "\n".join(re.sub(r"(: [^=]+)=(?=\S)", r"\1 = ", code).replace(")->", ") -> ") + comment for code, comment in annotated)


def tidy_pages():
    """Fixes what nbdev wrote: a link within a link, source links to a repository, signatures without spaces and with long
    types."""
    for file in (f for f in PROC.rglob("*.ipynb") if "_docs" not in f.parts):
        nb = json.loads(file.read_text(encoding="utf-8"))
        for cell in nb["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = LINK_IN_LINK.sub(lambda link: "[" + INNER_LINK.sub(r"\1", link[1]) + "]", "".join(cell["source"]))
            for data in (output["data"] for output in cell.get("outputs", []) if "text/markdown" in output.get("data", {})):
                text = SOURCE_LINK.sub(r"[source](/source/\1.html#L\2){.source-link}", "".join(data["text/markdown"]))
                for long, short in SHORT_TYPES.items(): text = text.replace(long, short)
                text = SIGNATURE.sub(spaced, text)
                data["text/markdown"] = text
        file.write_text(json.dumps(nb), encoding="utf-8")


def write_source_pages(facts: dict):
    "Writes a page for each module, so that source links work offline and show the code of this build."
    for module, origin in facts["modules"].items():
        code = (ROOT/facts["name"]/f"{module}.py").read_text(encoding="utf-8").rstrip()
        fence = "`"*max(4, 1 + max((len(ticks) for ticks in re.findall("`+", code)), default=0))
        exported = f"Exported from [its page of the reference](/{origin}.ipynb)." if origin else ""
        # the id L makes the renderers number the lines L-1, L-2, …
        page = PROC/"source"/f"{module}.qmd"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(
            f"---\ntitle: {facts['name']}/{module}.py\ntoc: false\npage-layout: full\n---\n\n{exported}\n\n"
            f"{fence}{{#L .python code-line-numbers=true}}\n{code}\n{fence}\n", encoding="utf-8")


def render():
    "Runs Quarto where it is installed, else smalldocs."
    renderer = ["quarto"] if shutil.which("quarto") else [sys.executable, "-m", "smalldocs.cli"]
    shutil.copyfile(ROOT/"_quarto.yml", PROC/"_quarto.yml")
    shutil.rmtree(PROC/"_docs", ignore_errors=True)
    done = subprocess.run([*renderer, "render", str(PROC)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode: sys.exit(f"{done.stdout}{done.stderr}\nThe pages cannot be rendered: fix what is named above, then `make site`")


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
    every_page = (f"{facts['name']}/**/*.py", "tools/site*.py", "tools/moving/__init__.py", "pyproject.toml")
    code = fingerprint(*every_page)
    everything = fingerprint(*every_page, "nbs/**/*", "_quarto.yml", "settings.ini")
    stamp = f"{code} {everything} {bool(shutil.which('quarto'))}"
    built = STAMP.read_text() if STAMP.exists() else ""
    if built == stamp and DOCS.exists(): return print(f"The site is up to date. {done}")
    check_notebooks()
    check_sidebar()
    gc.disable()  # looking for garbage among the trees of all pages, which stay to the end, takes a third of the time
    from site_pages import finish_pages, problems, read_pages  # only now: to be up to date should take no time
    # a changed library or builder changes any page
    process_notebooks(everything=not built.startswith(code))
    tidy_pages()
    write_source_pages(facts)
    render()
    pages = read_pages(PROC/"_docs")
    finish_pages(PROC/"_docs", pages, facts)
    write_learner_notebooks(PROC/"_docs")
    if found := problems(PROC/"_docs", pages):
        problem = "problem" if len(found) == 1 else "problems"
        sys.exit("\n".join([*found, f"The site has {len(found)} {problem}: fix what is named above, then `make site`"]))
    shutil.rmtree(DOCS, ignore_errors=True)
    shutil.move(PROC/"_docs", DOCS)
    STAMP.write_text(stamp)
    gc.freeze()  # else Python takes the trees apart before it ends, which takes longer than the build
    print(f"{len(pages)} pages. {done}")


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
