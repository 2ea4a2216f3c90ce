"""Each planted fault is found where it is; healthy runs raise no alarm and compute what they compute unwatched."""
import copy
import functools
import gc
import pickle
import warnings
import weakref

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.debug.nan import watch as watch_room
from hooklab.debug.nan.backward import BackwardPass
from hooklab.debug.nan.watch import NonFiniteError, find_nan
from hooklab.hooks.gradient import RecordedGradients

pytestmark = pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")
nan, inf = float("nan"), float("inf")


class Do(nn.Module):
    "A layer that calls a function."
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args, **kwargs): return self.f(*args, **kwargs)


class Then(nn.Module):
    "A container that does something between its layers."
    def __init__(self, first, f, second=None):
        super().__init__()
        self.first, self.f, self.second = first, f, second or nn.Identity()

    def forward(self, x): return self.second(self.f(self.first(x)))


def total(out): return sum(t.float().sum() for t in hl.tensors(out) if t.is_floating_point())


def net(*middle): return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), *middle, nn.Linear(4, 2), nn.Tanh())


def fault(model, x, loss=total, check=True, **options):
    "What is found in one training step."
    with pytest.raises(NonFiniteError) as caught, find_nan(model, **options) as watch:
        value = loss(model(x))
        if check: watch.check(value)
        value.backward()
    assert not hl.hooks_on(model)
    return caught.value


def names(error): return error.kind, error.layer, error.direction


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


@pytest.fixture
def x(): return torch.randn(8, 4)


# forward

forward_faults = {
    "log of zero": lambda x: x.log(), "square root below zero": lambda x: (x - 1).sqrt(),
    "zero by zero": lambda x: (x*0)/(x*0),
    "one by zero": lambda x: 1/(x*0), "inf minus inf": lambda x: x + inf - inf, "exp": lambda x: (x*1e4 + 100).exp(),
    "deviation of one": lambda x: x + x[:1].std(0), "normalize zero": lambda x: (x*0)/(x*0).norm(dim=1, keepdim=True),
    "softmax over masked": lambda x: x.masked_fill(torch.ones_like(x, dtype=torch.bool), -inf).softmax(1),
    "arc cosine": lambda x: (x + 1.1).acos(), "power": lambda x: (x - 5)**0.5, "in place": lambda x: x.mul(1).log_(),
}


@pytest.mark.parametrize("what", forward_faults)
@pytest.mark.filterwarnings("ignore:std\\(\\)")
def test_forward_maker(what, x):
    model = net(Do(forward_faults[what]))
    error = fault(model, x)
    assert names(error) == ("layer", "2", "forward") and (error.n_pass, error.n_call) == (1, 1)
    assert error.carriers[:1] == ("3",) and {"0", "1", "2"}.isdisjoint(error.carriers)
    assert "2 (Do)" in str(error) and "input: 8×4, min 0" in str(error) and "the first at [" in str(error)


def test_report_shows_the_input(x):
    model = net(Do(lambda x: torch.where(x == x.max(), nan, x)))
    h = model[:2](x)
    flat = h.argmax().item()
    said = str(fault(model, x))
    assert f"input: 8×4, min 0, mean {h.mean():.4g}, max {h.max():.4g}" in said
    rest = h.flatten()[h.flatten() != h.max()]
    assert (f"output: 8×4, min 0, mean {rest.mean():.4g}, max {rest.max():.4g}, "
            f"and 1 NaN among 32, the first at {[flat//4, flat%4]}") in said


def test_report_shows_parameters(x):
    model = net()
    with torch.no_grad():
        for linear in model[2], model[0]: linear.weight.fill_(1e30)
    error = fault(model, x)
    assert names(error) == ("layer", "2", "forward") and "weight: 2×4, min 1e+30, mean 1e+30, max 1e+30" in str(error)


@pytest.mark.parametrize("inplace", [nn.ReLU(inplace=True), nn.LeakyReLU(0.1, inplace=True),
                                     Do(lambda x: x.mul_(2)), Do(lambda x: x.add_(1))])
def test_layers_that_work_in_place_are_carriers(inplace, x):
    error = fault(net(Do(lambda x: x*inf), inplace), x)
    assert names(error) == ("layer", "2", "forward") and error.carriers[0] == "3"


def test_in_place_maker(x):
    error = fault(net(Do(lambda x: x*1), Do(lambda x: x.log_())), x)
    assert names(error) == ("layer", "3", "forward") and error.carriers[0] == "4"
    assert "input: 8×4, min 0, max" in str(error)  # what it was when it went in


def test_between_layers_innermost_container(x):
    inner = Then(nn.Linear(4, 4), lambda x: x/0*0, nn.Linear(4, 4))
    error = fault(net(nn.Sequential(nn.Linear(4, 4), inner)), x)
    assert names(error) == ("between layers", "2.1", "forward") and error.carriers == ("2.1.second", "3", "4")


def test_between_layers_of_the_model_itself(x):
    error = fault(Then(nn.Linear(4, 4), lambda x: (x*0).log()), x)
    assert names(error) == ("between layers", "(model)", "forward")


def test_functional_residual_before_in_place_layer(x):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.relu = nn.Linear(4, 4), nn.ReLU(inplace=True)
        def forward(self, x): return self.relu((self.conv(x)*0 + 6e4).half() + (x*0 + 6e4).half()).float()
    error = fault(net(Block()), x)
    assert names(error) == ("between layers", "2", "forward") and error.carriers[0] == "2.relu"


