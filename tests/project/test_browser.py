"""The site in a real browser, opened from the disk: theme, keyboard, phone, access, and no request to anybody."""
import base64
import json
import re
from collections import defaultdict
from itertools import cycle
from pathlib import Path

import pytest
import selenium_axe_python
from bs4 import BeautifulSoup
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from support.browsing import (
    CLIPBOARD,
    DESKTOP,
    HALF,
    PHONE,
    TWO_FRAMES,
    becomes,
    eventually,
    open_page,
    press,
    resize,
    shows,
    wait,
    without_scripts,
)
from support.portions import sample, sweep

# The first thing that reaches beyond the window and is not in a box that scrolls by itself.
CUT_OFF = """const scrolls = (e) => e.tagName !== "BODY" && (["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
    if (document.documentElement.scrollWidth > innerWidth) return "the page scrolls sideways";
    return [...document.querySelectorAll("main *")].find((e) => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e))?.outerHTML"""


def kind_of(file): return re.search(r'data-kind="(\w+)"', file.read_text(encoding="utf-8"))[1]


def some(site, files):
    "Of the pages, a sample in which each kind is."
    return sample(10, sorted(files), name=lambda file: file.relative_to(site).as_posix(), kind=kind_of)


def first(site, folder): return min((site/folder).glob("[!i]*.html")).relative_to(site).as_posix()
def kinds(site):
    "A short page of each kind that looks different: those for contributors look like the reference."
    texts = {file: file.read_text(encoding="utf-8") for file in site.rglob("*.html")}
    def full(file): return sum(part in texts[file] for part in ("<table", "<pre", "cell-output", "<figure", "<details"))
    found = {
        re.search(r'data-kind="(\w+)"', texts[file])[1]: file
        for file in sorted(texts, key=lambda file: (full(file), -len(texts[file])))
    }
    return {kind: file for kind, file in found.items() if kind not in ("inside", "check")}


def hits(browser):
    return wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, "dialog.search li a"), "nothing found")


def background(browser): return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_a_word_is_found_and_leads_to_its_section(visit, size):
    browser = visit(size=size)
    browser.find_element(By.CSS_SELECTOR, ".search-open").click()
    press(browser, "layers pattern")
    def found(b): return [a for a in hits(b) if "lib/hooks/select.html#" in a.get_attribute("href")]
    link = wait(browser, found, "the section is not found")[0]
    place = link.get_attribute("href").partition("#")[2]
    link.click()
    shows(browser, f"lib/hooks/select.html#{place}")
    top = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
    wait(browser, lambda b: 0 <= b.execute_script(top, place) < size[1]/2, "the section is not what one sees first")


def test_search_by_keyboard_alone(visit, site):
    browser = visit(first(site, "lessons"))
    press(browser, "/")
    press(browser, "layers")
    def best(): return hits(browser)[0].get_attribute("href").rpartition("/lib/")[2]
    becomes("hooks/select.html#layers", best)  # the symbol of that name is the first hit
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    wait(browser, lambda b: b.switch_to.active_element == hits(b)[0], "the keys do not lead to the first hit")
    press(browser, Keys.ESCAPE)
    wait(browser, lambda b: not b.find_element(By.CSS_SELECTOR, "dialog.search").is_displayed(), "search stays open")
    press(browser, "/")
    press(browser, Keys.ENTER)  # the word is still there
    shows(browser, "lib/hooks/select.html#layers")


def test_search_says_when_there_is_nothing(visit):
    browser = visit()
    press(browser, "/")
    press(browser, "xyzzyx <qqwwxx>")
    wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "dialog.search [role=status]").text == "Nothing found")


def test_the_theme_follows_the_system_until_the_reader_chooses(visit, site):
    light = background(visit(prefers="light"))
    browser = visit(prefers="dark")
    wait(browser, lambda b: background(b) != light, "dark is not wanted")
    browser.find_element(By.CSS_SELECTOR, ".theme-toggle").click()
    becomes(light, background, browser)
    # Pages may have processes of their own, and what one stores reaches the next a moment later.
    def on_the_next_page(browser): return background(visit(first(site, "lessons"), prefers="dark"))
    becomes(light, on_the_next_page, browser)


def test_a_source_link_leads_to_the_line(visit, site):
    browser = visit("lib/hooks/select.html")
    link = browser.find_element(By.CSS_SELECTOR, "a.source-link")
    symbol = browser.execute_script("return document.evaluate('following::h3[1]', arguments[0], null, 9).singleNodeValue.closest('[id]').id", link)
    link.click()
    shows(browser, "source/hooks/select.html#L")
    line = wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "#L span:target"))
    assert f"def {symbol}(" in line.text.lower() or f"class {symbol}" in line.text.lower()
    header = browser.find_element(By.ID, "quarto-header").rect["height"]
    def top(b): return b.execute_script("return arguments[0].getBoundingClientRect().top", line)
    wait(browser, lambda b: header <= top(b) < DESKTOP[1], "the line is out of sight, or hidden under the bar at the top")


