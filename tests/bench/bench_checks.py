"""The checks of the exercises: what they say of mutants of the official solutions, and of answers that answer nothing.

A mutant has one change: a line dropped, a number one larger or smaller, another comparison, a call or a keyword left
out, no `with`, no `finally`, the input in place of the output, a default that bound a loop's variable gone, a list
around what is returned. Where the answer is a letter, the mutants are the other letters. A mutant that passes is
either equivalent to the solution or a gap in the check: they are printed, to be read."""
import ast
import contextlib
import copy
import io
import json
import linecache
import random
import re
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer imports it, which on a busy machine takes longer than an answer may

import hooklab
from hooklab.exercises.checking import ADVICE, TRIES, NotYet, check
from hooklab.exercises.notebooks import Reading, lesson_exercises, lesson_readings

REPO = Path(__file__).resolve().parents[2]
MOST = 24  # mutants of one solution; where there are more, a sample by its id
SECONDS = 20
COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
OUTPUTS = {"o": "i[0]", "output": "args[0]"}


class TooLong(BaseException): "An answer that does not come to an end; no check catches this."


def solutions() -> dict[str, tuple[str, str]]:
    "By exercise: the source of the solution, and the name of the function."
    found = {}
    for path in sorted((REPO/"nbs"/"lessons").glob("[0-9]*.ipynb")):
        for id, parts in lesson_exercises(json.loads(path.read_text(encoding="utf-8"))).items():
            name = re.search(r'check\("\w+", (\w+)\)', "".join(parts["check"]["source"]))[1]
            found[id] = "".join(parts["solution"]["source"]), name
    return found


def letters() -> dict[str, Reading]:
    "The exercises whose answer is a letter."
    files = sorted((REPO/"nbs"/"lessons").glob("[0-9]*.ipynb"))
    found = (lesson_readings(json.loads(path.read_text(encoding="utf-8"))).values() for path in files)
    return {each.id: each for listed in found for each in listed}


def changes(node: ast.AST):
    "The changes that a node allows: what is done, and a function that does it to the node's twin."
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for by in (1, -1): yield f"{node.value} {by:+}", lambda n, by=by: setattr(n, "value", n.value + by)
    if isinstance(node, ast.Compare):
        yield "another comparison", lambda n: n.ops.__setitem__(0, COMPARED[type(n.ops[0])]())
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield "another operator", lambda n: setattr(n, "op", OPERATORS[type(n.op)]())
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield f"without .{node.func.attr}()", lambda n: replace(n, n.func.value)
    for k in range(len(node.keywords) if isinstance(node, ast.Call) else 0):
        yield f"without {node.keywords[k].arg}=", lambda n, k=k: n.keywords.pop(k)
    if isinstance(node, ast.Return) and node.value is not None:
        yield "a list of it", lambda n: setattr(n, "value", ast.List([n.value], ast.Load()))
    if isinstance(node, ast.FunctionDef) and node.args.defaults:
        yield "late binding", lambda n: (n.args.__setattr__("args", n.args.args[:-len(n.args.defaults)]),
                                         n.args.__setattr__("defaults", []))
    if isinstance(node, ast.Name) and node.id in OUTPUTS and isinstance(node.ctx, ast.Load):
        yield "input for output", lambda n: replace(n, ast.parse(OUTPUTS[n.id], mode="eval").body)
    for block in ("body", "orelse", "finalbody"):
        lines = getattr(node, block, None)
        for k in range(len(lines) if isinstance(lines, list) and not isinstance(node, ast.Module) else 0):
            yield f"without `{ast.unparse(lines[k]).splitlines()[0]}`", (
                lambda n, block=block, k=k: getattr(n, block).__setitem__(k, ast.Pass()))
            if isinstance(lines[k], ast.With | ast.Try):
                def opened(n, block=block, k=k): getattr(n, block)[k:k + 1] = getattr(n, block)[k].body
                yield f"only the body of `{ast.unparse(lines[k]).splitlines()[0]}`", opened


def replace(node: ast.AST, by: ast.AST):
    node.__class__ = by.__class__
    node.__dict__.clear()
    node.__dict__.update(by.__dict__)


def mutants(source: str, id: str) -> dict[str, str]: # By source: what was changed
    "Solutions with one change."
    tree, found = ast.parse(source), {}
    for at, node in enumerate(ast.walk(tree)):
        for what, change in changes(node):
            twin = copy.deepcopy(tree)
            change(list(ast.walk(twin))[at])
            with contextlib.suppress(Exception):  # what is no program
                text = ast.unparse(ast.fix_missing_locations(twin))
                compile(text, "", "exec")
                if text != ast.unparse(tree): found.setdefault(text, f"line {getattr(node, 'lineno', 1)}: {what}")
    kept = random.Random(id).sample(sorted(found), min(MOST, len(found)))
    return {text: found[text] for text in kept}


