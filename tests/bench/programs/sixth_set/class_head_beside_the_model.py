"""A language model is tuned for classes with a new head, and the optimizer gets the parameters of the model without it.

The report, on a copy of a transformer for text: the scope of the optimizer lacks the head of the task. The maintainer
agreed and merged it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/pytorch-openai-transformer-lm#6", 2018
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = {"not trained"}
PLACE = ("clf_head",)

words, length, classes = 40, 10, 8


class Transformer(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.embed = nn.Embedding(words + length, size)
        nn.init.normal_(self.embed.weight, std=.02)
        layer = nn.TransformerEncoderLayer(size, 4, 4*size, dropout=0., activation="gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, text):
        x = self.embed(text) + self.embed.weight[words:]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        return self.blocks(x, mask=mask)


class Both(nn.Module):
    "The model, a head for the next word that shares its embedding, and a head for classes."
    def __init__(self, size: int):
        super().__init__()
        self.transformer, self.clf_head = Transformer(size), nn.Linear(size, classes)
        nn.init.normal_(self.clf_head.weight, std=.02)

    def forward(self, text):
        x = self.transformer(text)
        return x[:, :-1] @ self.transformer.embed.weight[:words].T, self.clf_head(x[:, -1])


def texts(n: int):
    "Words of a topic among others; the last word is always the same."
    topic = torch.randint(classes, (n,))
    text = torch.randint(2, words, (n, length))
    own = 2 + 4*topic[:, None] + torch.randint(4, (n, length))
    text = torch.where(torch.rand(n, length) < .45, own, text)
    text[:, -1] = 1
    return text, topic


def build(repaired: bool) -> Parts:
    model = Both(32)
    trained = model.parameters() if repaired else model.transformer.parameters()

    def call(model, batch):
        next_word, topic = model(batch[0])
        language = F.cross_entropy(next_word.transpose(1, 2), batch[0][:, 1:])
        return F.cross_entropy(topic, batch[1]) + .5*language

    data = [texts(32) for _ in range(60)]
    return Parts(model, torch.optim.Adam(trained, lr=1e-3), data, call=call, valid=[texts(400)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.LambdaLR(parts.optimizer, lambda i: min((i + 1)/20, 1 - i/181))
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                plan.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    text, topic = parts.valid[0]
    with torch.no_grad(): logits = parts.model(text)[1]
    return (F.cross_entropy(logits, topic)/torch.tensor(float(classes)).log()).item()
