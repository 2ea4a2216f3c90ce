"""Commands are told from the raw samples of a sound.

Habits of the source: a first filter as long as many samples, with a large stride; batch norm after each convolution;
pooling over what is left of time; log-softmax inside the model and the negative log-likelihood; outputs keep an axis of
one step, which is squeezed for the loss; sounds of different lengths padded with zeros; samples taken at half their
rate by a transform inside the loop; weight decay; a rate divided by ten at a fixed epoch; the test in eval mode.
Score: the part of wrong commands among held-back sounds, by chance. Below .2; about 1 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/tutorials intermediate_source/speech_command_classification_with_torchaudio_tutorial.py", 2020
COMMANDS, LONG = 6, 512


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        def block(of, to, long, stride=1):
            return nn.Conv1d(of, to, long, stride=stride), nn.BatchNorm1d(to), nn.ReLU(), nn.MaxPool1d(2)
        self.blocks = nn.Sequential(*block(1, 16, 40, 4), *block(16, 16, 3), *block(16, 32, 3))
        self.last = nn.Linear(32, COMMANDS)

    def forward(self, x):
        x = self.blocks(x)
        x = F.avg_pool1d(x, x.shape[-1]).permute(0, 2, 1)
        return F.log_softmax(self.last(x), dim=2)


def sound(command: int):
    "A tone that rises, falls or stays, of two heights, for most of a second."
    long = torch.randint(LONG*3//4, LONG + 1, ()).item()
    t = torch.linspace(0, 1, long)
    low, slope = .25 + .25*(command % 2), (command//2 - 1)*.12
    pitch = (low + .03*torch.randn(())) + slope*(t - .5)
    wave = (pitch.cumsum(0) + 6.28*torch.rand(())).sin()*(.3 + .7*torch.rand(()))*(torch.pi*t).sin()
    return wave + .2*torch.randn(long), command


def joined(batch):
    waves = nn.utils.rnn.pad_sequence([wave for wave, _ in batch], batch_first=True)
    return waves.unsqueeze(1), torch.tensor([command for _, command in batch])


def half_rate(x): return F.avg_pool1d(x, 2)


def call(model, batch): return F.nll_loss(model(half_rate(batch[0])).squeeze(1), batch[1])


def build(repaired: bool) -> Parts:
    train, test = ([sound(i % COMMANDS) for i in range(n)] for n in (768, 300))
    model = Net()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4),
                 DataLoader(train, 48, shuffle=True, collate_fn=joined), call=call,
                 valid=DataLoader(test, 100, collate_fn=joined))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=.1)
    with record.on(model, optimizer):
        for _ in range(10):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            wrong = total = 0
            for x, command in parts.valid:
                with torch.no_grad(): said = model(half_rate(x)).argmax(-1).squeeze(1)
                wrong, total = wrong + (said != command).sum().item(), total + len(x)
            schedule.step()
    return wrong/total*COMMANDS/(COMMANDS - 1)
