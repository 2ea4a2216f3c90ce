"""A recurrent model that gives each step the same state, or the state of the step before without its graph."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


class OwnCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_input, self.of_state = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, state): return (self.of_input(x) + self.of_state(state)).tanh()


class Reader(nn.Module):
    "Reads words one by one; `read(model, words, first state)` returns a state or outputs."
    def __init__(self, read):
        super().__init__()
        torch.manual_seed(0)
        self.word, self.read, self.last = nn.Embedding(20, 8), read, nn.Linear(8, 3)
        self.cell, self.memory, self.own = nn.GRUCell(8, 8), nn.LSTMCell(8, 8), OwnCell()
        self.rnn = nn.GRU(8, 8, batch_first=True)

    def forward(self, x):
        x = self.word(x)
        return self.last(self.read(self, x, x.mean(1)))


def found_in(read, what):
    torch.manual_seed(1)
    batch = torch.randint(0, 20, (16, 6)), torch.arange(16) % 3
    found = hl.preflight(Reader(read), F.cross_entropy, batch, overfit=False)
    return [(f.sure, f.evidence) for f in found if f.what == what and ("called" in f.evidence or "step" in f.evidence)]


def cell_starts_over(m, x, first): return sum(m.cell(word, first) for word in x.unbind(1))
def layer_starts_over(m, x, first): return sum(m.rnn(x[:, i:i + 1], first[None])[0][:, 0] for i in range(6))


def state_under_another_name(m, x, first):
    outputs = []
    for word in x.unbind(1):
        new = m.cell(word + (outputs[-1] if outputs else 0), first)
        outputs.append(new)
    return torch.stack(outputs, 1).mean(1)


def memory_starts_over(m, x, first):
    state = first
    for word in x.unbind(1): state, _ = m.memory(word, (state, first))
    return state


def own_starts_over(m, x, first): return sum(m.own(word, first) for word in x.unbind(1))


@pytest.mark.parametrize("read, sure", [(cell_starts_over, "likely"), (layer_starts_over, "likely"),
    (state_under_another_name, "likely"), (memory_starts_over, "likely"), (own_starts_over, "note")])
def test_a_state_that_is_always_the_same(read, sure):
    (how_sure, said), *others = found_in(read, "state is lost")
    assert how_sure == sure and not others and "6 times" in said


def goes_on(m, x, state):
    for word in x.unbind(1): state = m.cell(word, state)
    return state


def two_directions(m, x, first): return m.rnn(x, first[None])[0].mean(1) + m.rnn(x.flip(1), first[None])[0].mean(1)
def sentences(m, x, first): return sum(m.rnn(part, first[None])[0].mean(1) for part in x.split(2, 1))


@pytest.mark.parametrize("read", [goes_on, two_directions, sentences], ids=lambda read: read.__name__)
def test_a_state_that_goes_on_or_begins_a_sentence(read): assert not found_in(read, "state is lost")


def as_data(m, x, state):
    for word in x.unbind(1): state = m.cell(word, state.data)
    return state


def as_numbers(m, x, state):
    for word in x.unbind(1): state = m.own(word, torch.tensor(state.tolist()))
    return state


def of_layers(m, x, state):
    state = state[None]
    for i in range(6): _, state = m.rnn(x[:, i:i + 1], state.detach())
    return state[0]


def early_ones_without(m, x, state):
    with torch.no_grad():
        for word in x.unbind(1)[:4]: state = m.cell(word, state)
    for word in x.unbind(1)[4:]: state = m.cell(word, state)
    return state


def without_means(read): return lambda m, x, first: read(m, x, torch.zeros_like(first))


@pytest.mark.parametrize("read", [as_data, as_numbers, of_layers, early_ones_without], ids=lambda read: read.__name__)
def test_places_that_change_the_loss_without_a_gradient(read):
    (sure, said), *others = found_in(without_means(read), "gradient is cut")
    assert sure == "likely" and not others and "of 6" in said


def last_one_only(m, x, first): return m.own(x[:, -1], first)
def largest(m, x, first): return x.amax(1)
def every_place(m, x, state):
    outputs = []
    for word in x.unbind(1):
        state = m.cell(word, state.detach())
        outputs.append(state)
    return torch.stack(outputs, 1).mean(1)


@pytest.mark.parametrize("read", [goes_on, last_one_only, largest, every_place], ids=lambda read: read.__name__)
def test_places_that_have_a_gradient_or_no_effect(read): assert not found_in(without_means(read), "gradient is cut")


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_first_layer_to_which_the_loss_does_not_lead(one_by_one):
    class Idle(nn.Module):
        "Its first layer makes places of which nothing is used."
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            for t in x.unbind(1) if one_by_one else [x]: self.first(t)
            return self.last(x.mean(1))

    batch = torch.randn(8, 6, 4), torch.arange(8) % 3
    found = hl.preflight(Idle(), nn.CrossEntropyLoss(), batch, overfit=False)
    assert "Gradients flow back along a sequence." not in found.not_looked_at
    assert not [f for f in found if f.what == "gradient is cut"]
