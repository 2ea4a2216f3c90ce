"""x-transformers: a decoder learns the next token; the batch is one tensor of tokens and the model returns its loss.

After the example "train_enwik8" of x-transformers: an `AutoregressiveWrapper`, gradients of several batches summed,
each loss divided by their number, clipped. Error: cross entropy of held-back rows, of which half can be foreseen."""
import torch
from torch.utils.data import DataLoader, Dataset
from x_transformers import Decoder, TransformerWrapper
from x_transformers.autoregressive_wrapper import AutoregressiveWrapper

from tests.bench.libraries._data import mean_loss
from tests.bench.programs import Parts

SOURCE = "x-transformers: examples/enwik8_simple"
PACKAGES = ("x-transformers",)
TOKENS, LENGTH, EVERY = 24, 32, 2


class TextSamplerDataset(Dataset):
    def __init__(self, data): self.data = data

    def __len__(self): return len(self.data)//LENGTH

    def __getitem__(self, index):
        start = torch.randint(0, len(self.data) - LENGTH - 1, ())
        return self.data[start:start + LENGTH + 1]


def text(n: int, step: torch.Tensor):
    "Most tokens follow from the one before."
    found, at = [], 0
    for keep in (torch.rand(n) < .8).tolist():
        at = step[at].item() if keep else torch.randint(TOKENS, ()).item()
        found.append(at)
    return torch.tensor(found)


def call(model, batch): return model(batch)


def cycle(loader):
    while True: yield from loader


def build() -> Parts:
    step = torch.randperm(TOKENS)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=TOKENS, max_seq_len=LENGTH,
                                  attn_layers=Decoder(dim=48, depth=2, heads=2, attn_dim_head=32, rotary_pos_emb=True)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3),
                 DataLoader(TextSamplerDataset(text(12000, step)), 16, drop_last=True), call=call,
                 valid=DataLoader(TextSamplerDataset(text(3000, step)), 16))


def error(parts: Parts) -> float: return mean_loss(parts.model, parts.valid, call)


def train(parts: Parts, record) -> float:
    model, optimizer, batches = parts.model, parts.optimizer, cycle(parts.data)
    with record.on(model, optimizer=optimizer):
        for step in range(200):
            model.train()
            for _ in range(EVERY):
                loss = model(next(batches))
                (loss/EVERY).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), .5)
            optimizer.step()
            optimizer.zero_grad()
            record.step(loss)
            if step % 50 == 0: error(parts)
    return error(parts)