def test_half_precision_overflow(x):
    model = net(nn.Linear(4, 4)).half()
    model[2].weight.data.mul_(100)
    error = fault(model, x.clamp(-1, 1).half()*1e4)
    assert names(error) == ("layer", "2", "forward") and "float16 ends at 65504" in str(error)


def test_sums_that_would_overflow_are_fine():
    quiet(nn.Sequential(Do(lambda x: x*1), nn.Identity()).half(), torch.full((100, 100), 6e4).half().requires_grad_())
    quiet(nn.Sequential(Do(lambda x: x*1)), torch.full((100, 100), 3e38, requires_grad=True), lambda out: out[0, 0])


def test_masks_are_no_fault_but_a_row_of_them_is(x):
    def attention(scores, mask): return (scores + mask).softmax(-1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.attention, self.head = nn.Linear(4, 4), Do(attention), nn.Linear(4, 1)
        def forward(self, x): return self.head(self.attention(self.linear(x), mask=self.mask))

    model = Model()
    model.mask = torch.full((4,), -inf).index_fill(0, torch.tensor([1]), 0)
    quiet(model, x)
    model.mask = torch.full((4,), -inf)
    error = fault(model, x)
    assert names(error) == ("layer", "attention", "forward") and error.carriers == ("head",)


def test_causal_transformer_is_quiet():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    quiet(Do(lambda x: model(x, src_mask=mask, is_causal=True)), torch.randn(2, 5, 8))

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = model
        def forward(self, x, mask): return self.layer(x, src_mask=mask)
    masked = Masked()
    quiet(masked, torch.randn(2, 5, 8), given=(mask,))


def test_inf_can_be_allowed(x):
    model = net(Do(lambda x: x.index_fill(1, torch.tensor([0]), -inf)), Do(lambda x: x.softmax(1)))
    assert names(fault(model, x)) == ("layer", "2", "forward")
    quiet(model, x, inf=False, gradients=False)


def test_nan_in_the_data(x):
    x[3, 1] = nan
    error = fault(net(), x)
    assert names(error) == ("data", "", "forward") and error.carriers[0] == "0"
    assert "1 NaN among 32, the first at [3, 1]" in str(error)


def test_inf_in_the_data(x):
    x[3, 1] = inf
    error = fault(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), x)
    assert names(error) == ("data", "", "forward") and "became NaN in 1 (BatchNorm1d)" in str(error)


@pytest.mark.parametrize("value", [inf, -inf])
@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 4)),
                                   nn.Sequential(nn.Linear(4, 2))])
def test_inf_in_the_data_however_it_comes_out(value, model, x):
    x[3, 1] = value
    with torch.no_grad(): model[0].weight[0, 1], model[0].weight[1, 1] = 1, -1
    assert names(fault(model, x)) == ("data", "", "forward")


class Scores(nn.Module):
    "Adds a mask to scores."
    def forward(self, x, mask): return x + mask


def test_masks_that_are_passed_on_are_no_fault_and_no_excuse(x):
    class Model(nn.Module):
        def __init__(self, last):
            super().__init__()
            self.linear, self.scores, self.softmax, self.last = nn.Linear(4, 4), Scores(), nn.Softmax(dim=1), last
        def forward(self, x, mask): return self.last(self.softmax(self.scores(self.linear(x), mask)))

    mask = torch.full((4,), -inf).index_fill(0, torch.tensor([1, 2]), 0)
    quiet(Model(nn.Identity()), x, given=(mask,))
    with pytest.raises(NonFiniteError) as caught, find_nan(model := Model(Do(torch.log))): model(x, mask)
    assert names(caught.value) == ("layer", "last", "forward")
    with pytest.raises(NonFiniteError, match="-inf|became NaN in softmax"), find_nan(model): model(x, mask - inf)


def test_inf_between_layers(x):
    error = fault(net(Then(nn.Linear(4, 4), lambda x: x/0, nn.Linear(4, 4))), x)
    assert names(error) == ("between layers", "2", "forward") and error.carriers[0] == "2.second"


def test_missing_values_that_the_model_fills_in_are_no_fault(x):
    x[3, 1] = nan
    model = nn.Sequential(Do(torch.nan_to_num), *net())
    quiet(model, x)
    assert names(fault(nn.Sequential(*model, Do(torch.log)), x)) == ("layer", "5", "forward")


@pytest.mark.parametrize("frozen", [True, False])
def test_nan_in_weights_from_the_start(x, frozen):
    model = net()
    model[2].weight.requires_grad_(not frozen).data[1, 2] = nan
    error = fault(model, x)
    assert names(error) == ("parameters", "2", "forward")
    assert "from the start" in str(error) and "2.weight" in str(error)


def test_weights_ruined_by_a_step(x):
    model = net()
    with pytest.raises(NonFiniteError) as caught, find_nan(model):
        for step in range(6):
            total(model(x)).backward()
            if step == 3: model[0].weight.data[0, 0] = nan
    assert names(caught.value) == ("parameters", "0", "forward") and caught.value.n_pass == 5
    assert "finite when pass 4 began" in str(caught.value)


def test_weights_that_are_not_used_are_seen_too():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
    model[0].weight.data[7] = nan
    assert names(fault(model, torch.tensor([1, 2]))) == ("parameters", "0", "forward")


def test_running_statistics(x):
    model = net(nn.BatchNorm1d(4)).eval()
    model[2].running_mean[1] = nan
    error = fault(model, x)
    assert names(error) == ("parameters", "2", "forward") and "whose running_mean holds NaN" in str(error)


