"""The site as files: every link leads somewhere, every picture speaks, nothing comes from the network, nothing is stale."""
import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml
from bs4 import BeautifulSoup

from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import site_code  # noqa: E402
import site_frame  # noqa: E402
import site_pages  # noqa: E402
import site_problems  # noqa: E402
from site_problems import problems  # noqa: E402


def read(file): return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


CHANGELOG = "explain/changelog.html"  # the footer leads to it, and no section


def written(pages):
    return {name for name in pages if name != "404.html" and not name.startswith(("source/", "cases/"))}


# ---- the whole site

def test_no_dead_link_no_silent_picture_no_other_host(site, links):
    "On the pages as they stand; what is wrong on one page alone has been looked for while they were built."
    assert site_problems.all_problems(site, links, {}) == []


def test_pages_are_named_as_their_notebooks(pages, repo):
    files = [file for file in (repo/"nbs").rglob("*") if file.suffix in (".ipynb", ".qmd") and ".ipynb_checkpoints" not in file.parts]
    assert written(pages) == {file.relative_to(repo/"nbs").with_suffix(".html").as_posix() for file in files} - {"404.html"}


def test_a_page_that_has_moved_is_gone_and_its_new_place_is_there(pages, site):
    rows = [line.split(" = ") for line in site_pages.MOVED.read_text(encoding="utf-8").splitlines()[1:]]
    assert [old for old, _ in rows if f"{old}.html" in pages.texts] == []
    assert [now for _, now in rows if f"{now}.html" not in pages.texts] == []
    known = dict(site_pages.moved_pages(site))
    assert all(known[f"{old}.html"] == f"{now}.html" for old, now in rows) and len(known) > len(rows) > 40


def test_each_page_is_whole(pages):
    for name, text in pages.texts.items():
        page, tags = pages.top(name), re.findall(r"<\w[^<>]*>", text)
        assert page.html["lang"] == "en", name
        assert page.title.get_text(strip=True), name
        about = page.find("meta", attrs={"name": "description"})
        assert about and about["content"] or name.startswith("source/"), f"{name} does not say what it is about"
        assert sum(tag.startswith("<h1") for tag in tags) == 1, name
        assert "width=device-width" in page.find("meta", attrs={"name": "viewport"})["content"], name
        assert page.body.find("a")["href"] == f"#{page.main['id']}", f"{name} does not begin with the skip link"
        ids = [found[1] for tag in tags if (found := re.search(r' id="([^"]*)"', tag))]
        assert len(ids) == len(set(ids)), f"{name} has an id twice: {sorted(i for i in set(ids) if ids.count(i) > 1)}"


def test_no_two_pages_have_the_same_title(pages):
    titles = {name: pages.top(name).title.get_text(strip=True) for name in pages}
    twice = {title for title, n in Counter(titles.values()).items() if n > 1}
    assert not twice, {name: title for name, title in titles.items() if title in twice}
    assert titles["lessons/19-attention.html"].startswith("Lesson 19: ")


def test_every_page_leads_to_the_licence_and_to_contributing(pages):
    for name in pages:
        leading = [leads(name, a["href"]) for a in pages.bottom(name).select(".site-footer a")]
        assert {"explain/licence.html", "explain/contributing.html"} <= {*leading}, name
    assert "Apache License" in pages["explain/licence.html"].main.get_text()


def test_home_begins_with_the_promise_and_what_it_rests_on(pages):
    home = pages["index.html"]
    assert "PyTorch" in home.h1.get_text() and not home.select("#TOC, .toc-short")
    parts = [part for part in home.main.find_all(recursive=False) if part.name in ("header", "div", "section")]
    names = [part.get("id") or part["class"][0] for part in parts]
    assert names[:5] == ["title-block-header", "hero", "hero-figure", "works-with", "case-small"]
    assert names[5] == "what-brings-you-here"
    proof = [a["href"] for a in home.select(".hero .proof a")]
    what_it_rests_on = "what-works-where", "how-right-is-the-diagnosis", "performance"
    assert proof == [f"explain/{name}.html" for name in what_it_rests_on]
    frameworks = {a.get_text() for a in home.select(".works-with a")}
    assert {"Lightning", "Hugging Face", "fastai", "FSDP", "torch.compile"} <= frameworks
    linked = {a["href"] for a in home.select("main a[href]")}
    assert {"explain/licence.html", "explain/contributing.html", "explain/teach-with-it.html"} <= linked


