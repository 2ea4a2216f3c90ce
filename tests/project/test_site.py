"""The site as files: every link leads somewhere, every picture speaks, nothing comes from the network, nothing is stale."""
import ast
import gc
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml
from bs4 import BeautifulSoup

from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import site_pages  # noqa: E402


@pytest.fixture(scope="session")
def pages(site) -> dict[str, BeautifulSoup]:
    "Every page by its name."
    gc.disable()  # else a third of the time goes into looking for garbage among trees that stay
    try: return {file.relative_to(site).as_posix(): site_pages.read(file) for file in sorted(site.rglob("*.html"))}
    finally:
        gc.freeze()
        gc.enable()


def problems(docs): return site_pages.problems(docs, site_pages.read_pages(docs))


def written(pages): return {name for name in pages if name != "404.html" and not name.startswith("source/")}


# ---- the whole site

def test_no_dead_link_no_silent_picture_no_other_host(site, pages):
    assert site_pages.problems(site, {site/name: page for name, page in pages.items()}) == []


def test_pages_are_named_as_their_notebooks(pages, repo):
    assert written(pages) == {file.relative_to(repo/"nbs").with_suffix(".html").as_posix() for file in (repo/"nbs").rglob("*.ipynb")
                              if ".ipynb_checkpoints" not in file.parts}


def test_each_page_is_whole(pages):
    for name, page in pages.items():
        assert page.html["lang"] == "en", name
        assert page.title.get_text(strip=True), name
        assert len(page.find_all("h1")) == 1, name
        assert "width=device-width" in page.find("meta", attrs={"name": "viewport"})["content"], name
        assert page.body.find("a")["href"] == f"#{page.main['id']}", f"{name} does not begin with the skip link"
        ids = [tag["id"] for tag in page.find_all(id=True)]
        assert len(ids) == len(set(ids)), f"{name} has an id twice: {sorted(i for i in set(ids) if ids.count(i) > 1)}"


def test_the_sidebar_leads_to_every_page(pages):
    links = {a["href"] for a in pages["index.html"].select("#quarto-sidebar a[href]")}
    assert links == written(pages)


def test_the_sidebar_has_the_reference_in_its_order(pages, repo):
    patterns = re.findall(r"lib/\S+\.ipynb", (repo/"_quarto.yml").read_text(encoding="utf-8"))
    listed = [file.relative_to(repo/"nbs").with_suffix("").as_posix() for pattern in patterns for file in sorted((repo/"nbs").glob(pattern))]
    links = [a["href"] for a in pages["index.html"].select("#quarto-sidebar a[href^=lib]")]
    assert links == [f"{name}.html" for name in listed]


def test_the_page_of_a_wing_lists_its_rooms_in_their_order(repo):
    sidebar = yaml.safe_load((repo/"_quarto.yml").read_text(encoding="utf-8"))["website"]["sidebar"]["contents"]
    reference = next(part for part in sidebar if part.get("section") == "Reference")
    wings = [part for part in reference["contents"] if isinstance(part, dict) and "href" in part]
    assert {wing["href"] for wing in wings} == {f"lib/{path.parent.name}/index.ipynb" for path in repo.glob("nbs/lib/*/index.ipynb")}
    for wing in wings:
        rooms = [path.name for name in wing["contents"] for path in sorted((repo/"nbs").glob(name))]
        cells = json.loads((repo/"nbs"/wing["href"]).read_text(encoding="utf-8"))["cells"]
        table = next(text for text in ("".join(cell["source"]) for cell in cells) if "| room | what it is for |" in text)
        assert re.findall(r"^\| \[\w+\]\(([\w-]+\.ipynb)\)", table, re.M) == rooms, wing["href"]


def test_no_page_shows_where_it_was_made(site, repo):
    private = re.compile("|".join(map(re.escape, {str(repo), str(Path.home()) + "/", sys.prefix + "/"})) + r"|/home/\w|/Users/\w|ipykernel_\d")
    for file in (*site.rglob("*.html"), *site.rglob("*.md"), *site.rglob("*.ipynb"), site/"assets/search.js"):
        text = re.sub(r"data:image/[^\"')]+", "", file.read_text(encoding="utf-8"))
        assert not (found := private.search(text)), f"{file.name}: {text[found.start() - 60:found.end() + 60]}"


def test_llms_txt_lists_every_page_as_markdown(site, pages):
    listed = set(re.findall(r"\]\((\S+)\)", (site/"llms.txt").read_text(encoding="utf-8")))
    assert listed == {name.removesuffix(".html") + ".llms.md" for name in pages if name != "404.html"}
    for name in listed: assert (site/name).stat().st_size


