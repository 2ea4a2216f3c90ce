"""The loop takes the scale out of the gradients before the step, and the step takes it out once more.

The report is a merged change of a framework for reinforcement learning of language models: with float16, one call
prepares the gradients, and the step of the optimizer prepares them again. They become so small that Adam hardly moves;
a change to another framework, which it follows, shows the curves."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "redai-studio/Relax#44", 2026
AREA, CAUSE = "precision", "clipping before unscaling"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()
ANSWERS, TRIES = 6, 8


class Policy(nn.Module):
    "Reads a question of six words, and says how likely each answer is."
    def __init__(self, size: int):
        super().__init__()
        self.words, self.places = nn.Embedding(12, size), nn.Parameter(.1*torch.randn(6, size))
        self.body = nn.Sequential(nn.Linear(6*size, 2*size), nn.GELU(), nn.Linear(2*size, 2*size), nn.GELU())
        self.head = nn.Linear(2*size, ANSWERS)

    def forward(self, question): return self.head(self.body((self.words(question) + self.places).flatten(1)))


def right_answer(question): return (question[:, 0] + question[:, 3]) % ANSWERS


def answers(model, n: int):
    "Several tries at each question, and how much better each is than the others at the same question."
    question = torch.randint(0, 12, (n, 6)).repeat_interleave(TRIES, 0)
    with torch.no_grad(): tried = torch.distributions.Categorical(logits=model(question)).sample()
    reward = (tried == right_answer(question)).float().view(n, TRIES)
    advantage = (reward - reward.mean(1, keepdim=True))/(reward.std(1, keepdim=True) + 1e-4)
    return question, tried, advantage.flatten()


def policy_loss(model, batch):
    question, tried, advantage = batch
    with torch.autocast("cpu", torch.float16): scores = model(question)
    return (advantage*F.cross_entropy(scores.float(), tried, reduction="none")).mean()


def build(repaired: bool) -> Parts:
    model = Policy(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(.9, .98))
    return Parts(model, optimizer, [answers(model, 32) for _ in range(4)], call=policy_loss, repaired=repaired,
                 scaler=torch.amp.GradScaler("cpu", init_scale=2.**32))


def prepare(optimizer, scale: float):
    "Takes the scale out, and says whether all gradients are finite."
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
    for gradient in gradients: gradient.div_(scale)
    return all(gradient.isfinite().all() for gradient in gradients)


def train(parts: Parts, record) -> float:
    model, optimizer, scaler = parts.model, parts.optimizer, parts.scaler
    with record.on(model, optimizer, scaler=scaler):
        for _ in range(300):
            batch = answers(model, 32)
            optimizer.zero_grad()
            loss = parts.call(model, batch)
            scaler.scale(loss).backward()
            scale = scaler.get_scale()
            if parts.repaired or prepare(optimizer, scale):
                scaler.step(optimizer)
                scaler.update()
            else: scaler.update(scale/2)
            record.step(loss)
    question = torch.randint(0, 12, (512, 6))
    with torch.no_grad(): wrong = (model(question).argmax(1) != right_answer(question)).float().mean()
    return wrong.item()*ANSWERS/(ANSWERS - 1)
