"The command line: what it writes, what it refuses, and what it must not tell."
import dataclasses
import errno
import functools
import json
import math
import os
import platform
import re
import subprocess
import sys
import sysconfig
import time
from contextlib import ExitStack, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import pytest
import torch
from hypothesis import given, strategies as st

import hooklab
from hooklab import __version__, cli
from hooklab.debug import bug_report
from hooklab.debug.bug_report import global_hooks, report
from hooklab.exercises import folder as learners_folder
from hooklab.exercises.notebooks import learner_notebook
from hooklab.exercises.progress import FILE as PROGRESS, note
from hooklab.hooks.distributed import ProcessPlace
from support.checks import REPO
from support.forks import forked


def installed(*args, **kwargs):
    "The installed `hooklab` command."
    command = Path(sysconfig.get_path("scripts"))/"hooklab"
    return subprocess.run([command, *args], capture_output=True, text=True, encoding="utf-8", timeout=120, **kwargs)


def shell(*args, **kwargs):
    "The same in a process that need not import torch again."
    return forked(cli.main, "hooklab", *map(str, args), **kwargs)


def code(source, **others):
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source, **others}


def notebook(*sources):
    return {"cells": [code(s, id=f"c{i}") for i, s in enumerate(sources)], "metadata": {},
            "nbformat": 4, "nbformat_minor": 5}


def save(nb, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(nb), encoding="utf-8")


def load(path): return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def originals(tmp_path, monkeypatch):
    "Two small lessons that this installation seems to carry; the working folder is empty."
    folder = tmp_path/"originals"
    save(notebook("x = 1", "x + 1"), folder/"01-one.ipynb")
    save(notebook("y = 'größer'"), folder/"02-two.ipynb")
    monkeypatch.setattr(learners_folder, "lesson_files", lambda: sorted(folder.glob("*.ipynb")))
    (tmp_path/"cwd").mkdir()
    monkeypatch.chdir(tmp_path/"cwd")
    return folder


@pytest.fixture
def lessons(capsys):
    "Calls `hooklab lessons …`; gives what it says of each file."
    def call(*args):
        cli.main(["lessons", *map(str, args)])
        said = dict(re.findall(r"^  (\S+): (.+)$", capsys.readouterr().out, re.M))
        assert said.pop("00-start.ipynb", "") in ("written", "already there, unchanged")
        return said
    return call


@pytest.fixture
def fails(capsys):
    "Calls main; it must end with exit code 1 and one line, which is returned."
    def call(*args):
        with pytest.raises(SystemExit) as stopped: cli.main([*map(str, args)])
        message = stopped.value.code  # a text: Python writes it to stderr and exits with 1
        assert isinstance(message, str) and message.startswith("hooklab: ") and "\n" not in message
        return message
    return call


# The command itself

def test_installed_command_tells_its_version():
    done = installed("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"hooklab {__version__}\n", "")


@pytest.mark.parametrize("args", [
    ["lessons", "notes"], [], pytest.param(["summary", "torch.nn:ReLU"], marks=pytest.mark.slow)], ids=str)
def test_tests_run_the_command_as_it_is_installed(args, tmp_path):
    (tmp_path/"notes").touch()
    one, other = installed(*args, cwd=tmp_path), shell(*args, cwd=tmp_path)
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)


MODULES = ["hooklab", "hooklab.cli"]


