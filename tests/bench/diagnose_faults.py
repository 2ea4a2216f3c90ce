"""Training runs with one fault each, on which `hl.diagnose` is tried.

    python -m tests.bench.diagnose_faults [part of a kind or name]

runs them without hooklab, beside the same run without the fault, and shows which of them the fault harms. `faults()`
lists them. What counts as right was written before any of them was diagnosed: `causes` lead straight to the line to
change, `symptoms` are true and follow from the fault."""
import copy
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from tests.bench.diagnose_parts import (
    Bag,
    Case,
    Copies,
    Gpt,
    Nothing,
    Pooling,
    Reader,
    Recurrent,
    Residual,
    adam,
    adamw,
    autoencoder,
    bag,
    cnn,
    cnn_norm,
    cnn_sgd,
    convnet,
    copier,
    curve,
    digits,
    gpt,
    gpt_fused,
    images,
    judged,
    lstm,
    mlp,
    mlp_adam,
    mlp_momentum,
    mlp_narrow,
    mlp_norm,
    mlp_tanh,
    on,
    pad,
    pixel_rows,
    pooling,
    reader,
    recipe,
    recommender,
    regression,
    regression_rmsprop,
    regression_sgd,
    residual,
    reviews,
    rmsprop,
    rnn,
    sgd,
    stack,
    table,
    tabular,
    tabular_tanh,
    text,
    waves,
)

listed: list[Case] = []


def ids(names: str) -> frozenset[str]: return frozenset(name.strip() for name in names.split(",") if name.strip())


def plant(kind: str, name: str, causes: str, symptoms: str, way, reach: bool = True, twin=None, **fault):
    "A fault on the list: `way` with what is in `fault` is the run, without it (or with `twin`) its healthy twin."
    listed.append(Case(kind, name, ids(causes), ids(symptoms), way(**fault), twin or twin_of(way), reach=reach))


twins: dict = {}


def twin_of(way):
    "The healthy run of a way to train, the same object each time."
    return twins.setdefault(way, way())


def faults() -> list[Case]:
    "Every fault, in the order of the file; those that are out of reach as well."
    return list(listed)


# What follows from most faults

diverged = ("outputs blow up, activations explode, gradients explode, NaN or Inf, loss rises, loss does not fall, "
            "dead units, saturated, constant output, samples alike, gradients vanish, not trained, dead attention")
starved = ("not trained, gradients vanish, loss does not fall, samples alike, constant output, activations vanish, "
           "input unused, dead units")


# A rate that is too large, or too small

def rate(name, way, optim, **more): plant("learning rate too large", name, "learning rate too large", diverged, way,
                                           optim=optim, **more)


rate("digits MLP, SGD 30", mlp, sgd(30))
rate("digits CNN, Adam 1", cnn, adam(1))
rate("waves LSTM, Adam 3", lstm, adam(3))
rate("text GPT, AdamW 1", gpt, adamw(1))
rate("regression, RMSprop 1", regression_rmsprop, rmsprop(1))
rate("autoencoder, Adam 1", autoencoder, adam(1))


def mild(name, way, optim, **more): plant("learning rate too large, mild", name, "learning rate too large",
                                          diverged, way, optim=optim, **more)


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

def bias(value: float, *places: str):
    def change(model):
        for place in places: model.get_submodule(place).bias.fill_(value)
    return change


def weights(change, *places: str):
    "Changes the matrices, of all layers or of those that are named."
    def spoil(model):
        for name, p in model.named_parameters():
            if p.ndim > 1 and (not places or name.rpartition(".")[0] in places): p.copy_(change(p))
    return spoil


dead = ("not trained, constant output, samples alike, gradients vanish, activations vanish, loss does not fall, "
        "input unused")
plant("dead ReLU", "digits MLP, bias -10", "dead units", dead, mlp, change=bias(-10, "0"))
plant("dead ReLU", "digits CNN, bias -10 in the second layer", "dead units", dead, cnn, change=bias(-10, "2"))
plant("dead ReLU", "regression, bias -10 before the head", "dead units", dead, regression, change=bias(-10, "2"))
plant("dead ReLU", "digits MLP, negative weights behind a ReLU", "dead units", dead, mlp,
      change=lambda m: (m[2].weight.copy_(-m[2].weight.abs()), m[2].bias.fill_(-.1)))
plant("dead ReLU", "autoencoder, bias -10 before the code", "dead units", dead, autoencoder, change=bias(-10, "0"))


def spike(record, model, optimizer, loss_of, batches):
    "In one step the rate is far too large."
    with record.on(model, optimizer=optimizer) as s:
        for i, (x, y) in enumerate(batches):
            for group in optimizer.param_groups: group["lr"] = 50. if i == 20 else .1
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss.item())


plant("dead ReLU", "digits MLP, one step with a rate of 50", "dead units, learning rate too large", diverged, mlp,
      loop=spike)

stuck = ("gradients vanish, loss does not fall, not trained, dead units, samples alike, constant output, "
         "activations explode, gradients explode")
plant("saturated", "digits tanh MLP, weights x 1,000", "saturated", stuck,
      mlp_tanh, change=weights(lambda w: 1000*w))
plant("saturated", "digits tanh MLP, weights x 30", "saturated", stuck,
      mlp_tanh, change=weights(lambda w: 30*w, "0", "2"))
plant("saturated", "digits sigmoid MLP, weights x 200", "saturated", stuck,
      recipe(digits, lambda: stack(64, 64, 32, 10, act=nn.Sigmoid), adam(1e-2)), change=weights(lambda w: 200*w, "0",
            "2"))
plant("saturated", "digits RNN, weights x 50", "saturated", stuck, rnn,
      change=weights(lambda w: 50*w, "rnn"))
plant("saturated", "tanh MLP of tables, bias 20", "saturated", stuck, tabular_tanh, change=bias(20, "2"))


# Signals that vanish or explode on their way

