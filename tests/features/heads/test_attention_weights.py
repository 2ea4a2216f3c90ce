"""Attention weights of one call: against torch's own kernels, and against softmax by hand."""
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from hooklab.features.heads import logits as room
from hooklab.features.heads.logits import chosen_positions
from hooklab.features.heads.numbers import head_numbers
from hooklab.features.heads.weights import attention_weights

pytestmark = pytest.mark.usefixtures("one_thread")
close = torch.testing.assert_close


def by_hand(q, k, mask=None, is_causal=False, scale=None, enable_gqa=False):
    "The weights, written down as torch's documentation has them, in float64."
    q, k = q.double(), k.double()
    if enable_gqa: k = k.repeat_interleave(q.size(-3)//k.size(-3), -3)
    logits = q @ k.transpose(-2, -1)*(1/math.sqrt(q.size(-1)) if scale is None else scale)
    if is_causal: mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
    if mask is not None: logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    return torch.softmax(logits, -1).masked_fill((logits == -math.inf).all(-1, keepdim=True), 0.)


def mixed(w, v, enable_gqa=False):
    if enable_gqa: v = v.repeat_interleave(w.size(-3)//v.size(-3), -3)
    return w @ v.to(w.dtype)


@st.composite
def calls(draw):
    "The arguments of a call of attention: q, k, v and the rest."
    seed = draw(st.integers(0, 2**20))
    g = torch.Generator().manual_seed(seed)
    def few(low=1, high=4): return draw(st.integers(low, high))
    lead = [few(1, 3) for _ in range(few(0, 2))]
    heads, groups, n, m, size = few(), few(1, 3), few(1, 9), few(1, 9), few()
    with_heads = draw(st.booleans()) or bool(lead)
    gqa = with_heads and draw(st.booleans())
    of_q = [*lead, heads*groups] if gqa else [*lead, heads] if with_heads else []
    of_k = [*lead, heads] if gqa else of_q
    shared = with_heads and not gqa and draw(st.booleans())  # one head of key and value for all
    if shared: of_k = [*lead, 1]
    q, k, v = (torch.randn(*shape, generator=g)*2 for shape in ([*of_q, n, size], [*of_k, m, size], [*of_k, m, 3]))
    kind = draw(st.sampled_from(["none", "causal", "bool", "numbers"]))
    options = dict(is_causal=kind == "causal", enable_gqa=gqa, scale=draw(st.sampled_from([None, 0.3, 1., -2.])))
    if kind in ("bool", "numbers"):
        full = [*of_q, n, m]
        shape = [draw(st.sampled_from([1, size])) for size in full[:-2]] + [draw(st.sampled_from([1, n])), m]
        shape = shape[draw(st.integers(0, len(shape) - 2)):]
        mask = torch.rand(shape, generator=g) < draw(st.sampled_from([0.3, 0.8, 1.]))
        if kind == "numbers": mask = torch.randn(shape, generator=g).masked_fill(~mask, -math.inf)
        options["attn_mask"] = mask
    return q, k, v, options


@given(calls())
@settings(max_examples=300)
def test_weights_are_those_of_torch_and_of_softmax_by_hand(call):
    q, k, v, options = call
    w = attention_weights(q, k, v, **options)
    expected = by_hand(q, k, options.get("attn_mask"), options["is_causal"], options["scale"], options["enable_gqa"])
    close(w.double(), expected, atol=1e-5, rtol=1e-5)
    sums = w.sum(-1)
    close(sums, (sums > 0.5).float())
    for kernels in ([SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        # With a negative scale, torch's flash kernel for CPUs gives NaN under a triangle.
        if len(kernels) > 1 and (options["scale"] or 0) < 0: continue
        with sdpa_kernel(kernels): out = F.scaled_dot_product_attention(q, k, v, **options)
        close(mixed(w, v, options["enable_gqa"]), out, atol=1e-5, rtol=1e-5)


@given(calls(), st.data())
@settings(max_examples=300)
def test_some_heads_and_queries_in_blocks_are_those_of_the_whole(call, data):
    q, k, v, options = call
    whole = attention_weights(q, k, v, **options)
    n = q.size(-2)
    some = [None, -1, 0, slice(None, None, 2), slice(None, None, -1), [n - 1, 0], torch.tensor([0, -1, 0])]
    queries, heads = data.draw(st.sampled_from(some)), None
    if whole.dim() > 2:
        some = [None, -1, slice(1, None), [0, -1, 0], torch.arange(whole.size(-3)) % 2 == 0]
        heads = data.draw(st.sampled_from(some))
    expected = whole if queries is None else whole[..., list(chosen_positions(queries, n, "queries")), :]
    if heads is not None: expected = expected[..., list(chosen_positions(heads, whole.size(-3), "heads")), :, :]
    per_query = expected.shape[:-2].numel()*expected.size(-1)
    with small_blocks(data.draw(st.integers(1, 4))*max(1, per_query)):
        w = attention_weights(q, k, v, **options, heads=heads, queries=queries)
    close(w, expected, atol=1e-6, rtol=1e-5)


@given(calls(), st.integers(1, 4))
@settings(max_examples=200)
def test_numbers_of_the_heads_are_those_of_the_weights(call, n):
    q, k, v, options = call
    w = attention_weights(q.double(), k.double(), **options)
    if w.dim() == 2: w = w[None]
    with small_blocks(n*w.shape[:-2].numel()*w.size(-1)): numbers = head_numbers(q, k, v, **options)
    w = w.flatten(0, -4) if w.dim() > 3 else w[None]
    seen = w.sum(-1) > 0.5
    def mean(x): return ((x*seen).sum((0, 2))/seen.sum((0, 2))).float()
    close(numbers.entropy, mean(torch.special.entr(w).sum(-1)), atol=1e-5, rtol=1e-5, equal_nan=True)
    close(numbers.first_share, mean(w[..., 0]), atol=1e-5, rtol=1e-5, equal_nan=True)
    n_heads = w.size(1)
    with_batch = q[(None,)*max(0, 4 - q.dim())]
    close(numbers.query_norm, with_batch.norm(dim=-1).flatten(0, -3).mean((0, 2)))
    assert all(x.shape == (n_heads,) for x in vars(numbers).values() if isinstance(x, torch.Tensor))
    assert not numbers.sampled
    assert all(torch.isnan(numbers.largest_logit) == (seen.sum((0, 2)) == 0))


class small_blocks:
    "Within it a block has so many logits."
    def __init__(self, n): self.n = n
    def __enter__(self): self.before, room.AT_ONCE["cpu"] = room.AT_ONCE["cpu"], self.n
    def __exit__(self, *_): room.AT_ONCE["cpu"] = self.before


def qkv(*shape, keys=None, **options):
    *lead, n, size = shape
    return torch.randn(*lead, n, size, **options), *(torch.randn(*lead, keys or n, size, **options) for _ in range(2))


@pytest.mark.parametrize("n, m", [(4, 4), (3, 7), (7, 3)])
@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
def test_masks_of_torchs_own_class(n, m, name):
    from torch.nn.attention import bias
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of rows that see nothing, which are zeros by now
        mask = getattr(bias, name)(n, m)
    q, k, v = qkv(2, 2, n, 4, keys=m)
    w, out = attention_weights(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask)
    close(w @ v, out)
    close(w, by_hand(q, k, mask._materialize()).float())
    close(attention_weights(q, k, v, mask, queries=[-1, 0], heads=1), w[:, 1:][:, :, [-1, 0]])
    with pytest.raises(ValueError, match="pass the original"): attention_weights(q, k, v, mask.detach())
    seen = mask._materialize()
    assert (w > 0).any(0).any(0).equal(seen)
    numbers = head_numbers(q, k, v, mask)
    rows = seen.any(-1)
    close(numbers.first_share, w[:, :, rows, 0].mean((0, 2)))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float64, 1e-12)])
def test_dtypes(dtype, tolerance):
    q, k, v = qkv(2, 3, 9, 16, dtype=dtype)
    w = attention_weights(q, k, v, is_causal=True)
    assert w.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    close(w.double(), by_hand(q, k, is_causal=True), atol=1e-6, rtol=1e-5)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    close((w @ v.to(w.dtype)).to(dtype), out, atol=tolerance, rtol=tolerance)


def test_autocast_rounds_as_torch_does():
    q, k, v = qkv(2, 3, 9, 16)
    with torch.autocast("cpu", torch.bfloat16):
        w = attention_weights(q, k, v)
        assert torch.is_autocast_enabled("cpu")
    close(w, attention_weights(q.bfloat16(), k.bfloat16(), v), atol=0, rtol=0)
    assert w.dtype == torch.float32


def test_a_row_that_sees_nothing_is_zero_and_has_no_gradient_of_nan():
    q, k, v = qkv(1, 2, 3, 4)
    q.requires_grad_()
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1] = False
    for given_mask in (mask, torch.zeros(3, 3).masked_fill(~mask, -math.inf)):
        w = attention_weights(q, k, v, given_mask, detach=False)
        assert w[:, :, 1].eq(0).all() and w.requires_grad
        grad, = torch.autograd.grad(w.square().sum(), q)
        assert grad.isfinite().all() and grad[:, :, 1].eq(0).all() and grad[:, :, 0].ne(0).any()
        assert not attention_weights(q, k, v, given_mask).requires_grad


