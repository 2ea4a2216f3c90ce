"""The site in a real browser, opened from the disk: search, theme, source links, keyboard, phone, and no request to anybody."""
import base64
import json
import os
import re
import shutil

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

DESKTOP, PHONE = (1280, 900), (375, 800)
# The first thing that reaches beyond the window and is not in a box that scrolls by itself.
CUT_OFF = """const scrolls = (e) => e.tagName !== "BODY" && (["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
    if (document.documentElement.scrollWidth > innerWidth) return "the page scrolls sideways";
    return [...document.querySelectorAll("main *")].find((e) => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e))?.outerHTML"""


def missing(reason):
    "On CI, where a skipped test is easily overlooked, a browser test that cannot run fails."
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    "Headless Chromium with a profile of its own, which writes down what it asks for."
    program, driver = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome"), shutil.which("chromedriver")
    if not (program and driver): missing("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-background-networking", "disable-component-update",
                 "disable-sync", "no-first-run", f"user-data-dir={tmp_path_factory.mktemp('profile')}"): options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    try: chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    except WebDriverException as error: missing(f"Chromium does not start: {error.msg.splitlines()[0]}")
    yield chrome
    chrome.quit()


@pytest.fixture
def visit(browser, site):
    "Opens a page of the site from the disk, at a width and in the theme that the system prefers."
    def visit(page="index.html", size=DESKTOP, prefers="light"):
        resize(browser, size, mobile=size == PHONE)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": prefers}]})
        browser.get((site/page).as_uri())
        return browser
    yield visit
    browser.execute_script("localStorage.clear()")


def resize(browser, size, mobile=False):
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def first(site, folder): return min((site/folder).glob("*.html")).relative_to(site).as_posix()


def press(browser, *keys): webdriver.ActionChains(browser).send_keys(*keys).perform()


def shows(browser, fragment): WebDriverWait(browser, 5).until(lambda b: fragment in b.current_url, f"still at {browser.current_url}")


def hits(browser):
    return WebDriverWait(browser, 5).until(lambda b: b.find_elements(By.CSS_SELECTOR, "dialog.search li a"), "nothing found")


def background(browser): return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_a_word_is_found_and_leads_to_its_section(visit, size):
    browser = visit(size=size)
    browser.find_element(By.CSS_SELECTOR, ".search-open").click()
    press(browser, "layers pattern")
    link = next(a for a in hits(browser) if "lib/hooks/select.html#" in a.get_attribute("href"))
    place = link.get_attribute("href").partition("#")[2]
    link.click()
    shows(browser, f"lib/hooks/select.html#{place}")
    top = browser.execute_script("return document.getElementById(arguments[0]).getBoundingClientRect().top", place)
    assert 0 <= top < size[1]/2, "the section is not what one sees first"


def test_search_by_keyboard_alone(visit, site):
    browser = visit(first(site, "lessons"))
    press(browser, "/")
    press(browser, "layers")
    best = hits(browser)[0].get_attribute("href")
    assert best.endswith("lib/hooks/select.html#layers"), f"the symbol of that name is not the first hit, but {best}"
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert browser.switch_to.active_element.get_attribute("href") == best
    press(browser, Keys.ESCAPE)
    assert not browser.find_element(By.CSS_SELECTOR, "dialog.search").is_displayed()
    press(browser, "/")
    press(browser, Keys.ENTER)  # the word is still there
    shows(browser, "lib/hooks/select.html#layers")


def test_search_says_when_there_is_nothing(visit):
    browser = visit()
    press(browser, "/")
    press(browser, "xyzzyx <b>")
    WebDriverWait(browser, 5).until(lambda b: b.find_element(By.CSS_SELECTOR, "dialog.search [role=status]").text == "Nothing found")


def test_the_theme_follows_the_system_until_the_reader_chooses(visit, site):
    light = background(visit(prefers="light"))
    dark = background(visit(prefers="dark"))
    assert light != dark
    browser = visit(prefers="dark")
    browser.find_element(By.CSS_SELECTOR, ".theme-toggle").click()
    assert background(browser) == light
    assert background(visit(first(site, "lessons"), prefers="dark")) == light, "the choice is forgotten on the next page"


