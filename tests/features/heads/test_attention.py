"""attention: the weights of every call inside a model, which is left as it was."""
import copy
import warnings
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import _get_current_function_mode_stack

import hooklab as hl
from hooklab.hooks.undisturbed import no_fast_attention
from support import attending
from support.nets import Returns

pytestmark = pytest.mark.usefixtures("one_thread")
close = torch.testing.assert_close


class Attend(nn.Module):
    "Attention as people write it, with a mask that can be chosen."
    def __init__(self, width=16, heads=4, kv_heads=None, **options):
        super().__init__()
        self.heads, self.kv_heads, self.options = heads, kv_heads or heads, options
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2*width*self.kv_heads//heads)
        self.out = nn.Linear(width, width)

    def forward(self, x, **options):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (part.unflatten(-1, (self.kv_heads, -1)).transpose(1, 2) for part in self.kv(x).chunk(2, -1))
        gqa = dict(enable_gqa=True) if self.kv_heads < self.heads else {}
        out = F.scaled_dot_product_attention(q, k, v, **gqa, **self.options, **options)
        return self.out(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attn, self.mlp, self.drop = Attend(**options), nn.Sequential(nn.Linear(16, 16), nn.GELU()), nn.Dropout()

    def forward(self, x): return x + self.mlp(self.drop(x + self.attn(x)))


def gpt(**options): return nn.Sequential(*[Block(**options) for _ in range(3)])


@contextmanager
def ignored_warnings():
    "Layers that a model never calls are no matter here."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def checked(model, *args, causal=False, **kwargs):
    "The weights of a model, checked against the calls that it makes, and that nothing of the model has changed."
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    random, own = torch.get_rng_state(), str(hl.hooks_on(model))
    calls, plain = hl.hook_calls(model, F.scaled_dot_product_attention), hl.hook_outputs(model, names="*")
    with torch.no_grad(), torch.random.fork_rng([]), no_fast_attention(): model(*args, **kwargs)
    expected = {h.name: h.calls for h in plain}
    with ignored_warnings():
        calls.remove()
        plain.remove()
    during = hl.hook_outputs(model, names="*")
    weights = hl.attention(model, *args, **kwargs)
    seen = {h.name: h.calls for h in during}
    with ignored_warnings(): during.remove()
    assert all(map(torch.equal, hl.tensors(expected), hl.tensors(seen))) and list(expected) == list(seen)
    assert torch.equal(torch.get_rng_state(), random) and [m.training for m in model.modules()] == modes
    assert all(map(torch.equal, before.values(), model.state_dict().values()))
    assert str(hl.hooks_on(model)) == own and not _get_current_function_mode_stack()
    assert [name for name in weights if "scaled" in name] == list(calls.by_name)
    for name, w in weights.items():
        assert w.dim() == 4 and not w.requires_grad
        sums = w.sum(-1)
        close(sums, (sums > 0.5).float())
        if causal: assert w.triu(1).eq(0).all()
        if name in calls.by_name: check_output(w, calls[name])
    return weights


def check_output(w, call):
    "Weights times values are what the call returned."
    given = dict(zip(("query", "key", "value"), call.inputs)) | call.kwargs
    v = given["value"]
    if v.size(-3) < w.size(-3): v = v.repeat_interleave(w.size(-3)//v.size(-3), -3)
    close(w @ v.to(w.dtype), call.output.to(w.dtype), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, dict(is_causal=True), dict(kv_heads=2), dict(scale=0.3), dict(dropout_p=0.)])
@pytest.mark.parametrize("train", [False, True])
def test_written_by_hand(options, train):
    weights = checked(gpt(**options).train(train), torch.randn(2, 7, 16), causal="is_causal" in options)
    assert list(weights) == [f"{i}.attn/scaled_dot_product_attention#0" for i in range(3)]
    assert all(w.shape == (2, 4, 7, 7) for w in weights.values())


def test_dropout_is_left_out():
    model = Attend(dropout_p=0.9)
    w = hl.attention(model, x := torch.randn(2, 7, 16))[""]
    close(w.sum(-1), torch.ones(2, 4, 7))
    model.options.clear()
    close(w, hl.attention(model, x)[""])


@pytest.mark.parametrize("kernel", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_kernels(kernel):
    with sdpa_kernel([kernel]): checked(gpt(is_causal=True), torch.randn(2, 7, 16), causal=True)


def test_some_heads_queries_and_layers():
    model, x = gpt(is_causal=True), torch.randn(2, 7, 16)
    model.eval()
    whole = hl.attention(model, x)
    some = hl.attention(model, x, names=["0.attn", "2*"], heads=[0, -1], queries=slice(-2, None))
    assert [name.split(".")[0] for name in some] == ["0", "2"]
    for name, w in some.items(): close(w, whole[name][:, [0, 3], -2:])
    assert list(hl.attention(model, x, names=Attend)) == list(whole)
    assert hl.attention(model[0].attn, x, names="")[""].shape == (2, 4, 7, 7)


def test_a_layer_that_attends_twice_and_one_that_is_shared():
    attend = Attend()
    model, x = nn.Sequential(attend, nn.LayerNorm(16), attend), torch.randn(1, 5, 16)
    weights = checked(model, x)
    assert list(weights) == ["0/scaled_dot_product_attention#0", "0/scaled_dot_product_attention#1"]
    with pytest.raises(LookupError, match="'0' attended 2 times in this pass: 0/scaled"): weights["0"]
    close(weights["0/scaled_dot_product_attention#1"], hl.attention(attend, nn.Sequential(attend, model[1])(x))[""])


def test_what_comes_back_is_a_dict_that_knows_layers():
    weights = hl.attention(gpt(), torch.randn(2, 7, 16))
    assert isinstance(weights, dict) and weights["1.attn"] is weights["1.attn/scaled_dot_product_attention#0"]
    with pytest.raises(LookupError, match="no attention call 'attn' in this pass; there is 0.attn"): weights["attn"]
    assert repr(weights).splitlines()[1:] == [f"{name}  2×4×7×7" for name in weights]
    assert "nothing" not in repr(weights) and "0 calls" in repr(type(weights)())


def test_plot():
    plt = pytest.importorskip("matplotlib.pyplot")
    weights = hl.attention(gpt(), torch.randn(2, 3, 16))
    axes = weights.plot("1.attn", sample=1, tokens=["the", "cat", "sat"])
    assert len(axes) == 4 and [label.get_text() for label in axes[0].get_xticklabels()] == ["the", "cat", "sat"]
    close(torch.as_tensor(axes[2].images[0].get_array()), weights["1.attn"][1, 2])
    axes = hl.attention(gpt(), torch.randn(2, 3, 16), heads=[2]).plot("1.attn")
    assert len(axes) == 1 and axes[0].get_title() == "head 2"
    last = hl.attention(gpt(), torch.randn(2, 3, 16), heads=slice(2, 4), queries=-1)
    axes = last.plot("1.attn", tokens=["the", "cat", "sat"])
    assert [ax.get_title() for ax in axes] == ["1 of 2 requested", "2 of 2 requested"]
    assert axes[0].get_ylabel() == "requested queries" and len(axes[0].get_xticklabels()) == 3
    with pytest.raises(LookupError, match="no attention"): weights.plot("7")
    plt.close("all")


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{}, dict(batch_first=True), dict(kdim=8, vdim=8), dict(add_bias_kv=True),
                                     dict(add_zero_attn=True), dict(bias=False), dict(dropout=0.5)])
