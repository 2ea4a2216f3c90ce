"""The static figures: their labels can be read in both themes, and they are as wide as the text."""
import re
import sys
from xml.etree import ElementTree

import pytest

from support.browsing import matches, open_page, set_size
from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import site_labels  # noqa: E402
from site_colours import INK, PAPER, contrast, shown  # noqa: E402

PLOT = re.compile(r'<svg\b[^>]*class="plot".*?</svg>', re.S)
WIDE = (1440, 900)


# ---- the colors of labels

def labeled(shape, text="", x=50, y=50):
    "The style of a label on a shape."
    label = f'<text x="{x}" y="{y}" style="font-size: 10px; text-anchor: middle{text}">label</text>'
    root = ElementTree.fromstring(f'<svg xmlns="{site_labels.SVG}">{shape}{label}</svg>')
    site_labels.ink_labels(root)
    return root.find(f".//{{{site_labels.SVG}}}text").get("style")


def box(color, more="", corners="M 20 40 L 80 40 L 80 60 L 20 60 z"):
    return f'<path d="{corners}" style="fill: {color}{more}"/>'


def test_a_label_on_a_light_shape_is_dark_in_both_themes():
    assert labeled(box("#f6c9a5")).endswith(f"fill: light-dark({INK[0]}, {INK[0]})")
    assert labeled(box("#9ecae1"), "; fill: #000000").count("fill") == 1


@pytest.mark.parametrize("ground", ["#0b2a4a", "#1f77b4", "#7f7f7f", "#d55e00", "#ffff00", "#22282d"])
@pytest.mark.parametrize("own", ["", "; fill: #ffffff", "; fill: #0b5c8a", "; fill: #d55e00"])
def test_a_label_can_be_read_on_any_shape(ground, own):
    style = labeled(box(ground), own)
    chosen = re.search(r"light-dark\((#\w+), (#\w+)\)", style)
    inks = chosen.groups() if chosen else shown((re.search(r"fill: (#\w+)", style) or [0, "#000000"])[1])
    assert all(contrast(*pair) >= 4.5 for pair in zip(inks, shown(ground))), style


@pytest.mark.parametrize("shape", [
    "", box("#ffffff"), box("none"), box("#f6c9a5", "; opacity: 0"),
    box("#f6c9a5", corners="M 20 140 L 80 140 L 80 160 L 20 160 z"),  # elsewhere
    '<clipPath id="c"><rect x="0" y="0" width="10" height="90"/></clipPath>' + box("#f6c9a5", '" clip-path="url(#c)'),
    f'<defs>{box("#f6c9a5")}</defs>', box("#f6c9a5") + box("#ffffff"),
    box("#f6c9a5") + '<image x="0" y="0" width="99" height="99"/>'])
def test_a_label_that_lies_on_no_colored_shape_keeps_the_ink_of_the_page(shape):
    assert "fill" not in labeled(shape)


def test_a_colored_label_keeps_its_hue():
    light, dark = re.search(r"light-dark\((#\w+), (#\w+)\)", labeled("", "; fill: #d55e00")).groups()
    assert contrast(light, PAPER[0]) >= 4.5 > contrast("#d55e00", PAPER[0]) and dark == shown("#d55e00")[1]
    assert int(light[1:3], 16) > 2*int(light[3:5], 16)  # still orange
    assert labeled("", "; fill: #0b5c8a").endswith("fill: #0b5c8a"), "it can be read as it is"


# ---- all figures, as the pages show them

