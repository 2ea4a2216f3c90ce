"""by_token: the passes of a generating model put together equal one pass over the same tokens, and nothing is left."""
import warnings
from fnmatch import fnmatchcase

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hooklab as hl
from hooklab.features.tokens import by_token
from hooklab.hooks.attached import hooks_on
from hooklab.hooks.copies import HookWarning
from hooklab.hooks.functions import hook_calls
from hooklab.hooks.hook import hook_outputs
from hooklab.hooks.select import layers
from hooklab.hooks.tree import tensors
from support.architectures import text_model

torch.set_num_threads(1)
SDPA = F.scaled_dot_product_attention
close = torch.testing.assert_close


class Block(nn.Module):
    "Attention with a cache, and a router that sees all tokens of the batch in one list."
    def __init__(self):
        super().__init__()
        self.qkv, self.router, self.mlp = nn.Linear(16, 48), nn.Linear(16, 3), nn.Linear(16, 16)

    def forward(self, x, cache, mask):
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if cache: k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        cache[:] = k, v
        past = torch.ones(q.size(2), k.size(2), dtype=torch.bool).tril(k.size(2) - q.size(2))
        if mask is not None: past = past & mask[:, None, None]
        x = x + SDPA(q, k, v, attn_mask=past).transpose(1, 2).flatten(2)
        gate = self.router(x.flatten(0, 1)).softmax(-1).view(*x.shape[:2], 3)
        return x + gate[..., :1]*self.mlp(x).tanh(), cache[0].clone()


class Model(nn.Module):
    "A language model with a cache; `last_only` has the head compute the last position only."
    def __init__(self, last_only=False):
        super().__init__()
        self.embed, self.place = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.blocks, self.head, self.last_only = nn.ModuleList([Block(), Block()]), nn.Linear(16, 50), last_only
        self.value = nn.Linear(16, 1)

    def forward(self, tokens, caches=None, mask=None):
        caches = caches or [[], []]
        start = caches[0][0].size(2) if caches[0] else 0
        x = self.embed(tokens) + self.place(torch.arange(start, start + tokens.size(1)))
        for block, cache in zip(self.blocks, caches): x, _ = block(x, cache, mask)
        self.value(x)
        return self.head(x[:, -1:] if self.last_only else x)

    @torch.no_grad()
    def generate(self, tokens, new, chunk=None, mask=None, cached=True):
        caches, given = [[], []], tokens
        for part in tokens.split(chunk or tokens.size(1), 1)[:-1]:
            self(part, caches, None if mask is None else mask[:, :part.size(1)])
            given = given[:, part.size(1):]
        for _ in range(new):
            given = self(given, caches if cached else None, mask)[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, given], 1)
            if mask is not None: mask = F.pad(mask, (0, 1), value=True)
            if not cached: given = tokens
        return tokens


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().eval()


def prompt(batch=2, length=7): return torch.randint(50, (batch, length), generator=torch.Generator().manual_seed(1))


def weights(call):
    q, k, _ = call.inputs
    scores = q @ k.mT/q.size(-1)**.5
    mask = call.kwargs.get("attn_mask")
    if mask is not None: scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1)


def whole(model, tokens, names):
    "What one pass over all tokens gives."
    with torch.no_grad(), hook_outputs(model, names=names) as hooks: model(tokens)
    return hooks.by_name


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("chunk", [None, 3, 1])
def test_equals_one_pass(model, batch, length, chunk):
    before = model.generate(prompt(batch, length), 5, chunk)
    with by_token(model) as h: tokens = model.generate(prompt(batch, length), 5, chunk)
    assert torch.equal(before, tokens) and not hooks_on(model)
    right = whole(model, tokens[:, :-1], "*")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = h.by_name
    assert torch.equal(h.tokens, tokens[:, :-1]) and set(found) == set(right)
    for name, out in found.items():
        if name == "place": continue  # its output has no batch
        if name.endswith("router"): close(out, right[name].unflatten(0, (batch, -1)) if batch > 1 else right[name])
        elif name in ("blocks.0", "blocks.1"): close(out[0], right[name][0])
        else: close(out, right[name], rtol=1e-5, atol=1e-5)
    close(found["place"], right["place"])


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("length", [1, 7])
def test_tuples_keep_their_form_and_a_cache_is_whole(model, batch, length):
    with by_token(model, "blocks.0") as h: tokens = model.generate(prompt(batch, length), 4)
    x, keys = h["blocks.0"]
    assert isinstance(h["blocks.0"], tuple) and x.shape == (batch, length + 3, 16)
    close(keys, whole(model, tokens[:, :-1], "blocks.0")["blocks.0"][1])


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("chunk", [None, 2])
def test_calls_and_attention_weights(model, batch, length, chunk):
    with by_token(model, f=weights, function=SDPA) as h: tokens = model.generate(prompt(batch, length), 5, chunk)
    with by_token(model, function=[SDPA, torch.tanh]) as outputs: model.generate(prompt(batch, length), 5, chunk)
    with torch.no_grad(), hook_calls(model, SDPA, f=weights) as once: model(tokens[:, :-1])
    with torch.no_grad(), hook_calls(model, [SDPA, torch.tanh]) as calls: model(tokens[:, :-1])
    assert list(h.by_name) == list(once.by_name) == [f"blocks.{i}/scaled_dot_product_attention#0" for i in (0, 1)]
    for name, seen in h.by_name.items():
        close(seen, once.by_name[name])
        assert not seen.triu(1).any()
    for name, call in calls.by_name.items(): close(outputs[name], call.output)
    assert not hooks_on(model)


