"""What one can look at in a case of "Find the bug": pictures and tables that were recorded, and the lines that measure
them, without hooklab and with it. The lines run in the case's notebook."""
import math
import re
from dataclasses import dataclass
from html import escape

from site_source import colored_lines


@dataclass(frozen=True)
class Look:
    "Something to look at in a program, and how it is measured."
    title: str
    shows: str
    plain: str = ""
    ours: str = ""


RECORDED = """parts, stats = build(), hl.ActivationStats.for_diagnosis()
train(parts, stats)
"""
CHECKED = """parts = build()
data, valid = batches(parts.data), batches(parts.valid)
hl.preflight(parts.model, parts.loss, data, parts.optimizer, call=parts.call, train=data, valid=valid).all"""
# In `plain`, EACH is the optimizer, or a loop over several; OPTIMIZERS are all; LOSS is the loss of a batch; PARTS are
# what a batch consists of, and OTHER is the loss with the part i from other samples.
LOOKS = {
    "loss": Look("The loss", "The loss of each step.", """class Losses:
    "A record that keeps the loss of each step."
    def __init__(self): self.losses = []
    def on(self, *args, **options): return nullcontext(self)
    def step(self, loss): self.losses.append(float(loss))


parts, record = build(), Losses()
train(parts, record)
record.losses""", RECORDED + 'stats.log.values("loss")'),
    "outputs": Look("What layers return", "The standard deviation of each layer's output, step by step.",
                    """def keep(name):
    def hook(module, args, output):
        first = output[0] if isinstance(output, tuple) else output
        stds.setdefault(name, []).append(first.float().std().item())
    return hook


parts, stds = build(), {}
for name, m in parts.model.named_modules():
    if name and not any(m.children()): m.register_forward_hook(keep(name))
train(parts, Losses())
stds""", RECORDED + 'stats.history.plot("std")'),
    "gradients": Look("Gradients", "The gradient norm of each parameter, before each step.",
                      """def before_step(optimizer, args, kwargs):
    for group in optimizer.param_groups:
        for p in group["params"]:
            norms.setdefault(name_of.get(p), []).append(0. if p.grad is None else p.grad.norm().item())


parts, norms = build(), {}
name_of = {p: name for name, p in parts.model.named_parameters()}
EACH.register_step_pre_hook(before_step)
train(parts, Losses())
norms""", RECORDED + 'stats.updates.plot("grad_norm")'),
    "updates": Look("Steps relative to weights", "How far each step moves a parameter, relative to its size.",
                    """def before_step(optimizer, args, kwargs):
    for group in optimizer.param_groups:
        for p in group["params"]: old[p] = p.detach().clone()


def after_step(optimizer, args, kwargs):
    for p, before in old.items():
        moved.setdefault(name_of.get(p), []).append(((p.detach() - before).norm()/before.norm()).item())
    old.clear()


parts, old, moved = build(), {}, {}
name_of = {p: name for name, p in parts.model.named_parameters()}
EACH.register_step_pre_hook(before_step)
EACH.register_step_post_hook(after_step)
train(parts, Losses())
moved""", RECORDED + "stats.updates.plot()"),
    "parameters": Look("Parameters and the optimizer", "After the run.", """parts = build()
first = {name: p.detach().clone() for name, p in parts.model.named_parameters()}
train(parts, Losses())
held = {p: group["lr"] for o in OPTIMIZERS for group in o.param_groups for p in group["params"]}
for name, p in parts.model.named_parameters():
    print(name, tuple(p.shape), p.requires_grad, held.get(p), (p.detach() - first[name]).norm()/first[name].norm())""",
                       "hl.summary(parts.model)"),
    "batch": Look("Two batches", "What the loader returns.", """parts = build()
for batch, _ in zip(parts.data, range(2)):
    for t in PARTS: print(tuple(t.shape), t.dtype, t.min().item(), t.max().item(), t.flatten()[:4].tolist())""",
                  CHECKED),
    "other rows": Look("With parts of other samples", "After the run, in eval mode.", """parts = build()
train(parts, Losses())
parts.model.eval()
batch = next(iter(parts.data))
with torch.no_grad():
    print("as it is", LOSS)
    for i, part in enumerate(PARTS):
        torch.manual_seed(1)
        print("part", i, "of other samples", OTHER)  # the same loss: this part is not used""", CHECKED),
    "modes": Look("Train mode against eval mode", "After the run.", """parts = build()
train(parts, Losses())
batch = next(iter(parts.data))
for mode in (True, True, False, False):
    parts.model.train(mode)
    with torch.no_grad(): print("train" if mode else "eval", LOSS)""", CHECKED),
    "preflight": Look("What preflight reports", "Before the run, on two batches.", "", CHECKED),
    "diagnose": Look("What diagnose reports", "From the run's record.", "", RECORDED + "hl.diagnose(stats).all"),
}


