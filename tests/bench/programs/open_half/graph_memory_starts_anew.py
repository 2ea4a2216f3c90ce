"""A recurrent network of graphs gets no state at each point of time, so it remembers nothing.

The report, merged as a change: the example does not hand the state of one point of time on to the next. With the change
the network returns its state together with its output, in training and in evaluation."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "benedekrozemberczki/pytorch_geometric_temporal#209", 2023
AREA, CAUSE = "loop", "state is lost"
TRUE = {"not trained"}
PLACE = ("memory", "memory.weight_hh")
NODES = 8


class Cases(nn.Module):
    "What a node and its neighbours show goes into its memory, and this says what comes next."
    def __init__(self):
        super().__init__()
        self.mixes, self.memory, self.last = nn.Linear(2, 16), nn.GRUCell(16, 24), nn.Linear(24, 1)

    def forward(self, x, edges, state=None):
        x = self.mixes(torch.cat([x, edges@x], 1)).relu()
        state = self.memory(x, state)
        return self.last(state), state


def course(steps: int, edges):
    "Noise goes into each node and its neighbours, and wears off slowly; only the noise is seen."
    seen, level, x, y = torch.randn(steps, NODES, 1), torch.zeros(NODES, 1), [], []
    for now in seen:
        level = .8*level + .4*now + .4*edges@now
        x.append(now)
        y.append(level)
    return list(zip(x, y))


def over_time(model, snapshots, edges, keeps: bool):
    loss, state = 0., None
    for x, y in snapshots:
        output, after = model(x, edges, state)
        loss = loss + F.mse_loss(output, y)
        if keeps: state = after
    return loss/len(snapshots)


def build(repaired: bool) -> Parts:
    model, edges = Cases(), (torch.eye(NODES).roll(1, 1) + torch.eye(NODES).roll(-1, 1))/2
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return Parts(model, optimizer, [course(30, edges)], valid=[course(200, edges)],
                 call=lambda model, snapshots: over_time(model, snapshots, edges, repaired))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(150):
            for snapshots in parts.data:
                loss = parts.call(parts.model, snapshots)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): error = parts.call(parts.model, parts.valid[0])
    return (error/torch.stack([y for _, y in parts.valid[0]]).var()).item()
