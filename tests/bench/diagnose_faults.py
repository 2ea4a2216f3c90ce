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
    Attention,
    Bag,
    Block,
    Case,
    Gpt,
    Nothing,
    Pooling,
    Reader,
    Recommender,
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
    curve,
    digits,
    error,
    feed,
    gpt,
    gpt_fused,
    gru,
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
    recommender,
    recipe,
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
    train,
    waves,
)

listed: list[Case] = []


def ids(names: str) -> frozenset[str]: return frozenset(name.strip() for name in names.split(",") if name.strip())


def plant(kind: str, name: str, causes: str, symptoms: str, way, reach: bool = True, twin=None, **fault):
    "A fault on the list: `way` with what is in `fault` is the run, without it (or with `twin`) its healthy twin."
    listed.append(Case(kind, name, ids(causes), ids(symptoms), way(**fault), twin or way(), reach=reach))


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


def mild(name, way, optim, **more): plant("learning rate ten times too large", name, "learning rate too large",
                                          diverged, way, optim=optim, **more)


mild("digits tanh MLP, momentum, 1", mlp_tanh, sgd(1, momentum=.9))
mild("digits CNN, Adam 0.05", cnn, adam(.05))
mild("tables, Adam 0.2", tabular, adam(.2))
mild("text GPT, AdamW 0.1", gpt_fused, adamw(.1))
mild("reviews with attention, Adam 0.1", reader, adam(.1))
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


dead = "not trained, constant output, samples alike, gradients vanish, activations vanish, loss does not fall, input unused"
plant("dead ReLU", "digits MLP, bias -10", "dead units", dead, mlp, change=bias(-10, "0"))
plant("dead ReLU", "digits CNN, bias -10 in the second layer", "dead units", dead, cnn, change=bias(-10, "2"))
plant("dead ReLU", "regression, bias -10 before the head", "dead units", dead, regression, change=bias(-10, "2"))
plant("dead ReLU", "digits MLP, negative weights behind a ReLU", "dead units", dead, mlp,
      change=lambda m: (m[2].weight.copy_(-m[2].weight.abs()), m[2].bias.fill_(-.1)) and None)
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

stuck = "gradients vanish, loss does not fall, not trained, dead units, samples alike, constant output"
plant("saturated", "digits tanh MLP, weights x 1,000", "saturated", stuck + ", activations explode, gradients explode",
      mlp_tanh, change=weights(lambda w: 1000*w))
plant("saturated", "digits tanh MLP, weights x 30", "saturated", stuck + ", activations explode, gradients explode",
      mlp_tanh, change=weights(lambda w: 30*w, "0", "2"))
plant("saturated", "digits sigmoid MLP, weights x 200", "saturated", stuck,
      recipe(digits, lambda: stack(64, 64, 32, 10, act=nn.Sigmoid), adam(1e-2)), change=weights(lambda w: 200*w, "0", "2"))
plant("saturated", "digits RNN, weights x 50", "saturated", stuck + ", gradients explode", rnn,
      change=weights(lambda w: 50*w, "rnn"))
plant("saturated", "tanh MLP of tables, bias 20", "saturated", stuck, tabular_tanh, change=bias(20, "2"))


# Signals that vanish or explode on their way

def deep(act, *, change=None): return recipe(digits, lambda: stack(64, *[32]*8, 10, act=act), sgd(.05, momentum=.9),
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
      change=lambda m: m.rnn.weight_hh_l0.mul_(6) and None)
plant("gradients explode", "autoencoder, weights of 1, SGD", "activations explode, gradients explode", blast,
      autoencoder, change=spread(1.), optim=sgd(1e-2))


class Doubled(Residual):
    "Each block adds its result to the sum once more."
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks: x = x + x + block(x)
        return self.head(x)


raises = blast + ", gradients explode"
plant("residual explodes", "16 blocks without a norm, each x 4", "activations explode, outputs blow up, gradients explode",
      raises, residual, net=lambda: Residual(depth=16, norm=False, scale=4.))
