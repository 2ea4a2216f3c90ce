"""Training runs on which `hl.diagnose` is tried: with one fault each, and healthy ones that look odd.

There are three sets, each with other data, nets, losses and optimizers than those before it; the rules were written
beside the first, and nothing is tuned on the others. What counts as right was written before any of them was diagnosed:
`causes` lead straight to the line to change, `symptoms` are true and follow from the fault. Runs with a fault that
neither the statistics nor the loop can show are out of reach, and count apart."""
import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from tests.bench import diagnose_nets as nets, diagnose_runs as runs
from tests.bench.diagnose_nets import stack
from tests.bench.diagnose_runs import Run, by_output, learned, recipe, way


@dataclass(frozen=True)
class Case:
    "A training run, with what a diagnosis should say about it."
    kind: str
    name: str
    causes: frozenset[str]               # findings that lead straight to the line to change
    symptoms: frozenset[str]             # findings that are true, and consequences of the fault
    run: Run
    twin: Run | None = None              # the same without the fault
    bound: float = math.inf              # a healthy run has to be at least so good
    reach: bool = True                   # False: nothing in the statistics or the loop can tell

    @property
    def healthy(self) -> bool: return not self.causes and self.reach


def ids(names: str) -> frozenset[str]: return frozenset(name.strip() for name in names.split(",") if name.strip())


class Cases(list[Case]):
    "Runs in the order of the file."
    def plant(self, kind: str, name: str, causes: str, symptoms: str, way: Callable[..., Run], reach: bool = True,
              twin: Run | None = None, **fault):
        "A fault: `way` with what is in `fault` is the run, without it (or `twin`) its healthy twin."
        self.append(Case(kind, name, ids(causes), ids(symptoms), way(**fault), twin or way(), reach=reach))

    def fine(self, kind: str, name: str, run: Run, bound: float):
        "A healthy run."
        self.append(Case(kind, name, frozenset(), frozenset(), run, bound=bound))


faults, healthy, second, third = Cases(), Cases(), Cases(), Cases()
sets = {"first": lambda: [*faults, *healthy], "second": lambda: second, "third": lambda: third}


# Optimizers

def optimizers(kind: type, usual: float | None = None) -> Callable:
    return lambda lr=usual, **options: lambda model: kind(model.parameters(), lr, **options)


sgd, rmsprop, adagrad, lion = map(optimizers, (torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad, runs.Lion))
adam, adamw = (optimizers(kind, 2e-3) for kind in (torch.optim.Adam, torch.optim.AdamW))
nadam, radam, asgd, adafactor = map(optimizers, (torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD,
                                                 torch.optim.Adafactor))


def given(parameters: Callable, lr: float = 5e-3, kind: type = torch.optim.Adam) -> Callable:
    "An optimizer that gets some parameters of the model."
    return lambda model: kind(list(parameters(model)), lr)


def trained(model): return (p for p in model.parameters() if p.requires_grad)


def muon(model, lr: float = .02) -> list:
    "Muon for the inner matrices, AdamW for the rest."
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "tokens" not in name and "head" not in name]
    rest = [p for p in model.parameters() if all(p is not q for q in inner)]
    return [torch.optim.Muon(inner, lr, weight_decay=0.), torch.optim.AdamW(rest, 5e-3)]


sched = torch.optim.lr_scheduler


# What is done to a model, or in a loop

def bias(value: float, *places: str):
    def change(model):
        for place in places: model.get_submodule(place).bias.fill_(value)
    return change


def bias_of_most(value: float, place: str, every: int):
    "The bias of all units of a layer but one in so many."
    def change(model):
        b = model.get_submodule(place).bias
        alive = b[::every].clone()
        b.fill_(value)
        b[::every] = alive
    return change


def weights(change, *places: str):
    "Changes the matrices, of all layers or of those that are named."
    def spoil(model):
        for name, p in model.named_parameters():
            if p.ndim > 1 and (not places or name.rpartition(".")[0] in places): p.copy_(change(p))
    return spoil


def normal(std: float): return weights(lambda w: torch.randn_like(w)*std)


def kaiming(model):
    for p in model.parameters():
        if p.ndim > 1: nn.init.kaiming_normal_(p)
        elif p.ndim == 1: p.zero_()


def everything(value: float): return lambda model: [p.fill_(value) for p in model.parameters()]


def every(kinds, change: Callable): return lambda model: [change(m) for m in model.modules() if isinstance(m, kinds)]


plain_layers = nn.Linear, nn.Conv2d, nn.Conv1d
batch_norms = nn.BatchNorm1d, nn.BatchNorm2d


def by(factor: float, *kinds: type):
    "Multiplies the weights of all layers of some kinds."
    return every(kinds or plain_layers, lambda m: m.weight.mul_(factor))


def biased(value: float):
    "Moves the biases of all layers but the last."
    return lambda model: [m.bias.add_(value) for m in [m for m in model.modules() if isinstance(m, plain_layers)][:-1]]


def filled(value: float): return every(plain_layers, lambda m: (m.weight.fill_(value), m.bias.zero_()))
def gammas(value: float): return every((*batch_norms, nn.LayerNorm), lambda m: m.weight.fill_(value))


def frozen(*names: str):
    def change(model):
        for name, p in model.named_parameters(): p.requires_grad_(not any(n in name for n in names))
    return change


def new_head(model):
    "The head is exchanged for one that begins at zero, as for a new task."
    model[-1] = nn.Linear(model[-1].in_features, 10)
    nn.init.zeros_(model[-1].weight)


def then(net: Callable, last: nn.Module): return lambda: nn.Sequential(net(), last)
def clipped(limit: float): return partial(nn.utils.clip_grad_norm_, max_norm=limit)
def within(limit: float): return partial(nn.utils.clip_grad_value_, clip_value=limit)
def warm(steps: int): return lambda o: sched.LambdaLR(o, lambda i: min(1., i/steps))


def eval_from(step: int, validate: bool = False):
    "Somebody switches to eval mode, for a validation, and nobody switches back."
    def each(model, i, optimizer, x, *rest):
        if i != step: return
        model.eval()
        if validate:
            with torch.no_grad(): model(x)
    return each


# Ways to train: the first set

def in_full(model, x, y): return F.cross_entropy(model(x).float(), y)


mlp = recipe(nets.digits, lambda: stack(64, 64, 32, 10), sgd(.1))
mlp_momentum = recipe(nets.digits, lambda: stack(64, 64, 32, 10), sgd(.05, momentum=.9), steps=80)
mlp_adam = recipe(nets.digits, lambda: stack(64, 64, 32, 10), adam())
mlp_tanh = recipe(nets.digits, lambda: stack(64, 64, 32, 10, act=nn.Tanh), sgd(.1, momentum=.9))
mlp_narrow = recipe(nets.digits, lambda: stack(64, 16, 6, 32, 10), adam(5e-3), steps=200)
mlp_norm = recipe(nets.digits, lambda: stack(64, 48, 48, 48, 48, 10, norm=nn.BatchNorm1d), sgd(.1, momentum=.9))
cnn = recipe(nets.images, nets.convnet, adam())
cnn_sgd = recipe(nets.images, nets.convnet, sgd(.05, momentum=.9))
cnn_norm = recipe(nets.images, lambda: nets.convnet(bn=True), sgd(.05, momentum=.9))
tabular = recipe(nets.table, lambda: stack(12, 64, 64, 4), adam(1e-2), steps=200, size=64)
tabular_tanh = recipe(nets.table, lambda: stack(12, 64, 64, 4, act=nn.Tanh), adam(1e-2), steps=200, size=64)
residual = recipe(nets.table, nets.Residual, adamw(5e-3), steps=120, size=64)
regression = recipe(nets.curve, lambda: stack(8, 64, 64, 1), adam(1e-2), loss=by_output(F.mse_loss),
    score=nets.unexplained, steps=150, size=64)
regression_sgd = recipe(nets.curve, lambda: stack(8, 64, 64, 1), sgd(.05, momentum=.9), loss=by_output(F.mse_loss),
    score=nets.unexplained, steps=150, size=64)
regression_rmsprop = recipe(nets.curve, lambda: stack(8, 64, 64, 1, act=nn.Tanh), rmsprop(2e-3),
    loss=by_output(F.mse_loss), score=nets.unexplained, steps=150)
lstm = recipe(nets.waves, nets.Recurrent, adam(1e-2), steps=80)
gru = recipe(nets.pixel_rows, lambda: nets.Recurrent(nn.GRU, 8, 32, 10), adam(1e-2), steps=100)
rnn = recipe(nets.pixel_rows, lambda: nets.Recurrent(nn.RNN, 8, 32, 10), adam(1e-2), steps=120)
bag = recipe(nets.reviews, nets.Bag, adam(1e-2), steps=100)
reader = recipe(nets.reviews, nets.Reader, adam(5e-3), steps=100)
pooling = recipe(nets.reviews, nets.Pooling, adam(5e-3), steps=120)
gpt = recipe(nets.text, nets.Gpt, adamw(5e-3), loss=by_output(nets.tokens_loss), score=nets.surprise, steps=70)
gpt_fused = recipe(nets.text, lambda: nets.Gpt(fused=True), adamw(5e-3), loss=by_output(nets.tokens_loss),
    score=nets.surprise, steps=70)
copier = recipe(nets.recall, nets.Copies, adam(5e-3), loss=by_output(nets.tokens_loss), steps=100)
recommender = recipe(nets.ratings, nets.Recommender, adam(5e-2), loss=by_output(F.mse_loss), score=nets.unexplained,
    steps=150, size=64)
autoencoder = recipe(nets.itself, lambda: stack(64, 48, 16, 48, 64), adam(1e-2), loss=by_output(F.mse_loss),
    score=nets.unexplained, steps=120)


# Ways to train: the second set

classifier = partial(way, loss=by_output(F.cross_entropy), score=nets.wrong)
mnist = way(data=nets.pictures, net=nets.Mnist, loss=by_output(F.nll_loss), score=nets.wrong, optim=adam(3e-3),
    steps=100)
resnet = classifier(data=nets.pictures, net=nets.SmallResNet, optim=sgd(.1, momentum=.9), steps=60)
resnet_big = classifier(data=nets.colored, net=nets.resnet18, optim=adam(1e-3), steps=22, size=16)
unet = way(data=nets.blobs, net=nets.UNet, loss=by_output(F.binary_cross_entropy_with_logits), score=nets.overlap_lacks,
    optim=adam(3e-3), steps=90, size=16)
letters_lstm = way(data=nets.lines, net=nets.LetterLSTM, loss=by_output(nets.tokens_loss), score=nets.wrong,
    optim=rmsprop(5e-3), steps=120)
former = way(data=nets.lines, net=nets.LetterTransformer, loss=by_output(nets.tokens_loss), score=nets.wrong,
    optim=adamw(3e-3), steps=90)
berts = way(data=nets.sentences, net=nets.bert, loss=nets.bert_loss, score=nets.bert_wrong, optim=adamw(2e-3), steps=60)
gcn = way(data=nets.graph, net=nets.GCN, loss=nets.graph_loss, score=nets.graph_wrong,
    optim=adam(2e-2, weight_decay=5e-4), steps=80, feed=runs.whole)
siamese = way(data=nets.pictures, net=nets.encoder, loss=nets.triplet, score=nets.nearest_wrong, optim=adam(2e-3),
    steps=100)
contrast = way(data=nets.pictures, net=nets.encoder, loss=nets.nt_xent, score=nets.nearest_wrong, optim=adam(3e-3),
    steps=100)
seq2seq = way(data=nets.turned, net=nets.Seq2Seq, loss=nets.turned_loss, score=nets.turned_wrong, optim=adam(1e-2),
    steps=150)
labels = way(data=nets.tags, net=lambda: stack(20, 48, 48, 5), loss=by_output(F.binary_cross_entropy_with_logits),
    score=nets.tags_wrong, optim=nadam(5e-3), steps=120)
hetero = way(data=nets.noisy, net=lambda: stack(6, 48, 48, 2, act=nn.Tanh), loss=nets.gauss, score=nets.left_over,
    optim=adam(5e-3), steps=200)
tcn = way(data=nets.series, net=nets.TCN, loss=by_output(F.mse_loss), score=nets.left_over, optim=adam(5e-3), steps=100)
vae = way(data=nets.pictures, net=nets.VAE, loss=nets.elbo, score=nets.vae_left, optim=adam(3e-3), steps=200)
auto = way(data=nets.pictures, net=nets.conv_autoencoder, loss=nets.to_itself, score=nets.rebuilt, optim=adam(5e-3),
    steps=150)
mdn = way(data=nets.folded, net=nets.Mixture, loss=nets.mixture, score=lambda m, x, y: nets.mixture(m, x, y).item(),
    optim=adam(1e-2), steps=150, size=64)
widedeep = way(data=nets.clicks, net=nets.WideDeep, loss=nets.click_loss, score=nets.clicks_wrong, optim=adagrad(.1),
    steps=200, size=64)
mixer = classifier(data=nets.pictures, net=nets.Mixer, optim=adamw(3e-3), steps=80)
vit = classifier(data=nets.pictures, net=nets.ViT, optim=adamw(2e-3), steps=100)
flow = way(data=nets.moons, net=nets.Flow, loss=nets.likelihood, score=lambda m, x: nets.likelihood(m, x).item(),
    optim=adam(1e-2), steps=150, size=64)
tasks = way(data=nets.pictures, net=nets.Tasks, loss=nets.two_tasks, score=nets.tasks_wrong,
    optim=sgd(.05, momentum=.9), steps=100)
normed = classifier(data=nets.pictures, net=nets.Normed, optim=sgd(.05, momentum=.9), steps=80)


# Ways to train: the third set

sets_net = classifier(data=nets.row_sets, net=nets.DeepSet, optim=radam(1e-2), steps=250)
points = classifier(data=nets.clouds, net=nets.PointNet, optim=adam(3e-3), steps=80)
films_net = classifier(data=nets.films, net=nets.film_net, optim=sgd(.02, momentum=.9), steps=50, size=16)
heard = classifier(data=nets.tones, net=nets.ear, optim=nadam(3e-3), steps=100)
states = way(data=nets.highs, net=nets.Mamba, loss=by_output(nets.tokens_loss), score=nets.wrong, optim=adamw(5e-3),
    steps=100)
modern = way(data=nets.highs, net=nets.Small, loss=by_output(nets.tokens_loss), score=nets.wrong, optim=adamw(5e-3),
    steps=100)
gpt2s = way(data=nets.highs, net=nets.gpt2, loss=nets.hf_loss, score=nets.hf_wrong, optim=adamw(5e-3), steps=80)
llamas = way(data=nets.highs, net=nets.llama, loss=nets.hf_loss, score=nets.hf_wrong, optim=adamw(5e-3), steps=80)
t5s = way(data=nets.highs, prepare=lambda x, y: (x, y[:, -1:]), net=nets.t5, loss=nets.bert_loss, score=nets.t5_wrong,
    optim=adafactor(3e-2), steps=120)
ode = way(data=nets.springs, net=nets.Flowing, loss=by_output(F.mse_loss), score=nets.left, optim=adam(5e-3), steps=150)
balance = classifier(data=nets.grades, net=nets.Equilibrium, optim=adam(1e-2), steps=200)
grade = classifier(data=nets.grades, net=lambda: stack(10, 48, 48, 5), optim=radam(2e-2), steps=200)
survival = way(data=nets.lives, net=lambda: stack(8, 32, 32, 1, act=nn.SiLU), loss=nets.cox, score=nets.disordered,
    optim=adam(5e-3), steps=150, size=64)
taste = way(data=nets.likings, net=nets.Factors, loss=nets.bpr, score=nets.misjudged,
    optim=lambda m: torch.optim.SparseAdam(list(m.parameters()), 2e-2), steps=150, size=64)
speech = way(data=nets.spoken, net=nets.Listener, loss=nets.ctc, score=nets.misheard, optim=adam(1e-2), steps=100)
ordered = way(data=nets.grades, net=nets.Ordinal, loss=nets.graded, score=nets.misgraded, optim=adam(5e-3), steps=150)
diffuse = way(data=nets.rings, net=nets.Denoiser, loss=nets.diffusion, score=nets.noise_left, optim=adam(3e-3),
    steps=200, size=64)
barlow = way(data=nets.clouds, net=lambda: stack(48, 64, 64, 12, flat=True), loss=nets.twins, score=nets.apart,
    optim=adam(2e-3), steps=120, size=64)
towers = way(data=nets.views, net=nets.Clip, loss=nets.clip_loss, score=nets.mismatched, optim=adamw(5e-3), steps=120,
    size=64)
