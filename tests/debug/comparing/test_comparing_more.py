"""`hl.compare` on what whole models do: generate, keep caches, draw random numbers, change parameters, mind dtypes."""
import contextlib
import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hooklab as hl
from hooklab.debug.comparing.comparing import compare
from support.faults import at_fault, percent, seeded


def only(name):
    "The layers at fault where the layer `name` was changed, or none."
    return [] if name is None else [name]


class Two(nn.Module):
    "Two layers, and between them what a function does."
    def __init__(self, work=None, d=8):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)
        self.work = work

    def forward(self, x): return self.b(self.work(self.a(x)))


def pair(work, other=None, d=8):
    a = seeded(Two, work, d)
    b = copy.deepcopy(a)
    if other is not None: b.work = other
    return a, b, torch.randn(5, d)


def check(work, other=None, d=8):
    "Equal is equal, and a fault in either layer is found."
    a, b, x = pair(work, other, d)
    c = compare(a, b, x)
    assert c.same, c
    for name in "ab":
        c = compare(a, percent(copy.deepcopy(b), name), x)
        assert at_fault(c) == [name], c


# What code may do with a tensor

def only_float(x):
    assert x.dtype == torch.float32, "written for float32 only"
    return x.tanh()


def through_numpy(x): return torch.from_numpy(x.detach().numpy().copy()).tanh()


def in_place_of_data(x, by=2):
    x.data.mul_(by)
    return x


def without_last_bits(x, mask): return (x.view(torch.int32) & ~mask).view(torch.float32)


def turned(x):
    "Pairs of numbers as complex ones, each turned by an angle of its own."
    angles = torch.polar(torch.ones(4), torch.arange(4.))
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (4, 2)))*angles).flatten(-2)


def twice_least(x):
    "Two masks of the least number that there is, one upon the other."
    least = torch.finfo(x.dtype).min
    return (x.masked_fill(x < 0, least) + torch.zeros_like(x).masked_fill(x < 0, least)).clamp(min=-9)


WORKS = {
    "only float32": only_float,
    "numpy": through_numpy,
    "numpy float32": lambda x: torch.from_numpy(x.detach().numpy().astype("float32")).tanh(),
    "data": in_place_of_data,
    "float": lambda x: x.float().tanh(),
    "type": lambda x: x.type(torch.FloatTensor).tanh(),
    "type as": lambda x: x.bfloat16().type_as(x),
    "to a dtype": lambda x: x.to(torch.float32).mul(2),
    "a tensor of numbers": lambda x: x*torch.tensor([1., 2., 3., 4., 5., 6., 7., 8.]),
    "item": lambda x: x/x.abs().max().item(),
    "list": lambda x: torch.tensor(x.tolist()),
    "bits": lambda x: without_last_bits(x, 0xfff),
    "out": lambda x: torch.mul(x, 2, out=torch.empty_like(x)),
    "new": lambda x: x.new_zeros(5, 8).copy_(x),
    "empty": lambda x: torch.empty(5, 8).copy_(x),
    "index put": lambda x: torch.zeros(5, 8).index_put_((torch.arange(5),), x),
    "scatter": lambda x: torch.zeros(5, 8).scatter_(1, torch.arange(8).flip(0).expand(5, 8), x),
    "least": lambda x: x.masked_fill(x < 0, torch.finfo(x.dtype).min).softmax(-1),
    "twice least": twice_least,
    "tiny": lambda x: x/(x.abs() + torch.finfo(torch.float32).tiny),
    "linalg": lambda x: x@torch.linalg.inv(x.T@x + torch.eye(8)),
    "svd": lambda x: torch.linalg.svdvals(x)[:, None]*x,
    "fft": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=8),
    "vmap": lambda x: torch.vmap(lambda row: row.tanh()*2)(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1],
    "grad": lambda x: torch.func.vmap(torch.func.grad(lambda row: row.pow(3).sum()))(x),
    "compiled": torch.compile(lambda x: x.tanh()*2, backend="eager"),
    "autocast": lambda x: autocast(x),
    "double inside": lambda x: x.double().exp().float(),
    "sign": lambda x: torch.copysign(x.sqrt().nan_to_num(), x),
    "histogram": lambda x: x + torch.histc(x, 4).sum(),
    "bucket": lambda x: x + torch.bucketize(x, torch.linspace(-1, 1, 5)),
    "one hot": lambda x: F.one_hot(x.argmax(-1), 8).float()*x,
    "straight through": lambda x: x + (x.round() - x).detach(),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=False),
    "noise": lambda x: x + torch.randn_like(x),
    "noise in place": lambda x: x + torch.empty_like(x).uniform_(),
    "noise of its own": lambda x: x + torch.randn(x.shape, generator=torch.Generator().manual_seed(3)),
    "bernoulli": lambda x: x*torch.bernoulli(torch.full_like(x, .5)),
    "dropout": lambda x: F.dropout(x, .5),
    "permuted": lambda x: x[torch.randperm(5)],
    "chosen": lambda x: x[torch.multinomial(torch.ones(5), 5)],
    "normal": lambda x: torch.normal(x, 1.),
    "distribution": lambda x: torch.distributions.Normal(x, 1.).sample(),
    "several": lambda x: sum(torch.split(x, 3, -1)[0].mean() for _ in range(2)) + x,
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=False),
    "nested": lambda x: torch.nested.as_nested_tensor([x[:2], x[2:]], layout=torch.jagged).values()*2,
    "sparse": lambda x: torch.eye(5).to_sparse()@x,
    "coalesced": lambda x: x.relu().to_sparse().to_dense() + x,
    "complex": turned,
    "quantized": lambda x: torch.fake_quantize_per_tensor_affine(x, .01, 0, -128, 127)*1.,
}


