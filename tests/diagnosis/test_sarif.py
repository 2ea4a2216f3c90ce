"A diagnosis as SARIF 2.1.0: what the format demands, what of a finding is where, and files that are no runs."
import json
import unicodedata

import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.diagnosis.diagnosing import FAULTS
from hooklab.diagnosis.result import Diagnosis
from hooklab.diagnosis.sarif import as_rows, diagnosis_of, sarif, with_page
from hooklab.findings.found import Finding
from hooklab.findings.rules import page_of

CAUSE = Finding("inputs not scaled", "likely", "The input goes to 255.", steps=(0, 9), advice="Divide by 255.")
EFFECT = Finding("saturated", "certain", "Units at the ends.", ["body.1", "body.3"], (2, 9), advice="Smaller weights.",
                 follows="inputs not scaled")
DOUBT = Finding("dead units", "possible", "Few units.", ["body.5"], (3, 3), advice="A lower rate.")
NOTE = Finding("frozen part", "note", "Two of six.", ["head"], (0, 9), advice="If not: unfreeze.")
SICK = Diagnosis([CAUSE, DOUBT, EFFECT, NOTE], 10, 6, ["gradients; record them"])


def checked(log):
    "What the schema of SARIF 2.1.0 requires of the parts that are used."
    log = json.loads(json.dumps(log))
    assert log["version"] == "2.1.0" and "sarif-schema-2.1.0" in log["$schema"] and isinstance(log["runs"], list)
    allowed = {"tool", "invocations", "columnKind", "results", "properties"}
    for run in log["runs"]:
        assert run.keys() <= allowed and run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        driver = run["tool"]["driver"]
        assert isinstance(driver["name"], str) and isinstance(driver["version"], str)
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(ids) == len(set(ids))
        for rule in driver["rules"]:
            assert rule.keys() <= {"id", "shortDescription", "help", "helpUri", "properties"}
            assert rule["shortDescription"]["text"] and rule["help"]["text"]
            assert "://" in rule.get("helpUri", "https://"), "an address is absolute, or is not there"
        for invocation in run["invocations"]: assert isinstance(invocation["executionSuccessful"], bool)
        for result in run["results"]:
            assert result.keys() <= {"ruleId", "ruleIndex", "level", "message", "locations", "properties"}
            assert result["level"] in ("none", "note", "warning", "error") and result["message"]["text"]
            assert ids[result["ruleIndex"]] == result["ruleId"]
            for location in result.get("locations", []):
                assert location.keys() and location.keys() <= {"physicalLocation", "logicalLocations"}
                for logical in location.get("logicalLocations", []): assert logical["fullyQualifiedName"]
                if "physicalLocation" in location: assert location["physicalLocation"]["artifactLocation"]["uri"]
    return log["runs"][0]


def test_each_finding_is_a_rule():
    rules = checked(sarif(Diagnosis([], 10, 3, [])))["tool"]["driver"]["rules"]
    assert {rule["id"] for rule in rules} == {*FAULTS}
    assert all(rule["properties"]["page"] == page_of(rule["id"]) for rule in rules)


def test_results_have_level_layers_steps_and_cause():
    results = checked(sarif(SICK, "runs/run.safetensors"))["results"]
    assert [(r["ruleId"], r["level"]) for r in results] == [
        ("inputs not scaled", "warning"), ("dead units", "warning"), ("saturated", "error"), ("frozen part", "note")]
    cause, _, effect, _ = results
    said = "inputs not scaled (steps 0 to 9). The input goes to 255. What helps: Divide by 255."
    assert cause["message"]["text"] == said
    assert effect["message"]["text"].endswith("Units at the ends. It follows from inputs not scaled.")
    assert effect["properties"] == {"sure": "certain", "steps": [2, 9], "follows": "inputs not scaled"}
    assert [place["fullyQualifiedName"] for place in effect["locations"][0]["logicalLocations"]] == ["body.1", "body.3"]
    files = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results}
    assert files == {"runs/run.safetensors"}


def test_without_a_file_and_without_layers_there_is_no_location():
    cause, *_ = checked(sarif(SICK))["results"]
    assert "locations" not in cause


def test_help_is_an_address_where_the_site_is_known():
    rules = checked(sarif(SICK, site="https://docs.example/"))["tool"]["driver"]["rules"]
    assert {rule["helpUri"] for rule in rules} == {f"https://docs.example/{page_of(what)}" for what in FAULTS}


def test_what_was_not_judged_is_told():
    assert checked(sarif(SICK))["properties"]["not judged"] == ["gradients; record them"]


def every_text(log):
    if isinstance(log, str): yield log
    elif isinstance(log, dict | list):
        for name in log: yield from every_text(log[name] if isinstance(log, dict) else name)


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "\u202eevil", "x\u200f\u061cy", "\u2066a\u2069", "two\nlines", "\x9b31m",
                                  "\ud800", "[a](javascript:alert(1))", "![a](http://b/c.png)", "[a](0)"])
def test_names_are_shown_and_nothing_obeys_them(name):
    "In no text of the log, wherever the name comes from: a layer, a process, a file, what is said of it."
    finding = Finding("dead units", "possible", f"Of {name}.", [name, f"body.{name}"], (3, 3),
                      advice=f"Look at {name}.", seen_by=[name])
    log = sarif(Diagnosis([finding], 10, 6, [name]), name)
    checked(log)
    result = log["runs"][0]["results"][0]
    for text in every_text(log):
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl") for c in text), text
        assert result["message"]["text"].count("](") == result["message"]["text"].count(r"\](")
    if "](" in name: assert name.replace("](", r"\](") in result["message"]["text"]
    json.dumps(log, ensure_ascii=False).encode("utf-8")


def test_a_run_without_numbers_is_no_success():
    found = hl.diagnose(hl.ActivationStats())
    run = checked(sarif(found))
    assert run["invocations"] == [{"executionSuccessful": False}] and run["results"][0]["ruleId"] == "nothing recorded"


def test_words_name_the_page_to_read_first():
    assert with_page(SICK) == f"{SICK}\n\nRead first: lib/faults/data.html#inputs-not-scaled"
    noted = Diagnosis([NOTE], 10, 6, [])
    assert with_page(noted) == str(noted), "a note is nothing to act on"


def test_rows_are_plain_values():
    rows = json.loads(json.dumps(as_rows(SICK)))
    assert [row["what"] for row in rows["findings"]] == [f.what for f in SICK]
    assert rows["findings"][2]["follows"] == "inputs not scaled"
    assert rows["findings"][0]["page"] == page_of("inputs not scaled")


def test_a_file_says_the_same_as_the_run(tmp_path):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for _ in range(8):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            s.step(loss)
    s.save(tmp_path/"run.safetensors")
    assert as_rows(diagnosis_of(tmp_path/"run.safetensors")) == as_rows(hl.diagnose(s))
    assert "no zero_grad" in diagnosis_of(tmp_path/"run.safetensors")


def test_a_record_of_outputs_is_no_run(tmp_path):
    path = hl.record(nn.Linear(4, 2), tmp_path/"outputs.safetensors", torch.randn(3, 4))
    with pytest.raises(ValueError, match="has no statistics saved by ActivationStats"): diagnosis_of(path)