def test_a_row_of_very_low_numbers_is_not_a_row_that_sees_nothing():
    q, k, v = qkv(1, 2, 3, 4)
    mask = torch.full((3, 3), torch.finfo(torch.float32).min)
    w = attention_weights(q, k, v, mask)
    close(w @ v, F.scaled_dot_product_attention(q, k, v, mask))
    close(w, torch.full_like(w, 1/3))


@pytest.mark.parametrize("options", [{}, dict(is_causal=True), dict(enable_gqa=True)])
def test_gradients_are_those_of_the_formula(options):
    q = torch.randn(2, 4, 5, 3, requires_grad=True)
    k = torch.randn(2, 2 if options.get("enable_gqa") else 4, 6, 3, requires_grad=True)
    target = torch.randn(2, 4, 5, 6)
    with small_blocks(24):
        ours = torch.autograd.grad((attention_weights(q, k, **options, detach=False)*target).sum(), (q, k))
    theirs = torch.autograd.grad((by_hand(q, k, **options)*target).sum(), (q, k))
    for a, b in zip(ours, theirs): close(a, b, atol=1e-5, rtol=1e-4)


def test_with_gradients_off_there_are_none():
    q, k, v = qkv(1, 1, 3, 4, requires_grad=True)
    with torch.no_grad(): assert not attention_weights(q, k, v, detach=False).requires_grad
    with torch.inference_mode(): close(attention_weights(q, k, v), attention_weights(q, k, v).clone())


