"""One encoder of questions and one of passages: the dot product is largest for the passage with the answer.

Habits of the source: both encoders begin with the same weights; the passages of all questions of a batch, and one
passage per question that looks alike, are wrong answers for the others; dot products are not scaled, so the first
loss is far above that of equal chances; a warmup from a rate of zero, then down in a line; clipping at 2; decay for
weights that belong to no norm; several validations in an epoch, the later ones by the rank of the right passage.
Score: the mean rank on new questions by that of chance. Below .1; about 1 for the untrained model."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/DPR train_dense_encoder.py", 2020
TOPICS, WORDS, WIDE, STEPS = 30, 100, 32, 220


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.norm = nn.Embedding(WORDS, WIDE, padding_idx=0), nn.LayerNorm(WIDE)
        self.layer = nn.TransformerEncoderLayer(WIDE, 4, 64, .1, "gelu", batch_first=True)
        self.apply(self.start)

    def start(self, part):
        if isinstance(part, nn.Linear | nn.Embedding): nn.init.normal_(part.weight, std=.02)
        if isinstance(part, nn.Linear): nn.init.zeros_(part.bias)

    def forward(self, words):
        return self.layer(self.norm(self.word(words)), src_key_padding_mask=words == 0)[:, 0]


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.question = Encoder()
        self.passage = copy.deepcopy(self.question)

    def forward(self, questions, passages): return self.question(questions), self.passage(passages)


def batch_of(n: int):
    "Questions name two of 30 topics in words of their own; a wrong passage shares one topic. Word 1 comes first."
    topics = torch.stack([torch.randperm(TOPICS)[:3] for _ in range(n)])
    def text(chosen, base):
        words = torch.cat([torch.ones(n, 1).long(), base + chosen, torch.randint(62, WORDS, (n, 3))], 1)
        words[torch.rand(n) < .5, -1] = 0
        return words
    right, wrong = text(topics[:, :2], 32), text(topics[:, 1:], 32)
    return text(topics[:, :2], 2), torch.stack([right, wrong], 1).flatten(0, 1)


def scores(model, batch):
    questions, passages = model(*batch)
    return questions @ passages.T


def call(model, batch):
    products = scores(model, batch)
    return F.nll_loss(F.log_softmax(products, 1), 2*torch.arange(len(products)))


@torch.no_grad()
def mean_rank(model, batches) -> float:
    model.eval()
    found = []
    for batch in batches:
        products = scores(model, batch)
        right = products.gather(1, 2*torch.arange(len(products))[:, None])
        found.append((products > right).float().mean())
    return 2*torch.stack(found).mean().item()


def build(repaired: bool) -> Parts:
    model = Pair()
    def kept(name): return "norm" in name or "bias" in name
    optimizer = torch.optim.AdamW([{"params": [w for name, w in model.named_parameters() if kept(name) == plain],
                                    "weight_decay": 0 if plain else .01} for plain in (False, True)], lr=2e-3)
    return Parts(model, optimizer, [batch_of(24) for _ in range(STEPS)], call=call, valid=[batch_of(24)])


def train(parts: Parts, record) -> float:
    model, optimizer, held = parts.model, parts.optimizer, []
    warmup = STEPS//10
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: step/warmup if step < warmup else max(0, (STEPS - step)/(STEPS - warmup)))
    with record.on(model, optimizer):
        for i, batch in enumerate(parts.data):
            model.train()
            loss = parts.call(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2)
            optimizer.step()
            schedule.step()
            model.zero_grad()
            record.step(loss)
            if i % 55 == 54: held.append(mean_rank(model, parts.valid))
    return mean_rank(model, [batch_of(24) for _ in range(6)])
