"""Fixtures of the tests that look at the pages of the site."""
import gc
import sys

import pytest


@pytest.fixture(scope="module")
def pages(site):
    "The pages of the site, for the tests of a file."
    from support.pages import Pages
    gc.disable()  # it would take a third of the time, among trees that stay
    yield Pages(site)
    gc.enable()


@pytest.fixture(scope="session")
def links(repo, site):
    "Where the links of each page lead, and where links to it may lead."
    sys.path.insert(0, str(repo/"tools"))
    from site_problems import links_of
    return {file: links_of(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}


@pytest.fixture(scope="session")
def chrome(tmp_path_factory):
    "Headless Chromium, started once."
    from support.browsing import start  # here, for most tests need no browser
    chrome = start(tmp_path_factory.mktemp("profile"))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def browser(chrome):
    "The browser as it started, for the tests of a file."
    from support.browsing import renew
    renew(chrome)
    return chrome


@pytest.fixture
def visit(browser, site):
    "Opens a page of the site from the disk, at a width and in the theme that the system prefers."
    from support.browsing import eventually, visit_page
    def visit(page="index.html", *how, **named):
        visit_page(browser, site/page, *how, **named)
        return browser
    yield visit
    def forgotten():  # what one page stores may reach the next, in another process, a moment later
        visit()
        assert not browser.execute_script("return localStorage.length"), "what a page has stored stays"
    kept = browser.execute_script("const kept = localStorage.length; localStorage.clear(); return kept")
    if kept: eventually(forgotten)
