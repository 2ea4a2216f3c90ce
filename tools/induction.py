"""Trains the models of the lesson on induction heads, and writes their weights into the package:

    PYTHONPATH=. python tools/induction.py

It takes a minute on one thread. hooklab/exercises/induction.safetensors holds the weights of each seed in 16 bits, how
its training went, and the settings below. Another release of torch may train other weights; the scores of the heads are
what has to come out again, and tests/exercises/test_induction.py compares those.
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from hooklab.exercises.induction import CopyModel, repeated_tokens
from hooklab.features.heads.attending import attention

FILE = Path(__file__).resolve().parents[1]/"hooklab"/"exercises"/"induction.safetensors"
SETTINGS = {"seeds": [0, 1, 2], "n_tokens": 32, "dim": 48, "heads": 2, "depth": 2, "longest": 40, "shortest_period": 6,
            "longest_period": 20, "batch": 32, "steps": 1200, "rate": 0.003, "weight_decay": 0.1}
PERIOD = 16  # of the texts with which a model is measured
MEASURED = [*range(0, 200, 10), *range(200, 600, 20), *range(600, 1201, 100)]  # after how many steps


def batch() -> torch.Tensor:
    "Texts of one length, each repeated after another number of tokens, so that no position says where to look."
    n, length = SETTINGS["batch"], SETTINGS["longest"] + 1
    tokens = torch.rand(n, SETTINGS["n_tokens"]).argsort(1)
    periods = torch.randint(SETTINGS["shortest_period"], SETTINGS["longest_period"] + 1, (n, 1))
    return tokens.gather(1, torch.arange(length)[None] % periods)


def measured(model: CopyModel, texts: torch.Tensor) -> dict[str, float]:
    "The loss in both halves, and the highest scores of heads: for the token before, and for the one to be copied."
    with torch.no_grad(): losses = F.cross_entropy(model(texts[:, :-1]).mT, texts[:, 1:], reduction="none")
    back, copied = (attention(model, texts[:, :-1])[f"layers.{i}"] for i in range(2))
    return {"first": losses[:, :PERIOD - 1].mean().item(), "second": losses[:, PERIOD:].mean().item(),
            "looks_back": back[:, :, :PERIOD].diagonal(-1, 2, 3).mean((0, 2)).max().item(),
            "induction": copied.diagonal(1 - PERIOD, 2, 3)[..., 1:].mean((0, 2)).max().item()}


def train(seed: int) -> tuple[CopyModel, list[dict]]:
    "A model, and how it was measured on the way."
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    steps, course = SETTINGS["steps"], []
    model = CopyModel(*(SETTINGS[name] for name in ("n_tokens", "dim", "heads", "depth", "longest")))
    optimizer = torch.optim.AdamW(model.parameters(), lr=SETTINGS["rate"], weight_decay=SETTINGS["weight_decay"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, (i + 1)/100, (steps - i)/(0.3*steps)))
    for step in range(steps + 1):
        if step in MEASURED:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(1000)
                course.append({"step": step, **measured(model, repeated_tokens(100, PERIOD))})
        if step == steps: return model, course
        tokens = batch()
        loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def main():
    tensors = {}
    for seed in SETTINGS["seeds"]:
        model, course = train(seed)
        print(f"seed {seed}:", {name: round(number, 3) for name, number in course[-1].items()}, flush=True)
        for name, weights in model.state_dict().items(): tensors[f"{seed}.model.{name}"] = weights.half()
        for name in course[0]:
            tensors[f"{seed}.course.{name}"] = torch.tensor([float(at[name]) for at in course]).half()
    save_file(tensors, FILE, metadata={"settings": json.dumps(SETTINGS)})
    print(f"{FILE.name}: {FILE.stat().st_size/1000:.0f} kB")


if __name__ == "__main__": main()
