"""The model writes its samples and is tested without `eval()`: inference mode takes the gradient and leaves dropout.

The report: a model of the histories of patients calls `eval()` nowhere; writing and testing are in inference mode only.
The author confirms that it is a mistake and shows the results after the repair."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ipolharvard/ethos-ares#20", 2026
AREA, CAUSE = "modes", "train mode"
TRUE = set()
PLACE = ()
EVENTS, LENGTH = 12, 16


class Histories(nn.Module):
    "What happens next to a patient."
    def __init__(self, size: int, drop: float):
        super().__init__()
        self.events, self.places, self.drop = nn.Embedding(EVENTS, size), nn.Embedding(LENGTH, size), nn.Dropout(drop)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(size, 2, 4*size, drop, "gelu", batch_first=True,
                                                               norm_first=True) for _ in range(2))
        self.norm, self.last = nn.LayerNorm(size), nn.Linear(size, EVENTS, bias=False)
        self.register_buffer("later", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, x):
        length = x.shape[1]
        x = self.drop(self.events(x) + self.places.weight[:length])
        for layer in self.layers: x = layer(x, src_mask=self.later[:length, :length])
        return self.last(self.norm(x))


def patients(n: int, course):
    "Each illness takes its course: what comes next follows from what came last and from the first event."
    found = [torch.randint(0, 3, (n,)), torch.randint(0, EVENTS, (n,))]
    for _ in range(LENGTH - 1): found.append(course[found[0], found[-1]])
    return torch.stack(found, 1)


def next_event(model, x): return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def build(repaired: bool) -> Parts:
    model, course = Histories(32, .3), torch.stack([torch.randperm(EVENTS) for _ in range(3)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(.9, .95), weight_decay=.1)
    return Parts(model, optimizer, [patients(24, course) for _ in range(250)], call=next_event,
                 valid=[patients(256, course)], repaired=repaired)


@torch.inference_mode()
def wrong(model, histories) -> float:
    "How often a course that is written from the first two events is not the right one in the end."
    x = histories[:, :2]
    while x.shape[1] < LENGTH: x = torch.cat([x, model(x)[:, -1:].argmax(2)], 1)
    return (x[:, -1] != histories[:, LENGTH - 1]).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for x in parts.data:
            loss = parts.call(model, x)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            record.step(loss)
    if parts.repaired: model.eval()
    return wrong(model, parts.valid[0])/(1 - 1/EVENTS)
