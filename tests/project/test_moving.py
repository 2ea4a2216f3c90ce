"""Figures that move: they are fresh, small, moved by the keyboard, and where one fails the static figure stays."""
import base64
import json
import re
import sys

import pytest
import torch
from bs4 import BeautifulSoup
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from torch import nn

import hooklab as hl
from support.browsing import becomes, eventually, open_page, press, wait
from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import moving  # noqa: E402
from moving.lessons import unpacked  # noqa: E402

PAGES = {"learning-rate": "lessons/05-stats", "six-hooks": "lessons/02-four-signatures",
         "first-weights": "lessons/07-init", "patching": "lessons/14-patching", "digit": "index",
         "units": "lessons/13-intervene", "layer-names": "lessons/04-capture"}
kB = 1000


# ---- what is measured

def test_each_figure_is_fresh():
    stale = [name for name in moving.DATA if moving.read(name)["made_from"] != moving.fingerprint(name)]
    assert not stale, f"{', '.join(stale)}: what is measured has changed, or its lesson: `make figures`"


def measured(name):
    "The data of a figure and what measures them, where torch is the one that they were measured with."
    data = moving.read(name)
    if data["torch"] != moving.torch_version(): pytest.skip(f"the data are from torch {data['torch']}")
    return data, moving.module(name)


@pytest.mark.slow  # what they are measured with is watched by the test above
def test_the_runs_of_learning_rates_come_out_again():
    data, measure = measured("learning-rate")
    rate = data["rates"].index(0.003)
    losses, near_zero, right = measure.run(0.003, norm=True, leak=False)
    run = len(data["rates"]) + rate
    kept = unpacked(data["near_zero"], 0, 1).view(-1, data["layers"], data["steps"])
    assert abs(data["right"][run] - 100*right) <= 3
    assert (kept[run] - near_zero).abs().mean() < 0.02


def test_the_events_come_out_again():
    data, measure = measured("six-hooks")
    for name, make in measure.CASES.items():
        assert json.loads(json.dumps(measure.step(make))) == data["cases"][name], name


def test_the_first_weights_come_out_again():
    data, measure = measured("first-weights")
    for case, std in ((0, 0.01), (10, 0.1), (24, 1.)):
        again = measure.start(std, "tanh", norm=False)
        for what in ("outputs", "gradients"): assert again[what] == pytest.approx(data[what][case], abs=3)


@pytest.mark.slow
def test_patches_come_out_again():
    data, measure = measured("patching")
    of_eights, place = measure.lesson().of_eights, measure.PLACES[0]
    for depth, site in enumerate(data["sites"]):
        recovered, digits = measure.patch(site, place, of_eights)
        assert abs(recovered - data["recovered"][0][depth][0]) <= 20
        assert abs(digits[8] - data["probabilities"][0][depth][0][8]) <= 20
    assert not any(itself for line in data["recovered"][1] for itself in line), "a patch with a picture's own values"


def test_layers_are_still_named_so():
    assert moving.module("layer-names").measure()["picked"] == moving.read("layer-names")["picked"]


@pytest.mark.slow
def test_networks_on_pages_come_out_again():
    kept, measure = measured("digit")
    now = measure.measure()
    assert abs(now["right"] - kept["right"]) <= 3 and now["examples"][3] == kept["examples"][3]
    data, measure = measured("units")
    assert measure.culprit() == data["unit"]