bags = classifier(data=nets.pieces, net=nets.Words, optim=adam(1e-2), steps=120)
perceive = classifier(data=nets.clouds, net=nets.Perceiver, optim=adamw(3e-3), steps=120)
seldom = way(data=nets.rare, net=lambda: stack(8, 32, 32, 1), loss=by_output(F.binary_cross_entropy_with_logits),
    optim=adam(5e-3), steps=150, size=64,
    score=lambda m, x, y: 1 - (m(x)[y > 0][:, None] > m(x)[y == 0]).float().mean().item())
muons = way(data=nets.highs, net=nets.Small, loss=by_output(nets.tokens_loss), score=nets.wrong, optim=muon, steps=100)


# The first set: faults

plant = faults.plant


# What follows from most faults

diverged = ("outputs blow up, activations explode, gradients explode, NaN or Inf, loss rises, loss does not fall, "
    "dead units, saturated, constant output, samples alike, gradients vanish, not trained, dead attention")
starved = ("not trained, gradients vanish, loss does not fall, samples alike, constant output, activations vanish, "
    "input unused, dead units")


# A rate that is too large, or too small

def rate(name, way, optim, kind: str = "learning rate too large"):
    plant(kind, name, "learning rate too large", diverged, way, optim=optim)


rate("digits MLP, SGD 30", mlp, sgd(30))
rate("digits CNN, Adam 1", cnn, adam(1))
rate("waves LSTM, Adam 3", lstm, adam(3))
rate("text GPT, AdamW 1", gpt, adamw(1))
rate("regression, RMSprop 1", regression_rmsprop, rmsprop(1))
rate("autoencoder, Adam 1", autoencoder, adam(1))

mild = partial(rate, kind="learning rate too large, mild")
mild("digits tanh MLP, momentum, 1", mlp_tanh, sgd(1, momentum=.9))
mild("digits CNN, momentum, 0.5", cnn_sgd, sgd(.5, momentum=.9))
mild("tables, Adam 0.2", tabular, adam(.2))
mild("text GPT, AdamW 0.3", gpt_fused, adamw(.3))
mild("reviews with attention, Adam 0.5", reader, adam(.5))
mild("digits RNN, Adam 0.1", rnn, adam(.1))


def slow(name, way, optim, causes="learning rate too small", symptoms="loss does not fall", **more):
    plant("learning rate too small", name, causes, symptoms, way, optim=optim, **more)


slow("digits MLP, SGD 1e-5", mlp, sgd(1e-5))
slow("digits CNN, Adam 1e-7", cnn, adam(1e-7))
slow("waves LSTM, RMSprop 1e-7", lstm, rmsprop(1e-7))
slow("text GPT, AdamW 1e-6", gpt, adamw(1e-6))
slow("regression, Adam with eps 1 and rate 1e-3", regression, adam(1e-3, eps=1.))
slow("tables, Adam with eps 100", tabular, adam(5e-3, eps=100.))
slow("recommender, SGD 1e-3 where Adam had 0.05", recommender, sgd(1e-3))


# Units that are dead, layers that are saturated

dead = ("not trained, constant output, samples alike, gradients vanish, activations vanish, loss does not fall, "
    "input unused")
plant("dead ReLU", "digits MLP, bias -10", "dead units", dead, mlp, change=bias(-10, "0"))
plant("dead ReLU", "digits CNN, bias -10 in the second layer", "dead units", dead, cnn, change=bias(-10, "2"))
plant("dead ReLU", "regression, bias -10 before the head", "dead units", dead, regression, change=bias(-10, "2"))
plant("dead ReLU", "digits MLP, negative weights behind a ReLU", "dead units", dead, mlp,
    change=lambda m: (m[2].weight.copy_(-m[2].weight.abs()), m[2].bias.fill_(-.1)))
plant("dead ReLU", "autoencoder, bias -10 before the code", "dead units", dead, autoencoder, change=bias(-10, "0"))
plant("dead ReLU", "tables, 53 of 64 units with a bias of -20", "dead units", "loss does not fall", tabular,
    change=bias_of_most(-20, "2", 6))
plant("dead ReLU", "digits CNN, 20 of 24 channels with a bias of -20", "dead units", "loss does not fall", cnn,
    change=bias_of_most(-20, "2", 6), steps=150)


def spike(model, i, optimizer, *batch):
    "In one step the rate is far too large."
    for group in optimizer.param_groups: group["lr"] = 50. if i == 20 else .1


plant("dead ReLU", "digits MLP, one step with a rate of 50", "dead units, learning rate too large", diverged, mlp,
    each=spike, told=torch.Tensor.item)
stuck = ("gradients vanish, loss does not fall, not trained, dead units, samples alike, constant output, "
    "activations explode, gradients explode")
plant("saturated", "digits tanh MLP, weights x 1,000", "saturated", stuck, mlp_tanh, change=weights(lambda w: 1000*w))
plant("saturated", "digits tanh MLP, weights x 30", "saturated", stuck, mlp_tanh,
    change=weights(lambda w: 30*w, "0", "2"))
plant("saturated", "digits sigmoid MLP, weights x 200", "saturated", stuck, recipe(nets.digits,
    lambda: stack(64, 64, 32, 10, act=nn.Sigmoid), adam(1e-2)), change=weights(lambda w: 200*w, "0", "2"))
plant("saturated", "digits RNN, weights x 50", "saturated", stuck, rnn, change=weights(lambda w: 50*w, "rnn"))
plant("saturated", "tanh MLP of tables, bias 20", "saturated", stuck, tabular_tanh, change=bias(20, "2"))


# Signals that vanish or explode on their way

def deep(act, **options):
    return recipe(nets.digits, lambda: stack(64, *[32]*8, 10, act=act), adam(3e-3), steps=150, **options)


healthy_deep = deep(nn.ReLU, change=kaiming)()
fades = "samples alike, loss does not fall, constant output, input unused, not trained"
plant("gradients vanish", "digits, 9 layers with sigmoid", "gradients vanish", fades + ", activations vanish",
    deep(nn.Sigmoid), twin=healthy_deep)
plant("gradients vanish", "digits, 9 layers with tanh, weights of 0.01", "gradients vanish, activations vanish", fades,
    deep(nn.Tanh), change=normal(.01))
plant("gradients vanish", "digits, 9 layers with ReLU as torch sets them", "gradients vanish, activations vanish",
    fades, deep(nn.ReLU), twin=healthy_deep)
plant("gradients vanish", "digits CNN, weights of 0.001", "gradients vanish, activations vanish", fades, cnn_sgd,
    change=normal(1e-3))
blast = ("outputs blow up, NaN or Inf, loss rises, loss does not fall, dead units, learning rate too large, saturated, "
    "gradients vanish, constant output, samples alike, not trained")
plant("gradients explode", "digits MLP of 9 layers, weights of 1", "activations explode, gradients explode", blast,
    deep(nn.ReLU, change=kaiming), change=normal(1.))
plant("gradients explode", "digits CNN, weights of 1", "activations explode, gradients explode", blast, cnn_sgd,
    change=normal(1.))
plant("gradients explode", "ReLU RNN with recurrent weights x 6", "activations explode, gradients explode", blast,
    recipe(nets.pixel_rows, lambda: nets.Recurrent(nn.RNN, 8, 32, 10, nonlinearity="relu"), sgd(.05, momentum=.9)),
    change=lambda m: m.rnn.weight_hh_l0.mul_(6))
plant("gradients explode", "autoencoder, weights of 1, SGD", "activations explode, gradients explode", blast,
    autoencoder, change=normal(1.), optim=sgd(1e-2))
raises = blast + ", gradients explode"
plant("residual explodes",
    "16 blocks without a norm, each x 4", "activations explode, outputs blow up, gradients explode", raises, residual,
    net=lambda: nets.Residual(depth=16, norm=False, scale=4.))
plant("residual explodes", "the sum is doubled in each of 14 blocks",
    "activations explode, outputs blow up, gradients explode", raises, residual,
    net=lambda: nets.Doubled(depth=14, norm=False), optim=sgd(.05))
plant("residual explodes", "10 blocks without a norm, weights of 0.5, SGD",
    "activations explode, outputs blow up, gradients explode", raises, residual, optim=sgd(.05),
    net=lambda: nets.Residual(depth=10, norm=False), change=normal(.5))


# Beginning with equal numbers

equal = "loss does not fall, samples alike, gradients vanish"
zeros = equal + ", not trained, dead units, activations vanish, input unused"
plant("zero init", "digits MLP, all zero", "units alike, constant output", zeros, mlp, change=everything(0.))
plant("zero init", "regression with tanh, all zero", "units alike, constant output", zeros, regression_rmsprop,
    change=everything(0.))
plant("zero init", "digits CNN, weights of all layers but the head zero", "units alike, constant output", zeros,
    cnn_sgd, change=weights(torch.zeros_like, "0", "2", "4"))
plant("constant init", "digits tanh MLP, 0.05", "units alike", equal, mlp_tanh, change=everything(.05))
plant("constant init", "digits CNN, weights 0.05, biases 0", "units alike", equal, cnn, change=filled(.05))
plant("constant init", "waves LSTM, 0.1", "units alike", equal, lstm, change=everything(.1))
plant("constant init", "tables, all layers 0.02, biases 0", "units alike", equal, tabular, change=filled(.02))


# The order of zero_grad, backward and step

sums = diverged + ", learning rate too large"
for name, known, options in (
        ("digits MLP, SGD", mlp, {"zero": "never"}), ("digits CNN, momentum", cnn_sgd, {"zero": "never"}),
        ("waves LSTM, Adam", lstm, {"rest": 10**9, "told": torch.Tensor.item}),
        ("text GPT, AdamW", gpt, {"zero": "never"}),
        ("regression, RMSprop", regression_rmsprop, {"rest": 10**9, "told": torch.Tensor.item}),
        ("digits tanh MLP, once each 25 batches", mlp_tanh, {"rest": 25})):
    plant("no zero_grad", name, "no zero_grad", sums, known, **options)
# A step that finds no gradient looks the same whether backward comes too late or zero_grad too early.
nothing = "not trained, loss does not fall, learning rate too small"
plant("step before backward", "digits MLP, SGD", "step before backward", nothing, mlp, order="step first")
plant("step before backward", "waves LSTM, Adam", "step before backward", nothing, lstm, order="step first")
plant("step before backward", "zero_grad between backward and step, text GPT", "step before backward", nothing, gpt,
    zero="between")
plant("step before backward", "zero_grad in place between backward and step, digits CNN", "step before backward",
    nothing, cnn, zero="between", in_place=True)
plant("step or backward missing", "no step, digits CNN", "no step", nothing, cnn, order="no step")
plant("step or backward missing", "no backward, tables", "not trained, step before backward", nothing, tabular,
    order="no backward")


# Inputs and targets that are not scaled

raw = diverged + ", learning rate too large, activations vanish, input unused"
plant("inputs not scaled", "digits MLP, 0 to 255, SGD", "inputs not scaled", raw, mlp,
    data=nets.on(nets.digits, lambda x: 255*x, normal=False))
plant("inputs not scaled", "digits CNN, 0 to 255, momentum", "inputs not scaled", raw, cnn_sgd,
    data=nets.on(nets.images, lambda x: 255*x, normal=False))
plant("inputs not scaled", "digits tanh MLP, 0 to 255", "inputs not scaled", raw, mlp_tanh,
    data=nets.on(nets.digits, lambda x: 255*x, normal=False))
plant("inputs not scaled", "tables, one feature about 100,000", "inputs not scaled", raw, tabular,
    data=nets.on(nets.table, nets.column(0, lambda x: 1e5 + 3e4*x)))
plant("inputs not scaled", "tanh MLP of tables, one feature about 100,000", "inputs not scaled", raw, tabular_tanh,
    data=nets.on(nets.table, nets.column(3, lambda x: 1e5 + 3e4*x)))
plant("inputs not scaled", "regression, all features about 2,000", "inputs not scaled", raw, regression,
    data=nets.on(nets.curve, lambda x: 2000 + 10*x))
plant("inputs not scaled", "waves LSTM, x 1,000", "inputs not scaled", raw, lstm,
    data=nets.on(nets.waves, lambda x: 1000*x))
plant("inputs not scaled", "digits MLP, divided by 255 twice", "inputs not scaled", raw, mlp,
    data=nets.on(nets.digits, lambda x: x/255/255, normal=False))
far = diverged + ", learning rate too large, learning rate too small"
plant("targets not scaled", "regression, x 5,000, Adam", "targets not scaled", far, regression,
    data=nets.on(nets.curve, targets=lambda y: 5000*y))
plant("targets not scaled", "regression, x 1,000, SGD", "targets not scaled", far, regression_sgd,
    data=nets.on(nets.curve, targets=lambda y: 1000*y))
plant("targets not scaled", "regression with tanh, about 5,000", "targets not scaled", far, regression_rmsprop,
    data=nets.on(nets.curve, targets=lambda y: 5000 + 100*y))


# Parts that get no gradient, or are not in the optimizer

small_lstm = recipe(nets.waves, lambda: nets.Recurrent(width=12), adam(2e-2), steps=120)
stays = "loss does not fall, frozen part, not trained"
for name, net in (
        ("detach in forward", lambda: nets.Cut(torch.detach)),
        ("made into a list and back", lambda: nets.Cut(lambda h: torch.tensor(h.tolist()))),
        (".data in forward", lambda: nets.Cut(lambda h: h.data)), ("no_grad in forward", lambda: nets.Unseen(None))):
    plant("detached", f"digits MLP, {name}", "frozen part, not trained", stays, mlp_narrow, net=net)
# What is rounded has a gradient, which is zero everywhere.
plant("detached", "digits MLP, rounded in forward", "frozen part, not trained, gradients vanish", stays, mlp_narrow,
    net=lambda: nets.Cut(torch.round))
plant("frozen by mistake", "digits MLP, the first two layers", "frozen part, not trained", stays, mlp_narrow,
    change=frozen("0", "2"))
plant("frozen by mistake", "waves LSTM, all but the head", "frozen part, not trained", stays, small_lstm,
    change=frozen("rnn"))
plant("frozen by mistake", "recommender, the table of users", "frozen part, not trained", stays, recommender,
    change=frozen("users"))
lacks = "not in the optimizer", "not trained, frozen part, loss does not fall"
others_too = "not in the optimizer, other parameters in the optimizer", lacks[1]
plant("wrong optimizer", "digits MLP, the first two parameters", *lacks, mlp_narrow,
    optim=given(lambda m: list(m.parameters())[:2]))
plant("wrong optimizer", "digits MLP, biases only", *lacks, mlp_narrow,
    optim=given(lambda m: (p for n, p in m.named_parameters() if n.endswith("bias"))))
plant("wrong optimizer", "waves LSTM, the head only", *lacks, lstm, net=lambda: nets.Recurrent(width=8),
    twin=lstm(net=lambda: nets.Recurrent(width=8)), optim=given(lambda m: m.head.parameters()))
plant("wrong optimizer", "recommender, without the embeddings", *lacks, recommender,
    optim=given(lambda m: [*m.mix.parameters(), *m.head.parameters()]))
plant("wrong optimizer", "digits CNN, of a deep copy", *others_too, cnn, optim=lambda m: adam()(copy.deepcopy(m)))
plant("wrong optimizer", "text GPT, of the model before it was built again", *others_too, gpt,
    optim=lambda m: adamw()(nets.Gpt()))
# Nothing behind a head of zeros gets a gradient, so the body stands still as well.
plant("wrong optimizer", "digits CNN, made before the head was swapped", *(others_too[0], starved + ", frozen part"),
    cnn, hand=new_head)


# What stands before the loss

squeezed = "loss does not fall, saturated, gradients vanish, samples alike"


def before(name, way, last, net, symptoms=squeezed, causes="activation before the loss", **more):
    plant("activation before the loss", name, causes, symptoms, way, net=lambda: nets.Then(net(), last), **more)


before("softmax module, digits CNN", cnn_sgd, nn.Softmax(dim=-1), nets.convnet)
before("F.softmax in forward, digits MLP", mlp, lambda x: F.softmax(x, dim=1), lambda: stack(64, 64, 32, 10))
before("sigmoid before cross entropy, digits MLP", mlp, nn.Sigmoid(), lambda: stack(64, 64, 32, 10))
before("softmax before cross entropy, text GPT", gpt, nn.Softmax(-1), nets.Gpt)
before("softmax before cross entropy, reviews", pooling, nn.Softmax(-1), nets.Pooling, optim=sgd(.3), steps=60,
    twin=pooling(optim=sgd(.3), steps=60))
before("ReLU before cross entropy, digits MLP", mlp, nn.ReLU(), lambda: stack(64, 64, 32, 10), squeezed,
    "activation before the loss, dead units")
before("ReLU as the output of a regression", regression, nn.ReLU(), lambda: stack(8, 64, 64, 1), squeezed,
    "activation before the loss, dead units")