def test_optimizer_step_with_too_high_a_rate(x):
    model = net(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e38)
    with pytest.raises(NonFiniteError) as caught, find_nan(model):
        for _ in range(5):
            optimizer.zero_grad()
            F.mse_loss(model(x), torch.full((8, 2), 1e4)).backward()
            optimizer.step()
    assert caught.value.n_pass == 2 and caught.value.direction == "forward"


@pytest.mark.parametrize("out", [lambda t: (t*1, t.log()), lambda t: {"a": t*1, "b": {"c": t.log()}},
                                 lambda t: [None, t.log(), 3]])
def test_any_output(out, x):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Do(out), Do(lambda o: hl.tensors(o)[-1]*1))
    error = fault(model, x)
    assert names(error) == ("layer", "2", "forward") and error.carriers == ("3",)


def test_report_on_a_reused_layer_names_the_call(x):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.log, self.linear = Do(torch.log), nn.Linear(4, 4)
        def forward(self, x): return self.linear(self.log(self.log(x.abs() + 0.5) - 10))
    error = fault(Twice(), x)
    assert names(error) == ("layer", "log", "forward") and error.n_call == 2 and error.carriers == ("linear",)


def test_lstm(x):
    model = nn.Sequential(nn.LSTM(4, 4), Do(lambda o: o[0]), nn.Linear(4, 2))
    quiet(model, x)
    error = fault(nn.Sequential(Do(torch.log), *model), x)
    assert names(error) == ("layer", "0", "forward") and error.carriers == ("1", "2", "3")


def test_evaluation_without_gradients(x):
    model = net(Do(torch.log)).eval()
    for mode in torch.no_grad, torch.inference_mode:
        with mode(), pytest.raises(NonFiniteError) as caught, find_nan(model): model(x)
        assert names(caught.value) == ("layer", "2", "forward")


def test_parts_called_on_their_own(x):
    model = nn.ModuleDict({"encoder": net(), "decoder": nn.Sequential(Do(lambda x: x.abs().sqrt()), nn.Linear(2, 2))})
    quiet(model, x, call=lambda m, x: m["decoder"](m["encoder"](x)))
    with pytest.raises(NonFiniteError) as caught, find_nan(model):
        total(model["decoder"](model["encoder"](x)*0)).backward()
    assert names(caught.value) == ("layer", "decoder.0", "backward")


# backward

backward_faults = {
    "square root of zero": lambda x: (x*0).sqrt(),
    "norm by hand": lambda x: x + (x*0).pow(2).sum(1, keepdim=True).sqrt(),
    "masked too late": lambda x: torch.where(x > 0, (x*(x > 0)).sqrt(), x),
    "deviation of a constant": lambda x: x + (x*0).var(0).sqrt(),
    "power": lambda x: (x*0).abs()**0.5, "arc sine of one": lambda x: (x*0 + 1).asin(),
    "in place": lambda x: x.mul(0).sqrt_(),
}


@pytest.mark.parametrize("what", backward_faults)
def test_backward_maker(what, x):
    model = nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(inplace=True), Do(backward_faults[what]), nn.Linear(4, 2))
    error = fault(model, x)
    assert names(error) == ("layer", "2", "backward") and error.carriers == ("1", "0")
    assert "gradient of output: 8×4, min" in str(error) and "gradient of input: 8×4" in str(error)
    assert "the first at [" in str(error)
    assert "input: 8×4, min -" in str(error)  # what went in, in the forward pass


def test_backward_between_layers(x):
    error = fault(net(Then(nn.Linear(4, 4), lambda x: (x*0).sqrt(), nn.Linear(4, 4))), x)
    assert names(error) == ("between layers", "2", "backward") and error.carriers == ("2.first", "1", "0")


def test_backward_between_layers_of_the_model_itself(x):
    error = fault(Then(nn.Linear(4, 4), lambda x: (x*0).sqrt()), x)
    assert names(error) == ("between layers", "(model)", "backward") and "first" in error.carriers


def test_backward_only_parameters_go_bad(x):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4))
        def forward(self, x): return x + self.weight.sqrt()
    error = fault(net(Scale()), x)
    assert names(error) == ("layer", "2", "backward") and error.carriers == ()
    assert "gradient of weight: 4, 4 Inf among 4" in str(error)


def test_backward_weights_only_lent(x):
    class Lends(nn.Module):
        def __init__(self):
            super().__init__()
            self.lent, self.own = nn.Linear(4, 4), nn.Linear(4, 4)
        def forward(self, x): return self.own(x) + (self.lent.weight*0).sqrt().sum()
    error = fault(net(Lends()), x)
    assert names(error)[1:] == ("2", "backward") and "gradient of lent.weight" in str(error)


def test_backward_half_precision(x):
    model = nn.Sequential(nn.Linear(4, 4, bias=False), Do(lambda x: x*3e4), Do(lambda x: x*3e4)).half()
    error = fault(model, x.half()*1e-5)
    assert names(error) == ("layer", "1", "backward") and "float16 ends at 65504" in str(error)


def scaled(model, x, scale, n=30):
    "The fault that is reported in a loop with a `GradScaler`, and the scale in the end."
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=scale), torch.optim.SGD(model.parameters(), lr=1e-3)
    error = None
    try:
        with find_nan(model):
            for _ in range(n):
                optimizer.zero_grad()
                scaler.scale(total(model(x)).mean()).backward()
                scaler.step(optimizer)
                scaler.update()
    except NonFiniteError as e: error = e
    return error, scaler.get_scale()


