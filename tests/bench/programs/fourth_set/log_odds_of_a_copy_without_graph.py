"""The log-odds of actions come from a detached copy of what the policy returns, so only one number is learned.

The report is a merged change, named as the reason why training with the balance of trajectories did not go well: a copy
of the outputs, made so that odds of impossible actions can be set, was cut off the graph. What still gets a gradient is
the logarithm of the sum of all rewards."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "alexhernandezgarcia/gflownet#251", 2023
AREA, CAUSE = "parameters", "detached part"
TRUE = {"not trained"}
PLACE = ("policy",)

side, actions, stop, longest = 6, 3, 2, 11


class Sampler(nn.Module):
    "Goes right or up on a grid until it stops; a cell is to be reached in proportion to its reward."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.policy = nn.Sequential(nn.Linear(2*side, size), nn.LeakyReLU(), nn.Linear(size, size), nn.LeakyReLU(),
                                    nn.Linear(size, actions))
        self.log_sum = nn.Parameter(torch.zeros(()))

    def forward(self, at):
        cells = nn.functional.one_hot(at.clamp(max=side - 1), side).flatten(-2).float()
        outputs = self.policy(cells)
        logits = outputs.clone() if self.repaired else outputs.clone().detach()
        logits[..., :2][at >= side - 1] = -1e9
        return logits.log_softmax(-1)


def walk(model, n: int):
    "Cells and actions of some walks; after the end an action is -1."
    at, going, cells, taken = torch.zeros(n, 2, dtype=torch.long), torch.ones(n, dtype=torch.bool), [], []
    for _ in range(longest):
        with torch.no_grad(): odds = model(at).exp()
        odds = .95*odds + .05*(odds > 0)/(odds > 0).sum(1, keepdim=True)
        action = odds.multinomial(1)[:, 0].where(going, -1)
        cells.append(at)
        taken.append(action)
        going = going & (action != stop)
        at = at + torch.stack([action == 0, action == 1], 1).long()
    return torch.stack(cells, 1), torch.stack(taken, 1), at


def balance(reward):
    "Forward odds and the sum of rewards on one side, reward and backward odds on the other."
    def loss(model, batch):
        cells, taken, end = batch
        forward = model(cells).gather(2, taken.clamp(min=0)[..., None])[..., 0].where(taken >= 0, 0.).sum(1)
        ways = torch.lgamma(end.sum(1) + 1.) - torch.lgamma(end + 1.).sum(1)  # all ways back are alike
        return (model.log_sum + forward - reward[end[:, 0], end[:, 1]].log() + ways).pow(2).mean()
    return loss


def build(repaired: bool) -> Parts:
    cells, peaks = torch.cartesian_prod(*2*[torch.arange(float(side))]), torch.tensor([[1., 1.], [1., 4.], [5., 2.]])
    reward = .02 + (-torch.cdist(cells, peaks)**2).exp().sum(1).view(side, side)
    model = Sampler(64, repaired)
    parameters = [{"params": model.policy.parameters()}, {"params": [model.log_sum], "lr": .05}]
    data = [walk(model, 64) for _ in range(4)]
    return Parts(model, torch.optim.Adam(parameters, lr=3e-3), data, call=balance(reward), valid=reward)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(250):
            loss = parts.call(parts.model, walk(parts.model, 64))
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    end = walk(parts.model, 5000)[2]
    found = torch.bincount(end[:, 0]*side + end[:, 1], minlength=side*side)/5000
    return (found - (parts.valid/parts.valid.sum()).flatten()).abs().sum().item()/2
