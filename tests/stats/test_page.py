"A page about a run says what those judged who added themselves; recording and drawing need none of them."
import subprocess
import sys

import torch
from torch import nn

from hooklab.stats import page
from hooklab.stats.activation_stats import ActivationStats


def recorded(steps=2):
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    with ActivationStats().on(model) as stats:
        for _ in range(steps):
            model(torch.randn(4, 3))
            stats.step()
    return stats


def test_each_judge_has_its_part_in_order(monkeypatch, tmp_path):
    judges = [lambda stats: f"<p>first, of {len(stats.steps)} steps</p>", lambda stats: f"<p>then {stats.names}</p>"]
    monkeypatch.setattr(page, "JUDGES", judges)
    text = recorded().report(tmp_path/"run.html").read_text("utf-8")
    assert "<p>first, of 2 steps</p><p>then ['0']</p></div>\n<h2>Pictures</h2>" in text and page.NO_JUDGE not in text


def test_without_a_judge_the_page_says_so_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(page, "JUDGES", [])
    text = recorded().report(tmp_path/"run.html").read_text("utf-8")
    assert f'<div class="diagnosis">{page.NO_JUDGE}</div>' in text and text.count("<figure>") == 3
    nothing = recorded(0).report(tmp_path/"nothing.html").read_text("utf-8")
    assert page.NO_JUDGE in nothing and "none recorded" in nothing and "Pictures" not in nothing


ALONE = """
import sys
import torch
from hooklab.stats.activation_stats import ActivationStats
model = torch.nn.Linear(3, 2)
with ActivationStats().on(model) as stats:
    model(torch.randn(4, 3))
    stats.step()
before = stats.report(sys.argv[1]).read_text("utf-8")
assert not [name for name in sys.modules if name.startswith(("hooklab.diagnosis", "hooklab.checking"))]
from hooklab.diagnosis.diagnosing import diagnose
after = stats.report(sys.argv[1]).read_text("utf-8")
assert "No diagnosis of this run" in before
assert "No diagnosis of this run" not in after and diagnose(stats).title in after
"""


def test_a_record_needs_no_diagnosis_until_one_is_imported(tmp_path):
    subprocess.run([sys.executable, "-c", ALONE, str(tmp_path/"run.html")], check=True, capture_output=True, text=True)
