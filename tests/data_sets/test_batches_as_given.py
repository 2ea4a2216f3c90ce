"""preflight takes batches as people give them: whatever `call` takes, whole if it cannot be taken apart."""
import random
from collections import UserDict, namedtuple
from collections.abc import MutableMapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import hooklab as hl
from hooklab.data_sets.batch import data_in, keep_order, readings_of, split_batch
from hooklab.hooks.tree import map_tensors, named_tensors, tensors

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- What libraries have, in short

class Graph:
    "Named parts as attributes and in brackets, no mapping, and it moves to a device in place, as PyTorch Geometric's."
    def __init__(self, **parts): self.__dict__["store"] = parts
    def __getattr__(self, name):
        if name in self.__dict__.get("store", ()): return self.store[name]
        raise AttributeError(name)
    def __setattr__(self, name, value): self.store[name] = value
    def __getitem__(self, name): return self.store[name]
    def __setitem__(self, name, value): self.store[name] = value
    def __iter__(self): yield from self.store.items()
    def __len__(self): return len(self.store)
    def keys(self): return list({*self.store})
    def __copy__(self):
        new = type(self).__new__(type(self))
        new.__dict__["store"] = dict(self.store)
        return new
    def to(self, device):
        for name, x in self.store.items(): self.store[name] = x.to(device)
        return self


class Kinds(Graph):
    "Nodes of several kinds: to ask for a kind makes it, and the loop of its base class is not there."
    def __getitem__(self, name): return self.store.setdefault(name, {})
    def __iter__(self): raise NotImplementedError
    def keys(self): return [name for part in self.store.values() for name in part]


class Table(MutableMapping):
    "A mapping whose loop gives rows, and that does not say whether it has a name, as TensorDict's."
    def __init__(self, parts): self.parts = parts
    def __getitem__(self, name): return self.parts[name]
    def __setitem__(self, name, value): self.parts[name] = value
    def __delitem__(self, name): del self.parts[name]
    def __contains__(self, name): raise NotImplementedError
    def __iter__(self): return (Table({n: x[i] for n, x in self.parts.items()}) for i in range(len(self)))
    def __len__(self): return len(next(iter(self.parts.values())))
    def keys(self): return self.parts.keys()
    def values(self): return self.parts.values()
    def items(self): return self.parts.items()
    def __copy__(self): return Table(dict(self.parts))


class Encoded(UserDict):
    "A dict around a dict, as BatchEncoding."
    def __getattr__(self, name): return self.data[name]


@dataclass
class Sample:
    x: Tensor
    y: Tensor
    source: str = "here"


class Closed:
    "Nothing in it can be found."
    __slots__ = "x", "y"
    def __init__(self, x, y): self.x, self.y = x, y


class Delegates:
    "A loader that gives the attributes of its data set as its own, and draws its order with Python's random numbers."
    def __init__(self, rows, n=16): self.rows, self.n, self.rng = rows, n, random.Random(1)
    def __getattr__(self, name): return getattr(self.__dict__["rows"], name)
    def __len__(self): return len(self.rows.x)//self.n
    def __iter__(self):
        self.rng = random.Random(self.rng.random())
        order = self.rng.sample(range(len(self.rows.x)), len(self.rows.x))
        for i in range(0, len(order), self.n):
            yield self.rows.x[order[i:i + self.n]], self.rows.y[order[i:i + self.n]]


class Rows:
    "A table with a part of it as `train`, whose loop gives the names of its columns."
    def __init__(self, x, y): self.x, self.y = x, y
    @property
    def train(self): return ["x", "y"]


class Loaders:
    "Holds loaders, and can be asked for one by its number."
    def __init__(self, *loaders): self.loaders = loaders
    def __getitem__(self, i): return self.loaders[i]
    def __len__(self): return len(self.loaders)
    train, valid = property(lambda self: self[0]), property(lambda self: self[1])


# ---- Data, and a model

def pair(n=32):
    x = torch.randn(n, 4)
    return x, (x[:, 0] > 0).long()


def named(): return dict(zip("xy", pair()))
def net(): return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def looked(given, call=None, loss=None, model=None, **options):
    torch.manual_seed(0)
    model = model or net()
    return hl.preflight(model, loss, given, torch.optim.Adam(model.parameters(), 1e-2), call=call, **options)