def as_module(module, *args, **kwargs):
    "The same command, called as `python -m MODULE`."
    return subprocess.run(
        [sys.executable, "-m", module, *args], capture_output=True, text=True, encoding="utf-8", timeout=120, **kwargs
    )


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_the_command_too(module, tmp_path):
    done = as_module(module, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"hooklab {__version__}\n", "")
    done = as_module(module, "lessons", "here", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    written = [file.name for file in learners_folder.lesson_files()]
    assert sorted(os.listdir(tmp_path/"here")) == [PROGRESS, "00-start.ipynb", *written]


@pytest.mark.parametrize("module", MODULES)
def test_what_to_type_is_said_as_it_was_typed(module, tmp_path):
    called = f"{Path(sys.executable).name} -m {module}"
    (tmp_path/"notes").touch()
    assert as_module(module).stdout.startswith(f"usage: {called} ") and shell().stdout.startswith("usage: hooklab ")
    assert as_module(module, "summary", "--help").stdout.startswith(f"usage: {called} summary ")
    done = as_module(module, "lessons", "--frce")
    assert done.returncode == 2 and done.stderr == f"hooklab: unrecognized arguments: --frce. Try: {called} --help\n"
    done = as_module(module, "lessons", "notes", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == f"hooklab: notes is a file; name another folder: {called} lessons FOLDER\n"
    done = as_module(module, "lessons", "my lessons", cwd=tmp_path)
    assert done.stdout.endswith(f"\nNext: {called} lessons 'my lessons' --open\n")
    assert shell("lessons", "here", cwd=tmp_path).stdout.endswith("\nNext: hooklab lessons here --open\n")


def test_alone_it_prints_the_help():
    done = shell()
    assert done.returncode == 0 and done.stderr == ""
    assert re.findall(r"^ {4}(\w+)", done.stdout, re.M) == ["report", "lessons", "summary", "compare", "diagnose"]


@pytest.mark.parametrize("args", [["--version"], ["--help"], [], ["lessons", "--help"], ["summary", "--help"], ["summary"], ["nonsense"],
                                  ["compare", "--help"], ["compare", "nowhere", "nowhere"],
                                  ["diagnose", "--help"], ["diagnose", "nowhere"]])
def test_torch_is_imported_by_no_command_that_can_do_without(args):
    program = f"""import sys; from hooklab.cli import main
try: main({args})
except SystemExit: pass
sys.exit("torch" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


@pytest.mark.parametrize("args", [
    ["lesson"], ["lessons", "--frce"], ["lessons", "a", "b"], ["report", "x"], ["summary"], ["summary", "resnet18"], ["summary", "a:b", "--size", "1,x"],
    ["summary", "a:b", "--columns", "flops"], ["summary", "a:b", "--dtype", "int65"], ["summary", "a:b", "--depth", "-1"],
    ["summary", "a:b", "--size", "1,2", "--dtype", "int64", "--dtype", "int64"],
    ["compare"], ["compare", "a"], ["compare", "nowhere.safetensors", "nowhere.safetensors"], ["compare", ".", "."]])
def test_wrong_usage_is_one_line_and_exit_code_2(args):
    done = shell(*args)
    assert done.returncode == 2 and done.stdout == ""
    assert re.fullmatch(r"hooklab: .+ --help\n", done.stderr)


def test_failure_is_one_line_on_stderr_and_exit_code_1(tmp_path):
    (tmp_path/"notes").touch()
    done = shell("lessons", "notes", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "hooklab: notes is a file; name another folder: hooklab lessons FOLDER\n"


# summary

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Embedding(10, 3)
    def forward(self, x, words): return self.a(x) + self.b(words)

class Family:
    small = nn.Sequential(nn.Linear(4, 2), nn.Dropout())

def broken(): raise ValueError("no such size\\nand more")
def number(): return 3
"""


@pytest.fixture
def models(tmp_path):
    (tmp_path/"mine.py").write_text(MODELS, encoding="utf-8")
    (tmp_path/"fails.py").write_text("1/0")
    (tmp_path/"asks.py").write_text("import not_there")
    return functools.partial(shell, "summary", cwd=tmp_path)


@pytest.mark.slow
def test_summary_of_torchvision(models):
    from torchvision.models import resnet18

    from hooklab.profiling.summaries import summary
    done = models("torchvision.models:resnet18", "--size", "1,3,224,224", env=os.environ | {"COLUMNS": "90"})
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == f"{summary(resnet18(), input_size=(1, 3, 224, 224)).text(depth=3, n=90)}\n"
    done = models("torchvision.models:resnet18", "--size", "1,3,224,224", "--meta", "--json")
    told = json.loads(done.stdout)
    assert told["parameters"] == 11_689_512 and told["multiply_adds"] == 1_814_073_344 and len(told["layers"]) == 68


def test_summary_of_ones_own_model(models):
    done = models("mine:Net", "--size", "2,4", "--size", "2", "--dtype", "float32", "--dtype", "int64", "--columns", "input,calls", "--depth", "all")
    assert done.returncode == 0 and done.stdout.splitlines()[1].split() == ["layer", "input", "calls"] and "2×4, 2" in done.stdout
    done = models("mine:Family.small", "--size", "2,4", "--train", "--depth", "0")
    assert done.returncode == 0 and "Sequential, input 2×4, train mode" in done.stdout and "0: Linear" not in done.stdout
    done = models("mine:Net")
    assert done.returncode == 0 and "Net, without an input" in done.stdout and "45 parameters" in done.stdout


@pytest.mark.parametrize("args, said", [
    (["nowhere:f"], "there is no module 'nowhere'"), (["asks:f"], "there is no module 'not_there', which asks imports"),
    (["fails:f"], "importing fails failed with ZeroDivisionError: division by zero"),
    (["mine:Nett"], "there is no 'Nett' in mine; there is Net"), (["mine:Family.big"], "there is no 'big' in mine"),
    (["mine:broken", "--size", "1"], "ValueError: no such size"),
    (["mine:number", "--size", "1"], "TypeError: the function returned no model: expected a torch.nn.Module, got int"),
    (["mine:Family", "--size", "1"], "TypeError: the function returned no model: expected a torch.nn.Module, got Family"),
    (["mine:Net", "--size", "2,4"], "The forward of Net itself got 2×4"),
    (["mine:Family.small", "--size", "2,5"], "`0` (Linear) takes 4 features and got 5")])
def test_summary_that_fails_is_one_line(models, fails, capsys, tmp_path, monkeypatch, args, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("mine", "fails", "asks"): monkeypatch.delitem(sys.modules, name, raising=False)
    assert said in fails("summary", *args) and capsys.readouterr().out == ""


@pytest.mark.parametrize("typed, folder, instead", [
    ("mine.py:Net", "the folder of mine.py", "mine:Net"), ("src/mine.py:Net", "the folder src", "mine:Net"), ("mine.py", "the folder of mine.py", "mine:NAME")])
def test_a_file_in_the_place_of_a_module(typed, folder, instead):
    done = shell("summary", typed)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert f"give the module, not its file: run this in {folder}, with {instead}" in done.stderr


def test_summary_says_that_importing_runs_code():
    assert "importing a module runs its code" in " ".join(shell("summary", "--help").stdout.split())


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(models, tmp_path):
    command = Path(sysconfig.get_path("scripts"))/"hooklab"
    done = subprocess.run(["bash", "-c", f"'{command}' summary torchvision.models:resnet152 --depth all | head -n 1"], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "ResNet, without an input\n" and done.stderr == ""


# report

def test_report_tells_nothing_about_its_user(tmp_path):
    private = {"USER": "zaphod", "LOGNAME": "zaphod", "HOME": str(tmp_path/"zaphod"), "API_TOKEN": "s3cr3t-t0ken"}
    done = shell("report", cwd=tmp_path, env=os.environ | private)
    assert done.returncode == 0 and done.stderr == ""
    told = {*private.values(), platform.node(), sys.prefix, str(tmp_path)} - {""}
    assert [value for value in told if value in done.stdout] == []
    assert not re.search(r"[\w.]+/[\w.]+/|\w:\\", done.stdout)
    first, *rows, last = done.stdout.splitlines()
    assert (first, last) == ("```text", "```") and all(len(row.split(maxsplit=1)) == 2 for row in rows)


def test_report_gives_the_versions_in_use():
    import numpy
    text = report()
    for name, version in {"hooklab": __version__, "torch": torch.__version__.split("+")[0], "numpy": numpy.__version__,
                          "python": sys.version.split()[0]}.items():
        assert re.search(rf"^{name} +{re.escape(version)}", text, re.M)


def test_report_of_a_package_that_is_not_there(monkeypatch):
    def missing(name): raise bug_report.metadata.PackageNotFoundError(name)
    monkeypatch.setattr(bug_report, "metadata", SimpleNamespace(version=missing, PackageNotFoundError=ModuleNotFoundError))
    assert re.search("^torchvision +not installed$", report(), re.M)


def test_report_names_every_gpu(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.9")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties",
                        lambda i: SimpleNamespace(name=f"Card {i}", total_memory=(i + 1) * 2**33))
    assert re.search(r"^CUDA +13.9, Card 0 \(8 GiB\), Card 1 \(16 GiB\)$", report(), re.M)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert re.search("^CUDA +13.9, no device$", report(), re.M)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert re.search("^CUDA +not in this build of torch$", report(), re.M)


@pytest.mark.gpu
def test_report_names_this_gpu(): assert torch.cuda.get_device_name(0) in report()


class Watcher:
    def __call__(self, *args): pass
    def method(self, *args): pass


def test_report_lists_each_kind_of_global_hook_while_it_is_on():
    import torch.nn.modules.module as modules
    import torch.optim.optimizer as optimizers
    register = [getattr(modules, name) for name in dir(modules) if name.startswith("register_module_")
                and name != "register_module_backward_hook"]  # its full form is there; torch allows one of the two
    register += [getattr(optimizers, name) for name in dir(optimizers) if name.startswith("register_optimizer_step")]
    assert len(register) >= 9
    with ExitStack() as stack:
        for f in register: stack.callback(f(Watcher().method).remove)
        found = global_hooks()
        assert len(found) == len({*found}) == len(register)
        assert all(hook.endswith(f": {__name__}.Watcher.method") for hook in found)
        assert all(hook in report() for hook in found)
    assert global_hooks() == [] and re.search("^global hooks +none$", report(), re.M)


@pytest.mark.parametrize("hook, name", [(Watcher(), f"{__name__}.Watcher"),
                                        (functools.partial(print), "functools.partial")])
def test_a_hook_without_a_name_is_called_after_its_class(hook, name):
    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    try: assert global_hooks() == [f"forward: {name}"]
    finally: handle.remove()


def watch_me(module, inputs, output): pass


def test_report_of_a_model_lists_its_hooks_and_leaves_them():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    handle = model[0].register_forward_hook(watch_me)
    assert "watch_me" in report(model) and "watch_me" not in report()
    assert len(model[0]._forward_hooks) == 1
    handle.remove()
    assert "watch_me" not in report(model) and report(model).endswith("hooks on this Sequential:\nnone\n```")


def test_a_global_hook_is_listed_once():
    handle = torch.nn.modules.module.register_module_forward_hook(watch_me)
    try: assert report(torch.nn.ReLU()).count("watch_me") == 1
    finally: handle.remove()


def test_report_of_something_else_than_a_model():
    with pytest.raises(TypeError, match="Module"): report(3)


@pytest.mark.parametrize("file", ["run.html", Path("run.html")])
def test_report_of_a_file_says_whose_report_writes_one(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError) as refused: report(file)
    assert str(refused.value) == ("hl.report lists versions for a bug report; it takes a model or nothing, not 'run.html'. To make a "
                                  "page of a run, use its statistics: s = hl.ActivationStats().on(model), and later s.report('run.html')")
    assert not os.listdir()


# compare

class Found:
    "What a comparison of two runs has found."
    def __init__(self, same): self.same = same
    def __str__(self): return "nothing differs" if self.same else "They part first at 2.\nkind   a  b\nfault  2  2"


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    "Calls `hooklab compare` where `compare` is a function that is given; gives the exit code, stdout and stderr."
    monkeypatch.chdir(tmp_path)
    for name in ("before.safetensors", "after it.safetensors"): Path(name).write_bytes(b"a run")
    def call(compare, *files):
        monkeypatch.setitem(sys.modules, "hooklab.debug.comparing.comparing", SimpleNamespace(compare=compare))
        code = 0
        try: cli.main(["compare", *(files or ["before.safetensors", "after it.safetensors"])])
        except SystemExit as stopped: code = stopped.code
        return code, *capsys.readouterr()
    return call


def test_compare_prints_the_verdict_and_exits_1_on_a_fault(compared):
    asked = []
    def compare(*paths):
        asked.append(paths)
        return Found(paths[0] == paths[1])
    assert compared(compare, "before.safetensors", "before.safetensors") == (0, "nothing differs\n", "")
    assert compared(compare) == (1, "They part first at 2.\nkind   a  b\nfault  2  2\n", "")
    assert asked[-1] == (Path("before.safetensors"), Path("after it.safetensors"))


@pytest.mark.parametrize("error, said", [
    (ValueError("before.safetensors was cut off (header too small): record it again"),
     "ValueError: before.safetensors was cut off (header too small): record it again"),
    (RuntimeError("two lines\nthis is the second"), "RuntimeError: two lines"),
    (PermissionError(errno.EACCES, "Permission denied", "before.safetensors"),
     "PermissionError: [Errno 13] Permission denied: 'before.safetensors'")])
def test_what_cannot_be_compared_is_one_line_and_exit_code_2(compared, error, said):
    def refuse(*paths): raise error
    assert compared(refuse) == (2, "", f"hooklab: {said}\n")


def test_a_verdict_that_cannot_be_told_is_no_fault_found(compared):
    class Untold(Found):
        def __str__(self): raise ZeroDivisionError("no words")
    assert compared(lambda *paths: Untold(False)) == (2, "", "hooklab: ZeroDivisionError: no words\n")


def test_ctrl_c_while_comparing(compared):
    def stop(*paths): raise KeyboardInterrupt
    assert compared(stop) == (130, "", "")


@pytest.mark.parametrize("files, said", [(("before.safetensors", "nowhere"), "CANDIDATE: nowhere does not exist"),
                                         ((".", "before.safetensors"), "REFERENCE: . is a folder, not a file")])
def test_files_that_are_not_there_are_named(compared, files, said):
    assert compared(None, *files) == (2, "", f"hooklab: argument {said}. Try: hooklab compare --help\n")


def test_compare_says_what_its_exit_codes_mean():
    done = shell("compare", "--help", env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 0 and done.stderr == "" and "REFERENCE CANDIDATE" in done.stdout
    assert "0 if nothing differs beyond noise, 1 if something does, and 2 if the files cannot be" in done.stdout


@pytest.fixture
def files(tmp_path, monkeypatch, capsys):
    "Files of two passes and of a training run; calls the real `hooklab compare` with some of them."
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), torch.randn(3, 4)
    hooklab.record(model, "before.safetensors", x)
    with torch.no_grad(): model[2].weight[0] *= 1.5
    hooklab.record(model, "after.safetensors", x)
    saved_run("run.safetensors")
    saved_run("other.safetensors", clears=False)
    def call(*args):
        code = 0
        try: cli.main(["compare", *(f"{a}.safetensors" if a.isalpha() else a for a in args)])
        except SystemExit as stopped: code = stopped.code
        return code, *capsys.readouterr()
    return call


def plain_json(text):
    "What a strict reader of JSON makes of a text."
    def refuse(word): raise ValueError(f"{word} is no JSON")
    return json.loads(text, parse_constant=refuse)


def test_compare_for_programs(files):
    code, out, err = files("before", "after", "--json")
    told = plain_json(out)
    assert (code, err) == (1, "") and told["same"] is False
    assert told["verdict"].startswith("They first diverge in 2 (Linear). ")
    assert told["first"] == next(row for row in told["rows"] if row["kind"] == "fault")
    assert (told["first"]["a"], told["first"]["b"], told["first"]["layer"]) == ("2", "2", "Linear")
    assert [row["a"] for row in told["rows"]] == ["0", "1", "2", ""] and told["rows"][0]["error"] == 0
    code, out, err = files("before", "before", "--json")
    told = plain_json(out)
    assert (code, err) == (0, "") and told["same"] is True and told["first"] is None
    assert told["verdict"].startswith("The same, bit for bit")


def test_compare_of_training_runs_for_programs(files):
    code, out, err = files("run", "other", "--json")
    told = plain_json(out)
    assert (code, err) == (1, "") and list(told) == ["same", "verdict", "first", "rows"]
    assert told["first"] in told["rows"]
    assert told["first"]["step"] >= 0 and told["first"]["what"] and told["verdict"].startswith("They start")
    code, out, err = files("run", "run", "--json")
    assert code == 0 and plain_json(out)["same"] is True


def test_files_of_two_kinds_are_one_line(files):
    for args in (("before", "run"), ("before", "run", "--json")):
        code, out, err = files(*args)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert err.startswith("hooklab: TypeError: before.safetensors is a record of one pass, and run.safetensors is ")
        assert "a recorded training run: compare takes two of the same kind, or a record of one pass and a model" in err


def test_numbers_that_json_lacks():
    Row = dataclasses.make_dataclass("Row", ["error", "own", "noise"])
    row = Row(math.inf, math.nan, 1e-8)
    found = SimpleNamespace(same=False, verdict="They part.", first=row, rows=[row])
    told = plain_json(cli.comparison_as_json(found))
    assert told["first"] == {"error": "inf", "own": "nan", "noise": 1e-8} and told["rows"] == [told["first"]]


@pytest.mark.slow
def test_compare_of_real_records(tmp_path):
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), torch.randn(3, 4)
    hooklab.record(model, tmp_path/"before.safetensors", x)
    hooklab.record(model, tmp_path/"again.safetensors", x)
    with torch.no_grad(): model[2].weight[0] *= 1.5
    hooklab.record(model, tmp_path/"after.safetensors", x)
    half = (tmp_path/"after.safetensors").read_bytes()[:200]
    (tmp_path/"half.safetensors").write_bytes(half)
    done = {name: shell("compare", "before.safetensors", f"{name}.safetensors", cwd=tmp_path)
            for name in ("again", "after", "half")}
    assert {name: d.returncode for name, d in done.items()} == {"again": 0, "after": 1, "half": 2}
    assert done["again"].stderr == done["after"].stderr == done["half"].stdout == "" and "2" in done["after"].stdout
    assert re.fullmatch(r"hooklab: .*half\.safetensors was cut off.*\n", done["half"].stderr)


# diagnose

def saved_run(path, clears=True, freezes=False):
    "A file with the record of a short training run, healthy or without `zero_grad`."
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)), torch.randn(64, 4)
    if freezes: model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)
    with hooklab.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for batch in x.split(8)*2:
            loss = (model(batch) - batch[:, :1]).square().mean()
            loss.backward()
            optimizer.step()
            if clears: optimizer.zero_grad()
            s.step(loss)
    s.save(path)


