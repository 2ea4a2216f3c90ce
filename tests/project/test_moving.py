"""Figures that move: they are fresh, small, moved by the keyboard, and where one fails the static figure stays."""
import json
import os
import re
import shutil
import sys

import pytest
import torch
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import moving  # noqa: E402
from moving.lessons import unpacked  # noqa: E402

PAGES = {"learning-rate": "lessons/05-stats", "six-hooks": "lessons/02-four-signatures",
         "first-weights": "lessons/07-init"}
kB = 1000


# ---- what is measured

def test_each_figure_is_fresh():
    stale = [name for name in moving.DATA if moving.read(name)["made_from"] != moving.fingerprint(name)]
    assert not stale, f"{', '.join(stale)}: what is measured has changed, or its lesson: `make figures`"


def test_the_runs_of_learning_rates_come_out_again():
    data, measure = moving.read("learning-rate"), moving.module("learning-rate")
    rate = data["rates"].index(0.3)
    losses, near_zero, right = measure.run(0.3, norm=True, leak=False)
    run = len(data["rates"]) + rate
    kept = unpacked(data["near_zero"], 0, 1).view(-1, data["layers"], data["steps"])
    assert abs(data["right"][run] - 100*right) <= 3
    assert (kept[run] - near_zero).abs().mean() < 0.02


def test_the_events_come_out_again():
    data, measure = moving.read("six-hooks"), moving.module("six-hooks")
    for name, make in measure.CASES.items(): assert json.loads(json.dumps(measure.step(make))) == data["cases"][name], name


def test_the_first_weights_come_out_again():
    data, measure = moving.read("first-weights"), moving.module("first-weights")
    for case, std in ((0, 0.01), (10, 0.1), (24, 1.)):
        again = measure.start(std, "tanh", norm=False)
        for what in ("outputs", "gradients"): assert torch.tensor(again[what]).sub(torch.tensor(data[what][case])).abs().max() <= 3


def test_figures_are_small(repo):
    assets = repo/"nbs"/"assets"
    assert (assets/"moving.js").stat().st_size < 12*kB
    for name in PAGES: assert sum((assets/"moving"/f"{name}{part}.js").stat().st_size for part in ("", "-data")) < 100*kB, name


# ---- where they are

def test_a_static_figure_stays_for_paper_and_readers_without_scripts(site):
    from bs4 import BeautifulSoup
    for name, page in PAGES.items():
        soup = BeautifulSoup((site/f"{page}.html").read_text(encoding="utf-8"), "html.parser")
        assert soup.select_one(f'.moving[data-figure="{name}"] > figure').find(["img", "svg"]), name
        loaded = [script["src"].rpartition("assets/")[2] for script in soup.select("script[src*=moving]")]
        assert loaded == ["moving.js", f"moving/{name}-data.js", f"moving/{name}.js"]
    other = BeautifulSoup((site/"lessons/03-hook-class.html").read_text(encoding="utf-8"), "html.parser")
    assert not other.select("script[src*=moving], link[href*=moving]")


# ---- in a browser

@pytest.fixture(scope="module")
def browser():
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not (program and driver): (pytest.fail if os.environ.get("CI") else pytest.skip)("needs Chromium and its driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"): options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try: chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    except WebDriverException as error: pytest.skip(f"Chromium does not start: {error.msg.splitlines()[0]}")
    yield chrome
    chrome.quit()