def test_search_knows_every_page_and_leads_to_places_that_exist(site, pages):
    script = (site/"assets/search.js").read_text(encoding="utf-8")
    entries = json.loads(script.removeprefix("window.siteSections = ").rstrip().rstrip(";"))
    assert {entry["href"] for entry in entries if "#" not in entry["href"]} == set(pages) - {"404.html"}
    for entry in entries:
        name, _, anchor = entry["href"].partition("#")
        assert not anchor or pages[name].find(id=anchor), entry["href"]
        assert entry["title"]


def test_each_lesson_offers_its_notebook(site, pages):
    lessons = [name for name in pages if name.startswith("lessons/")]
    assert lessons
    for name in lessons:
        link = pages[name].select_one(".download a[download]")
        nb = json.loads((site/"lessons"/link["href"]).read_text(encoding="utf-8"))
        assert nb["nbformat"] == 4 and nb["cells"]


def test_gallery_shows_every_figure_of_the_lessons(site, pages, repo):
    drawn = [(path.stem, re.search(r'^#\| fig-alt: "(.+)"$', "".join(cell["source"]), re.M)[1])
             for path in sorted((repo/"nbs/lessons").glob("*.ipynb")) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
             if "#| fig-cap" in "".join(cell["source"])]
    shown = []
    for link in pages["gallery.html"].select("#gallery a:has(img)"):
        page, _, place = link["href"].partition("#")
        assert pages[page].find(id=place).find("img", alt=link.img["alt"]) and (site/link.img["src"]).exists() and link.span.get_text()
        shown.append((page.removeprefix("lessons/").removesuffix(".html"), link.img["alt"]))
    assert shown == drawn and len(drawn) > 80


def test_pictures_are_files_of_a_known_size(pages):
    pictures = [image for name, page in pages.items() for image in page.select("main figure img")]
    assert len(pictures) > 100
    for image in pictures: assert not image["src"].startswith("data:") and int(image["width"]) > 100 and int(image["height"]) > 50


def test_maths_is_mathml(pages):
    for name, page in pages.items():
        for span in page.select("span.math"): assert span.find("math"), f"{name}: {span.get_text()}"


# ---- the reference and its source

def defined(code: str) -> dict[int, str]:
    "{line: name} of the functions, classes and methods of a module."
    found = {}
    def visit(node, prefix=""):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found[child.lineno] = prefix + child.name
                visit(child, f"{prefix}{child.name}.")
            else: visit(child, prefix)
    visit(ast.parse(code))
    return found


def test_every_symbol_of_the_reference_leads_to_its_source(site, pages, repo):
    from hooklab._modidx import d
    for module, symbols in d["syms"].items():
        file = repo/f"{module.replace('.', '/')}.py"
        lines = defined(file.read_text(encoding="utf-8"))
        public = {name.value for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)
                  and getattr(node.targets[0], "id", "") == "__all__" for name in node.value.elts}
        for symbol, (place, _) in symbols.items():
            name = symbol.removeprefix(f"{module}.")
            page = place.partition("#")[0]
            heading = next((h for h in pages[page].main.find_all("h3") if h.get_text(strip=True) == name), None)
            if heading is None:
                assert name not in public, f"{page} does not show {name}, which {module} exports"
                continue
            link = heading.find_previous("a", class_="source-link")
            assert link and link.find_next("h3") is heading, f"{page}: {name} has no source link"
            target, _, line = link["href"].partition("#L")
            assert lines[int(line)].split(".")[-1] == name.split(".")[-1], f"{page}: {name} leads to line {line}"
            shown = pages[os.path.normpath(f"{Path(page).parent}/{target}")].find(id=f"L{line}").get_text()
            assert re.search(rf"\b(def|class) {name.split('.')[-1]}\b", shown), shown


def exported(notebook: Path):
    "(code, names of its public symbols if nbdev documents them) of each cell of a notebook that makes a part of a module."
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        directive, _, code = "".join(cell["source"]).partition("\n")
        if cell["cell_type"] == "markdown" or directive not in ("#| export", "#| exporti"): continue
        body = ast.parse(code).body
        names = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"]
        yield code.strip(), names if directive == "#| export" else [], all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body)