def test_the_skip_link_is_first_and_leads_to_the_text(visit, site):
    browser = visit(first(site, "lessons"))
    press(browser, Keys.TAB)
    def is_seen(link): return "skip-link" in link.get_attribute("class") and link.rect["y"] >= 0
    wait(browser, lambda b: is_seen(b.switch_to.active_element), "the skip link is not seen when it has the focus")
    press(browser, Keys.ENTER)
    becomes("main", lambda: browser.switch_to.active_element.tag_name)


def test_focus_is_visible_wherever_the_keyboard_leads(visit, site):
    browser = visit(first(site, "lessons"))
    for _ in range(25):
        press(browser, Keys.TAB)
        wait(browser, lambda b: b.execute_script("""const e = document.activeElement, s = getComputedStyle(e);
            return e === document.body || (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0)"""),
            lambda: browser.switch_to.active_element.get_attribute("outerHTML")[:200])


@pytest.mark.parametrize("size", [HALF, PHONE])
def test_the_menu_of_a_narrow_window(visit, site, size):
    browser = visit(first(site, "howto"), size=size)
    button, menu = browser.find_element(By.CSS_SELECTOR, ".menu-toggle"), browser.find_element(By.ID, "quarto-sidebar")
    assert not menu.is_displayed() and button.get_attribute("aria-expanded") == "false" and button.accessible_name
    button.click()
    wait(browser, lambda b: button.get_attribute("aria-expanded") == "true")
    current = menu.find_element(By.CSS_SELECTOR, "[aria-current=page]")
    def is_whole(link): return link.is_displayed() and 0 <= link.rect["x"] <= size[0] - link.rect["width"]
    wait(browser, lambda b: is_whole(current), "the current page is not in sight in the menu")
    press(browser, Keys.ESCAPE)
    wait(browser, lambda b: button.get_attribute("aria-expanded") == "false")
    wait(browser, lambda b: not menu.is_displayed() and b.switch_to.active_element == button)


@pytest.mark.parametrize("size", [DESKTOP, HALF, PHONE])
def test_the_tab_key_never_leaves_the_window(visit, site, size):
    "Every stop is seen when it has the focus, with the menu closed; and there is no long way to the text."
    browser, before = visit("lib/hooks/select.html", size=size), 0
    for stop in range(200):
        press(browser, Keys.TAB)
        def where(): return browser.execute_script("""const e = document.activeElement, r = e.getBoundingClientRect();
            if (e === document.body) return ["end"];
            const within = r.width && r.right > 0 && r.left < innerWidth && r.bottom > 0 && r.top < innerHeight;
            const seen = within && e.checkVisibility({visibilityProperty: true});
            return [seen ? "" : e.outerHTML, !!e.closest("main")]""")
        def is_seen(stop=stop):
            at, *in_text = where()
            assert at in ("", "end"), f"stop {stop} is out of sight: {at[:200]}"
            return in_text
        if not (in_text := eventually(is_seen)): break
        if not before and in_text[0]: before = stop
    assert stop > 20 and before <= (40 if size == DESKTOP else 9), f"{before} stops before the text"


def test_the_current_page_is_in_sight_in_the_sidebar(visit, site):
    for page in (
        "lib/checking/result.html",
        "lessons/appendix-traps.html",
        "source/stats/runs/run_verdict.html",
        "lib/exercises/lesson-16.html",
    ):
        browser = visit(page)
        current = browser.find_element(By.CSS_SELECTOR, "#quarto-sidebar [aria-current]")
        def is_seen(b, current=current):
            top, bottom, weight = b.execute_script("""const r = arguments[0].getBoundingClientRect();
                return [r.top, r.bottom, getComputedStyle(arguments[0]).fontWeight]""", current)
            return 50 < top and bottom <= DESKTOP[1] and int(weight) >= 600
        wait(browser, is_seen, page)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_what_scrolls_sideways_can_be_reached_and_has_a_name(visit, size):
    browser = visit("lib/profiling/summaries.html", size=size)
    scroll = "return [...document.querySelectorAll('main *')].filter((e) => e.checkVisibility() && /auto|scroll/.test(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1)"
    boxes = wait(browser, lambda b: b.execute_script(scroll))
    wait(
        browser,
        lambda b: all(box.get_attribute("tabindex") == "0" and box.get_attribute("role") == "region" for box in boxes)
    )
    names = [box.get_attribute("aria-label") for box in boxes]
    assert all(names) and len(names) == len(set(names))