class Grouped(nn.Module):
    """Four heads of the query share two of the key, and the cache has its whole size from the beginning.

    Where the passes are short, the heads of a group take the place of queries, as in newer models of transformers."""
    def __init__(self):
        super().__init__()
        self.embed, self.q, self.kv = nn.Embedding(50, 16), nn.Linear(16, 32), nn.Linear(16, 32)

    def forward(self, tokens, cache, start=0, folded=True):
        x, n, end = self.embed(tokens), tokens.size(1), start + tokens.size(1)
        q = self.q(x).unflatten(-1, (4, 8)).transpose(1, 2)
        cache[:, :, start:end] = self.kv(x).unflatten(-1, (2, 16)).transpose(1, 2)
        (k, v), seen = cache.chunk(2, -1), torch.arange(cache.size(2)) < torch.arange(start, end)[:, None] + 1
        if folded and n < 3: return SDPA(q.reshape(-1, 2, 2*n, 8), k, v, attn_mask=seen.repeat(2, 1)).flatten(1)
        return SDPA(q, *(t.repeat_interleave(2, 1) for t in (k, v)), attn_mask=seen).flatten(1)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("passes", [[5, 1, 1, 1], [3, 2, 1, 2], [6, 2], [4]])
@pytest.mark.parametrize("f", [lambda call: hl.attention_weights(*call.inputs, **call.kwargs), None])
def test_grouped_heads_that_take_the_place_of_queries(batch, passes, f):
    model, tokens = Grouped().eval(), prompt(batch, sum(passes))
    with torch.no_grad(), by_token(model, f=f, function=SDPA) as h, warnings.catch_warnings():
        cache, start = torch.zeros(batch, 2, 9, 16), 0
        for n in passes:
            model(tokens[:, start:start + n], cache, start)
            start += n
        warnings.simplefilter("error")
        found = h.by_name
    with torch.no_grad(), by_token(model, f=f, function=SDPA) as right:
        model(tokens, torch.zeros(batch, 2, 9, 16), folded=False)
    assert list(found) == h.names == right.names
    for name in found: close(found[name], right[name])


def test_without_a_cache_the_last_pass_has_it_all(model):
    with by_token(model) as h: tokens = model.generate(prompt(), 5, cached=False)
    right = whole(model, tokens[:, :-1], "*")
    assert len(h) == 1 and torch.equal(h.tokens, tokens[:, :-1])
    for name in ("embed", "blocks.1.mlp", "head"): assert torch.equal(h[name], right[name])


def test_the_same_prompt_again_begins_again(model):
    with by_token(model, "head") as h:
        for _ in range(2): tokens = model.generate(prompt(), 4)
    assert len(h) == 4 and torch.equal(h.tokens, tokens[:, :-1])


def test_padding_on_the_left(model):
    tokens, mask = prompt(), torch.ones(2, 7, dtype=torch.bool)
    mask[0, :3] = False
    with by_token(model, "blocks.1.mlp") as h: tokens = model.generate(tokens, 5, mask=mask)
    with torch.no_grad(), hook_outputs(model, names="blocks.1.mlp") as right:
        model(tokens[:, :-1], mask=F.pad(mask, (0, 4), value=True))
    own = h["blocks.1.mlp"]
    close(own[0, 3:], right[0].stored[0, 3:])
    close(own[1], right[0].stored[1])


