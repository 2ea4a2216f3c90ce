"""What preflight says of a loss and its targets: what does not fit, dimensions, sums, padding; and of what fits."""
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def mlp(n_out=5, *more): return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, n_out), *more)


def said(model, loss_fn, *batches, call=None, seed=0, overfit=False):
    "By its name, how sure each finding is and what it says."
    torch.manual_seed(seed)
    model, batches = model(), [batch() for batch in batches]
    with warnings.catch_warnings(action="ignore"):
        found = hl.preflight(model, loss_fn, batches if len(batches) > 1 else batches[0], call=call, overfit=overfit)
    return {f.what: (f.sure, f.evidence) for f in found}


def points(y, n=32): return lambda: (torch.randn(n, 20), y(n))
def k_classes(k=5): return points(lambda n: torch.arange(n) % k)


def conv(): return nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 3, 1))
def sequences(): return torch.randn(16, 4, 9), torch.randint(3, (16, 9))


def tokens(n=16, long=16, low=2):
    lengths = torch.randint(low, long + 1, (n, 1))
    return torch.randint(1, 20, (n, long)).masked_fill(torch.arange(long) >= lengths, 0)


def tagged():
    ids = tokens()
    return ids, (ids % 3 + 1)*(ids > 0)


def next_tokens():
    ids = tokens(long=17)
    return ids[:, :-1], ids[:, 1:]


def tagger(n_out=20):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(20, 16), nn.Linear(16, n_out)

        def forward(self, ids): return self.out(self.words(ids))
    return Tagger()


def flat_loss(**options): return lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten(), **options)


def own_masked(out, y):
    each = F.cross_entropy(out.mT, y, reduction="none")
    return (each*(y > 0)).sum()/(y > 0).sum()


class Distributions(nn.Module):
    "A cross-entropy of a student and what is wanted."
    def __init__(self, wanted_first=False, logs=True, **options):
        super().__init__()
        self.swapped, self.logs, self.options = wanted_first, logs, options

    def forward(self, out, y):
        made = out.log_softmax(1) if self.logs else out.softmax(1)
        wanted = F.one_hot(y, 5)*.8 + .04
        one, other = (wanted, made) if self.swapped else (made, wanted)
        return F.kl_div(one, other, reduction="batchmean", **self.options)


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(20, 8), nn.Linear(4, 20)

    def forward(self, x):
        mean, log_var = self.encode(x).chunk(2, 1)
        code = mean + torch.randn_like(mean)*(log_var/2).exp()
        return self.decode(code), mean, log_var


def variational(wrong, kl):
    def loss(model, x):
        out, mean, log_var = model(x)
        return wrong((out - x)**2) + kl(-.5*(1 + log_var - mean**2 - log_var.exp()))
    return loss


def over_samples(t): return t.sum(1).mean()
def inputs(): return torch.randn(32, 20)


def mlp_1(): return mlp(1)