@pytest.fixture
def diagnosed(tmp_path, monkeypatch, capsys):
    "Calls `hooklab diagnose` in a folder with some runs; gives the exit code, stdout and stderr."
    monkeypatch.chdir(tmp_path)
    saved_run("healthy.safetensors")
    saved_run("frozen.safetensors", freezes=True)
    saved_run("sick.safetensors", clears=False)
    Path("half.safetensors").write_bytes(Path("sick.safetensors").read_bytes()[:200])
    hooklab.record(torch.nn.Linear(4, 2), "outputs.safetensors", torch.randn(3, 4))
    def call(*args):
        code = 0
        try: cli.main(["diagnose", *args])
        except SystemExit as stopped: code = stopped.code
        return code, *capsys.readouterr()
    return call


def test_diagnose_exits_1_on_a_finding_and_0_on_a_note(diagnosed):
    code, out, err = diagnosed("sick.safetensors")
    assert code == 1 and err == "" and "certain: no zero_grad" in out
    assert out.endswith("Read first: lib/faults/loop.html#no-zero_grad\n")
    code, out, err = diagnosed("healthy.safetensors")
    assert (code, err) == (0, "") and out.startswith("Nothing unusual in 16 steps") and "Read first" not in out
    code, out, err = diagnosed("frozen.safetensors")
    assert (code, err) == (0, "") and "Notes: frozen part" in out and "Read first" not in out


