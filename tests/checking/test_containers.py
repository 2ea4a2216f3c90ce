"""preflight looks at models that only hold other models, as those of a GAN or of actor and critic do."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def layers(n_in, n_out): return nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, n_out))
def parts(): return nn.ModuleDict({"maker": layers(4, 6), "critic": layers(6, 1)})
def adams(*some): return [torch.optim.Adam(m.parameters(), 1e-2) for m in some]


class Agent(nn.Module):
    "Has no forward."
    def __init__(self):
        super().__init__()
        self.actor, self.critic = layers(4, 2), layers(4, 1)


def both_losses(model, batch):
    made = model["maker"](batch[0])
    return F.softplus(-model["critic"](made)).mean() + F.mse_loss(made, batch[1])


def agent_loss(model, batch):
    return F.cross_entropy(model.actor(batch[0]), batch[2]) + F.mse_loss(model.critic(batch[0]), batch[1][:, :1])


def value_loss(model, batch): return F.mse_loss(model.critic(batch[0]), batch[1][:, :1])


def batch():
    x = torch.randn(32, 4)
    return x, torch.cat([x, x[:, :2]*x[:, 2:]], 1), (x[:, 0] > 0).long()


def looked(model, call, optimizers, parts=2):
    torch.manual_seed(0)
    return hl.preflight(model, None, [batch()[:parts], batch()[:parts]], optimizers, call=call)


@pytest.mark.parametrize("make, call, n", [(parts, both_losses, 2), (Agent, agent_loss, 3)])
def test_a_container_is_looked_at_through_its_parts(make, call, n):
    torch.manual_seed(0)
    model = make()
    found = looked(model, call, adams(*model.children()), n)
    assert not list(found), f"{found!r}"
    assert "No sample changes the output of another." not in found.not_looked_at


def test_a_fault_in_a_part_of_a_container_is_found():
    class Mixes(nn.Module):
        def forward(self, x): return x - x.mean(0)
    torch.manual_seed(0)
    model = parts()
    model["maker"].append(Mixes())
    found = looked(model, both_losses, adams(*model.values()))
    assert [(f.what, f.layers) for f in found if f.sure != "note"] == [("samples leak", ["maker.3"])], f"{found!r}"


def test_a_part_that_is_never_called():
    torch.manual_seed(0)
    model = Agent()
    one, = adams(model)
    found = looked(model, value_loss, one)
    assert [(f.what, f.sure, f.layers) for f in found] == [("never ran", "likely", ["actor.0", "actor.2"])]


def test_a_part_with_an_optimizer_of_its_own_may_have_a_loss_of_its_own():
    torch.manual_seed(0)
    model = Agent()
    found = looked(model, value_loss, adams(model.actor, model.critic))
    assert [(f.what, f.sure) for f in found] == [("not trained", "note")], f"{found!r}"
    assert "another loss" in found.findings[0].evidence and found.findings[0].layers == ["actor.0", "actor.2"]


def test_a_container_without_layers():
    class Center(nn.Module):
        def __init__(self):
            super().__init__()
            self.at = nn.Parameter(torch.zeros(4))
    model = Center()
    found = looked(model, lambda model, batch: (batch[0] + 3 - model.at).square().mean(), adams(model), 1)
    assert not found, f"{found!r}"


def test_a_container_needs_call():
    with pytest.raises(TypeError, match="a Agent has no forward, .*call=lambda model, batch"):
        hl.preflight(Agent(), nn.MSELoss(), batch()[:2])


@pytest.mark.parametrize("mixes", [True, False])
def test_nodes_of_two_kinds_are_a_graph(mixes):
    "A matrix between the samples and those of another input says that they shall see each other."
    class Papers(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.theirs = layers(4, 8), layers(3, 8)
            self.last = nn.Linear(8, 1)

        def forward(self, papers, authors, edges):
            h = self.own(papers) + edges @ self.theirs(authors)
            return self.last(h + h.mean(0)) if mixes else self.last(h)
    torch.manual_seed(0)
    model, data = Papers(), (torch.randn(12, 4), torch.randn(5, 3), torch.rand(12, 5), torch.randn(12, 1))
    found = hl.preflight(model, None, data, adams(model), call=lambda m, batch: F.mse_loss(m(*batch[:3]), batch[3]))
    why = found.not_looked_at["No sample changes the output of another."]
    assert "samples leak" not in found and why == "the samples seem to be nodes of a graph"


@pytest.mark.parametrize("leaks", [True, False])
def test_edges_that_only_the_call_knows(leaks):
    "Samples are nodes too if the matrix between them comes from `call`, and no batch holds it."
    class Nodes(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.last = layers(4, 8), nn.Linear(8, 1)

        def forward(self, x, edges=None):
            h = self.own(x)
            return self.last(h + h.mean(0) if edges is None else edges @ h)
    torch.manual_seed(0)
    model, edges = Nodes(), torch.rand(12, 12)
    given = () if leaks else (edges,)
    found = hl.preflight(model, None, (torch.randn(12, 4), torch.randn(12, 1)), adams(model),
                         call=lambda m, batch: F.mse_loss(m(batch[0], *given), batch[1]))
    assert ("samples leak" in found) == leaks


@pytest.mark.parametrize("straight", [True, False])
def test_a_code_that_is_the_same_for_all(straight):
    "The output does not change with the input, and has a gradient by it where that goes straight through the code."
    class Coded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = layers(4, 2), layers(2, 1)

        def forward(self, x):
            z = self.inner(x)
            code = torch.ones_like(z)
            return self.outer(z + (code - z).detach() if straight else code + 0*z)
    torch.manual_seed(0)
    model = Coded()
    found = hl.preflight(model, F.mse_loss, (torch.randn(12, 4), torch.randn(12, 1)), adams(model))
    sure = next(f.sure for f in found if f.what == "input unused")
    assert sure == ("note" if straight else "certain")