def deep(act, *, change=None): return recipe(digits, lambda: stack(64, *[32]*8, 10, act=act), adam(3e-3), steps=150,
                                              change=change)


def spread(std: float):
    return weights(lambda w: torch.randn_like(w)*std)


def kaiming(model):
    for p in model.parameters():
        if p.ndim > 1: nn.init.kaiming_normal_(p)
        elif p.ndim == 1: p.zero_()


healthy_deep = deep(nn.ReLU, change=kaiming)()
fades = "samples alike, loss does not fall, constant output, input unused, not trained"
plant("gradients vanish", "digits, 9 layers with sigmoid", "gradients vanish", fades + ", activations vanish",
      deep(nn.Sigmoid), twin=healthy_deep)
plant("gradients vanish", "digits, 9 layers with tanh, weights of 0.01", "gradients vanish, activations vanish", fades,
      deep(nn.Tanh), change=spread(.01))
plant("gradients vanish", "digits, 9 layers with ReLU as torch sets them", "gradients vanish, activations vanish",
      fades, deep(nn.ReLU), twin=healthy_deep)
plant("gradients vanish", "digits CNN, weights of 0.001", "gradients vanish, activations vanish", fades, cnn_sgd,
      change=spread(1e-3))

blast = ("outputs blow up, NaN or Inf, loss rises, loss does not fall, dead units, learning rate too large, saturated, "
         "gradients vanish, constant output, samples alike, not trained")
plant("gradients explode", "digits MLP of 9 layers, weights of 1", "activations explode, gradients explode", blast,
      deep(nn.ReLU, change=kaiming), change=spread(1.))
plant("gradients explode", "digits CNN, weights of 1", "activations explode, gradients explode", blast, cnn_sgd,
      change=spread(1.))
plant("gradients explode", "ReLU RNN with recurrent weights x 6", "activations explode, gradients explode", blast,
      recipe(pixel_rows, lambda: Recurrent(nn.RNN, 8, 32, 10, nonlinearity="relu"), sgd(.05, momentum=.9)),
      change=lambda m: m.rnn.weight_hh_l0.mul_(6))
plant("gradients explode", "autoencoder, weights of 1, SGD", "activations explode, gradients explode", blast,
      autoencoder, change=spread(1.), optim=sgd(1e-2))


class Doubled(Residual):
    "Each block adds its result to the sum once more."
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks: x = x + x + block(x)
        return self.head(x)


raises = blast + ", gradients explode"
plant("residual explodes", "16 blocks without a norm, each x 4",
      "activations explode, outputs blow up, gradients explode",
      raises, residual, net=lambda: Residual(depth=16, norm=False, scale=4.))
plant("residual explodes", "the sum is doubled in each of 14 blocks",
      "activations explode, outputs blow up, gradients explode", raises, residual,
      net=lambda: Doubled(depth=14, norm=False), optim=sgd(.05))
plant("residual explodes", "10 blocks without a norm, weights of 0.5, SGD",
      "activations explode, outputs blow up, gradients explode", raises, residual, optim=sgd(.05),
      net=lambda: Residual(depth=10, norm=False), change=spread(.5))


# Beginning with equal numbers

equal = "loss does not fall, samples alike, gradients vanish"
zeros = equal + ", not trained, dead units, activations vanish, input unused"


def everything(value: float):
    def change(model):
        for p in model.parameters(): p.fill_(value)
    return change


def constant(value: float, *places: str):
    def change(model):
        for place in places:
            model.get_submodule(place).weight.fill_(value)
            model.get_submodule(place).bias.zero_()
    return change


plant("zero init", "digits MLP, all zero", "units alike, constant output", zeros, mlp, change=everything(0.))
plant("zero init", "regression with tanh, all zero", "units alike, constant output", zeros, regression_rmsprop,
      change=everything(0.))
plant("zero init", "digits CNN, weights of all layers but the head zero", "units alike, constant output", zeros,
      cnn_sgd, change=weights(torch.zeros_like, "0", "2", "4"))
plant("constant init", "digits tanh MLP, 0.05", "units alike", equal, mlp_tanh, change=everything(.05))
plant("constant init", "digits CNN, weights 0.05, biases 0", "units alike", equal, cnn, change=constant(.05, "0", "2",
      "4", "7"))
plant("constant init", "waves LSTM, 0.1", "units alike", equal, lstm, change=everything(.1))
plant("constant init", "tables, all layers 0.02, biases 0", "units alike", equal, tabular,
      change=constant(.02, "0", "2", "4"))


# The order of zero_grad, backward and step

def never_zeroed(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss)


def zeroed_once(record, model, optimizer, loss_of, batches):
    "zero_grad stands before the loop."
    with record.on(model, optimizer=optimizer) as s:
        optimizer.zero_grad()
        for x, y in batches:
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss.item())


def zeroed_each_epoch(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for i, (x, y) in enumerate(batches):
            if i%25 == 0: optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss)


sums = diverged + ", learning rate too large"
for place, way, loop in (("digits MLP, SGD", mlp, never_zeroed), ("digits CNN, momentum", cnn_sgd, never_zeroed),
                         ("waves LSTM, Adam", lstm, zeroed_once), ("text GPT, AdamW", gpt, never_zeroed),
                         ("regression, RMSprop", regression_rmsprop, zeroed_once),
                         ("digits tanh MLP, once each 25 batches", mlp_tanh, zeroed_each_epoch)):
    plant("no zero_grad", place, "no zero_grad", sums, way, loop=loop)