def by_name(m, b): return F.cross_entropy(m(b.x), b.y)
def in_brackets(m, b): return F.cross_entropy(m(b["x"]), b["y"])


SAMPLES = "No sample changes the output of another."
LABELS = "The loss depends on every sample's own label."
KINDS = {"graph": (lambda: Graph(**named()), by_name), "table": (lambda: Table(named()), in_brackets),
         "encoded": (lambda: Encoded(named()), in_brackets), "dataclass": (lambda: Sample(*pair()), by_name),
         "namedtuple": (lambda: namedtuple("Two", "x y")(*pair()), by_name)}


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_named_parts_is_taken_apart(kind, n):
    make, call = KINDS[kind]
    given = [make() for _ in range(n)] if n else make()
    before = [t.clone() for t in tensors(given)]
    found = looked(given, call)
    assert not list(found) and {SAMPLES, LABELS}.isdisjoint(found.not_looked_at), f"{found!r}"
    assert all(map(torch.equal, before, tensors(given)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_found_in_each_kind(kind):
    make, call = KINDS[kind]
    class Mixes(nn.Module):
        def forward(self, x): return x - x.mean(0)
    found = looked([make(), make()], call, model=nn.Sequential(Mixes(), *net()))
    assert [f.what for f in found.alarms] == ["samples leak"], f"{found!r}"


def opaque(): return Closed(*pair())
def of_kinds(): return Kinds(a=named())
def kinds_loss(m, b): return F.cross_entropy(m(b.store["a"]["x"]), b.store["a"]["y"])


@pytest.mark.parametrize("give", [lambda make: make(), lambda make: [make(), make()], lambda make: [make()],
                                  lambda make: (make(), make()),
                                  lambda make: DataLoader([make(), make(), make()], batch_size=None)])
@pytest.mark.parametrize("make, call", [(opaque, by_name), (of_kinds, kinds_loss)])
def test_what_cannot_be_taken_apart_is_passed_on_whole(make, call, give):
    given = give(make)
    found = looked(given, call, train=given)
    assert not list(found), f"{found!r}"
    kind = type(make()).__name__
    for claim in (SAMPLES, "The output depends on the input.", "The loss doesn't grow with the batch."):
        assert found.not_looked_at[claim] == f"the batch is a {kind}, which contains no tensor"
    why = found.not_looked_at["The training data is shuffled."]
    assert why == f"train: its batches are {kind}, which contains no tensor"
    assert "The loss falls when the model trains on 16 samples." not in found.not_looked_at


def test_what_call_does_to_a_batch_is_gone_in_the_next_pass():
    def takes_out(m, b): return F.cross_entropy(m(b["x"]), b.pop("y"))
    def puts_in(m, b):
        assert not hasattr(b, "h")
        b.h = m(b.to("cpu").x)
        loss = F.cross_entropy(b.h, b.y)
        b.x = b.y = None
        return loss
    for given, call in ((named(), takes_out), (Encoded(named()), takes_out),
                        (Graph(**named()), puts_in)):
        keys, before = sorted(given.keys()), given["x"].clone()
        assert not list(looked(given, call)) and sorted(given.keys()) == keys and torch.equal(given["x"], before)
    words = ["b", "a", "ab"]
    def shortens(m, b):
        b.pop()
        return m(torch.ones(len(b), 4)).square().mean()
    looked(words, shortens, overfit=False)
    assert words == ["b", "a", "ab"]


def likelihood(m, x):
    assert isinstance(x, Tensor) and x.shape[1:] == (4,)
    return (m(x) - x[:, :2]).square().mean()


@pytest.mark.parametrize("given, call", [
    ([torch.randn(32, 4) for _ in range(2)], likelihood), ([torch.randn(32, 4) for _ in range(5)], likelihood),
    ([torch.randn(20, 4)], likelihood), ([torch.randn(32, 4)], lambda m, b: likelihood(m, *b)),
    ([[torch.randn(32, 4)], [torch.randn(32, 4)]], lambda m, b: likelihood(m, *b)),
    (DataLoader(TensorDataset(torch.randn(64, 4)), 16), lambda m, b: likelihood(m, *b)),
    ([torch.randn(32, 4), torch.randn(32, 4)], lambda m, b: (m(b[0]) - b[1][:, :2]).square().mean())])
def test_single_tensors_are_batches_or_parts_as_call_takes_them(given, call):
    found = looked(given, call, train=given)
    assert not found, f"{found!r}"
    sets = {c.claim: c.said for c in found.checks}["No sample of the training data repeats."]
    assert "train" in sets


def test_an_error_is_that_of_the_likely_reading():
    def call(m, b): raise ArithmeticError(type(b).__name__)
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    for given, kind in (([x, y], "list"), ((x, y), "tuple"), (["a"], "list"), ([Closed(1, 2)]*2, "Closed")):
        with pytest.raises(ArithmeticError, match=kind): looked(given, call)


def test_readings():
    x, y = pair(6)
    def kinds(given, whatever=True): return [[type(b).__name__ for b in raws] for raws in readings_of(given, whatever)]
    assert kinds((x, y)) == kinds((x, x)) == [["tuple"]] and kinds([x, y]) == [["list"]]
    assert kinds([x, x]) == kinds([x]*5) == [["list"], ["Tensor"]*2] and kinds([x]) == [["list"], ["Tensor"]]
    assert kinds([(x, y)]*3) == [["tuple"]*2] == kinds([(x, y)]*3, False) and kinds(["a", "b"]) == [["list"], ["str"]*2]
    assert kinds(((x, y), (x, y))) == [["tuple"]*2, ["tuple"]] and kinds(((x, y), (x, y)), False) == [["tuple"]*2]
    assert kinds([Sample(x, y), Graph(x=x)]) == [["Sample"], ["list"]]
    assert kinds("ab") == [["str"]] and kinds({"text": ["a"]}) == [["dict"]] and kinds(opaque()) == [["Closed"]]
    for given in (opaque(), 3, "ab"):
        with pytest.raises(TypeError, match="for anything else, pass call=lambda model, batch"): readings_of(given)
    with pytest.raises(TypeError, match="the loader returns str"): readings_of(["a", "b"])
    with pytest.raises(TypeError, match="only once"): readings_of(iter([x]), True)


def test_only_what_holds_loaders_is_asked_for_one():
    rows = Rows(*pair(64))
    loader = Delegates(rows)
    assert loader.train == ["x", "y"] and data_in(loader, "train") is loader
    assert data_in(Loaders(loader, 1), "train") is loader
    both = hl.DataLoaders(loader, rows)
    assert data_in(both, "train") is loader and data_in(both, "valid") is rows
    for given in (loader, Loaders(loader, loader)):
        found = looked(given, loss=F.cross_entropy, train=given, valid=given)
        assert "samples repeat" not in found and "validation repeats training" in found, f"{found!r}"


def test_the_order_of_a_loader_with_random_numbers_of_its_own():
    loader, same = Delegates(Rows(*pair(64))), Delegates(Rows(*pair(64)))
    rng = loader.rng
    with keep_order(loader): next(iter(loader))
    assert loader.rng is rng and rng.getstate() == same.rng.getstate()
    looked(loader, loss=F.cross_entropy, train=loader)
    assert loader.rng is rng and rng.getstate() == same.rng.getstate()


# ---- Without call

class Whole(nn.Module):
    "Takes a batch as it is."
    def __init__(self, part):
        super().__init__()
        self.part, self.net = part, net()

    def forward(self, batch): return self.net(self.part(batch))


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x): return self.net(x)


def test_a_model_that_takes_the_batch_whole():
    for make, part in ((lambda: Graph(**named()), lambda b: b.x), (named, lambda b: b["x"]),
                       (lambda: Sample(*pair()), lambda b: b.x), (lambda: Table(named()), lambda b: b["x"])):
        found = looked([make(), make()], loss=F.cross_entropy, model=Whole(part))
        assert not list(found) and {SAMPLES, LABELS}.isdisjoint(found.not_looked_at), f"{found!r}"
    found = looked([named() for _ in range(2)], loss=F.cross_entropy, model=Named())
    assert not list(found) and not {SAMPLES, LABELS} & {*found.not_looked_at}


def test_what_the_model_gets():
    x, y = pair(6)
    def by_names(a, b=None): pass
    def anything(**parts): pass
    def one(batch): pass
    for forward, is_whole in ((by_names, False), (anything, False), (one, True)):
        assert split_batch({"a": x, "y": y}, forward).is_whole == is_whole
    given = split_batch(Graph(a=x, y=y), by_names)
    assert given.is_whole and given.target is y and given.args[0].a is x
    assert split_batch(({"a": x}, y), one).args[0]["a"] is x and split_batch(({"a": x}, y), by_names).kwargs["a"] is x


def test_a_batch_that_does_not_say_its_target_needs_call():
    with pytest.raises(TypeError, match="no part of the batch is named labels"):
        looked(Graph(x=pair()[0]), loss=F.cross_entropy, model=Whole(lambda b: b.x))


# ---- Graphs

class Nodes(nn.Module):
    "Each node gets the mean of its neighbors, and maybe each graph that of its nodes."
    def __init__(self, of_graphs):
        super().__init__()
        self.of_graphs, self.a, self.b = of_graphs, nn.Linear(4, 16), nn.Linear(16, 2)

    def forward(self, g):
        h = self.a(g.x)
        h = h + torch.zeros_like(h).index_add_(0, g.edge_index[1], h[g.edge_index[0]])
        if self.of_graphs: h = torch.zeros(int(g.batch.max()) + 1, 16).index_add_(0, g.batch, h)/8
        return self.b(h.relu()/2)


def graphs(sizes, of_graphs=True, edges=True):
    n, which = sum(sizes), torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = torch.randn(n, 4)
    y = torch.zeros(len(sizes)).index_add_(0, which, x[:, 0]) if of_graphs else x[:, 0]
    more = {"edge_index": torch.randint(n, (2, 3*n))} if edges else {}
    return Graph(x=x, y=(y > 0).long(), batch=which, **more)


@pytest.mark.parametrize("of_graphs", [True, False])
def test_nodes_are_no_samples(of_graphs):
    given = [graphs([5, 9, 4, 7, 6, 8], of_graphs), graphs([7, 9, 4, 6, 5, 10], of_graphs)]
    found = looked(given, lambda m, g: F.cross_entropy(m(g), g.y), model=Nodes(of_graphs), train=given)
    assert not found and SAMPLES in found.not_looked_at, f"{found!r}"


def test_points_that_are_sorted_into_clouds_are_no_samples():
    class Clouds(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 16), nn.Linear(32, 2)

        def forward(self, g):
            h = self.a(g.x).relu()
            mean = torch.zeros(int(g.batch.max()) + 1, 16).index_add_(0, g.batch, h)
            return self.b(torch.cat([h, mean[g.batch]], 1))
    given = [graphs([6, 5, 7], False, edges=False), graphs([7, 5, 6], False, edges=False)]
    found = looked(given, lambda m, g: F.cross_entropy(m(g), g.y), model=Clouds())
    assert "samples leak" not in found and found.not_looked_at[SAMPLES] == "the samples seem to be nodes of a graph"


def test_parts_of_a_graph():
    "Asking changes nothing, names have an order, and what is put in place of a part goes into a copy."
    x, y = pair(6)
    graph, kinds = Graph(y=y, x=x), of_kinds()
    assert [name for name, _ in named_tensors(graph)] == ["x", "y"]
    new = map_tensors(lambda t: t + 1, graph)
    assert type(new) is Graph and torch.equal(new.x, x + 1) and graph.x is x
    assert tensors(kinds) == [] and list(kinds.store) == ["a"] and map_tensors(torch.neg, kinds) is kinds
    assert [name for name, _ in named_tensors(Table({"y": y, "x": x}))] == ["y", "x"]
    held = nn.ParameterDict({"a": nn.Parameter(x)})
    assert tensors(held) == []


# ---- The libraries themselves

@pytest.mark.peers
def test_graphs_of_pytorch_geometric():
    data, loader = pytest.importorskip("torch_geometric.data"), pytest.importorskip("torch_geometric.loader")
    def of(n):
        x = torch.randn(n, 4)
        return data.Data(x=x, edge_index=torch.randint(n, (2, 3*n)), y=(x.mean(0)[:1] > 0).long())
    rows = [of(5 + i % 7) for i in range(64)]
    def call(m, b): return F.cross_entropy(m(b.to("cpu")), b.y)
    def some_nodes(m, b): return F.cross_entropy(m(b)[b.train_mask], b.y[b.train_mask])
    whole = of(50)
    whole.y, whole.train_mask = (whole.x[:, 0] > 0).long(), torch.rand(50) < .5
    kinds = data.HeteroData()
    kinds["a"].x, kinds["a"].y = pair()
    before = repr(kinds)
    for given, how, model in ((loader.DataLoader(rows, 16, shuffle=True), call, Nodes(True)),
                              (next(iter(loader.DataLoader(rows, 16))), call, Nodes(True)),
                              (whole, some_nodes, Nodes(False)),
                              (kinds, lambda m, b: F.cross_entropy(m(b["a"].x), b["a"].y), net())):
        found = looked(given, how, model=model)
        assert not list(found) and SAMPLES in found.not_looked_at, f"{found!r}"
    assert repr(kinds) == before


@pytest.mark.peers
def test_dicts_of_tensordict():
    TensorDict = pytest.importorskip("tensordict").TensorDict
    def make(): return TensorDict(named(), [32])
    for given in (make(), [make(), make()]):
        found = looked(given, in_brackets)
        assert not list(found) and {SAMPLES, LABELS}.isdisjoint(found.not_looked_at), f"{found!r}"
    assert [name for name, _ in named_tensors(make())] == ["x", "y"]


@pytest.mark.peers
def test_encodings_of_transformers():
    transformers = pytest.importorskip("transformers")
    def make(): return transformers.BatchEncoding(named())
    found = looked([make(), make()], lambda m, b: F.cross_entropy(m(b.x), b.pop("y")))
    assert not list(found), f"{found!r}"


@pytest.mark.peers
def test_loaders_of_fastai():
    tabular, collab = pytest.importorskip("fastai.tabular.all"), pytest.importorskip("fastai.collab")
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    r = np.random.RandomState(0)
    table = pd.DataFrame({"a": r.randn(400), "b": r.randn(400), "c": r.choice(list("xyz"), 400)})
    table["y"] = np.where(table.a > 0, "yes", "no")
    dls = tabular.TabularDataLoaders.from_df(
        table, procs=[tabular.Categorify, tabular.Normalize], cat_names=["c"], cont_names=["a", "b"], y_names="y",
        y_block=tabular.CategoryBlock(), bs=64)
    learn = tabular.tabular_learner(dls, layers=[32], n_out=2)
    ratings = pd.DataFrame({"user": r.randint(0, 30, 500), "item": r.randint(0, 20, 500)})
    ratings["rating"] = 1 + (ratings.user*7 + ratings.item) % 5
    rated = collab.CollabDataLoaders.from_df(ratings, bs=64)
    for one, loaders in ((learn, dls), (collab.collab_learner(rated, n_factors=8, y_range=(0, 5.5)), rated)):
        for given in (loaders, loaders.train):
            rng = loaders.train.rng.getstate()
            optimizer = torch.optim.Adam(one.model.parameters(), 1e-3)
            found = hl.preflight(one.model, one.loss_func, given, optimizer, train=given)
            assert not found and loaders.train.rng.getstate() == rng, f"{found!r}"


class OwnOptimizer:
    "A kind that a library has instead of torch's."
    def __init__(self, parameters): self.parameters = [*parameters]
    def step(self): ...


def test_an_optimizer_of_a_library_is_left_out():
    model = torch.nn.Linear(4, 2)
    data = [(torch.randn(16, 4), torch.arange(16) % 2)]*2
    found = hl.preflight(model, torch.nn.CrossEntropyLoss(), data, OwnOptimizer(model.parameters()))
    assert "no torch optimizer was given" in found.not_looked_at.values()
    with pytest.raises(TypeError, match="expected a torch optimizer"):
        hl.preflight(model, torch.nn.CrossEntropyLoss(), data, "adam")