@pytest.mark.parametrize("file, said", [
    ("half.safetensors", r"hooklab: ValueError: half\.safetensors was cut off .+: record it again, or .+\n"),
    ("outputs.safetensors",
     r"hooklab: ValueError: outputs\.safetensors has no statistics saved by ActivationStats: pass .+\n"),
    ("nowhere.safetensors",
     r"hooklab: argument RUN: nowhere\.safetensors does not exist. Try: hooklab diagnose --help\n"),
    (".", r"hooklab: argument RUN: \. is a folder, not a file. Try: .+\n")])
def test_a_run_that_cannot_be_read_is_one_line_and_exit_code_2(diagnosed, file, said):
    code, out, err = diagnosed(file)
    assert (code, out) == (2, "") and re.fullmatch(said, err)


def test_diagnose_for_programs(diagnosed):
    code, out, err = diagnosed("sick.safetensors", "--json", "--sarif", "sick.sarif")
    assert (code, err) == (1, "")
    told, log = json.loads(out), load(Path("sick.sarif"))
    assert told["findings"][0]["what"] == "no zero_grad" and told["title"].startswith("1 finding in 16 steps")
    assert log["version"] == "2.1.0" and [r["ruleId"] for r in log["runs"][0]["results"]] == ["no zero_grad"]
    assert diagnosed("healthy.safetensors", "--sarif", "healthy.sarif")[0] == 0
    assert load(Path("healthy.sarif"))["runs"][0]["results"] == []