def test_a_table_of_words_is_cards_on_a_phone(visit):
    browser = visit("explain/which-hook.html", size=PHONE)
    table = browser.find_element(By.CSS_SELECTOR, "table.cards")
    assert browser.execute_script(
        "return arguments[0].parentElement.scrollWidth <= arguments[0].parentElement.clientWidth", table
    )
    cells = table.find_elements(By.CSS_SELECTOR, "tbody tr:nth-child(2) > *")
    assert (
        len(cells) == 3
        and len({cell.rect["x"] for cell in cells}) == 1
        and len({cell.rect["y"] for cell in cells}) == 3
    )
    head = browser.execute_script("return getComputedStyle(arguments[0], '::before').content", cells[2])
    assert "instead of" in head, "a card does not say what its last line is"


def test_the_widest_table_needs_no_scrolling_on_a_phone(visit):
    browser = visit("explain/what-works-where.html", size=PHONE)
    assert browser.execute_script("""const box = document.querySelector("table.works").parentElement;
        return box.scrollWidth <= box.clientWidth && document.querySelector("nav.jump").checkVisibility()""")
    cell = browser.find_element(By.CSS_SELECTOR, "table.works td[data-label]")
    head = browser.execute_script("return getComputedStyle(arguments[0], '::before').content", cell)
    assert cell.get_attribute("data-label") in head, "a word does not say what it is about"


def test_a_table_that_scrolls_keeps_its_first_column(visit):
    browser = visit("explain/what-works-where.html", size=PHONE)
    browser.execute_script("""const table = document.querySelector("table.works");
        table.className = ""; table.style.minWidth = "60rem" """)  # any wide table
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".scrolls-now > table"))
    def stays():
        left = browser.execute_script("""const box = document.querySelector(".scrolls-now:has(> table)");
            box.scrollLeft = 200;
            return box.querySelector("tbody tr:nth-child(2) > :first-child").getBoundingClientRect().left""")
        assert 0 <= left < 40, "the first column is out of sight"
    eventually(stays)


def test_the_parts_of_a_page_stay_in_reach_on_a_phone(visit):
    browser = visit("lib/hooks/hook.html", size=PHONE)
    browser.execute_script("scrollTo(0, 3000)")
    parts = browser.find_element(By.CSS_SELECTOR, ".toc-short")
    bar = browser.find_element(By.CSS_SELECTOR, ".bar").rect["height"]
    def top(element): return browser.execute_script("return arguments[0].getBoundingClientRect().top", element)
    becomes(bar, lambda: round(top(parts)))
    parts.find_element(By.TAG_NAME, "summary").click()
    link = parts.find_elements(By.TAG_NAME, "a")[-1]
    place = link.get_attribute("href").partition("#")[2]
    browser.execute_script("arguments[0].scrollIntoView({block: 'nearest'})", link)
    link.click()
    wait(browser, lambda b: parts.get_attribute("open") is None, "the list stays open, over the text")
    heading = browser.find_element(By.ID, place)
    wait(browser, lambda b: top(parts) < top(heading), "the heading is hidden under what stays in sight")


def test_home_shows_a_figure_beside_the_promise(visit):
    browser = visit()
    text, figure, after = (browser.find_element(By.CSS_SELECTOR, place).rect
                           for place in (".hero", ".hero-figure .moving-live", ".works-with"))
    assert text["x"] + text["width"] < figure["x"] and figure["y"] < text["y"] + text["height"]
    assert figure["x"] + figure["width"] == pytest.approx(after["x"] + after["width"], abs=1), "two right edges"
    assert figure["y"] + figure["height"] < DESKTOP[1], "the figure is cut by the fold"
    for size in (DESKTOP, PHONE):
        proof = visit(size=size).find_elements(By.CSS_SELECTOR, ".proof a")
        assert len(proof) == 3 and len({link.rect["y"] for link in proof}) == 1, "more than one line"


def test_the_fonts_are_there_and_their_stand_ins_are_as_wide(visit):
    "Of the stand-ins, fonts of the system, at least one is on each machine."
    widths = visit().execute_async_script("""const text = document.querySelector(".hero p").textContent;
        const done = arguments[0], names = ["Inter", "JetBrains Mono", "As wide as Inter", "As narrow as Inter"];
        const context = document.createElement("canvas").getContext("2d"), found = {};
        Promise.allSettled(names.map(async (name) => {
            await document.fonts.load(`16px "${name}"`);
            if (![...document.fonts].some((face) => face.family.includes(name) && face.status === "loaded")) return;
            context.font = `16px "${name}"`;
            found[name] = context.measureText(text).width; })).then(() => done(found))""")
    assert {"Inter", "JetBrains Mono"} < {*widths}, widths
    others = [width for name, width in widths.items() if name.startswith("As ")]
    assert all(abs(width/widths["Inter"] - 1) < .03 for width in others), widths