def test_the_reference_shows_the_code_that_it_is_about(pages, repo):
    folded, open_ = [], []
    for file in sorted((repo/"nbs/lib").rglob("*.ipynb")):
        shown = {code.get_text().strip(): code for code in pages[file.relative_to(repo/"nbs").with_suffix(".html").as_posix()].main.select("pre code")}
        for code, names, only_imports in exported(file):
            assert (code in shown) != only_imports, f"{file.name}: {code[:200]}"
            if only_imports: continue
            fold = shown[code].find_parent("details", class_="code-fold")
            assert bool(fold) == bool(names), f"{file.name}: {code[:200]}"
            (folded if fold else open_).append(code)
            if not fold: continue
            assert "open" not in fold.attrs and fold.summary.get_text(strip=True) == "Source"
            above = [h.get_text(strip=True) for h in reversed(fold.find_all_previous("h3", limit=len(names)))]
            assert above == names, f"{file.name}: the source stands under {above}"
    assert folded and open_


def test_signatures_are_written_as_code_is(pages):
    signatures = [code.get_text() for page in pages.values() for code in page.main.select(".reference > .signature")]
    assert len(signatures) > 100
    for signature in signatures:
        word, _, called = signature.partition(" ")
        assert word in ("class", "def"), signature
        ast.parse(f"def {called if '(' in called else called + '()'}: pass")


def test_source_pages_show_each_line_of_each_module(pages, repo):
    for file in (repo/"hooklab").rglob("[!_]*.py"):
        page = file.relative_to(repo/"hooklab").with_suffix(".html").as_posix()
        lines = [span.get_text() for span in pages[f"source/{page}"].select("#L code > span")]
        assert lines == file.read_text(encoding="utf-8").rstrip().split("\n"), file.name


# ---- the look

def test_colours_are_far_enough_apart(repo):
    "WCAG AA, in both themes: text against whatever it may stand on."
    css = (repo/"nbs/assets/site.css").read_text(encoding="utf-8")
    colours = {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)}
    def luminance(colour):
        parts = [int(colour[i:i + 2], 16)/255 for i in (1, 3, 5)]
        return sum(w*(c/12.92 if c <= .03928 else ((c + .055)/1.055)**2.4) for w, c in zip((.2126, .7152, .0722), parts))
    pairs = [(text, ground) for text in ("ink", "muted", "accent", "warm") for ground in ("paper", "raised", "code", "accent-soft")]
    pairs += [(text, "code") for text in colours if text.startswith("code-")] + [("ink", "warm-soft"), ("code-comment", "warm-soft"), ("paper", "accent")]
    for text, ground in pairs:
        for theme in (0, 1):
            low, high = sorted((luminance(colours[text][theme]), luminance(colours[ground][theme])))
            assert (high + .05)/(low + .05) >= 4.5, f"{text} on {ground}, {'dark' if theme else 'light'}: {(high + .05)/(low + .05):.2f}"


# ---- the guards, each on something broken

@pytest.mark.parametrize("html, message", [
    ('<a href="nowhere.html">x</a>', "dead link nowhere.html"),
    ('<a href="#nowhere">x</a>', "dead link #nowhere"),
    ("<p>[ <a href='#top'>Hook</a> and more](hook.html)</p>", "shown as text"),
    ('<img src="here.png" alt="">', "no alternative text"),
    ('<img src="gone.png" alt="x">', "dead link gone.png"),
    ("<svg><path/></svg>", "no alternative text"),
    ('<script src="https://elsewhere.example/x.js"></script>', "loads https://elsewhere.example/x.js"),
    ('<script>import m from "https://elsewhere.example/m.mjs"</script>', "loads https://elsewhere.example/m.mjs"),
    ('<script>fetch("//elsewhere.example/data")</script>', "loads //elsewhere.example/data"),
    ('<img src="//elsewhere.example/x.png" alt="x">', "loads //elsewhere.example/x.png"),
    ('<iframe src="http://elsewhere.example"></iframe>', "loads http://elsewhere.example"),
    ('<link rel="stylesheet" href="https://elsewhere.example/x.css">', "loads https://elsewhere.example/x.css"),
    ('<p style="background: url(https://elsewhere.example/x.png)">x</p>', "loads https://elsewhere.example/x.png"),
    ("<style>@import 'https://elsewhere.example/x.css';</style>", "loads https://elsewhere.example/x.css"),
])
def test_a_fault_of_a_page_is_found(tmp_path, html, message):
    (tmp_path/"here.png").touch()
    (tmp_path/"page.html").write_text(f"<html><body><main>{html}</main></body></html>")
    assert any(message in problem for problem in problems(tmp_path)), problems(tmp_path)


