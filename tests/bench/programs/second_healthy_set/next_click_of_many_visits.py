"""The next click of a visit, by a recurrent net that follows many visits side by side.

Habits of the source: each row of a batch is a visit; when one ends, the next takes its row and its state is set to
zero; states go on without their graph, one click at a time; clicks as vectors of zeros with a one; scores go through
tanh; the wrong clicks are the right ones of the other rows, which may be the same; a ranking loss of sigmoids that also
draws scores of wrong ones to zero; Adagrad; the test goes on with the same kind of rows over later visits.
Score: the part of clicks that are not among the first three of 25. Below .5; about .87 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "hungpthanh/GRU4REC-pytorch lib/trainer.py", 2018
ITEMS, WIDE, ROWS = 25, 48, 32


class Follower(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(ITEMS, WIDE), nn.Linear(WIDE, ITEMS)

    def forward(self, clicks, state=None):
        h, state = self.gru(F.one_hot(clicks, ITEMS).float()[None], state)
        return self.out(h[0]).tanh(), state


def visits(n: int, follows):
    "Visits of three to eight clicks; a click depends on the two before."
    made = []
    for length in torch.randint(3, 9, (n,)).tolist():
        clicks = torch.randint(ITEMS, (2,)).tolist()
        while len(clicks) < length: clicks.append(int(torch.multinomial(follows[clicks[-1], clicks[-2] % 2], 1)))
        made.append(clicks)
    return made


def side_by_side(visits):
    "Clicks, the ones after them, and which rows begin a new visit; until no visit is left for an empty row."
    row, at, fresh, further = list(range(ROWS)), [0]*ROWS, [True]*ROWS, ROWS
    while True:
        clicks = [(visits[v][place], visits[v][place + 1]) for v, place in zip(row, at)]
        yield *torch.tensor(clicks).T, torch.tensor(fresh)
        for i in range(ROWS):
            at[i], fresh[i] = at[i] + 1, False
            if at[i] + 1 < len(visits[row[i]]): continue
            if further == len(visits): return
            row[i], at[i], fresh[i], further = further, 0, True, further + 1


def ranking(scores, after):
    "The loss of scores of the right clicks, on the diagonal, against those of the other rows."
    sampled = scores[:, after]
    gap = sampled - sampled.diag()[:, None]
    return (gap.sigmoid() + (sampled**2).sigmoid()).mean()


def call(model, batch): return ranking(model(batch[0])[0], batch[1])


def build(repaired: bool) -> Parts:
    follows = torch.softmax(4*torch.randn(ITEMS, 2, ITEMS), 2)
    model = Follower()
    parts = Parts(model, torch.optim.Adagrad(model.parameters(), lr=.08, eps=1e-6),
                  list(side_by_side(visits(900, follows))), call=call, valid=list(side_by_side(visits(300, follows))))
    return parts


@torch.no_grad()
def missed(model, batches) -> float:
    model.eval()
    state, wrong = torch.zeros(1, ROWS, WIDE), []
    for clicks, after, fresh in batches:
        scores, state = model(clicks, state.masked_fill(fresh[:, None], 0))
        wrong.append((scores.topk(3).indices != after[:, None]).all(1).float().mean())
    return torch.stack(wrong).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(9):
            model.train()
            state = torch.zeros(1, ROWS, WIDE)
            for clicks, after, fresh in parts.data:
                optimizer.zero_grad()
                state = state.detach().masked_fill(fresh[:, None], 0)
                scores, state = model(clicks, state)
                loss = ranking(scores, after)
                loss.backward()
                optimizer.step()
                record.step(loss)
            missed(model, parts.valid[:20])
    return missed(model, parts.valid)
