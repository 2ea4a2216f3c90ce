"""What the site weighs: a page loads little, nothing is shipped that is not loaded, and no rule in use is missing."""
import base64
import io
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from PIL import Image

from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import site_figures  # noqa: E402
import site_weight  # noqa: E402
from site_problems import target, urlsplit  # noqa: E402

FIGURE = re.compile(r"<figure\b.*?</figure>", re.S)


def loaded(page: Path) -> list[Path]:
    "The stylesheets and scripts that a page loads."
    text = page.read_text(encoding="utf-8")
    names = re.findall(r'<link rel="stylesheet" href="([^"]+)"|<script[^>]* src="([^"]+)"', text)
    return [(page.parent/(style or script)).resolve() for style, script in names]


def test_a_lesson_loads_at_most_250_kb_besides_its_figures(site):
    for page in (site/"lessons").glob("*.html"):
        text = FIGURE.sub("", page.read_text(encoding="utf-8"))
        files = [file for file in loaded(page) if "moving" not in file.parts and "moving" not in file.stem]
        assert len(files) >= 3
        size = len(text.encode()) + sum(file.stat().st_size for file in files)
        assert size <= 250_000, f"{page.name} loads {size:,} bytes"


def test_a_page_loads_at_most_330_kb_with_its_figures(site):
    "Without pictures that wait until they are in sight, and without the data of figures that move."
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        files = {file for file in loaded(page) if "moving" not in file.parts}
        images = re.findall(r"<img\b[^>]*>", text)
        at_once = [re.search(r' src="([^"]+)"', image)[1] for image in images if ' loading="lazy"' not in image]
        files |= {page.parent/unquote(name) for name in at_once if not name.startswith("data:")}
        size = len(text.encode()) + sum(file.stat().st_size for file in files)
        assert size <= 330_000, f"{page.name} loads {size:,} bytes"


