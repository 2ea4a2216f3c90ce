"""Every layer of many models, hooked forward and backward: nothing changes, nothing is left, and what is seen is right."""
import warnings
from collections import Counter
from itertools import zip_longest

import pytest
import torch
import torchvision
from torch import Tensor, nn

import hooklab as hl
from support.traces import buffers, difference, loss, ours, run, same

LIMIT = 290_000_000  # parameters: with the gradients of two runs, more would not fit in 4 GB


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def watched(model, inputs, start, forward=None):
    "A run with hooks on all layers: the run, what was seen of each call, forward and backward, and what was warned about."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with hl.Hooks(model, whole, names="*", with_kwargs=True) as seen, \
             hl.Hooks(model, whole, kind="backward", names="*", with_kwargs=True) as shares:
            result = run(model, inputs, start, forward)
            calls, gradients = {h.name: h.calls for h in seen}, {h.name: h.calls for h in shares}
            assert all(len(h.calls) == h.n_calls for h in [*seen, *shares])
    return result, calls, gradients, said


def check_untouched(model, inputs, forward=None):
    "Run `model` with and without hooks on all layers, and compare everything, with torch's own hooks too; the gradients seen."
    start, names = buffers(model), list(model.state_dict())
    plain = run(model, inputs, start, forward)
    with torch_sees(model) as expected: run(model, inputs, start, forward)
    hooked, calls, gradients, said = watched(model, inputs, start, forward)
    assert difference(plain, hooked) == []
    assert list(model.state_dict()) == names and ours(model) == []
    assert never_called(said) == {name for name in calls if not expected[name]}
    for name in calls: assert same_calls(calls[name], expected[name]), name
    return gradients


def same_calls(a, b) -> bool:
    return len(a) == len(b) and all(len(p) == len(q) and all(map(same, p, q)) for p, q in zip(map(hl.tensors, a), map(hl.tensors, b)))


def whole(m, *given): return given


def never_called(said) -> set[str]:
    "The names in our warnings about layers that did not run; there must be no other warning of ours but of missing gradients."
    said = [str(w.message) for w in said if issubclass(w.category, hl.HookWarning)]
    reasons = [part for message in said for part in message.split("; ")]
    known = "never called", "no gradient reached it", "holds no tensor that can be found"
    assert all(any(words in r for words in known) for r in reasons), reasons
    return {name for r in reasons if "never called" in r for name in r.split(": ")[0].split(", ")}


class torch_sees:
    "What raw torch hooks see of each call: copies of inputs and output."
    def __init__(self, model): self.named = hl.layers(model)
    def __enter__(self):
        self.calls, self.handles = {name: [] for name in self.named}, []
        def look(name): return lambda m, *given: self.calls[name].append(hl.map_tensors(lambda t: t.detach().clone(), given))
        for name, m in self.named.items(): self.handles.append(m.register_forward_hook(look(name), with_kwargs=True))
        return self.calls
    def __exit__(self, *_):
        for handle in self.handles: handle.remove()


# --- gradients, found in another way: the layer gets copies of its inputs, and hooks on these tensors see the layer's share
class Place:
    "Stands for a tensor; gets its gradient."
    gradient, is_input = None, None
    def __init__(self, t: Tensor):
        if t.requires_grad: t.register_hook(lambda g: setattr(self, "gradient", g.clone()))


def copied(x, copies):
    "The same containers with copies of tensors: one copy where a tensor is passed twice, as a layer may ask whether it was."
    if isinstance(x, Tensor): return copies.setdefault(id(x), (x, x.clone()))[1] if x.requires_grad else x
    if type(x) in (tuple, list): return type(x)(copied(part, copies) for part in x)
    if type(x) is dict: return {name: copied(part, copies) for name, part in x.items()}
    return x


def places(x, found):
    if isinstance(x, Tensor): return found.setdefault(id(x), (x, Place(x)))[1]
    if not hl.tensors(x): return None
    return [places(part, found) for part in (x.values() if isinstance(x, dict) else x)]


def shares_by_copies(model, inputs, start, forward=None) -> dict[str, list]:
    "For each layer and call the gradients of inputs and outputs; None for a call that returned an input as it was."
    calls, handles = {}, []
    for name, m in hl.layers(model).items():
        def enter(m, args, kwargs, name=name):
            copies, found = {}, {}
            args, kwargs = copied((args, kwargs), copies)
            calls.setdefault(name, []).append({"in": [places(x, found) for x in [*args, *kwargs.values()]], "copies": copies})
            return args, kwargs
        def leave(m, args, kwargs, out, name=name):
            call = next(call for call in reversed(calls[name]) if "copies" in call)
            originals = {id(copy): t for t, copy in call.pop("copies").values() if copy._version == 0}
            call["returned"] = any(id(t) in originals for t in hl.tensors(out))
            if call["returned"]: out = hl.map_tensors(lambda t: originals.get(id(t), t), out)
            call["out"] = [place for x in (out if isinstance(out, tuple) else [out]) for place in leaves(places(x, {})) if place]
            return out
        handles += [m.register_forward_pre_hook(enter, with_kwargs=True), m.register_forward_hook(leave, with_kwargs=True)]
    try: run(model, inputs, start, forward)
    finally:
        for handle in handles: handle.remove()
    return calls


