"The word of a finding is the one that its kind has earned, and the record is that of the first looks."
import json

import pytest
from hypothesis import given, strategies as st

from hooklab.findings.found import Finding, with_its_word
from hooklab.findings.levels import LEAST, SURE, earned_word, records, right_in
from tests.bench import bench_ledger
from tests.bench.bars import RESULTS

LEVELS = SURE[:3]
TOOLS = "preflight", "diagnose", "find_nan"


def looks(): return json.loads(bench_ledger.LOOKS.read_text())
def row(*findings, twin=False): return {"program": "p", "twin": twin, "findings": [*findings], "errors": {}}


def test_the_records_are_what_the_looks_say():
    assert records() == bench_ledger.counted(looks())
    assert {*looks()} == {*bench_ledger.COMMITS}


def test_what_is_said_of_a_twin_counts_as_wrong():
    said = ["diagnose", "spike", "likely"]
    assert bench_ledger.counted({"a set": [row([*said, "cause"]), row([*said, "alarm"], twin=True)]}) == {
        "diagnose": {"spike": {"likely": [1, 1]}}}


def test_notes_and_what_several_tools_say_together_have_no_record():
    said = row(["diagnose", "spike", "note", "cause"], ["verdict", "spike", "likely", "cause"])
    assert bench_ledger.counted({"a set": [said]}) == {}


counts = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(list)
known = st.dictionaries(st.sampled_from(TOOLS), st.dictionaries(st.sampled_from("abc"), st.dictionaries(
    st.sampled_from(LEVELS), counts)))


@given(known, st.sampled_from(TOOLS), st.sampled_from("abcd"), st.sampled_from(LEVELS))
def test_a_word_is_what_the_record_and_nothing_else_says(known, tool, what, level):
    right, word = right_in(tool, what, level, known), earned_word(tool, what, level, known)
    assert 0 < right < 1
    assert word == next((word for word, least in LEAST.items() if right >= least), "note")
    assert earned_word(tool, what, "note", known) == "note"


@given(known, st.sampled_from(TOOLS), st.sampled_from("abc"), st.sampled_from(LEVELS))
def test_a_hit_never_lowers_a_word_and_a_miss_never_lifts_it(known, tool, what, level):
    def with_one_more(i):
        new = json.loads(json.dumps(known))
        new.setdefault(tool, {}).setdefault(what, {}).setdefault(level, [0, 0])[i] += 1
        return SURE.index(earned_word(tool, what, level, new))
    assert with_one_more(0) <= SURE.index(earned_word(tool, what, level, known)) <= with_one_more(1)


def test_a_kind_without_a_record_has_what_is_usual_for_its_tool_and_level():
    for tool in ("preflight", "diagnose"):
        assert [earned_word(tool, "never said", level) for level in LEVELS] == ["likely", "possible", "note"]


@pytest.mark.parametrize("level", SURE)
def test_a_finding_keeps_the_level_of_its_rule(level):
    new = with_its_word(Finding("spike", level, "It jumps."), "diagnose")
    assert new.claimed == level and new.sure == earned_word("diagnose", "spike", level)
    assert with_its_word(new, "diagnose") == new and new.row["claimed"] == level


def test_what_the_words_mean():
    "In programs whose own set gave no record: the figures of the page."
    figures = json.loads((RESULTS/"ledger.json").read_text())["figures"]
    right = figures["without the set: right, percent"]
    assert right["certain"][0] > 85 > right["likely"][0] > 60 > right["possible"][0] > 33
    again = bench_ledger.judged(looks(), lambda name: bench_ledger.by_records(bench_ledger.counted(
        bench_ledger.without(looks(), name))))
    assert again["words"] == right
    assert again["certain or likely"] == figures["without the set: certain or likely, percent"]