def test_multihead_attention(train, need_weights, options):
    layer, x = nn.MultiheadAttention(16, 4, **options).train(train), torch.randn(3, 3, 16)
    other = torch.randn(3, 3, 8) if "kdim" in options else x
    padding = torch.zeros(3, 3).bool()
    padding[1, 2] = True
    if "dropout" not in options:
        weights = checked(layer, x, other, other, need_weights=need_weights, key_padding_mask=padding)
    else: weights = hl.attention(layer, x, other, other, need_weights=need_weights, key_padding_mask=padding)
    expected = copy.deepcopy(layer).eval()(x, other, other, key_padding_mask=padding, average_attn_weights=False)[1]
    close(weights[""], expected, atol=1e-6, rtol=1e-5)
    assert list(weights) == ["/softmax#0" if need_weights else "/scaled_dot_product_attention#0"]
    options = dict(need_weights=need_weights, key_padding_mask=padding)
    some = hl.attention(layer, x, other, other, **options, heads=1, queries=[2, 0])
    close(some[""], expected[:, [1]][:, :, [2, 0]], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_that_may_see_nothing_has_zeros(need_weights):
    layer, x = nn.MultiheadAttention(16, 4, batch_first=True), torch.randn(2, 3, 16)
    padding = torch.tensor([[False]*3, [True]*3])
    w = hl.attention(layer, x, x, x, need_weights=need_weights, key_padding_mask=padding)[""]
    assert w[1].eq(0).all() and w[0].gt(0).all()


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_encoders_and_decoders_of_torch(train, grad):
    model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True, dropout=0.).train(train)
    x, mask = torch.randn(2, 5, 16), nn.Transformer.generate_square_subsequent_mask(5)
    padding = torch.zeros(2, 5).bool()
    padding[0, 4] = True
    with torch.set_grad_enabled(grad):
        weights = hl.attention(model, x, x, tgt_mask=mask, tgt_is_causal=True, src_key_padding_mask=padding)
    names = [name.partition("/")[0] for name in weights]
    assert names == [f"encoder.layers.{i}.self_attn" for i in range(2)] + [
        f"decoder.layers.{i}.{which}" for i in range(2) for which in ("self_attn", "multihead_attn")]
    assert weights["encoder.layers.1.self_attn"][0, ..., 4].eq(0).all()
    assert weights["decoder.layers.1.self_attn"].triu(1).eq(0).all()
    with hl.hook_outputs(model, names="*.norm1") as normed: model.train()(x, x, src_key_padding_mask=padding)
    assert normed and not len(hl.hooks_on(model))