def leaves(x) -> list:
    "Everything that is not a container, None included."
    if isinstance(x, tuple | list): return [leaf for part in x for leaf in leaves(part)]
    if isinstance(x, dict): return [leaf for part in x.values() for leaf in leaves(part)]
    return [x]


def check_gradients(model, inputs, gradients, start, forward=None) -> int:
    "Compare what our hooks saw in `gradients` with what copies show; how many gradients were compared."
    compared, wrong = 0, []
    for name, calls in shares_by_copies(model, inputs, start, forward).items():
        calls = [call for call in calls if any(p and p.gradient is not None for p in leaves(call["out"]))]
        if len(calls) != len(gradients[name]): wrong.append(f"{name}: {len(gradients[name])} calls of {len(calls)}")
        for call, (args, kwargs, out) in zip(calls, gradients[name]):
            if call["returned"]: continue
            # of the output only tensors that have gradients: an output of transformers leaves out what is None
            wanted, found = leaves(call["in"]), leaves([args, kwargs])
            wanted += [place for place in call["out"] if place.gradient is not None]
            found += [g for g in leaves(out) if g is not None]
            for i, (place, g) in enumerate(zip(wanted, found, strict=True)):
                if not isinstance(place, Place): continue
                if (place.gradient is None) != (g is None): wrong.append(f"{name}, {i}: {'none' if g is None else 'one'} seen")
                elif g is not None and (place.gradient - g).abs().max() > 1e-4*place.gradient.abs().max(): wrong.append(f"{name}, {i}")
                else: compared += g is not None
    assert wrong == []
    return compared


# --- torchvision
def vision_model(name, device):
    options, size = {"num_classes": 5}, 224 if name.startswith("maxvit") else 96 if name == "inception_v3" else 64
    if name.startswith("vit_"): options["image_size"] = size = 2*int(name.split("_")[-1])
    if name in ("googlenet", "inception_v3"): options |= {"init_weights": False, "aux_logits": name == "googlenet"}
    torch.manual_seed(0)
    try:
        with torch.device(device): model = torchvision.models.get_model(name, **options)
    except NotImplementedError: model = torchvision.models.get_model(name, **options).to(device)  # it computes its sizes with tensors
    return model, {"x": torch.randn(1 if size == 224 else 2, 3, size, size, device=device, requires_grad=True)}


def check_vision_model(name):
    size = torchvision.models.get_model_weights(name).DEFAULT.meta["num_params"]
    model, inputs = vision_model(name, "meta" if size > LIMIT else "cpu")
    def forward(model, inputs): return model(inputs["x"])
    gradients = check_untouched(model, inputs, forward)
    if size <= LIMIT: assert check_gradients(model, inputs, gradients, buffers(model), forward) > len(gradients)


SOME = ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "efficientnet_b0"]


@pytest.mark.parametrize("name", SOME)
def test_some_vision_models(name): check_vision_model(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in torchvision.models.list_models(module=torchvision.models) if n not in SOME])
def test_vision_models(name): check_vision_model(name)


# --- transformers, built from small configurations with random weights
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
WORDS = dict(vocab_size=60, **SMALL)
HALF = dict(num_key_value_heads=2)
CODERS = dict(vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
              encoder_ffn_dim=48, decoder_ffn_dim=48)


def text(): return {"input_ids": torch.randint(5, 50, (2, 7)), "attention_mask": torch.ones(2, 7, dtype=torch.long)}
def labelled(): return text() | {"labels": torch.randint(5, 50, (2, 7))}
def picture(): return {"pixel_values": torch.randn(2, 3, 32, 32, requires_grad=True)}
def sound(): return {"input_features": torch.randn(2, 8, 40, requires_grad=True), "labels": torch.randint(5, 50, (2, 7))}


