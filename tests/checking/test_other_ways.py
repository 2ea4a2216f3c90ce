"""preflight finds a kind of fault in whichever way code has it, and not in what is like it and meant."""
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:Using a target size")]


def few(names, cases, n=2):
    "Cases of which all but the first ones are slow."
    def marked(case): return pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow)
    return pytest.mark.parametrize(names, [*cases[:n], *map(marked, cases[n:])])


class Flat(nn.Module):
    "A function of the input and of some layers."
    def __init__(self, f, **layers):
        super().__init__()
        self.f = f
        for name, m in layers.items(): setattr(self, name, m)

    def forward(self, *args): return self.f(self, *args)


def points(n=24, width=20): return torch.randn(n, width), torch.arange(n) % 5


def said(what, model, batch=None, loss_fn=F.cross_entropy, **options):
    "What preflight says of one finding: how sure and why."
    torch.manual_seed(1)
    batch = points() if batch is None else batch
    if "call" in options: loss_fn = None
    found = hl.preflight(model, loss_fn, batch, torch.optim.Adam(model.parameters(), 1e-3), overfit=False, **options)
    return [(f.sure, f.evidence) for f in found if f.what == what]


# ---- Layers that a model keeps where torch does not look

def kept(keep, ask):
    head = nn.Sequential(nn.Dropout(.1), nn.Linear(32, 5))
    model = Flat(lambda m, x: ask(m)(m.a(x).relu()), a=nn.Linear(20, 32))
    keep(model, head)
    return model


def keeps_function(m, head): m.function = lambda x: head(x)
def keeps_settings(m, head): m.config = SimpleNamespace(heads={"topic": head})
def keeps_object(m, head): m.inner = SimpleNamespace(parts=SimpleNamespace(last=head))


@few(("keep", "ask"), [
    (keeps_settings, lambda m: m.config.heads["topic"]), (keeps_object, lambda m: m.inner.parts.last),
    (keeps_function, lambda m: m.function), (lambda m, head: setattr(m, "f2", partial(head)), lambda m: m.f2),
    (lambda m, head: setattr(m, "pairs", {("a", head)}), lambda m: next(iter(m.pairs))[1])])
def test_layers_kept_by_another_object(keep, ask):
    (sure, evidence), = said("not registered", kept(keep, ask))
    assert sure == "likely" and "stored in a plain list, dict, or object" in evidence


def test_layers_that_an_object_and_the_model_keep():
    def keep(m, head): m.config, m.head = SimpleNamespace(head=head), head
    assert not said("not registered", kept(keep, lambda m: m.config.head))
    def look(m, head): m.head, m.settings = head, SimpleNamespace(width=3, owner=m)
    assert not said("not registered", kept(look, lambda m: m.head))


# ---- Rows of layers

def net(between, *pools):
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), between(), pools[0](), nn.Conv2d(6, 8, 3, padding=1), between(),
                         pools[1](), nn.Flatten(), nn.Linear(32, 5))


def pictures(): return torch.randn(24, 1, 8, 8), torch.arange(24) % 5
def pool(): return nn.MaxPool2d(2)


class Signs(nn.Module):
    "A sign whose gradient goes straight through."
    def forward(self, x): return x + (x.sign() - x).detach()


@few(("make", "batch"), [
    (lambda: net(nn.Identity, pool, pool), pictures),
    (lambda: net(nn.Dropout, pool, lambda: nn.AvgPool2d(2)), pictures),
    (lambda: nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16), nn.Linear(16, 16), nn.BatchNorm1d(16),
                           nn.Linear(16, 5)), points),
    (lambda: nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 16), nn.Linear(16, 12), nn.Linear(12, 5)),
     points),
    (lambda: Flat(lambda m, x: m.c(m.b(m.a(x.tanh()))), a=nn.Linear(20, 60), b=nn.Linear(60, 40), c=nn.Linear(40, 5)),
     points)])
def test_rows_of_layers_without_an_activation(make, batch):
    torch.manual_seed(0)
    (sure, _), = said("no non-linearity", make(), batch())
    assert sure == "likely"


