"""Models of transformers, built from small configurations with random weights."""
import torch

from support.traces import loss

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
WORDS = dict(vocab_size=60, **SMALL)
HALF = dict(num_key_value_heads=2)
CODERS = dict(vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
              encoder_ffn_dim=48, decoder_ffn_dim=48)


def text(): return {"input_ids": torch.randint(5, 50, (2, 7)), "attention_mask": torch.ones(2, 7, dtype=torch.long)}
def labeled(): return text() | {"labels": torch.randint(5, 50, (2, 7))}
def picture(): return {"pixel_values": torch.randn(2, 3, 32, 32, requires_grad=True)}
def sound(): return {"input_features": torch.randn(2, 8, 40, requires_grad=True), "labels": torch.randint(5, 50, (2, 7))}


ARCHITECTURES = {  # class of the model, of its configuration, what to put into it, inputs
    "albert": ("AlbertModel", "AlbertConfig", dict(embedding_size=16, **WORDS), text),
    "bart": ("BartForConditionalGeneration", "BartConfig", dict(max_position_embeddings=32, **CODERS), labeled),
    "bert": ("BertForMaskedLM", "BertConfig", WORDS, labeled),
    "bloom": ("BloomForCausalLM", "BloomConfig", dict(hidden_size=32, n_layer=2, n_head=4, vocab_size=60), labeled),
    "clip": ("CLIPModel", "CLIPConfig", dict(text_config=dict(max_position_embeddings=16, **WORDS),
             vision_config=dict(image_size=32, patch_size=8, **SMALL), projection_dim=16), lambda: text() | picture() | {"return_loss": True}),
    "convnext": ("ConvNextForImageClassification", "ConvNextConfig", dict(hidden_sizes=[8, 16, 24, 32], depths=[1]*4), picture),
    "deberta": ("DebertaV2Model", "DebertaV2Config", dict(relative_attention=True, pos_att_type=["p2c", "c2p"], **WORDS), text),
    "distilbert": ("DistilBertModel", "DistilBertConfig", dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=60), text),
    "funnel": ("FunnelModel", "FunnelConfig", dict(vocab_size=60, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=48), text),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", dict(head_dim=8, **HALF, **WORDS), labeled),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=60, n_positions=32), labeled),
    "llama": ("LlamaForCausalLM", "LlamaConfig", HALF | WORDS, labeled),
    "longformer": ("LongformerModel", "LongformerConfig", dict(attention_window=4, max_position_embeddings=40, **WORDS), text),
    "mamba": ("MambaForCausalLM", "MambaConfig", dict(hidden_size=32, num_hidden_layers=2, vocab_size=60, state_size=4),
              lambda: {name: x for name, x in labeled().items() if name != "attention_mask"}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", dict(num_local_experts=4, output_router_logits=True, **HALF, **WORDS), labeled),
    "perceiver": ("PerceiverModel", "PerceiverConfig", dict(d_model=16, num_latents=8, d_latents=32, num_self_attends_per_block=2,
                  num_self_attention_heads=4, num_cross_attention_heads=4), lambda: {"inputs": torch.randn(2, 7, 16, requires_grad=True)}),
    "segformer": ("SegformerModel", "SegformerConfig", dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16],
                  patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2]), picture),
    "swin": ("SwinModel", "SwinConfig", dict(image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4), picture),
    "t5": ("T5ForConditionalGeneration", "T5Config", dict(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=60,
           decoder_start_token_id=0), labeled),
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
