"What preflight leaves alone, each with its reason."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def found(model, loss_fn, batch, what, **options):
    model = hl.preflight(model, loss_fn, batch, overfit=options.pop("overfit", False), **options)
    return [f.sure for f in model if f.what == what]


def net(n_out=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, n_out))


def data(n=32):
    torch.manual_seed(1)
    return torch.randn(n, 6), torch.arange(n) % 3


@pytest.mark.parametrize(("without", "sure"), [(1, "note"), (7, "note"), (8, "likely")])
def test_a_few_labels_without_effect_may_be_chance(without, sure):
    def loss(output, y): return F.cross_entropy(output[without:], y[without:])
    assert found(net(), loss, data(16), "labels not used") == [sure]


class Graph(nn.Module):
    "Numbers of nodes, from edges whose order does not matter."
    def __init__(self):
        super().__init__()
        self.node, self.last = nn.Parameter(torch.randn(5, 4)), nn.Linear(4, 2)

    def forward(self, edges):
        near = torch.zeros(5, 5).index_put((edges[:, 0], edges[:, 1]), torch.ones(()), accumulate=True)
        return self.last(near @ self.node)


def test_edges_in_another_order_make_the_same_graph():
    def call(m, edges): return m(edges).square().mean()
    torch.manual_seed(0)
    edges = torch.randint(5, (20, 2))
    assert not found(Graph(), None, edges, "input unused", call=call)


class Blind(nn.Module):
    def __init__(self):
        super().__init__()
        self.answer = nn.Parameter(torch.randn(3))

    def forward(self, x): return self.answer.expand(len(x), 3)


def test_an_input_without_effect_is_seen_with_one_batch():
    assert found(Blind(), F.cross_entropy, data(), "input unused")


@pytest.mark.parametrize(("times", "sure"), [(2.5, []), (10, ["likely"])])
def test_targets_of_validation_may_be_drawn_otherwise(times, sure):
    def batches(wide, seed):
        torch.manual_seed(seed)
        x = torch.randn(300, 6)
        return list(zip(x.split(30), (wide*x[:, :1] + .1*torch.randn(300, 1)).split(30)))
    train = batches(1, 0)
    assert found(net(1), F.mse_loss, train[:2], "validation differs from training", train=train,
                 valid=batches(times, 1)) == sure


@pytest.mark.parametrize(("size", "sure"), [(1e-8, []), (1e-3, ["possible"])])
def test_a_target_of_nothing_but_rounding_is_zero(size, sure):
    x, _ = data()
    assert found(net(1), F.mse_loss, (x, size*torch.randn(32, 1)), "targets not scaled") == sure


def test_of_a_loss_below_zero_nobody_knows_how_far_it_goes():
    "An agreement that is at -0.9 from the start, in a distance's clothes."
    def loss(output, y): return -.9 - .05*F.cosine_similarity(output, F.one_hot(y, 3).float()).mean()
    x, y = data(16)
    assert not found(net(), loss, (x, y), "cannot learn by heart", overfit=True, seconds=60)


class Scaled(nn.Module):
    "A model that is trained already, and a temperature behind it."
    def __init__(self):
        super().__init__()
        self.model, self.temperature = net(), nn.Parameter(torch.ones(1))

    def forward(self, x):
        with torch.no_grad(): logits = self.model(x)
        return logits/self.temperature


def test_what_this_loss_leads_to_no_way_may_be_in_no_optimizer():
    model = Scaled()
    rate = torch.optim.SGD([model.temperature], .1)
    assert found(model, F.cross_entropy, data(), "not in the optimizer", optimizer=rate) == ["note"]
    model = net()
    assert found(model, F.cross_entropy, data(), "not in the optimizer",
                 optimizer=torch.optim.SGD(model[2].parameters(), .1)) == ["certain"]


def test_a_number_of_its_own_is_no_other_model():
    model = net()
    optimizers = [torch.optim.Adam(model[2].parameters()), torch.optim.Adam([torch.zeros(1, requires_grad=True)])]
    assert found(model, F.cross_entropy, data(), "other parameters in the optimizer", optimizer=optimizers) == ["note"]


@pytest.mark.parametrize(("second", "sure"), [(torch.optim.LBFGS, "note"), (torch.optim.Adam, "likely")])
def test_two_kinds_of_optimizers_may_come_one_after_the_other(second, sure):
    model = net()
    optimizers = [torch.optim.Adam(model.parameters()), second(model.parameters())]
    assert found(model, F.cross_entropy, data(), "twice in the optimizers", optimizer=optimizers) == [sure]