def test_the_gallery_shows_what_one_asks_for(visit):
    browser = visit("gallery.html")
    def shown(): return browser.execute_script("""return [...document.querySelectorAll(".gallery-row > a")]
        .filter((link) => link.checkVisibility()).length""")
    every = len(browser.find_elements(By.CSS_SELECTOR, ".gallery-row > a"))
    field, jump, said = (browser.find_element(By.CSS_SELECTOR, f".gallery-bar {part}")
                         for part in ("input", "select", "output"))
    assert said.text == f"{every} figures"
    field.click()
    press(browser, "attention head")
    def fewer():
        left = shown()
        assert 0 < left < every/2 and said.text == f"{left} of {every} figures"
        sections = browser.find_elements(By.CSS_SELECTOR, "main section:has(.gallery-row):not([hidden])")
        assert len(sections) == len(jump.find_elements(By.TAG_NAME, "option")) - 1
    eventually(fewer)
    press(browser, "zzz")
    becomes(f"0 of {every} figures", lambda: said.text)
    press(browser, *[Keys.BACKSPACE]*len("attention headzzz"))
    becomes(f"{every} figures", lambda: said.text)
    jump.find_elements(By.TAG_NAME, "option")[4].click()
    top = "return document.querySelector(':target')?.getBoundingClientRect().top ?? -1"
    wait(browser, lambda b: 0 < b.execute_script(top) < 300, "one does not see what one has chosen")


def test_a_wrong_address_leads_on(visit, site, tmp_path):
    "A server shows 404.html at whatever address was asked for; here a copy of it stands there."
    place = site/"lessons/activaton-helth.html"
    place.write_text(
        (site / "404.html").read_text(encoding="utf-8").replace("<head>", '<head><base href="../">', 1),
        encoding="utf-8",
    )
    try:
        browser = visit("lessons/activaton-helth.html")
        links = browser.find_elements(By.CSS_SELECTOR, "#not-found li a")
        assert links[0].get_attribute("href").endswith("lessons/05-stats.html"), [link.text for link in links]
        field = browser.find_element(By.CSS_SELECTOR, "#not-found input")
        assert "helth" in field.get_attribute("value")
        field.clear()
        field.send_keys("layers", Keys.ENTER)
        assert hits(browser)
    finally: place.unlink()


@pytest.mark.parametrize(("old", "now"), [
    ("lib/stats/checking/probes.html", "lib/checking/influence.html"),
    ("source/stats/checking/by_heart.html", "source/checking/overfitting.html")])
def test_a_page_that_has_moved_is_found_at_its_old_address(visit, site, old, now):
    browser, place = visit("index.html"), site/old
    place.parent.mkdir(exist_ok=True)
    page = (site/"404.html").read_text(encoding="utf-8")
    place.write_text(page.replace("<head>", '<head><base href="../../../">', 1), encoding="utf-8")
    try:
        browser.execute_script("location.href = arguments[0]", f"{place.as_uri()}#a-place")
        shows(browser, f"{(site/now).as_uri()}#a-place")
    finally:
        place.unlink()
        place.parent.rmdir()


def test_a_lesson_ends_once(visit, site):
    browser = visit(first(site, "lessons"))
    tick, links = (
        browser.find_element(By.CSS_SELECTOR, "label.tick-lesson"),
        browser.find_elements(By.CSS_SELECTOR, "main a[href$='02-four-signatures.html']"),
    )
    assert len(links) == 1 and tick.rect["y"] < links[0].rect["y"], "first the tick, then one link to the next lesson"


# ---- access for all

AXE = (Path(selenium_axe_python.__file__).parent/"axe-core/axe.min.js").read_text(encoding="utf-8")
QUICK = {"reporter": "no-passes", "selectors": False, "elementRef": False, "preload": False}
ALL = QUICK | {"rules": {"target-size": {"enabled": True}}}
CONTRAST = QUICK | {"runOnly": ["color-contrast"]}  # nothing else is different in the dark
ALL_FOUR = [(DESKTOP, "light", ALL), (DESKTOP, "dark", CONTRAST), (PHONE, "dark", CONTRAST), (PHONE, "light", ALL)]
# Colors take most of the time. Texts have the same contrast if they have the same ink, size and weight and are on the
# same grounds: of those axe-core gets two. It cannot decide about single letters and what is beyond the window, so these
# are kinds of their own; nor about labels in figures, which test_figures.py looks at.
CHOOSE = """const often = new Map(), grounds = new Map([[null, ""]]);
    const groundOf = (e) => {
        if (grounds.has(e)) return grounds.get(e);
        const s = getComputedStyle(e);
        const own = [s.backgroundColor, s.backgroundImage, s.opacity, s.filter, s.mixBlendMode].join();
        grounds.set(e, groundOf(e.parentElement) + (own === "rgba(0, 0, 0, 0),none,1,none,normal" ? "" : `|${own}`));
        return grounds.get(e); };
    for (const e of document.querySelectorAll("[data-tried]")) e.removeAttribute("data-tried");
    for (const e of document.body.querySelectorAll("*:not(text)")) {
        const text = [...e.childNodes].map((part) => part.nodeType === Node.TEXT_NODE ? part.data.trim() : "").join("");
        if (!text && !e.matches("input, select, textarea") || !e.checkVisibility()) continue;
        const s = getComputedStyle(e), ink = [s.color, s.fontSize, s.fontWeight, s.textShadow];
        const kind = [ink, groundOf(e), text.length > 1, e.getBoundingClientRect().right > innerWidth].join();
        often.set(kind, (often.get(kind) ?? 0) + 1);
        if (often.get(kind) <= 2) e.setAttribute("data-tried", "");
    }
    axe.configure({rules: [{id: "color-contrast", selector: "[data-tried]"}]})"""