before("sigmoid as the output of a regression", regression, nn.Sigmoid(), lambda: stack(8, 64, 64, 1))
binary_mlp = recipe(nets.digits, lambda: stack(64, 64, 32, 10), sgd(1.), loss=by_output(nets.binary))
before("sigmoid before BCE with logits, digits MLP", binary_mlp, nn.Sigmoid(), lambda: stack(64, 64, 32, 10))


# A loss of the wrong sign

runs_away = diverged.replace("dead attention", "learning rate too large")
plant("wrong sign", "minus cross entropy, digits MLP", "wrong sign", runs_away, mlp,
    loss=by_output(lambda out, y: -F.cross_entropy(out, y)))
plant("wrong sign", "minus squared error, regression", "wrong sign", runs_away, regression,
    loss=by_output(lambda out, y: -F.mse_loss(out, y)))
plant("wrong sign", "log probability in place of its negative, text GPT", "wrong sign", runs_away, gpt,
    loss=by_output(lambda out, y: out.log_softmax(-1).gather(-1, y[..., None]).mean()))
plant("wrong sign", "maximize=True, digits CNN", "wrong sign", runs_away, cnn, optim=adam(maximize=True))
plant("wrong sign", "minus cross entropy, waves LSTM", "wrong sign", runs_away, lstm,
    loss=by_output(lambda out, y: -F.cross_entropy(out, y)))


# NaN

broken = "loss does not fall, not trained, loss rises, outputs blow up, gradients explode, samples alike"


def nan(name, way, symptoms=broken, **fault): plant("NaN or Inf", name, "NaN or Inf", symptoms, way, **fault)


nan("log of pixels that are 0", mlp, net=lambda: nets.First(torch.log, stack(64, 64, 32, 10)),
    data=nets.on(nets.digits, normal=False))
nan("0/0: columns that are constant divided by their deviation", mlp, data=nets.on(nets.digits, normal=False),
    net=lambda: nets.First(lambda x: (x - x.mean(0))/x.std(0), stack(64, 64, 32, 10)))
nan("a missing value in one row of a hundred", tabular, data=nets.on(nets.table,
    lambda x: torch.where((torch.arange(len(x)) % 100 == 7)[:, None] & (torch.arange(12) == 3), torch.nan, x)))
nan("log of probabilities that become 0", mlp, loss=by_output(lambda out, y: F.nll_loss((40*out).softmax(-1).log(), y)),
    optim=sgd(1.))
nan("attention over sentences that are all padding", reader, broken + ", dead attention",
    data=nets.on(nets.reviews, lambda x: torch.where((torch.arange(len(x)) % 50 == 0)[:, None], nets.pad, x)))
nan("Adam with eps 0", mlp_adam, optim=adam(eps=0.), data=nets.on(nets.digits, normal=False))
nan("exp of numbers that are too large", regression, net=lambda: nets.Then(stack(8, 64, 64, 1),
    lambda h: (1000*h).exp()))


# Modes

unfit = ("nothing recorded, batch norm, activations explode, outputs blow up, gradients explode, loss does not fall, "
    "activations vanish, gradients vanish, samples alike, dead units, NaN or Inf, loss rises, "
    "learning rate too large")
plant("eval mode", "digits CNN with batch norm, before the first step", "eval mode",
    unfit, cnn_norm, each=eval_from(0, validate=True), data=nets.on(nets.images, lambda x: 4*x + 3),
    twin=cnn_norm(data=nets.on(nets.images, lambda x: 4*x + 3)))
plant("eval mode", "digits MLP with batch norm, from the start", "eval mode", unfit, mlp_norm,
    each=eval_from(0, validate=True))
plant("eval mode", "digits MLP with batch norm, after a validation at step 15", "eval mode", unfit, mlp_norm,
    each=eval_from(15, validate=True))
# Without batch norm only the noise is missing, which harms little.
plant("eval mode", "digits MLP with dropout, from the start", "eval mode", "nothing recorded",
    mlp_adam, each=eval_from(0, validate=True), net=lambda: stack(64, 64, 32, 10, drop=.2),
    twin=mlp_adam(net=lambda: stack(64, 64, 32, 10, drop=.2)))


# Too much of a good thing: dropout, decay, clipping

thin = "loss does not fall, dead units, samples alike, learning rate too large, gradients vanish, not trained"
dropped = recipe(nets.digits, lambda: stack(64, 64, 64, 10, drop=.2), adam(), steps=120)
plant("dropout too strong", "digits MLP, 0.98", "dropout too strong", thin, dropped,
    net=lambda: stack(64, 64, 64, 10, drop=.98))
plant("dropout too strong", "digits CNN, 0.99 before the head", "dropout too strong", thin, cnn,
    net=lambda: nets.convnet(drop=.99), twin=cnn(net=lambda: nets.convnet(drop=.3)))
plant("dropout too strong", "waves LSTM, 0.97 of the inputs", "dropout too strong", thin, lstm,
    net=lambda: nets.First(nn.Dropout(.97), nets.Recurrent()))
plant("dropout too strong", "regression, 0.95, twice", "dropout too strong", thin, regression,
    net=lambda: stack(8, 64, 64, 1, drop=.95))
plant("dropout too strong", "digits MLP, F.dropout with 0.96", "dropout too strong", thin, dropped, net=nets.Functional)
shrunk = ("activations vanish, gradients vanish, samples alike, units alike, constant output, loss does not fall, "
    "learning rate too large, input unused, dead units, loss rises, not trained")
plant("weight decay too strong", "digits MLP, SGD with 2", "weight decay too strong", shrunk, mlp,
    optim=sgd(.1, weight_decay=2.))
plant("weight decay too strong", "tables, AdamW with 20", "weight decay too strong", shrunk, tabular,
    optim=adamw(5e-3, weight_decay=20.))
plant("weight decay too strong", "digits CNN, Adam with 1", "weight decay too strong", shrunk, cnn,
    optim=adam(weight_decay=1.))
plant("weight decay too strong", "text GPT, AdamW with 30", "weight decay too strong", shrunk, gpt,
    optim=adamw(5e-3, weight_decay=30.))
plant("weight decay too strong", "digits tanh MLP, momentum with 0.3", "weight decay too strong", shrunk, mlp_tanh,
    optim=sgd(.1, momentum=.9, weight_decay=.3))
tight = "learning rate too small, loss does not fall"
plant("clipping too tight", "digits MLP, norm 1e-4", "clipping too tight", tight, mlp, clip=clipped(1e-4))
plant("clipping too tight", "digits CNN, values 1e-6, momentum", "clipping too tight", tight, cnn_sgd,
    clip=within(1e-6))
# Adam divides by the length of gradients, so the norm has to come near its eps.
plant("clipping too tight", "waves LSTM, norm 1e-9, Adam", "clipping too tight", tight, lstm, clip=clipped(1e-9))
plant("clipping too tight", "regression, norm 1e-3, SGD", "clipping too tight", tight, regression_sgd,
    clip=clipped(1e-3))
plant("clipping too tight", "digits MLP, norm 1 before the scale is taken out", "clipping before unscaling", tight,
    mlp, loop=runs.scaled, scale={"init_scale": 65536.}, clip=clipped(1.))

plant("lost in rounding", "digits MLP with norms, all of it in bfloat16", "lost in rounding",
    "learning rate too small, not trained, loss does not fall",
    recipe(nets.digits, lambda: stack(64, 64, 64, 10, norm=nn.LayerNorm), adam(1e-3), loss=in_full, steps=150),
    change=nn.Module.bfloat16, prepare=lambda x, y: (x.bfloat16(), y))


# Learning rates over time

ends = "learning rate too small, loss does not fall"
plant("scheduler each batch", "digits MLP, StepLR(3)", "scheduler each batch", ends, mlp,
    scheduler=lambda o: sched.StepLR(o, 3))
plant("scheduler each batch", "digits CNN, ExponentialLR(0.7)", "scheduler each batch", ends, cnn,
    scheduler=lambda o: sched.ExponentialLR(o, .7))
plant("scheduler each batch", "waves LSTM, MultiStepLR(5, 10, 15)", "scheduler each batch", ends, lstm,
    scheduler=lambda o: sched.MultiStepLR(o, [5, 10, 15]))
plant("scheduler each batch", "text GPT, one over the number of epochs squared", "scheduler each batch", ends, gpt,
    scheduler=lambda o: sched.LambdaLR(o, lambda epoch: 1/(1 + epoch)**2))
plant("scheduler each batch", "regression, ReduceLROnPlateau with the loss of a batch", "scheduler each batch", ends,
    regression, scheduler=lambda o: sched.ReduceLROnPlateau(o, patience=1))


# Batch norm

small_norm = recipe(nets.digits, lambda: stack(64, 32, 32, 10, norm=nn.BatchNorm1d), sgd(.05, momentum=.9), steps=120)
jumpy = "loss does not fall, learning rate too large, gradients explode, dead units"
plant("batch norm", "digits MLP, batches of 2", "batch norm", jumpy, small_norm, size=2)
plant("batch norm", "digits CNN, batches of 2, a norm behind the pooling", "batch norm", jumpy, cnn_norm,
    size=2, net=lambda: nn.Sequential(nets.convnet(bn=True)[:-1], nn.Linear(96, 32), nn.BatchNorm1d(32), nn.ReLU(),
    nn.Linear(32, 10)))
plant("batch norm", "digits MLP, momentum 0", "batch norm", "", small_norm,
    data=nets.on(nets.digits, lambda x: 5*x + 10), change=every(batch_norms, lambda m: setattr(m, "momentum", 0.)),
    twin=small_norm(data=nets.on(nets.digits, lambda x: 5*x + 10)))
plant("batch norm", "digits MLP, momentum 1e-5", "batch norm", "", small_norm, steps=150,
    change=every(batch_norms, lambda m: setattr(m, "momentum", 1e-5)))
plant("batch norm", "digits CNN, momentum 1, batches of 4", "batch norm", "", small_norm, size=4,
    change=every(batch_norms, lambda m: setattr(m, "momentum", 1.)))
plant("batch norm", "digits CNN, all gammas 0", "batch norm, constant output, samples alike",
    dead + ", dead units, units alike", cnn_norm, change=gammas(0.))


# Signals that are cut off or shrunk

gone = "gradients vanish, loss does not fall, not trained, input unused, dead units, units alike"
plant("killed signal", "digits MLP, x 1e-6 in the middle", "activations vanish, samples alike",
    gone + ", constant output", mlp, net=lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nets.Times(1e-6),
    *stack(64, 32, 10)))
plant("killed signal", "digits CNN, divided by 255 behind each layer", "activations vanish, samples alike",
    gone + ", constant output", cnn_sgd, net=lambda: nn.Sequential(*[m for layer in nets.convnet()
    for m in ([layer, nets.Times(1/255)] if isinstance(layer, nn.ReLU) else [layer])]))
plant("killed signal", "tables, a mask of zeros", "constant output, samples alike", gone + ", activations vanish",
    tabular, net=lambda: nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nets.Times(torch.zeros(64)), nn.Linear(64, 4)))
plant("killed signal", "waves LSTM, normalized over a dimension of one",
    "constant output, samples alike", gone + ", activations vanish, constant inputs, gradients explode", lstm,
    net=lambda: nn.Sequential(nn.Unflatten(-1, (2, 1)), nn.LayerNorm(1), nn.Flatten(2), nets.Recurrent()))
branched = recipe(nets.table, nets.branches(), adam(1e-2), steps=150, size=64)
plant("dead residual branch", "tables, bias -10 in each branch", "dead units", dead, branched, net=nets.branches(-10.))
# The blocks are healthy themselves: only the gradients, which are all zero, show what becomes of their outputs.
plant("dead residual branch", "tables, branches multiplied by 0", "not trained, frozen part",
    "gradients vanish, loss does not fall", residual, net=lambda: nets.Residual(depth=3, scale=0.))


# Embeddings and attention

plant("embedding", "reviews, from_pretrained is frozen, four numbers a word", "frozen part",
    "not trained, activations vanish", bag, net=nets.Pretrained, steps=60, twin=bag(steps=60))
plant("embedding", "reviews, max_norm 1e-4", "activations vanish, samples alike",
    "input unused, gradients vanish, loss does not fall, not trained, units alike", bag,
    change=lambda m: setattr(m.embedding, "max_norm", 1e-4))
plant("embedding", "recommender, the tables begin equal and stand still",
    "units alike, samples alike, frozen part, constant output", "loss does not fall, not trained, input unused",
    recommender, change=lambda m: [e.requires_grad_(False).weight.fill_(.1) for e in (m.users, m.things)])
plant("embedding", "text GPT, not in the optimizer", *lacks, gpt,
    optim=lambda m: torch.optim.AdamW([p for n, p in m.named_parameters() if n != "tokens.weight"], 5e-3))
plant("embedding", "recall, of places, begins at zero and is not in the optimizer",
    *lacks, copier, change=lambda m: m.places.weight.zero_(),
    optim=lambda m: torch.optim.Adam([p for n, p in m.named_parameters() if n != "places.weight"], 5e-3))
one_hot = "saturated, gradients vanish, loss does not fall, not trained"
plant("dead attention", "recall, scores x 3,000", "dead attention, saturated", one_hot, copier,
    net=lambda: nets.Copies(scale=3000.))
plant("dead attention", "recall, queries and keys x 30", "dead attention, saturated", one_hot + ", activations explode",
    copier, change=weights(lambda w: torch.cat([30*w[:64], w[64:]]), "block.attention.qkv"))
# scaled_dot_product_attention shows no softmax: what can be seen is that queries and keys are far too long.
plant("dead attention", "recall, scores x 3,000, sdpa", "dead attention, saturated", one_hot, copier,
    net=lambda: nets.Copies(scale=3000., fused=True), twin=copier(net=lambda: nets.Copies(fused=True)))
plant("dead attention", "reviews, MultiheadAttention with weights x 500", "dead attention, saturated",
    one_hot + ", activations explode", reader, change=lambda m: (m.attention.in_proj_weight[:48].mul_(500),
    m.embedding.weight.mul_(3)))
# The mask says where to look in place of where not to look; sentences without padding then look nowhere.
plant("dead attention", "reviews, the mask is inverted", "dead attention, samples alike, input unused",
    "loss does not fall, constant output, NaN or Inf, not trained", reader, net=lambda: nets.Reader(inverted=True),
    data=nets.on(nets.reviews, lambda x: torch.cat([x[:, :-1], torch.full_like(x[:, :1], nets.pad)], 1)),
    twin=reader(data=nets.on(nets.reviews, lambda x: torch.cat([x[:, :-1], torch.full_like(x[:, :1], nets.pad)], 1))))


# The loss scale and float16

overflow = "float16 limit, NaN or Inf, gradients explode, loss does not fall, not trained"
plant("loss scale overflows", "digits MLP, begins at 2**100", "skipped steps", overflow, mlp_momentum, loop=runs.scaled,
    cast=torch.float16, scale={"init_scale": 2.**100}, steps=60, twin=mlp_momentum(loop=runs.scaled, cast=torch.float16,
    scale={"init_scale": 1024.}, steps=60))
plant("loss scale overflows", "digits MLP, hardly falls", "skipped steps", overflow, mlp_adam,
    loop=runs.scaled, cast=torch.float16, scale={"init_scale": 2.**40, "backoff_factor": .99},
    twin=mlp_adam(loop=runs.scaled, cast=torch.float16, scale={"init_scale": 1024.}))
plant("loss scale overflows", "tables, grows too fast", "skipped steps", overflow, tabular, steps=80,
    loop=runs.scaled, cast=torch.float16, scale={"init_scale": 2.**30, "growth_factor": 2.**12, "growth_interval": 1},
    twin=tabular(loop=runs.scaled, cast=torch.float16, scale={"init_scale": 1024.}))
plant("float16 limit", "digits MLP in float16, pixels of 0 to 255 times 16",
    "float16 limit, NaN or Inf, inputs not scaled", diverged, mlp, net=lambda: nets.Half(stack(64, 64, 32, 10)),
    data=nets.on(nets.digits, lambda x: 16*255*x, normal=False))


# Data

alike = "input unused, loss does not fall, constant output"
plant("data bug", "digits, all images are the first", "constant inputs, samples alike", alike, mlp,
    data=nets.on(nets.digits, lambda x: x[:1].expand_as(x)))
plant("data bug", "digits CNN, all images are black", "constant inputs, samples alike", alike + ", not trained", cnn,
    data=nets.on(nets.images, torch.zeros_like))
plant("data bug", "reviews, all tokens are padding", "constant inputs, samples alike",
    alike + ", dead attention, not trained", bag, data=nets.on(nets.reviews, lambda x: torch.full_like(x, nets.pad)))
