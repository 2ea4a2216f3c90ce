"""fastai: collaborative filtering, ratings as the product of two embeddings and two biases.

After the tutorial "Collaborative filtering" of fastai: `CollabDataLoaders`, `collab_learner` with a range for the
ratings, weight decay, one cycle; a batch is (pairs of ids, ratings). Error: mean squared error over the variance."""
import pandas as pd
import torch
from fastai.callback import schedule  # noqa: F401
from fastai.callback.core import Callback
from fastai.collab import CollabDataLoaders, collab_learner

from tests.bench.libraries._data import seed_the_rest
from tests.bench.programs import Parts

SOURCE = "fastai: Collaborative filtering tutorial"
PACKAGES = ("fastai",)
USERS, FILMS = 60, 50


class Recorded(Callback):
    "Comes after the optimizer."
    def __init__(self, record): self.record = record

    def after_step(self): self.record.step(self.learn.loss)


def ratings(n: int) -> pd.DataFrame:
    user, film = torch.randint(USERS, (n,)), torch.randint(FILMS, (n,))
    taste, kind = torch.randn(USERS, 2), torch.randn(FILMS, 2)
    liked = (taste[user]*kind[film]).sum(1) + .5*torch.randn(FILMS)[film] + .3*torch.randn(n)
    return pd.DataFrame({"user": user.numpy(), "film": film.numpy(), "rating": (3 + liked).clamp(.5, 5).numpy()})


def build() -> Parts:
    seed_the_rest()
    frame = ratings(2400)
    dls = CollabDataLoaders.from_df(frame, user_name="user", item_name="film", rating_name="rating", bs=64, seed=3,
                                    valid_pct=.2, device="cpu")
    learn = collab_learner(dls, n_factors=12, y_range=(0, 5.5))
    learn.create_opt()
    parts = Parts(learn.model, learn.opt, dls.train, learn.loss_func, valid=dls.valid)
    parts.learn, parts.variance = learn, frame.rating.var()
    return parts


def error(parts: Parts) -> float:
    with parts.learn.no_bar(), parts.learn.no_logging(): return parts.learn.validate()[0]/parts.variance


def train(parts: Parts, record) -> float:
    learn = parts.learn
    with record.on(parts.model, optimizer=parts.optimizer), learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(12, 2e-2, wd=.1, cbs=Recorded(record))
    return error(parts)