FAULTS = {
    "-1 and 1 for yes or no": ("loss does not fit the targets", "certain", "(target + 1)/2", mlp_1,
        nn.BCEWithLogitsLoss(), points(lambda n: torch.randn(n, 1).sign())),
    "classes for yes or no": ("loss does not fit the targets", "certain", "cross_entropy", lambda: mlp(1),
        lambda out, y: F.binary_cross_entropy_with_logits(out[:, 0], y.float()), k_classes(4)),
    "pixels to 255 for yes or no": ("loss does not fit the targets", "certain", "ivide them by 255",
        lambda: mlp(20), nn.BCEWithLogitsLoss(), points(lambda n: torch.randint(256, (n, 20)).float())),
    "numbers for yes or no": ("loss does not fit the targets", "certain", "mse_loss", mlp_1,
        nn.BCEWithLogitsLoss(), points(lambda n: torch.randn(n, 1))),
    "0 and 1 for a margin": ("loss does not fit the targets", "certain", "2*target - 1", mlp_1,
        lambda out, y: F.soft_margin_loss(out[:, 0], y), points(lambda n: torch.arange(n) % 2)),
    "0 and 1 for pairs": ("loss does not fit the targets", "certain", "2*target - 1", mlp,
        lambda out, y: F.cosine_embedding_loss(out, out.roll(1, 1), y), points(lambda n: torch.arange(n) % 2)),
    "several classes at once": ("loss does not fit the targets", "likely", "binary_cross_entropy_with_logits", mlp,
        F.cross_entropy, points(lambda n: (torch.rand(n, 5) < .5).float())),
    "numbers for classes": ("loss does not fit the targets", "likely", "mse_loss", mlp, F.cross_entropy,
        points(lambda n: torch.randn(n, 5))),
    "classes beside five outputs": ("loss does not fit the targets", "certain", "cross_entropy", mlp,
        lambda out, y: F.mse_loss(out, y[:, None].float()), k_classes()),
    "classes beside five outputs, smooth": ("loss does not fit the targets", "certain", "cross_entropy", mlp, None,
        k_classes(), lambda model, batch: F.smooth_l1_loss(model(batch[0]), batch[1][:, None].float())),
    "classes as numbers": ("loss does not fit the targets", "note", "5 outputs", mlp_1,
        lambda out, y: F.mse_loss(out[:, 0], y.float()), k_classes()),
    "counts below zero": ("loss does not fit the targets", "certain", "are negative", mlp_1, nn.PoissonNLLLoss(),
        points(lambda n: torch.randn(n, 1))),
    "kl_div of probabilities": ("loss takes another form", "certain", "log_softmax", mlp, Distributions(logs=False),
        k_classes()),
    "kl_div, swapped": ("loss takes another form", "certain", "swapped", mlp, Distributions(True), k_classes()),
    "kl_div of two logarithms": ("loss takes another form", "certain", "log_target=True", mlp,
        lambda out, y: F.kl_div(out.log_softmax(1), (F.one_hot(y, 5)*.8 + .04).log(), reduction="batchmean"),
        k_classes()),
    "the exponential of counts twice": ("loss takes another form", "certain", "log_input=False", mlp_1,
        lambda out, y: F.poisson_nll_loss(out.exp(), y), points(lambda n: torch.poisson(torch.full((n, 1), 3.)))),
    "softplus before the exponential": ("loss takes another form", "likely", "log_input=False",
        lambda: mlp(1, nn.Softplus()), nn.PoissonNLLLoss(), points(lambda n: torch.poisson(torch.full((n, 1), 3.)))),
    "logits into ctc_loss": ("loss takes another form", "certain", "log_softmax", lambda: nn.Conv1d(4, 6, 1),
        lambda out, y: F.ctc_loss(out.permute(2, 0, 1), y, torch.full((16,), 9), torch.full((16,), 3)),
        lambda: (torch.randn(16, 4, 9), torch.randint(1, 6, (16, 3)))),
    "softmax over the batch": ("wrong axis", "likely", "dimension 0", lambda: mlp(5, nn.Softmax(0)),
        lambda out, y: -out[torch.arange(len(y)), y].log().mean(), k_classes()),
    "log_softmax over the batch, in the loss": ("wrong axis", "likely", "dimension 0", mlp,
        lambda out, y: F.nll_loss(F.log_softmax(out, 0), y), k_classes()),
    "softmax over the pixels": ("wrong axis", "likely", "dimension 2", lambda: nn.Sequential(conv(), nn.Softmax(2)),
        lambda out, y: F.nll_loss(out.log(), y), sequences),
    "one logit a sample": ("wrong axis", "likely", "binary_cross_entropy_with_logits",
        lambda: mlp(1, nn.Flatten(0)), F.cross_entropy, points(lambda n: (torch.rand(n) < .5).float())),
    "reshape in place of permute": ("wrong axis", "certain", "permute", conv,
        lambda out, y: F.cross_entropy(out.reshape(-1, 3), y.flatten()), sequences),
    "view before a loss over dimension 1": ("wrong axis", "certain", "permute", tagger,
        lambda out, y: F.cross_entropy(out.view(len(y), 20, -1), y), next_tokens),
    "a sum beside a mean": ("sum over the batch", "likely", "another is a mean", mlp_1,
        lambda out, y: F.mse_loss(out, y) + F.l1_loss(out, y, reduction="sum"), points(lambda n: torch.randn(n, 1))),
    "a sum of divergences, a mean of squares": ("sum over the batch", "likely", "another is a mean", Variational,
        None, inputs, variational(torch.mean, torch.sum)),
    "all are sums": ("sum over the batch", "note", "grows with the batch", mlp,
        nn.CrossEntropyLoss(reduction="sum"), k_classes()),
    "padded labels": ("padding counts", "likely", "are 0 at padded positions", lambda: tagger(4),
        flat_loss(), tagged),
    "padded next tokens": ("padding counts", "likely", "are 0 at padded positions", tagger,
        lambda out, y: F.cross_entropy(out.mT, y), next_tokens),
    "padded on the left, ids of their own": ("padding counts", "likely", "are 0 at padded positions",
        lambda: tagger(20), None, lambda: tokens().flip(1), lambda model, ids: F.cross_entropy(model(ids).mT, ids)),
    "all labels ignored": ("labels left out", "certain", "equal ignore_index", mlp,
        nn.CrossEntropyLoss(ignore_index=0), points(lambda n: torch.zeros(n).long())),
    "no weight": ("labels left out", "certain", "weight 0", mlp, nn.CrossEntropyLoss(torch.tensor([0., 0, 0, 1, 1])),
        k_classes(3)),
    "probabilities, not of a softmax": ("activation before the loss", "certain", "add up to 1",
        lambda: mlp(5, Shares()), F.cross_entropy, k_classes()),
    "softmax before a loss of one's own": ("activation before the loss", "certain", "softmax",
        lambda: mlp(5, nn.Softmax(1)), lambda out, y: -(out.gather(1, y[:, None])[:, 0]
        - out.logsumexp(1)).mean(), k_classes()),
    "targets below zero behind softplus": ("activation before the loss", "likely", "softplus",
        lambda: mlp(1, nn.Softplus()), nn.L1Loss(), points(lambda n: torch.randn(n, 1))),
    "L1 of targets in pixels, in the model": ("targets not scaled", "likely", "Targets have values of about",
        mlp_1, None, points(lambda n: 300 + 50*torch.randn(n, 1)),
        lambda model, batch: F.l1_loss(model(batch[0]), batch[1])),
}