plant("data bug", "reviews, all words are unknown", "constant inputs, samples alike", alike + ", dead attention",
    reader, data=nets.on(nets.reviews, lambda x: torch.full_like(x, 3)))
plant("data bug", "waves LSTM, each sequence minus itself", "constant inputs, samples alike", alike + ", not trained",
    lstm, data=nets.on(nets.waves, lambda x: x - x))
plant("data bug", "text, the ids of one sentence for all", "constant inputs, samples alike", alike, gpt,
    data=nets.on(nets.text, lambda x: x[:1].expand_as(x)))
flat = "loss does not fall, samples alike, constant output, constant inputs, not trained"
plant("input unused", "digits CNN, zeros_like", "input unused", flat, cnn, net=lambda: nets.Ignores(nets.convnet(),
    torch.zeros_like))
plant("input unused", "digits MLP, noise in its place", "input unused", flat, mlp_adam,
    net=lambda: nets.Ignores(stack(64, 64, 32, 10), torch.randn_like))
plant("input unused", "waves LSTM, its mean over samples", "input unused, samples alike", flat, lstm,
    net=lambda: nets.Ignores(nets.Recurrent(), lambda x: x.mean(0, keepdim=True).expand_as(x)))
# The layer whose result is thrown away gets no gradient, which leads there as well.
plant("input unused", "digits MLP, the hidden state is overwritten", "input unused, samples alike, not trained",
    flat + ", units alike", mlp_adam, net=nets.Learned)


# Two models at once

siamese_digits = recipe(nets.digits, lambda: stack(64, 48, 6), adam(5e-3), loss=nets.contrastive, feed=runs.pairs,
    size=48, score=partial(nets.nearest_wrong, unit=False))
plant("collapse", "siamese digits without negatives", "samples alike",
    "activations vanish, constant output, units alike, gradients vanish, dead units, input unused", siamese_digits,
    loss=partial(nets.contrastive, negatives=False))
plant("NaN or Inf", "square root of 0 on its way back, siamese digits", "NaN or Inf", broken, siamese_digits,
    loss=partial(nets.contrastive, root=True))


def circle_gan(**options):
    return partial(runs.gan, points=runs.circle, score=runs.off_circle, lr=5e-3, steps=150, told="critic", **options)


plant("wrong optimizer", "GAN, both optimizers have the critic's parameters", *lacks, circle_gan,
    fault="critic's parameters twice")
plant("detached", "GAN, the samples are detached for the maker too", "frozen part, not trained", stays, circle_gan,
    fault="detached")


# Out of reach: neither the statistics nor the loop can know. They count apart.

def unreachable(kind, name, way, **fault): plant(kind, name, "", "", way, reach=False, **fault)


unreachable("wrong labels", "digits MLP, shuffled", mlp, data=nets.shuffled(nets.digits))
unreachable("wrong labels", "tables, three quarters shuffled", tabular, data=nets.shuffled(nets.table, .75))
unreachable("wrong labels", "digits CNN, shuffled, and three batches make a step", cnn_sgd, loop=runs.accumulated,
    data=nets.shuffled(nets.images), steps=240, size=16)
unreachable("wrong dimension", "reviews, softmax over the samples", pooling,
    loss=by_output(lambda out, y: F.nll_loss(out.log_softmax(0), y)), steps=60)
unreachable("wrong dimension", "digits RNN reads the batch as time", rnn, net=lambda: nets.Sideways(nn.RNN, 8, 32, 10))
unreachable("reshape mixes samples", "digits MLP, view in place of permute", mlp_adam,
    net=lambda: nets.Ignores(stack(64, 64, 32, 10), lambda x: x.t().reshape(x.shape)))
unreachable("no activation", "regression, linear layers only", regression,
    net=lambda: stack(8, 64, 64, 1, act=nn.Identity))
unreachable("loss broadcasts", "regression, (N, 1) and (N,)", regression,
    loss=by_output(lambda out, y: (out - y[:, 0]).square().mean()))


# How much a fault harms


# The first set: healthy runs that look odd

fine = healthy.fine


def train(*parts, **options) -> Run: return recipe(*parts, **options)()


# The ways to train that faults are planted into

for name, run, bound in (
        ("digits MLP, SGD", mlp(), .2), ("digits MLP, momentum", mlp_momentum(), .2),
        ("digits MLP, Adam", mlp_adam(), .2), ("digits tanh MLP, momentum", mlp_tanh(), .15),
        ("digits MLP with batch norm", mlp_norm(), .15), ("digits CNN, Adam", cnn(), .2),
        ("digits CNN, momentum", cnn_sgd(), .2), ("digits CNN with batch norm", cnn_norm(), .15),
        ("tables, Adam", tabular(), .25), ("tables, tanh", tabular_tanh(), .35),
        ("tables, residual net, AdamW", residual(), .35), ("regression, Adam", regression(), .2),
        ("regression, momentum", regression_sgd(), .2), ("regression with tanh, RMSprop", regression_rmsprop(), .35),
        ("waves LSTM", lstm(), .3), ("digits GRU", gru(), .2), ("digits RNN", rnn(), .25),
        ("reviews, mean of embeddings", bag(), .1), ("reviews, MultiheadAttention", reader(), .1),
        ("reviews, attention of its own", pooling(), .1), ("text GPT, AdamW", gpt(), .25),
        ("text GPT, sdpa", gpt_fused(), .25), ("recall, one block", copier(), .05), ("recommender", recommender(), .2),
        ("autoencoder", autoencoder(), .35)):
    fine("plain", name, run, bound)


# Regularization and layers that look odd

fine("dropout", "digits MLP, 0.5 twice", mlp_adam(net=lambda: stack(64, 128, 128, 10, drop=.5), steps=150), .2)
fine("dropout", "digits CNN, 0.7 before the head", cnn(net=lambda: nets.convnet(drop=.7), steps=150), .25)
fine("dropout", "reviews, half of the words are dropped", bag(net=lambda: nets.Bag(32), data=nets.on(nets.reviews,
    lambda x: torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < .3, nets.pad, x))), .3)
fine("norm", "digits CNN with batch norm, batches of 8", cnn_norm(size=8, steps=150), .25)
fine("norm", "digits MLP with LayerNorm", mlp_norm(net=lambda: stack(64, 48, 48, 10, norm=nn.LayerNorm)), .2)
fine("norm", "digits CNN with GroupNorm", cnn(net=lambda: nn.Sequential(nn.Conv2d(1, 16, 3), nn.GroupNorm(4, 16),
    nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.GroupNorm(8, 32), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))), .2)
fine("norm", "batch norm behind a layer with a bias, and before the ReLU of the output",
    mlp_norm(net=lambda: nn.Sequential(*stack(64, 48, 48, norm=nn.BatchNorm1d), nn.BatchNorm1d(48), nn.ReLU(),
    nn.Linear(48, 10))), .2)
for act in (nn.SELU, nn.PReLU, nn.Softplus, nn.Hardtanh, nn.ReLU6, nn.GELU, nn.SiLU, nn.Sigmoid):
    fine("activation", f"digits MLP, {act.__name__}", mlp_adam(net=lambda act=act: stack(64, 64, 32, 10, act=act),
        optim=adam(8e-3)), .2)
fine("activation", "SELU with AlphaDropout and LeCun's init", mlp_adam(net=nets.Selu), .2)
fine("activation", "SIREN", train(nets.one_picture, lambda: nn.Sequential(nets.Sine(2, 48, True), nets.Sine(48, 48,
    False), nn.Linear(48, 1)), adam(3e-3), loss=by_output(F.mse_loss), steps=150, size=128, score=nets.unexplained), .2)
fine("gates", "highway net", mlp_adam(net=lambda: nn.Sequential(nn.Linear(64, 48),
    *[nets.Highway(48) for _ in range(5)], nn.Linear(48, 10)), optim=adam(5e-3)), .2)
fine("gates", "GLU", mlp_adam(net=lambda: nn.Sequential(nn.Linear(64, 128), nn.GLU(), nn.Linear(64, 64), nn.GLU(),
    nn.Linear(32, 10)), optim=adam(5e-3)), .2)
fine("gates", "digits CNN with squeeze and excitation",
    cnn(net=lambda: nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nets.Squeeze(16), nn.Conv2d(16, 32, 3, 2),
    nn.ReLU(), nets.Squeeze(32), nn.Flatten(), nn.Linear(288, 10)), optim=adam(5e-3)), .2)
fine("residual", "ReZero", residual(net=lambda: nets.scaled_branches(0., False, False), optim=adam(1e-2), steps=150),
    .35)
fine("residual", "layer scale 1e-4", residual(net=lambda: nets.scaled_branches(1e-4, True), optim=adam(1e-2),
    steps=150), .35)
fine("residual", "the last layer of each block begins at zero",
    residual(change=lambda m: [p.zero_() for block in m.blocks for p in block[-1].parameters()]), .35)
fine("residual", "the head begins at zero", residual(change=lambda m: m.head[-1].weight.zero_()), .35)
fine("residual", "stochastic depth", residual(net=nets.Skips, steps=150), .4)
fine("init", "logistic regression from zero", mlp(net=lambda: nn.Linear(64, 10), change=everything(0.)), .2)
fine("init", "the head of a CNN begins at zero", cnn(change=lambda m: (m[-1].weight.zero_(), m[-1].bias.zero_())), .2)
fine("init", "orthogonal, with biases of 0.1",
    mlp_momentum(change=lambda m: [nn.init.orthogonal_(p) if p.ndim > 1 else p.fill_(.1) for p in m.parameters()]), .2)
fine("sparse", "mixture of 8 experts, batches of 32", tabular(net=nets.Experts, size=32), .5)
fine("sparse", "autoencoder with the 8 best of 256", autoencoder(net=lambda: nn.Sequential(nn.Linear(64, 256),
    nets.Best(8), nn.Linear(256, 64)), optim=adam(3e-3), steps=200), .45)
fine("sparse", "autoencoder with a hard Gumbel softmax", autoencoder(net=nets.Gumbel, optim=adam(5e-3), steps=200), .8)
fine("sparse", "digits MLP with binary activations, straight through", mlp_adam(net=lambda: nn.Sequential(nn.Linear(64,
    128), nn.BatchNorm1d(128), nets.Binary(), nn.Linear(128, 10)), optim=adam(5e-3)), .25)
fine("parametrized", "digits MLP, 70 % of the weights pruned", mlp_adam(net=nets.pruned, optim=adam(8e-3)), .25)
fine("parametrized", "weight norm", mlp_adam(net=lambda: nn.Sequential(*[parametrizations.weight_norm(m)
    if isinstance(m, nn.Linear) else m for m in stack(64, 64, 32, 10)])), .2)
fine("parametrized", "spectral norm", mlp_adam(net=lambda: nn.Sequential(*[parametrizations.spectral_norm(m)
    if isinstance(m, nn.Linear) else m for m in stack(64, 64, 32, 10)]), optim=adam(8e-3), steps=150), .25)


# Parts that stay as they are, on purpose

def tuned_net(x, y, cut: str = "", norm: bool = False) -> nn.Module:
    "A new head on a body that knows an easier task: what tells digits apart, for whether a digit is odd."
    whole = learned(stack(64, 64, 32, 10, norm=nn.BatchNorm1d if norm else None), x, y)
    return nets.Tuned(whole[:-1], stack(32, 16, 2), cut)


def frozen_body(model): model.body.requires_grad_(False)


def thawed(model, i, optimizer, *batch):
    if i != 50: return
    model.body.requires_grad_(True)
    optimizer.add_param_group({"params": list(model.body.parameters()), "lr": 1e-3})


def norms_at_rest(model, *_): every(batch_norms, lambda m: m.eval())(model)


tuned = recipe(nets.digits, tuned_net, given(lambda m: m.head.parameters()), taught=True,
    loss=by_output(lambda out, y: F.cross_entropy(out, y % 2)), score=lambda m, x, y: nets.error(m, x, y % 2))
fine("frozen on purpose", "backbone, requires_grad=False", tuned(change=frozen_body, optim=adam(5e-3)), .15)
fine("frozen on purpose", "backbone, only the head is in the optimizer", tuned(), .15)
fine("frozen on purpose", "backbone, no_grad in forward", tuned(net=partial(tuned_net, cut="no_grad")), .15)
fine("frozen on purpose", "backbone, detached in forward", tuned(net=partial(tuned_net, cut="detach")), .15)
fine("frozen on purpose", "backbone, frozen, and thawed halfway", tuned(hand=frozen_body, each=thawed), .15)
fine("frozen on purpose", "batch norm in eval mode while the rest is tuned", tuned(net=partial(tuned_net, norm=True),
    optim=adam(5e-3), each=norms_at_rest), .15)
plant("frozen part moves", "backbone with batch norm, in train mode", "frozen part moves", "", tuned,
    net=partial(tuned_net, norm=True), change=frozen_body, optim=adam(5e-3),
    twin=tuned(net=partial(tuned_net, norm=True), change=frozen_body, optim=adam(5e-3), each=norms_at_rest))


def freezes(model, i, *_):
    if i == 20: frozen_body(model)


plant("frozen part moves", "backbone frozen at step 20, gradients of zeros and weight decay", "frozen part moves", "",
    tuned, each=freezes, optim=adamw(weight_decay=.1), in_place=True)


def lora_net(x, y) -> nn.Module:
    base = learned(stack(64, 64, 32, 10), x, y)
    model = nn.Sequential(*[nets.Lora(m) if isinstance(m, nn.Linear) else m for m in base])
    model.order = torch.randperm(10)
    return model


fine("frozen on purpose", "LoRA of rank 4 for digits in another order", mlp_adam(net=lora_net,
    taught=True, optim=given(trained, 1e-2), loss=lambda m, x, y: F.cross_entropy(m(x), m.order[y]),
    score=lambda m, x, y: nets.error(m, x, m.order[y]), steps=120), .25)
fine("frozen on purpose", "embeddings from elsewhere", bag(net=nets.vectors), .1)
fine("frozen on purpose", "a random first layer", mlp_adam(net=lambda: stack(64, 256, 10), change=frozen("0."),
    optim=adam(5e-3)), .2)


def pair(x, y, first: str) -> nn.Module:
    return nets.Pair(learned(stack(64, 64, 10), x, y, 120), stack(64, 24, 10), first)


distilled = recipe(nets.digits, pair, given(lambda m: m.student.parameters()), taught=True, loss=nets.soft_answers,
    change=lambda m: m.teacher.eval(), score=lambda m, x, y: nets.error(m.student, x, y), steps=120)
fine("frozen on purpose", "a teacher before the student", distilled(net=partial(pair, first="teacher")), .2)
fine("frozen on purpose", "a teacher behind the student", distilled(net=partial(pair, first="student")), .2)


# Schedules

fine("schedule", "warm-up from 0 over 30 batches", gpt(scheduler=warm(30), steps=100), .3)
fine("schedule", "warm-up over 50 batches, SGD", mlp_momentum(scheduler=warm(50), steps=120), .2)
fine("schedule", "cosine to zero, each batch", cnn(scheduler=lambda o: sched.CosineAnnealingLR(o, 120), steps=120,
    optim=adam(4e-3)), .2)
fine("schedule", "one cycle, each batch", mlp_momentum(scheduler=lambda o: sched.OneCycleLR(o, .2, total_steps=120),
    steps=120), .2)
fine("schedule", "cosine with restarts each 20 batches",
    mlp_adam(scheduler=lambda o: sched.CosineAnnealingWarmRestarts(o, 20), steps=140, optim=adam(5e-3)), .2)
fine("schedule", "StepLR by the epoch of 40 batches", lstm(scheduler=lambda o: sched.StepLR(o, 1, .3), epoch=40,
    steps=130), .3)
fine("schedule", "cyclic between 0.01 and 0.2", mlp(scheduler=lambda o: sched.CyclicLR(o, .01, .2, step_size_up=15),
    steps=120), .2)
fine("schedule", "a rate that grows, to find the right one", mlp(scheduler=lambda o: sched.ExponentialLR(o, 1.08),
    optim=sgd(1e-4), steps=103), .7)
fine("schedule", "warm-up and decay by the root of the step", reader(scheduler=lambda o: sched.LambdaLR(o,
    lambda i: min((i + 1)/20, math.sqrt(20/(i + 1)))), optim=adam(8e-3)), .1)


# Loops that are written in other ways

fine("loop", "four batches a step", mlp_adam(zero="after", every=4, steps=240, size=16), .2)
fine("loop", "three batches a step, a row for each step", cnn_sgd(loop=runs.accumulated, steps=240, size=16), .2)
fine("loop", "gradients zeroed in place", gru(in_place=True, told=torch.Tensor.item), .2)
fine("loop", "gradients set to None by hand",
    cnn(zero="never", after=lambda m: [setattr(p, "grad", None) for p in m.parameters()]), .2)
