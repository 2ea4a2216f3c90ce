"""Which films a person will see, by a variational autoencoder of what the person saw.

Habits of the source: inputs are 0 and 1, scaled to length 1, and half of them are dropped; the loss is a sum over all
films of the logarithm of a softmax, where the target adds up to many; the weight of the divergence is zero at first
and rises with the steps to .2; Xavier weights, biases with a spread of .001; the test is on people never seen, of whom
four fifths of the films are shown and the others have to be found; the best weights are kept.
Score: 1 - the recall among ten of unseen films of new people. Below .3; about .88 for the untrained model."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "younggyoseo/vae-cf-pytorch main.py", 2019
FILMS, TASTES, PEOPLE, BATCH = 80, 5, 1000, 100


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.code = nn.Linear(FILMS, 64), nn.Linear(64, 32)
        self.back, self.out, self.dropout = nn.Linear(16, 64), nn.Linear(64, FILMS), nn.Dropout(.5)
        for layer in (self.first, self.code, self.back, self.out):
            nn.init.xavier_normal_(layer.weight)
            nn.init.normal_(layer.bias, 0, .001)

    def forward(self, seen):
        mean, logvar = self.code(self.first(self.dropout(F.normalize(seen))).tanh()).chunk(2, 1)
        code = mean + torch.randn_like(mean)*(.5*logvar).exp() if self.training else mean
        return self.out(self.back(code).tanh()), mean, logvar


def people(n: int, liked):
    "Each person saw some ten films that fit a mixture of two tastes."
    mixed = liked[torch.randint(TASTES, (n,))] + .5*liked[torch.randint(TASTES, (n,))]
    places = torch.multinomial(mixed.softmax(1), 12)
    return torch.zeros(n, FILMS).scatter_(1, places, 1)


def call(model, seen, weight: float = .2):
    scores, mean, logvar = model(seen)
    likelihood = (F.log_softmax(scores, 1)*seen).sum(1).mean()
    divergence = -.5*(1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
    return -likelihood + weight*divergence


def split(seen):
    "One part of the films of each person to show, and a fifth to look for."
    hidden = (seen*torch.rand_like(seen)).topk(2).indices
    asked = torch.zeros_like(seen).scatter_(1, hidden, 1)
    return seen - asked, asked


@torch.no_grad()
def missed(model, shown, asked) -> float:
    model.eval()
    scores = model(shown)[0].masked_fill(shown > 0, -torch.inf)
    found = asked.gather(1, scores.topk(10).indices).sum(1)
    return 1 - (found/asked.sum(1)).mean().item()


def build(repaired: bool) -> Parts:
    liked, model = 3*torch.randn(TASTES, FILMS), Autoencoder()
    held = people(300, liked)
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=0.),
                  list(people(PEOPLE, liked).split(BATCH)), call=call, valid=list(held.split(BATCH)))
    parts.held, parts.test = split(held), split(people(400, liked))
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, data, best, updates = parts.model, parts.optimizer, torch.cat(parts.data), (9,), 0
    with record.on(model, optimizer):
        for _ in range(40):
            model.train()
            order = torch.randperm(PEOPLE)
            for rows in order.split(BATCH):
                optimizer.zero_grad()
                loss = parts.call(model, data[rows], min(.2, updates/1000))
                loss.backward()
                optimizer.step()
                updates += 1
                record.step(loss)
            error = missed(model, *parts.held)
            if error < best[0]: best = error, copy.deepcopy(model.state_dict())
    model.load_state_dict(best[1])
    return missed(model, *parts.test)