plant("residual explodes", "the sum is doubled in each of 14 blocks",
      "activations explode, outputs blow up, gradients explode", raises, residual,
      net=lambda: Doubled(depth=14, norm=False))
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


plant("zero init", "digits MLP, all zero", "units alike, constant output", zeros, mlp, change=everything(0.))
plant("zero init", "regression with tanh, all weights zero", "units alike, constant output", zeros, regression_rmsprop,
      change=weights(torch.zeros_like))
plant("zero init", "digits CNN, weights of all layers but the head zero", "units alike, constant output", zeros,
      cnn_sgd, change=weights(torch.zeros_like, "0", "2", "4"))
plant("constant init", "digits tanh MLP, 0.05", "units alike", equal, mlp_tanh, change=everything(.05))
plant("constant init", "digits CNN, weights 0.1", "units alike", equal, cnn, change=weights(lambda w: torch.full_like(w, .1)))
plant("constant init", "waves LSTM, 0.1", "units alike", equal, lstm, change=everything(.1))
plant("constant init", "tables, one hidden layer 0.02", "units alike", equal, tabular,
      change=weights(lambda w: torch.full_like(w, .02), "0"))


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
plant("frozen by mistake", "waves LSTM, all but the head", "frozen part, not trained", stays, lstm, change=frozen("rnn"),
      net=lambda: Recurrent(width=8), twin=lstm(net=lambda: Recurrent(width=8)))
plant("frozen by mistake", "recommender, the table of users", "frozen part, not trained", stays, recommender,
      change=frozen("users"))


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


squeezed = "loss does not fall, saturated, gradients vanish"


def before(name, way, last, net, symptoms=squeezed, causes="activation before the loss", **more):
    plant("activation before the loss", name, causes, symptoms, way, net=lambda: Then(net(), last), **more)


before("softmax module, digits CNN", cnn_sgd, nn.Softmax(dim=-1), convnet)
before("F.softmax in forward, digits MLP", mlp, lambda x: F.softmax(x, dim=1), lambda: stack(64, 64, 32, 10))
before("sigmoid before cross entropy, digits MLP", mlp, nn.Sigmoid(), lambda: stack(64, 64, 32, 10))
before("softmax before cross entropy, text GPT", gpt, nn.Softmax(-1), Gpt)
before("softmax before cross entropy, reviews", reader, nn.Softmax(-1), Reader, optim=sgd(.1), twin=reader(optim=sgd(.3)))
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
nan("square root of 0 on its way back", regression, net=lambda: Then(stack(8, 64, 64, 1), lambda h: h.relu().sqrt()))
nan("log of probabilities that become 0", mlp, loss=lambda out, y: F.nll_loss((40*out).softmax(-1).log(), y),
    optim=sgd(1.))
nan("attention over sentences that are all padding", reader, broken + ", dead attention",
    data=on(reviews, lambda x: torch.where((torch.arange(len(x)) % 50 == 0)[:, None], pad, x)))
nan("Adam with eps 0", mlp_adam, optim=adam(eps=0.), data=on(digits, normal=False))
nan("exp of numbers that grow", regression, net=lambda: Then(stack(8, 64, 64, 1), lambda h: (100*h).exp()))


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


unfit = "batch norm, activations explode, outputs blow up, gradients explode, loss does not fall, activations vanish, " \
        "gradients vanish, samples alike, dead units, NaN or Inf, loss rises, learning rate too large"
plant("eval mode", "digits CNN with batch norm, after a validation at step 2", "eval mode", unfit, cnn_norm,
      loop=eval_after_validation(2))
plant("eval mode", "digits MLP with batch norm, from the start", "eval mode", unfit, mlp_norm,
      loop=eval_after_validation(0))
plant("eval mode", "digits MLP with batch norm, after a validation at step 15", "eval mode", unfit, mlp_norm,
      loop=eval_after_validation(15))


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
    print(f"{len(found)} faults, {len(reach)} of {len({c.kind for c in reach})} kinds in reach, {len(harmless)} do no harm")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