fine("loop", "zero_grad just before backward, no loss told", tabular(zero="late", told=lambda loss: None), .25)
fine("loop", "validation between batches, batch norm and dropout",
    mlp_norm(loop=runs.validated, net=lambda: stack(64, 64, 64, 10, norm=nn.BatchNorm1d, drop=.2)), .15)
fine("loop", "clipped at 1", rnn(clip=clipped(1.)), .25)
fine("loop", "clipped at 0.1, Adam", gpt(clip=clipped(.1)), .25)
fine("loop", "LBFGS", regression(loop=runs.closures, steps=25, size=256,
    optim=lambda m: torch.optim.LBFGS(m.parameters(), lr=.5, max_iter=5)), .3)
fine("loop", "sharpness aware", mlp_momentum(loop=runs.sharpness_aware), .2)
fine("loop", "batches of 1", mlp(size=1, optim=sgd(.02), steps=500), .4)
fine("loop", "all data in each batch", mlp(size=1397, optim=sgd(.3, momentum=.9), steps=60), .2)
fine("loop", "the sum of losses in place of the mean", mlp(loss=by_output(lambda out, y: F.cross_entropy(out, y,
    reduction="sum")), optim=sgd(3e-3), told=torch.Tensor.item), .2)
fine("converged", "64 digits by heart, 200 steps", mlp_adam(data=nets.few(nets.digits), optim=adam(1e-2), steps=200),
    .02)
fine("converged", "CNN, 64 digits, momentum", cnn_sgd(data=nets.few(nets.images), steps=150), .02)
fine("converged", "goes on where another run ended",
    mlp_adam(net=lambda x, y: learned(stack(64, 64, 32, 10), x, y, 250), taught=True, optim=adam(3e-4), steps=80), .12)


# Losses that look odd, and heads that belong to them

fine("loss", "log_softmax and NLL", cnn(net=lambda: nn.Sequential(*nets.convnet(), nn.LogSoftmax(-1)),
    loss=by_output(F.nll_loss)), .2)
fine("loss", "log_softmax and then cross entropy, which takes it once more",
    mlp(net=lambda: stack(64, 64, 32, 10, last=lambda: nn.LogSoftmax(-1))), .2)
fine("loss", "sigmoid and BCELoss", train(nets.parity, lambda: nets.Halves(nn.Sigmoid()), adam(5e-3),
    loss=by_output(F.binary_cross_entropy), score=nets.wrong_side(.5)), .15)
fine("loss", "BCE with logits, labels 0 and 1", train(nets.parity, lambda: nets.Halves(nn.Identity()), adam(5e-3),
    loss=by_output(F.binary_cross_entropy_with_logits), score=nets.wrong_side(0)), .15)
fine("loss", "hinge, most samples without a loss at the end", train(nets.parity, lambda: nets.Halves(nn.Identity()),
    adam(5e-3), loss=by_output(lambda out, y: (1 - out*(2*y - 1)).relu().mean()), steps=180, score=nets.wrong_side(0)),
    .15)
fine("loss", "multi-margin, a margin of 0.2 that all samples keep", mlp_adam(data=nets.few(nets.digits),
    loss=by_output(lambda out, y: F.multi_margin_loss(out, y, margin=.2)), optim=adam(5e-3), steps=150), .02)
fine("loss", "focal, with gamma 2", mlp_adam(loss=by_output(lambda out, y: (
    (1 - out.softmax(-1).gather(1, y[:, None])[:, 0])**2 * F.cross_entropy(out, y, reduction="none")).mean())), .25)
fine("loss", "smooth labels, 0.2", mlp_adam(loss=by_output(lambda out, y: F.cross_entropy(out, y, label_smoothing=.2))),
    .2)
fine("loss",
    "softmax as output, KL to smooth labels", mlp_adam(net=lambda: stack(64, 64, 32, 10, last=lambda: nn.Softmax(-1)),
    loss=by_output(lambda out, y: F.kl_div((out + 1e-8).log(), .9*F.one_hot(y, 10) + .01, reduction="batchmean"))), .2)
fine("loss", "softmax as output, squared error to one-hot",
    mlp_adam(net=lambda: stack(64, 64, 32, 10, last=lambda: nn.Softmax(-1)), optim=adam(5e-3),
    loss=by_output(lambda out, y: (out - F.one_hot(y, 10)).square().sum(1).mean())), .2)
fine("loss", "ten binary questions", mlp_adam(loss=by_output(lambda out, y: F.binary_cross_entropy_with_logits(out,
    F.one_hot(y, 10).float())), steps=150, optim=adam(5e-3)), .2)
fine("loss", "log density, below zero", regression(net=lambda: stack(8, 64, 64, 2), loss=by_output(nets.density),
    score=nets.mean_only, data=nets.on(nets.curve, targets=lambda y: .1*y), optim=adam(5e-3), steps=250), .4)
fine("loss", "minus the cosine to the target", mlp_adam(net=lambda: stack(64, 64, 10), optim=adam(5e-3),
    loss=by_output(lambda out, y: -F.cosine_similarity(out, F.one_hot(y, 10).float()).mean())), .2)
fine("loss", "minus the mean probability of the right class", mlp_adam(
    loss=by_output(lambda out, y: -out.softmax(-1).gather(1, y[:, None]).mean()), optim=adam(5e-3), steps=180), .35)
fine("loss", "Huber, outliers in the targets", regression(loss=by_output(F.smooth_l1_loss), data=nets.on(nets.curve,
    targets=lambda y: torch.where(torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) < .01, y + 20., y)),
    score=lambda m, x, y: nets.unexplained(m, x[y[:, 0] < 10], y[y[:, 0] < 10])), .3)
fine("loss", "quantile of 0.9", regression(loss=by_output(lambda out, y: torch.maximum(.9*(y - out),
    .1*(out - y)).mean()), score=lambda m, x, y: abs((m(x) > y).float().mean().item() - .9)), .1)
fine("loss", "counts, Poisson", regression(loss=by_output(F.poisson_nll_loss),
    optim=adam(5e-3), data=nets.on(nets.curve, targets=lambda y: (2*(.7*y).exp()).round()),
    score=lambda m, x, y: ((m(x).exp() - y).square().mean()/y.var()).item()), .5)
fine("loss", "ReLU as the output for numbers above zero", regression(net=lambda: stack(8, 64, 64, 1, last=nn.ReLU),
    data=nets.on(nets.curve, targets=lambda y: y + 5.), steps=200), .45)
fine("loss", "tanh as the output for targets in -1 to 1", regression(net=lambda: stack(8, 64, 64, 1, last=nn.Tanh),
    data=nets.on(nets.curve, targets=torch.tanh)), .3)
fine("loss", "sigmoid as the output of an autoencoder, BCE of pixels",
    train(lambda seed: tuple((x, x) for x, _ in nets.digits(seed, normal=False)), lambda: stack(64, 48, 16, 48, 64,
    last=nn.Sigmoid), adam(1e-2), loss=by_output(F.binary_cross_entropy), score=nets.unexplained, steps=150), .4)
fine("loss", "targets about 2,000, and a rate to match", regression(optim=adam(.3), steps=300,
    net=lambda: stack(8, 64, 1), data=nets.on(nets.curve, targets=lambda y: 2000 + 300*y)), .5)
fine("loss", "much noise in the targets", regression(data=nets.on(nets.curve, targets=lambda y: y + 1.5*torch.randn(
    y.shape, generator=torch.Generator().manual_seed(4))), steps=100, optim=adam(3e-3)), .95)
fine("loss", "one label in seven is wrong",
    mlp_adam(loss=by_output(F.cross_entropy), data=lambda seed: (lambda train, held: ((train[0], torch.where(
    torch.rand(len(train[1]), generator=torch.Generator().manual_seed(seed)) < .15, torch.randint(0, 10, train[1].shape,
    generator=torch.Generator().manual_seed(seed + 1)), train[1])), held))(*nets.digits(seed)), steps=120), .25)


# Inputs that look odd

fine("inputs", "pixels from 0 to 1", mlp_momentum(data=nets.on(nets.digits, normal=False), steps=120), .2)
fine("inputs", "pixels from 0 to 16, batch norm first", mlp_norm(net=lambda: nn.Sequential(nn.BatchNorm1d(64),
    *stack(64, 64, 10)), data=nets.on(nets.digits, lambda x: 16*x, normal=False)), .15)
fine("inputs", "raw tables behind a layer that scales them",
    tabular(data=nets.on(nets.table, lambda x: x*torch.logspace(0, 5, 12) + 100),
    net=lambda: nn.Sequential(nn.BatchNorm1d(12, affine=False), *stack(12, 64, 64, 4))), .35)
fine("inputs", "pixels that are 0 or 1", mlp_adam(data=nets.on(nets.digits, lambda x: (x > .5).float(), normal=False),
    steps=140), .25)