class Live:
    "A moving figure in a browser, as a reader with a keyboard meets it."
    def __init__(self, browser, site, name):
        browser.get((site/f"{PAGES[name]}.html").as_uri())
        self.browser, self.box = browser, browser.find_element(By.CSS_SELECTOR, f'.moving-live[data-name="{name}"]')
        self.data = moving.read(name)

    def find(self, selector): return self.box.find_elements(By.CSS_SELECTOR, selector)
    def said(self): return self.box.find_element(By.TAG_NAME, "output").text
    def press(self, *keys): webdriver.ActionChains(self.browser).send_keys(*keys).perform()

    def focus(self, control):
        "The control that the Tab key comes to, from the one before it."
        self.browser.execute_script("arguments[0].focus()", control)
        return control

    def tab(self): self.press(Keys.TAB)

    def slide(self, times, number=0):
        self.focus(self.find("input[type=range]")[number])
        self.press(*[Keys.ARROW_RIGHT if times > 0 else Keys.ARROW_LEFT]*abs(times))

    def line(self, panel, number, axis=(0, 100)):
        "The last value of a line, read off the axis with the help of the labels of two ticks."
        lines, ticks = self.browser.execute_script("""const svg = arguments[0].querySelectorAll(".moving-panel > svg")[arguments[1]];
            return [[...svg.querySelectorAll("path.line")].map((line) => line.getAttribute("d")),
                    [...svg.querySelectorAll("text.y")].map((tick) => [tick.textContent, +tick.getAttribute("y")])]""", self.box, panel)
        y = float(re.findall(r"[\d.]+", lines[number])[-1])
        at = {float(text.rstrip(" %")): place for text, place in ticks}
        low, high = axis
        return low + (y - at[low])/(at[high] - at[low])*(high - low)


@pytest.fixture
def live(browser, site): return lambda name: Live(browser, site, name)


def test_learning_rates_by_keyboard(live):
    figure = live("learning-rate")
    rates, right = figure.data["rates"], figure.data["right"]
    near_zero = unpacked(figure.data["near_zero"], 0, 1).view(-1, figure.data["layers"], figure.data["steps"])
    start = rates.index(0.3)
    assert f"Learning rate 0.3: {right[start]} % of the unseen digits are right" in figure.said()
    assert "act2, act3 and act4 are near zero" in figure.said(), "the figure makes its point untouched"
    figure.slide(-3)
    assert f"Learning rate 0.1: {right[start - 3]} %" in figure.said()
    for k in range(4): assert abs(figure.line(2, k) - 100*near_zero[start - 3, k, -1]) < 1, f"act{k + 1}"
    figure.tab()
    figure.press(Keys.SPACE)  # batch norm
    run = len(rates) + start - 3
    assert f"{right[run]} %" in figure.said()
    for k in range(4): assert abs(figure.line(2, k) - 100*near_zero[run, k, -1]) < 1, f"act{k + 1}"
    assert figure.find("input[type=range]")[0].get_attribute("aria-valuetext") == "0.1"


def test_events_by_keyboard(live):
    figure = live("six-hooks")
    cases = figure.data["cases"]
    assert "no gradient reaches conv1, act and conv2" in figure.said()
    names, radios = list(cases), figure.find("input[type=radio]")
    figure.focus(radios[0])
    for name in names[1:]:
        figure.press(Keys.ARROW_RIGHT)
        count = len(cases[name]["events"])
        assert figure.find("input[type=range]")[0].get_attribute("aria-valuetext") == f"{count} of {count}", name
        assert figure.said().startswith(cases[name]["events"][-1][0]), name
    figure.slide(-12)
    kind, layer, shape = cases["checkpointed"]["events"][-13]
    assert figure.said().startswith(f"{kind}: ") and layer in figure.said(), (kind, layer, shape, figure.said())


def test_first_weights_by_keyboard(live):
    figure = live("first-weights")
    data = figure.data
    assert "std 0.01" in figure.said() and f"{data['right'][0]} % are right" in figure.said()
    figure.slide(10)
    assert "std 0.1 " in figure.said() and f"{data['right'][10]} % are right" in figure.said()
    figure.tab()
    figure.press(Keys.ARROW_RIGHT)  # ReLU
    assert f"{data['right'][len(data['stds']) + 10]} % are right" in figure.said()


def shown(browser):
    return browser.execute_script("""return [".moving-live", ".moving > :not(.moving-live)"].map(
        (part) => [...document.querySelectorAll(part)].map((e) => getComputedStyle(e).display !== "none"))""")


def test_the_static_figure_is_there_on_paper_and_when_a_script_fails(browser, site):
    page = (site/f"{PAGES['six-hooks']}.html").as_uri()
    browser.get(page)
    assert shown(browser) == [[True], [False]]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert shown(browser) == [[False], [True]]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Network.enable", {})
    for lost in ("*six-hooks-data.js", "*six-hooks.js", "*moving.js"):
        browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": [lost]})
        browser.get(page)
        assert shown(browser) == [[], [True]], f"without {lost}"
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