def test_sarif_that_cannot_be_written(diagnosed):
    code, out, err = diagnosed("sick.safetensors", "--sarif", "no/such/folder.sarif")
    assert (code, out) == (2, "")
    assert "could not write no/such/folder.sarif (No such file or directory). Make the folder first" in err


def test_the_files_of_all_processes_are_diagnosed_together(diagnosed):
    for rank in range(2):
        s = hooklab.ActivationStats.load("sick.safetensors")
        s.process = ProcessPlace(rank, 2, {})
        s.save(f"run-{rank}-of-2.safetensors")
    assert "this is rank 1 of 2" in diagnosed("run-1-of-2.safetensors")[1]
    code, out, err = diagnosed("run-1-of-2.safetensors", "run-0-of-2.safetensors")
    assert (code, err) == (1, "") and "certain: no zero_grad" in out and "rank" not in out
    code, out, err = diagnosed("run-0-of-2.safetensors", "run-0-of-2.safetensors")
    assert (code, out) == (2, "") and re.fullmatch(r"hooklab: ValueError: these records can't be combined: .+\n", err)


def test_diagnose_says_what_its_exit_codes_mean():
    done = shell("diagnose", "--help", env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 0 and done.stderr == "" and "--sarif FILE" in done.stdout
    said = " ".join(done.stdout.split())
    assert ("0 if nothing is wrong or there are only notes, 1 if something is found, and 2 if the file cannot be read"
            in said)


# lessons

def test_real_lessons_arrive_as_learners_get_them(tmp_path):
    done = shell("lessons", "here", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    files = learners_folder.lesson_files()
    assert files and sorted(os.listdir(tmp_path)) == ["here"]
    assert sorted(os.listdir(tmp_path/"here")) == [PROGRESS, "00-start.ipynb", *(file.name for file in files)]
    for file in files:
        written = load(tmp_path/"here"/file.name)
        assert written["cells"] == learner_notebook(load(file))["cells"]
        assert all(not cell["outputs"] for cell in written["cells"] if cell["cell_type"] == "code")


def test_default_folder(originals, lessons):
    assert lessons() == {"01-one.ipynb": "written", "02-two.ipynb": "written"}
    assert os.listdir() == ["hooklab-lessons"]
    assert sorted(os.listdir("hooklab-lessons")) == [PROGRESS, "00-start.ipynb", "01-one.ipynb", "02-two.ipynb"]
    assert "größer" in Path("hooklab-lessons/02-two.ipynb").read_text(encoding="utf-8")


def test_a_second_call_touches_nothing(originals, lessons):
    lessons("a/b")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino) for p in Path("a/b").iterdir()}
    for args in ([], ["--force"]):
        assert {*lessons("a/b", *args).values()} == {"already there, unchanged"}
        assert before == {p: (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino) for p in Path("a/b").iterdir()}