@pytest.mark.parametrize("alpha, colors", [(255, 2), (255, 400), (40, 2)])
def test_a_picture_within_a_figure_has_the_same_pixels_in_fewer_bytes(alpha, colors):
    rgba = [(n % colors % 256, n % colors // 256, 7, alpha if n else 255) for n in range(1600)]
    picture = Image.new("RGBA", (40, 40))
    picture.putdata(rgba)
    picture.save(file := io.BytesIO(), "PNG", compress_level=1)
    before = base64.b64encode(file.getvalue()).decode()
    after = site_figures.smaller(before)
    assert len(after) < len(before)
    assert Image.open(io.BytesIO(base64.b64decode(after))).convert("RGBA").tobytes() == picture.tobytes()


def test_nothing_is_shipped_that_no_page_leads_to(site, links):
    used = {
        target(page, urlsplit(href))
        for page, found in links.items()
        for href in found.hrefs
        if ":" not in href.partition("/")[0]
    }
    used |= {site/unquote(name) for name in re.findall(r"\]\((\S+?)\)", (site/"llms.txt").read_text(encoding="utf-8"))}
    texts = "\n".join(file.read_text(encoding="utf-8") for file in (site/"assets").rglob("*.[cj]s*"))
    said = {site/name for name in re.findall(r"assets/[\w./-]+", texts)}  # a script may load another
    said |= {site/"assets"/name for name in re.findall(r"url\(\"(fonts/[\w.-]+)\"\)", texts)}
    files = [file for file in site.rglob("*") if file.is_file() and file.suffix != ".html"]
    left = [file.relative_to(site).as_posix() for file in files if file not in used | said]
    for_readers_of_text = ".llms.md", "llms.txt", "llms-full.txt"
    assert [name for name in left if not name.endswith(for_readers_of_text) and "_files/" not in name] == []
    copies = re.compile(r"\]\(([^)\s]+_files/[^)\s]+)\)")  # pictures that only the page as Markdown shows
    shown = {
        (file.parent / unquote(name)).resolve()
        for file in site.rglob("*.llms.md")
        for name in copies.findall(file.read_text(encoding="utf-8"))
    }
    assert [name for name in left if "_files/" in name and (site/name).resolve() not in shown] == []


def test_the_fonts_are_small_and_free_and_the_sites_own(site, repo):
    fonts = sorted((repo/"nbs/assets/fonts").glob("*.woff2"))
    css = (site/"assets/site.css").read_text(encoding="utf-8")
    faces = [face for face in re.findall(r"@font-face ?\{(.*?)\}", css) if "url(" in face]
    assert len(fonts) == len(faces) == 2
    for font, face in zip(fonts, faces):
        assert f'src:url("fonts/{font.name}") format("woff2")' in face and "font-display:swap" in face
        kept = site/"assets/fonts"/font.name
        assert font.stat().st_size <= 25_000 and kept.read_bytes() == font.read_bytes()
        licence = kept.with_name(f"{font.stem}-OFL.txt").read_text(encoding="utf-8")
        assert "SIL OPEN FONT LICENSE Version 1.1" in licence and licence.startswith("Copyright")
        # a subset may have the name of the font, unless its authors have reserved that
        assert "reserved font name" not in licence.partition("-----")[0].lower()


def test_no_page_asks_for_what_bootstrap_does(site):
    for page in site.rglob("*.html"):
        assert not re.search(r"<[^>]+\sdata-bs-(?!theme)|site_libs", page.read_text(encoding="utf-8")), page.name


CSS = """@charset "utf-8"; @import url("x.css");
@font-face { font-family: "Kept"; src: url(kept.woff2) } @font-face { font-family: Gone; src: url("a;{}b") }
:root { --read: 1; --unread: 2; --by-unread: var(--unread); --by-script: 3 }
p, .gone { margin: var(--read) } .here > a:hover::before { content: "{;}"; font: 1em Kept } .here.gone { color: red }
:is(.here, .gone) p { color: green } p:not(.gone) { color: blue } #place, div { color: cyan } #nowhere p { color: red }
[data-state="on"] p { top: 0 } [data-other] p { top: 1px } [class*="her"] { left: 0 } [class^="zz-"] { left: 1px }
@media print { .gone { color: red } p { color: black } } @media (min-width: 1px) { .gone { color: red } }
@keyframes turns { from { top: 0 } to { top: 1px } } @keyframes gone { to { top: 0 } } .made { animation: turns 1s }"""
PAGE = ('<body data-state="on"><p class="here" id="place">x &lt;div class="gone"&gt; <a href="#place">y</a></p>'
        '<!-- <i class="gone"> --></body>')


@pytest.fixture
def known():
    return site_weight.Known(
        site_weight.vocabulary(PAGE)
        | site_weight.spoken('el.classList.add("made"); el.style.setProperty("--by-script", 1)')
    )


def test_rules_that_no_page_can_use_are_left_out(known):
    left = site_weight.without_unread(site_weight.pruned(CSS, known), {mark for mark in known if mark.startswith("--")})
    for gone in ("gone", "Gone", "nowhere", "div", "unread", "data-other", "zz-", "@import", "min-width"):
        assert gone not in left.replace("p:not(.gone)", "").replace(":is(.here, .gone)", ""), gone
    for kept in (
        "p{margin",
        '.here > a:hover::before{content: "{;}"',
        ":is(.here, .gone) p",
        "p:not(.gone)",
        "#place{color: cyan",
        "[data-state",
        '[class*="her"]',
        "@media print{p{",
        "@keyframes turns",
        ".made{",
        "--read: 1",
        "--by-script: 3",
        "kept.woff2",
    ): assert kept in left, kept


def test_what_is_shipped_of_a_stylesheet_says_the_same():
    css = """/* it's { one } */
        :is(a, b) > p::before { content: "a ; }"; margin: 0 1px; }  /* two */
        @media (max-width: 9px) { p { color: light-dark(#fff, #000) } }"""
    assert site_weight.compact(css) == (
        ':is(a,b) > p::before{content:"a ; }";margin:0 1px}@media (max-width:9px){p{color:light-dark(#fff,#000)}}')


def test_what_scripts_make_counts_as_used():
    said = site_weight.spoken("""const a = make(`<dialog class="search wide"><input></dialog>`);
        b.className = "one two"; b.classList.toggle("three"); document.querySelector("#spot .four[hidden]");
        document.createElement("mark"); c.setAttribute("aria-busy", "true"); var(--tone)""")
    assert {
        ".search",
        ".wide",
        "dialog",
        "input",
        ".one",
        ".two",
        ".three",
        "#spot",
        ".four",
        "mark",
        "[aria-busy",
        "--tone",
    } <= said
    assert not {".querySelector", ".document", ".hidden"} & said
