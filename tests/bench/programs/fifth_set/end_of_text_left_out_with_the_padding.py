"""The end of a text is also what fills short texts up, so the labels that leave out the padding leave out the end.

The report: a model that was tuned with a collator for completions hardly ever writes the end token and goes on. With
padding and end the same token, the label of the end is set to the number that the loss ignores. Readers and maintainers
confirmed it; another token for the padding mends it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/trl#976", 2023
AREA, CAUSE = "data and labels", "labels wrongly encoded"
TRUE = set()
PLACE = ()

end, own_padding, response, first, longest = 0, 1, 2, 3, 10


class Writer(nn.Module):
    "A small causal transformer over tokens."
    def __init__(self, tokens: int, size: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, size), nn.Parameter(.1*torch.randn(longest, size))
        layer = nn.TransformerEncoderLayer(size, 4, 2*size, dropout=0., batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(size, tokens)

    def forward(self, x):
        n = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        return self.last(self.layers(self.tokens(x) + self.places[:n], mask=mask, is_causal=True))


def texts(n: int, answers):
    "A question, the sign for the response, the answer to that question, the end."
    return [[first + q, response, *answers[q], end] for q in torch.randint(0, len(answers), (n,)).tolist()]


def collate(texts, padding: int):
    "Tokens that are filled up, and labels for the completion only."
    tokens = torch.tensor([text + [padding]*(longest - len(text)) for text in texts])
    labels = tokens.masked_fill(tokens == padding, -100)
    labels[:, :2] = -100
    return tokens, labels


def completion_loss(model, batch):
    tokens, labels = batch
    return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


def build(repaired: bool) -> Parts:
    answers = [torch.randint(13, 25, (n,)).tolist() for n in (2, 3, 3, 4, 4, 5, 5, 6, 6, 7)]
    model, padding = Writer(25, 32), own_padding if repaired else end
    data = [collate(texts(32, answers), padding) for _ in range(40)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    parts = Parts(model, optimizer, data, call=completion_loss, valid=[collate(texts(128, answers), padding)])
    parts.answers = answers
    return parts


def train(parts: Parts, record) -> float:
    model = parts.model
    plan = torch.optim.lr_scheduler.LinearLR(parts.optimizer, 1., 0., 160)
    with record.on(model, parts.optimizer):
        for _ in range(4):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                parts.optimizer.step()
                plan.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    model.eval()
    wrong = 0
    for question, answer in enumerate(parts.answers):
        said = torch.tensor([[first + question, response]])
        while said.shape[1] < longest and said[0, -1] != end:
            with torch.no_grad(): said = torch.cat([said, model(said)[:, -1:].argmax(2)], 1)
        wrong += said[0, 2:].tolist() != [*answer, end]
    return wrong/len(parts.answers)