def step_first(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            optimizer.step()
            loss.backward()
            s.step(loss)


def zeroed_between(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()
            s.step(loss)


def zeroed_in_place_between(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.zero_grad(set_to_none=False)
            optimizer.step()
            s.step(loss)


def no_step(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            s.step(loss)


def no_backward(record, model, optimizer, loss_of, batches):
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            optimizer.step()
            s.step(loss)


# A step that finds no gradient looks the same whether backward comes too late or zero_grad too early.
nothing = "not trained, loss does not fall, learning rate too small"
plant("step before backward", "digits MLP, SGD", "step before backward", nothing, mlp, loop=step_first)
plant("step before backward", "waves LSTM, Adam", "step before backward", nothing, lstm, loop=step_first)
plant("step before backward", "zero_grad between backward and step, text GPT", "step before backward", nothing, gpt,
      loop=zeroed_between)
plant("step before backward", "zero_grad in place between backward and step, digits CNN", "step before backward",
      nothing, cnn, loop=zeroed_in_place_between)
plant("step or backward missing", "no step, digits CNN", "not trained", nothing, cnn, loop=no_step)
plant("step or backward missing", "no backward, tables", "not trained, step before backward", nothing, tabular,
      loop=no_backward)


# Inputs and targets that are not scaled

raw = diverged + ", learning rate too large, activations vanish, input unused"
plant("inputs not scaled", "digits MLP, 0 to 255, SGD", "inputs not scaled", raw, mlp,
      data=on(digits, lambda x: 255*x, normal=False))
plant("inputs not scaled", "digits CNN, 0 to 255, momentum", "inputs not scaled", raw, cnn_sgd,
      data=on(images, lambda x: 255*x, normal=False))
plant("inputs not scaled", "digits tanh MLP, 0 to 255", "inputs not scaled", raw, mlp_tanh,
      data=on(digits, lambda x: 255*x, normal=False))


def column(place: int, change):
    "One feature in a unit of its own."
    def spoil(x):
        x = x.clone()
        x[:, place] = change(x[:, place])
        return x
    return spoil


plant("inputs not scaled", "tables, one feature about 100,000", "inputs not scaled", raw, tabular,
      data=on(table, column(0, lambda x: 1e5 + 3e4*x)))
plant("inputs not scaled", "tanh MLP of tables, one feature about 100,000", "inputs not scaled", raw, tabular_tanh,
      data=on(table, column(3, lambda x: 1e5 + 3e4*x)))
plant("inputs not scaled", "regression, all features about 2,000", "inputs not scaled", raw, regression,
      data=on(curve, lambda x: 2000 + 10*x))
plant("inputs not scaled", "waves LSTM, x 1,000", "inputs not scaled", raw, lstm, data=on(waves, lambda x: 1000*x))
plant("inputs not scaled", "digits MLP, divided by 255 twice", "inputs not scaled", raw, mlp,
      data=on(digits, lambda x: x/255/255, normal=False))

far = diverged + ", learning rate too large, learning rate too small"
plant("targets not scaled", "regression, x 5,000, Adam", "targets not scaled", far, regression,
      data=on(curve, targets=lambda y: 5000*y))
plant("targets not scaled", "regression, x 1,000, SGD", "targets not scaled", far, regression_sgd,
      data=on(curve, targets=lambda y: 1000*y))
plant("targets not scaled", "regression with tanh, about 5,000", "targets not scaled", far, regression_rmsprop,
      data=on(curve, targets=lambda y: 5000 + 100*y))


# Parts that get no gradient, or are not in the optimizer

class Cut(nn.Module):
    "The encoder's result is cut off from the graph in one of several ways."
    def __init__(self, cut):
        super().__init__()
        self.encoder, self.head, self.cut = stack(64, 16, 6), stack(6, 32, 10), cut

    def forward(self, x): return self.head(self.cut(self.encoder(x)).relu())


class Unseen(Cut):
    "no_grad was left around the encoder."
    def forward(self, x):
        with torch.no_grad(): hidden = self.encoder(x)
        return self.head(hidden.relu())


small_lstm = recipe(waves, lambda: Recurrent(width=12), adam(2e-2), steps=120)
stays = "loss does not fall, frozen part, not trained"
for name, net in (("detach in forward", lambda: Cut(torch.detach)),
                  ("made into a list and back", lambda: Cut(lambda h: torch.tensor(h.tolist()))),
                  (".data in forward", lambda: Cut(lambda h: h.data)), ("no_grad in forward", lambda: Unseen(None))):
    plant("detached", f"digits MLP, {name}", "frozen part, not trained", stays, mlp_narrow, net=net)
# What is rounded has a gradient, which is zero everywhere.
plant("detached", "digits MLP, rounded in forward", "frozen part, not trained, gradients vanish", stays, mlp_narrow,
      net=lambda: Cut(torch.round))


def frozen(*places: str):
    def change(model):
        for place in places: model.get_submodule(place).requires_grad_(False)
    return change


plant("frozen by mistake", "digits MLP, the first two layers", "frozen part, not trained", stays, mlp_narrow,
      change=frozen("0", "2"))
plant("frozen by mistake", "waves LSTM, all but the head", "frozen part, not trained", stays, small_lstm,
      change=frozen("rnn"))
plant("frozen by mistake", "recommender, the table of users", "frozen part, not trained", stays, recommender,
      change=frozen("users"))


class Sideways(Recurrent):
    "batch_first was forgotten."
    def __init__(self, *args):
        super().__init__(*args)
        self.rnn.batch_first = False


def given(parameters, optim=lambda p: torch.optim.Adam(p, 5e-3)):
    "An optimizer that gets some parameters of the model."
    return lambda model: optim(list(parameters(model)))


lacks = "not in the optimizer", "not trained, frozen part, loss does not fall"
both = "not in the optimizer, other parameters in the optimizer", lacks[1]
plant("wrong optimizer", "digits MLP, the first two parameters", *lacks, mlp_narrow,
      optim=given(lambda m: list(m.parameters())[:2]))
plant("wrong optimizer", "digits MLP, biases only", *lacks, mlp_narrow,
      optim=given(lambda m: (p for n, p in m.named_parameters() if n.endswith("bias"))))
plant("wrong optimizer", "waves LSTM, the head only", *lacks, lstm, net=lambda: Recurrent(width=8),
      twin=lstm(net=lambda: Recurrent(width=8)), optim=given(lambda m: m.head.parameters()))
plant("wrong optimizer", "recommender, without the embeddings", *lacks, recommender,
      optim=given(lambda m: [*m.mix.parameters(), *m.head.parameters()]))
plant("wrong optimizer", "digits CNN, of a deep copy", *both, cnn, optim=lambda m: adam()(copy.deepcopy(m)))
plant("wrong optimizer", "text GPT, of the model before it was built again", *both, gpt, optim=lambda m: adamw()(Gpt()))


def head_swapped(record, model, optimizer, loss_of, batches):
    "The head is exchanged for one that begins at zero, as for a new task, after the optimizer was made."
    with torch.no_grad():
        model[-1] = nn.Linear(model[-1].in_features, 10)
        model[-1].weight.zero_()
    with record.on(model, optimizer=optimizer) as s:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss)


# Nothing behind a head of zeros gets a gradient, so the body stands still as well.
plant("wrong optimizer", "digits CNN, made before the head was swapped", *(both[0], starved + ", frozen part"), cnn,
      loop=head_swapped)


# What stands before the loss

class Then(nn.Module):
    "A model and a function on its output."
    def __init__(self, body: nn.Module, last):
        super().__init__()
        self.body, self.last = body, last

    def forward(self, x): return self.last(self.body(x))


squeezed = "loss does not fall, saturated, gradients vanish, samples alike"


def before(name, way, last, net, symptoms=squeezed, causes="activation before the loss", **more):
    plant("activation before the loss", name, causes, symptoms, way, net=lambda: Then(net(), last), **more)


before("softmax module, digits CNN", cnn_sgd, nn.Softmax(dim=-1), convnet)
before("F.softmax in forward, digits MLP", mlp, lambda x: F.softmax(x, dim=1), lambda: stack(64, 64, 32, 10))
before("sigmoid before cross entropy, digits MLP", mlp, nn.Sigmoid(), lambda: stack(64, 64, 32, 10))
before("softmax before cross entropy, text GPT", gpt, nn.Softmax(-1), Gpt)
before("softmax before cross entropy, reviews", pooling, nn.Softmax(-1), Pooling, optim=sgd(.3), steps=60,
      twin=pooling(optim=sgd(.3), steps=60))
before("ReLU before cross entropy, digits MLP", mlp, nn.ReLU(), lambda: stack(64, 64, 32, 10), squeezed,
       "activation before the loss, dead units")
before("ReLU as the output of a regression", regression, nn.ReLU(), lambda: stack(8, 64, 64, 1), squeezed,
       "activation before the loss, dead units")
before("sigmoid as the output of a regression", regression, nn.Sigmoid(), lambda: stack(8, 64, 64, 1))


def binary(out, y): return F.binary_cross_entropy_with_logits(out, F.one_hot(y, out.shape[1]).float())


binary_mlp = recipe(digits, lambda: stack(64, 64, 32, 10), sgd(1.), loss=binary)
before("sigmoid before BCE with logits, digits MLP", binary_mlp, nn.Sigmoid(), lambda: stack(64, 64, 32, 10))


# A loss of the wrong sign

runs_away = diverged.replace("dead attention", "learning rate too large")
plant("wrong sign", "minus cross entropy, digits MLP", "wrong sign", runs_away, mlp,
      loss=lambda out, y: -F.cross_entropy(out, y))
plant("wrong sign", "minus squared error, regression", "wrong sign", runs_away, regression,
      loss=lambda out, y: -F.mse_loss(out, y))
plant("wrong sign", "log probability in place of its negative, text GPT", "wrong sign", runs_away, gpt,
      loss=lambda out, y: out.log_softmax(-1).gather(-1, y[..., None]).mean())
plant("wrong sign", "maximize=True, digits CNN", "wrong sign", runs_away, cnn, optim=adam(maximize=True))
plant("wrong sign", "minus cross entropy, waves LSTM", "wrong sign", runs_away, lstm,
      loss=lambda out, y: -F.cross_entropy(out, y))


# NaN

class First(nn.Module):
    "A function on the input, and a model."
    def __init__(self, first, body: nn.Module):
        super().__init__()
        self.first, self.body = first, body

    def forward(self, x): return self.body(self.first(x))


broken = "loss does not fall, not trained, loss rises, outputs blow up, gradients explode, samples alike"


def nan(name, way, symptoms=broken, **fault): plant("NaN or Inf", name, "NaN or Inf", symptoms, way, **fault)


nan("log of pixels that are 0", mlp, net=lambda: First(torch.log, stack(64, 64, 32, 10)),
    data=on(digits, normal=False))
nan("0/0: columns that are constant divided by their deviation", mlp, data=on(digits, normal=False),
    net=lambda: First(lambda x: (x - x.mean(0))/x.std(0), stack(64, 64, 32, 10)))
nan("a missing value in one row of a hundred", tabular, data=on(table, lambda x: torch.where(
    (torch.arange(len(x)) % 100 == 7)[:, None] & (torch.arange(12) == 3), torch.nan, x)))
nan("log of probabilities that become 0", mlp, loss=lambda out, y: F.nll_loss((40*out).softmax(-1).log(), y),
    optim=sgd(1.))
nan("attention over sentences that are all padding", reader, broken + ", dead attention",
    data=on(reviews, lambda x: torch.where((torch.arange(len(x)) % 50 == 0)[:, None], pad, x)))
nan("Adam with eps 0", mlp_adam, optim=adam(eps=0.), data=on(digits, normal=False))
nan("exp of numbers that are too large", regression, net=lambda: Then(stack(8, 64, 64, 1), lambda h: (1000*h).exp()))


# Modes

def eval_after_validation(after: int):
    def loop(record, model, optimizer, loss_of, batches):
        "The validation switches to eval mode, nobody switches back."
        with record.on(model, optimizer=optimizer) as s:
            model.train()
            for i, (x, y) in enumerate(batches):
                if i == after:
                    model.eval()
                    with torch.no_grad(): model(x)
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                optimizer.step()
                s.step(loss)
    return loop


unfit = ("nothing recorded, batch norm, activations explode, outputs blow up, gradients explode, loss does not fall, "
         "activations vanish, gradients vanish, samples alike, dead units, NaN or Inf, loss rises, "
         "learning rate too large")
plant("eval mode", "digits CNN with batch norm, before the first step", "eval mode", unfit, cnn_norm,
      loop=eval_after_validation(0), data=on(images, lambda x: 4*x + 3), twin=cnn_norm(data=on(images,
            lambda x: 4*x + 3)))
plant("eval mode", "digits MLP with batch norm, from the start", "eval mode", unfit, mlp_norm,
      loop=eval_after_validation(0))
plant("eval mode", "digits MLP with batch norm, after a validation at step 15", "eval mode", unfit, mlp_norm,
      loop=eval_after_validation(15))
# Without batch norm only the noise is missing, which harms little.
plant("eval mode", "digits MLP with dropout, from the start", "eval mode", "nothing recorded", mlp_adam,
      loop=eval_after_validation(0),
      net=lambda: stack(64, 64, 32, 10, drop=.2), twin=mlp_adam(net=lambda: stack(64, 64, 32, 10, drop=.2)))


# Too much of a good thing: dropout, decay, clipping

thin = "loss does not fall, dead units, samples alike, learning rate too large, gradients vanish, not trained"
dropped = recipe(digits, lambda: stack(64, 64, 64, 10, drop=.2), adam(), steps=120)
plant("dropout too strong", "digits MLP, 0.98", "dropout too strong", thin, dropped,
      net=lambda: stack(64, 64, 64, 10, drop=.98))
plant("dropout too strong", "digits CNN, 0.99 before the head", "dropout too strong", thin, cnn,
      net=lambda: convnet(drop=.99), twin=cnn(net=lambda: convnet(drop=.3)))
plant("dropout too strong", "waves LSTM, 0.97 of the inputs", "dropout too strong", thin, lstm,
      net=lambda: First(nn.Dropout(.97), Recurrent()))
plant("dropout too strong", "regression, 0.95, twice", "dropout too strong", thin, regression,
      net=lambda: stack(8, 64, 64, 1, drop=.95))


class Functional(nn.Module):
    "Dropout by a function; the share that stays was given for the share that goes."
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.dropout(self.first(x).relu(), .96, self.training)
        return self.head(F.dropout(self.second(x).relu(), .96, self.training))


plant("dropout too strong", "digits MLP, F.dropout with 0.96", "dropout too strong", thin, dropped, net=Functional)

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


def clipped(clip):
    def loop(record, model, optimizer, loss_of, batches):
        with record.on(model, optimizer=optimizer) as s:
            for x, y in batches:
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                clip(model.parameters())
                optimizer.step()
                s.step(loss)
    return loop


tight = "learning rate too small, loss does not fall"
plant("clipping too tight", "digits MLP, norm 1e-4", "clipping too tight", tight, mlp,
      loop=clipped(lambda p: nn.utils.clip_grad_norm_(p, 1e-4)))
plant("clipping too tight", "digits CNN, values 1e-6, momentum", "clipping too tight", tight, cnn_sgd,
      loop=clipped(lambda p: nn.utils.clip_grad_value_(p, 1e-6)))
# Adam divides by the length of gradients, so the norm has to come near its eps.
plant("clipping too tight", "waves LSTM, norm 1e-9, Adam", "clipping too tight", tight, lstm,
      loop=clipped(lambda p: nn.utils.clip_grad_norm_(p, 1e-9)))
plant("clipping too tight", "regression, norm 1e-3, SGD", "clipping too tight", tight, regression_sgd,
      loop=clipped(lambda p: nn.utils.clip_grad_norm_(p, 1e-3)))


def clipped_before_unscaling(record, model, optimizer, loss_of, batches):
    "The gradients are clipped while they are still multiplied by the scale."
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.)
    with record.on(model, optimizer=optimizer, scaler=scaler) as s:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            scaler.step(optimizer)
            scaler.update()
            s.step(loss)


plant("clipping too tight", "digits MLP, norm 1 before the scale is taken out", "clipping too tight", tight, mlp,
      loop=clipped_before_unscaling)


# Learning rates over time

def scheduled(schedule, needs_loss=False):
    def loop(record, model, optimizer, loss_of, batches):
        "The scheduler was meant for epochs."
        scheduler = schedule(optimizer)
        with record.on(model, optimizer=optimizer) as s:
            for x, y in batches:
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                optimizer.step()
                scheduler.step(*[loss.item()]*needs_loss)
                s.step(loss)
    return loop


schedulers = torch.optim.lr_scheduler
ends = "learning rate too small, loss does not fall"
plant("scheduler each batch", "digits MLP, StepLR(3)", "scheduler each batch", ends, mlp,
      loop=scheduled(lambda o: schedulers.StepLR(o, 3)))
plant("scheduler each batch", "digits CNN, ExponentialLR(0.7)", "scheduler each batch", ends, cnn,
      loop=scheduled(lambda o: schedulers.ExponentialLR(o, .7)))
plant("scheduler each batch", "waves LSTM, MultiStepLR(5, 10, 15)", "scheduler each batch", ends, lstm,
      loop=scheduled(lambda o: schedulers.MultiStepLR(o, [5, 10, 15])))
plant("scheduler each batch", "text GPT, one over the number of epochs squared", "scheduler each batch", ends, gpt,
      loop=scheduled(lambda o: schedulers.LambdaLR(o, lambda epoch: 1/(1 + epoch)**2)))
plant("scheduler each batch", "regression, ReduceLROnPlateau with the loss of a batch", "scheduler each batch", ends,
      regression, loop=scheduled(lambda o: schedulers.ReduceLROnPlateau(o, patience=1), True))


# Batch norm

small = recipe(digits, lambda: stack(64, 32, 32, 10, norm=nn.BatchNorm1d), sgd(.05, momentum=.9), steps=120)
noisy = "loss does not fall, learning rate too large, gradients explode, dead units"
plant("batch norm", "digits MLP, batches of 2", "batch norm", noisy, small, size=2)
plant("batch norm", "digits CNN, batches of 2, a norm behind the pooling", "batch norm", noisy, cnn_norm, size=2,
      net=lambda: nn.Sequential(convnet(bn=True)[:-1], nn.Linear(96, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32,
            10)))


def every(kind: type, change):
    def walk(model):
        for m in model.modules():
            if isinstance(m, kind): change(m)
    return walk


norms = nn.BatchNorm1d, nn.BatchNorm2d
plant("batch norm", "digits MLP, momentum 0", "batch norm", "", small,
      data=on(digits, lambda x: 5*x + 10), change=every(norms, lambda m: setattr(m, "momentum", 0.)),
      twin=small(data=on(digits, lambda x: 5*x + 10)))
plant("batch norm", "digits CNN, momentum 1, batches of 4", "batch norm", "", small, size=4,
      change=every(norms, lambda m: setattr(m, "momentum", 1.)))
plant("batch norm", "digits CNN, all gammas 0", "batch norm, constant output, samples alike",
      dead + ", dead units, units alike",
      cnn_norm, change=every(norms, lambda m: m.weight.zero_()))


# Signals that are cut off or shrunk

class Times(nn.Module):
    "Multiplies by a number or a mask."
    def __init__(self, by):
        super().__init__()
        self.register_buffer("by", torch.as_tensor(by))

    def forward(self, x): return x*self.by


gone = "gradients vanish, loss does not fall, not trained, input unused, dead units, units alike"
plant("killed signal", "digits MLP, x 1e-6 in the middle", "activations vanish, samples alike",
      gone + ", constant output",
      mlp, net=lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), Times(1e-6), *stack(64, 32, 10)))
