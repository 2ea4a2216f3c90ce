"""fastai: a tabular learner with categories and continuous columns, trained with one cycle.

After the tutorial "Tabular training" of fastai: `TabularDataLoaders` from a data frame with the usual procs, batches of
(categories, continuous, target), the optimizer of the library. Error: wrong answers on rows held back."""
import pandas as pd
import torch
from fastai.callback.core import Callback
from fastai.callback.schedule import Learner  # noqa: F401 (gives learners their schedules)
from fastai.tabular.all import (
    Categorify,
    CategoryBlock,
    FillMissing,
    Normalize,
    TabularDataLoaders,
    accuracy,
    tabular_learner,
)

from tests.bench.libraries._data import seed_the_rest
from tests.bench.programs import Parts

SOURCE = "fastai: Tabular training"
PACKAGES = ("fastai",)
JOBS, TOWNS = ["cook", "smith", "clerk", "nurse", "guard"], ["north", "south", "east"]


class Recorded(Callback):
    "Comes after the optimizer."
    def __init__(self, record): self.record = record

    def after_step(self): self.record.step(self.learn.loss)


def people(n: int) -> pd.DataFrame:
    job, town = torch.randint(len(JOBS), (n,)), torch.randint(len(TOWNS), (n,))
    age, hours = 20 + 45*torch.rand(n), 40 + 8*torch.randn(n)
    income = .05*(age - 42) + .08*(hours - 40) + torch.tensor([-1., 0, .5, 1, -.5])[job] + .4*(town == 1)
    frame = pd.DataFrame({"job": [JOBS[i] for i in job], "town": [TOWNS[i] for i in town], "age": age.numpy(),
                          "hours": hours.numpy(), "salary": ["high" if i > .2 else "low" for i in income]})
    frame.loc[(torch.rand(n) < .05).numpy(), "age"] = None
    return frame


def build() -> Parts:
    seed_the_rest()
    dls = TabularDataLoaders.from_df(people(1500), procs=[Categorify, FillMissing, Normalize],
                                     cat_names=["job", "town"], cont_names=["age", "hours"], y_names="salary",
                                     y_block=CategoryBlock(), bs=64, valid_idx=list(range(1200, 1500)), device="cpu")
    learn = tabular_learner(dls, layers=[64, 32], metrics=accuracy)
    learn.create_opt()

    def call(model, batch):
        categories, continuous, target = batch
        return learn.loss_func(model(categories, continuous), target)
    parts = Parts(learn.model, learn.opt, dls.train, call=call, valid=dls.valid)
    parts.learn = learn
    return parts


def error(parts: Parts) -> float:
    with parts.learn.no_bar(), parts.learn.no_logging(): return 1 - parts.learn.validate()[1]


def train(parts: Parts, record) -> float:
    learn = parts.learn
    with record.on(parts.model, optimizer=parts.optimizer), learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(5, 5e-3, cbs=Recorded(record))
    return error(parts)