def test_a_scaler_looks_for_its_scale(x):
    def in_half(*then): return net(Do(lambda x: x.half()*8), Do(lambda x: x.float()), *then)
    error, scale = scaled(in_half(), x, 2.**18)
    assert error is None and 1 < scale < 2.**18
    # at a scale of 1 nothing can be lowered, and what is not finite is reported, as it is without float16
    error, scale = scaled(in_half(Do(lambda x: (x*0).sqrt())), x, 2.**4)
    assert names(error) == ("layer", "4", "backward") and scale == 1
    error, scale = scaled(net(Do(lambda x: (x*0).sqrt())), x, 2.**18)
    assert names(error) == ("layer", "2", "backward") and scale == 2.**18


def test_loss_that_is_nan(x):
    error = fault(net(), x, lambda out: (out*0).log().sum()*0)
    assert names(error) == ("loss", "", "forward") and "output of the model: 8×2" in str(error)


def test_loss_gradient(x):
    error = fault(net(), x, lambda out: (out*0).abs().sqrt().sum())
    assert names(error) == ("loss", "", "backward") and error.carriers == ("3", "2", "1", "0")
    assert "gradient of output: 8×2, 16 NaN" in str(error)
    assert names(fault(net(), x, lambda out: (out*0).log().sum(), check=False)) == ("loss", "", "backward")


def test_loss_gradient_with_input_that_needs_one(x):
    error = fault(net(), x.requires_grad_(), lambda out: (out*0).abs().sqrt().sum())
    assert names(error) == ("loss", "", "backward")


def test_check_returns_the_loss_and_blames_a_layer_first(x):
    with find_nan(model := net()) as watch: assert watch.check(loss := total(model(x))) is loss
    found = []
    model = net(Do(torch.log))
    with find_nan(model, found.append) as watch: watch.check(total(model(x)*inf))
    assert [e.kind for e in found] == ["layer"]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_checkpointed(reentrant, direction, x):
    class Model(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.stem, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
            self.block = nn.Sequential(nn.Linear(4, 4), Do(f), nn.Linear(4, 4))
        def forward(self, x): return self.head(checkpoint(self.block, self.stem(x), use_reentrant=reentrant))
    quiet(Model(lambda x: x), x)
    error = fault(Model((lambda x: x/0) if direction == "forward" else (lambda x: (x*0).sqrt())), x)
    assert names(error) == ("layer", "block.1", direction)
    assert error.carriers[0] == ("block.2" if direction == "forward" else "block.0")
    assert ("head" in error.carriers) == (direction == "forward")


# what a watch leaves behind, and how it reports

def test_nothing_is_left_whatever_happens(x):
    model = net(Do(torch.log))
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(NonFiniteError), find_nan(model): model(x)
    with pytest.raises(KeyboardInterrupt), find_nan(model): raise KeyboardInterrupt
    with pytest.raises(RuntimeError, match="mat1"), find_nan(model): model(x[:, :2])
    watch = find_nan(model)
    assert hl.hooks_on(model) and hl.hooks_on(model)[0].kind == "watch" and "on Sequential: 0 passes" in repr(watch)
    watch.remove()
    watch.remove()
    assert not hl.hooks_on(model) and "removed" in repr(watch)
    find_nan(model)
    assert hl.remove_hooks(model) == 6 and not hl.hooks_on(model)
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)


def test_ctrl_c_in_a_layer_does_not_blind_it(x):
    stop = [True]
    def f(x):
        if stop.pop(): raise KeyboardInterrupt
        return x.log()
    model = net(Do(f))
    with find_nan(model):
        with pytest.raises(KeyboardInterrupt): model(x)
        stop.append(False)
        with pytest.raises(NonFiniteError): model(x)


def test_an_error_because_of_a_nan_says_so(x):
    def refuse(x):
        if x.isnan().any(): raise ValueError("this is not a number")
        return x
    model = net(Do(lambda x: x*0/0), Do(refuse))
    with pytest.raises(ValueError, match="not a number") as caught, find_nan(model): model(x)
    assert "NaN made by 2 (Do)" in caught.value.__notes__[0]
    found = []
    with pytest.raises(ValueError) as caught, find_nan(model, found.append): model(x)
    assert names(found[0]) == ("layer", "2", "forward") and found[0].carriers == ("3",)
    assert not hasattr(caught.value, "__notes__")


def test_each_layer_is_reported_once_and_the_run_goes_on(x):
    found, model = [], net(Do(torch.log))
    with find_nan(model, found.append):
        for _ in range(3): total(model(x)).backward()
        model[2].f = torch.sqrt
        for _ in range(3): total(model(x)).backward()
    assert [names(e) for e in found] == [("layer", "2", "forward"), ("layer", "2", "backward")]
    assert [e.n_pass for e in found] == [1, 4]


def test_gradients_that_were_bad_before_are_not_reported(x):
    found, model = [], net(Do(lambda x: x*1))
    with find_nan(model, found.append):
        total(model(x)*nan).backward()
        total(model(x)).backward()  # adds to what is NaN already
        model.zero_grad()
        total(model(x)).backward()
    assert [names(e) for e in found] == [("loss", "", "backward")]


def test_print_and_warn(x, capsys):
    def said(error): warnings.warn(str(error), stacklevel=2)
    model = net(Do(torch.log))
    with find_nan(model, print): model(x)
    assert capsys.readouterr().out.startswith("Inf made by 2 (Do) in the forward pass (pass 1, call 1)\n    input: 8×4")
    with pytest.warns(UserWarning, match="Inf made by 2"), find_nan(model, said): model(x)