plant("killed signal", "digits CNN, divided by 255 behind each layer", "activations vanish, samples alike",
      gone + ", constant output", cnn_sgd, net=lambda: nn.Sequential(
          *[m for layer in convnet() for m in ([layer, Times(1/255)] if isinstance(layer, nn.ReLU) else [layer])]))
plant("killed signal", "tables, a mask of zeros", "constant output, samples alike", gone + ", activations vanish",
      tabular,
      net=lambda: nn.Sequential(nn.Linear(12, 64), nn.ReLU(), Times(torch.zeros(64)), nn.Linear(64, 4)))
plant("killed signal", "waves LSTM, normalized over a dimension of one", "constant output, samples alike",
      gone + ", activations vanish, constant inputs, gradients explode", lstm, net=lambda: nn.Sequential(
          nn.Unflatten(-1, (2, 1)), nn.LayerNorm(1), nn.Flatten(2), Recurrent()))


class Ends(nn.Module):
    "A residual block that ends with a ReLU."
    def __init__(self, width: int, bias: float = 0.):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)
        self.relu = nn.ReLU()
        with torch.no_grad(): self.second.bias.fill_(bias)

    def forward(self, x): return x + self.relu(self.second(self.first(self.norm(x)).tanh()))


def branches(bias: float = 0.):
    return lambda: nn.Sequential(nn.Linear(12, 24), *[Ends(24, bias) for _ in range(3)], nn.Linear(24, 4))