def network(layers, pooled=False) -> nn.Sequential:
    "The network that a page has, in torch; `pooled` takes the mean of each map before the last layer."
    parts = []
    for layer in layers:
        weight = torch.frombuffer(bytearray(base64.b64decode(layer["weight"])), dtype=torch.int8)*layer["worth"]
        wide = weight.numel()//layer["out"]
        if "stride" in layer: made = nn.Conv2d(wide//9, layer["out"], 3, layer["stride"], padding=1)
        else: made = nn.Linear(wide, layer["out"])
        made.weight.data, made.bias.data = weight.view_as(made.weight), torch.tensor(layer["bias"])
        parts += [made, nn.ReLU()] if "stride" in layer else [nn.AdaptiveAvgPool2d(1)]*pooled + [nn.Flatten(), made]
    return nn.Sequential(*parts).requires_grad_(False)


def test_figures_are_small(repo):
    assets = repo/"nbs"/"assets"
    assert (assets/"moving.js").stat().st_size < 12*kB
    for name in PAGES:
        own = [assets/"moving"/f"{name}{part}.js" for part in ("", "-data")]
        assert sum(file.stat().st_size for file in own) < 100*kB, name


# ---- where they are

def test_a_static_figure_stays_for_paper_and_readers_without_scripts(site):
    for name, page in PAGES.items():
        soup = BeautifulSoup((site/f"{page}.html").read_text(encoding="utf-8"), "html.parser")
        static = soup.select_one(f'.moving[data-figure="{name}"]')
        assert static.find(["img", "svg"]) if name != "layer-names" else static.find("figure", hidden=True), name
        loaded = [script["src"].rpartition("assets/")[2] for script in soup.select("script[src*=moving]")]
        assert loaded == ["moving.js", f"moving/{name}-data.js", f"moving/{name}.js"]
        assert len(soup.select('link[href$="assets/moving.css"]')) == 1, name
        assert "<!-- moving" not in (site/f"{page}.llms.md").read_text(encoding="utf-8")
    other = BeautifulSoup((site/"lessons/03-hook-class.html").read_text(encoding="utf-8"), "html.parser")
    assert not other.select("script[src*=moving], link[href*=moving]")


# ---- in a browser

class Live:
    "A moving figure in a browser, as a reader with a keyboard meets it."
    def __init__(self, browser, site, name):
        open_page(browser, (site/f"{PAGES[name]}.html").as_uri())
        box = By.CSS_SELECTOR, f'.moving-live[data-name="{name}"]'
        self.browser, self.box = browser, wait(browser, lambda b: b.find_element(*box))
        self.data = moving.read(name)

    def find(self, selector): return self.box.find_elements(By.CSS_SELECTOR, selector)
    def said(self): return self.box.find_element(By.TAG_NAME, "output").text
    def press(self, *keys): press(self.browser, *keys)

    def says(self, *parts):
        "Waits until all these are in the sentence that says what is seen."
        def check():
            said = self.said()
            for part in parts: assert part in said
        eventually(check)

    def begins(self, text): becomes(text, lambda: self.said()[:len(text)])

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
        lines, ticks = self.browser.execute_script("""
            const svg = arguments[0].querySelectorAll(".moving-panel > svg")[arguments[1]];
            const all = (selector, read) => [...svg.querySelectorAll(selector)].map(read);
            return [all("path.line", (line) => line.getAttribute("d")),
                    all("text.y", (tick) => [tick.textContent, +tick.getAttribute("y")])]""", self.box, panel)
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
    def draws(run):
        for k in range(4): assert abs(figure.line(2, k) - 100*near_zero[run, k, -1]) < 1, f"act{k + 1}"
    figure.says(f"Learning rate 0.3: {right[start]} % of the unseen digits are right")
    figure.says("act2, act3 and act4 are near zero")  # the figure makes its point untouched
    figure.slide(-3)
    figure.says(f"Learning rate 0.1: {right[start - 3]} %")
    eventually(draws, start - 3)
    figure.tab()
    figure.press(Keys.SPACE)  # batch norm
    run = len(rates) + start - 3
    figure.says(f"{right[run]} %")
    eventually(draws, run)
    assert figure.find("input[type=range]")[0].get_attribute("aria-valuetext") == "0.1"


def test_a_finger_chooses_a_learning_rate_and_a_square(live):
    def touch(figure, panel, x, y):
        drawing = figure.find(".moving-panel > svg")[panel]
        figure.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", drawing)
        middle = drawing.size["width"]/2, drawing.size["height"]/2
        webdriver.ActionChains(figure.browser).move_to_element_with_offset(
            drawing, round(x - middle[0]), round(y - middle[1])).click().perform()
    figure = live("learning-rate")
    touch(figure, 0, 46, 60)  # the left end of its axis
    figure.begins("Learning rate 0.0001: ")
    figure = live("patching")
    touch(figure, 0, 2 + 2.5*34, 24 + 3.5*34)
    figure.says("at row 4, column 3")


def test_events_by_keyboard(live):
    figure = live("six-hooks")
    cases = figure.data["cases"]
    figure.says("no gradient reaches conv1, act and conv2")
    names, radios = list(cases), figure.find("input[type=radio]")
    figure.focus(radios[0])
    for name in names[1:]:
        figure.press(Keys.ARROW_RIGHT)
        count, kind = len(cases[name]["events"]), cases[name]["events"][-1][0]
        becomes(f"{count} of {count}", figure.find("input[type=range]")[0].get_attribute, "aria-valuetext")
        figure.begins(kind)
    figure.slide(-12)
    kind, layer, _ = cases["checkpointed"]["events"][-13]
    figure.begins(f"{kind}: ")
    figure.says(layer)


def test_first_weights_by_keyboard(live):
    figure = live("first-weights")
    data = figure.data
    figure.says("std 0.01", f"{data['right'][0]} % are right")
    figure.slide(10)
    figure.says("std 0.1 ", f"{data['right'][10]} % are right")
    figure.tab()
    figure.press(Keys.ARROW_RIGHT)  # ReLU
    figure.says(f"{data['right'][len(data['stds']) + 10]} % are right")


def test_patches_by_keyboard(live):
    figure = live("patching")
    data, start = figure.data, figure.data["recovered"][0][0].index(max(figure.data["recovered"][0][0][:17]))
    def check(source, depth, place):
        back, digits = (data[what][source][depth][place] for what in ("recovered", "probabilities"))
        said = figure.said().replace("−", "-")
        assert f"recovered {back/1000 + 0.0:.2f}" in said.replace("-0.00", "0.00"), said
        found = re.search(r"An eight: ([\d.]+) % .* a three: ([\d.]+) %", said)
        assert found, said
        assert [float(text) for text in found.groups()] == pytest.approx([digits[8]/10, digits[3]/10], abs=0.51)
    def says(*shown): eventually(check, *shown)
    def draws(): assert abs(figure.line(0 + 1, 0, axis=(0, 1)) - data["recovered"][0][3][start]/1000) < 0.02
    says(0, 0, start)
    figure.slide(2)
    says(0, 2, start)
    eventually(draws)
    figure.tab()
    figure.press(Keys.HOME)  # the class token
    says(0, 2, 0)
    figure.tab()
    figure.press(Keys.ARROW_RIGHT)  # from themselves
    says(1, 2, 0)
    figure.says("recovered 0.00")  # the control changes nothing


def test_a_digit_by_keyboard(live):
    figure = live("digit")
    net, examples = network(figure.data["layers"]), torch.tensor(figure.data["examples"]).view(-1, 1, 8, 8)/16

    def check(image, times=1):
        for p in net.parameters(): p.data *= times
        digit, probability = max(enumerate(net(image[None]).softmax(1)[0].tolist()), key=lambda pair: pair[1])
        for p in net.parameters(): p.data /= times
        found = re.search(r"reads an? (\d), with probability ([\d.]+) %", figure.said())
        assert found and int(found[1]) == digit and abs(float(found[2]) - 100*probability) < 0.11, figure.said()
    def says(*shown): eventually(check, *shown)
    says(examples[3], 0.7)
    figure.says("times smaller")  # the figure shows an effect untouched
    figure.focus(figure.find("input[type=radio]")[3])
    for digit in (4, 5):
        figure.press(Keys.ARROW_RIGHT)
        says(examples[digit], 0.7)
    figure.slide(3)
    says(examples[5])
    figure.slide(-1)
    says(examples[5], 0.9)
    figure.press(Keys.END)
    figure.tab()
    figure.press(Keys.ENTER)  # draw your own
    figure.says("An empty sheet")
    becomes("application", lambda: figure.browser.switch_to.active_element.get_attribute("role"))
    figure.press(*[Keys.ARROW_UP]*3, Keys.SPACE, *[Keys.ARROW_DOWN]*6, Keys.SPACE)
    figure.says("reads a 1")  # one stroke down


def test_units_by_keyboard(live):
    figure = live("units")
    data = figure.data
    def check(layer, way, unit):
        fooled, right = data["alone"][layer][way][unit] if unit is not None else data["whole"]
        found = re.search(r"(\d+) are read as 3 \((\d+) .* (\d+) are right \((\d+)\)", figure.said())
        assert found, figure.said()
        assert [*map(int, found.groups())] == [fooled, data["whole"][0], right, data["whole"][1]], figure.said()
    def says(*shown): eventually(check, *shown)
    says(0, 1, data["unit"])
    figure.focus(figure.find("input[type=radio]")[3])
    figure.press(Keys.ARROW_LEFT)  # to zero
    says(0, 0, data["unit"])
    units = figure.find("button.moving-unit")
    figure.focus(units[data["unit"]])
    figure.press(Keys.SPACE)
    says(0, 0, None)
    figure.tab()
    figure.press(Keys.SPACE)
    says(0, 0, data["unit"] + 1)
    becomes("false", lambda: figure.find("button.moving-unit")[data["unit"] + 1].get_attribute("aria-pressed"))
    figure.tab()
    figure.press(Keys.SPACE)  # two are off now, which the page computes itself
    net = network(data["layers"], pooled=True)
    pictures, truth = torch.tensor(data["pictures"]).view(-1, 1, 8, 8)/16, torch.tensor(data["truth"])
    stamped = pictures.clone()
    stamped[..., :2, :2] = 1
    with hl.edit_output(net[3], hl.ablate([data["unit"] + 1, data["unit"] + 2])):
        fooled, right = (net(stamped).argmax(1) == 3).sum().item(), (net(pictures).argmax(1) == truth).sum().item()
    figure.says(f" {fooled} are read as 3", f" {right} are right")


def test_patterns_by_keyboard(live):
    figure = live("layer-names")
    measure = moving.module("layer-names")
    model = measure.resnet18()
    def check(pattern):
        picked = measure.picked(model, pattern)
        lit = [chip.get_attribute("aria-label").removesuffix(", picked") for chip in figure.find("li.picked")]
        assert sorted(lit) == sorted(picked), pattern
        assert (f"picks {len(picked)} of" if picked else "picks no layer") in figure.said(), figure.said()
    def says(pattern): eventually(check, pattern)
    says(measure.PATTERNS[0])
    field = figure.focus(figure.find("input[type=text]")[0])
    for pattern in (*measure.PATTERNS, "layer[12.conv", "layer1.0", "layer?.?.bn[!1]", "(", "*.[0-9]"):
        field.clear()
        field.send_keys(pattern)
        says(pattern)
    figure.tab()
    figure.press(Keys.ENTER)  # the first of the proposals
    says(measure.PATTERNS[0])


def shown(browser):
    return browser.execute_script("""return [".moving-live", ".moving > :not(.moving-live)"].map(
        (part) => [...document.querySelectorAll(part)].map((e) => getComputedStyle(e).display !== "none"))""")


def test_the_static_figure_is_there_on_paper_and_when_a_script_fails(browser, site):
    page = (site/f"{PAGES['six-hooks']}.html").as_uri()
    open_page(browser, page)
    becomes([[True], [False]], shown, browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    becomes([[False], [True]], shown, browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Network.enable", {})
    try:
        for lost in ("*six-hooks-data.js", "*six-hooks.js", "*moving.js"):
            browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": [lost]})
            open_page(browser, page)
            becomes([[], [True]], shown, browser)
    finally: browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