def test_a_long_table_in_groups_begins_with_links_to_them(pages):
    for name in ("explain/which-hook.html", "explain/what-works-where.html"):
        jump = pages[name].select_one("main nav.jump")
        groups = jump.find_next("table").select("tr.group")
        assert [link["href"] for link in jump.find_all("a")] == [f"#{row['id']}" for row in groups], name
        said = [link.get_text().lower() for link in jump.find_all("a")]
        assert len(groups) >= 4 and said == [row.get_text(" ", strip=True).lower() for row in groups], name
    works = pages["explain/what-works-where.html"].select_one("table.cards.in-line")
    assert all(cell.has_attr("data-label") != cell.has_attr("colspan") for cell in works.select("tbody td"))


# ---- where a page stands

@pytest.fixture(scope="module")
def sections(repo) -> dict[str, list]:
    "{section: its entries} of _quarto.yml: names of pages, and (group, the page that lists it, names)."
    contents = yaml.safe_load((repo/"_quarto.yml").read_text(encoding="utf-8"))["website"]["sidebar"]["contents"]
    named = {name for entry in contents for name in site_frame.patterns(entry) if "*" not in name}
    def order(file):
        found = re.search(
            r"^- order: (\d+)", "".join(json.loads(file.read_text(encoding="utf-8"))["cells"][0]["source"]), re.M
        )
        return (int(found[1]) if found else 10**9, file.as_posix())
    def names(pattern):
        files = sorted((repo/"nbs").glob(pattern), key=order) if "*" in pattern else [repo/"nbs"/pattern]
        paths = [file.relative_to(repo/"nbs") for file in files]
        return [
            path.with_suffix(".html").as_posix() for path in paths if "*" not in pattern or path.as_posix() not in named
        ]

    def entries(part):
        inside = [part["contents"]] if isinstance(part["contents"], str) else part["contents"]
        for entry in inside:
            if isinstance(entry, str):
                yield from names(entry)
            else:
                yield (
                    entry["section"],
                    entry.get("href", "").replace(".ipynb", ".html"),
                    list(entries(entry)),
                )

    return {
        part["section"]: [part["href"].replace(".qmd", ".html"), *entries(part)]
        for part in contents
        if "section" in part
    }


def places(sections):
    "(page, its section, its group or None) of every page that is in a section."
    for section, entries in sections.items():
        for entry in entries:
            if isinstance(entry, str): yield entry, section, None
            else: yield from ((name, section, entry[0]) for name in [entry[1], *entry[2]] if name)


def leads(name, href):
    "The page that a link on `name` leads to."
    return os.path.normpath(f"{Path(name).parent}/{href.partition('#')[0]}")


def test_every_page_is_in_one_section(pages, sections):
    placed = [name for name, *_ in places(sections)]
    assert len(placed) == len(set(placed)) and set(placed) == written(pages) - {"index.html", CHANGELOG}


def test_the_sidebar_holds_the_section_one_is_in_in_its_order(pages, sections):
    for name, section, group in places(sections):
        expected = []
        all_open = not any(entry[1] for entry in sections[section] if not isinstance(entry, str))  # as in the lessons
        for entry in sections[section]:
            if isinstance(entry, str): expected.append(entry)
            else: expected += [entry[1] or sections[section][0], *(entry[2] if all_open or entry[0] == group else [])]
        if section == "Reference": expected.append(sections["Inside"][0])
        assert [leads(name, a["href"]) for a in pages.top(name).select("#quarto-sidebar a")] == expected, name
        assert len(expected) <= 53, f"{name} has {len(expected)} links in its sidebar"
    for name in ("index.html", "404.html"): assert not pages[name].select("#quarto-sidebar"), name