@few(("make", "batch"), [
    (lambda: net(nn.ReLU, pool, pool), pictures), (lambda: net(Signs, pool, pool), pictures),
    (lambda: nn.Sequential(nn.Linear(20, 16), nn.LayerNorm(16), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 5)),
     points),
    (lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3), nn.Linear(3, 16), nn.ReLU(),
                           nn.Linear(16, 5)), points),
    (lambda: Flat(lambda m, x: m.a(x) + m.b(x) + m.c(x), a=nn.Linear(20, 5), b=nn.Linear(20, 5), c=nn.Linear(20, 5)),
     points)])
def test_rows_that_bend_or_are_narrow(make, batch): assert not said("no non-linearity", make(), batch())


# ---- Layers in two lists

def twice(copies, far=1.):
    down = [nn.Linear(20, 20), nn.BatchNorm1d(20)]
    up = copies(down)
    def f(m, x):
        for layer in m.down: x = layer(x)
        x = far*x.relu() + far - 1
        for layer in m.up: x = layer(x)
        return x
    return Flat(f, down=nn.ModuleList(down), up=nn.ModuleList(up))


def test_a_list_made_of_another_one():
    (sure, evidence), = said("one layer for several", twice(lambda down: down[::-1]))
    assert sure == "note" and "down.1, up.0 are the same BatchNorm1d, and 1 more layers" in evidence
    assert [s for s, _ in said("one layer for several", twice(lambda down: down[::-1], 30.))] == ["likely"]
    def anew(down): return [nn.BatchNorm1d(20), nn.Linear(20, 20)]
    assert not said("one layer for several", twice(anew, 30.))


# ---- Rounding

def durations(step):
    def call(m, batch):
        x, y = batch
        return F.mse_loss(step(m.a(x).exp()), y[:, None].float()) + m.b(x).square().mean()
    return said("term without gradient", Flat(None, a=nn.Linear(20, 1), b=nn.Linear(20, 1)), call=call)


@few("step", [torch.ceil, torch.round, torch.floor, lambda t: (t - 1).sign(), lambda t: t.trunc() + 1])
def test_a_loss_of_rounded_numbers(step):
    found = [(sure, evidence) for sure, evidence in durations(step) if ", whose gradient is zero" in evidence]
    assert [sure for sure, _ in found] == ["likely"] and "a.weight, a.bias reach the loss only through" in found[0][1]


def test_rounding_beside_a_gradient():
    for step in (lambda t: t + (t.round() - t).detach(), lambda t: t - t.floor()):
        assert not [one for one in durations(step) if ", whose" in one[1]]


# ---- Numbers in 16 bits

def turned(dtype, n=400):
    def f(m, x):
        angle = (torch.arange(n, n + 20).to(dtype)*m.a.weight.new_ones(1, dtype=dtype)).cos()
        return m.a(x + angle.float())
    return Flat(f, a=nn.Linear(20, 5))


def test_places_in_16_bits():
    (sure, evidence), = said("lost in rounding", turned(torch.bfloat16))
    assert sure == "likely" and "20 different integers up to 420 are" in evidence and "angles go up to" in evidence
    assert not said("lost in rounding", turned(torch.float32)) + said("lost in rounding", turned(torch.bfloat16, 0))


def test_angles_that_were_cast_when_they_were_rounded():
    def turned(m, x, kind):
        places, frequency = torch.arange(400., 420)[:, None], m.a.weight.new_tensor([1., .3, .09, .027])
        angle = (places.to(kind)*frequency.to(kind)).float()
        return m.a(x + angle.cos().sum(1))
    (sure, evidence), = said("lost in rounding", Flat(partial(turned, kind=torch.bfloat16), a=nn.Linear(20, 5)))
    assert "angles go up to" in evidence and "in bfloat16" in evidence
    assert not said("lost in rounding", Flat(partial(turned, kind=torch.float32), a=nn.Linear(20, 5)))
    whole = Flat(lambda m, x: m.a(x + torch.arange(400., 420).cos()), a=nn.Linear(20, 5))
    assert not said("lost in rounding", whole)