def violations(browser, part, rules):
    "What axe-core finds wrong with the page as it is shown, or with the first element that a selector finds."
    if part: part = browser.find_element(By.CSS_SELECTOR, part)
    found = browser.execute_async_script(
        "axe.run(arguments[0] || document, arguments[1]).then((r) => arguments[2](r.violations))", part, rules
    )
    return [(v["id"], node["html"][:200]) for v in found for node in v["nodes"]]


def seen(browser, files, part=None):
    "The pages at two widths, in light and dark; the stylesheet has no other place where these matter."
    found = []
    for file in files:
        open_page(browser, file.as_uri())
        browser.execute_script(AXE)
        for size, theme, rules in ALL_FOUR:
            browser.execute_script("document.documentElement.dataset.bsTheme = arguments[0]", theme)
            resize(browser, size)
            browser.execute_script(CHOOSE)
            found += [(file.name, size[0], theme, *fault) for fault in violations(browser, part, rules)]
    assert not found, "\n".join(map(str, found[:20]))


def test_one_page_of_each_kind_is_accessible(visit, browser, site):
    visit()
    seen(browser, kinds(site).values())
    for page, part in (("howto/ten-minutes.html", ".hl-layers"), ("explain/which-hook.html", "main table")):
        seen(browser, [site/page], part=part)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_core_gets_each_text_that_differs(visit, browser, theme):
    "A word that is too faint is found among many of its size, of its ink, and on its ground."
    visit("howto/ddp.html", prefers=theme)
    browser.execute_script(AXE)
    faint = ["color: color-mix(in srgb, var(--ink) 30%, var(--paper))", "background: var(--muted)", "opacity: .3"]
    plant = """arguments[0].forEach((style, i) => [...document.querySelectorAll("main p")].at(-1).insertAdjacentHTML(
        "afterend", `<p><span style="${style}">faint ${i}</span></p>`));\n"""
    browser.execute_script(plant + CHOOSE, faint)
    wrong = [html for _, html in violations(browser, None, CONTRAST)]
    assert sorted(re.findall(r"faint (\d)", "".join(wrong))) == ["0", "1", "2"] and len(wrong) == 3


@sweep
def test_every_page_is_accessible(visit, browser, site):
    visit()
    files = [file for file in site.rglob("*.html") if site/"source" not in file.parents]
    seen(browser, some(site, files))


# ---- nothing that is needed was pruned away

STYLES = """const found = {};
    for (const e of document.querySelectorAll("body, body *")) {
        if (e.closest("math, svg")) continue;
        const style = getComputedStyle(e);
        found[`${e.tagName}.${e.className}#${e.id}`] = [...style].filter((name) => !name.startsWith("--")).map((name) => style[name]).join("|");
    }
    return found"""


@pytest.mark.slow
def test_no_class_in_use_lacks_its_rule(visit, browser, site):
    "With the renderer's whole stylesheets in place of what is left of them, every element looks the same."
    smalldocs = pytest.importorskip("smalldocs")
    assets = Path(smalldocs.__file__).parent/"assets"
    whole = "\n".join(
        (assets / name).read_text(encoding="utf-8") for name in ("vendor/bootswatch/cosmo.min.css", "smalldocs.css")
    )
    whole = re.sub(r"@import[^;]+;", "", whole)
    for (kind, file), size in zip(kinds(site).items(), cycle((DESKTOP, PHONE))):
        visit(file.relative_to(site).as_posix(), size)
        browser.execute_script("document.querySelectorAll('details').forEach((d) => d.open = true)")
        browser.execute_async_script(TWO_FRAMES)  # until the page knows which of the opened boxes scroll
        few = browser.execute_script(STYLES)
        browser.execute_script(
            """const style = document.createElement("style"), base = document.querySelector("link[href$='base.css']");
            style.textContent = arguments[0]; base.replaceWith(style)""",
            whole,
        )
        many = browser.execute_script(STYLES)
        assert few == many, (kind, next((name, few[name], many[name]) for name in few if few[name] != many[name]))


