"What a summary takes, to one pass of the model, and what it needs on the meta device for a model of 632 million parameters."
import subprocess
import sys

import torch
import torchinfo
import torchlens
from fastai.callback import hook as fastai
from fastai.test_utils import synth_learner
from torchvision.models import resnet18, resnet152

import hooklab as hl
from tests.bench.measure import ratios


def plain_and_others(build, rounds):
    model, x = build().eval(), torch.randn(1, 3, 224, 224)
    learn = synth_learner(model=model)
    def plain():
        with torch.no_grad(): model(x)
    def theirs(): fastai.layer_info(learn, x)
    return ratios(plain, {
        "hooklab, without multiply-adds": lambda: str(hl.summary(model, x, columns=["output", "params"])),
        "hooklab": lambda: str(hl.summary(model, x)),
        "hooklab, on meta": lambda: str(hl.summary(model, x, device="meta")),
        "torchinfo": lambda: str(torchinfo.summary(model, input_data=x, verbose=0, cache_forward_pass=False)),
        "fastai": theirs}, rounds)


def torchlens_alone(rounds):
    "Apart, because torch is wrapped for good by its first use."
    model, x = resnet18().eval(), torch.randn(1, 3, 224, 224)
    def plain():
        with torch.no_grad(): model(x)
    return {"torchlens": ratios(plain, {"torchlens": lambda: str(torchlens.summary(model, x))}, rounds)["torchlens"]}


on_meta = """
import sys, time, torch
from torchvision.models import vit_h_14
if sys.argv[1] == "hooklab":
    from hooklab.profiling.summaries import summary
    def told(): return summary(vit_h_14, input_size=(1, 3, 224, 224), device="meta")
else:
    import torchinfo
    def told():
        with torch.device("meta"): model, x = vit_h_14(), torch.empty(1, 3, 224, 224)
        return torchinfo.summary(model, input_data=x, verbose=0, device="meta")
def kilobytes(what): return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(what))  # Linux
before = {"RssAnon": kilobytes("RssAnon"), "VmHWM": kilobytes("VmRSS")}
start = time.perf_counter()
made = told()
text = str(made)
print(time.perf_counter() - start, *[(kilobytes(what) - was)/1000 for what, was in before.items()])
"""


def without_weights(runs=7):
    """Seconds, and megabytes above the imports, in processes of their own, by turns: what is allocated, with the summary still there;
    and the most that was resident, with the pages of torch's own code that are touched for the first time."""
    found = {"hooklab": [], "torchinfo": []}
    for _ in range(runs):
        for name, seen in found.items(): seen.append([float(x) for x in subprocess.run([sys.executable, "-W", "ignore", "-c", on_meta, name], capture_output=True, text=True, check=True).stdout.split()])
    def middle(values): return [sorted(values)[len(values)*i//4] for i in (2, 1, 3)]
    return {f"{name}, {what}": [round(v, 3) for v in middle([run[i] for run in seen])] for name, seen in found.items() for i, what in enumerate(("seconds", "megabytes", "megabytes with the code of torch"))}


def measure():
    return {
        "summary of resnet18, to one pass": plain_and_others(resnet18, 21) | torchlens_alone(5),
        "summary of resnet152, to one pass": plain_and_others(resnet152, 7),
        "summary of vit_h_14 on meta, with building it": without_weights(),
    }