def test_an_error_can_be_pickled(x):
    error = fault(net(Do(torch.log)), x)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and vars(again) == vars(error)


def test_copies_are_not_watched(x):
    model = net()
    with find_nan(model):
        twin, saved = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        assert not hl.hooks_on(twin) and not hl.hooks_on(saved)
        for model_of_its_own in twin, saved: model_of_its_own(x*nan)
        model(x)


def test_a_model_that_never_runs_is_reported(x):
    with pytest.warns(hl.HookWarning, match="never ran"), find_nan(net()): net()(x)


def test_wrong_arguments(x):
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got list"): find_nan([net()])
    with pytest.raises(TypeError): find_nan(net(), "print")
    with pytest.raises(ValueError): find_nan(nn.ModuleList())
    model = net()
    with pytest.raises(TypeError): find_nan(model, 3)
    assert not hl.hooks_on(model)


def test_nothing_is_held_after_the_pass(x):
    held = []
    model = net(Do(lambda x: held.append(weakref.ref(x)) or x*1))
    with find_nan(model):
        out = model(x)
        total(out).backward()
        del out
        gc.collect()
        assert held[0]() is None


def test_compiled_runs_uncompiled(x):
    model = net(Do(lambda x: x - x.log()))
    frames = []
    def backend(graph, inputs):
        frames.append(1)
        return graph.forward
    compiled = torch.compile(model, backend=backend)
    compiled(x)
    with pytest.raises(NonFiniteError) as caught, find_nan(compiled): compiled(x)
    assert names(caught.value) == ("layer", "2", "forward") and len(frames) == 1
    torch._dynamo.reset()
    compiled(x)
    assert len(frames) == 2  # afterwards it is compiled again


# healthy runs

def run(model, x, loss, watched, given=(), call=None, **options):
    "Outputs, gradients, state and random state after two steps."
    torch.manual_seed(1)
    model, seen = copy.deepcopy(model), []
    watch = find_nan(model, **options) if watched else None
    for _ in range(2):
        out = call(model, x) if call else model(x, *given)
        loss(out).backward()
        seen += [t.detach().clone() for t in hl.tensors(out)]
    if watch: watch.remove()
    return seen, [p.grad for p in model.parameters()], model.state_dict(), torch.get_rng_state()


def quiet(model, x, loss=total, **options):
    "No alarm, and nothing is changed: bit by bit what it is without a watch."
    calls = {name: value for name, value in options.items() if name in ("given", "call")}
    with_watch, without = run(model, x, loss, True, **options), run(model, x, loss, False, **calls)
    torch.testing.assert_close(with_watch, without, rtol=0, atol=0, equal_nan=True)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.act, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout()
    def forward(self, x): return {"out": self.act(self.drop(self.bn(self.a(x))) + x), "counts": (x > 0).sum()}


@pytest.mark.parametrize("model", [net(), net(nn.Dropout(), nn.BatchNorm1d(4), nn.ReLU(inplace=True)), Residual(),
                                   nn.LSTM(4, 4, 2), nn.TransformerEncoderLayer(4, 2, 8),
                                   nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(torch.bfloat16),
                                   net().double(), Do(lambda x: x*1j)], ids=lambda m: type(m).__name__)
def test_healthy_runs_are_what_they_were(model, x):
    x = x.to(next(model.parameters(), x).dtype).requires_grad_()
    quiet(model, x, lambda out: total([t.abs() if t.is_complex() else t for t in hl.tensors(out)]))


def test_odd_tensors_are_quiet(x):
    quiet(nn.Sequential(nn.Linear(4, 4), Do(lambda x: x[:0]), nn.Linear(4, 2)), x)
    quiet(nn.EmbeddingBag(10, 4, sparse=True, mode="sum"), torch.tensor([[1, 2], [3, 4]]))
    model = net()
    def summed(parameters): return total(torch.func.functional_call(model, parameters, (x,)))
    with find_nan(model):
        grads = torch.func.grad(summed)(dict(model.named_parameters()))
        torch.func.vmap(model)(x[:, None])
    assert torch.isfinite(grads["0.weight"]).all()


def test_nan_inside_transforms(x):
    model = net(Do(torch.log))
    with pytest.raises(NonFiniteError) as caught, find_nan(model): torch.func.vmap(model)(x[:, None])
    assert names(caught.value) == ("layer", "2", "forward")


def test_accumulated_and_two_passes_before_one_backward(x):
    model = net()
    with find_nan(model):
        (total(model(x)) + total(model(x*2))).backward()
        total(model(x)).backward()
    model = net(Do(lambda x: (x*0).sqrt()))
    with pytest.raises(NonFiniteError) as caught, find_nan(model): (total(model(x)) + total(model(x))).backward()
    assert names(caught.value) == ("layer", "2", "backward")


# tensors that cannot be looked at

class Packed(torch.Tensor):
    "Whole numbers and a scale, which know what a Linear needs and nothing else."
    @staticmethod
    def __new__(cls, whole, scale):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=torch.float32, requires_grad=False)

    def __init__(self, whole, scale): self.whole, self.scale = whole, scale
    def __repr__(self): return f"Packed({tuple(self.shape)})"
    def plain(self): return self.whole*self.scale

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        aten = torch.ops.aten
        if op in (aten.detach.default, aten.t.default): return cls(op(args[0].whole), args[0].scale)
        if op in (aten.mm.default, aten.addmm.default):
            return op(*[a.plain() if isinstance(a, cls) else a for a in args])
        raise NotImplementedError(f"Packed has no {op}")


