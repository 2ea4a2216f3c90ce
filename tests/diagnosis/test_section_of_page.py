"The page of a run begins with its findings: those to act on with advice, below each what follows from it, notes last."
import re

import hooklab as hl
from hooklab.diagnosis.result import Diagnosis, section_of_page
from hooklab.findings.found import Finding


def finding(what, sure="likely", follows="", layers=()):
    return Finding(what, sure, f"Evidence of {what}.", list(layers), (0, 9), advice=f"Advice on {what}.",
                   follows=follows)


def outline(html):
    "The findings in order, each with how deep it stands."
    found, depth = [], 0
    for tag in re.findall(r"<ul>|</ul>|<li>\w+: <b>.+?</b>", html):
        depth += {"<ul>": 1, "</ul>": -1}.get(tag, 0)
        if tag.startswith("<li>"): found.append((depth, re.search("<b>(.+)</b>", tag)[1]))
    assert depth == 0
    return found


def test_consequences_stand_below_their_cause_and_notes_last():
    html = section_of_page(Diagnosis([
        finding("inputs not scaled"), finding("wrong sign"), finding("saturated", follows="inputs not scaled"),
        finding("loss rises", follows="wrong sign"), finding("not trained", "certain", "saturated"),
        finding("frozen part", "note")], 10, 3, []))
    assert outline(html) == [(1, "inputs not scaled"), (2, "saturated"), (3, "not trained"), (1, "wrong sign"),
                             (2, "loss rises"), (1, "frozen part")]
    assert "Advice on inputs not scaled." in html and "Advice on saturated." not in html
    assert "<i>More:</i> <code>lib/faults/data.html#inputs-not-scaled</code>" in html


def test_no_finding_is_lost_or_told_twice():
    twice = [finding("dead units"), finding("dead units", "possible"), finding("not trained", follows="dead units"),
             finding("saturated", follows="never found"), finding("loss rises", follows="gradients explode"),
             finding("gradients explode", follows="loss rises")]
    names = [what for _, what in outline(section_of_page(Diagnosis(twice, 10, 3, [])))]
    assert sorted(names) == sorted(f.what for f in twice)


def test_what_was_not_judged_stands_below():
    html = section_of_page(Diagnosis([finding("wrong sign")], 10, 3, ["gradients & more"]))
    assert html.index("wrong sign") < html.index("Not judged: gradients &amp; more")


def test_names_are_escaped():
    assert "<script" not in section_of_page(Diagnosis([finding("saturated", layers=["<script>"])], 10, 3, []))


def test_a_healthy_run_and_one_without_numbers():
    healthy = Diagnosis([], 10, 3, ["gradients"])
    assert section_of_page(healthy) == healthy._repr_html_() and "Nothing unusual" in section_of_page(healthy)
    assert "Nothing was recorded" in section_of_page(hl.diagnose(hl.ActivationStats()))
