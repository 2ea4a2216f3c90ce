"""Forty architectures with random weights, as small as their libraries allow, on which checkpoints are tried.

`make(name, seed)` builds one. Its weights look as if it had been trained: no two tensors are equal unless they are
tied, norms are near one and not exactly one. The names and the structure are those of the library; sizes are not."""
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

CLASSES = 10


# Of torchvision

def resnet(block: str, blocks: list[int], **options) -> nn.Module:
    from torchvision.models import resnet as room
    return room.ResNet(getattr(room, block), blocks, num_classes=CLASSES, **options)


def vgg() -> nn.Module:
    from torchvision.models.vgg import VGG, make_layers
    with torch.device("meta"): model = VGG(nn.Identity(), init_weights=False)  # its usual head alone has 100 million
    model.features = make_layers([8, "M", 16, "M", 24, 24, "M", 32, 32, "M"], batch_norm=True)
    model.classifier = nn.Sequential(nn.Linear(32*49, 64), nn.ReLU(), nn.Dropout(),
                                     nn.Linear(64, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, CLASSES))
    return model


def densenet() -> nn.Module:
    from torchvision.models import DenseNet
    return DenseNet(8, (2, 3, 4, 2), 16, num_classes=CLASSES)


def torchvision_convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    sizes = (16, 32, 2), (32, 48, 2), (48, 64, 3), (64, None, 2)
    return ConvNeXt([CNBlockConfig(*size) for size in sizes], num_classes=CLASSES)


def torchvision_vit() -> nn.Module:
    from torchvision.models import VisionTransformer
    return VisionTransformer(32, 8, 3, 4, 48, 96, num_classes=CLASSES)


def torchvision_swin() -> nn.Module:
    from torchvision.models import SwinTransformer
    return SwinTransformer([4, 4], 16, [1, 2, 2, 1], [1, 2, 4, 8], [4, 4], num_classes=CLASSES)


def mvit() -> nn.Module:
    from torchvision.models.video.mvit import MSBlockConfig, MViT
    blocks = [MSBlockConfig(heads, ins, outs, [3]*3, [3]*3, [1, step, step], [1, 2, 2])
              for heads, ins, outs, step in [(1, 16, 32, 1), (2, 32, 32, 2), (2, 32, 32, 1)]]
    return MViT((32, 32), 4, blocks, False, False, False, False, num_classes=CLASSES)


def torchvision(name: str, **options) -> nn.Module:
    import torchvision.models
    return torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options)


# Of timm

def timm(name: str, **options) -> nn.Module:
    import timm as library
    return library.create_model(name, pretrained=False, num_classes=CLASSES, **options)


def mixer() -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer
    return MlpMixer(CLASSES, 32, patch_size=8, num_blocks=3, embed_dim=48)


# Of transformers

SMALL = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48)
WORDS = dict(vocab_size=60, **SMALL)
CODERS = dict(vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
              decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48)
GPT2 = dict(n_embd=32, n_layer=3, n_head=4, vocab_size=60, n_positions=24, bos_token_id=0, eos_token_id=1)
GPT_NEOX = dict(tie_word_embeddings=False, **WORDS)
LLAMA = dict(num_key_value_heads=2, tie_word_embeddings=False, **WORDS)
T5 = dict(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=60, decoder_start_token_id=0)
IMAGES = dict(image_size=32, patch_size=8, **SMALL)
CLIP = dict(text_config=dict(max_position_embeddings=16, bos_token_id=0, eos_token_id=1, **WORDS),
            vision_config=IMAGES, projection_dim=24)
WHISPER = dict(num_mel_bins=8, max_source_positions=20, max_target_positions=16, pad_token_id=0, bos_token_id=1,
               eos_token_id=2, decoder_start_token_id=3, **CODERS)
MAMBA = dict(hidden_size=32, num_hidden_layers=3, vocab_size=60, state_size=4)


def transformers(model: str, config: str, **options) -> nn.Module:
    import transformers as library
    return getattr(library, model)(getattr(library, config)(**options))