# What is below the middle of each label: shapes that are filled there, and where there is none the page. A label on a
# picture is left out.
CONTRASTS = """const linear = (c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
    const parts = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
    document.documentElement.dataset.bsTheme = arguments[0];
    const paper = parts(getComputedStyle(document.body).backgroundColor), found = [];
    for (const plot of document.querySelectorAll("svg.plot")) {
        const shapes = [];
        for (const part of plot.querySelectorAll("path, use, image, rect, circle, text")) {
            if (part.closest("defs, clipPath")) continue;
            const style = getComputedStyle(part), box = part.getBoundingClientRect();
            if (part.localName !== "text") {
                const opacity = style.opacity * style.fillOpacity;
                const isSeen = part.localName === "image" || style.fill !== "none" && opacity > 0;
                if (isSeen) shapes.push([part, box, style.fill, opacity]);
                continue;
            }
            const x = box.left + box.width / 2, y = box.top + box.height / 2;
            let ground = paper, pictured = false;
            for (const [shape, at, fill, opacity] of shapes) {
                if (x < at.left || x > at.right || y < at.top || y > at.bottom) continue;
                if (shape.localName === "image") { pictured = true; continue; }
                const inPlot = new DOMPoint(x, y).matrixTransform(plot.getScreenCTM().inverse());
                const used = shape.localName === "use" && document.getElementById(shape.href.baseVal.slice(1));
                const from = used ? [shape.x.baseVal.value, shape.y.baseVal.value] : [0, 0];
                const inShape = new DOMPoint(inPlot.x - from[0], inPlot.y - from[1]);
                if (!(used || shape).isPointInFill(inShape)) continue;
                const clip = shape.getAttribute("clip-path")?.match(/#(.+?)["')]/)?.[1];
                if (clip) {
                    const b = document.getElementById(clip).firstElementChild.getBBox();
                    if (inPlot.x < b.x || inPlot.x > b.x + b.width) continue;
                    if (inPlot.y < b.y || inPlot.y > b.y + b.height) continue;
                }
                const color = parts(fill);
                ground = ground.map((c, i) => c * (1 - opacity) + color[i] * opacity);
            }
            if (pictured || !part.textContent.trim()) continue;
            const [low, high] = [light(parts(style.fill)), light(ground)].sort((a, b) => a - b);
            found.push([(high + .05) / (low + .05), plot.dataset.page, part.textContent, style.fill, ground.join(" ")]);
        }
    }
    return found"""


def test_every_label_of_a_figure_can_be_read(browser, site, tmp_path):
    "All figures of the site on one page, in its stylesheet: each label has a contrast of 4.5 with what is below it."
    figures = []
    for number, file in enumerate(sorted(site.rglob("*.html"))):
        if site/"source" in file.parents or 'class="plot"' not in (text := file.read_text(encoding="utf-8")): continue
        for plot in PLOT.findall(text):  # the figures of each page have the same ids
            plot = re.sub(r'(id="|#)f(?=\d+-)', rf"\1page{number}-f", plot)
            figures.append(plot.replace("<svg", f'<svg data-page="{file.relative_to(site).as_posix()}"', 1))
    assert len(figures) > 150
    sheets = (site/"assets"/name for name in ("base.css", "site.css"))
    styles = "".join(f'<link rel="stylesheet" href="{sheet.as_uri()}">' for sheet in sheets)
    page = tmp_path/"figures.html"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8">{styles}</head>'
    body = f'<body data-kind="lesson"><main class="content">{"".join(figures)}</main></body></html>'
    page.write_text(head + body, encoding="utf-8")
    open_page(browser, page.as_uri())
    for theme in ("light", "dark"):
        found = browser.execute_script(CONTRASTS, theme)
        assert len(found) > 2000
        faint = sorted(label for label in found if label[0] < 4.5)
        assert not faint, "\n".join(map(str, [theme, *faint[:30]]))


# ---- where they are on a page

EDGES = """const isInside = (e) => e.closest("details, section[id^=exercise], li, blockquote, .moving-live *");
    const edges = (selector) => [...document.querySelectorAll(selector)]
        .filter((e) => e.checkVisibility() && !isInside(e)).map((e) => e.getBoundingClientRect())
        .map(({left, right}) => [left, right]);
    const parts = ".quarto-figure, svg.plot, figcaption, .moving-live, .cell-output > pre, div.sourceCode";
    return [edges("main section > p")[0], edges("main div.sourceCode")[0], edges(`main :is(${parts})`)]"""


@pytest.mark.parametrize("page", ["05-stats", "13-intervene", "17-call"])
def test_a_lesson_has_two_widths(browser, site, page):
    set_size(browser, WIDE)
    open_page(browser, (site/f"lessons/{page}.html").as_uri())
    matches(browser, width=f"{WIDE[0]}px")
    (left, text), (_, full), edges = browser.execute_script(EDGES)
    edges = [edge for edge in edges if edge[1] > left + 200]
    assert text < full and len(edges) > 20
    for start, end in edges:
        assert abs(start - left) < 1.5, f"an edge at {start}, the text begins at {left}"
        assert min(abs(end - text), abs(end - full)) < 1.5, f"an edge at {end}, the text ends at {text}, code at {full}"