def autocast(x):
    with torch.autocast("cpu", torch.bfloat16): return (x@torch.ones(8, 8)).float()


@pytest.mark.parametrize("kind", list(WORKS))
@pytest.mark.filterwarnings("ignore")
def test_what_code_does(kind):
    check(WORKS[kind])


def other_and_only_float(x):
    only_float(x)
    return x.sigmoid()


OTHERS = {
    "data": lambda x: in_place_of_data(x, 3),
    "numpy": lambda x: torch.from_numpy(x.detach().numpy()*1.1).tanh(),
    "item": lambda x: x/x.abs().mean().item(),
    "only float32": other_and_only_float,
    "complex": lambda x: x.flip(-1),
    "noise": lambda x: x + 2*torch.randn_like(x),
    "dropout": lambda x: F.dropout(x, .4),
    "bits": lambda x: without_last_bits(x, 0xfffff),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", list(OTHERS))
def test_other_code(kind):
    a, b, x = pair(WORKS[kind], OTHERS[kind])
    c = compare(a, b, x)
    assert at_fault(c) == [""], c


def test_written_for_float32_and_restructured():
    "No run in float64: judged by what can be seen."

    class Parts(nn.Module):
        def __init__(self, a):
            super().__init__()
            self.first, self.second = a.a, a.b

        def forward(self, x): return self.second(1*only_float(self.first(x)))

    a, b, x = pair(only_float, lambda x: only_float(x.flip(-1)).flip(-1))
    c = compare(a, b, x)
    assert c.same, c
    c = compare(a, Parts(percent(b, "b")), x)
    assert at_fault(c) == ["b"], c


# State

def test_embedding_with_a_greatest_norm():
    "torch's own layer changes its weight in its forward."
    a = seeded(lambda: nn.Sequential(nn.Embedding(10, 4, max_norm=1.), nn.Linear(4, 2)))
    b, ids = percent(copy.deepcopy(a), "1"), torch.tensor([1, 2])
    before = a[0].weight.detach().clone()
    c = compare(a, b, ids)
    assert at_fault(c) == ["1"], c
    assert torch.equal(a[0].weight, before) and torch.equal(b[0].weight, before)


def test_parameters_that_forward_changes():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.mean = nn.Linear(4, 4), nn.Parameter(torch.zeros(4), requires_grad=False)

        def forward(self, x):
            y = self.lin(x)
            with torch.no_grad(): self.mean.lerp_(y.mean(0), .1)
            return y - self.mean

    a, x = seeded(Average), torch.randn(5, 4)
    b = copy.deepcopy(a)
    c = compare(a, b, x)
    assert c.same, c
    assert not a.mean.any() and not b.mean.any()
    b = percent(b, "lin")
    c = compare(a, b, x)
    assert at_fault(c) == ["lin"], c
    assert not a.mean.any() and not b.mean.any()


def test_buffers_that_forward_replaces():
    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.register_buffer("queue", torch.zeros(0, 4))

        def forward(self, x):
            y = self.lin(x)
            self.queue = torch.cat([self.queue, y])
            return y + self.queue.sum(0)

    a, x = seeded(Queue), torch.randn(5, 4)
    b = copy.deepcopy(a)
    assert compare(a, b, x).same
    c = compare(a, percent(b, "lin"), x)
    assert at_fault(c) == ["lin"], c
    assert a.queue.shape == b.queue.shape == (0, 4) and a.queue.dtype == torch.float32


def test_a_buffer_that_forward_registers():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x):
            if not hasattr(self, "table"): self.register_buffer("table", torch.arange(4.))
            return self.lin(x) + self.table

    a, x = seeded(Late), torch.randn(5, 4)
    b = percent(copy.deepcopy(a), "lin")
    assert at_fault(compare(a, b, x)) == ["lin"]
    a(x)
    b(x)
    assert a.table.dtype == b.table.dtype == torch.float32
    assert set(a.state_dict()) <= {"lin.weight", "lin.bias", "table"}


