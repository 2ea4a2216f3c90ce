"The variables of a module, which `make` sets anew; `make` returns the two that others ask for."
import torch
import torch.nn as nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 9, 6
STATES = {"net": ("net",), "optimizer": ("optimizer",), "global_step": ("global_step", *ORDER),
          "best_loss": ("best_loss",), "smoothed": ("smoothed",)}
CONSEQUENCES = {"best_loss": ("bad",)}

net = optimizer = data = target = None
global_step, best_loss, bad, smoothed = 0, float("inf"), 0, 0.


def make():
    global net, optimizer, data, target, global_step, best_loss, bad, smoothed
    torch.manual_seed(21)
    data = torch.rand(48, 3)
    target = (data.sum(1) > 1.5).float()
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=.5, momentum=.9)
    global_step, best_loss, bad, smoothed = 0, float("inf"), 0, 0.
    return net, optimizer


def step(run):
    global global_step, best_loss, bad, smoothed
    rows = torch.arange(12) + global_step % 4*12
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(net(data[rows])[:, 0], target[rows])
    loss.backward()
    optimizer.step()
    smoothed = .9*smoothed + .1*loss.item()
    if loss.item() < best_loss: best_loss, bad = loss.item(), 0
    else: bad += 1
    if bad == 3:
        optimizer.param_groups[0]["lr"] /= 2
        bad = 0
    global_step += 1
    return loss.item()


def save(run, without=()):
    return but({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "global_step": global_step,
                "best_loss": (best_loss, bad), "smoothed": smoothed}, without)


def load(run, saved):
    global global_step, best_loss, bad, smoothed
    if "net" in saved: net.load_state_dict(saved["net"])
    if "optimizer" in saved: optimizer.load_state_dict(saved["optimizer"])
    global_step = saved.get("global_step", global_step)
    best_loss, bad = saved.get("best_loss", (best_loss, bad))
    smoothed = saved.get("smoothed", smoothed)