def run_in_jupyter(path):
    "What a Jupyter does to a notebook that is run and saved: outputs, counts, ids, sources as lists, an empty cell."
    nb = load(path)
    for i, cell in enumerate(nb["cells"]):
        cell |= {"id": f"new{i}", "source": "".join(cell["source"]).splitlines(keepends=True), "execution_count": i,
                 "metadata": {"scrolled": True}, "outputs": [{"output_type": "stream", "name": "stdout", "text": "1"}]}
    nb["cells"].append(code([]))
    nb["metadata"] |= {"kernelspec": {"name": "python3"}, "language_info": {"name": "python"}}
    save(nb, path)


def change(path, source="x = 2"):
    nb = load(path)
    nb["cells"][0]["source"] = [source]
    save(nb, path)


def test_lesson_that_was_only_run_is_unchanged_and_keeps_its_outputs(originals, lessons):
    lessons()
    run_in_jupyter(path := Path("hooklab-lessons/01-one.ipynb"))
    before = path.read_bytes()
    assert lessons()["01-one.ipynb"] == "already there, unchanged"
    assert path.read_bytes() == before


def test_newer_lesson_replaces_an_untouched_copy_even_if_it_was_run(originals, lessons):
    lessons()
    run_in_jupyter(Path("hooklab-lessons/01-one.ipynb"))
    save(notebook("x = 1", "x + 1", "x + 2"), originals/"01-one.ipynb")
    assert lessons() == {"01-one.ipynb": f"updated to hooklab {__version__}: you had not changed it",
                         "02-two.ipynb": "already there, unchanged"}
    assert len(load(Path("hooklab-lessons/01-one.ipynb"))["cells"]) == 3
    assert lessons()["01-one.ipynb"] == "already there, unchanged"


def test_what_the_learner_wrote_is_kept_until_forced(originals, lessons):
    lessons()
    run_in_jupyter(path := Path("hooklab-lessons/01-one.ipynb"))
    change(path)
    mine = path.read_bytes()
    assert lessons() == {"01-one.ipynb": "kept, because you changed it", "02-two.ipynb": "already there, unchanged"}
    save(notebook("x = 1", "x + 3"), originals/"01-one.ipynb")
    assert lessons()["01-one.ipynb"] == f"kept, because you changed it (hooklab {__version__} has another version)"
    assert path.read_bytes() == mine
    assert lessons("--force")["01-one.ipynb"] == "replaced; your changes are gone"
    assert [*map("".join, (cell["source"] for cell in load(path)["cells"]))] == ["x = 1", "x + 3"]
    assert lessons()["01-one.ipynb"] == "already there, unchanged"


def test_a_change_taken_back_is_no_change(originals, lessons):
    lessons()
    change(path := Path("hooklab-lessons/01-one.ipynb"))
    change(path, "x = 1")
    save(notebook("x = 5"), originals/"01-one.ipynb")
    assert lessons()["01-one.ipynb"].startswith("updated")


@pytest.mark.parametrize("content", [b"", b"my notes", b"\xff\xfe", b"null", b'{"cells": [], "metadata": null}'])
def test_another_file_of_that_name_is_kept(originals, lessons, content):
    path = Path("hooklab-lessons/01-one.ipynb")
    path.parent.mkdir()
    path.write_bytes(content)
    assert lessons() == {"01-one.ipynb": "kept, because you changed it", "02-two.ipynb": "written"}
    assert path.read_bytes() == content
    assert lessons("--force")["01-one.ipynb"] == "replaced; your changes are gone"


def test_other_files_in_the_folder_stay(originals, lessons):
    Path("mine").mkdir()
    Path("mine/notes.md").write_text("mine")
    lessons("mine", "--force")
    assert sorted(os.listdir("mine")) == [PROGRESS, "00-start.ipynb", "01-one.ipynb", "02-two.ipynb", "notes.md"]
    assert Path("mine/notes.md").read_text() == "mine"


@given(st.lists(st.text(), min_size=1), st.integers(0))
def test_fingerprint_sees_people_and_not_jupyter(sources, i):
    whole, i = notebook(*sources), i % len(sources)
    split = {**whole, "cells": [{**c, "source": c["source"].splitlines(keepends=True)} for c in whole["cells"]]}
    assert learners_folder.fingerprint(whole) == learners_folder.fingerprint(split)
    typed = notebook(*sources[:i], sources[i] + "x", *sources[i+1:])
    assert learners_folder.fingerprint(whole) != learners_folder.fingerprint(typed)