def test_nested_tensors_give_the_weights_of_each_part():
    parts = [torch.randn(n, 2, 4) for n in (3, 5)]
    q = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    ws = attention_weights(q, q, q, is_causal=True)
    assert [tuple(w.shape) for w in ws] == [(2, 3, 3), (2, 5, 5)]
    for w, part in zip(ws, parts): close(w, by_hand(part.transpose(0, 1), part.transpose(0, 1), is_causal=True).float())
    with pytest.raises(TypeError, match="there can be no mask"): attention_weights(q, q, q, torch.ones(1))
    with pytest.raises(TypeError, match="nested"): head_numbers(q, q)


def test_what_cannot_be_meant_is_refused():
    q, k, v = qkv(2, 3, 4, 8)
    for error, message, options in [
        (IndexError, "asks for number 3, but there are 3 heads", dict(heads=[0, 3])),
        (IndexError, "asks for number -5, but there are 4 queries", dict(queries=-5)),
        (IndexError, "has 2 booleans, but there are 3 heads", dict(heads=[True, False])),
        (TypeError, "takes a number", dict(heads=torch.ones(2, 2).long())),
        (TypeError, "takes a number", dict(queries=1.5)),
        (ValueError, "not both", dict(is_causal=True, attn_mask=torch.ones(4, 4).bool())),
    ]:
        with pytest.raises(error, match=message): attention_weights(q, k, v, **options)
    with pytest.raises(ValueError, match="head dimension"): attention_weights(q[0, 0], k[0, 0], heads=0)
    with pytest.raises(ValueError, match="two dimensions"): attention_weights(q[0, 0, 0], k[0, 0])
    assert attention_weights(q, k, v, heads=[]).shape == (2, 0, 4, 4)
    assert attention_weights(q, k, v, queries=[]).shape == (2, 3, 0, 4)