@few("limit", [
    lambda p: p.clamp(max=1 - 1e-6), lambda p: torch.minimum(p, p.new_tensor(1 - 1e-6)),
    lambda p: p.clamp(1e-6, 1 - 1e-6), lambda p: torch.where(p > .9, p.new_full((), 1 - 1e-6), p)])
def test_limits_of_one_in_16_bits(limit):
    def call(dtype, m, batch): return -(1 - limit(m(batch[0]).to(dtype).sigmoid()*.5)).log().float().mean()
    (sure, evidence), = said("epsilon is lost", nn.Linear(20, 1), call=partial(call, torch.bfloat16))
    assert sure == "likely" and "1 - 1e-06 is 1 in bfloat16" in evidence
    assert not said("epsilon is lost", nn.Linear(20, 1), call=partial(call, torch.float32))


# ---- Columns and rows

@few("loss", [
    F.smooth_l1_loss, F.mse_loss, F.l1_loss, lambda made, wanted: (made - wanted).square().mean(),
    lambda made, wanted: (wanted - made).abs().mean()])
@pytest.mark.parametrize("column", [False, True])
def test_a_target_made_of_a_column_and_a_row(loss, column):
    def call(m, batch):
        reward = batch[1][:, None].float() if column else batch[1].float()
        with torch.no_grad(): wanted = reward + .9*m(batch[0]).max(1, keepdim=True).values
        return loss(m(batch[0]).gather(1, batch[1][:, None]), wanted)
    assert len(said("labels broadcast", nn.Linear(20, 5), call=call)) == (not column)


def test_distances_of_all_to_all_are_meant():
    def call(m, batch):
        z = m(batch[0])
        with torch.no_grad(): far = (z**2).sum(1, keepdim=True) + (z**2).sum(1) - 2*z @ z.T
        return ((z**2).sum(1, keepdim=True) + (z**2).sum(1) - 2*z @ z.T - far - 1).square().mean()
    assert not said("labels broadcast", nn.Linear(20, 5), call=call)


# ---- Pairs

def paired(loss):
    def call(m, batch):
        a, b = F.normalize(m.a(batch[0]), dim=1), F.normalize(m.b(batch[0]), dim=1)
        return loss(a @ b.T)
    return said("wrong sign", Flat(None, a=nn.Linear(20, 8), b=nn.Linear(20, 8)), call=call)


def of_classes(scores): return F.cross_entropy(scores, torch.arange(len(scores)))
def of_signs(scores): return F.softplus(-scores*(2*torch.eye(len(scores)) - 1)).mean()


@few("loss", [
    lambda s: -of_classes(s/.1), lambda s: of_classes(-s/.1), lambda s: of_signs(-s/.1),
    lambda s: s.diagonal().mean() - s.mean(), lambda s: -(of_classes(s) + of_classes(s.T))/2])
def test_pairs_that_are_pushed_apart(loss): assert [sure for sure, _ in paired(loss)] == ["likely"]


@few("loss", [
    lambda s: of_classes(s/.1), lambda s: of_signs(s/.1), lambda s: (s - torch.eye(len(s))).square().mean(),
    lambda s: (.5 + s - s.diagonal()[:, None]).relu().mean(), lambda s: s.square().mean()])
def test_pairs_that_are_not(loss): assert not paired(loss)


# ---- Places

def causal(n): return nn.Transformer.generate_square_subsequent_mask(n)


class Writer(nn.Module):
    "Reads a source, and writes a target; each word of it sees all others, or those before it."
    def __init__(self, hides):
        super().__init__()
        self.hides, self.words = hides, nn.Embedding(20, 16)
        self.reads, self.layer = (nn.TransformerEncoderLayer(16, 2, 16, 0., batch_first=True) for _ in range(2))
        self.last = nn.Linear(16, 20)

    def forward(self, source, target):
        x = self.words(target) + self.reads(self.words(source)).mean(1, keepdim=True)
        return self.last(self.layer(x, src_mask=causal(x.size(1)) if self.hides else None))