def test_tabs_and_sidebar_say_where_one_is(pages, sections, repo):
    origins = {f"source/{module}.html": f"{origin}.html" for module, origin in modules(repo).items() if origin}
    where = {name: section for name, section, _ in places(sections)}
    assert origins and set(origins.values()) <= set(where)
    for name in pages:
        page, home = pages.top(name), origins.get(name, name)
        current = {(leads(name, a["href"]), a["aria-current"]) for a in page.select("#quarto-sidebar a[aria-current]")}
        tabs = {a.get_text(): a.get("aria-current") for a in page.select(".site-tabs a")}
        assert [*tabs] == ["Lessons", "How-to", "Reference", "Explanation"], name
        if home not in where: assert not current and not any(tabs.values()), name
        else:
            assert current == {(home, "page" if home == name else "true")}, name
            tab = "Reference" if where[home] == "Inside" else where[home]
            assert {text for text, mark in tabs.items() if mark} == {tab}, name
            crumbs = [a.get_text() for a in page.select("main .breadcrumb a")]
            assert crumbs[:1] == ([tab] if name != sections[tab][0] else []), name


def test_names_in_the_sidebar_are_short(pages, sections):
    for section, entries in sections.items():
        for entry in entries:
            name = entry if isinstance(entry, str) else (entry[2] or [entry[1]])[0]
            for a in pages.top(name).select("#quarto-sidebar a"):
                assert len(a.get_text()) <= 26, f"{section}: {a.get_text()}: `- short: …` below the title"


def test_previous_and_next_follow_the_section(pages, sections):
    orders = {section: [name for name, where, _ in places(sections) if where == section] for section in sections}
    for order in orders.values():
        for before, name, after in zip([None, *order], order, [*order[1:], None]):
            found = pages.bottom(name).select(".page-navigation a")
            links = {rel: leads(name, a["href"]) for a in found for rel in a["rel"]}
            assert links == {rel: page for rel, page in (("prev", before), ("next", after)) if page}, name


def modules(repo) -> dict[str, str]:
    "{module: the page that it is exported from}."
    found = {
        file: re.search(r"File to edit: \S*/nbs/(\S+)\.ipynb", file.read_text(encoding="utf-8"))
        for file in (repo / "hooklab").rglob("[!_]*.py")
    }
    return {
        file.relative_to(repo / "hooklab").with_suffix("").as_posix(): origin and origin[1]
        for file, origin in found.items()
    }


def test_what_a_user_needs_is_in_the_reference_and_what_nobody_needs_is_not(sections, repo):
    def exports(module):
        body = ast.parse((repo/"hooklab"/f"{module}.py").read_text(encoding="utf-8")).body
        lists = [
            node.value
            for node in body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        ]
        return {name.value for found in lists for name in found.elts}
    public = exports("all")
    assert "Hook" in public
    where = {name: section for name, section, _ in places(sections)}
    for module, origin in modules(repo).items():
        if origin == "lib/all" or not origin: continue
        names = exports(module)
        if names & public: assert where[f"{origin}.html"] == "Reference", f"{origin} exports {names & public}"
        if "exercises/lesson" in origin: assert where[f"{origin}.html"] == "Inside", f"{origin} shows solutions"
    assert where["explain/architecture.html"] == where["explain/how-the-engine-works.html"] == "Inside"