branched = recipe(table, branches(), adam(1e-2), steps=150, size=64)
plant("dead residual branch", "tables, bias -10 in each branch", "dead units", dead, branched, net=branches(-10.))
# The blocks are healthy themselves: only the gradients, which are all zero, show what becomes of their outputs.
plant("dead residual branch", "tables, branches multiplied by 0", "not trained, frozen part",
      "gradients vanish, loss does not fall", residual, net=lambda: Residual(depth=3, scale=0.))


# Embeddings and attention

class Pretrained(Bag):
    "Embedding.from_pretrained freezes what it gets, which is noise here."
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(.01*torch.randn(24, 16), padding_idx=pad)


plant("embedding", "reviews, from_pretrained is frozen, four numbers a word", "frozen part",
      "not trained, activations vanish",
      bag, net=Pretrained, steps=60, twin=bag(steps=60))


def rare(limit: float):
    def change(model): model.embedding.max_norm = limit
    return change


plant("embedding", "reviews, max_norm 1e-4", "activations vanish, samples alike",
      "input unused, gradients vanish, loss does not fall, not trained, units alike", bag, change=rare(1e-4))
plant("embedding", "recommender, the tables begin equal and stand still",
      "units alike, samples alike, frozen part, constant output",
      "loss does not fall, not trained, input unused", recommender, change=lambda m: [
          e.requires_grad_(False).weight.fill_(.1) for e in (m.users, m.things)])