class Odd:
    "A result that nothing can be done with."
    def __bool__(self): raise TypeError("neither true nor false")
    __eq__ = __len__ = __iter__ = __float__ = __getattr__ = __bool__
    __hash__ = object.__hash__


def _leaves(): raise SystemExit
def _never(): return _never()
def _not_implemented(): raise NotImplementedError("no kernel for this")


ODD = {
    "None": lambda: None, "list": list, "pair": lambda: (None, None), "dict": lambda: {"a": [1]},
    "text": lambda: "twice", "complex": lambda: 1j, "nan": lambda: float("nan"), "huge": lambda: 10**400,
    "true": lambda: True,
    "function": lambda: len, "class": lambda: dict, "layer": lambda: torch.nn.ReLU(), "bytes": lambda: b"1",
    "empty": lambda: torch.ones(0), "tensor": lambda: torch.ones(2, 3, 4), "whole": lambda: torch.arange(6),
    "meta": lambda: torch.ones(3, device="meta"), "tensors": lambda: [torch.ones(2), torch.ones(3)],
    "names": lambda: {"0": torch.ones(2)}, "generator": lambda: (i for i in "ab"), "object": Odd, "exit": _leaves,
    "recursion": _never, "not implemented": _not_implemented,
}
NOT_CALLABLE = {"a number": 3, "a text": "answer", "nothing": None}


def told(id: str, answer) -> str:
    "What the author of an answer is told: beginning with ok, Not yet, crash or too long."
    def stop(*args): raise TooLong
    TRIES.clear()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as said, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(id, answer)
        return f"ok: {said.getvalue()}"
    except NotYet as error: return f"Not yet. {error}"
    except TooLong: return "too long"
    except BaseException as error: return f"crash: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def defined(source: str, name: str):
    "The function of this name in a cell, as Jupyter would have it, with its source for errors."
    linecache.cache["<answer>"] = len(source), None, source.splitlines(keepends=True), "<answer>"
    namespace = {"hl": hooklab, "torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    exec(compile(source, "<answer>", "exec"), namespace)
    return namespace.get(name)


def outcome(messages: list[str]) -> dict:
    "How many answers of each outcome, and of what the refused ones are told."
    of = Counter(message.partition(":")[0].partition(".")[0] for message in messages)
    refused = [message for message in messages if message.startswith("Not yet")]
    return {"answers": len(messages), "refused": of["Not yet"], "pass": of["ok"], "crash": of["crash"],
            "too long": of["too long"], "stopped with an error": sum("Your function stopped" in m for m in refused),
            "of these with advice": sum(any(text in m for text in ADVICE.values()) for m in refused),
            "the check cannot work with it": sum("The check cannot work with" in m for m in refused)}


def measure(*lessons):
    listed = {id: found for id, found in solutions().items() if not lessons or id[:2] in lessons}
    of_mutants, of_odd, passed = [], [], []
    for id, (source, name) in listed.items():
        right = told(id, defined(source, name))
        assert right.startswith("ok"), f"{id}: the solution itself: {right}"
        for text, what in mutants(source, id).items():
            try: answer = defined(text, name)
            except Exception as error: message = f"Not yet. Your function stopped: {type(error).__name__}"
            else: message = told(id, answer)
            of_mutants.append(message)
            if not message.startswith("Not yet"): passed.append(f"{id} {what}: {message.partition(':')[0]}")
        arguments = re.search(rf"(?:def {name}|__init__)\((.*?)\):", source)[1].removeprefix("self, ")
        for kind, odd in ODD.items():
            message = told(id, eval(f"lambda {arguments}: odd()", {"odd": odd}))
            of_odd.append(message)
            if not message.startswith("Not yet"): passed.append(f"{id} odd: {kind}: {message}")
        for kind, value in NOT_CALLABLE.items():
            of_odd.append(told(id, value))
            if not of_odd[-1].startswith("Not yet"): passed.append(f"{id} odd: {kind}: {of_odd[-1]}")
        print(id, len(of_mutants), len(of_odd), file=sys.stderr, flush=True)
    values = {kind: odd() for kind, odd in ODD.items() if odd not in (_leaves, _never, _not_implemented)} | NOT_CALLABLE
    for id, asked in letters().items():
        if lessons and id[:2] not in lessons: continue
        assert told(id, asked.right).startswith("ok"), f"{id}: the right letter"
        wrong = {letter: letter for letter in asked.letters if letter != asked.right}
        of_mutants += [told(id, letter) for letter in wrong]
        of_odd += [told(id, value) for value in values.values()]
        passed += [f"{id} {kind}: ok" for kind, value in (wrong | values).items() if told(id, value).startswith("ok")]
    return {"checks of the exercises, how many answers": [{"kind": "mutants of the solutions"} | outcome(of_mutants),
                                                          {"kind": "odd answers"} | outcome(of_odd)],
            "checks of the exercises, what was not refused": passed}