def test_every_page_says_what_it_is_for(pages, sections):
    kinds = {
        "Lessons": "lesson",
        "How-to": "howto",
        "Reference": "reference",
        "Explanation": "explain",
        "Inside": "inside",
    }
    expected = {
        name: "list" if name == sections[section][0] else kinds[section] for name, section, _ in places(sections)
    }
    expected |= {name: "check" for name in expected if re.match(r"lib/exercises/lesson-\d\d", name)}
    expected |= {name: "source" for name in pages if name.startswith("source/")}
    expected |= {name: "case" for name in pages if name.startswith("cases/")}
    assert {name: pages.top(name).body["data-kind"] for name in pages} == expected | {
        "index.html": "home",
        "404.html": "missing",
        "gallery.html": "gallery",
        "clinic.html": "clinic",
        CHANGELOG: "explain",
    }


def test_the_list_of_a_section_names_every_page_and_what_it_is_about(pages, sections):
    for entries in sections.values():
        page = pages[entries[0]]
        listed = [
            leads(entries[0], a["href"])
            for a in page.select(
                ".page-list li > p:first-child > a, .page-list li > a, main h2 > a[href]:not([href^='#'])"
            )
        ]
        assert listed == [
            name
            for entry in entries[1:]
            for name in ([entry] if isinstance(entry, str) else [n for n in (entry[1], *entry[2]) if n])
        ]
    names = {a.get_text() for a in pages["lib/index.html"].select(".page-list a:has(code)")}
    assert {"Hook", "layers", "ActivationStats", "FeatureExtractor", "diagnose"} <= names and len(names) > 80


def test_the_page_of_a_wing_or_package_lists_its_rooms_and_packages(repo, sections):
    pages = {name for section in ("Reference", "Inside") for entry in sections[section]
             for name in ([entry] if isinstance(entry, str) else entry[2])}
    indexes = {path.relative_to(repo/"nbs"): path for path in (repo/"nbs/lib").glob("*/**/index.ipynb")}
    in_sidebar = {entry[1] for section in ("Reference", "Inside") for entry in sections[section]
                  if not isinstance(entry, str) and entry[1]}
    assert in_sidebar == {index.with_suffix(".html").as_posix() for index in indexes}
    for index, path in indexes.items():
        text = "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
        assert "| page | what it is for |" in text
        rooms = re.findall(r"^\| \[\w+\]\(([\w-]+)\.ipynb\)", text, re.M)
        packages = re.findall(r"^\| \[\w+\]\(([\w-]+)/index\.ipynb\)", text, re.M)
        assert sorted(f"{index.parent}/{name}.html" for name in rooms) == sorted(
            name for name in pages if Path(name).parent == index.parent), index
        assert sorted(packages) == sorted(other.parent.name for other in indexes if other.parent.parent == index.parent)


def test_no_page_shows_where_it_was_made(site, repo):
    private = re.compile("|".join(map(re.escape, {str(repo), str(Path.home()) + "/", sys.prefix + "/"})) + r"|/home/\w|/Users/\w|ipykernel_\d")
    for file in (*site.rglob("*.html"), *site.rglob("*.md"), *site.rglob("*.ipynb"), site/"assets/search-index.js"):
        text = re.sub(r"data:image/[^\"')]+", "", file.read_text(encoding="utf-8"))
        assert not (found := private.search(text)), f"{file.name}: {text[found.start() - 60:found.end() + 60]}"


def test_llms_txt_lists_every_page_as_markdown(site, pages):
    listed = set(re.findall(r"\]\((\S+)\)", (site/"llms.txt").read_text(encoding="utf-8")))
    written_down = {name for name in pages if name != "404.html" and not name.startswith("cases/")}
    assert listed == {name.removesuffix(".html") + ".llms.md" for name in written_down}
    for name in listed: assert (site/name).stat().st_size


def test_each_lesson_offers_its_notebook(site, pages):
    lessons = [name for name in pages if pages.top(name).body["data-kind"] == "lesson"]
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
    for link in pages["gallery.html"].select(".gallery-row a:has(img)"):
        page, _, place = link["href"].partition("#")
        assert pages[page].find(id=place).find("svg", attrs={"aria-label": link.img["alt"]}), link["href"]
        assert (site/link.img["src"]).exists() and link.span.get_text()
        shown.append((page.removeprefix("lessons/").removesuffix(".html"), link.img["alt"]))
    assert sorted(shown) == sorted(drawn) and len(drawn) > 80
    below = [image["alt"] for image in pages["gallery.html"].select("#gallery img")]
    assert below == [alt for _, alt in drawn if alt in below], "the others do not stand in the order of the lessons"


