"Statistics of attention by head and step, and what a diagnosis says of them."
import copy
import math
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hooklab as hl
from hooklab.diagnosis.special_layer_faults import dead_heads
from hooklab.stats.measure.attention_meter import numbers_of_call, numbers_of_logits
from hooklab.stats.records.attention_history import AttentionHistory
from hooklab.stats.records.statistics import HEAD_ROWS

pytestmark = pytest.mark.usefixtures("one_thread")


class Block(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3*width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Copies(nn.Module):
    "Says the number that was four places before."
    def __init__(self):
        super().__init__()
        self.number, self.place, self.head = nn.Embedding(10, 16), nn.Embedding(12, 16), nn.Linear(16, 10)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        x = self.number(x) + self.place.weight
        for block in self.blocks: x = block(x)
        return self.head(x)


def train(model, stats, steps=40, rate=3e-3, step=None):
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for number in range(steps):
        x = torch.randint(10, (16, 12))
        loss = F.cross_entropy(model(x)[:, 4:].flatten(0, 1), x[:, :-4].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step: step(model, number)
        optimizer.step()
        if stats is not None: stats.step()


def recorded(model, **options):
    with hl.AttentionStats().on(model) as a: train(model, a, **options)
    return a


def by_hand(q, k, mask=None, queries=slice(None)):
    logits = q[..., queries, :] @ k.mT/q.size(-1)**.5
    if mask is not None: logits = logits.masked_fill(~mask[..., queries, :], -math.inf)
    weights = logits.softmax(-1)
    return {"entropy": -torch.special.xlogy(weights, weights).sum(-1).mean((0, 2)),
            "possible": (logits > -math.inf).sum(-1).float().log().mean((0, 2)),
            "largest_logit": logits.amax((0, 2, 3)), "first_share": weights[..., 0].mean((0, 2)),
            "query_norm": q[..., queries, :].norm(dim=-1).mean((0, 2)), "key_norm": k.norm(dim=-1).mean((0, 2))}


@pytest.mark.parametrize("masked", [None, "causal", "boolean", "added", "added by head"])
def test_numbers_are_those_of_the_weights(masked):
    q, k, v = torch.randn(3, 2, 4, 7, 8)
    seen = torch.ones(7, 7, dtype=torch.bool).tril()
    if masked == "boolean": seen = (torch.rand(2, 1, 7, 7) < .7) | torch.eye(7, dtype=torch.bool)
    added = torch.zeros(2, 4 if masked == "added by head" else 1, 7, 7).masked_fill(~seen, -math.inf)
    given = {None: {}, "causal": {"is_causal": True}, "boolean": {"attn_mask": seen}}.get(masked, {"attn_mask": added})
    found = dict(zip(HEAD_ROWS, numbers_of_call(q, k, v, **given)))
    expected = by_hand(q, k, None if masked is None else seen)
    for name, number in expected.items():
        torch.testing.assert_close(found[name], number.expand(4), rtol=1e-4, atol=1e-5)


def test_numbers_of_multihead_attention_that_returns_its_weights():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    mask = ~torch.ones(5, 5, dtype=torch.bool).tril()
    kept = {}
    for need_weights in (True, False):
        with hl.AttentionStats(sample=None).on(layer) as a:
            layer(x, x, x, need_weights=need_weights, attn_mask=mask)
            a.step()
        (name, kept[need_weights]), = [(name, a.tables()[0, 0]) for name in a.names]
        assert name == ("/softmax#0" if need_weights else "/scaled_dot_product_attention#0")
    torch.testing.assert_close(kept[True][:4], kept[False][:4], rtol=1e-4, atol=1e-5)


def test_a_record_has_every_head_and_step():
    model = Copies()
    a = recorded(model, steps=10)
    names = [f"blocks.{i}/scaled_dot_product_attention#0" for i in range(2)]
    assert a.names == names and a.steps == list(range(10)) and not hl.hooks_on(model)
    for what in HEAD_ROWS:
        assert a.values(what)[names[0]].shape == (2, 10) and a.values(what)[names[1]].isfinite().all()
    assert (a.values("entropy")[names[0]] <= a.values("possible")[names[0]] + 1e-5).all()
    assert len(a.table()) == 40 and set(a.table()[0]) == {"step", "call", "head", *HEAD_ROWS}
    assert "a sample of 16 queries" in repr(a)
    with pytest.raises(LookupError, match="largest_logit"): a.values("logits")
    with pytest.raises(LookupError, match=r"blocks\.0"): a.plot("blocks.9")


def test_a_sample_is_near_and_all_is_exact():
    model, x = Copies(), torch.randint(10, (16, 12))
    found = {}
    for sample in (None, 4):
        with hl.AttentionStats(sample=sample).on(model) as a:
            model(x)
            a.step()
        found[sample] = a.tables()[0, 0]
    with hl.hook_calls(model, F.scaled_dot_product_attention) as h: model(x)
    expected = by_hand(*h[0].inputs[:2], torch.ones(12, 12, dtype=torch.bool).tril())
    for row, name in zip(found[None], HEAD_ROWS):
        torch.testing.assert_close(row, expected[name].expand(2), rtol=1e-4, atol=1e-5)
    assert not torch.equal(found[4], found[None]) and (found[4][:2] - found[None][:2]).abs().max() < .5


def test_every_and_bounded_memory():
    a = hl.AttentionStats(every=3, max_rows=4)
    model = Copies()
    with a.on(model): train(model, a, steps=20)
    assert a.steps == [0, 6, 12, 18] and len(a.kept) == 4
    for wrong in ({"sample": 0}, {"every": 0}, {"max_rows": 1}):
        with pytest.raises(ValueError): hl.AttentionStats(**wrong)
    with pytest.raises(RuntimeError, match="start with"): hl.AttentionStats().step()
    with pytest.raises(TypeError, match="torch.nn.Module"): hl.AttentionStats().on(3)


def test_looking_changes_nothing():
    def run(watched):
        torch.manual_seed(3)
        model = Copies()
        if watched: recorded(model, steps=5)
        else: train(model, None, steps=5)
        return [*model.state_dict().values(), torch.get_rng_state()]
    assert all(torch.equal(a, b) for a, b in zip(run(False), run(True)))


def test_eval_mode_is_not_recorded_and_silence_is_reported():
    model = Copies().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hl.AttentionStats().on(model) as a:
            model(torch.randint(10, (2, 12)))
            a.step()
    assert not a.names and len(a) == 1 and "nothing recorded" in hl.diagnose(a)
    with pytest.warns(hl.HookWarning, match="scaled_dot_product_attention: never called"):
        with hl.AttentionStats().on(plain := nn.Linear(3, 3)) as a:
            plain(torch.randn(2, 3))
            a.step()


def test_what_cannot_be_measured_is_left_alone_and_named_once():
    class Nested(nn.Module):
        def forward(self, t): return F.scaled_dot_product_attention(t, t, t)

    t = torch.nested.nested_tensor([torch.randn(3, 2, 4), torch.randn(5, 2, 4)], layout=torch.jagged).transpose(1, 2)
    model = Nested()
    with warnings.catch_warnings(record=True) as said, hl.AttentionStats().on(model) as a:
        warnings.simplefilter("always")
        for _ in range(2): out = model(t)
        a.step()
    assert out.is_nested and not a.names
    texts = [str(w.message) for w in said if w.category is hl.HookWarning]
    assert len(texts) == 1 and texts[0].startswith("/scaled_dot_product_attention#0: what it was given")


def test_passes_of_one_step_are_joined():
    model, x = Copies(), torch.randint(10, (2, 16, 12))
    with hl.AttentionStats(sample=None).on(model) as a:
        for part in x: model(part)
        a.step()
        model(x.flatten(0, 1))
        a.step()
    torch.testing.assert_close(a.tables()[0], a.tables()[1], rtol=1e-4, atol=1e-5)


def test_copies_and_pickles_have_the_records():
    a = recorded(Copies(), steps=3)
    for twin in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        torch.testing.assert_close(twin.tables(), a.tables(), equal_nan=True)
    again = AttentionHistory()
    again.fill(a.steps, a.heads, a.tables())
    torch.testing.assert_close(again.tables(), a.tables())


def test_pictures():
    a = recorded(Copies(), steps=3)
    assert len(a.plot()) == 3 and len(a.plot("blocks.1")) == 3
    assert len(hl.AttentionStats().plot()) == 3


# Findings

def spoiled(how):
    model = Copies()
    with torch.no_grad():
        if how == "large": model.blocks[1].qkv.weight[:32] *= 100
        if how == "zero":
            for p in model.blocks[0].qkv.parameters(): p[:16] = 0
    return model


def grow(model, number):
    with torch.no_grad(): model.blocks[0].qkv.weight[:32] *= 1.2 if number < 25 else 1.


def no_gradient_of_queries(model, number):
    for p in model.blocks[0].qkv.parameters(): p.grad[:16] = 0


@pytest.mark.parametrize("how, options, layer, words", [
    ("large", {}, "blocks.1", "nearly all the weight is on one key"),
    ("zero", {"step": no_gradient_of_queries}, "blocks.0", "all keys have the same weight"),
    ("none", {"step": grow}, "blocks.0", "the largest logit grew from")])
def test_dead_heads_are_found(how, options, layer, words):
    found = hl.diagnose(recorded(spoiled(how), **options))
    assert [f.what for f in found] == ["dead attention"] and found.first.layers == [layer]
    assert words in found.first.evidence and "square root of the head dimension" in found.first.advice


@pytest.mark.parametrize("how, rate", [("none", 3e-3), ("none", 1e-2), ("zero", 3e-3)])
def test_healthy_heads_are_not_named(how, rate):
    "Queries that begin at zero are a way to begin: they leave it at once."
    assert not list(hl.diagnose(recorded(spoiled(how), rate=rate, steps=60)))


def test_in_a_record_for_the_diagnosis(tmp_path):
    model = spoiled("large")
    with hl.ActivationStats.for_diagnosis().on(model) as s: train(model, s, steps=30)
    s.save(tmp_path/"run.safetensors")
    for record in (s, hl.ActivationStats.load(tmp_path/"run.safetensors"), pickle.loads(pickle.dumps(s))):
        found = [f for f in hl.diagnose(record) if f.what == "dead attention"]
        assert found and found[0].layers == ["blocks.1"]
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with hl.ActivationStats.for_diagnosis().on(plain) as s:
        for _ in range(5):
            plain(torch.randn(3, 4))
            s.step()
        assert s.session.heads is None and s.attention is None
    assert not hl.hooks_on(model) and not hl.hooks_on(plain)


def test_compiled_code_hides_heads_and_the_diagnosis_says_so():
    class TinyAttention(Copies): pass
    model = TinyAttention()
    model.blocks[0].__class__ = type("AttentionBlock", (Block,), {})
    model.compile(backend="eager")
    with hl.ActivationStats.for_diagnosis().on(model) as s: train(model, s, steps=8)
    assert s.attention is None and any("compiled code hides" in text for text in hl.diagnose(s).unknown)
    with pytest.warns(hl.HookWarning, match="the model: compiled"), hl.AttentionStats().on(model) as a:
        train(model, a, steps=2)


def test_heads_of_an_empty_record(): assert not list(dead_heads(AttentionHistory()))


def test_multihead_attention_in_a_record_for_the_diagnosis():
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    with torch.no_grad(): encoder.self_attn.in_proj_weight[:32] *= 100
    optimizer = torch.optim.SGD(encoder.parameters(), 1e-3)
    with hl.ActivationStats.for_diagnosis().on(encoder, optimizer=optimizer) as s:
        for _ in range(12):
            encoder(torch.randn(4, 6, 16)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            s.step()
    found = [f for f in hl.diagnose(s) if f.what == "dead attention"]
    assert found and found[0].layers == ["self_attn"]


def test_logits_that_are_given():
    logits = torch.randn(6, 4, 4)
    found = numbers_of_logits(logits, 2)
    assert found.shape == (6, 2) and found[4:].isnan().all()


@pytest.mark.gpu
def test_on_a_gpu_nothing_waits():
    model, x = Copies().cuda(), torch.randint(10, (4, 12), device="cuda")
    with hl.AttentionStats().on(model) as a:
        model(x)
        a.step()
        torch.cuda.set_sync_debug_mode("error")
        try:
            model(x)
            a.step()
        finally: torch.cuda.set_sync_debug_mode("default")
    assert len(a) == 2