def test_a_source_link_leads_to_the_line(visit, site):
    browser = visit("lib/hooks/select.html")
    link = browser.find_element(By.CSS_SELECTOR, "a.source-link")
    symbol = browser.execute_script("return document.evaluate('following::h3[1]', arguments[0], null, 9).singleNodeValue.id", link)
    link.click()
    shows(browser, "source/hooks/select.html#L")
    line = browser.find_element(By.CSS_SELECTOR, "#L span:target")
    assert f"def {symbol}(" in line.text.lower() or f"class {symbol}" in line.text.lower()
    assert 0 <= line.rect["y"] - browser.execute_script("return scrollY") < DESKTOP[1]
    header = browser.find_element(By.ID, "quarto-header").rect["height"]
    assert line.rect["y"] - browser.execute_script("return scrollY") >= header, "the line is hidden under the bar at the top"


def test_the_skip_link_is_first_and_leads_to_the_text(visit, site):
    browser = visit(first(site, "lessons"))
    press(browser, Keys.TAB)
    link = browser.switch_to.active_element
    assert "skip-link" in link.get_attribute("class") and link.rect["y"] >= 0, "the skip link is not seen when it has the focus"
    press(browser, Keys.ENTER)
    assert browser.switch_to.active_element.tag_name == "main"


def test_focus_is_visible_wherever_the_keyboard_leads(visit, site):
    browser = visit(first(site, "lessons"))
    for _ in range(25):
        press(browser, Keys.TAB)
        seen = browser.execute_script("""const e = document.activeElement, s = getComputedStyle(e);
            return e === document.body || (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0)""")
        assert seen, browser.switch_to.active_element.get_attribute("outerHTML")[:200]


def test_the_menu_of_a_phone(visit):
    browser = visit(size=PHONE)
    button, menu = browser.find_element(By.CSS_SELECTOR, ".quarto-btn-toggle"), browser.find_element(By.ID, "quarto-sidebar")
    def right(): return browser.execute_script("return arguments[0].getBoundingClientRect().right", menu)
    assert right() <= 0
    button.click()
    WebDriverWait(browser, 5).until(lambda b: right() > 200)
    press(browser, Keys.ESCAPE)
    WebDriverWait(browser, 5).until(lambda b: right() <= 0)


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
    copied = WebDriverWait(browser, 5).until(lambda b: b.execute_async_script("navigator.clipboard.readText().then(arguments[0])")).strip()
    assert copied == code.strip() and copied in (repo/"hooklab/hooks/gradient.py").read_text(encoding="utf-8"), "what is copied is not what was written"


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_code_is_seen_whole_and_no_button_covers_it(visit, site, size):
    for page in ("index.html", first(site, "lessons"), "lib/hooks/hook.html", "lib/hooks/gradient.html"):
        browser = visit(page, size)
        browser.execute_script("document.querySelectorAll('details').forEach((d) => d.open = true)")
        assert browser.execute_script("return document.querySelectorAll('pre:has(.code-line)').length")
        assert not browser.execute_script("return [...document.querySelectorAll('pre:has(.code-line)')].find((pre) => pre.scrollWidth > pre.clientWidth)?.textContent")
        assert not browser.execute_script("""return [...document.querySelectorAll(".code-copy-outer-scaffold")].find((block) => {
            const button = block.querySelector(".code-copy-button").getBoundingClientRect(), range = document.createRange();
            range.selectNodeContents(block.querySelector("code"));
            return button.height && button.bottom > range.getClientRects()[0].top; })?.textContent""")