ARCHITECTURES = {  # class of the model, of its configuration, what to put into it, inputs
    "albert": ("AlbertModel", "AlbertConfig", dict(embedding_size=16, **WORDS), text),
    "bart": ("BartForConditionalGeneration", "BartConfig", dict(max_position_embeddings=32, **CODERS), labelled),
    "bert": ("BertForMaskedLM", "BertConfig", WORDS, labelled),
    "bloom": ("BloomForCausalLM", "BloomConfig", dict(hidden_size=32, n_layer=2, n_head=4, vocab_size=60), labelled),
    "clip": ("CLIPModel", "CLIPConfig", dict(text_config=dict(max_position_embeddings=16, **WORDS),
             vision_config=dict(image_size=32, patch_size=8, **SMALL), projection_dim=16), lambda: text() | picture() | {"return_loss": True}),
    "convnext": ("ConvNextForImageClassification", "ConvNextConfig", dict(hidden_sizes=[8, 16, 24, 32], depths=[1]*4), picture),
    "deberta": ("DebertaV2Model", "DebertaV2Config", dict(relative_attention=True, pos_att_type=["p2c", "c2p"], **WORDS), text),
    "distilbert": ("DistilBertModel", "DistilBertConfig", dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=60), text),
    "funnel": ("FunnelModel", "FunnelConfig", dict(vocab_size=60, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=48), text),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", dict(head_dim=8, **HALF, **WORDS), labelled),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=60, n_positions=32), labelled),
    "llama": ("LlamaForCausalLM", "LlamaConfig", HALF | WORDS, labelled),
    "longformer": ("LongformerModel", "LongformerConfig", dict(attention_window=4, max_position_embeddings=40, **WORDS), text),
    "mamba": ("MambaForCausalLM", "MambaConfig", dict(hidden_size=32, num_hidden_layers=2, vocab_size=60, state_size=4),
              lambda: {name: x for name, x in labelled().items() if name != "attention_mask"}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", dict(num_local_experts=4, output_router_logits=True, **HALF, **WORDS), labelled),
    "perceiver": ("PerceiverModel", "PerceiverConfig", dict(d_model=16, num_latents=8, d_latents=32, num_self_attends_per_block=2,
                  num_self_attention_heads=4, num_cross_attention_heads=4), lambda: {"inputs": torch.randn(2, 7, 16, requires_grad=True)}),
    "segformer": ("SegformerModel", "SegformerConfig", dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16],
                  patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2]), picture),
    "swin": ("SwinModel", "SwinConfig", dict(image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4), picture),
    "t5": ("T5ForConditionalGeneration", "T5Config", dict(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=60,
           decoder_start_token_id=0), labelled),
    "vit": ("ViTForImageClassification", "ViTConfig", dict(image_size=32, patch_size=8, **SMALL), picture),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", dict(conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
                 num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_prob=0., **WORDS), lambda: {"input_values": torch.randn(2, 400)}),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", dict(num_mel_bins=8, max_source_positions=20, max_target_positions=16,
                pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, **CODERS), sound),
    "xlnet": ("XLNetModel", "XLNetConfig", dict(vocab_size=60, d_model=32, n_layer=2, n_head=4, d_inner=48), text),
}


def text_model(name):
    import transformers
    model, config, options, inputs = ARCHITECTURES[name]
    torch.manual_seed(0)
    model = getattr(transformers, model)(getattr(transformers, config)(**options)).train()
    inputs = inputs()
    loss(model(**inputs))  # some install hooks of their own in their first run
    return model, inputs


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_transformers(name):
    model, inputs = text_model(name)
    gradients = check_untouched(model, inputs)
    assert check_gradients(model, inputs, gradients, buffers(model)) > len(gradients)/2


@pytest.mark.slow
@pytest.mark.parametrize("name_of_model", ["bert", "llama", "t5"])
def test_transformers_recomputed(name_of_model):
    "Activation checkpointing as transformers does it: the same calls, seen once."
    model, inputs = text_model(name_of_model)
    model.config.use_cache = False
    plain, calls, gradients, _ = watched(model, inputs, None)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    again, calls_again, gradients_again, _ = watched(model, inputs, None)
    assert difference(plain, again) == [] and ours(model) == []
    for name in calls:
        assert same_calls(calls[name], calls_again[name]), name
        # T5 itself asks for more gradients when it is recomputed (those of a bias that is zero): all that were there before are the same
        before, after = leaves(gradients[name]), leaves(gradients_again[name])
        # (the cache that the decoder returns has no gradient, and none is returned then)
        if name_of_model == "t5": after = [None if b is None else a for b, a in zip_longest(before, after)]
        assert same_calls(before, after), name


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["backward", "backward_pre", "global backward", "global backward_pre"])
def test_gradients_of_a_model_output_with_a_field_that_must_be_given(kind):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ProphetNetConfig(vocab_size=19, hidden_size=8, encoder_ffn_dim=8, decoder_ffn_dim=8, num_encoder_layers=1, num_decoder_layers=1,
                                           num_encoder_attention_heads=2, num_decoder_attention_heads=2, ngram=2, num_buckets=4, dropout=0., attention_dropout=0.,
                                           activation_dropout=0., max_position_embeddings=16)
    model, ids, seen = transformers.ProphetNetForConditionalGeneration(config), torch.arange(6)[None], {}
    def step():
        model.zero_grad(set_to_none=True)
        model(input_ids=ids, decoder_input_ids=ids).logits.sum().backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    def keep(m, *given): seen.setdefault(type(m).__name__, given[-1])
    before = step()
    hooks = hl.global_hook(keep, kind.split()[1]) if " " in kind else hl.Hooks(model, keep, kind=kind, names="*")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.HookWarning)  # the last layers of a decoder have parts that need no gradient
        with hooks: after = step()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    output = seen["ProphetNetDecoder"]
    assert output["last_hidden_state"] is None and output["last_hidden_state_ngram"].shape == (1, 12, 8)
