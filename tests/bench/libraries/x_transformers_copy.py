"""x-transformers: an encoder and a decoder copy a row of tokens twice.

After the example "toy_tasks/enc_dec_copy" of x-transformers: a generator without an end makes batches of source, target
and mask; the model takes all three and returns its loss. Error: cross entropy on new rows."""
import torch
from x_transformers import XTransformer

from tests.bench.programs import Parts

SOURCE = "x-transformers: examples/toy_tasks/enc_dec_copy"
PACKAGES = ("x-transformers",)
TOKENS, LENGTH, BATCH = 10, 6, 32


def cycle():
    while True:
        prefix = torch.ones((BATCH, 1)).long()
        src = torch.randint(2, TOKENS, (BATCH, LENGTH)).long()
        yield src, torch.cat((prefix, src, src), 1), torch.ones(BATCH, LENGTH).bool()


def call(model, batch):
    src, tgt, mask = batch
    return model(src, tgt, mask=mask)


def build() -> Parts:
    model = XTransformer(dim=64, tie_token_emb=True, return_tgt_loss=True, enc_num_tokens=TOKENS, enc_depth=2,
                         enc_heads=4, enc_max_seq_len=LENGTH, dec_num_tokens=TOKENS, dec_depth=2, dec_heads=4,
                         dec_max_seq_len=2*LENGTH + 1)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), cycle(), call=call)


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    return call(parts.model, next(parts.data)).item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(250):
            model.train()
            loss = call(model, next(parts.data))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            record.step(loss)
    return error(parts)