def test_the_fast_path_is_off_for_this_pass_only():
    layer, x = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), torch.randn(2, 5, 16)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = hl.attention(layer, x)
    close(weights["self_attn"], layer.self_attn(x, x, x, average_attn_weights=False)[1])
    assert torch.backends.mha.get_fastpath_enabled()


def test_masks_of_torchs_own_class():
    from torch.nn.attention.bias import causal_lower_right
    model = Returns(lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=causal_lower_right(2, 5)))
    w = hl.attention(model, torch.randn(1, 2, 2, 4), torch.randn(1, 2, 5, 4))[""]
    assert (w > 0).all(0).all(0).tolist() == [[True]*4 + [False], [True]*5]


def test_all_arguments_by_name():
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    model = Returns(lambda: F.scaled_dot_product_attention(value=v, key=k, query=q, is_causal=True))
    close(hl.attention(model)[""], hl.attention_weights(q, k, is_causal=True))


def test_half_precision_and_autocast():
    model, x = gpt(is_causal=True).bfloat16().eval(), torch.randn(2, 7, 16)
    assert hl.attention(model, x.bfloat16())["0.attn"].dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16), hl.hook_calls(model, F.scaled_dot_product_attention) as calls:
        model(x)
        weights = hl.attention(model, x)
    call = calls["0.attn/scaled_dot_product_attention#0"]
    close(weights["0.attn"], hl.attention_weights(*call.inputs, **call.kwargs))


@pytest.mark.parametrize("part", [False, True])
def test_compiled_models(part):
    model, x = gpt(is_causal=True).eval(), torch.randn(2, 7, 16)
    expected = hl.attention(model, x)
    compiled = model if part else torch.compile(model, backend="eager")
    if part: model[1].compile(backend="eager")
    compiled(x)
    weights = hl.attention(compiled, x)
    assert list(weights) == list(expected) and all(map(torch.equal, weights.values(), expected.values()))