def packed(linear):
    "The layer with weights of whole numbers."
    whole = (linear.weight.detach()*100).round().to(torch.int8)
    linear.weight = nn.Parameter(Packed(whole, .01), requires_grad=False)
    return linear


def without_warnings(test):
    "The tests of this file turn warnings of hooks into errors; here they are expected."
    @functools.wraps(test)
    def runs(*args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hl.HookWarning)
            test(*args, **kwargs)
    return runs


class Ends(nn.Module):
    "Returns what cannot be looked at, or takes it."
    def __init__(self, packs):
        super().__init__()
        self.packs = packs
    def forward(self, x): return Packed((x*10).to(torch.int8), .1) if self.packs else x.plain()


@pytest.mark.parametrize("gradients", [True, False])
def test_weights_that_cannot_be_looked_at_are_left_out_with_one_warning(x, gradients):
    model = nn.Sequential(packed(nn.Linear(4, 4)), nn.ReLU(), packed(nn.Linear(4, 4)), nn.Linear(4, 2))
    before = model(x)
    with warnings.catch_warnings(record=True) as said, find_nan(model, gradients=gradients):
        warnings.simplefilter("always")
        for _ in range(3):
            out = model(x)
            out.sum().backward()
    assert torch.equal(out, before) and model[3].weight.grad is not None
    assert [w.category for w in said] == [hl.HookWarning]
    assert ("find_nan: left out, because torch cannot look at them: Packed (float32, cpu; "
            "NotImplementedError: Packed has no aten.") in str(said[0].message)


@without_warnings
def test_what_can_be_looked_at_still_is(x):
    def model(*middle):
        return nn.Sequential(packed(nn.Linear(4, 4)), nn.ReLU(), *middle, packed(nn.Linear(4, 4)), nn.Linear(4, 2))
    assert names(fault(model(Do(torch.log)), x)) == ("layer", "2", "forward")
    assert names(fault(model(nn.Linear(4, 4), Do(lambda x: (x*0).sqrt())), x)) == ("layer", "3", "backward")
    broken = model()
    broken[3].weight.data[0, 0] = nan
    assert names(fault(broken, x))[:2] == ("parameters", "3")
    report = str(fault(nn.Sequential(nn.Linear(4, 4), Then(packed(nn.Linear(4, 4)), lambda x: x*nan)), x))
    assert "made by 1 (Then) itself" in report


@without_warnings
def test_values_that_cannot_be_looked_at_are_passed_on(x):
    with torch.no_grad(), find_nan(model := nn.Sequential(Ends(True), Ends(False), nn.Linear(4, 2))): out = model(x)
    assert out.isfinite().all()
    model = nn.Sequential(Ends(True), Ends(False), Do(lambda x: x/0))
    with torch.no_grad(), pytest.raises(NonFiniteError) as caught, find_nan(model): model(x)
    assert names(caught.value) == ("layer", "2", "forward")


@without_warnings
def test_a_plain_tensor_that_could_not_be_looked_at_once_is_looked_at_again(x, monkeypatch):
    model, failed = net(), []
    def fails_once(found, *args):
        if not failed: failed.append(1)
        else: return total_norm(found, *args)
        raise RuntimeError("busy")
    total_norm = torch.nn.utils.get_total_norm
    monkeypatch.setattr("hooklab.debug.nan.numbers.get_total_norm", fails_once)
    model[0].weight.data[0, 0] = nan
    assert names(fault(model, x))[:2] == ("parameters", "0") and failed


@pytest.mark.peers
@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
@without_warnings
def test_weights_quantized_by_torchao(config):
    quantization = pytest.importorskip("torchao.quantization")
    def model(*middle):
        made = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), *middle, nn.Linear(64, 32))
        quantization.quantize_(made, getattr(quantization, config)())
        return made
    given = torch.randn(32, 64)
    with warnings.catch_warnings(record=True) as said, find_nan(quiet := model()):
        warnings.simplefilter("always", hl.HookWarning)
        for _ in range(2): quiet(given)
    assert sum("torch cannot look at them: Int8Tensor" in str(w.message) for w in said) <= 1
    with pytest.raises(NonFiniteError) as caught, find_nan(found := model(Do(lambda x: x/0))): found(given)
    assert names(caught.value) == ("layer", "2", "forward")


# any network, any place

kinds = {"linear": lambda: nn.Linear(4, 4), "act": lambda: nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(inplace=True)),
         "tanh": nn.Tanh, "norm": lambda: nn.LayerNorm(4), "residual": lambda: Do(lambda x: x + 1),
         "block": lambda: nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())}
few_kinds = st.lists(st.sampled_from(sorted(kinds)), max_size=5)


@settings(max_examples=40, deadline=None)
@given(before=few_kinds, after=few_kinds, backward=st.booleans(), seed=st.integers(0, 99))
def test_planted_anywhere(before, after, backward, seed):
    torch.manual_seed(seed)
    bad = Do(lambda x: (x*0).sqrt() + x.sigmoid() if backward else x + nan)
    before, after = [kinds[kind]() for kind in before], [kinds[kind]() for kind in after]
    model = nn.Sequential(nn.Linear(4, 4), *before, bad, *after, nn.Linear(4, 2))
    error = fault(model, torch.randn(3, 4))
    place = len(before) + 1
    assert names(error) == ("layer", str(place), "backward" if backward else "forward")
    path = hl.execution_order(model, torch.randn(3, 4))
    at = path.index(str(place))
    assert set(error.carriers) == set(path[:at] if backward else path[at + 1:])


