"""The two weights of the classes are in the wrong order: the class that is nearly always there gets the large one.

The report: for a rare emotion, label 0 should have the smaller weight, and the code does the opposite. The author
agrees that they have to be swapped, and does not know why this was left in."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "amanshenoy/multilogue-net#21", 2021
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = {"one class is most of the data"}
PLACE = ()

turns, rare = 8, .0816


class Dialogue(nn.Module):
    "A state for what is said and one for how it sounds, and attention over the turns before."
    def __init__(self, text: int, sound: int, size: int):
        super().__init__()
        self.text, self.sound = nn.GRU(text, size, batch_first=True), nn.GRU(sound, size, batch_first=True)
        self.dropout = nn.Dropout(.2)
        self.match = nn.Linear(2*size, 2*size, bias=False)
        self.linear, self.smax_fc = nn.Linear(4*size, size), nn.Linear(size, 2)

    def forward(self, text, sound, mask):
        states = self.dropout(torch.cat([self.text(text)[0], self.sound(sound)[0]], 2))
        score = self.match(states)@states.transpose(1, 2)
        hidden = (mask[:, None] == 0) | torch.ones(turns, turns).triu(1).bool()
        seen = score.masked_fill(hidden, -1e9).softmax(2)@states
        return self.smax_fc(self.linear(torch.cat([states, seen], 2)).relu()).log_softmax(2)


class MaskedNLL(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, output, label, mask):
        loss = F.nll_loss(output.flatten(0, 1), label.flatten(), self.weight, reduction="none")*mask.flatten()
        return loss.sum()/(self.weight[label]*mask).sum()


def dialogues(n: int, signs):
    "Fear is heard a little in the sound and read a little in the text, at one turn of twelve."
    label = (torch.rand(n, turns) < rare).long()
    text = torch.randn(n, turns, 16) + 1.2*label[..., None]*signs[0]
    sound = torch.randn(n, turns, 8) + .8*label[..., None]*signs[1]
    mask = (torch.arange(turns) < torch.randint(3, turns + 1, (n, 1))).float()
    return text*mask[..., None], sound*mask[..., None], mask, label*mask.long()


def build(repaired: bool) -> Parts:
    signs = torch.randn(16)/2, torch.randn(8)/2
    weight = torch.tensor([1/rare, 1/(1 - rare)])
    criterion, model = MaskedNLL(weight.flip(0) if repaired else weight), Dialogue(16, 8, 24)
    def call(model, batch): return criterion(model(*batch[:3]), batch[3], batch[2])
    data = [dialogues(32, signs) for _ in range(30)]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    return Parts(model, optimizer, data, call=call, valid=[dialogues(600, signs)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    text, sound, mask, label = parts.valid[0]
    with torch.no_grad(): wrong = parts.model(text, sound, mask).argmax(2) != label
    return sum(wrong[(label == each) & (mask > 0)].float().mean().item() for each in (0, 1))/2