def plain(case: dict, name: str) -> str:
    "How a look is measured in this program, without hooklab."
    several = case["optimizers"] > 1
    single = sum(row[0] == "batch 0" for row in case["looks"]["patient"]["batch"]["rows"]) == 1
    of_batch = "parts.call(parts.model, batch)"
    if "call=" not in case["texts"]["patient"]: of_batch = "parts.loss(parts.model(batch[0]), batch[1])"
    other = "batch.roll(1, 0)" if single else "[t.roll(1, 0) if j == i else t for j, t in enumerate(batch)]"
    each = "for o in parts.optimizer: o" if several else "parts.optimizer"
    text = re.sub(r"^EACH", each, LOOKS[name].plain, flags=re.M)
    text = re.sub(r"^( *)print\((.*), OTHER\)", rf"\1other = {other}\n\1print(\2, OTHER)", text, flags=re.M)
    meant = {"OPTIMIZERS": "parts.optimizer" if several else "[parts.optimizer]", "LOSS": f"{of_batch}.item()",
             "PARTS": "[batch]" if single else "batch", "OTHER": f"{of_batch}.item()".replace("batch", "other")}
    return re.sub("|".join(meant), lambda found: meant[found[0]], text)


def code(text: str) -> str:
    "Lines of Python, with their colors."
    lines = "\n".join(colored_lines(text))
    return f'<pre class="sourceCode python"><code>{lines}</code></pre>'


# ---- pictures

WIDE, HIGH, LEFT, RIGHT, BELOW, ABOVE = 480, 210, 62, 8, 28, 10


def short(x: float) -> str: return f"{x:.2g}" if abs(x) < 100 else f"{x:.0f}" if abs(x) < 1e4 else f"{x:.0e}"


class Scale:
    "Where a number stands on an axis; one that spans much is logarithmic, and what is zero stands at its lower end."
    def __init__(self, found: list[float], start: float, end: float, may_be_log: bool = True):
        self.start, self.end = start, end
        self.low, self.high = min(found, default=0), max(found, default=1)
        positive = [x for x in found if x > 0]
        self.log = may_be_log and self.low >= 0 and len(positive) > 1 and self.high/min(positive) > 30
        if self.log: self.low = min(positive)
        if self.low == self.high:
            half = .5*(abs(self.low) or 1)
            self.low, self.high = self.low - half, self.high + half

    def of(self, x: float) -> float:
        f = math.log if self.log else float
        share = (f(max(x, self.low)) - f(self.low))/(f(self.high) - f(self.low))
        return round(self.start + share*(self.end - self.start), 1)

    def ticks(self) -> list[float]:
        middle = math.sqrt(self.low*self.high) if self.log else (self.low + self.high)/2
        return [self.low, middle, self.high]


def finite(line: list) -> list[float]: return [x for x in line if isinstance(x, int | float)]


def path(steps: list[int], line: list, across: Scale, up: Scale) -> str:
    "A line over steps, with gaps where there is no number; a number by itself is a dot."
    found, pen = [], "M"
    for x, y in zip(steps, line):
        if not finite([y]):
            pen = "M"
            continue
        found.append(f"{pen}{across.of(x)} {up.of(y)}" + ("h.1" if pen == "M" else ""))
        pen = "L"
    return "".join(found)