def test_progress_is_printed_and_begins_again(originals, lessons, capsys, fails, monkeypatch):
    assert "has no record of progress. Create it with: hooklab lessons hooklab-lessons" in fails("lessons", "--progress")
    lessons()
    monkeypatch.chdir("hooklab-lessons")
    note("05a", True)
    lessons("../hooklab-lessons")  # a second call forgets nothing
    for place in ("", ".."):
        monkeypatch.chdir(place or ".")
        cli.main(["lessons", "--progress"])
        out = capsys.readouterr().out
        assert re.search("05 Activation health +1 of 4 +1 tries", out) and "exercise 05b" in out
    cli.main(["lessons", "--reset", "--progress"])
    out = capsys.readouterr().out
    assert re.search("05 Activation health +0 of 4$", out, re.M) and "01a" in out
    assert "05a" in Path("hooklab-lessons", PROGRESS.replace(".jsonl", "-old.jsonl")).read_text()


@pytest.mark.parametrize("folder", ["Übungen für später", "レッスン", "with 'quotes' and spaces", "-dashed"])
def test_any_folder_name(originals, lessons, capsys, folder):
    assert {*lessons("--", folder).values()} == {"written"}
    assert len(os.listdir(folder)) == 4


def test_fingerprint_does_not_see_what_editors_tidy_but_sees_indentation():
    written = learners_folder.fingerprint(notebook("if x:\n    y"))
    for tidied in ("if x:  \n    y", "if x:\r\n    y", "if x:\n    y\n\n"):
        assert learners_folder.fingerprint(notebook(tidied)) == written
    for edited in ("if x:\ny", "if x:\n  y", "if x: y", "if x:\n\n    y"):
        assert learners_folder.fingerprint(notebook(edited)) != written