def texts(pad=0, end=0):
    "Texts of 3 to 7 words, an end, and padding."
    n, words = torch.randint(3, 8, (24, 1)), torch.randint(2, 20, (24, 9))
    place = torch.arange(9)
    return torch.where(place < n, words, torch.where(place == n, end, pad))


def writes(m, batch, pad=-1):
    source, target = batch
    wanted = target[:, 1:].masked_fill(target[:, 1:] == pad, -100)
    return F.cross_entropy(m(source, target[:, :-1]).transpose(1, 2), wanted)


def test_a_target_that_call_gives_to_the_model():
    torch.manual_seed(0)
    batch = torch.randint(2, 20, (24, 9)), torch.randint(2, 20, (24, 9))
    assert [s for s, _ in said("later places are seen", Writer(False), batch, call=writes)] == ["likely"]
    assert not said("later places are seen", Writer(True), batch, call=writes)


def test_padding_with_a_vector_of_zeros():
    def f(m, x):
        real = x > 0
        keys = m.words(x)[:, None]
        mask = (real if m.right else ~real)[:, None, None]
        ask = m.ask.expand(len(x), 1, 1, 16)
        return m.last(F.scaled_dot_product_attention(ask, keys, keys, attn_mask=mask).flatten(1))
    torch.manual_seed(0)
    model = Flat(f, words=nn.Embedding(20, 16, padding_idx=0), last=nn.Linear(16, 5))
    model.ask = nn.Parameter(torch.randn(16))
    for model.right, found in ((False, ["likely"]), (True, [])):
        assert [s for s, _ in said("mask ignored", model, (texts(), torch.arange(24) % 5))] == found


class Filler(nn.Module):
    "Gets a series with a gap, and returns all of it."
    def __init__(self, hide):
        super().__init__()
        self.hide, self.token = hide, nn.Parameter(torch.randn(4))
        self.a, self.b, self.beside = nn.Linear(4, 32), nn.Linear(32, 4), nn.Linear(8, 4)

    def forward(self, x, gap): return self.b(self.a(self.hide(self, x, gap)).relu())


def filled(hide, loss):
    "What is said of a mask."
    def call(m, batch): return loss((m(*batch) - batch[0]).square().mean(2), batch[1])
    torch.manual_seed(0)
    start = torch.randint(1, 9, (24, 1))
    gap = (torch.arange(16) >= start) & (torch.arange(16) < start + 6)
    return [s for s, _ in said("mask ignored", Filler(hide), (torch.randn(24, 16, 4), gap), call=call)]


HIDES = [lambda m, x, gap: x.masked_fill(gap[..., None], 0.), lambda m, x, gap: x*(~gap)[..., None],
         lambda m, x, gap: torch.where(gap[..., None], m.token, x),
         lambda m, x, gap: m.beside(torch.cat([x.masked_fill(gap[..., None], 0.), torch.randn_like(x)], 2))]


@few("hide", HIDES, 1)
def test_a_loss_of_what_is_given(hide):
    assert filled(hide, lambda loss, gap: loss[~gap].mean()) == ["likely"]
    assert filled(hide, lambda loss, gap: (loss*~gap).sum()/gap.sum()) == ["likely"]
    assert not filled(hide, lambda loss, gap: loss[gap].mean())
    assert not filled(hide, lambda loss, gap: loss.mean())


# ---- Parameters of zeros

@few("scaled", [
    lambda p: p/p.norm(dim=1, keepdim=True), lambda p: p/p.square().sum().sqrt(), lambda p: (p - p.mean())/p.std(),
    lambda p: p/p.abs().sum(1, keepdim=True), lambda p: p.div(p.abs().max())])
def test_a_parameter_of_zeros_that_is_divided_by_its_size(scaled):
    model = Flat(lambda m, x: m.a(x) + x @ scaled(m.p).T, a=nn.Linear(20, 5))
    model.p = nn.Parameter(torch.zeros(5, 20))
    assert [s for s, _ in said("not initialised", model)] == ["certain"]
    nn.init.normal_(model.p)
    assert not said("not initialised", model)
    model.f = lambda m, x: m.a(x) + x @ F.normalize(m.p + 1e-3, dim=1).T
    nn.init.zeros_(model.p)
    assert not said("not initialised", model)


