"""The reference on the site: classes with their members, parameters in a table, types that lead somewhere."""
import ast
import inspect
import re
import sys

import pytest
from bs4 import BeautifulSoup

import hooklab as hl
import hooklab.all
from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import site_links  # noqa: E402
import site_reference  # noqa: E402
import site_symbols  # noqa: E402
from site_code import only_checks  # noqa: E402

CLASSES = [name for name in hooklab.all.__all__ if inspect.isclass(getattr(hooklab.all, name))]


@pytest.fixture(scope="module")
def public() -> list[site_symbols.Symbol]: return [site_symbols.symbol(name) for name in hooklab.all.__all__]


@pytest.fixture(scope="module")
def shown(site, public) -> dict[str, BeautifulSoup]:
    "{name: what its page says of it} of each public name."
    texts = {page: (site/f"{page}.html").read_text(encoding="utf-8") for page in {s.module.page for s in public}}
    # without the sidebar, which is most of a page
    mains = {page: without_code(text[text.index("<main"):]) for page, text in texts.items()}
    pages = {page: BeautifulSoup(main, "html.parser") for page, main in mains.items()}
    headings = {page: {h.get_text(strip=True): h for h in tree.find_all("h3")} for page, tree in pages.items()}
    found = {}
    for s in public:
        heading = headings[s.module.page][s.name]
        found[s.name] = heading.find_next(class_="reference")
    return found


def without_code(text: str) -> str: return re.sub(r"(<pre\b[^>]*>).*?(?=</pre>)", r"\1", text, flags=re.S)


def members_of(kind: type) -> set[str]:
    "The public methods and properties of a class that are written in hooklab, as Python finds them."
    ours = [base for base in kind.__mro__ if base.__module__.startswith("hooklab")]
    found = {name for base in ours for name, value in vars(base).items() if name[0] != "_"
             and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod))}
    documented = {name for name in found if inspect.getdoc(getattr(kind, name))}
    return documented | {name for name in found if name in vars(kind)}


def test_a_class_is_shown_as_one(shown, public):
    for s in public: assert shown[s.name].find(class_="signature").get_text().startswith(
        f"class {s.name}" if s.is_class else f"def {s.name}("), s.name


@pytest.mark.parametrize("kind", CLASSES)
def test_each_member_has_an_address_and_a_line(shown, kind):
    entries = {tag["id"]: tag.find_parent("div") for tag in shown[kind].select("dl.members [id]")}
    for name in members_of(getattr(hl, kind)):
        entry = entries.get(f"{kind.lower()}.{name.lower()}")
        assert entry, f"{kind}.{name} has no entry"
        assert entry.dt.find("a", class_="member", string=name)["href"] == f"#{kind.lower()}.{name.lower()}"
        assert entry.dd.get_text(strip=True), f"nothing is said of {kind}.{name}: give it a docstring"


@pytest.mark.parametrize("kind, names", [
    ("Hook", "stored calls n_calls fired removed name module remove clear"),
    ("Hooks", "hooks stored by_name removed remove clear"),
    ("ActivationStats", "history gradients updates steps dead_chart color_dim plot table save load on step remove"),
    ("Learner", "fit validate summary model opt loss xb yb epoch train_iter pct_train add_cb remove_cb cbs"),
    ("Comparison", "rows first faults same plot"),
    ("NonFiniteError", "layer kind call direction n_pass rank made_by"),
])
def test_what_users_need_is_there(shown, kind, names):
    ids = {tag["id"] for tag in shown[kind].select("dl.members [id]")}
    assert {f"{kind.lower()}.{name.lower()}" for name in names.split()} <= ids


def test_what_only_a_subclass_needs_is_folded(shown):
    assert shown["Hook"].select_one("details.inner").find(id="hook.enters")
    for kind in shown.values():
        for entry in kind.select("dl.members > div"):
            about_subclasses = entry.dd.get_text().startswith(("Called ", "For subclasses"))
            assert about_subclasses == bool(entry.find_parent("details", class_="inner")), entry.dt.get_text()