def test_checkpointing_and_a_model_that_needs_gradients():
    from torch.utils.checkpoint import checkpoint
    blocks, x = gpt(), torch.randn(2, 7, 16)
    blocks.eval()
    model = Returns(lambda x: checkpoint(blocks, x, use_reentrant=False))
    model.blocks = blocks
    assert [name.partition("/")[0] for name in hl.attention(model, x)] == [f"blocks.{i}.attn" for i in range(3)]
    def slope(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(blocks(x).sum(), x)[0]
    model.make = slope
    close(hl.attention(model, x)["blocks.0.attn"], hl.attention(blocks, x)["0.attn"])
    assert all(p.grad is None for p in blocks.parameters())


def test_attention_by_hand_is_an_error_that_says_where_softmax_was_called():
    def by_hand(q, k): return torch.softmax(q @ k.mT, -1) @ k
    q, k = torch.randn(2, 1, 2, 5, 4)
    model = Returns(by_hand)
    message = "Returns does not call scaled_dot_product_attention; softmax was called in the model itself.*hook_calls"
    with pytest.raises(LookupError, match=message): hl.attention(model, q, k)
    with hl.hook_calls(model, torch.softmax) as h: model(q, k)
    close(h[0].output.sum(-1), torch.ones(1, 2, 5))
    with pytest.raises(LookupError, match="in the model itself"): hl.attention(Returns(lambda x: x.softmax(-1)), q)
    with pytest.raises(LookupError, match="softmax was called in act"):
        wrapped = Returns(lambda x: wrapped.act(x))
        wrapped.act = nn.Softmax(-1)
        hl.attention(wrapped, q)


def test_no_attention_is_an_error_that_says_what_was_called():
    with pytest.raises(LookupError, match="no softmax either: it called linear, relu"):
        hl.attention(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(1, 3))


def test_layers_without_attention_are_an_error_that_names_those_with_it():
    model, x = gpt(), torch.randn(1, 5, 16)
    refusal = "no layer selected by names='0' calls attention; the layers that do are 0.attn, 1.attn, 2.attn"
    with pytest.raises(LookupError, match=refusal):
        hl.attention(model, x, names="0")
    with pytest.raises(LookupError, match="matches 'nothing'"): hl.attention(model, x, names="nothing")
    with pytest.raises(IndexError, match="there are 4 heads") as caught: hl.attention(model, x, heads=7)
    assert "0.attn/scaled_dot_product_attention#0, called with" in caught.value.__notes__[0]
    assert not len(hl.hooks_on(model)) and not _get_current_function_mode_stack()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"): hl.attention(model, torch.randn(1, 5, 3))
    assert not len(hl.hooks_on(model)) and not _get_current_function_mode_stack()
    with pytest.raises(TypeError, match="not a model|no model|function"): hl.attention(lambda x: x, x)


@pytest.mark.parametrize("compiled", [False, True])
def test_flex_attention(compiled):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    attend = torch.compile(flex_attention, backend="eager") if compiled else flex_attention
    slope = torch.rand(4)
    def nearer(score, b, h, q_idx, kv_idx): return score - slope[h]*(q_idx - kv_idx).abs()
    def window(b, h, q_idx, kv_idx): return (q_idx >= kv_idx) & (q_idx - kv_idx < 3) & (q_idx != 4)
    mask = create_block_mask(window, None, None, 7, 7, device="cpu")
    model = Returns(lambda q, k, v: attend(q, k, v, nearer, mask, enable_gqa=True))
    q, k, v = torch.randn(2, 4, 7, 8), *torch.randn(2, 2, 2, 7, 8)
    with torch.no_grad(), ignored_warnings():
        w = hl.attention(model, q, k, v)["/flex_attention#0"]
        some = hl.attention(model, q, k, v, heads=[3, 1], queries=[-1, 4])[""]
        close(w @ v.repeat_interleave(2, 1), model(q, k, v))
    assert w[:, :, 4].eq(0).all() and w.sum(-1)[:, :, 5].allclose(torch.ones(2, 4))
    close(some, w[:, [3, 1]][:, :, [6, 4]])


def test_an_attention_of_somebody_else_is_an_error_that_names_it():
    with torch.library._scoped_library("hooklab_test", "FRAGMENT"):
        @torch.library.custom_op("hooklab_test::fast_attention", mutates_args=())
        def fast_attention(q: torch.Tensor) -> torch.Tensor: return q.clone()
        with pytest.raises(LookupError, match="but fast_attention, whose weights"):
            hl.attention(Returns(torch.ops.hooklab_test.fast_attention), torch.randn(1, 2, 4, 8))


def check_architecture(name):
    pytest.importorskip("transformers")
    model, eager, inputs = attending.attending(name)
    weights = checked(model, **inputs)
    with torch.no_grad(): returned = eager(**inputs, output_attentions=True)
    pairs = attending.by_layer([call for call in weights if "scaled" in call], returned)
    assert len(pairs) == sum(len(returned.get(kind) or ()) for kind in returned if kind.endswith("attentions")) > 0
    for call, expected in pairs: close(weights[call], expected, atol=1e-5, rtol=1e-5)
    if name in attending.PICTURES: return
    for call, w in weights.items():
        if w.size(-1) == 7: assert w[1, :, :5, 5:].eq(0).all(), call  # nobody looks at what only fills up
        if name in attending.DECODERS: assert w.triu(1).eq(0).all()
    with pytest.raises(LookupError, match="softmax was called in.*set_attn_implementation"):
        hl.attention(eager, **inputs)


@pytest.mark.parametrize("name", attending.QUICK)
def test_eight_architectures(name): check_architecture(name)


@pytest.mark.peers
@pytest.mark.parametrize("name", [name for name in attending.ALL if name not in attending.QUICK])
def test_many_architectures(name): check_architecture(name)


def test_there_are_enough_architectures(): assert len(attending.ALL) >= 40


@pytest.mark.peers
def test_a_sliding_window_is_kept():
    pytest.importorskip("transformers")
    model, _, inputs = attending.attending("mistral")
    seen = torch.ones(7, 7).tril().triu(-2).bool()
    for w in hl.attention(model, inputs["input_ids"]).values():
        assert w[..., ~seen].eq(0).all() and w[..., seen].gt(0).all()


@pytest.mark.peers
def test_a_cache_adds_keys():
    pytest.importorskip("transformers")
    model, _, inputs = attending.attending("llama")
    words = inputs["input_ids"][:1]
    whole = hl.attention(model, words)
    with torch.no_grad(): cache = model(words[:, :6], use_cache=True).past_key_values
    for w, of_whole in zip(hl.attention(model, words[:, 6:], past_key_values=cache).values(), whole.values()):
        assert w.shape == (1, 4, 1, 7)
        close(w, of_whole[:, :, 6:], atol=1e-5, rtol=1e-5)