# ---- Rows of data

def asked(what, x, y, valid=None, loss_fn=F.cross_entropy, call=None, model=None):
    "What is said of data sets of these samples."
    torch.manual_seed(1)
    def batches(*parts): return [*zip(*(p.split(40) for p in parts))]
    model = model or nn.Linear(x.size(1), y.size(1) if y.is_floating_point() else 4)
    train = batches(x, y)
    found = hl.preflight(model, None if call else loss_fn, train[:2], train=train, valid=valid and batches(*valid),
                         overfit=False, call=call)
    return [(f.sure, f.evidence) for f in found if f.what == what]


def clusters(n=400):
    y = torch.randint(4, (n,))
    return 3*torch.eye(4, 12)[y] + .7*torch.randn(n, 12), y


@few("renamed", [[1, 0, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0], [0, 2, 3, 1]])
def test_classes_with_other_numbers(renamed):
    torch.manual_seed(0)
    x, y = clusters()
    new, labels = clusters(200)
    what = "validation differs from training"
    (sure, evidence), = asked(what, x, y, (new, torch.tensor(renamed)[labels]))
    assert sure == "likely" and "a different order" in evidence
    assert not asked(what, x, y, (new, labels))
    assert not asked(what, x, y, (new, torch.randint(4, (200,))))


def test_rows_that_are_moved_by_one():
    torch.manual_seed(0)
    (x, y), what = clusters(), "inputs of other rows"
    for by, found in ((1, ["likely"]), (-1, ["note"]), (0, []), (7, [])):
        assert [s for s, _ in asked(what, x, y.roll(by))] == found
    numbers = x[:, :3] @ torch.randn(3, 2)
    for by, found in ((1, ["likely"]), (-1, ["note"]), (0, []), (7, [])):
        assert [s for s, _ in asked(what, x, numbers.roll(by, 0), loss_fn=F.mse_loss)] == found


