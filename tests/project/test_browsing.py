"""How tests use a browser: a page that is opened is there, a wait has an end, and nobody opens pages in another way."""
import ast
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from selenium.common.exceptions import NoSuchElementException
from selenium.webdriver.common.by import By

from support import browsing, busy
from support.checks import REPO

BUSY = REPO/"tests/support/busy.py"


# ---- pages

@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    "One that never waits for a page by itself."
    chrome = browsing.start(tmp_path_factory.mktemp("profile"), waits="none")
    yield chrome
    chrome.quit()


SLOW = """<title>{name}</title><p id="place">
<a href="{other}.html#place" onclick="setTimeout(() => location = this.href, 300); return false">next</a>
<script>addEventListener("load", () => document.body.append("{name} is there"))</script>
<script src="late.js"></script>"""


class Slow(SimpleHTTPRequestHandler):
    "Serves a folder, and takes its time for scripts."
    def log_message(self, *args): pass
    def do_GET(self):
        if self.path.endswith(".js"): time.sleep(.3)
        super().do_GET()


@pytest.fixture
def pages(tmp_path):
    "Where two pages are that take their time, and lead to each other a moment after the click."
    (tmp_path/"late.js").touch()
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path/f"{name}.html").write_text(SLOW.format(name=name, other=other))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Slow, directory=tmp_path)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def text_of(browser): return browser.execute_script("return document.body.innerText")


def test_a_page_that_is_opened_is_there(browser, pages, monkeypatch):
    browsing.open_page(browser, f"{pages}/two.html")
    def get(address): browser.execute_script("setTimeout(() => location = arguments[0], 300)", address)
    monkeypatch.setattr(browser, "get", get)  # returns too early, while the page before is there
    for name in ("one", "two", "two", "one"):  # one of them again, at the same address
        address = f"{pages}/{name}.html"
        browsing.open_page(browser, address)
        assert browser.current_url == address and text_of(browser).endswith(f"{name} is there")
        browser.execute_script("document.body.append(', and is seen')")


def test_a_link_leads_to_a_page_that_is_there(browser, pages):
    browsing.open_page(browser, f"{pages}/one.html")
    browser.find_element(By.TAG_NAME, "a").click()
    browsing.shows(browser, "two.html#place")
    assert text_of(browser).endswith("two is there")


def test_what_is_not_there_is_missed(browser, pages, tmp_path, monkeypatch):
    browsing.open_page(browser, f"{pages}/one.html")
    monkeypatch.setattr(browsing, "PATIENCE", 0.1)
    elsewhere = r"elsewhere\.html is not there: the browser is at .*one\.html \(complete\)"
    with pytest.raises(AssertionError, match=elsewhere): browsing.shows(browser, "elsewhere.html")
    with pytest.raises(AssertionError, match="no table"):
        browsing.wait(browser, lambda b: b.find_elements(By.TAG_NAME, "table"), "no table")
    with pytest.raises(NoSuchElementException, match="table"):
        browsing.eventually(browser.find_element, By.TAG_NAME, "table")
    with pytest.raises(AssertionError, match="one"): browsing.becomes("two", lambda: browser.title)
    with pytest.raises(AssertionError, match="width: 20px"): browsing.matches(browser, width="20px")
    with pytest.raises(AssertionError, match=r"nowhere\.html is not there: the browser is at "):
        browsing.open_page(browser, (tmp_path/"nowhere.html").as_uri())


def test_a_size_is_there_when_it_was_asked_for(browser, pages):
    browsing.open_page(browser, f"{pages}/one.html")
    browser.execute_script("window.seen = []; new ResizeObserver(() => seen.push(innerWidth)).observe(document.body)")
    for size in (browsing.HALF, browsing.DESKTOP):
        browsing.resize(browser, size)
        assert browser.execute_script("return [innerWidth, seen.at(-1)]") == [size[0]]*2


# ---- nobody else opens pages

OPENS = {"get", "refresh", "back", "forward", "set_window_size", "set_window_rect"}


def opened_elsewhere(code):
    "Lines that start a browser, lead it to a page or change its size, in the words of selenium."
    for node in ast.walk(ast.parse(code)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)): continue
        whose, what = ast.unparse(node.func.value), node.func.attr
        is_browser = re.fullmatch(r"(\w+\.)*(b|browser|chrome|driver)|(visit|start)\(.*\)", whose)
        if (is_browser and what in OPENS) or (whose, what) == ("webdriver", "Chrome"): yield node.lineno


def test_pages_are_opened_in_one_way():
    planted = "browser.get('x')\nfigure.browser.refresh()\nvisit('a').back()\nbrowser.find_element('a')\n{}.get('b')"
    assert [*opened_elsewhere(planted)] == [1, 2, 3]
    tests = {file: file.read_text(encoding="utf-8") for file in (REPO/"tests").rglob("*.py")}
    ours = {file: code for file, code in tests.items() if re.search("browser|selenium|visit", code)}
    found = {file.name: [*opened_elsewhere(code)] for file, code in ours.items()}
    assert found.pop("browsing.py") and len(found) > 5
    assert not {name: lines for name, lines in found.items() if lines}, "tests/support/browsing.py does that"


# ---- a busy machine

def busy_run(*command, **kwargs):
    "The processes that compute hold the same stdout as the script, so it has an end once all are gone."
    script = [sys.executable, BUSY, "-n", "2", *command]
    return subprocess.Popen(script, text=True, stdout=subprocess.PIPE, start_new_session=True, **kwargs)


def test_processes_compute_until_the_block_ends():
    with pytest.raises(RuntimeError), busy.load(3) as processes:
        assert [process.poll() for process in processes] == [None]*3
        raise RuntimeError
    assert None not in [process.poll() for process in processes]


@pytest.mark.parametrize("end, status", [("sys.exit(3)", 3), ("", 0), ("os.kill(os.getpid(), 9)", 137)])
def test_its_exit_status_is_that_of_the_command(end, status):
    running = busy_run(sys.executable, "-c", f"import os, sys; print('ran', flush=True); {end}")
    assert running.communicate(timeout=120)[0] == "ran\n" and running.returncode == status


@pytest.mark.parametrize("sent, status", [(signal.SIGINT, 5), (signal.SIGKILL, -9)])
def test_processes_end_when_it_is_stopped(sent, status):
    waits = "try:\n    print('ready', flush=True)\n    time.sleep(600)\nexcept KeyboardInterrupt: sys.exit(5)"
    running = busy_run(sys.executable, "-c", f"import sys, time\n{waits}")
    assert running.stdout.readline() == "ready\n"
    os.killpg(running.pid, sent)  # as Ctrl-C does
    assert running.communicate(timeout=120)[0] == "" and running.returncode == status


def test_a_command_that_is_not_there(tmp_path):
    running = busy_run(str(tmp_path/"nothing"), stderr=subprocess.PIPE)
    assert running.communicate(timeout=120)[1] == f"busy.py: {tmp_path/'nothing'}: No such file or directory\n"
    assert running.returncode == 127