NETS: dict[str, Callable[[], nn.Module]] = {
    "torchvision resnet18": partial(resnet, "BasicBlock", [2, 2, 2, 2]),
    "torchvision resnext": partial(resnet, "Bottleneck", [1, 2, 2, 1], groups=8, width_per_group=4),
    "torchvision vgg": vgg,
    "torchvision densenet": densenet,
    "torchvision mobilenet v2": partial(torchvision, "mobilenet_v2", width_mult=.25),
    "torchvision mobilenet v3": partial(torchvision, "mobilenet_v3_small", width_mult=.5),
    "torchvision efficientnet": partial(torchvision, "efficientnet_b0"),
    "torchvision convnext": torchvision_convnext,
    "torchvision vit": torchvision_vit,
    "torchvision swin": torchvision_swin,
    "torchvision regnet": partial(torchvision, "regnet_y_400mf"),
    "torchvision googlenet": partial(torchvision, "googlenet", aux_logits=False, init_weights=False),
    "torchvision lraspp, segmentation": partial(torchvision, "lraspp_mobilenet_v3_large", weights_backbone=None),
    "torchvision ssdlite, detection": partial(torchvision, "ssdlite320_mobilenet_v3_large", weights_backbone=None),
    "torchvision mvit, video": mvit,
    "timm vit": partial(timm, "vit_tiny_patch16_224", img_size=32, embed_dim=48, depth=3),
    "timm deit": partial(timm, "deit_tiny_distilled_patch16_224", img_size=32, embed_dim=48, depth=3),
    "timm swin": partial(timm, "swin_tiny_patch4_window7_224", embed_dim=16, depths=(1, 2, 2, 1),
                         num_heads=(1, 2, 4, 8)),
    "timm convnext": partial(timm, "convnext_atto", dims=(16, 32, 48, 64), depths=(1, 1, 3, 1)),
    "timm mixer": mixer,
    "timm resnet50d": partial(timm, "resnet50d", layers=[1, 2, 2, 1], channels=(16, 32, 48, 64)),
    "timm efficientnet": partial(timm, "efficientnet_lite0"),
    "timm xcit": partial(timm, "xcit_nano_12_p16_224", embed_dim=32, depth=3),
    "timm beit": partial(timm, "beit_base_patch16_224", img_size=32, embed_dim=48, depth=3, num_heads=4),
    "timm levit": partial(timm, "levit_128s", embed_dim=(32, 48, 64), num_heads=(2, 3, 4)),
    "timm mobilevit": partial(timm, "mobilevit_xxs"),
    "transformers bert": partial(transformers, "BertForMaskedLM", "BertConfig", **WORDS),
    "transformers roberta": partial(transformers, "RobertaForSequenceClassification", "RobertaConfig", **WORDS),
    "transformers distilbert": partial(transformers, "DistilBertForMaskedLM", "DistilBertConfig",
                                       dim=32, n_layers=3, n_heads=4, hidden_dim=48, vocab_size=60),
    "transformers gpt2": partial(transformers, "GPT2LMHeadModel", "GPT2Config", **GPT2),
    "transformers gpt_neox": partial(transformers, "GPTNeoXForCausalLM", "GPTNeoXConfig", **GPT_NEOX),
    "transformers llama": partial(transformers, "LlamaForCausalLM", "LlamaConfig", **LLAMA),
    "transformers mistral": partial(transformers, "MistralForCausalLM", "MistralConfig", **LLAMA),
    "transformers qwen2": partial(transformers, "Qwen2ForCausalLM", "Qwen2Config", **LLAMA),
    "transformers t5": partial(transformers, "T5ForConditionalGeneration", "T5Config", **T5),
    "transformers bart": partial(transformers, "BartForConditionalGeneration", "BartConfig",
                                 max_position_embeddings=24, **CODERS),
    "transformers vit": partial(transformers, "ViTForImageClassification", "ViTConfig", **IMAGES),
    "transformers clip": partial(transformers, "CLIPModel", "CLIPConfig", **CLIP),
    "transformers whisper": partial(transformers, "WhisperForConditionalGeneration", "WhisperConfig", **WHISPER),
    "transformers mamba": partial(transformers, "MambaForCausalLM", "MambaConfig", **MAMBA),
}


def make(name: str, seed: int = 0) -> nn.Module:
    "The network `name`, ready for evaluation, with weights of this seed."
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        model = NETS[name]().eval()
        vary(model)
    return model


@torch.no_grad()
def vary(model: nn.Module):
    "Give weights what training gives them: what is zero or equal at the start is neither."
    for tensor in dict.fromkeys(model.state_dict(keep_vars=True).values()):
        if tensor.dtype == torch.long and tensor.ndim == 0: tensor.fill_(1000)  # how many batches a norm has seen
        if not tensor.is_floating_point() or not tensor.numel(): continue
        noise = torch.randn_like(tensor)
        if tensor.count_nonzero(): tensor.mul_(1 + noise.mul_(.1))
        else: tensor.copy_(noise.mul_(.02))