plant("embedding", "text GPT, not in the optimizer", *lacks, gpt,
      optim=lambda m: torch.optim.AdamW([p for n, p in m.named_parameters() if n != "tokens.weight"], 5e-3))
plant("embedding", "recall, of places, begins at zero and is not in the optimizer", *lacks, copier,
      change=lambda m: m.places.weight.zero_(),
      optim=lambda m: torch.optim.Adam([p for n, p in m.named_parameters() if n != "places.weight"], 5e-3))

one_hot = "saturated, gradients vanish, loss does not fall, not trained"
plant("dead attention", "recall, scores x 3,000", "dead attention, saturated", one_hot, copier,
      net=lambda: Copies(scale=3000.))
plant("dead attention", "recall, queries and keys x 30", "dead attention, saturated", one_hot + ", activations explode",
      copier, change=weights(lambda w: torch.cat([30*w[:64], w[64:]]), "block.attention.qkv"))
# scaled_dot_product_attention shows no softmax: what can be seen is that queries and keys are far too long.
plant("dead attention", "recall, scores x 3,000, sdpa", "dead attention, saturated", one_hot, copier,
      net=lambda: Copies(scale=3000., fused=True), twin=copier(net=lambda: Copies(fused=True)))
plant("dead attention", "reviews, MultiheadAttention with weights x 500", "dead attention, saturated",
      one_hot + ", activations explode", reader,
      change=lambda m: (m.attention.in_proj_weight[:48].mul_(500), m.embedding.weight.mul_(3)))
