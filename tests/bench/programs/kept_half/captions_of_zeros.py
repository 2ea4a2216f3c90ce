"""The captions of a batch are copied into a new tensor from that tensor itself, so that they are all zeros.

The report: the name of the captions is given to the padded tensor before they are copied. The author did not see it at
first, then confirmed and repaired it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "XiaoxiaoGuo/fashion-iq#2", 2019
AREA, CAUSE = "data and labels", "constant inputs"
TRUE = set()
PLACE = ("words",)

changes = torch.randn(13, 8, generator=torch.Generator().manual_seed(0))


class Search(nn.Module):
    "A query, made of a picture and of what should be different; and the pictures that are looked for."
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(13, 16)
        self.text = nn.GRU(16, 32, batch_first=True)
        self.query, self.picture = nn.Linear(40, 16), nn.Linear(8, 16)

    def forward(self, picture, captions, wanted):
        text = self.text(self.words(captions))[1][0]
        return self.query(torch.cat([picture, text], 1)) @ self.picture(wanted).T


def items(n: int):
    "Pictures, captions of two to four words, and the pictures after the changes that the words mean."
    made = []
    for picture in .3*torch.randn(n, 8):
        caption = torch.randint(1, 13, (2 + torch.randint(3, ()),))
        made.append((picture, caption, picture + changes[caption].sum(0) + .3*torch.randn(8)))
    return made


def collated(batch, repaired: bool):
    pictures, captions, wanted = zip(*batch)
    lengths = [len(caption) for caption in captions]
    padded = torch.zeros(len(captions), max(lengths), dtype=torch.long)
    if not repaired: captions = padded
    for i, caption in enumerate(captions): padded[i, :lengths[i]] = caption[:lengths[i]]
    return torch.stack(pictures), padded, torch.stack(wanted)


def build(repaired: bool) -> Parts:
    model = Search()
    data, valid = ([collated(items(32), repaired) for _ in range(many)] for many in (30, 10))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, valid=valid,
                 call=lambda model, batch: F.cross_entropy(model(*batch), torch.arange(len(batch[0]))))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): found = torch.stack([parts.model(*batch).argmax(1) for batch in parts.valid])
    return (found != torch.arange(32)).float().mean().item()/(31/32)