def test_tensors_that_are_plain_attributes():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.table = nn.Linear(4, 4), [torch.randn(4), {"x": torch.randn(4, 4)}]

        def forward(self, x): return self.lin(x + self.table[0])@self.table[1]["x"]

    a, x = seeded(Plain), torch.randn(5, 4)
    b = copy.deepcopy(a)
    assert compare(a, b, x).same
    b.table[0][1] += .1
    assert at_fault(compare(a, b, x)) == [""]
    assert a.table[0].dtype == b.table[1]["x"].dtype == torch.float32


def test_inputs_that_cannot_be_copied():
    class WithLock(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x, lock):
            with lock: return self.lin(x.mul_(2))

    a, x = seeded(WithLock), torch.randn(5, 4)
    before = x.clone()
    c = compare(a, copy.deepcopy(a), x, threading.Lock())
    assert torch.equal(x, before)
    assert c.same, c
    assert at_fault(compare(a, percent(copy.deepcopy(a), "lin"), x, threading.Lock())) == ["lin"]


def test_models_that_share_layers():
    class Doubled(nn.Module):
        def __init__(self, m):
            super().__init__()
            self.m = m

        def forward(self, x): return self.m.b(torch.tanh(self.m.a(x))*self.by)

    a = seeded(Two, torch.tanh)
    b, x = Doubled(a), torch.randn(3, 8)
    b.by = 1
    assert compare(a, b, x).same
    b.by = 1.1
    c = compare(a, b, x)
    assert at_fault(c) == [""], c


def test_a_part_against_the_whole():
    a = seeded(lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))))
    c = compare(a, a[0], torch.randn(3, 4))
    assert c.same, c
    c = compare(a[0], percent(copy.deepcopy(a), "0.2"), torch.randn(3, 4))
    assert at_fault(c) == ["2"], c


# Random

def test_random_numbers_that_nobody_can_reset():
    "Two runs of the same model differ; that is said."

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.chance = nn.Linear(4, 4), [torch.Generator().manual_seed(0)]

        def forward(self, x): return self.lin(x + torch.randn(x.shape, generator=self.chance[0]))

    a, x = seeded(Own), torch.randn(5, 4)
    b = Own().eval()
    b.load_state_dict(a.state_dict())
    c = compare(a, b, x)
    assert c.same, c