# The mask says where to look in place of where not to look; sentences without padding then look nowhere.
plant("dead attention", "reviews, the mask is inverted", "dead attention, samples alike, input unused",
      "loss does not fall, constant output, NaN or Inf, not trained", reader, net=lambda: Reader(inverted=True),
      data=on(reviews, lambda x: torch.cat([x[:, :-1], torch.full_like(x[:, :1], pad)], 1)),
      twin=reader(data=on(reviews, lambda x: torch.cat([x[:, :-1], torch.full_like(x[:, :1], pad)], 1))))


# The loss scale and float16

def scaled(**options):
    def loop(record, model, optimizer, loss_of, batches):
        scaler = torch.amp.GradScaler("cpu", **options)
        with record.on(model, optimizer=optimizer, scaler=scaler) as s:
            for x, y in batches:
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.float16): loss = loss_of(model(x).float(), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                s.step(loss)
    return loop


overflow = "float16 limit, NaN or Inf, gradients explode, loss does not fall, not trained"
plant("loss scale overflows", "digits MLP, begins at 2**100", "skipped steps", overflow, mlp_momentum,
      loop=scaled(init_scale=2.**100), steps=60, twin=mlp_momentum(loop=scaled(init_scale=1024.), steps=60))
plant("loss scale overflows", "digits MLP, hardly falls", "skipped steps", overflow, mlp_adam,
      loop=scaled(init_scale=2.**40, backoff_factor=.99), twin=mlp_adam(loop=scaled(init_scale=1024.)))
plant("loss scale overflows", "tables, grows too fast", "skipped steps", overflow, tabular, steps=80,
      loop=scaled(init_scale=2.**30, growth_factor=2.**12, growth_interval=1),
            twin=tabular(loop=scaled(init_scale=1024.)))


class Half(nn.Module):
    "A model in float16."
    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body.half()

    def forward(self, x): return self.body(x.half()).float()


plant("float16 limit", "digits MLP in float16, pixels of 0 to 255 times 16",
      "float16 limit, NaN or Inf, inputs not scaled",
      diverged, mlp, net=lambda: Half(stack(64, 64, 32, 10)), data=on(digits, lambda x: 16*255*x, normal=False))


# Data

alike = "input unused, loss does not fall, constant output"
plant("data bug", "digits, all images are the first", "constant inputs, samples alike", alike, mlp,
      data=on(digits, lambda x: x[:1].expand_as(x)))
plant("data bug", "digits CNN, all images are black", "constant inputs, samples alike", alike + ", not trained", cnn,
      data=on(images, torch.zeros_like))
plant("data bug", "reviews, all tokens are padding", "constant inputs, samples alike",
      alike + ", dead attention, not trained", bag,
      data=on(reviews, lambda x: torch.full_like(x, pad)))
plant("data bug", "reviews, all words are unknown", "constant inputs, samples alike", alike + ", dead attention",
      reader,
      data=on(reviews, lambda x: torch.full_like(x, 3)))
plant("data bug", "waves LSTM, each sequence minus itself", "constant inputs, samples alike", alike + ", not trained",
      lstm,
      data=on(waves, lambda x: x - x))
plant("data bug", "text, the ids of one sentence for all", "constant inputs, samples alike", alike, gpt,
      data=on(text, lambda x: x[:1].expand_as(x)))


class Ignores(nn.Module):
    "forward takes something else than its input."
    def __init__(self, body: nn.Module, other):
        super().__init__()
        self.body, self.other = body, other

    def forward(self, x): return self.body(self.other(x))


flat = "loss does not fall, samples alike, constant output, constant inputs, not trained"
plant("input unused", "digits CNN, zeros_like", "input unused", flat, cnn, net=lambda: Ignores(convnet(),
      torch.zeros_like))
plant("input unused", "digits MLP, noise in its place", "input unused", flat, mlp_adam,
      net=lambda: Ignores(stack(64, 64, 32, 10), torch.randn_like))
plant("input unused", "waves LSTM, its mean over samples", "input unused, samples alike", flat, lstm,
      net=lambda: Ignores(Recurrent(), lambda x: x.mean(0, keepdim=True).expand_as(x)))


class Learned(nn.Module):
    "The hidden state is overwritten by a parameter, which was meant to be added."
    def __init__(self):
        super().__init__()
        self.first, self.start, self.head = nn.Linear(64, 32), nn.Parameter(torch.randn(32)), stack(32, 32, 10)

    def forward(self, x):
        hidden = self.first(x)
        hidden = self.start.expand_as(hidden)
        return self.head(hidden)


# The layer whose result is thrown away gets no gradient, which leads there as well.
plant("input unused", "digits MLP, the hidden state is overwritten", "input unused, samples alike, not trained",
      flat + ", units alike", mlp_adam,
      net=Learned)


# Two models at once

def pairs(x, y, size: int):
    a, b = torch.randint(0, len(x), (2, size))
    return x[a], x[b], (y[a] == y[b]).float()


def mistaken(body, x, y) -> float:
    "How often a sample's nearest neighbour among the others is of another class."
    with judged(body): found = body(x)
    far = torch.cdist(found, found).fill_diagonal_(torch.inf) if found.isfinite().all() else None
    return float("nan") if far is None else (y[far.argmin(1)] != y).float().mean().item()


def siamese(negatives: bool = True, root: bool = False, steps: int = 100):
    "Brings images of one class together, and those of others apart."
    def run(record, seed: int) -> float:
        torch.manual_seed(seed)
        (x, y), held = digits(seed)
        body = stack(64, 48, 6)
        optimizer = adam(5e-3)(body)
        with record.on(body, optimizer=optimizer) as s:
            for _ in range(steps):
                a, b, same = pairs(x, y, 48)
                if root: b = torch.where(same[:, None] == 1, a, b)  # an image is paired with itself
                optimizer.zero_grad()
                near = (body(a) - body(b)).square().sum(1)
                far = near.sqrt() if root else (near + 1e-6).sqrt()
                loss = near.mean() if not negatives else (same*near + (1 - same)*(2 - far).relu().square()).mean()
                loss.backward()
                optimizer.step()
                s.step(loss)
        return mistaken(body, *held)
    return run


listed.append(Case("collapse", "siamese digits without negatives", ids("samples alike"),
                   ids("activations vanish, constant output, units alike, gradients vanish, dead units, input unused"),
                   siamese(negatives=False), siamese()))
listed.append(Case("NaN or Inf", "square root of 0 on its way back, siamese digits", ids("NaN or Inf"), ids(broken),
                   siamese(root=True), siamese()))


def gan(fault: str = "", steps: int = 150):
    "Two models that learn points on a circle; the score is how far the made points are from it, and from its middle."
    def run(record, seed: int) -> float:
        torch.manual_seed(seed)
        maker, critic = stack(4, 32, 32, 2), stack(2, 32, 32, 1, act=lambda: nn.LeakyReLU(.2))
        both = nn.ModuleDict({"maker": maker, "critic": critic})
        make = torch.optim.Adam((critic if fault == "critic's parameters twice" else maker).parameters(), 5e-3,
              betas=(.5, .9))
        judge = torch.optim.Adam(critic.parameters(), 5e-3, betas=(.5, .9))
        bce = F.binary_cross_entropy_with_logits
        with record.on(both, optimizer=[make, judge]) as s:
            for _ in range(steps):
                angle = 6.28*torch.rand(64)
                real = torch.stack([2 + angle.cos(), 2 + angle.sin()], 1)
                made = maker(torch.randn(64, 4))
                judge.zero_grad()
                yes, no = critic(real), critic(made.detach())
                loss = bce(yes, torch.ones_like(yes)) + bce(no, torch.zeros_like(no))
                loss.backward()
                judge.step()
                make.zero_grad()
                if fault == "detached": made = made.detach()
                told = critic(made)
                cost = bce(told, torch.ones_like(told))
                (-cost if fault == "sign" else cost).backward()
                make.step()
                s.step(loss)
        with torch.no_grad(): made = maker(torch.randn(500, 4))
        return ((made - 2).norm(dim=1) - 1).abs().mean().item() + (made.mean(0) - 2).norm().item()
    return run


def two(kind, name, causes, symptoms, fault): listed.append(Case(kind, f"GAN, {name}", ids(causes), ids(symptoms),
                                                                 gan(fault), gan()))


two("wrong optimizer", "both optimizers have the critic's parameters", *lacks, "critic's parameters twice")
two("detached", "the samples are detached for the maker too", "frozen part, not trained", stays, "detached")


# Out of reach: neither the statistics nor the loop can know. They count apart.

def unreachable(kind, name, way, **fault): plant(kind, name, "", "", way, reach=False, **fault)


def shuffled(data, share: float = 1.):
    def spoiled(seed):
        (x, y), held = data(seed)
        g = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(y), generator=g)
        return (x, torch.where(torch.rand(len(y), generator=g) < share, y[order], y)), held
    return spoiled