@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (0, 3, 5, 4), (2, 0, 5, 4)])
def test_nothing_to_attend_to(shape):
    q, k, v = qkv(*shape)
    for is_causal in (False, True):
        assert attention_weights(q, k, v, is_causal=is_causal).shape == (*shape[:-1], shape[-2])
    nothing = attention_weights(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 0, 4), attn_mask=torch.ones(2, 0).bool())
    assert nothing.shape == (1, 1, 2, 0)
    numbers = head_numbers(q, k, v)
    assert len(numbers.entropy) == shape[1] and numbers.entropy.isnan().all()


class Sees(TorchFunctionMode):
    def __init__(self): self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **kwargs or {})


class Own(torch.Tensor):
    seen = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen += 1
        return super().__torch_function__(func, types, args, kwargs)


@pytest.mark.parametrize("f", [attention_weights, head_numbers])
def test_work_of_its_own_is_not_noticed(f):
    q, k, v = qkv(2, 3, 6, 8)
    mask = torch.rand(6, 6) < 0.5
    copies = [t.clone() for t in (q, k, v, mask)]
    state = torch.get_rng_state()
    with Sees() as mode:
        f(q, k, v, mask, heads=[0, 2], queries=slice(1, None))
        f(q, k, v, None, 0.5, True, 0.3)
    assert not [name for name in mode.seen if "get" not in getattr(name, "__name__", "")]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, copies, (q, k, v, mask)))
    f(q.as_subclass(Own), k.as_subclass(Own))


def test_a_long_context_needs_no_square():
    q, k = torch.randn(1, 2, 4096, 8), torch.randn(1, 2, 32768, 8)
    with Largest() as largest:
        w = attention_weights(q, k, is_causal=True, heads=1, queries=[5, 4095])
        assert w.shape == (1, 1, 2, 32768) and w[0, 0, 0, 6:].eq(0).all()
        head_numbers(q[:, :1], k, queries=slice(0, None, 16))
    assert largest.n <= room.AT_ONCE["cpu"]


class Largest(TorchDispatchMode):
    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        if isinstance(out, torch.Tensor) and "expand" not in str(func): self.n = max(self.n, out.numel())
        return out


def test_a_sample_says_that_it_is_one():
    q, k, v = qkv(4, 3, 256, 8)
    exact, sampled = head_numbers(q, k, v, is_causal=True), head_numbers(q, k, v, is_causal=True, sample=32)
    assert sampled.sampled and not exact.sampled and (sampled.queries, sampled.of_queries) == (32, 256)
    assert "a sample of 32 of 256 queries" in repr(sampled) and "all 256 queries" in repr(exact)
    close(sampled.entropy, exact.entropy, atol=0.1, rtol=0)
    assert (sampled.largest_logit <= exact.largest_logit + 1e-6).all()
    close(vars(sampled)["key_norm"], exact.key_norm)
    same = head_numbers(q, k, v, is_causal=True, queries=chosen_positions(slice(3, None, 8), 256, "queries"))
    close(same.entropy, sampled.entropy)
    assert not head_numbers(q, k, v, sample=256).sampled and not head_numbers(q, k, v, sample=1000).sampled
    assert head_numbers(q, k, v, sample=1).queries == 1
    assert head_numbers(q, k, v, queries=[1, 2], sample=100).queries == 2


@pytest.mark.parametrize("masked", [False, True])
def test_compiled_in_one_graph(masked):
    q, k, v = qkv(2, 3, 6, 8)
    mask = torch.rand(6, 6) < 0.5 if masked else None
    def seen(q, k, v):
        numbers = head_numbers(q, k, v, mask, is_causal=not masked, sample=3)
        w = attention_weights(q, k, v, mask, is_causal=not masked, heads=[0], queries=slice(1, None))
        return w, numbers.entropy, numbers.largest_logit
    for ours, compiled in zip(seen(q, k, v), torch.compile(seen, backend="aot_eager", fullgraph=True)(q, k, v)):
        close(ours, compiled, equal_nan=True)