def test_gallery_gathers_figures_by_symptom(pages, repo):
    said = {}
    for path in sorted((repo/"nbs/lessons").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if not (symptom := re.search(r"^#\| symptom: (\S+)$", source := "".join(cell["source"]), re.M)): continue
            said.setdefault(symptom[1], []).append(re.search(r'^#\| fig-alt: "(.+)"$', source, re.M)[1])
    blocks = pages["gallery.html"].select("[id^=shows-]")
    shown = {block["id"].removeprefix("shows-"): [image["alt"] for image in block.find_all("img")] for block in blocks}
    assert shown == said and all(shown.values())
    tops = [heading["id"] for heading in pages["gallery.html"].select("main section[id]:has(> h2)")]
    jumps = [link["href"] for link in pages["gallery.html"].select("main p a[href^='#']")]
    assert jumps == [f"#{top}" for top in tops], "the links at the top do not name each section"


def test_pictures_have_a_known_size(pages):
    shown = "main figure :is(img[src], svg.plot)"
    pictures = [image for page in pages.having("<figure") for image in page.select(shown)]
    pictures = [image for image in pictures if image.find_parent("picture") is None]
    assert len(pictures) > 100
    for image in pictures:
        assert int(image["width"]) > 100 and int(image["height"]) > 50
        assert not image.get("src", "").startswith("data:"), "a bitmap is a file"


def test_plots_are_at_home_in_both_themes(pages):
    plots = [plot for page in pages.having(' class="plot') for plot in page.select("main svg.plot")]
    assert len(plots) > 90
    for plot in plots:
        text = str(plot)
        assert not re.search(r"(?:fill|stroke): #(?:000000|ffffff)", re.sub(r"<text.*?</text>", "", text, flags=re.S))
        assert "font-family:" not in text and len(text) < 80_000
        assert not re.search(r"(?:light-dark|var)\([^;\"]*(?:light-dark|var)\(", text), "a color was fitted twice"


def test_maths_is_mathml(pages):
    spans = [span for page in pages.having(' class="math') for span in page.select("span.math")]
    assert spans
    for span in spans: assert span.find("math"), span.get_text()


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
    @cache
    def headings(page): return {h.get_text(strip=True): h for h in reversed(pages[page].main.find_all("h3"))}
    @cache
    def lines_of(page): return {line["id"]: line.get_text() for line in pages[page].select("#L span[id]")}
    for module, symbols in d["syms"].items():
        file = repo/f"{module.replace('.', '/')}.py"
        lines = defined(file.read_text(encoding="utf-8"))
        public = {name.value for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)
                  and getattr(node.targets[0], "id", "") == "__all__" for name in node.value.elts}
        for symbol, (place, _) in symbols.items():
            name = symbol.removeprefix(f"{module}.")
            page = place.partition("#")[0]
            heading = headings(page).get(name)
            if heading is None:
                assert name not in public, f"{page} does not show {name}, which {module} exports"
                continue
            link = heading.find_previous("a", class_="source-link")
            assert link and link.find_next("h3") is heading, f"{page}: {name} has no source link"
            target, _, line = link["href"].partition("#L")
            assert lines[int(line)].split(".")[-1] == name.split(".")[-1], f"{page}: {name} leads to line {line}"
            shown = lines_of(os.path.normpath(f"{Path(page).parent}/{target}"))[f"L{line}"]
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
            is_inside = bool(fold) and fold.summary.get_text(strip=True).startswith("Inside: ")
            assert (bool(fold) and not is_inside) == bool(names), f"{file.name}: {code[:200]}"
            (folded if fold else open_).append(code)
            if not fold or is_inside: continue
            assert "open" not in fold.attrs and fold.summary.get_text(strip=True) == "Source"
            above = [h.get_text(strip=True) for h in reversed(fold.find_all_previous("h3", limit=len(names)))]
            assert above == names, f"{file.name}: the source stands under {above}"
    assert folded and open_