@pytest.mark.parametrize("batch", [1, 2])
def test_a_head_for_the_last_position_has_one_for_each_pass(batch):
    torch.manual_seed(0)
    model = Model(last_only=True).eval()
    with by_token(model, "head") as h: tokens = model.generate(prompt(batch), 5)
    assert h["head"].shape == (batch, 5, 50) and torch.equal(h["head"].argmax(-1), tokens[:, 7:])


def test_a_function_of_ones_own_and_values_that_are_no_tensors(model):
    with by_token(model, "blocks.?", lambda m, i, o: {"norm": o[0].norm(dim=-1), "kind": type(m).__name__}) as h:
        tokens = model.generate(prompt(), 5)
    right = whole(model, tokens[:, :-1], "blocks.1")["blocks.1"][0]
    assert h["blocks.1"]["kind"] == "Block"
    close(h["blocks.1"]["norm"], right.norm(dim=-1))


def test_sequence_first_and_the_dimension_asked_for():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.mean = nn.LSTM(4, 5), nn.Linear(5, 3)

        def forward(self, x, state=None):
            y, state = self.rnn(x, state)
            self.mean(y.mean(0))
            return y, state

    torch.manual_seed(0)
    net, x = Steps(), torch.randn(9, 2, 4)
    with by_token(net) as h:
        _, state = net(x[:4])
        for t in range(4, 9): _, state = net(x[t:t + 1], state)
    close(h["rnn"][0], net(x)[0])
    with pytest.raises(ValueError, match=r"mean: no dimension of 6 of 2×3 has the size of the new positions, 4, 1, 1"):
        h["mean"]
    assert [tuple(t.shape) for t in h.passes("mean")] == [(2, 3)]*6
    h.dim = 0
    assert h["mean"].shape == (12, 3)


def test_layers_that_run_twice_or_not_always():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.first = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            if x.size(1) > 1: self.first(x)
            return self.lin(self.lin(x))

    net, x = Net(), torch.randn(2, 5, 4)
    with by_token(net) as h:
        net(x[:, :3])
        for i in (3, 4): net(x[:, i:i + 1])
    assert h.names == ["lin", "lin#1", "first"] and len(h) == 3
    close(h["lin"], net.lin(x))
    close(h["lin#1"], net(x))
    with pytest.raises(ValueError, match="first: ran in 1 of 3 passes"): h["first"]
    with pytest.warns(HookWarning, match="left out of by_name: first: ran in 1 of 3"): found = h.by_name
    assert list(found) == ["lin", "lin#1"]
    with pytest.raises(LookupError, match="'lin#2' was not seen; there is lin#1"): h["lin#2"]


def test_rows_follow_sequences_from_pass_to_pass():
    "As in beam search: the second pass goes on from other rows than the first."
    net, x = nn.Sequential(nn.Linear(3, 3)), torch.randn(4, 6, 3)
    came_from = torch.tensor([[2, 0], [2, 3], [1, -1]])
    with by_token(net) as h:
        net(x[:, :5])
        net(x[:, 5:])
    out, right = h.rows("0", came_from), net(x)
    close(out[:, :5], right[[2, 2, 1], :5])
    close(out[:, 5], torch.stack([right[0, 5], right[3, 5], torch.zeros(3)]))
    with pytest.raises(ValueError, match=r"rows has the shape \(3, 1\), and its second size should be .* passes, 2"):
        h.rows("0", came_from[:, :1])


def test_an_error_in_a_pass_leaves_it_out_and_nothing_on(model):
    with pytest.raises(IndexError), by_token(model, "blocks.0") as h:
        model.generate(prompt(), 3)
        model(torch.full((2, 1), 99))
    assert len(h) == 3 and h["blocks.0"][0].shape == (2, 9, 16) and not hooks_on(model)


def test_bad_input(model):
    with pytest.raises(LookupError, match="matches 'blocks.7'"): by_token(model, "blocks.7")
    with pytest.raises(TypeError, match="pass the function itself"): by_token(model, function="softmax")
    assert not hooks_on(model)
    with pytest.warns(HookWarning, match="head: hooked, but never called"), by_token(model, "head") as h: pass
    with pytest.raises(LookupError, match="'head' was not seen"): h["head"]
    with pytest.raises(LookupError, match="not called yet"): h.tokens
    assert repr(h) == "by_token: nothing yet"


def test_remove_and_clear(model):
    h = by_token(model, "head", cpu=True)
    tokens = model.generate(prompt(), 3)
    h.remove()
    assert h.removed and not hooks_on(model) and h["head"].shape == (2, 9, 50)
    assert repr(h) == "head: 2×7×50, 2 of 2×1×50"
    h.clear()
    assert h.names == [] and len(h) == 0 and tokens.shape == (2, 10)


