"Which parts of a batch the model gets, where `call` takes it apart in its own way."
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import hooklab as hl
from hooklab.checking.checklist import model_part_numbers
from hooklab.checking.flight import Flight
from hooklab.data_sets.batch import batch_of

pytestmark = pytest.mark.usefixtures("one_thread")

def table(n=200):
    torch.manual_seed(0)
    x = torch.randn(n, 6)
    return x, x[:, :3].argmax(1)


def in_batches(*parts): return DataLoader(TensorDataset(*parts), 20)


def told(model, call, data, valid):
    found = hl.preflight(model, None, data, torch.optim.Adam(model.parameters()), call=call, train=data, valid=valid,
                         overfit=False)
    return {f.what: f.sure for f in found}


@pytest.mark.parametrize("first", [False, True])
def test_labels_may_come_first(first):
    "What is found does not depend on the order of a batch."
    def order(x, y): return (y, x) if first else (x, y)
    def call(model, batch):
        x, y = order(*batch)
        return F.cross_entropy(model(x), y)
    (x, y), more = table(), table(120)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    few = more[1] != 2
    assert told(model, call, in_batches(*order(x, y)), in_batches(*order(more[0][few], more[1][few])))[
        "validation differs from training"] == "likely"
    assert "data not shuffled" in told(model, call, in_batches(*order(x[y.argsort()], y.sort().values)), None)
    assert not told(model, call, in_batches(*order(x, y)), None)
    assert told(model, call, in_batches(*order(x, 0*y)), None)["constant targets"] == "likely"


def test_a_dict_may_name_labels_in_its_own_way():
    (x, y), model = table(), nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    def in_dicts(y): return [{"numbers": a, "kind": b, "from": "a table"} for a, b in zip(x.split(20), y.split(20))]
    def call(model, batch): return F.cross_entropy(model(batch["numbers"]), batch["kind"])
    assert not told(model, call, in_dicts(y), None)
    assert told(model, call, in_dicts(0*y), None)["constant targets"] == "likely"


class Bags(nn.Module):
    "Kinds of texts that lie one behind the other in one row of words, with the place where each begins."
    def __init__(self):
        super().__init__()
        self.words, self.last = nn.EmbeddingBag(50, 8), nn.Linear(8, 3)

    def forward(self, words, starts): return self.last(self.words(words, starts))


def test_places_where_texts_begin_are_no_labels():
    torch.manual_seed(0)
    def batches(n):
        for _ in range(n):
            sizes = torch.randint(3, 9, (16,))
            yield torch.randint(3, (16,)), torch.randint(50, (int(sizes.sum()),)), sizes.cumsum(0) - sizes
    def call(model, batch):
        kinds, words, starts = batch
        return F.cross_entropy(model(words, starts), kinds)
    found = told(Bags(), call, DataLoader([*batches(60)], batch_size=None), DataLoader([*batches(20)], batch_size=None))
    assert not {what for what, sure in found.items() if sure != "note"}


def test_what_call_makes_itself_may_come_from_any_part():
    "So a decoder that gets the target and an input as numbers has them in the usual order."
    def call(model, batch):
        x, y = batch
        return F.cross_entropy(model(x.float()) + model(y.float()[:, None].expand(-1, 6)), y)
    x, y = table()
    flight = Flight(nn.Linear(6, 3), None, call, [batch_of((x.double(), y), nn.Linear.forward)], [])
    assert model_part_numbers(flight) is None
    def direct(model, batch): return model(batch[1]).square().mean()
    flight = Flight(nn.Linear(6, 3), None, direct, [batch_of((y, x), nn.Linear.forward)], [])
    assert model_part_numbers(flight) == {1}
    flight = Flight(nn.Linear(6, 3), None, direct, [batch_of((y, x, y + 1), nn.Linear.forward)], [])
    assert model_part_numbers(flight) is None  # which of two is the target?
    one = torch.randn(20, 7)
    flight = Flight(nn.Linear(6, 3), None, lambda m, b: m(b[0]).square().mean(), [
        batch_of((one[:, :6], one[:, 6]), nn.Linear.forward)], [])
    assert model_part_numbers(flight) is None
    def of_tasks(model, batch): return model(batch[1][0]).square().mean()
    flight = Flight(nn.Linear(6, 3), None, of_tasks, [batch_of(((y, x), (x, y)), nn.Linear.forward)], [])
    assert model_part_numbers(flight) is None