def test_one_input_for_several_rows():
    torch.manual_seed(0)
    x, what = torch.randn(400, 6), "inputs of other rows"
    y = x[:, :2] - x[:, 2:4]
    assert [s for s, _ in asked(what, x[torch.arange(400)//8*8], y, loss_fn=F.mse_loss)] == ["possible"]
    order = torch.randperm(400)
    assert [s for s, _ in asked(what, x[torch.arange(400)//8*8][order], y[order], loss_fn=F.mse_loss)] == ["possible"]
    same = torch.arange(400)//8*8
    assert not asked(what, x[same], y[same] + .1*torch.randn(400, 2), loss_fn=F.mse_loss)
    assert not asked(what, x, y, loss_fn=F.mse_loss)


@pytest.mark.parametrize(("lag", "n"), [(0, 0), (1, 0), (-1, 1)])
def test_a_series_beside_its_causes(lag, n):
    torch.manual_seed(0)
    push, noise = torch.randn(160, 10, 2), .1*torch.randn(160, 10, 2)
    place = (push + noise).cumsum(1).roll(1, 1)
    place[:, 0] = 0
    x, y = place[:, 2:8], push[:, 2 - lag:8 - lag] if lag <= 0 else push[:, 1:7]
    def call(m, batch): return F.mse_loss(m(torch.cat([batch[0][:, :5], batch[1][:, :5]], 2)), batch[0][:, 1:])
    found = asked("inputs of other rows", x, y, call=call, model=nn.Linear(4, 2))
    assert [s for s, _ in found] == n*["possible"]


def test_targets_far_from_zero():
    torch.manual_seed(0)
    x = torch.randn(40, 20)
    for mean, std, n in ((18, 3, 1), (15, 2, 1), (4, .5, 0), (12, 8, 0)):
        y = mean + std*torch.randn(40, 1)
        assert len(said("targets not scaled", nn.Linear(20, 1), (x, y), F.mse_loss)) == n


# ---- Samples

def test_a_scale_of_the_whole_batch():
    class Coarse(nn.Linear):
        def forward(self, x):
            unit = x.detach().abs().mean()/15
            return super().forward(x + ((x/unit).round()*unit - x).detach())
    def leaks(f): return [s for s, _ in said("samples leak", Flat(f, a=Coarse(20, 32), b=Coarse(32, 5)))]
    assert leaks(lambda m, x: m.b(m.a(x).relu())) == ["note"]
    assert leaks(lambda m, x: m.b(m.a(x).relu()/m.a(x).relu().max())) == ["likely"]
    assert leaks(lambda m, x: m.b(m.a(x).relu() - m.a(x).relu().mean(0))) == ["likely"]


def test_points_of_one_pair_are_no_samples():
    def f(m, x, places): return (m.a(x.mT) @ m.a(x.mT).mT + m.b(places.mT))[0]
    model = Flat(f, a=nn.Linear(16, 8), b=nn.Linear(2, 1))
    batch = torch.randn(1, 16, 16), torch.randn(1, 2, 16), torch.randperm(16)
    assert not said("samples leak", model, batch)

# ---- Numbers that float16 does not hold

def in_half(f):
    def call(m, batch):
        x, y = batch
        return f(m(x).half(), y.half()).float()
    return call


@few("f", [
    lambda out, y: 1 - (out.sigmoid()*y[:, None]*2e4).sum()/(y*2e4).sum(),
    lambda out, y: ((out*300)**2).mean(), lambda out, y: (out*12).exp().sum(1).log().mean(),
    lambda out, y: F.mse_loss(out*400, out.detach()), lambda out, y: ((out*9).float()*1e5).half().mean()])
def test_a_result_beyond_float16(f):
    torch.manual_seed(0)
    batch = torch.randn(24, 20)*3, torch.ones(24)
    (sure, evidence), = said("float16 limit", nn.Linear(20, 5), batch, call=in_half(f))
    assert sure == "certain" and "returns Inf in float16, whose maximum is 65,504" in evidence
    # so does what is infinite in float32 as well, and a mask, but these are no limit of float16
    for other in (lambda out, y: ((out*0)**-1).mean(), lambda out, y: (out - (1 - y[:, None])*1e9).softmax(1).amax()):
        assert not said("float16 limit", nn.Linear(20, 5), batch, call=in_half(other))


@few("f", [lambda out: F.normalize(out, dim=1), lambda out: F.normalize(out, eps=1e-10),
           lambda out: F.normalize(out, 2., 1, 1e-9)])
def test_the_guard_of_a_function(f):
    batch = torch.cat([torch.zeros(2, 20), torch.randn(22, 20)]), torch.ones(24)
    def call(m, batch, half): return f(m(batch[0]).to(half)).float().square().sum(1).mean()
    model = nn.Linear(20, 5, bias=False)
    (sure, evidence), = said("epsilon is lost", model, batch, call=partial(call, half=torch.float16))
    assert sure == "likely" and "the eps of `normalize`, is 0 in float16" in evidence
    assert not said("float16 limit", model, batch, call=partial(call, half=torch.float16))
    assert not said("epsilon is lost", model, batch, call=partial(call, half=torch.float32))

# ---- Padding

def padded_texts(n=24, long=9):
    "Words that follow each other, and behind them zeros."
    lengths = 2 + torch.arange(n) % (long - 3)
    return torch.where(torch.arange(long) < lengths[:, None], torch.randint(1, 12, (n, long)), 0)


class NextWord(nn.Module):
    def __init__(self, n=20):
        super().__init__()
        self.word, self.gru, self.last = nn.Embedding(n, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, n)

    def forward(self, x): return self.last(self.gru(self.word(x))[0]).transpose(1, 2)


def next_word(m, x, **ignore): return F.cross_entropy(m(x[:, :-1]), x[:, 1:], **ignore)


def with_kind(m, x, **ignore):  # a text and behind it the answer, of other words
    both = torch.cat([x, 15 + x[:, :4] % 4], 1)
    return F.cross_entropy(m(both).flip(2), both, **ignore)


def in_rows(m, x, **ignore): return F.cross_entropy(m(x).transpose(1, 2)[:, :-1].reshape(-1, 20),
                                                    x[:, 1:].reshape(-1), **ignore)


@few("loss", [next_word, with_kind, in_rows])
def test_padding_counts_wherever_the_text_is_among_the_labels(loss):
    torch.manual_seed(0)
    (sure, evidence), = said("padding counts", NextWord(), padded_texts(), call=loss)
    assert sure == "likely" and "of the labels that count are 0 at padded positions" in evidence
    assert not said("padding counts", NextWord(), padded_texts(), call=partial(loss, ignore_index=0))


class Judge(nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.word, self.attention = nn.Embedding(20, 16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.kind, self.last, self.causal = nn.Embedding(2, 16), nn.Linear(16, 5), causal

    def forward(self, x, kind, mask):
        v = self.word(x) + self.kind(kind)
        later = torch.ones(x.size(1), x.size(1)).triu(1).bool() if self.causal else None
        out = self.attention(v, v, v, key_padding_mask=mask == 0, attn_mask=later)[0]
        return self.last(out).mean(2)[:, :5] if self.causal else self.last(out[:, 0])


def test_a_mask_that_shows_the_padding():
    torch.manual_seed(0)
    x, y = padded_texts(), torch.arange(24) % 5
    kind, shown = (torch.arange(9) > 3).long().expand(24, 9)*(x > 0), (x > 0).long()
    (sure, evidence), = said("mask ignored", Judge(), {"x": x, "kind": kind, "mask": torch.ones_like(x), "labels": y})
    assert sure == "likely" and evidence.startswith("mask is 1 everywhere, even where x is padded")
    assert not said("mask ignored", Judge(), {"x": x, "kind": kind, "mask": shown, "labels": y})
    whole = torch.randint(1, 12, (24, 9))
    assert not said("mask ignored", Judge(), {"x": whole, "kind": kind, "mask": torch.ones_like(x), "labels": y})

# ---- Numbers in the place of terms

def two_terms(number):
    def call(m, batch):
        out = m(batch[0])
        return F.cross_entropy(out, batch[1]) + .05*number(out.square().mean())
    return call


def logged(m, batch):
    "Numbers that are printed, that scale a term, or that the gradient goes round on purpose."
    out = m(batch[0])
    loss, other = F.cross_entropy(out, batch[1]), out.square().mean()
    [].append(f"{loss.item()}, {float(other.detach())}")
    return loss + other*(loss.detach()/other.detach()) + (loss - loss.detach())


@few("number", [lambda t: t.item(), lambda t: t.detach(), lambda t: t.data, lambda t: float(t.detach()),
                lambda t: t.detach().clone().item(), lambda t: torch.tensor(t.item())])
def test_a_term_that_is_a_number(number):
    torch.manual_seed(0)
    sure, evidence = said("term without gradient", nn.Linear(20, 5), call=two_terms(number))[0]
    assert sure == "likely" and "Doubling it changes the loss" in evidence
    assert not said("term without gradient", nn.Linear(20, 5), call=two_terms(lambda t: t))


def test_numbers_that_are_no_terms():
    torch.manual_seed(0)
    assert not [s for s, _ in said("term without gradient", nn.Linear(20, 5), call=logged) if s != "note"]


class Bag(nn.Module):
    "What the words of a text, and maybe its padding, say in the mean, or at the end."
    def __init__(self, how):
        super().__init__()
        self.word, self.rnn, self.last = nn.Embedding(20, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 5)
        self.how = how

    def forward(self, x):
        v, here = self.word(x), (x > 0).float()[..., None]
        if self.how == "mean": v = v.mean(1)
        if self.how == "mean of words": v = (v*here).sum(1)/here.sum(1)
        if self.how == "end": v = self.rnn(v)[0][:, -1]
        if self.how == "end of words": v = self.rnn(v)[0][torch.arange(len(x)), here.sum((1, 2)).long() - 1]
        return self.last(v)


@few("how", ["mean", "end", "mean of words", "end of words"], 4)
def test_padding_that_is_read(how):
    torch.manual_seed(0)
    found = said("mask ignored", Bag(how), (padded_texts(), torch.arange(24) % 5))
    assert [sure for sure, _ in found] == ([] if "words" in how else ["note"])
