"""Fixtures of the tests that look at pages in a browser."""
import pytest


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    "Headless Chromium, for the tests of a file."
    from support.browsing import start  # here, for most tests need no browser
    chrome = start(tmp_path_factory.mktemp("profile"))
    yield chrome
    chrome.quit()


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