def test_signatures_are_written_as_code_is(pages):
    reference = pages.having("signature")
    signatures = [code.get_text() for page in reference for code in page.main.select(".reference > .signature")]
    assert len(signatures) > 100
    for signature in signatures:
        word, _, called = signature.partition(" ")
        assert word in ("class", "def"), signature
        ast.parse(f"def {called if '(' in called else called + '()'}: pass")


def test_source_pages_show_each_line_of_each_module(pages, repo):
    for file in (repo/"hooklab").rglob("[!_]*.py"):
        page = file.relative_to(repo/"hooklab").with_suffix(".html").as_posix()
        spans = pages[f"source/{page}"].select("#L code > span")
        lines = [span.get_text().removesuffix("\n") for span in spans]
        assert [span["id"] for span in spans] == [f"L{n}" for n in range(1, len(lines) + 1)]
        assert lines == file.read_text(encoding="utf-8").rstrip().split("\n"), file.name


def test_a_source_page_has_an_outline_of_its_classes(pages, repo):
    for file in (repo/"hooklab").rglob("[!_]*.py"):
        name = f"source/{file.relative_to(repo/'hooklab').with_suffix('.html').as_posix()}"
        lines = defined(file.read_text(encoding="utf-8"))
        shown = {int(a["href"].removeprefix("#L")): a.get_text() for a in pages[name].select("#TOC a")}
        assert all(lines[line].rpartition(".")[2] == text for line, text in shown.items()), name
        top = {text for text in lines.values() if "." not in text and not text.startswith("__")}
        assert top <= set(shown.values()) or not top, name


# ---- the look

def test_colors_are_far_enough_apart(repo):
    "WCAG AA, in both themes: text against whatever it may stand on."
    css = (repo/"nbs/assets/site.css").read_text(encoding="utf-8")
    colors = {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)}
    def luminance(color):
        parts = [int(color[i:i + 2], 16)/255 for i in (1, 3, 5)]
        return sum(w*(c/12.92 if c <= .03928 else ((c + .055)/1.055)**2.4) for w, c in zip((.2126, .7152, .0722), parts))
    pairs = [(text, ground) for text in ("ink", "muted", "accent", "warm") for ground in ("paper", "raised", "code", "accent-soft")]
    pairs += [(text, "code") for text in colors if text.startswith("code-")] + [("ink", "warm-soft"), ("code-comment", "warm-soft"), ("paper", "accent")]
    for text, ground in pairs:
        for theme in (0, 1):
            low, high = sorted((luminance(colors[text][theme]), luminance(colors[ground][theme])))
            assert (high + .05)/(low + .05) >= 4.5, f"{text} on {ground}, {'dark' if theme else 'light'}: {(high + .05)/(low + .05):.2f}"


# ---- the guards, each on something broken

def test_the_options_of_a_cell_that_writes_a_file_come_first_on_the_page():
    given = "%%writefile net.py\n#| code-fold: true\nimport torch\n#| this is a comment\n"
    shown = "#| code-fold: true\n%%writefile net.py\nimport torch\n#| this is a comment\n"
    assert site_code.MAGIC.sub(r"\2\1", given) == shown


def test_sentences_of_an_output_go_on_below_and_tables_do_not():
    sentence, table = f"  What helps: {'divide by the standard deviation; '*4}", f"layer{' '*90}error   own"
    lines = ["1 finding", sentence, table, "─"*99, "the last line, which is somewhat shorter than that"]
    shown = site_pages.wrapped_sentences("\n".join(lines)).split("\n")
    assert [line.startswith('<span class="code-line"') for line in shown] == [False, True, False, False, True]
    assert 'style="--indent: 2ch"' in shown[1]
    assert [BeautifulSoup(line, "html.parser").get_text() for line in shown] == lines
    short = "tensor([1., 2.,\n        3., 4.]), as it has always been until this line"
    assert site_pages.wrapped_sentences(short) == short