def test_a_lesson_can_be_downloaded(visit, site):
    browser = visit(first(site, "lessons"))
    link = browser.find_element(By.CSS_SELECTOR, ".download a[download]")
    assert link.is_displayed() and (site/"lessons"/link.get_attribute("href").rpartition("/")[2]).exists()


def test_code_can_be_copied(visit, browser, repo):
    visit("lib/hooks/gradient.html")
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    button = browser.find_element(By.CSS_SELECTOR, "#before-the-layer-runs .code-copy-button")
    code = browser.execute_script("return arguments[0].parentElement.querySelector('code').textContent", button)
    button.click()
    becomes(code.strip(), lambda: browser.execute_async_script(CLIPBOARD).strip())
    written = (repo/"hooklab/hooks/gradient.py").read_text(encoding="utf-8")
    assert code.strip() in written, "what is copied is not what was written"


# The code blocks whose button is out of the block or over a part of the code; what is not drawn has no height.
COVERED = """return [...document.querySelectorAll(".code-copy-outer-scaffold")].filter((block) => {
    const button = block.querySelector(".code-copy-button").getBoundingClientRect();
    const box = block.getBoundingClientRect(), range = document.createRange(), rects = [];
    const texts = document.createTreeWalker(block.querySelector("code"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) { range.selectNode(texts.currentNode); rects.push(...range.getClientRects()); }
    const covers = rects.some((r) => r.width && r.left < button.right && r.right > button.left
        && r.top < button.bottom && r.bottom > button.top);
    const within = box.top <= button.top && button.bottom <= box.bottom && button.right <= box.right;
    return button.height && (covers || !within); }).map((block) => block.textContent)"""


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_code_is_seen_whole_and_no_button_covers_it(visit, site, size):
    for page in ("index.html", first(site, "lessons"), "lib/hooks/hook.html", "lib/hooks/gradient.html"):
        browser = visit(page, size)
        browser.execute_script("document.querySelectorAll('details').forEach((d) => d.open = true)")
        assert browser.execute_script("return document.querySelectorAll('pre:has(.code-line)').length")
        assert not browser.execute_script("""return [...document.querySelectorAll("pre:has(.code-line)")].find((pre) =>
            pre.scrollWidth > pre.clientWidth)?.textContent""")
        assert browser.execute_script("return document.querySelectorAll('.code-copy-outer-scaffold').length")
        assert not browser.execute_script(COVERED)


def test_a_copy_button_is_seen_where_it_is_wanted(visit, repo):
    "At once where nothing hovers; else when the pointer or the focus comes to its block."
    css = (repo/"nbs/assets/site.css").read_text(encoding="utf-8")
    assert re.search(r"^\.code-copy-button \{[^}]*opacity: 0;", css, re.M)
    assert re.search(r"@media \(hover: none\) \{ \.code-copy-button \{ opacity: 1; \} \}", css)
    assert ".code-copy-outer-scaffold:is(:hover, :focus-within) .code-copy-button { opacity: 1; }" in css
    browser = visit("lib/hooks/select.html")
    button = browser.find_element(By.CSS_SELECTOR, "main .code-copy-button")
    browser.execute_script("arguments[0].focus()", button)
    becomes("1", lambda: button.value_of_css_property("opacity"))


# ---- on paper, and without scripts

# [what stands on it, is it a fold of code that is no answer, is its content drawn] of each fold of the text
FOLDS = """return [...document.querySelectorAll("main.content details:not(.toc-short, .hl-layers details)")].map((d) =>
    [d.querySelector("summary").textContent, d.matches(".code-fold") && !d.closest("[id^=exercise-]"),
     d.lastElementChild.checkVisibility()])"""


@pytest.mark.parametrize("page", ["lessons/05-stats.html", "lib/hooks/hook.html",
                                  "explain/how-right-is-the-diagnosis.html", "cases/who-is-speaking-when.html"])
