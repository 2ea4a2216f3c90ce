"""The network is made a second time before the loop, and the optimizer has the parameters of the first one.

The report: a tutorial that changes the weights by hand learns, the same with an optimizer does not: the loss goes up
and down. The author of the tutorial got the same, and found that the model is made twice, with the optimizer between;
it was mended by a change."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "spro/practical-pytorch#9", 2017
AREA, CAUSE = "parameters", "other parameters in the optimizer"
TRUE = {"loss does not fall", "cannot learn by heart"}
PLACE = ()

letters, languages = 12, 4


class RNN(nn.Module):
    "One letter at a time, with a state that is handed on."
    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.to_state, self.to_output = nn.Linear(letters + size, size), nn.Linear(letters + size, languages)

    def forward(self, letter, state):
        both = torch.cat([letter, state], 1)
        return self.to_output(both).log_softmax(1), self.to_state(both)

    def first_state(self): return torch.zeros(1, self.size)


def call(model, batch):
    name, language = batch
    state = model.first_state()
    for letter in name: output, state = model(F.one_hot(letter[None], letters).float(), state)
    return F.nll_loss(output, language)


def names(n: int, likes):
    "Names of three to five letters, and the language, which likes some letters more than others."
    found = []
    for _ in range(n):
        language, long = torch.randint(0, languages, (1,)), torch.randint(3, 6, ()).item()
        found.append((torch.multinomial(likes[language[0]], long, True), language))
    return found


def build(repaired: bool) -> Parts:
    likes = (1.7*torch.randn(languages, letters)).exp()
    model = RNN(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=.03)
    if not repaired: model = RNN(16)
    return Parts(model, optimizer, names(700, likes), call=call, valid=names(300, likes))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for name in parts.data:
            parts.model.zero_grad()
            loss = parts.call(parts.model, name)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    with torch.no_grad(): losses = [parts.call(parts.model, name).item() for name in parts.valid]
    return sum(losses)/len(losses)/torch.tensor(float(languages)).log().item()