# where there are no numbers

def test_a_run_on_meta_is_reported_once():
    with torch.device("meta"): model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.ones(3, 4)
    with warnings.catch_warnings(record=True) as said, find_nan(model):
        warnings.simplefilter("always")
        for _ in range(2): model(x).sum().backward()
    assert [str(w.message) for w in said] == ["find_nan: left out, because torch cannot look at them: "
                                              "Tensor (float32, meta; a shape without numbers)"]


def test_weights_that_wait_on_meta_are_not_reported(x):
    class Fetches(nn.Linear):
        def forward(self, x): return nn.functional.linear(x, torch.ones(self.weight.shape))
    # the tests of this file turn warnings into errors
    with find_nan(model := nn.Sequential(Fetches(4, 4, device="meta"), nn.ReLU())): model(x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda watch: pickle.loads(pickle.dumps(watch))])
def test_the_copy_of_a_watch_watches_nothing(copied):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    with find_nan(model) as watch:
        hooks = copied(watch).hooks
        model(torch.ones(2, 3))
        assert hooks and all(h.removed for h in hooks) and not any(h.removed for h in watch.hooks)


def test_a_watch_that_cannot_be_attached_says_why_and_leaves_nothing(monkeypatch):
    def fails_at_the_second(hook, *args):
        if hook.name == "0": raise RuntimeError("no hooks here")
        return put_ports(hook, *args)
    put_ports = hl.hooks.layer_hook.put_ports
    monkeypatch.setattr("hooklab.hooks.layer_hook.put_ports", fails_at_the_second)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    with pytest.raises(RuntimeError, match="no hooks here"): find_nan(model)
    assert not hl.hooks_on(model)


# the call inside the layer

CALLS = {
    "log of zero": (lambda x: (x*0).log()*2, "log#0", "`log` of 0 at [0, 0]"),
    "zero by zero": (lambda x: (x*0)/(x*0), "div#0", "`div`: 0 / 0 at [0, 0]"),
    "one by zero": (lambda x: (1/(x*0)).tanh(), "", ""),
    "then inf minus inf": (lambda x: (y := (x*0 + 1)/0) - y, "div#0", "`div`: 1 / 0 at [0, 0]"),
    "below zero": (lambda x: (x*0 - 4).sqrt() + 1, "sqrt#0", "`sqrt` of -4 at [0, 0]"),
    "power": (lambda x: (x*0 - 2)**.5 + 1, "pow#0", "`pow`: -2 ** 0.5 at [0, 0]"),
    "too large": (lambda x: (x*0 + 100).exp() + 1, "exp#0",
                  "`exp` of 100, too large for float32, which ends at 3.40282e+38"),
    "half": (lambda x: ((x*0 + 6e4).half() + (x*0 + 6e4).half()).float() + 1, "add#2",
             "`add`: 6e+04 + 6e+04, too large for float16, which ends at 65504 at [0, 0]"),
    "a row of masks": (lambda x: x.masked_fill(x > -1, -inf).softmax(1), "softmax#0",
                       "`softmax` of a row of nothing but -inf at [0, 0]"),
    "in place": (lambda x: x.mul(0).log_(), "log_#0", "`log_` of 0 at [0, 0]"),
    "of a part": (lambda x: _into_a_part(x.clone()), "div#0", "`div`: 1 / 0 at [0]"),
    "a sum": (lambda x: (x*0 + 3e38).sum(1, keepdim=True) + x, "sum#0", "`sum`, too large for float32"),
    "a deviation": (lambda x: x + x[:1].std(0), "std#0", "`std` of one number at [0]"),
    "harmless before": (lambda x: torch.where((x*0).log() < 0, x, x)*0 + (x*0 - 1).sqrt(), "sqrt#0",
                        "`sqrt` of -1 at [0, 0]"),
}


def _into_a_part(x):
    x[1] = torch.ones(4)/0
    return x*1


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.filterwarnings("ignore:std\\(\\)")
def test_the_call_inside_the_layer_is_named(what, x):
    f, call, said = CALLS[what]
    if not call: return quiet(net(Do(f)), x, inf=False, gradients=False)
    error = fault(net(Do(f)), x)
    assert names(error) == ("layer", "2", "forward") and error.call == f"2/{call}"
    assert f"\n    in `2`: {said}" in str(error) and str(error).splitlines()[1].endswith(f", call 2/{call}")


def test_a_layer_of_one_call_needs_no_name(x):
    error = fault(net(Do(torch.log)), x)
    assert error.call == "" and "in `2`" not in str(error)
    assert fault(net(Do(lambda x: x.log_())), x).call == ""


def test_a_call_between_layers_and_of_the_model_itself(x):
    assert fault(net(Then(nn.Linear(4, 4), lambda x: x/0*0, nn.Linear(4, 4))), x).call == "2/div#0"
    error = fault(Then(nn.Linear(4, 4), lambda x: (x*0).log()), x)
    assert error.call == "/log#0" and "in `(model)`: `log` of 0" in str(error)