unreachable("wrong labels", "digits MLP, shuffled", mlp, data=shuffled(digits))
unreachable("wrong labels", "tables, three quarters shuffled", tabular, data=shuffled(table, .75))
unreachable("wrong dimension", "reviews, softmax over the samples", pooling, loss=lambda out,
      y: F.nll_loss(out.log_softmax(0), y), steps=60)
unreachable("wrong dimension", "digits RNN reads the batch as time", rnn, net=lambda: Sideways(nn.RNN, 8, 32, 10))
unreachable("reshape mixes samples", "digits MLP, view in place of permute", mlp_adam, net=lambda: Ignores(
    stack(64, 64, 32, 10), lambda x: x.t().reshape(x.shape)))
unreachable("no activation", "regression, linear layers only", regression, net=lambda: stack(8, 64, 64, 1,
      act=nn.Identity))
unreachable("loss broadcasts", "regression, (N, 1) and (N,)", regression, loss=lambda out, y: (out - y[:,
      0]).square().mean())


# How much a fault harms

def harmed(fault: list[float], twin: list[float]) -> bool:
    """Whether a run is clearly worse than its twin: with every seed its score is no number, or a quarter and 0.03
    above that of the twin."""
    return all(not f < max(1.25*t, t + .03) for f, t in zip(fault, twin))


def scores(run, seeds) -> list[float]:
    with torch.random.fork_rng(devices=[]): return [run(Nothing(), seed) for seed in seeds]


def main(only: str = ""):
    found = [case for case in faults() if only.lower() in f"{case.kind}: {case.name}".lower()]
    harmless = []
    for case in found:
        start = time.perf_counter()
        bad, good = scores(case.run, (0, 1)), scores(case.twin, (0, 1))
        took = (time.perf_counter() - start)/4
        if not harmed(bad, good): harmless.append(case)
        print(f"{'       ' if harmed(bad, good) else 'NO HARM'} {case.kind}: {case.name}: {[round(v, 3) for v in bad]} "
              f"beside {[round(v, 3) for v in good]} ({took:.2f} s)", flush=True)
    reach = [case for case in found if case.reach]
    print(f"{len(found)} faults, {len(reach)} of {len({c.kind for c in reach})} kinds in reach, "
          f"{len(harmless)} do no harm")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
