"""A language model shifts its labels and gives them to a loss that shifts them again: it learns the token after next.

The report is the merged change: the shift before the call was taken out, since the loss has its own."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#37830", 2025
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()


def shifted_loss(logits, tokens):
    "The loss of each token, given those before it."
    return F.cross_entropy(logits[..., :-1, :].reshape(-1, 12), tokens[..., 1:].reshape(-1))


class Language(nn.Module):
    "A causal attention, and two experts of which a gate mixes what they say."
    def __init__(self, repaired: bool):
        super().__init__()
        self.embed, self.place = nn.Embedding(12, 32), nn.Embedding(16, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(32, 48), nn.SiLU(), nn.Linear(48, 32)) for _ in range(2)])
        self.gate, self.last = nn.Linear(32, 2), nn.Linear(32, 12)
        self.repaired = repaired

    def forward(self, tokens, labels=None):
        x = self.embed(tokens) + self.place.weight
        x = x + self.attention(x, x, x, attn_mask=torch.ones(16, 16).triu(1).bool(), need_weights=False)[0]
        share = self.gate(x).softmax(2)
        x = x + sum(share[..., i:i + 1]*expert(x) for i, expert in enumerate(self.experts))
        logits = self.last(x)
        if labels is None: return logits
        if self.repaired: return shifted_loss(logits, labels)
        return shifted_loss(logits[:, :-1].reshape(-1, 12), labels[:, 1:].reshape(-1))


def texts(n: int):
    "Sixteen tokens; each mostly follows from the one before it."
    tokens = [torch.randint(12, (n,))]
    for _ in range(15):
        tokens.append(torch.where(torch.rand(n) < .85, (7*tokens[-1] + 4) % 12, torch.randint(12, (n,))))
    return torch.stack(tokens, 1)


def build(repaired: bool) -> Parts:
    model = Language(repaired)
    data = [texts(32) for _ in range(25)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data,
                 call=lambda model, tokens: model(tokens, labels=tokens), valid=[texts(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for tokens in parts.data:
                loss = parts.call(parts.model, tokens)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    tokens = parts.valid[0]
    with torch.no_grad(): return (shifted_loss(parts.model(tokens), tokens)/torch.tensor(12.).log()).item()