def test_the_address_of_a_base_stands_above_what_comes_from_it(shown):
    inherited = shown["Hook"].find(id="hook.remove").find_parent("dl")
    assert inherited.find_previous_sibling("p").get_text() == "from LayerHook"


def test_each_comment_beside_a_parameter_is_in_the_table(shown, public):
    tables = 0
    for s in public:
        given = [p for p in (*s.parameters, s.returned) if p and p.text]
        if not given or s.is_class and s.is_record: continue
        table = shown[s.name].find("table", class_="parameters")
        assert table["class"] == ["parameters"], "another way to fit a table to a phone is at work here too"
        rows = {row.th.get_text(): row.find_all("td") for row in table.tbody("tr")}
        assert list(rows) == [p.name for p in s.parameters] + ([] if s.returned is None else ["returns"]), s.name
        for p in given:
            text = rows[p.name or "returns"][-1].get_text()
            assert text == p.text.replace("`", ""), f"{s.name}: {p.name}"
        tables += 1
    assert tables > 40


def test_the_tables_say_what_python_knows(shown, public):
    "Names and defaults are read from the source; here they are compared with the imported functions."
    for s in public:
        try: known = inspect.signature(getattr(hl, s.name)).parameters
        except ValueError: continue  # an exception of its own
        if not s.parameters: continue
        assert [p.name.lstrip("*") for p in s.parameters] == list(known), s.name
        for p in s.parameters:
            has_default = known[p.name.lstrip("*")].default is not inspect.Parameter.empty
            assert has_default == (p.default is not None), f"{s.name}: {p.name}"


def test_types_lead_to_torch_and_to_our_pages(shown):
    links = {a.get_text(): a["href"] for a in shown["Hook"].select(".type a")}
    assert links["nn.Module"] == "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html"
    ours = {a.get_text(): a["href"] for a in shown["compare"].select(".type a")}
    assert ours["Comparison"] == "comparison.html#comparison"


def test_members_are_no_headings(shown):
    for kind in shown.values(): assert not kind.find(re.compile("h[1-6]"))


def test_imports_and_checks_are_folded(site):
    page = BeautifulSoup((site/"lib/hooks/hook.html").read_text(encoding="utf-8"), "html.parser")
    folded = {fold.summary.get_text(strip=True): fold.code.get_text() for fold in page.select("details.code-fold")}
    assert folded["Imports"].startswith("import warnings")
    assert folded["Check"].startswith("assert not layer._forward_hooks")


@pytest.mark.parametrize("code, only", [("assert x", True), ("for i in y: assert i", True), ("x = 1\nassert x", False),
                                        ("torch.testing.assert_close(a, b)", True), ("net(x)", False),
                                        ("with f():\n    net(x)\n    assert x", False)])
def test_what_only_checks(code, only): assert only_checks(ast.parse(code).body) == only


def test_members_in_prose_lead_to_their_addresses():
    link = site_links.link_names
    assert link("see `Hook.stored`, `Hook.remove()`", "howto/x") == (
        "see [`Hook.stored`](/lib/hooks/hook.html#hook.stored), [`Hook.remove()`](/lib/hooks/hook.html#hook.remove)")
    of_another_page = "[`calls`](/lib/debug/call-timeline.html#calls)"
    assert link(of_another_page, "lib/hooks/hook") == "[`calls`](/lib/hooks/hook.html#hook.calls)"
    for same in (of_another_page, "[`Hook.stored`](x)", "```\n`Hook.stored`\n```", "`Hook.nothing`", "`torch.Tensor`"):
        assert link(same, "howto/x") == same


def test_the_copy_in_markdown_has_no_html(site):
    text = (site/"lib/hooks/hook.llms.md").read_text(encoding="utf-8")
    assert "class Hook(GradientHook):\n    def __init__(\n" in text and "- `Hook.stored`: `Any`. What" in text
    assert not re.search(r"<(dl|table|div|p|span)\b", text) and ":::" not in text


def test_a_symbol_that_is_not_exported_is_named():
    with pytest.raises(LookupError, match="run `nbdev-export`"): site_reference.documentation("Nothing", "lib/nothing")
