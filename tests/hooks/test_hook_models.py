"""Every layer of many models, hooked forward and backward: nothing changes, nothing is left, and what is seen is right."""
import re
import warnings
from itertools import zip_longest

import pytest
import torch
import torchvision

import hooklab as hl
from support.architectures import ARCHITECTURES, text_model
from support.portions import sample, sweep
from support.traces import buffers, difference, ours
from support.whole_models import check_gradients, check_untouched, leaves, same_calls, watched

LIMIT = 290_000_000  # parameters: with the gradients of two runs, more would not fit in 4 GB


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


OTHERS = [name for name in torchvision.models.list_models(module=torchvision.models) if name not in SOME]


def family(name): return re.match("[a-z]+", name)[0]


@sweep
@pytest.mark.parametrize("name", sample(10, OTHERS, kind=family))
def test_vision_models(name): check_vision_model(name)


# --- transformers
@sweep
@pytest.mark.parametrize("name", sample(3, ARCHITECTURES))
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