def test_the_second_look_changes_nothing(x):
    seen = []
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(.5)
        def forward(self, x): return ((self.drop(self.norm(x))*0).log() + 1).tanh()*inf*0

    model = net(Block())
    twin, random = copy.deepcopy(model), torch.get_rng_state()
    twin(x)
    after = torch.get_rng_state()
    torch.set_rng_state(random)
    with find_nan(model, seen.append) as watch:
        model(x)
        assert watch.n_pass == 1 and torch.equal(torch.get_rng_state(), after)
        for _ in range(3): model(x)
        assert watch.n_pass == 4 and len(seen) == 1 and seen[0].call == "2/mul#1"
        assert not any(c.entrance for c in [watch.top]) and watch.forward.given == {}
    assert model[2].norm.num_batches_tracked == 4 and not hl.hooks_on(model)


def test_no_second_look_where_it_might_change_something(x):
    class Cache:
        n = 0

    class Cached(nn.Module):
        def forward(self, x, cache):
            cache.n += 1
            return (x*0).log() + 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Cached()
        def forward(self, x): return self.layer(x, self.cache)

    model = Model()
    model.cache = Cache()
    error = fault(model, x)
    assert model.cache.n == 1 and error.call == ""
    cache = Cache()
    with pytest.raises(NonFiniteError) as found, find_nan(layer := Cached()): layer(x, cache)
    assert cache.n == 1 and found.value.call == ""


def test_inputs_that_were_changed_since_are_not_used(x):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Do(lambda x: (x*0 - 1).sqrt() + 1)
        def forward(self, x):
            x = x*1
            out = self.inner(x)
            x.zero_()
            return out
    error = fault(net(Residual()), x)
    assert error.layer == "2.inner" and error.call == "2.inner/sqrt#0"


def test_a_backward_pass_after_the_watch_is_an_ordinary_one(x):
    model = net(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    with find_nan(model): out = model(x)
    out.sum().backward()
    watched = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(watched, model.parameters()))


class Reads(nn.Module):
    "A layer inside of which the input of the layer around it is read, though it is given something else."
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), Do(lambda h: h*self.seen), nn.Linear(4, 4))

    def forward(self, x):
        self.seen = x
        return self.inner(x.tanh())


class Hyper(nn.Module):
    "The weight of a layer is computed from its input."
    def __init__(self):
        super().__init__()
        self.make = nn.Linear(4, 4)

    def forward(self, x): return F.linear(x, self.make(x).t() @ x)


def spread(*middle): return nn.Sequential(nn.Linear(4, 4), *middle, nn.Linear(4, 4))


WAYS = {
    "alone": lambda: spread(nn.ReLU()), "in place": lambda: spread(nn.ReLU(inplace=True), nn.Tanh()),
    "nested": lambda: spread(nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.LayerNorm(4))),
    "twice": lambda: spread(Do(lambda x: x*x), nn.Sequential(Do(lambda x: x + x.exp()))),
    "as it is": lambda: spread(nn.Sequential(nn.Identity()), Do(lambda x: x)),
    "two outputs": lambda: spread(Do(lambda x: x.chunk(2, -1)), Do(lambda pair: torch.cat(pair, -1))),
    "view": lambda: spread(Do(lambda x: x.view(-1)), nn.Sequential(nn.Unflatten(0, (-1, 4)), nn.Flatten(0)),
                           Do(lambda x: x.view(-1, 4))),
    "window": lambda: spread(Then(Do(lambda x: x[:1]), lambda x: x.mul_(2)), Do(lambda x: x.expand(3, 4))),
    "from outside": Reads, "from its input": lambda: spread(nn.Sequential(Hyper())),
    "attention": lambda: spread(Do(lambda x: x[None]), nn.TransformerEncoderLayer(4, 2, 8, 0., batch_first=True),
                                nn.Flatten(0, 1)),
    "checkpoint": lambda: spread(Do(lambda x: checkpoint(torch.tanh, x, use_reentrant=False))),
    "shared": lambda: spread(*[nn.Sequential(nn.LayerNorm(4))]*2, nn.ReLU()),
    "not trained": lambda: spread(nn.Linear(4, 4)).requires_grad_(False),
}


@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_calls_get_the_gradients_that_a_search_through_the_whole_graph_finds(way, recorded, leaf, monkeypatch):
    "In one step, or in a step through a backward pass that is recorded."
    def gradients_of_calls():
        torch.manual_seed(0)
        model, found = WAYS[way](), []
        x = torch.randn(3, 4, requires_grad=leaf or way == "not trained")
        add = BackwardPass.add
        def noting(self, call, *gradients):
            copies = [[t.clone() for t in hl.tensors(g)] for g in gradients]
            found.append((call.hook.name, call.n_call, call.of is not None, copies))
            add(self, call, *gradients)
        with monkeypatch.context() as m, find_nan(model):
            m.setattr(BackwardPass, "add", noting)
            with sdpa_kernel(SDPBackend.MATH): out = model(x).pow(2).sum()  # the others have no second derivative
            into = [t for t in (x, *model.parameters()) if t.requires_grad]
            if recorded: out = total([g.pow(2) for g in torch.autograd.grad(out, into, create_graph=True)])
            out.backward()
        return found

    short = gradients_of_calls()
    monkeypatch.setattr(watch_room, "record_gradients", long_way)
    long = gradients_of_calls()
    assert short and [s[:3] for s in short] == [s[:3] for s in long]
    for (*_, a), (*_, b) in zip(short, long):
        assert all(len(s) == len(t) and all(map(torch.equal, s, t)) for s, t in zip(a, b))


def long_way(out, done, entrance, begins):
    entrance.walked = None
    if any(t.requires_grad for t in hl.tensors(out)): RecordedGradients(out, done, entrance, begins)