fine("inputs", "one-hot rows of 64, one number each",
    mlp_adam(data=lambda seed: nets.split(F.one_hot(torch.arange(1600) % 64, 64).float(),
    (torch.arange(1600) % 64)//7 % 10, seed, 400), net=lambda: stack(64, 64, 10), optim=adam(1e-2)), .05)
fine("inputs", "pixels as integers from 0 to 4, cast by the model", mlp_adam(data=nets.on(nets.digits,
    lambda x: (4*x).round().long(), normal=False), net=lambda: nets.Cast(stack(64, 64, 32, 10))), .2)
fine("inputs", "bags of words, 95 % zeros", train(nets.reviews, nets.Counted, adam(1e-2), steps=120), .1)
fine("inputs", "nine tenths of the classes are one", train(lambda seed: tuple((x[keep], (y[keep] == 0).long()) for x,
    y in nets.digits(seed) for keep in [y > -1]), lambda: stack(64, 32, 2), adam(5e-3)), .08)
fine("inputs", "three quarters of each sentence are padding", reader(data=nets.on(nets.reviews,
    lambda x: torch.cat([x, torch.zeros(len(x), 30, dtype=torch.long)], 1)), steps=100), .1)
fine("inputs", "from easy to hard", lstm(data=nets.curriculum), .35)
fine("inputs", "mixed pairs of digits and labels", mlp_adam(loss=nets.mixed, steps=150), .2)
fine("inputs", "noise that is to be taken out again",
    autoencoder(data=lambda seed: tuple((x + .5*torch.randn(x.shape, generator=torch.Generator().manual_seed(5)), x)
    for x, _ in nets.digits(seed)), net=lambda: stack(64, 96, 32, 96, 64)), .45)


# Optimizers

def groups(model):
    "No decay for biases and norms."
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": .1}, {"params": rest, "weight_decay": 0.}], 5e-3)


def slow_body(model):
    return torch.optim.Adam([{"params": model[:-1].parameters(), "lr": 1e-3}, {"params": model[-1].parameters(),
          "lr": 1e-2}])


fine("optimizer", "groups with and without decay", gpt(optim=groups), .25)
fine("optimizer", "a slow body and a fast head", cnn(optim=slow_body), .25)
fine("optimizer", "AdamW with a decay of 0.5", tabular(optim=adamw(1e-2, weight_decay=.5)), .3)
fine("optimizer", "SGD with a decay of 5e-4 and Nesterov",
    cnn_sgd(optim=sgd(.05, momentum=.9, nesterov=True, weight_decay=5e-4)), .2)
fine("optimizer", "Adagrad", mlp(optim=adagrad(.03)), .2)
fine("optimizer", "RMSprop, GRU", gru(optim=rmsprop(3e-3)), .25)
fine("optimizer", "Adam with amsgrad and eps 1e-4", mlp_adam(optim=adam(5e-3, amsgrad=True, eps=1e-4)), .2)
fine("optimizer", "NAdam, small rate and many steps", regression(optim=nadam(2e-3), steps=250), .3)
fine("optimizer", "SparseAdam for embeddings, Adam for the rest",
    bag(net=nets.sparse_bag, optim=lambda m: [torch.optim.SparseAdam(m.embedding.parameters(), 1e-2),
    given(lambda m: [*m.hidden.parameters(), *m.head.parameters()], 1e-2)(m)], steps=120), .1)


# Number formats

fine("precision", "bfloat16 autocast, CNN", cnn(loop=runs.scaled, cast=torch.bfloat16), .2)
fine("precision", "bfloat16 autocast, GPT", gpt(loop=runs.scaled, cast=torch.bfloat16), .3)
fine("precision", "float16 with a scaler, clipped behind unscale_", mlp_adam(loop=runs.scaled, cast=torch.float16,
    scale={"init_scale": 2.**16}, unscale=True, clip=clipped(5.)), .2)
fine("precision", "float16, the first steps are skipped while the scale falls", mlp_adam(loop=runs.scaled,
    cast=torch.float16, scale={"init_scale": 2.**24}, unscale=True, clip=clipped(5.), steps=120), .25)
fine("precision", "float64", tabular(data=nets.on(nets.table, lambda x: x.double()),
    net=lambda: stack(12, 64, 64, 4).double()), .25)


# Models with parts that rest

fine("parts that rest", "a head for another task", mlp_adam(net=nets.Resting), .2)
fine("parts that rest", "two tasks in turn", mlp_adam(net=nets.Turns, optim=adam(3e-3), steps=160,
    each=lambda m, i, *_: setattr(m, "task", i % 2), loss=lambda m, x, y: F.cross_entropy(m(x), y % 2 if m.task else y),
    score=nets.turns_wrong), .2)
berts_reviews = recipe(nets.reviews, nets.review_bert, adamw(3e-3), loss=nets.review_loss, score=nets.review_wrong,
    clip=clipped(1.), steps=60)
fine("parts that rest", "Hugging Face's BERT, a classifier", berts_reviews(), .25)
fine("parts that rest", "Hugging Face's BERT, the pooler is not used",
    berts_reviews(net=partial(nets.review_bert, whole=False)), .2)
fine("shared", "tied embedding and head", gpt(net=nets.Tied, steps=100), .3)
fine("shared", "one block four times", residual(net=nets.Shared, steps=150), .4)
fine("shared", "gradient checkpointing", residual(net=nets.Checkpointed), .35)
fine("shared", "GPT with dropout 0.1", gpt(net=lambda: nets.Gpt(drop=.1), steps=80), .3)
fine("recurrent", "two layers, both directions, dropout",
    lstm(net=lambda: nets.Recurrent(width=24, num_layers=2, dropout=.2), steps=100), .35)
fine("recurrent", "packed sequences", lstm(net=nets.Packed, steps=100), .35)
fine("recurrent", "truncated backpropagation through time", gpt(net=nets.carrier, optim=adam(1e-2), feed=runs.stream,
    loss=nets.carried, score=nets.carried_surprise, steps=100), .4)


# Two models, and losses without labels

alone = recipe(nets.digits, nets.two_views, given(trained, 3e-3), loss=nets.agreement, size=64,
    score=lambda m, x, y: nets.nearest_wrong(m["body"], x, y))
fine("without labels", "BYOL, a target that follows slowly", alone(net=lambda: nets.two_views(True),
    after=lambda m: nets.follow(m["target"], m["body"], .05)), .2)
fine("without labels", "SimSiam", alone(), .2)
fine("without labels", "contrast between the samples of a batch", alone(loss=nets.contrasted), .2)
fine("without labels", "triplets, a small margin", recipe(nets.digits, lambda: stack(64, 48, 8),
    adam(5e-3), feed=runs.triplets, loss=lambda m, a, b, c: F.triplet_margin_loss(m(a), m(b), m(c), margin=.5),
    score=nets.nearest_wrong, steps=120)(), .2)
fine("without labels", "variational autoencoder", recipe(nets.digits, nets.coder, adam(5e-3), loss=nets.variational,
    score=nets.redrawn, steps=150)(), .6)
cloud_gan = partial(runs.gan, points=runs.cloud, score=runs.off_middle, lr=2e-3, steps=400)
fine("two models", "GAN, both watched", cloud_gan, 1.2)
fine("two models", "GAN, the maker watched", partial(cloud_gan, watched="maker"), 1.2)
fine("two models", "GAN, the critic watched", partial(cloud_gan, watched="critic", told="critic"), 1.2)
fine("two models", "a gradient that is reversed on purpose", recipe(nets.digits, nets.Domains, adam(3e-3),
    loss=nets.both_domains, score=nets.tasks_wrong, steps=120)(), .2)
fine("loop", "adversarial training", mlp_adam(loop=runs.adversarial), .2)
fine("loop", "a mean of the weights beside", runs.averaged, .2)


# Rewards

policy = recipe(nets.digits, lambda: stack(64, 64, 10), adam(1e-2), change=lambda m: setattr(m, "mean", 0.), steps=260,
    size=128)
fine("rewards", "policy gradient", policy(loss=partial(nets.rewarded, baseline=False)), .5)
fine("rewards", "policy gradient with a baseline", policy(loss=partial(nets.rewarded, baseline=True)), .5)
fine("rewards", "Q-learning with a target network", recipe(nets.no_data,
    nets.online_and_target, given(lambda m: m["online"].parameters(), 1e-2), feed=runs.places, loss=nets.q_values,
    steps=200, size=64, each=lambda m, i, *_: i % 20 or m["target"].load_state_dict(m["online"].state_dict()),
    score=lambda m: (m["online"](torch.eye(12)).argmax(1)[:11] != 1).float().mean().item())(), .3)
fine("rewards", "actor and critic", recipe(nets.digits, nets.Actor, adam(1e-2), loss=nets.gained, clip=clipped(.5),
    score=nets.tasks_wrong, steps=200, size=128)(), .4)
fine("without labels", "word vectors, three quarters of the words never occur", recipe(lambda seed: (nets.text(seed)[
    0],)*2, nets.word_vectors, adam(2e-2), loss=nets.skip_grams, score=nets.strangers, steps=150)(), .35)
fine("without labels", "recommender with rare users",
    recommender(data=lambda seed: (lambda train, held: (tuple(t[(train[0][:, 0] < 50) | (train[0][:, 1] < 5)]
    for t in train), tuple(t[held[0][:, 0] < 50] for t in held)))(*nets.ratings(seed)), steps=180), .2)


# The second set

plant, fine = second.plant, second.fine


# Faults

diverged = ("outputs blow up, activations explode, gradients explode, NaN or Inf, loss rises, loss does not fall, "
    "dead units, saturated, constant output, samples alike, gradients vanish, not trained, dead attention, "
    "units alike")
starved = ("not trained, gradients vanish, loss does not fall, samples alike, constant output, activations vanish, "
    "input unused, dead units, dead attention")
stands = "loss does not fall"


# Rates

large = "learning rate too large"
plant(large, "resnet18, Adam 1", large, diverged, resnet_big, optim=adam(1.))
plant(large, "VAE, Adam 1", large, diverged, vae, optim=adam(1.))
plant(large, "GCN, SGD 1000", large, diverged, gcn, optim=sgd(1000.))
plant(large, "TCN, RMSprop 1", large, diverged, tcn, optim=rmsprop(1.))
plant(large, "MLP-Mixer, AdamW 10", large, diverged, mixer, optim=adamw(10.))
plant(large + ", mild", "U-Net, Adam 0.3", large, diverged, unet, optim=adam(.3))
plant(large + ", mild", "seq2seq, Adam 0.5", large, diverged, seq2seq, optim=adam(.5))
plant(large + ", mild", "ViT, NAdam 0.1", large, diverged, vit, optim=nadam(.1))
plant(large + ", mild", "BERT, AdamW 0.1", large, diverged, berts, optim=adamw(.1))
small = "learning rate too small"
plant(small, "small ResNet, SGD 1e-6", small, stands, resnet, optim=sgd(1e-6))
plant(small, "siamese net, Adam 1e-8", small, stands, siamese, optim=adam(1e-8))
plant(small, "seq2seq, Adam 1e-6", small, stands, seq2seq, optim=adam(1e-6))
plant(small, "wide and deep, Adagrad 1e-5", small, stands, widedeep, optim=adagrad(1e-5))


# Activations and beginnings

plant("dead ReLU", "multi-label, biases of -8", "dead units", starved, labels, change=biased(-8.))
plant("dead ReLU", "MNIST CNN, biases of -10", "dead units", starved, mnist, change=biased(-10.))
plant("dead ReLU", "pictures, plain net, biases of -9", "dead units",
    starved, mixer, net=lambda: then(partial(stack, 196, 48, 48, 6, flat=True), nn.Identity())(), change=biased(-9.),
    twin=mixer(net=partial(stack, 196, 48, 48, 6, flat=True)))
plant("saturated", "heteroscedastic regression, weights x 100", "saturated",
    starved + ", NaN or Inf, gradients explode, units alike, " "activations explode, outputs blow up", hetero,
    change=by(100.))
plant("saturated", "letters LSTM, gates with weights x 100", "saturated", starved + ", units alike, gradients explode",
    letters_lstm, change=lambda m: [p.mul_(100.) for n, p in m.rnn.named_parameters() if "weight" in n])
plant("gradients vanish", "multi-label, ten layers with sigmoid", "gradients vanish", starved + ", saturated", labels,
    net=lambda: stack(20, *[32]*10, 5, act=nn.Sigmoid))
plant("gradients vanish", "GCN of 12 layers with tanh", "gradients vanish, activations vanish, samples alike", starved,
    gcn, net=lambda: nets.GCN(layers=12, act=torch.tanh), change=by(.5))
plant("gradients vanish", "conv autoencoder, weights x 0.003, SGD", "gradients vanish, activations vanish", starved,
    auto, optim=sgd(.1, momentum=.9), twin=auto(optim=sgd(.1, momentum=.9)), change=by(.003, nn.Conv2d, nn.Linear,
    nn.ConvTranspose2d))
exploded = "activations explode, gradients explode, outputs blow up"
plant("gradients explode", "multi-label of eight layers, weights x 6", exploded,
    diverged + ", learning rate too large", labels, net=lambda: stack(20, *[48]*8, 5), optim=sgd(.05), change=by(6.),
    twin=labels(net=lambda: stack(20, *[48]*2, 5), optim=sgd(.3, momentum=.9)))
plant("gradients explode", "TCN, weights x 8", exploded, diverged + ", learning rate too large", tcn, optim=sgd(.01),
    change=by(8.), twin=tcn(optim=sgd(.03, momentum=.9)))
plant("residual explodes", "small ResNet of 8 blocks without norm", exploded, diverged + ", learning rate too large",
    resnet, net=lambda: nets.SmallResNet(nn.Identity, blocks=4), change=by(4.), steps=40,
    twin=resnet(net=lambda: nets.SmallResNet(blocks=4), steps=40))
plant("residual explodes", "TCN of 12 levels that trebles its residual", exploded,
    diverged + ", learning rate too large, saturated", tcn, net=lambda: nets.TCN(levels=12, residual=3.), steps=50,
    twin=tcn(steps=50))
plant("zero init", "multi-label, all weights zero", "constant output, units alike, samples alike",
    starved + ", units alike", labels, change=filled(0.))
plant("zero init", "NT-Xent, all weights zero", "constant output, units alike, samples alike",
    starved + ", units alike, NaN or Inf", contrast, change=filled(0.))
plant("constant init", "heteroscedastic regression, weights of 0.1", "units alike", starved + ", saturated", hetero,
    change=filled(.1))
plant("constant init", "two tasks, weights of 0.05", "units alike", starved, tasks, change=filled(.05))


# The loop

plant("no zero_grad", "MNIST CNN, SGD", "no zero_grad", diverged + ", learning rate too large", mnist, zero="never",
    optim=sgd(.05, momentum=.9), twin=mnist(optim=sgd(.05, momentum=.9)))
plant("no zero_grad", "letters LSTM, SGD", "no zero_grad", diverged + ", learning rate too large", letters_lstm,
    zero="never", optim=sgd(2., momentum=.9), twin=letters_lstm(optim=sgd(2., momentum=.9)))
plant("no zero_grad", "U-Net, Adam", "no zero_grad", diverged + ", learning rate too large", unet, zero="never")
plant("no zero_grad", "flow, Adam", "no zero_grad", diverged + ", learning rate too large", flow, zero="never")
plant("step before backward", "ViT", "step before backward", "not trained, loss does not fall", vit, order="step first")
plant("step before backward", "seq2seq, zero_grad between backward and step", "step before backward, not trained",
    "loss does not fall", seq2seq, zero="between")
plant("step or backward missing", "siamese net, no step", "no step",
    "not trained, step before backward, no zero_grad, loss does not fall", siamese, order="no step")
often = "scheduler each batch"
plant(often, "MNIST CNN, gamma 0.7", often, "learning rate too small, loss does not fall", mnist,
    scheduler=lambda o: sched.StepLR(o, 1, .7))
plant(often, "BERT, a tenth each 3", often, "learning rate too small, loss does not fall", berts,
    scheduler=lambda o: sched.StepLR(o, 3, .1))
plant(often, "seq2seq, milestones of epochs", often, "learning rate too small, loss does not fall", seq2seq,
    scheduler=lambda o: sched.MultiStepLR(o, [5, 10, 15], .1))
plant("eval mode", "deep net with batch norm, from the first batch", "eval mode", starved + ", batch norm", normed,
    each=eval_from(0))
plant("eval mode", "small ResNet, from the fourth batch", "eval mode",
    diverged + ", batch norm, learning rate too large", resnet, each=eval_from(3),
    net=lambda: nets.SmallResNet(blocks=4), twin=resnet(net=lambda: nets.SmallResNet(blocks=4)))
tight = "clipping too tight"
plant(tight, "two tasks, SGD, norm of 1e-4", tight, "learning rate too small, loss does not fall", tasks,
    clip=clipped(1e-4))
plant(tight, "small ResNet, SGD, values of 1e-7", tight, "learning rate too small, loss does not fall", resnet,
    clip=within(1e-7))
plant(tight, "TCN, Adam, norm of 1e-9", tight, "learning rate too small, loss does not fall", tcn, clip=clipped(1e-9))
decay = "weight decay too strong"
plant(decay, "MLP-Mixer, AdamW, 100", decay, starved, mixer, optim=adamw(3e-3, weight_decay=100.))
plant(decay, "letters transformer, AdamW, 60", decay, starved, former, optim=adamw(3e-3, weight_decay=60.))
plant(decay, "two tasks, SGD, 0.5", decay, starved, tasks, optim=sgd(.05, momentum=.9, weight_decay=.5))
plant(decay, "multi-label, NAdam, 1", decay, starved, labels, optim=nadam(5e-3, weight_decay=1.))


# What the optimizer holds, what is cut

lacks = "not in the optimizer"
plant(lacks, "BERT, only the classifier", lacks + ", frozen part", "not trained, loss does not fall", berts,
    optim=given(lambda m: m.classifier.parameters(), 3e-3))
plant("wrong optimizer", "MNIST CNN, the optimizer has another net's",
    "not in the optimizer, other parameters in the optimizer", "not trained, loss does not fall", mnist,
    optim=lambda m: torch.optim.Adam(nets.Mnist().parameters(), 3e-3))
cut = "frozen part, not trained"
plant("detached", "two tasks, the trunk is detached, noisy", cut, "gradients vanish, loss does not fall",
    tasks, net=lambda: nets.Tasks(cut=True), data=partial(nets.pictures, noise=2.),
    twin=tasks(data=partial(nets.pictures, noise=2.)))
plant("detached", "conv autoencoder, no_grad around the encoder", cut, "gradients vanish, loss does not fall", auto,
    loss=nets.no_grad_encoder)
plant("frozen by mistake", "letters LSTM, all but the recurrent layer's biases", cut,
    "loss does not fall, gradients vanish", letters_lstm, change=frozen("encoder", "decoder", "weight"))
plant("frozen by mistake", "TCN, all convolutions", cut, "loss does not fall, gradients vanish", tcn,
    change=frozen("first", "convs"))


# What comes in and what is wanted

scale = "inputs not scaled"
unscaled = diverged + ", learning rate too large, batch norm, input unused"
plant(scale, "wide and deep, an income in dollars", scale, unscaled, widedeep,
    prepare=lambda i, x, y: (i, x*torch.tensor([1., 1., 1., 3e4]) + torch.tensor([0., 0., 0., 5e4]), y))
plant(scale, "U-Net, pixels of 0 to 60,000", scale, unscaled, unet, prepare=lambda x, y: ((x + 4)*8000, y))
plant(scale, "TCN, prices near 20,000", scale + ", targets not scaled", unscaled, tcn,
    prepare=lambda x, y: (x*50 + 2e4, y*50 + 2e4))
plant(scale, "mixture density, inputs in thousandths of a million", scale, unscaled, mdn,
    prepare=lambda x, y: (x*1e3 + 2e3, y))
plant("targets not scaled", "heteroscedastic regression, targets near 300,000", "targets not scaled",
    diverged + ", learning rate too large, learning rate too small", hetero, prepare=lambda x, y: (x, y*1e5 + 3e5))
plant("targets not scaled", "series, targets near 50,000, squared error, SGD", "targets not scaled",
    diverged + ", learning rate too large", tcn, prepare=lambda x, y: (x, y*1e4 + 5e4), optim=sgd(.01, momentum=.9),
    twin=tcn(optim=sgd(.03, momentum=.9)))
same = "constant inputs, samples alike, inputs not scaled"
plant("data bug", "MNIST CNN, pixels divided by 255 three times", same, starved, mnist,
    prepare=lambda x, y: ((x/4 + .5)/255**3, y))
plant("data bug", "ViT, every picture is the first one", "constant inputs, samples alike", starved, vit,
    prepare=lambda x, y: (x[:1].expand_as(x), y))
plant("data bug", "BERT, the tokenizer knows no word", "constant inputs, samples alike", starved, berts,
    prepare=lambda x, y: (x*0 + 1, y))
plant("data bug", "resnet18, pixels rounded to zero", "constant inputs, samples alike", starved + ", batch norm",
    resnet_big, prepare=lambda x, y: (((x + 8)/100).clamp(0, 1).floor(), y))
plant("input unused", "VAE, the decoder gets noise in place of the code",
    "input unused, samples alike, not trained, frozen part", starved, vae, net=lambda: nets.VAE(blind=True))
plant("input unused", "multi-label, forward goes on with the wrong variable",
    "input unused, samples alike, not trained, frozen part", starved, labels, net=nets.Forgot)


# The loss

early = "activation before the loss"
squeezed = "loss does not fall, saturated, gradients vanish, not trained, dead units"
plant(early, "U-Net, sigmoid before its logits' loss", early, squeezed, unet, net=lambda: nets.UNet(last=nn.Sigmoid()),
    score=lambda m, x, y: nets.overlap_lacks(lambda x: m(x) - .5, x, y))
plant(early, "multi-label, ReLU before its logits' loss", early + ", dead units", squeezed, labels,
    net=then(partial(stack, 20, 48, 48, 5), nn.ReLU()))
plant(early, "TCN, ReLU as its last layer, targets on both sides of 0", early + ", dead units",
    squeezed + ", samples alike", tcn, net=then(nets.TCN, nn.ReLU()))
plant(early, "series, sigmoid before a squared error", early + ", saturated", squeezed, tcn,
    net=then(nets.TCN, nn.Sigmoid()))
sign = "wrong sign"
plant(sign, "heteroscedastic regression, minus the loss", sign, diverged + ", learning rate too large", hetero,
    loss=lambda m, x, y: -nets.gauss(m, x, y))
plant(sign, "BERT, minus the loss", sign, diverged + ", learning rate too large", berts,
    loss=lambda m, x, y: -nets.bert_loss(m, x, y))
plant(sign, "NT-Xent, minus the loss", sign, diverged + ", learning rate too large", contrast,
    loss=lambda m, x, y: -nets.nt_xent(m, x, y))
plant(sign, "MNIST CNN, log probabilities without a minus", sign, diverged + ", learning rate too large", mnist,
    loss=lambda m, x, y: m(x).gather(1, y[:, None]).mean())
plant(sign, "MNIST CNN, nll_loss of logits", sign + ", " + early, diverged + ", learning rate too large", mnist,
    net=lambda: nets.Mnist(last=nn.Identity()))
broken = ("loss does not fall, not trained, loss rises, gradients explode, outputs blow up, dead units, saturated, "
    "constant output, activations explode")
plant("NaN or Inf", "U-Net, log of a sigmoid that rounds to 0", "NaN or Inf", broken + ", learning rate too large",
    unet, change=by(4.), loss=lambda m, x, y: -(y*m(x).sigmoid().log() + (1 - y)*(1 - m(x).sigmoid()).log()).mean())
plant("NaN or Inf", "mixture density, exp without logsumexp", "NaN or Inf", broken, mdn,
    loss=lambda m, x, y: (lambda w, a, s: -(w.exp()/w.exp().sum(1, True)*(-.5*((y - a)/s.exp())**2).exp()/s.exp()).sum(
    1).log().mean())(*m(x)), prepare=lambda x, y: (x, y*20), twin=mdn(prepare=lambda x, y: (x, y*1)))
plant("NaN or Inf", "heteroscedastic regression, log of a variance below zero", "NaN or Inf", broken, hetero,
    loss=lambda m, x, y: (lambda a, v: .5*(v.log() + (y - a)**2/v).mean())(*m(x).chunk(2, 1)))
plant("NaN or Inf", "siamese net, root of a distance of zero", "NaN or Inf", broken, siamese,
    loss=lambda m, x, y: (lambda z: ((z[:, None] - z).square().sum(2).sqrt()*((y[:, None] == y)*2. - 1)).mean())(m(x)))


# Regularization

drop = "dropout too strong"
plant(drop, "MNIST CNN, 0.95 and 0.99", drop, starved + ", learning rate too large", mnist,
    net=lambda: nets.Mnist(drop=.97))
plant(drop, "BERT, 0.95", drop, starved, berts, net=lambda: nets.bert(hidden_dropout_prob=.95,
    attention_probs_dropout_prob=.9))
plant("batch norm", "deep net, batches of 2", "batch norm",
    "loss does not fall, learning rate too large, samples alike, saturated, dead units", normed, size=2, optim=adam(
    1e-3), steps=150, twin=normed(net=lambda: stack(196, *[32]*4, 6, flat=True), size=2, optim=adam(1e-3), steps=150))
plant("batch norm", "momentum of 0, deep net, eval differs", "batch norm", "", normed,
    net=lambda: nets.Normed(momentum=1e-6), reach=False)
plant("batch norm", "small ResNet, all gammas zero", "batch norm, constant output, samples alike, activations vanish",
    starved, resnet, change=gammas(0.))
plant("killed signal", "ViT, gammas of 1e-5 everywhere", "activations vanish, samples alike, gradients vanish", starved,
    vit, change=gammas(1e-5), optim=sgd(.05, momentum=.9), twin=vit(optim=sgd(.05, momentum=.9)))
plant("embedding", "letters LSTM, all embeddings alike", "samples alike, constant output, units alike, input unused",
    starved, letters_lstm, change=lambda m: m.encoder.weight.copy_(m.encoder.weight[:1].expand_as(m.encoder.weight)),
    optim=sgd(.2), twin=letters_lstm(optim=sgd(2., momentum=.9)))
plant("dead attention", "letters transformer, a query x 100", "dead attention, saturated", starved, seq2seq,
    change=lambda m: m.key.weight.mul_(300.))
plant("dead attention", "BERT, every token is masked but the first", "dead attention, input unused, samples alike",
    starved, berts, loss=lambda m, x, y: m(input_ids=x*0 + 3, labels=y).loss)
plant("collapse", "siamese net without negatives", "samples alike", starved + ", loss does not fall", siamese,
    loss=lambda m, x, y: (lambda z: (z - z[nets.others(y)[0]]).square().mean())(m(x)))
plant("collapse", "VAE, its KL x 1000", "samples alike, constant output", starved, vae,
    loss=partial(nets.elbo, beta=20.))


# Healthy runs that look odd

for name, run, bound in (
        ("MNIST CNN", mnist, .1), ("small ResNet", resnet, .1), ("resnet18", resnet_big, .5), ("U-Net", unet, .5),
        ("letters LSTM", letters_lstm, .25), ("letters transformer", former, .25), ("BERT", berts, .2),
        ("GCN", gcn, .15), ("siamese net", siamese, .15), ("NT-Xent", contrast, .15), ("seq2seq", seq2seq, .2),
        ("multi-label", labels, .2), ("heteroscedastic regression", hetero, .3), ("TCN", tcn, .1), ("VAE", vae, .65),
        ("conv autoencoder", auto, .55), ("mixture density", mdn, .8), ("wide and deep", widedeep, .35),
        ("MLP-Mixer", mixer, .1), ("ViT", vit, .1), ("flow", flow, 2.5), ("two tasks", tasks, .1)):
    fine("plain", name, run(), bound)
fine("optimizer", "MNIST CNN, Adadelta as in PyTorch's example",
    mnist(optim=lambda m: torch.optim.Adadelta(m.parameters(), 1.)), .2)
fine("optimizer", "small ResNet, NAdam", resnet(optim=nadam(3e-3)), .2)
fine("optimizer", "multi-label, Adagrad 0.1", labels(optim=adagrad(.1)), .2)
fine("optimizer", "two tasks, SGD with Nesterov", tasks(optim=sgd(.03, momentum=.9, nesterov=True)), .15)
fine("optimizer", "GCN, SGD 1 with momentum", gcn(optim=sgd(1., momentum=.9)), .2)
fine("optimizer", "TCN, AMSGrad", tcn(optim=adam(5e-3, amsgrad=True)), .15)
fine("optimizer", "NT-Xent, RMSprop centered with momentum", contrast(optim=rmsprop(3e-4, centered=True, momentum=.9)),
    .15)
fine("optimizer", "ViT, Adamax", vit(optim=lambda m: torch.optim.Adamax(m.parameters(), 5e-3)), .2)
fine("optimizer", "two tasks, a rate for each layer",
    tasks(optim=lambda m: torch.optim.SGD([{"params": m.trunk.parameters(), "lr": 1e-2},
    {"params": m.kind.parameters(), "lr": .1}, {"params": m.light.parameters(), "lr": 1e-3}], momentum=.9)), .2)
fine("optimizer", "letters transformer, decay on weights only",
    former(optim=lambda m: torch.optim.AdamW([{"params": [p for p in m.parameters() if p.dim() > 1],
    "weight_decay": .1}, {"params": [p for p in m.parameters() if p.dim() <= 1], "weight_decay": 0.}], 3e-3)), .25)
fine("loss", "MNIST CNN, label smoothing of 0.2", mnist(net=lambda: nets.Mnist(last=nn.Identity()),
    loss=by_output(partial(F.cross_entropy, label_smoothing=.2))), .1)
fine("loss", "ViT, class weights",
    vit(loss=by_output(partial(F.cross_entropy, weight=torch.tensor([.2, 1., 2., 5., 1., .5])))), .2)
fine("loss", "TCN, Huber", tcn(loss=by_output(partial(F.huber_loss, delta=.5))), .15)
fine("loss", "TCN, absolute error", tcn(loss=by_output(F.l1_loss)), .15)
fine("loss", "U-Net, Dice of its sigmoid", unet(net=lambda: nets.UNet(last=nn.Sigmoid()),
    loss=lambda m, x, y: (lambda p: 1 - (2*(p*y).sum() + 1)/((p + y).sum() + 1))(m(x)),
    score=lambda m, x, y: nets.overlap_lacks(lambda x: m(x) - .5, x, y)), .6)
fine("loss", "multi-label, sigmoid and BCELoss", labels(net=lambda: stack(20, 48, 48, 5, last=nn.Sigmoid),
    loss=by_output(F.binary_cross_entropy), score=lambda m, x, y: nets.tags_wrong(lambda x: m(x) - .5, x, y)), .2)
fine("loss", "multi-label, focal", labels(loss=lambda m, x, y: (lambda b: ((1 - (-b).exp())**2*b).mean())(
    F.binary_cross_entropy_with_logits(m(x), y, reduction="none"))), .2)
fine("loss", "multi-label, weights of 2 for what holds",
    labels(loss=by_output(partial(F.binary_cross_entropy_with_logits, pos_weight=torch.full((5,), 2.)))), .25)
fine("loss", "heteroscedastic regression, loss goes below zero",
    hetero(data=lambda s: tuple((x, x[:, :1]*.05) for x, _ in nets.noisy(s)), optim=adam(5e-3)), .3)
fine("loss", "flow of narrow data, loss below zero", flow(prepare=lambda x: (x*.05,), optim=adam(1e-2)), -3.)
fine("loss", "MNIST CNN, hinge of many classes", mnist(net=lambda: nets.Mnist(last=nn.Identity()),
    loss=by_output(F.multi_margin_loss)), .15)
fine("loss", "siamese net, cosine embedding loss",
    siamese(loss=lambda m, x, y: (lambda z, i: F.cosine_embedding_loss(torch.cat([z, z]), torch.cat([z[i[0]], z[i[1]]]),
    torch.cat([torch.ones(len(z)), -torch.ones(len(z))]), .2))(m(x), nets.others(y))), .2)
fine("loss", "two tasks, one weighs 20 times", tasks(loss=partial(nets.two_tasks, share=20.), optim=adam(2e-3)), .2)
fine("loss", "VAE, its KL warms up", vae(loss=lambda m, x, y: nets.elbo(m, x, y, .02*min(1., m.__dict__.setdefault(
    "seen", [0])[0]/100)), each=lambda m, i, *_: m.__dict__.setdefault("seen", [0]).__setitem__(0, i)), .65)
fine("data", "GCN, the same batch in each step", gcn(steps=150), .15)
fine("data", "two tasks, half of the pixels always zero", tasks(prepare=lambda x, y: (x*(torch.arange(14) % 2), y)), .2)
fine("data", "pixels of 0 to 255 and a batch norm that comes first",
    mnist(net=lambda: nn.Sequential(nn.BatchNorm2d(1), nets.Mnist()), prepare=lambda x, y: ((x + 4)*32, y)), .15)
fine("data", "wide and deep, a column that is constant",
    widedeep(prepare=lambda i, x, y: (i, x*torch.tensor([1., 1., 1., 0.]) + torch.tensor([0., 0., 0., 1.]), y)), .35)
fine("data", "MNIST CNN, black and white", mnist(prepare=lambda x, y: ((x > 0).float(), y)), .1)
fine("data", "BERT, sentences that are mostly padding", berts(prepare=lambda x, y: (F.pad(x, (0, 12)), y),
    loss=lambda m, x, y: m(input_ids=x, attention_mask=(x > 0).long(), labels=y).loss, steps=50), .25)
fine("data", "letters LSTM, a vocabulary of which a tenth is used",
    letters_lstm(change=lambda m: setattr(m, "encoder", nn.Embedding(200, 32))), .25)
fine("data", "U-Net, masks of which few pixels are 1", unet(prepare=lambda x, y: (x, y), size=4), .6)
fine("data", "MNIST CNN, a class that is nearly all", mnist(data=lambda s: tuple((lambda k: (x[k], y[k]))(
    torch.cat([(y == 0).nonzero()[:, 0], (y > 0).nonzero()[::12, 0]])) for x, y in nets.pictures(s)), steps=120), .25)
fine("frozen on purpose", "MNIST CNN, random convolutions that are not trained", mnist(change=frozen("conv")), .2)
fine("frozen on purpose", "GCN, first layer fixed, and only the rest in the optimizer", gcn(change=frozen("layers.0"),
    optim=lambda m: torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 2e-2)), .3)
fine("frozen on purpose", "BERT, embeddings frozen",
    berts(change=frozen("embeddings.position", "embeddings.token_type")), .25)
fine("frozen on purpose", "ViT, patches frozen as in MoCo", vit(change=frozen("patches")), .2)
fine("frozen on purpose", "BYOL with a slow copy", contrast(net=nets.Momentum, loss=lambda m, x, y: m.loss(x, y)), .5)
fine("frozen on purpose", "ViT with a teacher in eval mode", vit(net=nets.Distilled, loss=nets.distill, steps=80), .2)
fine("loop", "MNIST CNN, zero_grad at the end, of the model", mnist(zero="never", after=lambda m: m.zero_grad()), .1)
fine("loop", "ViT, four batches a step", vit(every=4, size=16, steps=240, optim=adamw(3e-3)), .25)
fine("loop", "small ResNet, batches of 6", resnet(size=6, steps=100, optim=sgd(.02, momentum=.9)), .25)
fine("loop", "letters LSTM, clipped at 0.25 as in PyTorch's example", letters_lstm(clip=clipped(.25), optim=sgd(5.),
    steps=150), .35)
fine("loop", "seq2seq, clipped at values of 0.1", seq2seq(clip=within(.1)), .25)
fine("loop", "TCN, the loss as a number", tcn(told=torch.Tensor.item), .1)
fine("loop", "flow, no loss told", flow(told=lambda loss: None), 2.6)
fine("loop", "mixture density, the sum of the losses of a batch", mdn(loss=lambda m, x, y: 64*nets.mixture(m, x, y)),
    .8)
fine("loop", "wide and deep, learned by heart", widedeep(data=lambda s: (tuple(t[:64] for t in nets.clicks(s)[0]),)*2,
    steps=120), .05)
fine("schedule", "small ResNet, one cycle", resnet(scheduler=lambda o: sched.OneCycleLR(o, .2, total_steps=60)), .2)
fine("schedule", "letters transformer, warm-up and root of the step",
    former(optim=adamw(5e-3), scheduler=lambda o: sched.LambdaLR(o, lambda i: min((i + 1)/30, (30/(i + 1))**.5))), .3)
fine("schedule", "ViT, linear to zero", vit(scheduler=lambda o: sched.LinearLR(o, 1., 0., 100)), .2)
fine("schedule", "MNIST CNN, a tenth after 60 batches", mnist(scheduler=lambda o: sched.MultiStepLR(o, [60, 80], .1)),
    .15)
fine("schedule", "BERT, polynomial after a warm-up", berts(scheduler=lambda o: sched.SequentialLR(o,
    [sched.LinearLR(o, .01, 1., 15), sched.PolynomialLR(o, 60, 1.)], [15])), .25)
fine("net", "LSTM with tied embeddings", letters_lstm(net=lambda: nets.LetterLSTM(tied=True), steps=150), .3)
fine("net", "letters GRU of two layers with dropout of 0.5",
    letters_lstm(net=lambda: nets.LetterLSTM(48, 2, .5, nn.GRU), steps=150), .4)
fine("net", "transformer with norms behind", former(net=lambda: nets.LetterTransformer(first=False)), .3)
fine("net", "BERT with ReLU and dropout of 0.3", berts(net=lambda: nets.bert(hidden_act="relu", hidden_dropout_prob=.3),
    steps=70), .3)
fine("net", "small ResNet, the last gamma of each block zero", resnet(optim=nadam(3e-3), steps=90,
    change=lambda m: [b.bn2.weight.zero_() for b in m.modules() if isinstance(b, nets.BasicBlock)]), .4)
fine("net", "small ResNet with InstanceNorm",
    resnet(net=lambda: nets.SmallResNet(partial(nn.InstanceNorm2d, affine=True))), .4)
fine("net", "flow that begins as the identity", flow(change=lambda m: [c.net[-1].weight.zero_() for c in m.layers] + [
    c.net[-1].bias.zero_() for c in m.layers]), 2.6)
fine("net", "leaky ReLU of 0.2 and dropout in a U-Net", mnist(net=lambda: nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1),
    nn.LeakyReLU(.2), nn.Dropout2d(.3), nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(144, 6),
    nn.LogSoftmax(1))), .1)