def drawn(look: dict, shows: str, label: str, beside: dict | None = None) -> str:
    "Lines over steps, as a picture that both themes can show, on the scale of both where another one stands beside it."
    steps, lines = look["steps"], look["lines"]
    if not steps or not lines: return "<p>There was nothing to record: the optimizer took no step.</p>"
    numbers, others = ([x for line in one["lines"].values() for x in finite(line)] for one in (look, beside or look))
    if not numbers: return f"<p>There is no finite value to plot.</p>{below(look, False)}"
    if not any(numbers) and not beside: return f"<p>All values are exactly zero.</p>{below(look, False)}"
    across = Scale([steps[0], steps[-1]], LEFT, WIDE - RIGHT, may_be_log=False)
    up = Scale(numbers + others, HIGH - BELOW, ABOVE)
    parts = []
    for at, y in ((up.of(y), y) for y in up.ticks()):
        parts.append(f'<path class="grid" d="M{LEFT} {at}H{WIDE - RIGHT}"/>'
                     f'<text x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{short(y)}</text>')
    for at, anchor in ((0, "start"), (len(steps)//2, "middle"), (-1, "end")):
        words = f"step {steps[at]}" if anchor == "start" else steps[at]
        parts.append(f'<text x="{across.of(steps[at])}" y="{HIGH - 9}" text-anchor="{anchor}">{words}</text>')
    for k, line in enumerate(lines.values()):
        parts.append(f'<path class="line c{k % 6}" d="{path(steps, line, across, up)}"/>')
    said = f"From step {steps[0]} to {steps[-1]}, {short(min(numbers))} to {short(max(numbers))}."
    alt = escape(f"{label}: {shows} {said}")
    return (f'<svg class="case-figure" viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{alt}">{"".join(parts)}</svg>'
            f"{below(look, up.log)}")


def below(look: dict, log: bool) -> str:
    "What is said below a picture: names, the scale, and steps without a finite number."
    names = "".join(f'<li class="c{k % 6}">{escape(name)}</li>' for k, name in enumerate(look["lines"]))
    found = f'<ul class="legend">{names}</ul>' if len(look["lines"]) > 1 else ""
    notes = ["The scale is logarithmic."] if log else []
    if look["of"] > len(look["lines"]): notes.append(f"{len(look['lines'])} of {look['of']} are plotted.")
    if len(look["steps"]) > 1 and look["steps"][1] > 1: notes.append(f"Recorded every {look['steps'][1]} steps.")
    if notes: found += f'<p class="scale">{" ".join(notes)}</p>'
    bad = {x for line in look["lines"].values() for x, y in zip(look["steps"], line) if isinstance(y, str)}
    if not bad: return found
    said = f"NaN or infinite in {len(bad)} of the {len(look['steps'])} recorded steps, first in step {min(bad)}."
    return f'{found}<p class="bad">{said}</p>'


# ---- tables and texts

def tabled(look: dict, label: str) -> str:
    "A small table, which a narrow screen moves sideways."
    heads = "".join(f"<th scope=col>{escape(str(name))}</th>" for name in look["columns"])
    cells = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in look["rows"])
    rows = "".join(f"<tr>{row}</tr>" for row in cells)
    return (f'<div class="case-table" tabindex="0" role="region" aria-label="{escape(label)}"><table><thead><tr>{heads}'
            f"</tr></thead><tbody>{rows}</tbody></table></div>")


def told(found: list[list]) -> str:
    "What a tool says."
    items = "".join(f"<li>{escape(sure)}: <b>{escape(what)}</b>. {escape(text)}</li>" for sure, what, text, _ in found)
    return f"<ul>{items}</ul>" if items else "<p>Nothing.</p>"


def shown(case: dict, name: str, whose: str, both: bool = False) -> str:
    "What was recorded of a program, `patient` or `twin`; pictures of both have one scale."
    found, look = case["looks"][whose][name], LOOKS[name]
    other = case["looks"]["twin" if whose == "patient" else "patient"][name] if both else None
    label = f"{look.title}, {'this program' if whose == 'patient' else 'the repaired program'}"
    if isinstance(found, list): return told(found)
    return tabled(found, label) if "rows" in found else drawn(found, look.shows, label, other)


def folds(case: dict) -> str:
    "All looks of a program, each in a fold with the lines that measure it."
    found = []
    for name, look in LOOKS.items():
        hooks = plain(case, name)
        kind = "With PyTorch hooks" if "_hook(" in hooks else "In plain PyTorch"
        how = f"<p>{kind}:</p>{code(hooks)}" if hooks else ""
        found.append(
            f'<details class="look" data-look="{name}"><summary>{look.title}<span class="cost"></span></summary>'
            f'<p>{look.shows}</p>{shown(case, name, "patient")}<details class="how"><summary>How to measure this'
            f"</summary>{how}<p>With hooklab:</p>{code(look.ours)}</details></details>")
    return "".join(found)
