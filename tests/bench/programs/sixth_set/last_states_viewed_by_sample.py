"""The last states of a recurrent encoder of two directions are reshaped to one row a sample, without a permutation.

The report, on an autoencoder of molecules: the batch is mixed up with the directions, so a row has states of other
molecules. The reporter showed it with dummy data and offered the change; the code of today joins the directions."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "PaccMann/paccmann_chemistry#5", 2020
AREA, CAUSE = "structure", "samples leak"
TRUE = {"places mixed up"}
PLACE = ("mean", "log_var", "encoder")

signs, length = 10, 9
table = torch.rand(signs, signs, generator=torch.Generator().manual_seed(3))**4 + .01


class Molecules(nn.Module):
    "A GRU of two directions makes a code of a string, another GRU writes the string with the code as its state."
    def __init__(self, size: int, code: int, repaired: bool):
        super().__init__()
        self.size, self.repaired = size, repaired
        self.embed = nn.Embedding(signs + 1, size)
        self.encoder = nn.GRU(size, size, bidirectional=True)
        self.mean, self.log_var = nn.Linear(2*size, code), nn.Linear(2*size, code)
        self.start = nn.Linear(code, size)
        self.decoder = nn.GRU(size, size)
        self.last = nn.Linear(size, signs)

    def encode(self, string):
        _, hidden = self.encoder(self.embed(string))
        if self.repaired: hidden = hidden.permute(1, 0, 2)
        hidden = hidden.reshape(string.shape[1], 2*self.size)
        return self.mean(hidden), self.log_var(hidden)

    def forward(self, string):
        mean, log_var = self.encode(string)
        code = mean + torch.randn_like(mean)*(log_var/2).exp() if self.training else mean
        shifted = torch.cat([torch.full_like(string[:1], signs), string[:-1]])
        out, _ = self.decoder(self.embed(shifted), torch.tanh(self.start(code))[None])
        return self.last(out), mean, log_var


def strings(n: int):
    "Signs in time first: each follows the one before it more or less often."
    found = [torch.randint(signs, (n,))]
    for _ in range(length - 1): found.append(torch.multinomial(table[found[-1]], 1)[:, 0])
    return torch.stack(found)


def build(repaired: bool) -> Parts:
    model = Molecules(48, 16, repaired)

    def call(model, string):
        logits, mean, log_var = model(string)
        kl = -.5*(1 + log_var - mean**2 - log_var.exp()).sum(1).mean()
        return F.cross_entropy(logits.flatten(0, 1), string.flatten()) + .005*kl

    data = [strings(64) for _ in range(32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=4e-3), data, call=call, valid=[strings(500)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for string in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, string)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    string = parts.valid[0]
    with torch.no_grad(): logits = parts.model.eval()(string)[0]
    return (F.cross_entropy(logits.flatten(0, 1), string.flatten())/torch.tensor(float(signs)).log()).item()