fine("net", "VQ-VAE", auto(net=nets.Codebook, loss=lambda m, x, y: F.mse_loss(m(x), x.flatten(1)) + m.extra,
    score=lambda m, x, y: ((m(x) - x.flatten(1))**2).mean().item()/x.var().item(), steps=200), .75)
walk = way(data=nets.no_data, net=nets.walker, loss=nets.walked, score=nets.astray, optim=adam(1e-2), steps=80,
    feed=runs.whole)
fine("plain", "actor-critic", walk(), .3)
fine("plain", "DCGAN", runs.dcgan, .6)
fine("loss", "DCGAN, one-sided label smoothing", partial(runs.dcgan, smooth=.9), .6)


def pictures_gan(**options): return partial(runs.dcgan, **options)


plant("detached", "DCGAN, the fakes are detached for the generator too", cut, "loss does not fall", pictures_gan,
    cut=True)
plant(large + ", mild", "DCGAN, Adam 0.5", large, diverged, pictures_gan, lr=.5)
plant(sign, "actor-critic, the gain is pushed away", sign, diverged, walk, loss=partial(nets.walked, sign=-1.))


# The third set

plant, fine = third.plant, third.fine


# Faults

large, small = "learning rate too large", "learning rate too small"
stands = "loss does not fall"
unscaled = diverged + ", learning rate too large, batch norm, input unused"
plant(large, "points, Lion 0.3", large, diverged + ", batch norm", points, optim=lion(.3),
    twin=points(optim=lion(5e-4)))
plant(large, "diffusion, Adam 1", large, diverged, diffuse, optim=adam(1.))
plant(large, "differential equation, RAdam 5", large, diverged, ode, optim=radam(5.))
plant(large + ", mild", "LLaMA, AdamW 0.3", large, diverged, llamas, optim=adamw(.3))
plant(large + ", mild", "states, SGD 20", large, diverged, states, optim=sgd(20.))
plant(small, "sets, RAdam 1e-7", small, stands, sets_net, optim=radam(1e-7))
plant(small, "sound, ASGD 1e-6", small, stands, heard, optim=asgd(1e-6))
plant(small, "T5, Adafactor 1e-7", small, stands, t5s, optim=adafactor(1e-7))
plant("dead ReLU", "sets, bias -20 behind the sum", "dead units", starved, sets_net, change=bias(-400, "all.0"))
plant("dead ReLU", "sound, bias -5 in the second layer", "dead units", starved, heard, change=bias(-5, "2"))
plant("saturated", "differential equation, weights x 300", "saturated",
    starved + ", gradients explode, activations explode, units alike", ode, change=weights(lambda w: 300*w, "field.0",
    "field.2"))