@pytest.mark.parametrize(("of_all", "expected"), [(False, []), (True, ["certain"])])
def test_labels_may_stand_at_the_end_of_a_batch(of_all, expected):
    x, y = data(64)
    y[slice(None) if of_all else slice(40)] = -100
    assert found(net(), F.cross_entropy, (x, y), "labels left out") == expected


def test_lengths_are_no_targets():
    "The last part of a batch that `call` takes apart is a target only if a loss function gets it."
    def call(m, batch):
        x, y, lengths = batch
        return (F.cross_entropy(m(x), y, reduction="none")/lengths).mean()
    x, y = data()
    assert found(net(), None, (x, y, torch.full((32,), 5)), "constant targets", call=call) == ["note"]
    def of_last(m, batch): return F.cross_entropy(m(batch[0]), batch[2])
    assert found(net(), None, (x, y, torch.full((32,), 2)), "constant targets", call=of_last) == ["likely"]


class Gap(nn.Module):
    "A series and a mask, which is not used."
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, mask): return self.net(x)


@pytest.mark.parametrize(("empty", "sure"), [(True, "note"), (False, "likely")])
def test_a_mask_of_zeros_hides_nothing_from_a_linear_layer(empty, sure):
    x, y = data()
    mask = torch.rand(32, 6) > .3
    if empty: x = x*mask
    batch = {"x": x, "mask": mask, "labels": y}
    assert found(Gap(), F.cross_entropy, batch, "mask ignored") == [sure]


@pytest.mark.parametrize(("shift", "sure"), [(0, None), (3, "note"), (1, "likely")])
def test_classes_that_nobody_has_seen(shift, sure):
    "Where training and validation have no class in common, classes are to be told apart by distance."
    x, y = data(300)
    other = torch.randn(300, 6), y + shift
    batches = [[(x[i:i + 30], y[i:i + 30]) for i in range(0, 300, 30)] for x, y in ((x, y), other)]
    rows = found(net(8), F.cross_entropy, batches[0], "validation differs from training", train=batches[0],
                 valid=batches[1])
    assert rows == ([sure] if sure else [])


class Blocks(nn.Module):
    "What the last block tells the edges is needed by nobody; with `cut`, neither is what the first tells the nodes."
    def __init__(self, cut=False):
        super().__init__()
        self.cut = cut
        self.blocks = nn.ModuleList(nn.ModuleDict({"node": nn.Linear(6, 6), "edge": nn.Linear(6, 6)}) for _ in range(2))
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        edge = x
        for i, block in enumerate(self.blocks):
            x = (block["node"](x) + edge).tanh()
            edge = block["edge"](x)
            if self.cut and i == 0: edge = edge.detach()
        return self.last(x)


@pytest.mark.parametrize(("cut", "sure"), [(False, "note"), (True, "possible")])
def test_part_of_the_last_block_may_be_needed_by_nobody(cut, sure):
    torch.manual_seed(0)
    rows = found(Blocks(cut), F.cross_entropy, data(), "not trained")
    assert rows == [sure] if not cut else rows != ["note"]


@pytest.mark.parametrize(("rate", "sure"), [(1e-2, "note"), (1e-5, "likely")])
def test_large_numbers_are_a_note_where_16_samples_are_learned(rate, sure):
    model = net()
    x, y = data()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    rows = found(model, F.cross_entropy, (x*100, y), "inputs not scaled", optimizer=optimizer, overfit=True, seconds=60)
    assert rows == [sure]


def test_a_large_number_that_hides_scores_hides_no_difference():
    def call(m, x):
        scores = m(x).masked_fill(torch.arange(3) == 1, -1e9)
        return F.cross_entropy(scores, (x[:, 0] > 0).long()*2)

    class Hides(nn.Sequential):
        def forward(self, x): return super().forward(x).masked_fill(torch.arange(3) == 1, -1e9)
    assert not found(Hides(*net()), None, data()[0], "input unused", call=call)
    assert not found(Hides(*net()), F.cross_entropy, data(), "input unused")
    assert found(Blind(), F.cross_entropy, data(), "input unused")


def test_a_loss_that_falls_without_end_has_no_right_rate():
    "Chances times rewards below zero."
    torch.manual_seed(0)
    x, tried, reward = torch.randn(32, 6), torch.arange(32) % 3, torch.randn(32)
    def call(m, batch): return (batch[2]*F.cross_entropy(m(batch[0]), batch[1], reduction="none")).mean()
    model = net()
    rate = torch.optim.SGD(model.parameters(), lr=1e4)
    assert not found(model, None, (x, tried, reward), "learning rate too large", call=call, optimizer=rate,
                     overfit=True)
    assert found(model, F.cross_entropy, (x, tried), "learning rate too large", optimizer=rate, overfit=True)