class Shares(nn.Module):
    def forward(self, x): return x.square()/x.square().sum(1, keepdim=True)


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_the_loss_are_named_with_what_to_change(name):
    what, sure, change, *given = FAULTS[name]
    found = said(*given[:3], call=given[3] if len(given) > 3 else None)
    assert what in found, found
    assert found[what][0] == sure and change in found[what][1], found[what]


RIGHT = {
    "targets between 0 and 1": (lambda: mlp(20), nn.BCEWithLogitsLoss(), points(lambda n: torch.rand(n, 20))),
    "-1 and 1 for a margin": (lambda: mlp(1), lambda out, y: F.soft_margin_loss(out[:, 0], y),
        points(lambda n: torch.randn(n).sign())),
    "probabilities of classes": (mlp, F.cross_entropy, points(lambda n: torch.randn(n, 5).softmax(1))),
    "one-hot classes, some rows without": (mlp, F.cross_entropy,
        points(lambda n: F.one_hot(torch.arange(n) % 5, 5).float()*(torch.arange(n)[:, None] > 4))),
    "one-hot classes and squares": (lambda: mlp(5, nn.Softmax(1)), F.mse_loss,
        points(lambda n: F.one_hot(torch.arange(n) % 5, 5).float())),
    "whole numbers of several outputs": (mlp, F.mse_loss, points(lambda n: torch.randint(5, (n, 5)).float())),
    "yes or no and squares": (lambda: mlp(1), F.mse_loss, points(lambda n: torch.randint(2, (n, 1)).float())),
    "L1, sigmoid, yes or no": (lambda: mlp(1, nn.Sigmoid()), F.l1_loss,
        points(lambda n: torch.randint(2, (n, 1)).float())),
    "kl_div as it is meant": (mlp, Distributions(), k_classes()),
    "kl_div of two logarithms, as it is told": (mlp, lambda out, y: F.kl_div(out.log_softmax(1),
        (F.one_hot(y, 5)*.8 + .04).log(), reduction="batchmean", log_target=True), k_classes()),
    "counts": (lambda: mlp(1), nn.PoissonNLLLoss(), points(lambda n: torch.poisson(torch.full((n, 1), 3.)))),
    "counts behind softplus": (lambda: mlp(1, nn.Softplus()), nn.PoissonNLLLoss(log_input=False),
        points(lambda n: torch.poisson(torch.full((n, 1), 3.)))),
    "permute before a view": (conv, lambda out, y: F.cross_entropy(out.permute(0, 2, 1).reshape(-1, 3), y.flatten()),
        sequences),
    "classes in dimension 1": (conv, F.cross_entropy, sequences),
    "attention over places": (lambda: nn.Sequential(nn.Linear(8, 8), Attention(), nn.Linear(8, 5)), F.cross_entropy,
        lambda: (torch.randn(16, 9, 8), torch.arange(16) % 5)),
    "a pointer into the places": (lambda: nn.Sequential(nn.Linear(8, 1), nn.Flatten(1), nn.Softmax(1)),
        lambda out, y: F.nll_loss(out.log(), y), lambda: (torch.randn(16, 9, 8), torch.randint(9, (16,)))),
    "a likeness of all samples": (mlp, None, k_classes(),
        lambda model, batch: F.cross_entropy((out := model(batch[0])) @ out.T, torch.arange(len(out)))),
    "a ranking of the batch": (lambda: mlp(1, nn.Flatten(0)), lambda out, y: F.cross_entropy(out, y.softmax(0)),
        points(lambda n: torch.randn(n))),
    "means only": (Variational, None, inputs, variational(over_samples, over_samples)),
    "a penalty on weights beside a sum": (lambda: mlp(1), None, points(lambda n: torch.randn(n, 1)),
        lambda model, batch: F.mse_loss(model(batch[0]), batch[1]) + 1e-3*sum(p.square().sum() for p in
        model.parameters())),
    "a small sum beside a mean": (lambda: mlp(1), lambda out, y: F.mse_loss(out, y) + out.square().sum()/len(out),
        points(lambda n: torch.randn(n, 1))),
    "padding is ignored": (lambda: tagger(4), flat_loss(ignore_index=0), tagged),
    "padding is masked": (tagger, own_masked, next_tokens),
    "labels are zero elsewhere too": (lambda: tagger(4), flat_loss(),
        lambda: (ids := torch.randint(20, (16, 12)), (ids % 3).flip(1))),
    "a short end": (tagger, lambda out, y: F.cross_entropy(out.mT, y),
        lambda: ((ids := F.pad(torch.randint(1, 20, (16, 12)), (0, 1)))[:, :-1], ids[:, 1:])),
    "most labels are masked": (tagger, flat_loss(), lambda: ((ids := torch.randint(1, 20, (16, 12))),
        torch.where(torch.rand(16, 12) < .15, ids, -100))),
}


class Attention(nn.Module):
    def forward(self, x): return ((x @ x.mT).softmax(2) @ x).mean(1)


@pytest.mark.parametrize("name", RIGHT)
def test_what_fits_is_left_alone(name):
    model, loss_fn, batch, *call = RIGHT[name]
    found = said(model, loss_fn, batch, call=call[0] if call else None)
    mine = {"loss does not fit the targets", "loss takes another form", "wrong axis", "sum over the batch",
            "padding counts", "labels left out", "activation before the loss"}
    assert not mine & {*found}, found


class Pointer(nn.Module):
    "A score for each place, among which the label chooses."
    def __init__(self):
        super().__init__()
        self.hidden, self.score = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x): return self.score(self.hidden(x).tanh()).squeeze(-1)


def test_a_label_may_choose_among_places():
    torch.manual_seed(0)
    batch = torch.randn(16, 6, 8), torch.randint(6, (16,))
    assert "wrong axis" not in hl.preflight(Pointer(), F.cross_entropy, batch, overfit=False)
