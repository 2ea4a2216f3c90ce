"A denoiser: sigma falls on a schedule, the noise comes from a generator of numpy, the step sizes from a closure."
import numpy as np
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 7, 6
STATES = {"denoiser": ("denoiser",), "adam": ("adam",), "sigma": ("sigma",), "noise": ("noise", "numpy", "batches"),
          "schedule": ("schedule", "drops", "wait")}


def falling(factor, every):
    "A function that says the next sigma; what it counts is in its closure."
    wait, drops = every, 0

    def after(sigma):
        nonlocal wait, drops
        wait -= 1
        if wait: return sigma
        wait, drops = every, drops + 1
        return sigma*factor

    def state(new=None):
        nonlocal wait, drops
        if new: wait, drops = new
        return wait, drops
    return after, state


def make():
    denoiser = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 2))
    after, state = falling(.6, 3)
    return {"denoiser": denoiser, "adam": torch.optim.AdamW(denoiser.parameters(), 1e-2), "sigma": 1.,
            "after": after, "schedule": state, "noise": np.random.default_rng(15)}


def step(run):
    angle = run["noise"].uniform(0, 2*np.pi, 24)
    x = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], 1), dtype=torch.float32)
    noise = torch.tensor(run["noise"].normal(size=(24, 2)), dtype=torch.float32)
    noisy = torch.cat([x + run["sigma"]*noise, torch.full((24, 1), run["sigma"])], 1)
    loss = nn.functional.mse_loss(run["denoiser"](noisy), noise)
    run["adam"].zero_grad()
    loss.backward()
    run["adam"].step()
    run["sigma"] = run["after"](run["sigma"])
    return loss.item()


def save(run, without=()):
    return but({"denoiser": run["denoiser"].state_dict(), "adam": run["adam"].state_dict(), "sigma": run["sigma"],
                "noise": run["noise"].bit_generator.state, "schedule": run["schedule"]()}, without)


def load(run, saved):
    if "denoiser" in saved: run["denoiser"].load_state_dict(saved["denoiser"])
    if "adam" in saved: run["adam"].load_state_dict(saved["adam"])
    if "noise" in saved: run["noise"].bit_generator.state = saved["noise"]
    run["sigma"] = saved.get("sigma", run["sigma"])
    run["schedule"](saved.get("schedule"))
    return run