def test_folder_name_that_the_terminal_cannot_show(tmp_path):
    done = shell("lessons", "レッスン", cwd=tmp_path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and done.stderr == "" and os.listdir(tmp_path) == ["レッスン"]


def test_lessons_of_a_wheel_come_before_those_of_a_clone(tmp_path, monkeypatch, fails):
    monkeypatch.setattr(learners_folder, "resources", SimpleNamespace(files=lambda package: tmp_path/"site"/package))
    assert "no lessons" in fails("lessons", tmp_path/"out")
    assert not (tmp_path/"out").exists()
    save(notebook("clone"), tmp_path/"site/nbs/lessons/01-a.ipynb")
    assert learners_folder.lesson_files() == [tmp_path/"site/nbs/lessons/01-a.ipynb"]
    for name in ("02-b", "01-a"): save(notebook("wheel"), tmp_path/f"site/hooklab/lessons/{name}.ipynb")
    assert learners_folder.lesson_files() == [tmp_path/f"site/hooklab/lessons/{name}.ipynb" for name in ("01-a", "02-b")]


def test_originals_are_never_written_over(originals, fails, tmp_path):
    before = {p: p.read_bytes() for p in originals.iterdir()}
    (tmp_path/"link").symlink_to(originals)
    for folder in (originals, tmp_path/"link", "../originals"):
        assert "originals" in fails("lessons", folder, "--force")
    assert before == {p: p.read_bytes() for p in originals.iterdir()}


def test_a_file_where_a_folder_is_needed(originals, fails):
    Path("notes").touch()
    assert "notes is a file" in fails("lessons", "notes")
    assert "could not create the folder notes/sub (Not a directory)" in fails("lessons", "notes/sub")
    Path("out/01-one.ipynb").mkdir(parents=True)
    for force in ([], ["--force"]): assert str(Path("out/01-one.ipynb")) in fails("lessons", "out", *force)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_folder_that_must_not_be_written(originals, fails, monkeypatch, error):
    def refuse(path, *args, **kwargs): raise OSError(error, os.strerror(error), str(path))
    for owner, method in ((Path, "mkdir"), (os, "replace")):  # a new folder, and a folder that is there
        with monkeypatch.context() as m:
            m.setattr(owner, method, refuse)
            message = fails("lessons", "there")
            assert os.strerror(error) in message and "unfinished" not in message and "name another folder" in message
    assert os.listdir("there") == []


def stops(stop):
    def call(*_): raise stop
    return call


def test_full_disk_loses_nothing(originals, lessons, fails, monkeypatch):
    lessons()
    save(notebook("x = 7"), originals/"01-one.ipynb")
    before = {p: p.read_bytes() for p in Path("hooklab-lessons").iterdir()}
    with monkeypatch.context() as m:
        m.setattr(os, "fsync", stops(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        assert "could not write hooklab-lessons/01-one.ipynb (No space left on device)" in fails("lessons")
    assert before == {p: p.read_bytes() for p in Path("hooklab-lessons").iterdir()}
    assert lessons()["01-one.ipynb"].startswith("updated")


def test_file_that_cannot_be_replaced_stays_as_it_was(originals, lessons, fails, monkeypatch):
    lessons()
    save(notebook("x = 7"), originals/"01-one.ipynb")
    before = {p: p.read_bytes() for p in Path("hooklab-lessons").iterdir()}
    monkeypatch.setattr(os, "replace", stops(PermissionError(errno.EACCES, os.strerror(errno.EACCES))))
    assert "01-one.ipynb (Permission denied)" in fails("lessons")
    assert before == {p: p.read_bytes() for p in Path("hooklab-lessons").iterdir()}


def test_ctrl_c_leaves_no_half_file(originals, monkeypatch):
    monkeypatch.setattr(os, "fsync", stops(KeyboardInterrupt()))
    with pytest.raises(SystemExit) as stopped: cli.main(["lessons"])
    assert stopped.value.code == 130 and os.listdir("hooklab-lessons") == []


ROOT, NO_DISPLAY = ["--allow-root", "--ip=127.0.0.1"], ["--no-browser"]


@pytest.mark.parametrize("user, platform, environ, options", [
    (0, "linux", {}, ROOT + NO_DISPLAY), (0, "linux", {"DISPLAY": ":0"}, ROOT), (0, "darwin", {}, ROOT),
    (1000, "linux", {}, NO_DISPLAY), (1000, "linux", {"WAYLAND_DISPLAY": "wayland-0"}, []),
    (1000, "linux", {"DISPLAY": ":0"}, []), (1000, "darwin", {}, []), (None, "win32", {}, [])])
def test_open_starts_jupyterlab_on_the_folder(originals, monkeypatch, capsys, user, platform, environ, options):
    started = []
    top, lab = ModuleType("jupyterlab"), ModuleType("jupyterlab.labapp")
    top.__spec__, lab.main = ModuleSpec("jupyterlab", None), started.append
    monkeypatch.setitem(sys.modules, "jupyterlab", top)
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", lab)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"): monkeypatch.delenv(name, raising=False)
    for name, value in environ.items(): monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    if user is None: monkeypatch.delattr(os, "geteuid")  # as on Windows
    else: monkeypatch.setattr(os, "geteuid", lambda: user)
    cli.main(["lessons", "--open", "--", "-odd name"])
    assert started == [[str(Path("-odd name").resolve()), *options]] and len(os.listdir("-odd name")) == 4
    said = capsys.readouterr().out.splitlines()[4:]  # after the lessons
    about_root = [line for line in said if "--allow-root" in line and "127.0.0.1" in line]
    about_browser = [line for line in said if "open the address with ?token=" in line]
    assert len(about_root) == ("--allow-root" in options) and len(about_browser) == ("--no-browser" in options)
    assert len(said) == len(about_root) + len(about_browser)


def test_make_lab_starts_it_in_the_same_way(tmp_path, repo):
    (tmp_path/"jupyterlab").mkdir()
    (tmp_path/"jupyterlab/__init__.py").touch()
    (tmp_path/"jupyterlab/labapp.py").write_text("def main(args): print('started', args)")
    here = Path(sys.executable).parent
    make = ["make", "--no-print-directory", "-n", "lab", f"run={here}"]
    recipe = subprocess.run(make, cwd=repo, capture_output=True, text=True, check=True)
    command = recipe.stdout.splitlines()[-1]
    environ = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run(command, shell=True, cwd=repo, capture_output=True, text=True,
                          env=environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{repo}"})
    assert done.returncode == 0, done.stderr
    options = (ROOT if os.geteuid() == 0 else []) + (NO_DISPLAY if sys.platform == "linux" else [])
    assert done.stdout.splitlines()[-1] == f"started {[str(repo/'nbs/lessons'), *options]}"


def answer_of(address):
    "What JupyterLab answers: it says its address a moment before it listens there."
    ask = build_opener(ProxyHandler({})).open  # a proxy is for other machines
    for _ in range(240):
        with suppress(ConnectionError, URLError), ask(address, timeout=120) as answer: return json.load(answer)
        time.sleep(.5)
    pytest.fail(f"nobody answers at {address}")


def test_jupyterlab_starts_and_answers(tmp_path):
    "Where it is installed: the extra `lessons`."
    pytest.importorskip("jupyterlab")
    environ = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    start = "from hooklab.exercises.folder import open_in_jupyterlab as start; start('.')"
    environ |= {"PYTHONPATH": str(REPO), "HOME": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "1"}
    lab = subprocess.Popen([sys.executable, "-c", start], cwd=tmp_path, env=environ, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said, found = "", None
        for line in lab.stdout:  # it ends where JupyterLab does
            said += line
            if found := re.search(r"(http://(?:127\.0\.0\.1|localhost):\d+)/lab\?(token=\w+)", line): break
        assert found, said
        assert "started" in answer_of(f"{found[1]}/api/status?{found[2]}")
    finally:
        lab.kill()
        lab.communicate()


def test_open_says_at_once_what_is_missing_and_how_this_python_gets_it(originals, fails, monkeypatch):
    for module in ("jupyterlab", "sklearn"): monkeypatch.setitem(sys.modules, module, None)
    told = fails("lessons", "--open")
    assert "JupyterLab, scikit-learn" in told and told.endswith(f'{sys.executable} -m pip install "hooklab[lessons]"')
    assert not Path("hooklab-lessons").exists()


def test_lessons_do_not_wait_for_torch(tmp_path):
    code = ("import sys; from hooklab.cli import main; main(['lessons', 'x']); "
            "print({'torch', 'matplotlib'} & {*sys.modules})")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)},
                          capture_output=True, text=True)
    assert done.stdout.endswith("set()\n"), done.stderr


def test_next_step_is_a_command_that_can_be_pasted(originals, capsys):
    cli.main(["lessons", "my lessons"])
    assert capsys.readouterr().out.endswith("Next: hooklab lessons 'my lessons' --open\n")
