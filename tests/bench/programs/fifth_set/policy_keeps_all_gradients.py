"""A language model is trained on rewards for groups of its own texts, and its gradients are never cleared.

The report is the merged change: the gradients of the optimizers were not set to zero after each step."""
import copy

import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "meta-pytorch/torchforge#71", 2025
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = {"gradients explode"}
PLACE = ()

questions, letters, length, group = 4, 8, 4, 16


class Policy(nn.Module):
    "A recurrent writer: the distribution of each letter, given the question and the letters so far."
    def __init__(self, size: int):
        super().__init__()
        self.question, self.letter = nn.Embedding(questions, size), nn.Embedding(letters + 1, size)
        self.memory, self.last = nn.GRU(size, size, batch_first=True), nn.Linear(size, letters)

    def forward(self, question, text):
        before = torch.cat([torch.full_like(text[:, :1], letters), text[:, :-1]], 1)
        hidden, _ = self.memory(self.letter(before), self.question(question)[None])
        return self.last(hidden).log_softmax(2)


@torch.no_grad()
def write(policy, question):
    "Texts that are drawn letter by letter."
    text = torch.zeros(len(question), length, dtype=torch.long)
    for i in range(length):
        text[:, i] = torch.distributions.Categorical(logits=policy(question, text)[:, i]).sample()
    return text


def reward(question, text, answers): return (text == answers[question]).float().mean(1)


def grpo_loss(policy, batch, first):
    "Advantages within a group of texts for one question, times the ratio to the policy; less what leads from `first`."
    question, text, rewards = batch
    said = policy(question, text).gather(2, text[..., None])[..., 0]
    rewards = rewards.view(-1, group)
    advantage = ((rewards - rewards.mean(1, keepdim=True))/(rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    apart = first(question, text).gather(2, text[..., None])[..., 0] - said
    return (.05*(apart.exp() - apart - 1) - (said - said.detach()).exp()*advantage).mean()


def build(repaired: bool) -> Parts:
    policy, answers = Policy(32), torch.randint(0, letters, (questions, length))
    question = torch.arange(questions).repeat_interleave(group)
    text = write(policy, question)
    optimizer, first = torch.optim.AdamW(policy.parameters(), lr=5e-3), copy.deepcopy(policy).requires_grad_(False)
    parts = Parts(policy, optimizer, [(question, text, reward(question, text, answers))],
                  call=lambda policy, batch: grpo_loss(policy, batch, first), repaired=repaired)
    parts.answers = answers
    return parts


def train(parts: Parts, record) -> float:
    policy, question = parts.model, parts.data[0][0]
    with record.on(policy, parts.optimizer):
        for _ in range(150):
            text = write(policy, question)
            loss = parts.call(policy, (question, text, reward(question, text, parts.answers)))
            loss.backward()
            parts.optimizer.step()
            if parts.repaired: parts.optimizer.zero_grad()
            record.step(loss)
    question = torch.arange(questions).repeat_interleave(50)
    return 1 - reward(question, write(policy, question), parts.answers).mean().item()