def test_answers_are_open_on_paper(visit, page):
    browser = visit(page)
    assert not any(drawn for *_, drawn in browser.execute_script(FOLDS)), "on the screen they wait for a click"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try: folds = browser.execute_script(FOLDS)
    finally: browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert folds and all(drawn != is_code for _, is_code, drawn in folds), folds


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("page", ["index.html", "lessons/05-stats.html", "lib/hooks/hook.html"])
def test_a_page_is_whole_without_scripts(browser, site, page, size):
    "From the disk: figures are seen, answers are open, no button does nothing, and a line says what there would be."
    with without_scripts(browser, site/page, size):
        assert not browser.execute_script("return document.documentElement.dataset.bsTheme"), "scripts have run"
        assert browser.execute_script("return innerWidth") == size[0]
        said = browser.find_element(By.CSS_SELECTOR, ".no-scripts")
        assert said.is_displayed() and "search" in said.text and "animated figures" in said.text
        shown = "main figure:not([hidden]) :is(svg, img)"
        figures = browser.execute_script("""return [...document.querySelectorAll(arguments[0])].map((figure) =>
            figure.checkVisibility() && figure.getBoundingClientRect().height > 50)""", shown)
        assert all(figures) and (figures or page.startswith("lib/"))
        folds = browser.execute_script(FOLDS)
        assert all(drawn != is_code for _, is_code, drawn in folds), folds
        idle = browser.execute_script("""return [...document.querySelectorAll("button")].filter((button) =>
            button.checkVisibility()).map((button) => button.className)""")
        assert set(idle) <= {"menu-toggle"}, "the menu is opened by the browser itself"
        assert not browser.execute_script(CUT_OFF)


