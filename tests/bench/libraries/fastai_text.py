"""fastai: an AWD-LSTM learns the next word of running text.

After the tutorial "Transfer learning in text" of fastai, its language model, without pretrained weights: tokens and
numbers by the library, a loader that keeps the state from batch to batch, dropout of several kinds, one cycle.
Error: cross entropy of held-back text."""
import pandas as pd
from fastai.callback import schedule  # noqa: F401
from fastai.callback.core import Callback
from fastai.text.all import (
    AWD_LSTM,
    BaseTokenizer,
    ColReader,
    ColSplitter,
    DataBlock,
    TextBlock,
    Tokenizer,
    awd_lstm_lm_config,
    language_model_learner,
    perplexity,
)

from tests.bench.libraries._data import seed_the_rest, stories
from tests.bench.programs import Parts

SOURCE = "fastai: Transfer learning in text, the language model"
PACKAGES = ("fastai",)


class Recorded(Callback):
    "Comes after the optimizer."
    def __init__(self, record): self.record = record

    def after_step(self): self.record.step(self.learn.loss)


def build() -> Parts:
    seed_the_rest()
    texts = stories(500)
    frame = pd.DataFrame({"text": texts, "is_valid": [i >= 420 for i in range(500)]})
    block = DataBlock(TextBlock(Tokenizer.from_df("text", tok=BaseTokenizer(), n_workers=1), is_lm=True, seq_len=16),
                      get_x=ColReader("text"), splitter=ColSplitter("is_valid"))
    dls = block.dataloaders(frame, bs=16, seq_len=16, num_workers=0, device="cpu")
    config = awd_lstm_lm_config | {"emb_sz": 48, "n_hid": 64, "n_layers": 2}
    learn = language_model_learner(dls, AWD_LSTM, config=config, drop_mult=.3, pretrained=False, metrics=perplexity)
    learn.create_opt()
    parts = Parts(learn.model, learn.opt, dls.train, learn.loss_func, valid=dls.valid)
    parts.learn = learn
    return parts


def error(parts: Parts) -> float:
    with parts.learn.no_bar(), parts.learn.no_logging(): return parts.learn.validate()[0]


def train(parts: Parts, record) -> float:
    learn = parts.learn
    with record.on(parts.model, optimizer=parts.optimizer), learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(6, 2e-2, moms=(.8, .7, .8), cbs=Recorded(record))
    return error(parts)