def fit_and_ask_nobody(visit, browser, site, files):
    "Pages that fit at both widths and load nothing from elsewhere; search is opened on one page of each folder."
    for log in ("performance", "browser"): browser.get_log(log)
    wide, folders = [], {file.parent: file for file in files}
    before, after = DESKTOP, PHONE
    visit()
    browser.get_log("performance")
    for file in files:
        browser.get(file.as_uri())
        if folders[file.parent] == file: press(browser, "/")  # loads what search reads, by a path of the folder's
        for size in (before, after):
            if size == after: resize(browser, size)
            if cut := browser.execute_script(CUT_OFF): wide.append((file.name, size[0], cut[:200]))
        before, after = after, before  # a change of width takes as long as a page, so the next page keeps this one
    assert not wide, "pages that are too wide: at which width, and what"
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert {file.as_uri() for file in files} <= set(urls), "the log does not show what the pages load"
    assert sum(url.endswith("search-index.js") for url in urls) == len(folders), "the log does not show what search loads"
    assert not [url for url in urls if not url.startswith(("file:", "data:", "blob:", "chrome:"))]
    assert not [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_every_page_fits_and_asks_nobody_for_anything(visit, browser, site):
    "The pages that show code only are written by one template, so the longest of each folder stands for them here."
    written = [file for file in site.rglob("*.html") if site/"source" not in file.parents]
    source = sorted((site/"source").rglob("*.html"), key=lambda file: file.stat().st_size)
    fit_and_ask_nobody(visit, browser, site, sorted({*written, *{file.parent: file for file in source}.values()}))


@pytest.mark.slow
def test_every_page_of_code_fits_and_asks_nobody_for_anything(visit, browser, site):
    fit_and_ask_nobody(visit, browser, site, sorted((site/"source").rglob("*.html")))


@pytest.mark.parametrize("paper", [{"paperWidth": 8.27, "paperHeight": 11.69}, {"paperWidth": 8.5, "paperHeight": 11}], ids=["A4", "Letter"])
def test_which_hook_is_one_page_on_paper(visit, paper):
    def n_pages(page):
        pdf = base64.b64decode(visit(page).execute_cdp_cmd("Page.printToPDF", paper)["data"])
        return len(re.findall(rb"/Type */Page\b", pdf))
    assert n_pages("explain/which-hook.html") == 1 < n_pages("lessons/appendix-traps.html")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_table_of_layers_opens_and_closes(visit, size):
    browser = visit("lib/profiling/summaries.html", size=size)
    table = next(t for t in browser.find_elements(By.CSS_SELECTOR, ".hl-layers") if "BasicBlock" in t.get_attribute("innerHTML"))
    def shown(): return [row.text.splitlines()[0] for row in table.find_elements(By.CSS_SELECTOR, ".hl-row") if row.is_displayed()]
    closed = shown()
    assert closed[:2] == ["layer", "ResNet"] and not any("BasicBlock" in row for row in closed)
    layer1 = next(s for s in table.find_elements(By.TAG_NAME, "summary") if s.text.startswith("layer1"))
    layer1.click()
    opened = shown()
    assert [row for row in opened if row not in closed] == ["0: BasicBlock", "1: BasicBlock"]
    rights = {browser.execute_script("return arguments[0].children[2].getBoundingClientRect().right", row) for row in table.find_elements(By.CSS_SELECTOR, ".hl-row") if row.is_displayed()}
    assert max(rights) - min(rights) < 1, "columns are not aligned"
    layer1.click()
    assert shown() == closed


def test_lessons_that_were_worked_through_are_ticked(visit, site):
    page = first(site, "lessons")
    def ticked(browser, where): return [a.get_attribute("href").rpartition("/")[2] for a in browser.find_elements(By.CSS_SELECTOR, f"{where} a.worked-through")]
    browser = visit(page)
    assert not ticked(browser, "#quarto-sidebar")
    box = browser.find_element(By.CSS_SELECTOR, "label.tick-lesson input")
    browser.find_element(By.CSS_SELECTOR, "label.tick-lesson").click()
    assert box.is_selected() and ticked(browser, "#quarto-sidebar") == [page.rpartition("/")[2]]
    browser = visit("index.html")
    assert ticked(browser, "main table") == ticked(browser, "#quarto-sidebar") == [page.rpartition("/")[2]]
    shown = browser.execute_script("return getComputedStyle(document.querySelector('main table a.worked-through'), '::after').content")
    assert "✓" in shown
    browser = visit(page)
    box = browser.find_element(By.CSS_SELECTOR, "label.tick-lesson input")
    assert box.is_selected()
    box.click()
    assert not ticked(browser, "#quarto-sidebar") and not ticked(visit("index.html"), "main table")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_gallery_leads_to_the_cell_that_draws(visit, size):
    browser = visit("gallery.html", size=size)
    link = browser.find_elements(By.CSS_SELECTOR, "#gallery a:has(img)")[20]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    picture = link.find_element(By.TAG_NAME, "img")
    WebDriverWait(browser, 5).until(lambda b: b.execute_script("return arguments[0].complete && arguments[0].naturalWidth", picture))
    alt = picture.get_attribute("alt")
    link.click()
    place = browser.find_element(By.CSS_SELECTOR, ".cell:target")
    assert place.find_element(By.CSS_SELECTOR, "figure img").get_attribute("alt") == alt
    covered = browser.execute_script("return document.querySelector('#quarto-header').getBoundingClientRect().bottom")
    def top(b): return b.execute_script("return arguments[0].getBoundingClientRect().top", place)
    WebDriverWait(browser, 5).until(lambda b: covered <= top(b) < 200)
