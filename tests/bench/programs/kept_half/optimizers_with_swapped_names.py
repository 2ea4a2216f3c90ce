"""The optimizer for the decoder has the encoder's parameters, and the one for the encoder those of the decoder.

The report: two names are swapped, which is not nice to read. The author saw that it is a fault as well, and mended it:
what the decoder has to learn from the critic changes the encoder only."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "wiseodd/controlled-text-generation#15", 2018
AREA, CAUSE = "parameters", "other parameters in the optimizer"
TRUE = set()
PLACE = ("encoder", "decoder")

kinds, length, hidden = 12, 6, 6


class Decoder(nn.Module):
    "Odds of the words of a text, all at once, from its code and its mood."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(hidden + 1, size), nn.ReLU(), nn.Linear(size, length*kinds))

    def forward(self, z, mood): return self.layers(torch.cat([z, mood], 1)).view(-1, length, kinds)


def texts(n: int):
    "A word says the mood, at any place; the others go up by one."
    first, mood = torch.randint(0, kinds - 2, (n, 1)), torch.randint(0, 2, (n, 1))
    words = (first + torch.arange(length)) % (kinds - 2)
    return words.scatter(1, first % length, kinds - 2 + mood), mood.float()


def build(repaired: bool) -> Parts:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(length*kinds, 64), nn.ReLU(), nn.Linear(64, 2*hidden))
    critic = nn.Sequential(nn.Linear(kinds, 16), nn.ReLU(), nn.Linear(16, 1))
    model = nn.ModuleDict({"encoder": encoder, "decoder": Decoder(64), "critic": critic})
    learn_to_write(model)
    encoder, decoder = model["encoder"].parameters(), model["decoder"].parameters()
    if not repaired: encoder, decoder = decoder, encoder
    for_e, for_g = torch.optim.Adam(encoder, lr=2e-3), torch.optim.Adam(decoder, lr=2e-3)
    for_d = torch.optim.Adam(critic.parameters(), lr=2e-3)
    data = [texts(64) for _ in range(300)]
    return Parts(model, [for_d, for_g, for_e], data, call=rebuilt, valid=[texts(500)])


def rebuilt(model, batch):
    "The loss of a VAE."
    words, mood = batch
    mean, log_var = model["encoder"](F.one_hot(words, kinds).float()).chunk(2, 1)
    odds = model["decoder"](mean + torch.randn_like(mean)*(log_var/2).exp(), mood)
    distance = .5*(mean**2 + log_var.exp() - 1 - log_var).sum(1).mean()
    return F.cross_entropy(odds.transpose(1, 2), words)*length + .1*distance


def learn_to_write(model):
    "At first any mood is given, so that the code alone tells what a text says."
    optimizer = torch.optim.Adam([*model["encoder"].parameters(), *model["decoder"].parameters()], lr=3e-3)
    for _ in range(150):
        words, mood = texts(64)
        optimizer.zero_grad()
        rebuilt(model, (words, mood[torch.randperm(64)])).backward()
        optimizer.step()


def mood_of(critic, odds): return critic(odds.sum(1))


def made(model, n: int):
    mood = torch.randint(0, 2, (n, 1)).float()
    return mood, model["decoder"](torch.randn(n, hidden), mood).softmax(-1)


def train(parts: Parts, record) -> float:
    model, (for_d, for_g, for_e) = parts.model, parts.optimizer
    critic = model["critic"]
    with record.on(model, parts.optimizer):
        for words, mood in parts.data:
            seen = F.binary_cross_entropy_with_logits(mood_of(critic, F.one_hot(words, kinds).float()), mood)
            seen.backward()
            for_d.step()
            model.zero_grad()
            wanted, odds = made(model, len(words))
            loss = parts.call(model, (words, mood))
            (loss + 5*F.binary_cross_entropy_with_logits(mood_of(critic, odds), wanted)).backward()
            for_g.step()
            model.zero_grad()
            loss = parts.call(model, (words, mood))
            loss.backward()
            for_e.step()
            model.zero_grad()
            record.step(loss)
    wanted, odds = made(model, 1000)
    words = odds.argmax(-1)
    has = (words == kinds - 2 + wanted.long()).any(1) & ~(words == kinds - 1 - wanted.long()).any(1)
    return 2*(1 - has.float().mean()).item()
