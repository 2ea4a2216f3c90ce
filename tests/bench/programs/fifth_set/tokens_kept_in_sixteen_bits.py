"""The texts for a student are stored as numbers of 16 bits, so nearly half of the tokens become others.

The report: the script that prepares texts for the distillation of a language model casts the tokens to `uint16`. A
model for many languages has 119,547 of them; the author listed those that come back as another, 45 in a hundred."""
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#2825", 2020
AREA, CAUSE = "precision", "rounded"
TRUE = {"validation differs from training"}
PLACE = ()
TOKENS, TOPICS = 119547, 8


class Reader(nn.Module):
    "Which topic a text has."
    def __init__(self, size: int):
        super().__init__()
        self.words = nn.Embedding(TOKENS, size)
        self.body, self.last = nn.Linear(size, 32), nn.Linear(32, TOPICS)

    def forward(self, text): return self.last(F.relu(self.body(self.words(text))).mean(1))


def texts(n: int, words):
    "Sixteen tokens, a third of which belong to the topic."
    topic = torch.randint(0, TOPICS, (n,))
    of_topic = words[topic].gather(1, torch.randint(0, words.shape[1], (n, 16)))
    other = words.flatten()[torch.randint(0, words.numel(), (n, 16))]
    return torch.where(torch.rand(n, 16) < .33, of_topic, other), topic


def trained_before(words):
    teacher = Reader(6)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-2)
    for _ in range(60):
        text, topic = texts(128, words)
        optimizer.zero_grad()
        F.cross_entropy(teacher(text), topic).backward()
        optimizer.step()
    return teacher.eval().requires_grad_(False)


def build(repaired: bool) -> Parts:
    words = torch.randperm(TOKENS)[:TOPICS*25].view(TOPICS, 25)
    teacher, model = trained_before(words), Reader(6)
    kind = np.int32 if repaired else np.uint16
    stored = texts(2048, words)[0].numpy().astype(kind)
    data = list(torch.from_numpy(stored.astype(np.int64)).split(64))

    def call(model, text):
        "How far the student's opinion is from the teacher's, both at a temperature of two."
        with torch.no_grad(): wanted = (teacher(text)/2).softmax(1)
        return F.kl_div((model(text)/2).log_softmax(1), wanted, reduction="batchmean")*4

    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-2), data, call=call, valid=[texts(1024, words)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            for text in parts.data:
                loss = parts.call(parts.model, text)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 5.)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    text, topic = parts.valid[0]
    with torch.no_grad(): return (parts.model(text).argmax(1) != topic).float().mean().item()*TOPICS/(TOPICS - 1)