@pytest.mark.parametrize("fault", [None, "3"])
def test_dropout_and_stochastic_depth_in_train_mode(fault):
    from torchvision.ops import StochasticDepth
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(8, 8), nn.Dropout(.3), StochasticDepth(.5, "row"),
                      nn.Linear(8, 8), nn.AlphaDropout(.2), nn.RReLU(), nn.Linear(8, 8))
    b, x = copy.deepcopy(a), torch.randn(6, 8)
    if fault: percent(b, fault)
    c = compare(a, b, x)
    assert at_fault(c) == only(fault), c


def test_dropout_left_on_in_a_restructured_model():
    a = seeded(lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(.3), nn.Linear(8, 8)))
    b = nn.Sequential(copy.deepcopy(a)).eval()
    x = torch.randn(6, 8)
    assert compare(a, b, x).same
    b[0][1].train()
    c = compare(a, b, x)
    assert at_fault(c) == ["1"] and "mode" in c.first.what, c


# Several wrong things, one inside another

def test_a_container_and_a_layer_in_it():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x): return x + self.b(self.a(x).relu())

    a, x = seeded(lambda: nn.Sequential(nn.Linear(8, 8), Inner(), nn.Linear(8, 8))), torch.randn(4, 8)
    for name in ("1.a", "1.b"):
        b = percent(copy.deepcopy(a), name)
        b[1].__class__ = type("Inner", (Inner,), {"forward": lambda self, x: .9*x + self.b(self.a(x).relu())})
        c = compare(a, b, x)
        assert set(at_fault(c)) == {"1", name}, c


def test_faults_that_cancel():
    "Each layer differs, and what follows does not: only noise comes out, and another fault is found all the same."
    a = seeded(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)))
    x = torch.randn(4, 8)
    b = copy.deepcopy(a)
    with torch.no_grad():
        b[0].weight *= 4
        b[0].bias *= 4
        b[2].weight /= 4
    assert compare(a, b, x).same
    c = compare(a, percent(copy.deepcopy(b), "4"), x)
    assert at_fault(c) == ["4"], c


def test_the_same_layers_in_another_order():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x): return self.c(self.a(x) + self.b(x))

    class Other(Branches):
        def forward(self, x):
            b = self.b(x)
            return self.c(self.a(x) + b)

    a, x = seeded(Branches), torch.randn(4, 8)
    b = copy.deepcopy(a)
    b.__class__ = Other
    c = compare(a, b, x)
    assert c.same and not any(row.kind.startswith("only") for row in c.rows), c
    for name in "abc":
        c = compare(a, percent(copy.deepcopy(b), name), x)
        assert at_fault(c) == [name], c
    with torch.no_grad():  # two layers have changed places, which a sum does not mind
        b.a.load_state_dict(a.b.state_dict())
        b.b.load_state_dict(a.a.state_dict())
    c = compare(a, b, x)
    assert c.same, c


# Whole models, in the ways they are used