@pytest.mark.parametrize("html, message", [
    ('<a href="nowhere.html">x</a>', "dead link nowhere.html"),
    ('<a href="#nowhere">x</a>', "dead link #nowhere"),
    ("<p>[ <a href='#top'>Hook</a> and more](hook.html)</p>", "shown as text"),
    ("<p>The value of `x`</p>", "a backtick"),
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
    "Quarto and pandoc differ from smalldocs in details: maths is ready, the frame is another one, a page may have none."
    (tmp_path/"assets").mkdir()
    for name in ("site.js", "search.js", "around.js", "site.css", "favicon.svg"): (tmp_path/"assets"/name).touch()
    (tmp_path/"site_libs/bootstrap").mkdir(parents=True)
    (tmp_path/"site_libs/bootstrap/bootstrap-abc.min.css").write_text("p{margin:0} .gone{color:red}")
    page = (
        '<html lang="en"><head><meta charset="utf-8"><title>x</title><link rel="stylesheet" href="site_libs/bootstrap/bootstrap-abc.min.css">'
        '<script src="site_libs/quarto.js"></script></head><body class="nav-fixed"><header id="quarto-header" class="headroom fixed-top">'
        '<nav class="navbar"></nav></header><div id="quarto-content">%s</div><script>var tooltips = 1;</script></body></html>'
    )
    toc = (
        '<nav id="TOC" role="doc-toc"><h2 id="toc-title">On this page</h2><ul class="collapse"><li><a href="#one" id="toc-one" class="nav-link" '
        'data-scroll-target="#one">One</a></li></ul></nav>'
    )
    text = (
        '<p><span class="math inline"><math><mi>x</mi></math></span></p><h2 id="one" class="anchored">One</h2><table><tr><td>1</td></tr></table>'
        '<pre><code>x <span class="op">=</span> <span class="st">&quot;</span><span class="st">y&quot;</span></code></pre>'
    )
    (tmp_path / "index.html").write_text(
        page
        % f'<main id="quarto-document-content"><header id="title-block-header"><h1>x</h1></header>{text}</main>{toc}'
    )
    (tmp_path/"howto").mkdir()
    (tmp_path/"howto/a.html").write_text(page % '<main><h1>A</h1><nav class="page-navigation">old</nav></main>')
    (tmp_path/"howto/index.html").write_text(
        page % f'<main><header id="title-block-header"><h1>How-to</h1></header><h2 id="one">One</h2></main>{toc}'
    )
    listed = {name: site_frame.Page(name, name) for name in ("index", "howto/index", "howto/a")}
    facts = {"name": "x", "version": "1", "license": "y", "modules": {}}
    nav = site_frame.Navigation(
        [{"section": "How-to", "href": "howto/index.qmd", "contents": "howto/*.ipynb"}], listed, facts
    )
    assert site_pages.finish_site(tmp_path, nav) == problems(tmp_path) == []
    index, howto = read(tmp_path/"index.html"), read(tmp_path/"howto/a.html")
    assert str(index.find(class_="math").math) == "<math><mi>x</mi></math>"
    assert index.select_one(".table-scroll > table") and index.select_one("#quarto-header .search-open")
    assert not index.select("#TOC, .toc-short"), "home is one screen, and needs no table of contents"
    section = read(tmp_path/"howto/index.html")
    assert section.select_one("#TOC a")["href"] == "#one" and section.select_one(".toc-short a")["href"] == "#one"
    assert index.pre.get_text() == 'x = "y"' and len(index.pre.find_all("span")) == 1, (
        "spans that change nothing are still there"
    )
    assert [a["href"] for a in howto.select("#quarto-sidebar [aria-current=page]")] == [
        "../howto/a.html"
    ] and "old" not in howto.get_text()
    assert "tooltips" not in str(index) and not (tmp_path/"site_libs").exists()
    assert (tmp_path/"assets/base.css").read_text().split() == ["p{margin:0}"]


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
    for name in ("hooklab", "nbs/lessons", "nbs/howto"): (tmp_path/name).mkdir()
    for name in ("hooklab/__init__.py", "nbs/404.qmd", "nbs/lessons/index.qmd", "nbs/howto/index.qmd"):
        shutil.copy(repo / name, tmp_path / name)
    lessons = tmp_path/"nbs/lessons/index.qmd"  # without its links to pages that are not here
    lessons.write_text(re.sub(r"\n\[.*\n", "\n", lessons.read_text(encoding="utf-8")), encoding="utf-8")
    quarto = (tmp_path/"_quarto.yml").read_text(encoding="utf-8")
    (tmp_path / "_quarto.yml").write_text(
        re.sub(r"\n *(?:- |href: )(?:(?:lib|explain|inside)/\w.*|gallery\.ipynb|clinic\.qmd|howto/[\w-]+\.ipynb)", "",
               quarto),
        encoding="utf-8",
    )
    (tmp_path/"nbs/index.ipynb").write_text(notebook("# Home\n\n> of a small project", "Some text, $x^2$, and [what `layers` are](https://code.example)."))
    (tmp_path/"nbs/lessons/01-one.ipynb").write_text(notebook("# One\n\n> the first", "Some text."))
    return tmp_path


def make(project, *args, python=()):
    command = [sys.executable, *python, "tools/site.py", *args]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


def test_a_build_and_what_follows_from_a_change(project):
    first = make(project)
    assert first.returncode == 0, first.stderr
    assert "index.html" in first.stdout.splitlines()[-1]
    assert (project/"_docs/lessons/01-one.html").exists()
    home = read(project/"_docs/index.html")
    assert home.math and not home.select(".repository")
    assert home.main.find("a", href="https://code.example").get_text() == "what layers are", "nbdev's link to the symbol within the link is still there"

    assert [a.get_text() for a in home.select(".site-tabs a")] == ["Lessons"], "a section without pages is shown"
    assert first.stderr == "", "what a builder says on its way out looks like an error"

    second = make(project, python=["-X", "importtime"])
    assert "up to date" in second.stdout
    imported = {line.rpartition("|")[2].strip() for line in second.stderr.splitlines()}
    assert "yaml" in imported and not imported & {"site_pages", "nbdev", "torch"}, "what only a build needs"

    (project/"nbs/lessons/01-one.ipynb").rename(project/"nbs/lessons/01-uno.ipynb")
    for name, order in (("a", 3), ("b", 2), ("c", 1)): (project/f"nbs/howto/{name}.ipynb").write_text(notebook(f"# {name}\n\n- order: {order}", "Some text."))
    settings = (project/"settings.ini").read_text()
    (project/"settings.ini").write_text(settings.replace("[extras]", "repository = https://code.example/hooklab\n\n[extras]"))
    assert make(project).returncode == 0
    assert {file.stem for file in (project/"_docs/lessons").glob("*.html")} == {"01-uno", "index"}
    home, howto = (read(project/"_docs"/name) for name in ("index.html", "howto/a.html"))
    assert home.select_one(".repository")["href"] == "https://code.example/hooklab"
    assert [a["href"] for a in howto.select("#quarto-sidebar li a")] == [
        "../howto/c.html",
        "../howto/b.html",
        "../howto/a.html",
    ]

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
    (project / "_quarto.yml").write_text(
        re.sub(
            r"(- section: Hooks\n +contents:)",
            r"\1\n              - lib/new.ipynb\n              - lib/gone.ipynb",
            quarto,
            count=1,
        )
    )
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
