"""A browser for tests: how it starts, how it opens a page, and how a test waits.

`browser.get` may return before the document is there, and so may a click that leads to another page. A test opens a
page with `open_page` (or the fixture `visit`), follows a link with `shows`, and looks at what an action changes with
`wait`, `becomes` or `eventually`. The environment variables CHROMIUM and CHROMEDRIVER name another browser than the one
on the path."""
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import InvalidSessionIdException, WebDriverException

DESKTOP, HALF, PHONE = (1280, 900), (900, 800), (375, 800)
PATIENCE = 30  # seconds; a busy machine is slow, and not wrong
FLAGS = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-background-networking",
         "disable-component-update", "disable-sync", "no-first-run")
# A document that is being left has a mark: at the same address it would pass for the new one. The event `load` comes
# after all scripts of a page of ours, and `readyState` is complete a moment before its listeners run.
LEAVE = "window.leftByTest = true; return new URL(arguments[0]).href"
WHERE = """const [opened] = performance.getEntriesByType("navigation");
    const whole = document.readyState === "complete" && opened?.loadEventEnd > 0;
    return [location.href, window.leftByTest ? "the page before" : whole ? "complete" : "still loading"]"""
CLIPBOARD = "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](`${error}`))"
TWO_FRAMES = "requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))"


def missing(reason: str):
    "On CI, where a skipped test is easily overlooked, a browser test that cannot run fails."
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def programs() -> tuple[str | None, str | None]:
    "Chromium and its driver, where they are."
    found = (shutil.which(name) for name in ("chromium", "google-chrome", "chrome"))
    return os.environ.get("CHROMIUM") or next(filter(None, found), None), \
        os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")


def start(profile: Path, waits: str = "normal") -> webdriver.Chrome:
    """Headless Chromium with a profile of its own, which writes down what it asks for.

    With `waits="none"`, the driver by itself never waits for a page."""
    program, driver = programs()
    if not (program and driver): missing("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location, options.page_load_strategy = program, waits
    for flag in (*FLAGS, f"user-data-dir={profile}"): options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    try: browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    except WebDriverException as error: missing(f"Chromium does not start: {error.msg.splitlines()[0]}")
    browser.set_script_timeout(4*PATIENCE)
    browser.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})  # as in the window in front
    return browser


def renew(browser: webdriver.Chrome):
    "Takes back what tests have asked of the browser, so that those of another file meet it as it started."
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Browser.resetPermissions", {})


# ---- waiting

def eventually(check: Callable, *args) -> Any:
    "What `check(*args)` returns once it raises nothing. If that never happens, its last error says what is wrong."
    end = time.monotonic() + PATIENCE
    while True:
        late = time.monotonic() > end  # before the check, so that a slow one has another try
        try: return check(*args)
        except InvalidSessionIdException: raise  # the browser is gone
        except (AssertionError, WebDriverException):  # not yet there, or replaced while we looked
            if late: raise
        time.sleep(.02)


def wait(browser: webdriver.Chrome, until: Callable, otherwise: str | Callable[[], str] = "") -> Any:
    "What `until(browser)` gives, as soon as it is true; `otherwise` says what is wrong if it never is."
    def check():
        found = until(browser)
        assert found, otherwise() if callable(otherwise) else otherwise
        return found
    return eventually(check)


def becomes(expected: Any, look: Callable, *args):
    "Waits until `look(*args)` is what is expected."
    def check():
        seen = look(*args)
        assert seen == expected, f"{seen!r}, and not {expected!r}"
    eventually(check)


# ---- pages

def arrive(browser: webdriver.Chrome, wanted: str, here: Callable[[str], bool]):
    "Waits until a page at an address of which `here` is true is there, and its scripts have run."
    def check():
        address, state = browser.execute_script(WHERE)
        assert here(address) and state == "complete", f"{wanted} is not there: the browser is at {address} ({state})"
    eventually(check)


def open_page(browser: webdriver.Chrome, address: str):
    "Opens a page, and waits until it is there. (An address with a #place in the page that is open would stay in it.)"
    wanted = eventually(browser.execute_script, LEAVE, address)
    browser.get(address)
    arrive(browser, wanted, wanted.__eq__)


def shows(browser: webdriver.Chrome, part: str):
    "Waits until a page whose address has this part is there: where a link leads."
    arrive(browser, part, lambda address: part in address)


def computed(browser: webdriver.Chrome) -> float:
    "For how many seconds the page that is open has computed, whatever else the machine does."
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def press(browser: webdriver.Chrome, *keys: str): webdriver.ActionChains(browser).send_keys(*keys).perform()


# ---- how a page is shown

def set_size(browser: webdriver.Chrome, size: tuple[int, int], mobile: bool = False):
    "For the page that is opened next: see `resize`."
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def resize(browser: webdriver.Chrome, size: tuple[int, int]):
    "Changes the width of the page that is open, and waits until it has it."
    set_size(browser, size)
    matches(browser, width=f"{size[0]}px")


def matches(browser: webdriver.Chrome, **features: str):
    "Waits until these media features are true of the page, and what watches its size has seen it."
    query = " and ".join(f"({name.replace('_', '-')}: {value})" for name, value in features.items())
    def check(b): return b.execute_script("return matchMedia(arguments[0]).matches", query)
    wait(browser, check, f"the page is not shown with {query}")
    browser.execute_async_script(TWO_FRAMES)


def show_as(browser: webdriver.Chrome, size: tuple[int, int] = DESKTOP, prefers: str = "light"):
    "For the page that is opened next: a width, and the theme that the system prefers; what moves is at rest."
    set_size(browser, size, mobile=size == PHONE)
    wishes = {"prefers-color-scheme": prefers, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def visit_page(browser: webdriver.Chrome, file: Path, size: tuple[int, int] = DESKTOP, prefers: str = "light"):
    "Opens a page from the disk, at a width and in the theme that the system prefers; what moves is measured at rest."
    show_as(browser, size, prefers)
    open_page(browser, file.as_uri())
    matches(browser, width=f"{size[0]}px", prefers_color_scheme=prefers, prefers_reduced_motion="reduce")


@contextmanager
def without_scripts(browser: webdriver.Chrome, file: Path, size: tuple[int, int]) -> Iterator[None]:
    "Opens a page from the disk in a browser that runs none of its scripts."
    show_as(browser, size)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, file.as_uri())
        yield
    finally: browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