def hf(config, model, **options):
    "A model of Hugging Face with random weights, large enough that each layer matters."
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, config)(**options)
    model = getattr(transformers, model)(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1: p.copy_(torch.randn_like(p)/p.shape[-1]**.5)
    return model


def llama(**options):
    return hf("LlamaConfig", "LlamaForCausalLM", vocab_size=60, hidden_size=32, intermediate_size=48,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
              pad_token_id=0, **options)


def bart():
    return hf("BartConfig", "BartForConditionalGeneration", vocab_size=50, d_model=32, max_position_embeddings=32,
              encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=48,
              decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=48,
              pad_token_id=1, decoder_start_token_id=2)


IDS = torch.tensor([[5, 6, 7, 8, 9], [3, 4, 5, 6, 0]])


@pytest.mark.peers
@pytest.mark.parametrize("name", [None, "model.layers.0.self_attn.v_proj", "model.layers.1.mlp.up_proj", "lm_head"])
def test_llama_with_a_cache(name):
    a = llama()
    b = copy.deepcopy(a)
    if name: percent(b, name)
    c = compare(a, b, input_ids=IDS, attention_mask=(IDS != 0).long(), use_cache=True)
    assert at_fault(c) == only(name), c


@pytest.mark.peers
@pytest.mark.parametrize("name", [None, "model.layers.0.self_attn.v_proj", "model.layers.1.mlp.up_proj", "lm_head"])
def test_llama_generates(name):
    a = llama()
    b = copy.deepcopy(a)
    if name: percent(b, name)
    c = compare(a, b, call=lambda m: m.generate(IDS[:1], max_new_tokens=4, do_sample=False))
    assert at_fault(c) == only(name), c


@pytest.mark.peers
def test_llama_goes_on_from_a_cache():
    a = llama()
    with torch.no_grad(): cache = a(IDS, use_cache=True).past_key_values
    before = cache.get_seq_length()
    for name in (None, "model.layers.1.self_attn.k_proj"):
        b = percent(copy.deepcopy(a), name) if name else copy.deepcopy(a)
        c = compare(a, b, input_ids=IDS[:, :2], past_key_values=cache, use_cache=True)
        assert at_fault(c) == only(name), c
        assert cache.get_seq_length() == before and cache.layers[0].keys.dtype == torch.float32


@pytest.mark.peers
@pytest.mark.parametrize("name", [None, "model.layers.1.mlp.down_proj", "model.norm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_llama_eager_and_sdpa(name, dtype):
    a = llama(attn_implementation="eager")
    b = llama(attn_implementation="sdpa")
    b.load_state_dict(a.state_dict())
    if name: percent(b, name, .1)
    c = compare(a, b.to(dtype), input_ids=IDS, attention_mask=(IDS != 0).long())
    assert at_fault(c) == only(name), c


@pytest.mark.peers
@pytest.mark.parametrize("options", [
    {"output_hidden_states": True}, {"output_attentions": True}, {"return_dict": False}, {"labels": IDS}])
def test_llama_with_other_outputs(options):
    a = llama(attn_implementation="eager")
    assert compare(a, copy.deepcopy(a), input_ids=IDS, **options).same
    c = compare(a, percent(copy.deepcopy(a), "model.layers.1.mlp.gate_proj"), input_ids=IDS, **options)
    assert at_fault(c) == ["model.layers.1.mlp.gate_proj"], c


@pytest.mark.peers
@pytest.mark.parametrize("name", [
    None, "model.encoder.layers.1.fc1", "model.decoder.layers.0.encoder_attn.k_proj", "model.decoder.layers.1.fc2"])
@pytest.mark.parametrize("way", ["call", "generate"])
def test_bart(name, way):
    a = bart()
    b = copy.deepcopy(a)
    if name: percent(b, name)
    if way == "call": c = compare(a, b, input_ids=IDS, decoder_input_ids=IDS[:, :3], attention_mask=(IDS != 0).long())
    else: c = compare(a, b, call=lambda m: m.generate(IDS, max_new_tokens=4, num_beams=2, do_sample=False))
    assert at_fault(c) == only(name), c


@pytest.mark.parametrize("name", [None, "layers.1.linear1", "layers.0.norm2"])
@pytest.mark.filterwarnings("ignore")
def test_encoder_of_torch_with_padding(name):
    a = seeded(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2))
    x, padding = torch.randn(2, 6, 16), torch.tensor([[0]*6, [0]*3 + [1]*3]).bool()
    b = copy.deepcopy(a)
    if name: percent(b, name)
    c = compare(a, b, x, src_key_padding_mask=padding)
    assert at_fault(c) == only(name), c


def test_attention_of_torch_against_one_by_hand():
    class Hand(nn.Module):
        def __init__(self, m):
            super().__init__()
            self.heads = m.num_heads
            self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
            with torch.no_grad():
                for part, w, b in zip((self.q, self.k, self.v), m.in_proj_weight.chunk(3), m.in_proj_bias.chunk(3)):
                    part.weight.copy_(w)
                    part.bias.copy_(b)
                self.o.weight.copy_(m.out_proj.weight)
                self.o.bias.copy_(m.out_proj.bias)

        def forward(self, x, y, z, need_weights=False):
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(x), self.k(y), self.v(z)))
            return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)), None

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 16)
            self.attn = nn.MultiheadAttention(16, 4, batch_first=True)
            self.b = nn.Linear(16, 3)

        def forward(self, x):
            x = self.a(x)
            return self.b(self.attn(x, x, x, need_weights=self.weights)[0])

    a, x = seeded(Net), torch.randn(2, 5, 16)
    for a.weights in (False, True):
        b = copy.deepcopy(a)
        b.attn = Hand(b.attn)
        c = compare(a, b, x)
        assert c.same, c
        assert at_fault(compare(a, percent(copy.deepcopy(b), "b"), x)) == ["b"]
        percent(b.attn, "v", .3)
        c = compare(a, b, x)
        assert at_fault(c) == ["attn"], c