def test_batches_of_other_parts_are_not_compared():
    torch.manual_seed(0)
    def of(n, scale): return [(scale*torch.randn(16, 6), torch.arange(16) % 3) for _ in range(n)]
    two, three = of(8, 5.), [(x, x + 1, y) for x, y in of(8, 1.)]
    def call(m, batch): return F.cross_entropy(m(batch[0]), batch[-1])
    what = "validation differs from training"
    assert not found(net(), None, three, what, call=call, train=three, valid=two)
    assert found(net(), None, of(8, 1.), what, call=call, train=of(8, 1.), valid=two)


class Heads(nn.Module):
    "What a model says of the words after the next one."
    def __init__(self, n):
        super().__init__()
        self.word, self.gru = nn.Embedding(20, 16), nn.GRU(16, 16, batch_first=True)
        self.heads = nn.ModuleList(nn.Linear(16, 20) for _ in range(n))

    def forward(self, x):
        x = self.gru(self.word(x))[0]
        return [head(x).transpose(1, 2) for head in self.heads]


def test_heads_for_several_later_words():
    torch.manual_seed(0)
    x = torch.randint(20, (32, 11))
    def call(m, x): return sum(F.cross_entropy(out, x[:, 2 + i:9 + i]) for i, out in enumerate(m(x[:, :7])))
    what = "target too far ahead"
    assert found(Heads(1), None, x, what, call=call) == ["likely"]
    assert found(Heads(3), None, x, what, call=call) == ["note"]


class Memory(nn.Module):
    "A recurrent cell whose state a mask clears where a game has ended, and one without the mask."
    def __init__(self, clears):
        super().__init__()
        self.cell, self.last, self.clears = nn.GRUCell(6, 8), nn.Linear(8, 3), clears

    def forward(self, seen, mask):
        state = seen.new_zeros(len(seen), 8)
        for i in range(seen.size(1)):
            if self.clears: state = state*mask[:, i, None]
            state = self.cell(seen[:, i], state)
        return self.last(state)


@pytest.mark.parametrize(("clears", "sure"), [(True, "note"), (False, "likely")])
def test_a_mask_that_ends_a_memory_hides_nothing(clears, sure):
    torch.manual_seed(0)
    mask = (torch.rand(32, 5) > .3).float()
    batch = {"seen": torch.randn(32, 5, 6), "mask": mask, "labels": torch.arange(32) % 3}
    assert found(Memory(clears), F.cross_entropy, batch, "mask ignored") == [sure]


class Rays(nn.Module):
    "Colors, by where a ray begins and where it goes."
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, begin, way): return self.body(torch.cat([begin, way], 1))


def test_an_input_that_all_samples_share_beside_another_one():
    torch.manual_seed(0)
    begin, y = torch.randn(1, 3).expand(32, 3), torch.arange(32) % 3
    assert found(Rays(), F.cross_entropy, (begin, torch.randn(32, 3), y), "samples alike") == ["note"]
    assert found(Rays(), F.cross_entropy, (begin, begin + 1, y), "samples alike")[0] == "certain"


def test_copies_in_validation_where_training_has_as_many():
    torch.manual_seed(0)
    few, many = torch.randn(40, 6), torch.randn(400, 6)
    def batches(x): return [(part, torch.arange(len(part)) % 3) for part in x.split(20)]
    what = "validation repeats training"
    drawn, apart = batches(few[torch.randint(40, (400,))]), batches(many)
    assert found(net(), F.cross_entropy, drawn, what, train=drawn[:10], valid=drawn[10:]) == ["note"]
    assert found(net(), F.cross_entropy, apart, what, train=apart, valid=apart[10:]) == ["likely"]


class Onward(nn.Module):
    "One step of a recurrent net, with the state that the caller hands on, or without."
    def __init__(self, takes):
        super().__init__()
        self.rnn, self.last, self.takes = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3), takes

    def forward(self, x):
        state = x.new_zeros(1, len(x), 8) if self.takes else None
        return self.last(self.rnn(x[:, None], state)[0][:, 0])


@pytest.mark.parametrize(("takes", "sure"), [(True, "note"), (False, "likely")])
def test_a_state_that_the_caller_hands_on(takes, sure):
    torch.manual_seed(0)
    assert found(Onward(takes), F.cross_entropy, data(), "state is lost") == [sure]