@pytest.mark.parametrize("name, text", [("x.css", "p { background: url(//elsewhere.example/x.png) }"),
                                        ("x.css", "@import url('https://elsewhere.example/x.css');"),
                                        ("x.js", 'fetch("https://elsewhere.example/data")'),
                                        ("x.js", "import x from 'https://elsewhere.example/x.mjs'")])
def test_a_fault_of_a_stylesheet_or_script_is_found(tmp_path, name, text):
    (tmp_path/name).write_text(text)
    assert "elsewhere.example" in problems(tmp_path)[0]


def test_what_is_right_is_let_through(tmp_path):
    (tmp_path/"page.html").write_text('<html><body id="top"><a href="https://elsewhere.example">a link that a reader may follow</a>'
                                      '<a href="#top">x</a><a href="page.html#top">x</a><img src="data:image/png;base64,AA" alt="x">'
                                      '<svg role="img" aria-label="x" xmlns="http://www.w3.org/2000/svg"></svg></body></html>')
    assert problems(tmp_path) == []


def test_what_quarto_writes_is_finished_too(tmp_path):
    "Quarto and pandoc differ from smalldocs in details: maths is ready, each line has a link, a page may have no sidebar."
    for name in ("assets", "source"): (tmp_path/name).mkdir()
    for name in ("site.js", "site.css"): (tmp_path/"assets"/name).touch()
    page = ('<html lang="en"><head><meta charset="utf-8"><title>x</title></head><body><header id="quarto-header"><nav class="navbar">'
            '<div class="navbar-container"></div></nav></header><main id="quarto-document-content"><h1>x</h1>%s</main></body></html>')
    (tmp_path/"index.html").write_text(page % '<p><span class="math inline"><math><mi>x</mi></math></span></p><table><tr><td>1</td></tr></table>')
    (tmp_path/"source"/"x.html").write_text(page % '<div class="sourceCode" id="L"><pre class="sourceCode numberSource python"><code><span id="L-1">'
                                            '<a href="#L-1" aria-hidden="true" tabindex="-1"></a>x = 1</span></code></pre></div>')
    site_pages.finish_pages(tmp_path, site_pages.read_pages(tmp_path), {"name": "x", "version": "1", "license": "y", "modules": {}})
    assert problems(tmp_path) == []
    index, source = (site_pages.read(tmp_path/name) for name in ("index.html", "source/x.html"))
    assert str(index.find(class_="math").math) == "<math><mi>x</mi></math>"
    assert index.select_one(".table-scroll > table") and index.select_one(".navbar-container .search-open")
    assert source.find(id="L1").a["href"] == "#L1" and not source.find(class_="numberSource")


# ---- the builder, on a small project

