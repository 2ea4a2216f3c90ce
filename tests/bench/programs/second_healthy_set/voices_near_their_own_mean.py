"""Vectors of utterances are drawn to the mean of their speaker and away from the means of the others.

Habits of the source: a batch is a few speakers with several utterances each, cut at random; an utterance is left out
of the mean that it is compared with; the table of similarities is filled in place; a learned scale and shift begin at
10 and -5, and their gradients are made a hundred times smaller; gradients are clipped to 3; the vectors are never
negative and have length one; the last state of an LSTM is used; one rate, no end.
Error: utterances of speakers never heard that are nearest to another's mean: .16 to .23; untrained .6, by chance
.88."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE, YEAR = "CorentinJ/Real-Time-Voice-Cloning encoder/train.py", 2019
BANDS, FRAMES, SPEAKERS, UTTERANCES = 10, 16, 8, 5


class Encoder(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.lstm, self.linear = nn.LSTM(BANDS, size, 2, batch_first=True), nn.Linear(size, size)
        self.scale, self.shift = nn.Parameter(torch.tensor([10.])), nn.Parameter(torch.tensor([-5.]))

    def forward(self, sound):
        _, (last, _) = self.lstm(sound)
        return F.normalize(self.linear(last[-1]).relu(), dim=1)

    def similarities(self, vectors):
        "Of (speaker, utterance) with the mean of each speaker."
        means = F.normalize(vectors.mean(1), dim=1)
        without = F.normalize((vectors.sum(1, keepdim=True) - vectors)/(vectors.shape[1] - 1), dim=2)
        table = torch.zeros(*vectors.shape[:2], len(vectors))
        for j in range(len(vectors)):
            others = torch.arange(len(vectors)) != j
            table[others, :, j] = (vectors[others]*means[j]).sum(2)
            table[j, :, j] = (vectors[j]*without[j]).sum(1)
        return table*self.scale + self.shift


def ge2e(model, sound):
    "Of a batch in order of the speakers."
    vectors = model(sound).view(-1, UTTERANCES, model.linear.out_features)
    table = model.similarities(vectors)
    return F.cross_entropy(table.flatten(0, 1), torch.arange(len(table)).repeat_interleave(UTTERANCES))


class Speakers(Dataset):
    "A voice is how strong each band is, and how fast it sways; what is said and how loud it is do not matter."
    def __init__(self, n): self.voice, self.pace = torch.randn(n, BANDS), .3 + torch.rand(n)

    def __len__(self): return len(self.voice)

    def __getitem__(self, i):
        time = torch.arange(FRAMES)[:, None] + 20*torch.rand(UTTERANCES, 1, 1)
        loud, said = 1.5*torch.randn(UTTERANCES, 1, 1), torch.randn(UTTERANCES, 8, BANDS).repeat_interleave(2, 1)
        return self.voice[i]*(.7 + (self.pace[i]*time).sin()) + loud + said + .3*torch.randn(UTTERANCES, FRAMES, BANDS)


def build(repaired: bool) -> Parts:
    model = Encoder()
    data, valid = [DataLoader(Speakers(n), SPEAKERS, shuffle=True, collate_fn=torch.cat) for n in (160, 80)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=ge2e, valid=valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for _ in range(20):
            for sound in parts.data:
                loss = parts.call(model, sound)
                model.zero_grad()
                loss.backward()
                model.scale.grad *= .01
                model.shift.grad *= .01
                nn.utils.clip_grad_norm_(model.parameters(), 3)
                optimizer.step()
                record.step(loss)
    wrong = []
    with torch.no_grad():
        for sound in parts.valid:
            table = model.similarities(model(sound).view(-1, UTTERANCES, model.linear.out_features))
            wrong.append(table.argmax(2) != torch.arange(len(table))[:, None])
    return torch.cat(wrong).float().mean().item()
