"""What type checkers and editors know of hooklab, asked of mypy."""
import os
import re
import subprocess
import sys

import pytest
from torch import nn

import hooklab as hl
import hooklab.all

BEGIN = """
from typing import reveal_type

import torch
from torch import nn

import hooklab as hl
from hooklab.all import *

model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
x = torch.zeros(2, 4)
"""


def path(kind): return f"{kind.__module__}.{kind.__qualname__}"


module = path(nn.Module)
revealed = {  # a line of a program, and the type that it reveals; of a class, the type of what it makes
    "reveal_type(hl.Hook)": path(hl.Hook),
    "reveal_type(hl.Hooks)": path(hl.Hooks),
    "reveal_type(Hook)": path(hl.Hook),
    "reveal_type(hl.hook_output(model[0]))": path(hl.Hook),
    "reveal_type(hook_output(model[0]))": path(hl.Hook),
    "reveal_type(hl.layers(model, '*'))": f"dict[str, {module}]",
    "reveal_type(layers(model, '*'))": f"dict[str, {module}]",
    "reveal_type(hl.FeatureExtractor(model, '0')(x))": "dict[str, Any]",
    "reveal_type(hl.summary(model))": path(hl.Summary),
    "reveal_type(hl.ActivationStats().on(model))": path(hl.ActivationStats),
    "reveal_type(hl.diagnose(hl.ActivationStats().on(model)))": path(hl.Diagnosis),
    "reveal_type(diagnose(ActivationStats()))": path(hl.Diagnosis),
    "reveal_type(hl.execution_order(model, x))": "list[str]",
    "reveal_type(hl.tensors(model(x)))": "list[torch._tensor.Tensor]",
    "reveal_type(hl.synth_learner())": path(hl.Learner),
    "reveal_type(hl.Hooks(model, print)[0])": path(hl.Hook),
    "reveal_type(hl.Hooks(model, print)['0'])": path(hl.Hook),
    "reveal_type(hl.Hooks(model, print)[:1])": f"list[{path(hl.Hook)}]",
    "for each in hl.Hooks(model, print): reveal_type(each)": path(hl.Hook),
    "with hl.hook_output(model[0]) as hook: reveal_type(hook)": path(hl.Hook),
    "with hl.hook_outputs(list(model)) as hooks: reveal_type(hooks)": path(hl.Hooks),
    "with hl.edit_output(model[0], hl.scale(2)) as edits: reveal_type(edits)": path(hl.Hooks),
    "with hl.ActivationStats().on(model) as stats: reveal_type(stats)": path(hl.ActivationStats),
    "with hl.find_nan(model) as watch: reveal_type(watch)": path(hl.NanWatch),
    "with hl.Timeline(model) as timeline: reveal_type(timeline)": path(hl.Timeline),
    "with hl.tensor_hook(x, print) as on_tensor: reveal_type(on_tensor)": path(hl.TensorHook),
}
wrong = {  # a line that is an error, and what mypy says of it
    "hl.Hok": 'Module has no attribute "Hok"',
    "hl.in_jupyter": 'Module has no attribute "in_jupyter"',
    "picture": 'Name "picture" is not defined',
    "hl.layers(3)": "incompatible type",
    "hl.hook_output(model[0]).stord": '"Hook" has no attribute "stord"',
}


# What no type of ours is from: reading it takes most of the time.
NOT_READ = """
    IPython jedi matplotlib prompt_toolkit sympy traitlets torch._decomp torch._dynamo torch._export torch._functorch
    torch._higher_order_ops torch._inductor torch._library torch._native torch._prims torch._refs torch._subclasses
    torch.ao torch.distributed torch.distributions torch.export torch.fx torch.jit torch.masked torch.nested torch.onnx
    torch.package torch.profiler torch.sparse torch.testing
""".split()


@pytest.fixture(scope="module")
def said(repo, tmp_path_factory, request):
    "{line of a program: what mypy says of it}; hooklab is found like an installed package."
    folder = tmp_path_factory.mktemp("types")
    programs = {"program": [*BEGIN.splitlines(), *revealed, *wrong],
                "names": ["import hooklab as every", *(f"reveal_type(every.{name})" for name in hooklab.all.__all__)]}
    for name, lines in programs.items(): (folder/f"{name}.py").write_text("\n".join(lines) + "\n")
    cache = getattr(request.config, "cache", None)  # without one, mypy reads all of torch each time
    not_read = ",".join(f"{name}.*" for name in NOT_READ)
    (folder/"mypy.ini").write_text(f"[mypy]\nstrict = True\n[mypy-{not_read}]\nfollow_imports = skip\n")
    mypy = [sys.executable, "-m", "mypy", "--no-error-summary",
            "--cache-dir", cache.mkdir("mypy") if cache else folder/"cache"]
    ran = subprocess.run([*mypy, "program.py", "names.py"], cwd=folder, env=os.environ | {"PYTHONPATH": str(repo)},
                         capture_output=True, text=True)
    assert not ran.stderr, ran.stderr
    found = {}
    for name, number, text in re.findall(r"^(\w+)\.py:(\d+): (.*)$", ran.stdout, re.M):
        found.setdefault(programs[name][int(number) - 1], []).append(text)
    return found


@pytest.mark.parametrize("line", revealed)
def test_type_of(said, line):
    told, = said[line]
    kind = re.fullmatch(r'note: Revealed type is "(?:def \(.*\) -> )?(.*)"', told)[1].replace("builtins.", "")
    assert kind == revealed[line]


@pytest.mark.parametrize("line", wrong)
def test_a_mistake_is_an_error(said, line):
    told, = said[line]
    assert told.startswith("error: ") and wrong[line] in told


def test_nothing_else_is_an_error(said):
    expected = revealed.keys() | wrong.keys()
    assert [line for line in said if line not in expected and not line.startswith("reveal_type(every.")] == []


def test_every_name_has_a_type(said):
    told = {name: said[f"reveal_type(every.{name})"] for name in hooklab.all.__all__}
    assert {name: text for name, text in told.items() if len(text) > 1 or text[0].endswith('is "Any"')} == {}
