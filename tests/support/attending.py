"""Models of transformers that call scaled_dot_product_attention, from small configurations with random weights."""
import copy

import torch

SMALL = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=48,
    vocab_size=60, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, sliding_window=3,
    moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts=4, num_local_experts=4,
    n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1, d_model=32,
    encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
    decoder_ffn_dim=48, decoder_start_token_id=2, image_size=32, patch_size=8)

# Their `model_type`, by how they are called.
QUICK = "gpt2 llama mistral bert vit bart mixtral modernbert".split()
DECODERS = """afmoe apertus arcee biogpt bitnet cohere cohere2 ctrl doge dots1 ernie4_5 exaone4 flex_olmo gemma
    gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox granite granitemoe helium hunyuan_v1_dense jais2 jetmoe lfm2 llama
    ministral mistral mixtral nanochat nemotron olmo olmo2 olmo3 olmoe opt persimmon phi phi3 phimoe qwen2 qwen2_moe
    qwen3 qwen3_moe seed_oss smollm3 stablelm starcoder2""".split()
ENCODERS = """albert bert camembert clip_text_model distilbert electra ernie esm eurobert mobilebert modernbert
    nomic_bert roberta xlm-roberta xlm-roberta-xl""".split()
PICTURES = """beit clip_vision_model data2vec-vision deit dinov2 dpt ijepa pixtral siglip_vision_model vit
    vit_mae""".split()
CODERS = "bart marian mbart pegasus plbart".split()
ALL = sorted({*DECODERS, *ENCODERS, *PICTURES, *CODERS})


def attending(name: str):
    "A model, another with the same weights that works attention out by hand, and inputs for both."
    import transformers
    config_class = transformers.CONFIG_MAPPING[name]
    default = config_class()
    config = config_class(**{option: value for option, value in SMALL.items() if hasattr(default, option)})
    kind = transformers.AutoModelForCausalLM if name in DECODERS else transformers.AutoModel
    torch.manual_seed(0)
    models = [kind.from_config(copy.deepcopy(config), attn_implementation=how).eval() for how in ("sdpa", "eager")]
    models[1].load_state_dict(models[0].state_dict())
    return *models, pictures() if name in PICTURES else words() | (answer() if name in CODERS else {})


def words() -> dict:
    "Two sentences, of which the second is shorter."
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 5:] = 0
    return {"input_ids": torch.randint(5, 50, (2, 7)), "attention_mask": mask}


def answer() -> dict: return {"decoder_input_ids": torch.randint(5, 50, (2, 6))}
def pictures() -> dict: return {"pixel_values": torch.randn(2, 3, 32, 32)}


def by_layer(names: list[str], outputs) -> list[tuple[str, torch.Tensor]]:
    "The weights that a model returns, each with the name of the call of attention that it belongs to."
    kinds = {"attentions": [], "encoder_attentions": [], "decoder_attentions": [], "cross_attentions": []}
    for name in names:
        layer = name.rpartition("/")[0]
        if "encoder_attn" in layer: kinds["cross_attentions"].append(name)
        elif outputs.get("decoder_attentions") is None: kinds["attentions"].append(name)
        else: kinds["decoder_attentions" if layer.startswith("decoder") else "encoder_attentions"].append(name)
    return [pair for kind, calls in kinds.items() for pair in zip(calls, outputs.get(kind) or (), strict=False)]
