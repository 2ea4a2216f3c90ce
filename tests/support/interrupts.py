"""KeyboardInterrupt at any place of hooklab's own code, and what a tool may leave behind then: nothing."""
import dis
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _pop_mode

import hooklab as hl

from .worlds import TOOLS, Tool, World

HOME = str(Path(hl.__file__).parent)
REST = {"POP_TOP", "LOAD_CONST", "LOAD_FAST", "STORE_FAST", "RETURN_VALUE", "NOP", "CACHE", "RESUME", "PRECALL", "COPY"}
CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}


class Place(NamedTuple):
    "Where an interrupt comes: kind is `entry`, `return`, `line`, `jump` backwards, or `call`, when C has returned."
    file: str
    function: str
    where: int  # the number of the line, or of the instruction
    kind: str

    def __str__(self): return f"{self.file}:{self.function}:{self.where} {self.kind}"


_names: dict[CodeType, list[str]] = {}


def names_of(code: CodeType) -> list[str]:
    "The instructions of a piece of code, one for each two bytes."
    if code not in _names: _names[code] = [dis.opname[op] for op in code.co_code[::2]]
    return _names[code]


def is_ours(frame: FrameType | None) -> bool: return frame is not None and frame.f_code.co_filename.startswith(HOME)


def is_users(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.endswith("support/worlds.py")


def only_returns(frame: FrameType, at: int) -> bool:
    "Is nothing left to do in this frame but to return, behind the instruction `at`?"
    for name in names_of(frame.f_code)[at:]:
        if name not in REST: return False
        if name == "RETURN_VALUE": return True
    return False


def nothing_ran(frame: FrameType) -> bool:
    "Has this call of a function not run an instruction yet?"
    before = names_of(frame.f_code)[:max(frame.f_lasti//2, 0)]
    return set(before) <= {"RESUME", "NOP", "MAKE_CELL", "COPY_FREE_VARS", "CACHE"}


def at_the_border(frame: FrameType, kind: str) -> bool:
    """Does the interrupt come before the first, or behind the last instruction of hooklab's?

    Behind it, code of the user goes on, or code of hooklab that only returns."""
    if is_users(frame.f_back) and nothing_ran(frame): return True
    if kind != "return" and not only_returns(frame, frame.f_lasti//2): return False
    frame = frame.f_back
    while is_ours(frame):
        if not only_returns(frame, frame.f_lasti//2 + 1): return False
        frame = frame.f_back
    return is_users(frame)


class Interrupts:
    "Looks at each place of hooklab's code that runs in a `with`; raises KeyboardInterrupt at one of them."
    def __init__(self, at: Place | None = None, number: int = 1):
        self.at, self.number, self.seen = at, number, Counter()
        self.borders, self.inner = set(), set()  # the places that were at the border, and those that were not
        self.raised = self.on_border = self.swallowed = False
        self.n_frames = 0

    def here(self, frame: FrameType, where: int, kind: str):
        code = frame.f_code
        place = Place(code.co_filename[len(HOME) + 1:], code.co_qualname, where, kind)
        self.seen[place] += 1
        if self.at is None and self.seen[place] == 1:
            (self.borders if at_the_border(frame, kind) else self.inner).add(place)
        if place != self.at or self.seen[place] != self.number: return
        sys.settrace(None)
        self.raised, self.on_border = True, at_the_border(frame, kind)
        raise KeyboardInterrupt

    def begins(self, frame: FrameType, event: str, arg):
        self.n_frames += 1
        code = frame.f_code
        if not code.co_filename.startswith(HOME) or code.co_name in ("<module>", "<genexpr>"): return None
        if self.at is not None and code.co_qualname != self.at.function: return None  # the rest runs quickly
        frame.f_trace_opcodes, names, before = True, names_of(frame.f_code), [None, 0]

        def goes_on(frame, event, arg):
            if event == "line": self.here(frame, frame.f_lineno, "line")
            elif event == "opcode":
                at = frame.f_lasti//2
                name, (last, n_frames) = names[at], before
                before[:] = name, self.n_frames
                if "BACKWARD" in name: self.here(frame, at, "jump")
                elif last in CALLS and n_frames == self.n_frames: self.here(frame, at, "call")
            elif event == "return" and names[frame.f_lasti//2] == "RETURN_VALUE":
                self.here(frame, frame.f_lasti//2, "return")
            return goes_on

        self.here(frame, frame.f_code.co_firstlineno if frame.f_lasti < 4 else frame.f_lasti, "entry")
        return goes_on

    def __enter__(self):
        self.before, sys.unraisablehook = sys.unraisablehook, self.swallow
        sys.settrace(self.begins)
        return self

    def __exit__(self, *_):
        sys.settrace(None)
        sys.unraisablehook = self.before

    def swallow(self, unraisable):
        "Python only prints what is raised in `__del__`, in a generator that is freed, or by a weak reference."
        self.swallowed = self.swallowed or unraisable.exc_type is KeyboardInterrupt


# ---- what must be as before

_modules = (torch.nn.functional, torch.nn.Module, torch.optim.Optimizer, Tensor, torch.nn.modules.module,
            torch.nn.utils.clip_grad, torch.amp.GradScaler)


def torchs_state() -> dict[str, Any]:
    "What of torch is the same for all models."
    found = {f"{home.__name__}.{name}": id(value) for home in _modules for name, value in vars(home).items()
             if callable(value)}
    for name, f in vars(torch.nn.utils.clip_grad).items():
        cells = getattr(f, "__closure__", None) or ()
        found |= {f"clip_grad.{name} calls": [id(cell.cell_contents) for cell in cells]}
    for name, value in vars(torch.nn.modules.module).items():
        if name.startswith("_global") and isinstance(value, dict): found[name] = dict(value)
    of_optimizers = vars(sys.modules[torch.optim.Optimizer.__module__])
    found |= {name: dict(value) for name, value in of_optimizers.items() if name.startswith("_global_optimizer_")}
    return found | {
        "function modes": list(map(id, torch.overrides._get_current_function_mode_stack())),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True) is None,
        "gradients": torch.is_grad_enabled(), "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(), "anomaly": torch.is_anomaly_enabled(), "threads": torch.get_num_threads(),
        "fast attention": torch.backends.mha.get_fastpath_enabled(), "autocast": torch.is_autocast_enabled("cpu"),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled, "sdpa": torch.backends.cuda.math_sdp_enabled()}


def models_state(model: nn.Module) -> dict[str, Any]:
    "What may be on a model, and its modes."
    found = {}
    for name, m in model.named_modules():
        for attribute, value in vars(m).items():
            hooks = attribute.endswith(("_hooks", "_with_kwargs", "_always_called"))
            if hooks: value = id(value), list(value.items())
            elif attribute != "training": value = id(value)
            found[f"{name}: {attribute}"] = value
        for kind in ("_parameters", "_buffers"):
            for own, t in vars(m)[kind].items():
                if t is None: continue
                dictionaries = "_backward_hooks", "_post_accumulate_grad_hooks"
                hooks = [dict(getattr(t, dictionary, None) or {}) for dictionary in dictionaries]
                found[f"{name}.{own}"] = id(t), t.requires_grad, t.dtype, t.data_ptr(), hooks
    return found


def state(world: World) -> dict[str, Any]:
    "Everything that an interrupted tool has to leave as it was."
    found = torchs_state()
    for number, model in enumerate(world.models):
        found |= {f"{number} {key}": value for key, value in models_state(model).items()}
    for key, value in vars(world.optimizer).items():
        found[f"optimizer: {key}"] = dict(value) if "hooks" in key else id(value) if callable(value) else None
    for number, model in enumerate(world.models):
        for name, p in model.named_parameters():
            if not world.trains: found[f"{number} {name}: numbers"] = p.tolist()
            if world.computes_gradients: continue
            found[f"{number} {name}: gradient"] = None if p.grad is None else p.grad.tolist()
        for name, t in model.named_buffers() if world.undisturbed else ():
            found[f"{number} {name}: numbers"] = t.tolist()
    found["unfinished files"] = [path.name for folder in world.folders for path in folder.rglob("*.unfinished")]
    if world.keeps_random: found["random numbers"] = torch.get_rng_state().tolist()
    return found


def changed(before: dict, after: dict) -> list[str]:
    "What is not as before."
    return [key for key in before | after if before.get(key, "absent") != after.get(key, "absent")]


# ---- runs

def places_of(tool: str, tmp: Path) -> Interrupts:
    "All places at which the tool can be interrupted."
    run = TOOLS[tool]
    run.warm_up(tmp)
    world = run.world(tmp)
    with Interrupts() as found: run(world)
    return found


def expected_of(tool: str, tmp: Path) -> Any:
    "What the tool returns when nobody disturbs it."
    run = TOOLS[tool]
    return run(run.world(tmp))


class Outcome(NamedTuple):
    "What came of an interrupt: what is wrong, and whether `remove_hooks` was needed, as it may be at the border."
    wrong: list[str]
    removed: bool = False


def interrupted(tool: str, place: Place, tmp: Path, expected: Any, number: int = 1) -> Outcome:
    "Interrupt a tool at a place, or when it comes there for the so-manieth time."
    run = TOOLS[tool]
    world = run.world(tmp)
    before, came = state(world), None
    with Interrupts(place, number) as at:
        try: run(world)
        except KeyboardInterrupt: came = "interrupt"
        except BaseException as error: came = f"{type(error).__name__}: {error}"[:150]
    if not at.raised: return Outcome(["not reached"])
    wrong = [] if came == "interrupt" or at.swallowed else [f"{came or 'nothing'} came out"]
    return after_interrupt(run, world, before, expected, wrong, at.on_border)


def after_interrupt(run: Tool, world: World, before: dict, expected: Any, wrong: list, may_remove: bool) -> Outcome:
    "Is everything as before, if need be after `remove_hooks`, and does the next use give what it should?"
    left, removed = changed(before, state(world)), False
    if left and may_remove:
        for hooked in (*world.models, world.optimizer): hl.remove_hooks(hooked)
        left, removed = changed(before, state(world)), True
    if left: wrong.append(f"left: {', '.join(left[:4])}")
    world.start_again()
    try:
        if run(world) != expected: wrong.append("the next use has another result")
    except BaseException as error: wrong.append(f"next use: {type(error).__name__}: {error}"[:150])
    return Outcome(wrong, removed)


class Signals:
    "Real signals at random moments, which raise KeyboardInterrupt as Ctrl-C does."
    def __init__(self, seed: int = 0): self.chance, self.came, self.armed = random.Random(seed), False, False

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self.stop)
        return self

    def __exit__(self, *_): signal.signal(signal.SIGALRM, self.before)

    def stop(self, *_):
        if not self.armed: return  # a tool that failed before left the timer behind
        self.came, self.armed = True, False
        raise KeyboardInterrupt

    def interrupt(self, tool: str, tmp: Path, expected: Any, most: float) -> tuple[Outcome, bool]:
        "Interrupt a tool within so many seconds; also whether the signal came while it ran."
        run = TOOLS[tool]
        while torch._C._len_torch_dispatch_stack(): _pop_mode()  # a tool that failed before may have left one on
        world = run.world(tmp)
        before, wrong, ended = state(world), [], False
        self.came, self.armed = False, True
        try:
            signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(5e-5, most))
            run(world)
            ended = True
            while not self.came: time.sleep(1e-4)
        except KeyboardInterrupt: pass
        except Exception as error: wrong.append(f"{type(error).__name__}: {error}"[:150])
        self.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        torch.set_grad_enabled(True)  # context managers of torch may be stopped, too
        return after_interrupt(run, world, before, expected, wrong, may_remove=True), not ended