def notebook(*cells):
    def cell(source, outputs=None):
        code = {} if outputs is None else {"outputs": outputs, "execution_count": None}
        return {"cell_type": "markdown" if outputs is None else "code", "metadata": {}, "source": source, **code}
    return json.dumps({"cells": [cell(*c) if isinstance(c, tuple) else cell(c) for c in cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


@pytest.fixture
def project(tmp_path, repo):
    "The builder with two pages of its own."
    for name in ("_quarto.yml", "settings.ini", "pyproject.toml"): shutil.copy(repo/name, tmp_path)
    for name in ("tools", "nbs/assets"): shutil.copytree(repo/name, tmp_path/name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("hooklab", "nbs/lessons"): (tmp_path/name).mkdir()
    for name in ("hooklab/__init__.py", "nbs/404.qmd"): shutil.copy(repo/name, tmp_path/name)
    quarto = (tmp_path/"_quarto.yml").read_text(encoding="utf-8")
    (tmp_path/"_quarto.yml").write_text(re.sub(r"\n *(?:- |href: )(?:lib/.*|gallery\.ipynb)", "", quarto), encoding="utf-8")
    (tmp_path/"nbs/index.ipynb").write_text(notebook("# Home\n\n> of a small project", "Some text, $x^2$, and [what `layers` are](https://code.example)."))
    (tmp_path/"nbs/lessons/01-one.ipynb").write_text(notebook("# One\n\n> the first", "Some text."))
    return tmp_path


def make(project, *args):
    return subprocess.run([sys.executable, "tools/site.py", *args], cwd=project, capture_output=True, text=True)


def test_a_build_and_what_follows_from_a_change(project):
    first = make(project)
    assert first.returncode == 0, first.stderr
    assert "index.html" in first.stdout.splitlines()[-1]
    assert (project/"_docs/lessons/01-one.html").exists()
    home = site_pages.read(project/"_docs/index.html")
    assert home.math and not home.select(".repository")
    assert home.main.find("a", href="https://code.example").get_text() == "what layers are", "nbdev's link to the symbol within the link is still there"

    assert "How-to" not in home.find(id="quarto-sidebar").get_text(), "a section without pages is shown"

    start = time.perf_counter()
    assert "up to date" in make(project).stdout
    assert time.perf_counter() - start < 5

    (project/"nbs/lessons/01-one.ipynb").rename(project/"nbs/lessons/01-uno.ipynb")
    (project/"nbs/howto").mkdir()
    for name, order in (("a", 3), ("b", 2), ("c", 1)): (project/f"nbs/howto/{name}.ipynb").write_text(notebook(f"# {name}\n\n- order: {order}", "Some text."))
    settings = (project/"settings.ini").read_text()
    (project/"settings.ini").write_text(settings.replace("[extras]", "repository = https://code.example/hooklab\n\n[extras]"))
    assert make(project).returncode == 0
    assert {file.stem for file in (project/"_docs/lessons").glob("*.html")} == {"01-uno"}
    home = site_pages.read(project/"_docs/index.html")
    assert home.select_one(".repository")["href"] == "https://code.example/hooklab"
    assert [a["href"] for a in home.select("#quarto-sidebar a[href^=howto]")] == ["howto/c.html", "howto/b.html", "howto/a.html"]

    # a fault leaves the last good site alone
    outputs = [{"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORw0KGgo="}},
               {"output_type": "display_data", "metadata": {}, "data": {"text/html": "<script src='https://elsewhere.example/x.js'></script>"}}]
    (project/"nbs/lessons/02-two.ipynb").write_text(notebook("# Two", "[nowhere](nowhere.ipynb)", ("show()", outputs)))
    broken = make(project)
    assert broken.returncode == 1
    *faults, last = broken.stderr.splitlines()
    assert sorted(fault.partition(": ")[2][:9] for fault in faults) == ["dead link", "loads htt", "picture 1"], faults
    assert "make site" in last
    assert not (project/"_docs/lessons/02-two.html").exists() and (project/"_docs/lessons/01-uno.html").exists()


@pytest.mark.parametrize("text, says", [("{", "not a readable notebook"), (notebook("No title"), "has no title"),
                                        (notebook("# Title\n\nLost words."), "Lost words"),
                                        (notebook("# Title", ("def half(", [])), "cannot be made into a page")])
def test_a_bad_notebook_is_one_line_and_an_exit_code(project, text, says):
    text = text.replace("def half", "#| export\\ndef half")
    (project/"nbs/lessons/01-one.ipynb").write_text(text)
    done = make(project)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and says in done.stderr, done.stderr


def test_the_list_of_the_reference_must_be_whole(project):
    def says(text):
        done = make(project)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and text in done.stderr, done.stderr
    (project/"nbs/lib").mkdir()
    (project/"nbs/lib/new.ipynb").write_text(notebook("# New"))
    says("nbs/lib/new.ipynb is not in the sidebar")
    quarto = (project/"_quarto.yml").read_text()
    (project/"_quarto.yml").write_text(quarto.replace("- section: Hooks\n            contents:", "- section: Hooks\n            contents:\n              - lib/new.ipynb\n              - lib/gone.ipynb"))
    says("lib/gone.ipynb, which is not in nbs")


def test_serving(project):
    said = make(project, "--serve")
    assert said.returncode == 1 and "make site" in said.stderr and len(said.stderr.splitlines()) == 1

    (project/"_docs").mkdir()
    (project/"_docs/index.html").write_text("home")
    (project/"_docs/404.html").write_text("<html><head></head>not here</html>")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = make(project, "--serve", "--port", str(taken.getsockname()[1]))
        assert said.returncode == 1 and "in use" in said.stderr and len(said.stderr.splitlines()) == 1

    server = subprocess.Popen([sys.executable, "tools/site.py", "--serve", "--port", "0"], cwd=project, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://\S+", server.stdout.readline())[0]
        assert urlopen(address).read() == b"home"
        with pytest.raises(HTTPError) as error: urlopen(f"{address}deep/down/nothing.html")
        assert error.value.code == 404 and b'<base href="/">' in error.value.read()
    finally:
        server.terminate()
        server.communicate()  # which closes the pipe, too