LANGUAGE_MODELS = ["bloom", "gpt2", "llama", "mamba", "mixtral"]
TRANSLATORS = ["bart", "t5", "whisper"]


def small(name):
    "A model of transformers in eval mode, and its inputs without labels."
    pytest.importorskip("transformers")
    model, inputs = text_model(name)
    inputs.pop("labels", None)
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval(), inputs


def text_layers(model, decoder=False):
    "Layers of which each pass has an output with a width."
    names = ["*layers.?", "*.h.?", "*mlp", "*norm*", "*fc1", "*ln_?"]
    found = [name for name in layers(model) if any(fnmatchcase(name, n) for n in names)]
    return [name for name in found if not decoder or "decoder" in name]


@pytest.mark.peers
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@pytest.mark.parametrize("options", [{}, {"do_sample": True}, {"prefill_chunk_size": 3}, {"use_cache": False}],
                         ids=["greedy", "sampled", "chunks", "no cache"])
def test_generate_of_transformers(name, options):
    if name == "mamba" and "prefill_chunk_size" in options: pytest.skip("it has no cache that takes chunks")
    model, inputs = small(name)
    def generate():
        torch.manual_seed(0)
        return model.generate(**inputs, max_new_tokens=5, **options)

    before, names, theirs = generate(), text_layers(model), hooks_on(model)
    with by_token(model, names) as h: tokens = generate()
    assert torch.equal(before, tokens) and hooks_on(model) == theirs and torch.equal(h.tokens, tokens[:, :-1])
    mask = F.pad(inputs["attention_mask"], (0, 4), value=1) if "attention_mask" in inputs else None
    with torch.no_grad(), hook_outputs(model, names=names) as right: model(tokens[:, :-1], attention_mask=mask)
    assert len(h.by_name) == len(names) > 3
    for name, out in h.by_name.items():
        for ours, plain in zip(tensors(out), tensors(right[name].stored), strict=True):
            close(ours, plain.view(ours.shape), rtol=1e-5, atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("name", TRANSLATORS)
def test_generate_of_encoders_with_decoders(name):
    model, inputs = small(name)
    before, names = model.generate(**inputs, max_new_tokens=5, num_beams=1), text_layers(model, decoder=True)
    with by_token(model, names) as h: tokens = model.generate(**inputs, max_new_tokens=5, num_beams=1)
    assert torch.equal(before, tokens) and not hooks_on(model)
    with torch.no_grad(), hook_outputs(model, names=names) as right: model(**inputs, decoder_input_ids=h.tokens)
    for name, out in h.by_name.items(): close(out, right[name].stored, rtol=1e-5, atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_beams_of_transformers(name):
    model, inputs = small(name)
    names = text_layers(model)
    with by_token(model, names) as h:
        found = model.generate(**inputs, max_new_tokens=6, num_beams=3, num_return_sequences=2,
                               return_dict_in_generate=True, output_scores=True)
    with torch.no_grad(), hook_outputs(model, names=names) as right: model(found.sequences[:, :-1])
    came_from = found.beam_indices[:, :len(h)]
    for layer in names: close(h.rows(layer, came_from), right[layer].stored, rtol=1e-5, atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize(("name", "functions"), [
    ("gpt2", [torch.tanh, SDPA]), ("llama", [F.silu, torch.rsqrt]), ("bloom", [torch.tanh])])
def test_calls_and_padding_of_transformers(name, functions):
    model, inputs = small(name)
    mask = inputs["attention_mask"].clone()
    mask[0, :3] = 0
    with by_token(model, function=functions) as h:
        tokens = model.generate(inputs["input_ids"], attention_mask=mask, max_new_tokens=5)
    with torch.no_grad(), hook_calls(model, functions) as right:
        mask = F.pad(mask, (0, 4), value=1)
        model(tokens[:, :-1], attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
    assert h.names == list(right.by_name) and len(h.names) >= 2
    for call, out in h.by_name.items(): close(out[..., 3:, :], right[call].output[..., 3:, :], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_compiled_model(model):
    compiled = torch.compile(model, backend="eager")
    with by_token(compiled, "blocks.?.mlp") as h:
        caches, given, tokens = [[], []], prompt(), prompt()
        with torch.no_grad():
            for _ in range(4):
                given = compiled(given, caches)[:, -1:].argmax(-1)
                tokens = torch.cat([tokens, given], 1)
    close(h["blocks.1.mlp"], whole(model, tokens[:, :-1], "blocks.1.mlp")["blocks.1.mlp"])
    assert not hooks_on(model)