def googlenet(models):
    model = models.googlenet(num_classes=5, aux_logits=True, init_weights=False).train()
    return model, torch.randn(2, 3, 64, 64), "inception4b.branch1.conv"


def segmentation(models):
    make = models.segmentation.lraspp_mobilenet_v3_large
    model = make(weights=None, weights_backbone=None, num_classes=4).eval()
    return model, torch.randn(1, 3, 64, 64), "classifier.cbr.0"


def detection(models):
    make = models.detection.ssdlite320_mobilenet_v3_large
    model = make(weights=None, weights_backbone=None, num_classes=4).eval()
    return model, [torch.rand(3, 320, 320)], "head.regression_head.module_list.2.1"


def video(models):
    model = models.video.r3d_18(num_classes=4).eval()
    return model, torch.randn(1, 3, 4, 32, 32), "layer3.0.conv1.0"


@pytest.mark.parametrize("make", [
    segmentation, *(pytest.param(make, marks=pytest.mark.slow) for make in (googlenet, detection, video))])
@pytest.mark.filterwarnings("ignore")
def test_torchvision(make):
    import torchvision
    torch.manual_seed(0)
    a, x, name = make(torchvision.models)
    b = copy.deepcopy(a)
    assert compare(a, b, x).same
    percent(b, name, .1)
    c = compare(a, b, x)
    assert at_fault(c) == [name], c


@pytest.mark.parametrize("fault", [None, "out", "rnn"])
def test_lstm_by_hand(fault):
    "Both directions, written as loops."

    class Ours(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 6)
            self.rnn = nn.LSTM(6, 8, batch_first=True, bidirectional=True)
            self.out = nn.Linear(16, 4)

        def forward(self, ids): return self.out(self.rnn(self.embed(ids))[0])

    class Loop(nn.Module):
        def __init__(self, m):
            super().__init__()
            self.embed, self.out = m.embed, m.out
            self.cells = nn.ModuleList(nn.LSTMCell(6, 8) for _ in range(2))
            for cell, end in zip(self.cells, ("_l0", "_l0_reverse")):
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    getattr(cell, name).data.copy_(getattr(m.rnn, name + end))

        def forward(self, ids):
            x, found = self.embed(ids), []
            for cell, order in zip(self.cells, (range(ids.shape[1]), range(ids.shape[1] - 1, -1, -1))):
                state, seen = None, {}
                for t in order:
                    state = cell(x[:, t], state)
                    seen[t] = state[0]
                found.append(torch.stack([seen[t] for t in range(ids.shape[1])], 1))
            return self.out(torch.cat(found, -1))

    a, ids = seeded(Ours), torch.randint(0, 20, (3, 6))
    b = Loop(copy.deepcopy(a)).eval()
    if fault == "out": percent(b, "out")
    if fault == "rnn": b.cells[1].weight_hh.data.mul_(1.1)
    c = compare(a, b, ids)
    assert at_fault(c) in {None: [[]], "out": [["out"]], "rnn": [["rnn"], [""]]}[fault], c