plant("saturated", "sound with tanh, first layers x 300", "saturated", starved + ", units alike, activations explode",
    heard, net=lambda: nets.ear(nn.Tanh), change=weights(lambda w: 300*w, "0", "2", "4"),
    twin=heard(net=lambda: nets.ear(nn.Tanh)))
plant("gradients vanish", "grades, 14 layers with sigmoid", "gradients vanish", starved + ", activations vanish", grade,
    net=lambda: stack(10, *[32]*13, 5, act=nn.Sigmoid))
plant("gradients explode", "states with a decay above 1", "activations explode, gradients explode, outputs blow up",
    diverged + ", learning rate too large", states, net=lambda: nets.Mamba(factor=40.))
plant("gradients explode", "grades, 9 layers, weights x 8", "activations explode, gradients explode",
    diverged + ", learning rate too large, outputs blow up", grade, net=lambda: stack(10, *[48]*8, 5),
    change=lambda m: [p.mul_(8.) for p in m.parameters() if p.ndim > 1], optim=sgd(1e-3))
plant("constant init", "a net that makes weights begins with 0.1", "units alike", starved, grade,
    net=lambda: nets.Hyper(.1), twin=grade(net=nets.Hyper))
plant("zero init", "sets, all zero", "constant output, units alike, samples alike, dead units", starved, sets_net,
    change=everything(0.))
plant("no zero_grad", "points, Lion", "no zero_grad", diverged + ", learning rate too large", points, zero="never",
    optim=lion(5e-4), twin=points(optim=lion(5e-4)))
plant("no zero_grad", "survival, SGD with momentum", "no zero_grad", diverged + ", learning rate too large", survival,
    zero="never", optim=sgd(.05, momentum=.9), twin=survival(optim=sgd(.05, momentum=.9)))
plant("no zero_grad", "modern blocks, one of two optimizers is never cleared",
    "no zero_grad", diverged + ", learning rate too large", muons, optim=partial(muon, lr=.3), cleared=(1,),
    twin=muons(optim=partial(muon, lr=.02)))
plant("step before backward", "speech", "step before backward", "not trained, loss does not fall", speech,
    order="step first")
plant("scheduler each batch", "speech, gamma 0.6", "scheduler each batch",
    "learning rate too small, loss does not fall", speech, scheduler=lambda o: sched.ExponentialLR(o, .6))
plant("eval mode", "films with batch norm, deep, from the third batch", "eval mode",
    diverged + ", batch norm, learning rate too large", films_net, each=eval_from(2), optim=sgd(.3, momentum=.9),
    change=by(20., nn.Conv3d))
plant("clipping too tight", "differential equation, SGD, values of 1e-7",
    "clipping too tight", "learning rate too small, loss does not fall", ode, optim=sgd(.02, momentum=.9),
    twin=ode(optim=sgd(.02, momentum=.9)), clip=within(1e-7))
plant("weight decay too strong", "points, Lion with a decay of 1000", "weight decay too strong", starved, points,
    optim=lion(5e-4, weight_decay=1000.), twin=points(optim=lion(5e-4)))
plant("weight decay too strong", "sound, RAdam with a decay of 2", "weight decay too strong", starved, heard,
    optim=radam(5e-3, weight_decay=2.))
plant("wrong optimizer", "points, the optimizer has a deep copy",
    "not in the optimizer, other parameters in the optimizer", "not trained, loss does not fall", points,
    optim=lambda m: torch.optim.Adam(copy.deepcopy(m).parameters(), 3e-3))
plant("wrong optimizer", "sets, a part is replaced after the optimizer was made",
    "not in the optimizer, other parameters in the optimizer, frozen part", "not trained, loss does not fall", sets_net,
    hand=lambda m: setattr(m, "each", stack(3, 48, 48)))
plant("detached", "two towers, no_grad around one, noisy", "frozen part, not trained",
    "gradients vanish, loss does not fall", towers, net=lambda: nets.Clip(cut=True))
plant("detached", "differential equation, each state is detached", "frozen part, not trained",
    "gradients vanish, loss does not fall, learning rate too small", ode, net=nets.Forgetful)
plant("frozen by mistake", "LLaMA, all but the norms", "frozen part, not trained", "loss does not fall", llamas,
    change=frozen("proj", "embed", "lm_head"))
scale = "inputs not scaled"
plant(scale, "sound as integers of 16 bits", scale, unscaled, heard, prepare=lambda x, y: (x*32767, y),
    optim=sgd(.05, momentum=.9), steps=150, twin=heard(optim=sgd(.05, momentum=.9), steps=150))
plant(scale, "grades, one column is a time in seconds", scale, unscaled, grade,
    prepare=lambda x, y: (torch.cat([x[:, :9], 1.7e9 + 1e6*x[:, 9:]], 1), y))
plant(scale, "clouds in millimetres", scale, unscaled, perceive, prepare=lambda x, y: (1000*x + 500, y))
plant("targets not scaled", "springs in micrometres", "targets not scaled",
    diverged + ", learning rate too large, learning rate too small", ode, prepare=lambda x, y: (x, 1e6*y))
same = "constant inputs, samples alike"
plant("data bug", "clouds, each point minus itself", same, starved + ", batch norm", points,
    prepare=lambda x, y: (x - x, y))
plant("data bug", "T5 reads nothing but padding", same, starved, t5s, prepare=lambda x, y: (x*0 + nets.marks,
    y[:, -1:]))
plant("input unused", "points, forward goes on with zeros", "input unused, samples alike", starved, points,
    net=lambda: nets.PointNet(blind=True))
early = "activation before the loss"
squeezed = "loss does not fall, saturated, gradients vanish, not trained, dead units, learning rate too small"
plant(early, "films, softmax before cross-entropy", early, squeezed, films_net,
    net=lambda: nets.film_net(nn.Softmax(1)), optim=sgd(.02), twin=films_net(optim=sgd(.02)))
plant(early, "differential equation, tanh behind the last layer", early + ", saturated", squeezed, ode,
    net=lambda: nets.Flowing(nn.Tanh()), prepare=lambda x, y: (x, 3*y), twin=ode(prepare=lambda x, y: (x, 3*y)))
plant(early, "rare kind, ReLU before the loss of logits", early + ", dead units", squeezed + ", samples alike", seldom,
    net=lambda: stack(8, 32, 32, 1, last=nn.ReLU), change=lambda m: m[-2].bias.fill_(-3.),
    twin=seldom(change=lambda m: m[-1].bias.fill_(-3.)))
sign = "wrong sign"
plant(sign, "points, minus the cross-entropy", sign, diverged + ", learning rate too large, batch norm", points,
    loss=lambda m, x, y: -F.cross_entropy(m(x), y))
plant(sign, "springs, minus the error", sign, diverged + ", learning rate too large", ode,
    loss=lambda m, x, y: -F.mse_loss(m(x), y))
plant(sign, "diffusion, minus the error", sign, diverged + ", learning rate too large", diffuse,
    loss=partial(nets.diffusion, sign=-1.))
plant(sign, "likings, what was left is preferred", sign, diverged + ", learning rate too large", taste,
    loss=partial(nets.bpr, sign=-1.))
broken = ("loss does not fall, not trained, loss rises, gradients explode, outputs blow up, dead units, "
    "activations explode, constant output, learning rate too large")
plant("NaN or Inf", "survival, log of nobody at risk", "NaN or Inf", broken, survival,
    loss=partial(nets.cox, safe=False))
plant("NaN or Inf", "sound, a row of silence is divided by its deviation", "NaN or Inf", broken, heard,
    prepare=lambda x, y: ((lambda z: z/z.std(2, keepdim=True))(x*(torch.arange(len(x)) % 50 > 0)[:, None, None]), y))
plant("NaN or Inf", "clouds, length of a vector of zeros on its way back", "NaN or Inf", broken, points,
    loss=lambda m, x, y: F.cross_entropy(m(x), y) + (m(x)*0).square().sum().sqrt(), twin=points())
plant("dropout too strong", "modern blocks, 0.98", "dropout too strong", starved + ", learning rate too large", modern,
    net=lambda: nets.Small(drop=.98))
plant("batch norm", "sets, batches of 2",
    "batch norm", "loss does not fall, learning rate too large, samples alike, saturated, dead units", sets_net, size=2,
    net=lambda: nets.DeepSet(norm=True), twin=sets_net(size=2))
plant("dead attention", "GPT-2, queries and keys x 100", "dead attention, saturated", starved + ", activations explode",
    gpt2s, change=lambda m: [b.attn.c_attn.weight[:, :64].mul_(100.) for b in m.transformer.h])
plant("collapse", "twins whose outputs are only to agree", "samples alike", starved + ", constant output", barlow,
    loss=lambda m, x, y: F.mse_loss(m(x), m(x + .15*torch.randn_like(x))))
plant("embedding", "bags of words, frozen noise of 0.001", "frozen part, activations vanish, samples alike",
    "not trained, loss does not fall, input unused, gradients vanish", bags, change=lambda m: (m.bag.weight.mul_(1e-3),
    m.bag.weight.requires_grad_(False)))
plant("layers in a list", "sets, three layers that the model does not know", "", "", sets_net, reach=False,
    net=nets.Listed)


# Healthy runs that look odd

for name, run, bound in (
        ("sets, RAdam", sets_net(), .35), ("points with batch norm", points(), .15), ("films", films_net(), .15),
        ("sound", heard(), .15), ("states", states(), .15), ("modern blocks", modern(), .3), ("GPT-2", gpt2s(), .3),
        ("LLaMA", llamas(), .3), ("T5, Adafactor", t5s(), .4), ("differential equation", ode(), .1),
        ("equilibrium", balance(), .45), ("grades, RAdam", grade(), .45), ("survival", survival(), .3),
        ("likings, SparseAdam", taste(), .3), ("speech", speech(), .5), ("ordered grades", ordered(), .5),
        ("diffusion", diffuse(), .6), ("twins", barlow(), .3), ("two towers", towers(), .8),
        ("bags of words", bags(), .2), ("six queries", perceive(), .15), ("rare kind", seldom(), .15)):
    fine("plain", name, run, bound)
fine("optimizer", "points, Lion with decay", points(optim=lion(5e-4, weight_decay=1.)), .15)
fine("optimizer", "modern blocks, Muon and AdamW", muons(), .3)
fine("optimizer", "grades, Rprop with all data", grade(optim=optimizers(torch.optim.Rprop)(1e-3), feed=runs.whole,
    steps=60), .5)
fine("optimizer", "sets, ASGD", sets_net(optim=asgd(.1)), .5)
fine("optimizer", "sound, Lookahead around Adam",
    heard(optim=lambda m: runs.Lookahead(torch.optim.Adam(m.parameters(), 5e-3))), .2)
fine("optimizer", "films, Adafactor", films_net(optim=adafactor(2e-2)), .25)
fine("optimizer", "bags of words, sparse gradients, SGD", bags(net=lambda: nets.Words(True), optim=sgd(.5)), .3)
fine("optimizer", "states, Adam with beta2 of 0.5", states(optim=adam(2e-3, betas=(.9, .5))), .25)
fine("net", "reservoir that is not trained", heard(net=nets.Reservoir, optim=adam(1e-2), steps=150), .5)
fine("net", "bumps around centers", grade(net=nets.Radial, optim=adam(2e-2), steps=200), .68)
fine("net", "a net that makes weights", grade(net=nets.Hyper), .68)
fine("net", "maxout", grade(net=nets.Maxout), .45)
fine("net", "ReLU of both signs", grade(net=lambda: nn.Sequential(nn.Linear(10, 32), nets.Concatenated(),
    nn.Linear(64, 32), nets.Concatenated(), nn.Linear(64, 5))), .45)
fine("net", "16 steps for weights and outputs", grade(net=lambda: nets.Rounded(10, 64, 64, 5)), .5)
fine("net", "weights that are drawn", grade(net=lambda: nets.Sampled(10, 64, 64, 5)), .5)
fine("net", "logits that end softly at 30", modern(net=lambda: nets.Small(cap=30.)), .3)
fine("net", "queries and keys of length one", modern(net=lambda: nets.Small(unit=True)), .3)
fine("net", "films without a norm, weights of He", films_net(net=lambda: nets.film_net(norm=nn.Identity),
    change=lambda m: [nn.init.kaiming_normal_(p) for p in m.parameters() if p.ndim > 1], optim=sgd(.01, momentum=.9)),
    .2)
fine("net", "points, a scale of 0 where each branch ends", perceive(change=lambda m: m.look.out_proj.weight.zero_()),
    .2)
fine("data", "numbers up to a million behind a logarithm",
    grade(net=nets.Crossed, prepare=lambda x, y: (x.sign()*(x.abs()*7).expm1(), y)), .6)
fine("data", "targets of a fiftieth", ode(prepare=lambda x, y: (x, .02*y), net=lambda: stack(4, 48, 48, 4),
    optim=adam(1e-3), steps=300), .4)
fine("data", "sound that is mostly silence", heard(prepare=lambda x, y: (x*(torch.arange(128) < 40), y)), .4)
fine("data", "sets padded with zeros", sets_net(prepare=lambda x, y: (F.pad(x, (0, 0, 0, 20)), y)), .4)
fine("data", "the rare kind, the last bias begins at its share", seldom(change=lambda m: m[-1].bias.fill_(-3.2)), .15)
fine("data", "inputs from 0 to 1, all positive", grade(prepare=lambda x, y: (x.sigmoid(), y), steps=250), .6)
fine("loss", "cosines with a margin", grade(net=nets.Margin), .5)
fine("loss", "the rare kind, focal", seldom(change=lambda m: m[-1].bias.fill_(-3.2), loss=lambda m, x, y: (
    lambda b: ((1 - (-b).exp())**2*b).mean())(F.binary_cross_entropy_with_logits(m(x), y, reduction="none"))), .15)
fine("loss", "Gamma with softplus", ode(net=lambda: stack(4, 48, 48, 4), prepare=lambda x, y: (x, y.exp()),
    loss=nets.gamma, score=lambda m, x, y: nets.left(lambda x: F.softplus(m(x)).log(), x, y.log())), .3)
fine("loss", "a Gaussian process on a net", ode(net=lambda: stack(4, 32, 6), loss=nets.deep_kernel, size=48,
    score=lambda m, x, y: nets.deep_kernel(m, x, y).item(), steps=100), .8)
fine("loss", "grades, cross-entropy and a price on large logits",
    grade(loss=lambda m, x, y: F.cross_entropy(m(x), y) + 1e-2*m(x).logsumexp(1).square().mean()), .45)
fine("loss", "survival, batches of 12", survival(size=12, steps=250), .35)
fine("schedule", "LLaMA, warm-up over the whole run",
    llamas(steps=100, scheduler=lambda o: sched.LinearLR(o, .01, 1., 100)), .4)
fine("schedule", "two towers, flat and then down to nothing",
    towers(scheduler=lambda o: sched.LambdaLR(o, lambda i: min(1., (121 - i)/30))), .8)
fine("loop", "45 steps of films, clipped at 0.5", films_net(steps=45, clip=clipped(.5)), .2)
fine("loop", "GPT-2, batches of 4", gpt2s(size=4, steps=200), .35)


def in_turns(model, i, *_):
    "One block of layers learns at a time."
    for j, part in enumerate(model.blocks): part.requires_grad_(i//20 % 2 == j)


fine("loop", "states, blocks learn in turns", states(each=in_turns, steps=160), .2)
fine("loop", "diffusion with the loss as a number", diffuse(told=torch.Tensor.item), .6)
fine("loop", "likings, noise is added to the gradients", taste(net=lambda: nets.Factors(False), optim=adam(2e-2),
    clip=lambda ps: [p.grad.add_(1e-3*torch.randn_like(p)) for p in ps]), .3)
fine("two models", "Wasserstein critic with a penalty", runs.wasserstein, .5)
fine("rewards", "PPO", runs.proximal, .6)
fine("loop", "MAML", way(data=nets.no_data, net=lambda: stack(1, 40, 40, 1, act=nn.Tanh), loss=nets.meta,
    score=nets.meta_left, optim=adam(5e-3), steps=200, feed=runs.whole)(), .3)
fine("loss", "an equation of physics", way(data=nets.no_data, net=lambda: stack(1, 32, 32, 1, act=nn.Tanh),
    loss=nets.physics, score=nets.physics_left, optim=adam(1e-2), steps=500, feed=runs.whole)(), .2)
fine("loop", "diffusion with a mean of the weights", runs.slow_copy, .65)