def fit_and_ask_nobody(visit, browser, site, files):
    "Pages that fit at both widths and load nothing from elsewhere; search is opened on one page of each folder."
    for log in ("performance", "browser"): browser.get_log(log)
    wide, folders = [], {file.parent: file for file in files}
    before, after = DESKTOP, PHONE
    visit()
    browser.get_log("performance")
    for file in files:
        open_page(browser, file.as_uri())
        if folders[file.parent] == file:
            press(browser, "/")  # loads what search reads, by a path of the folder's
            wait(browser, lambda b: b.execute_script("return !!window.siteIndex"), f"{file.name}: search reads nothing")
        for size in (before, after):
            if size == after: resize(browser, size)
            if cut := browser.execute_script(CUT_OFF): wide.append((file.name, size[0], cut[:200]))
        before, after = after, before  # a change of width takes as long as a page, so the next page keeps this one
    assert not wide, "pages that are too wide: at which width, and what"
    urls = []
    def asked():  # the log comes a moment later
        events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
        urls.extend(event["params"]["request"]["url"] for event in sent)
        assert {file.as_uri() for file in files} <= {*urls}, "the log does not show what the pages load"
        searched = sum(url.endswith("search-index.js") for url in urls)
        assert searched == len(folders), "the log does not show what search loads"
    eventually(asked)
    assert not [url for url in urls if not url.startswith(("file:", "data:", "blob:", "chrome:"))]
    assert not [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.mark.slow
def test_the_longest_pages_fit_and_ask_nobody_for_anything(visit, browser, site):
    "One of each folder for readers, and one of the code, whose pages one function makes."
    longest = {
        site/"source" if site/"source" in file.parents else file.parent: file
        for file in sorted(site.rglob("*.html"), key=lambda file: file.stat().st_size)
    }
    fit_and_ask_nobody(visit, browser, site, sorted(longest.values()))


@sweep
def test_every_page_fits_and_asks_nobody_for_anything(visit, browser, site):
    "Of the pages of the code, which one function makes, every fourth."
    source = sorted((site/"source").rglob("*.html"))
    fit_and_ask_nobody(visit, browser, site, some(site, {*site.rglob("*.html")} - {*source} | {*source[::4]}))


A4, LETTER = {"paperWidth": 8.27, "paperHeight": 11.69}, {"paperWidth": 8.5, "paperHeight": 11}


def test_which_hook_is_one_page_on_paper(visit):
    def n_pages(browser, paper):
        pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", paper)["data"])
        return len(re.findall(rb"/Type */Page\b", pdf))
    browser = visit("explain/which-hook.html")
    assert [n_pages(browser, paper) for paper in (A4, LETTER)] == [1, 1]
    assert n_pages(visit("lessons/appendix-traps.html"), A4) > 1, "what is counted"


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_table_of_layers_opens_and_closes(visit, size):
    browser = visit("lib/profiling/summaries.html", size=size)
    table = next(t for t in browser.find_elements(By.CSS_SELECTOR, ".hl-layers") if "BatchNorm2d" in t.get_attribute("innerHTML"))
    seen = """[...arguments[0].querySelectorAll(".hl-row")].filter((row) => row.checkVisibility())"""
    def shown(): return browser.execute_script(f"return {seen}.map((row) => row.innerText.trim().split('\\n')[0])", table)
    closed = shown()
    assert closed[:2] == ["layer", "Sequential"] and not any("BatchNorm2d" in row for row in closed)
    block = next(s for s in table.find_elements(By.TAG_NAME, "summary") if s.text.startswith("0: Sequential"))
    block.click()
    becomes(["0: Conv2d", "1: BatchNorm2d", "2: ReLU"], lambda: [row for row in shown() if row not in closed])
    rights = browser.execute_script(f"return {seen}.map((row) => row.children[2].getBoundingClientRect().right)", table)
    assert max(rights) - min(rights) < 1, "columns are not aligned"
    block.click()
    becomes(closed, shown)


def test_lessons_that_were_worked_through_are_ticked(visit, site):
    page = first(site, "lessons")
    def ticked(where):
        links = browser.find_elements(By.CSS_SELECTOR, f"{where} a.worked-through")
        return [link.get_attribute("href").rpartition("/")[2] for link in links]
    def later(page, *places):  # what one page stores may reach the next, in another process, a moment later
        visit(page)
        return [ticked(where) for where in places]
    def box(): return browser.find_element(By.CSS_SELECTOR, "label.tick-lesson input")
    def is_ticked():
        visit(page)
        return box().is_selected()
    browser, this = visit(page), [page.rpartition("/")[2]]
    assert not ticked("#quarto-sidebar")
    browser.find_element(By.CSS_SELECTOR, "label.tick-lesson").click()
    becomes(this, ticked, "#quarto-sidebar")
    assert box().is_selected()
    becomes([this, this], later, "lessons/index.html", ".page-list", "#quarto-sidebar")
    becomes([this], later, "index.html", "main table")
    n_lessons = len([*(site/"lessons").glob("[0-9]*.html")])
    said = f"You have completed 1 of {n_lessons} lessons."
    assert browser.find_element(By.CSS_SELECTOR, ".progress").text == said
    after = "return getComputedStyle(document.querySelector('main table a.worked-through'), '::after').content"
    assert "✓" in browser.execute_script(after)
    becomes(True, is_ticked)
    box().click()
    becomes([], ticked, "#quarto-sidebar")
    becomes([[]], later, "index.html", "main table")


FIGURES = """const isSeen = (e) => e.checkVisibility() && e.getBoundingClientRect().height > 50;
    const draws = (place, alt) => [...(document.getElementById(place)?.querySelectorAll("svg.plot, img") ?? [])]
        .some((picture) => (picture.alt ?? picture.getAttribute("aria-label")) === alt && isSeen(picture));
    return [document.querySelector("main figure :is(svg, img)").getBoundingClientRect().top,
            arguments[0].filter(([place, alt]) => !draws(place, alt))]"""


def test_a_lesson_begins_with_a_figure_and_shows_each_to_which_the_gallery_leads(visit, site):
    "The first stands within the first screen. Those of the gallery are seen as they are, also where a figure moves."
    gallery = BeautifulSoup((site/"gallery.html").read_text(encoding="utf-8"), "html.parser")
    places, too_low, unseen = defaultdict(list), {}, {}
    for link in gallery.select(".gallery-row a"):
        page, _, place = link["href"].partition("#")
        places[page].append((place, link.img["alt"]))
    lessons = {file.relative_to(site).as_posix() for file in (site/"lessons").glob("[0-9]*.html")}
    assert sum(map(len, places.values())) > 100 and len(lessons) > 20
    for page in sorted(lessons | places.keys()):
        top, lost = visit(page).execute_script(FIGURES, places[page])
        if page in lessons and top >= DESKTOP[1]: too_low[page] = top
        if lost: unseen[page] = lost
    assert not too_low and not unseen


def test_a_lesson_says_how_it_is_run(visit, site):
    run_it = visit(first(site, "lessons")).find_element(By.CSS_SELECTOR, ".run-it")
    commands = [code.text for code in run_it.find_elements(By.TAG_NAME, "code")]
    buttons = [button.get_attribute("aria-label") for button in run_it.find_elements(By.TAG_NAME, "button")]
    assert commands == ["make lab", "hooklab lessons --open"] and buttons == ["Copy this code"]*2


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_gallery_leads_to_the_cell_that_draws(visit, size):
    browser = visit("gallery.html", size=size)
    link = browser.find_elements(By.CSS_SELECTOR, "#gallery a:has(img)")[20]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    picture = link.find_element(By.TAG_NAME, "img")
    wait(browser, lambda b: b.execute_script("return arguments[0].complete && arguments[0].naturalWidth", picture))
    alt = picture.get_attribute("alt")
    leads_to = link.get_attribute("href").rpartition("/")[2]
    link.click()
    shows(browser, leads_to)
    place = wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, ".cell:target"))
    assert place.find_element(By.CSS_SELECTOR, "figure svg").get_attribute("aria-label") == alt
    covered = browser.execute_script("return document.querySelector('#quarto-header').getBoundingClientRect().bottom")
    def top(b): return b.execute_script("return arguments[0].getBoundingClientRect().top", place)
    wait(browser, lambda b: covered <= top(b) < 200)