@pytest.mark.parametrize("fault", [None, "b"])
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_compiled_and_faulty(fault, backend):
    a, b, x = pair(torch.tanh)
    if fault: percent(b, fault)
    b = torch.compile(b, backend=backend)
    c = compare(a, b, x)
    assert at_fault(c) == only(fault), c


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [None, "3", "0"])
def test_autocast_inside(name, dtype):
    class Auto(nn.Sequential):
        def forward(self, x):
            with torch.autocast("cpu", dtype): return super().forward(x).float()

    a = seeded(lambda: nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.Softmax(-1)))
    x = torch.randn(8, 16)
    b = Auto(*copy.deepcopy(a)).eval()
    if name: percent(b, name, .1)
    c = compare(a, b, x)
    assert at_fault(c) == only(name), c


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fewer_bits_in_one_layer_only(dtype):
    "The head in float32, and the rest in fewer bits."

    class Mixed(nn.Sequential):
        def forward(self, x): return self[2](self[1](self[0](x.to(dtype))).float())
    a, x = seeded(lambda: nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))), torch.randn(8, 16)
    b = Mixed(*copy.deepcopy(a)).eval()
    b[0].to(dtype)
    c = compare(a, b, x)
    assert c.same, c
    assert at_fault(compare(a, percent(copy.deepcopy(b), "2", 1e-3), x)) == ["2"]
    c = compare(a, percent(copy.deepcopy(b), "0", .1), x)
    assert at_fault(c) == ["0"], c


def test_weights_rounded_and_run_in_float32():
    "A checkpoint saved in bfloat16 and loaded into a float32 model: the weights differ, and that is a fault of each."
    a, x = seeded(lambda: nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))), torch.randn(8, 16)
    b = copy.deepcopy(a).bfloat16().float()
    c = compare(a, b, x)
    assert at_fault(c) == ["0", "2"] and "bfloat16" in c.first.what, c


@pytest.mark.parametrize("around", [contextlib.nullcontext, torch.inference_mode])
def test_large_activations(around):
    "Massive activations, as of large language models: one channel is a thousand times the others."
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 32))
    a.eval()
    with torch.no_grad(): a[0].weight[3] *= 3000
    x = torch.randn(8, 32)
    with around():
        assert compare(a, copy.deepcopy(a), x).same
        assert compare(a, copy.deepcopy(a).bfloat16(), call=lambda m: m(x.to(m[0].weight.dtype))).same
        b = copy.deepcopy(a)
        with torch.no_grad(): b[0].weight[5] *= 1.05  # a small channel
        c = compare(a, b, x)
        assert at_fault(c) == ["0"], c


# ---- things of two kinds

@pytest.fixture
def kinds(tmp_path):
    "A model, a recording of training, and a file of each kind."
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(5, 4)
    hl.record(model, tmp_path/"pass.safetensors", x)
    with hl.ActivationStats().on(model) as s:
        for _ in range(2):
            model(x)
            s.step()
    s.save(tmp_path/"training.safetensors")
    files = {name: tmp_path/f"{name}.safetensors" for name in ("pass", "training")}
    return {"model": model, "stats": s, **files}


@pytest.mark.parametrize("a, b, said", [
    ("pass", "training", "{pass} is a record of one pass, and {training} is a recorded training run"),
    ("training", "pass", "{training} is a recorded training run, and {pass} is a record of one pass"),
    ("pass", "stats", "{pass} is a record of one pass, and the candidate is a recorded training run"),
    ("model", "training", "the reference is a model, and {training} is a recorded training run"),
    ("stats", "model", "the reference is a recorded training run, and the candidate is a model")])
def test_two_kinds_are_named(kinds, a, b, said):
    with pytest.raises(TypeError) as refused: hl.compare(kinds[a], kinds[b])
    like = "compare takes two of the same kind, or a record of one pass and a model"
    assert str(refused.value) == f"{said.format_map(kinds)}: {like}"


def test_kinds_that_go_together(kinds):
    for a, b in (("pass", "pass"), ("pass", "model"), ("model", "pass"), ("model", "model"), ("training", "stats")):
        assert hl.compare(kinds[a], kinds[b], *([torch.randn(5, 4)] if a == b == "model" else [])).same
