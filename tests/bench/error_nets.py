"""Small healthy models with random weights, in which errors are planted: error_cases.py.

`nets` has a factory for each, `make() -> (model, args, kwargs)`, by name; a name begins with its source: tv_ is of
torchvision, timm_ and hf_ (transformers) are of these packages, and the others are written here. Libraries are imported
when a factory needs them. All are small enough for a pass in a few hundredths of a second, and in eval mode."""
import importlib
import math
import random
import warnings
from collections.abc import Callable
from zlib import crc32

import torch
from torch import nn
from torch.nn import functional as F

nets: dict[str, Callable] = {}
SOURCES = {"tv": "torchvision", "timm": "timm", "hf": "transformers"}


def source_of(name: str) -> str: return SOURCES.get(name.split("_")[0], "hand-written")


def net(make):
    "Puts a factory on the list; it runs from a random state of its own, and its model comes in eval mode."
    def seeded():
        state = random.getstate()
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(crc32(make.__name__.encode()))
            random.seed(0)
            model, args, kwargs = make()
        random.setstate(state)
        return model.eval(), args, kwargs
    nets[make.__name__] = seeded
    return make


def pictures(size: int = 32, batch: int = 2, channels: int = 3) -> tuple[torch.Tensor]:
    return (torch.randn(batch, channels, size, size),)


def tokens(vocabulary: int, *shape: int) -> torch.Tensor: return torch.randint(3, vocabulary, shape)


def padding(batch: int, length: int) -> torch.Tensor:
    "A mask of 1 and 0: of each sample but the first, some positions at the end are padding."
    return (torch.arange(length) < length - 2*torch.arange(batch)[:, None]).long()


# torchvision

def tv(name: str):
    "A module of torchvision.models."
    return importlib.import_module(f"torchvision.models{'.' if name else ''}{name}")


@net
def tv_resnet():
    r = tv("resnet")
    return r.ResNet(r.BasicBlock, [1, 2, 1, 1], num_classes=10), pictures(64), {}


@net
def tv_resnext():
    r = tv("resnet")
    return r.ResNet(r.Bottleneck, [1, 1, 1, 1], num_classes=12, groups=8, width_per_group=4), pictures(64), {}


@net
def tv_densenet():
    model = tv("densenet").DenseNet(12, (2, 3, 2), num_init_features=24, num_classes=10)
    return model, pictures(64), {}


@net
def tv_squeezenet(): return tv("squeezenet").SqueezeNet("1_1", num_classes=10), pictures(64), {}


@net
def tv_googlenet():
    model = tv("googlenet").GoogLeNet(num_classes=10, aux_logits=False, init_weights=False)
    return model, pictures(64), {}


@net
def tv_shufflenet():
    model = tv("shufflenetv2").ShuffleNetV2([2, 2, 2], [16, 24, 48, 96, 128], num_classes=10)
    return model, pictures(64), {}


@net
def tv_mobilenetv2(): return tv("mobilenetv2").MobileNetV2(num_classes=10, width_mult=.25), pictures(64), {}


@net
def tv_mobilenetv3():
    m = tv("mobilenetv3")
    blocks = [m.InvertedResidualConfig(*row, 1, 1.) for row in [
        (16, 3, 16, 16, True, "RE", 2), (16, 3, 72, 24, False, "RE", 2), (24, 3, 88, 24, False, "RE", 1),
        (24, 5, 96, 40, True, "HS", 2), (40, 5, 120, 40, True, "HS", 1)]]
    return m.MobileNetV3(blocks, 128, num_classes=10), pictures(64), {}


@net
def tv_convnext():
    c = tv("convnext")
    blocks = [c.CNBlockConfig(16, 32, 2), c.CNBlockConfig(32, 48, 1), c.CNBlockConfig(48, None, 1)]
    return c.ConvNeXt(blocks, num_classes=10), pictures(64), {}


@net
def tv_vit():
    model = tv("vision_transformer").VisionTransformer(32, 8, 3, 4, 48, 96, num_classes=10)
    return model, pictures(), {}


@net
def tv_swin():
    model = tv("swin_transformer").SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
    return model, pictures(), {}


@net
def tv_vgg():
    v = tv("vgg")
    features = v.make_layers([8, "M", 16, "M", 32, 32, "M"], batch_norm=True)
    with torch.device("meta"): model = v.VGG(features, init_weights=False)  # its classifier is large
    model.avgpool = nn.AdaptiveAvgPool2d(2)
    model.classifier = nn.Sequential(nn.Linear(32*4, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10))
    return model, pictures(), {}


@net
def tv_segment():
    "A network of the shape of DeepLab: a small backbone, and the head with its pyramid of dilated convolutions."
    backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1))
    head = tv("segmentation.deeplabv3").DeepLabHead(32, 5, (2, 4))
    return nn.Sequential(backbone, head), pictures(64), {}


@net
def tv_video():
    v = tv("video.resnet")
    model = v.VideoResNet(v.BasicBlock, [v.Conv3DSimple]*4, [1, 1, 1, 1], v.BasicStem, num_classes=5)
    return model, (torch.randn(1, 3, 4, 32, 32),), {}


@net
def tv_pyramid():
    "A feature pyramid over a ladder of convolutions."
    return Pyramid(), pictures(64), {}


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        from torchvision.ops import FeaturePyramidNetwork
        sizes = 12, 24, 40
        self.steps = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in zip((3, *sizes), sizes))
        self.fpn = FeaturePyramidNetwork(list(sizes), 16)
        self.predict = nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x):
        found = {}
        for i, step in enumerate(self.steps):
            x = F.relu(step(x))
            found[f"level{i}"] = x
        return [self.predict(level) for level in self.fpn(found).values()]


# timm

def timm_model(name: str, size: int = 64, **options):
    import timm
    return timm.create_model(name, pretrained=False, num_classes=10, **options), pictures(size), {}


@net
def timm_vit(): return timm_model("test_vit", img_size=64, depth=3)


@net
def timm_vit_fixed(): return timm_model("test_vit", img_size=64, depth=2, dynamic_img_size=False)


@net
def timm_vit_registers(): return timm_model("test_vit3", img_size=64, depth=2)


@net
def timm_deit():
    return timm_model("deit_tiny_distilled_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=3)


@net
def timm_resnet(): return timm_model("test_resnet")


@net
def timm_convnext(): return timm_model("test_convnext")


@net
def timm_efficientnet(): return timm_model("test_efficientnet")


@net
def timm_efficientnet_gn(): return timm_model("test_efficientnet_gn")


@net
def timm_byobnet(): return timm_model("test_byobnet")


@net
def timm_nfnet(): return timm_model("test_nfnet")


@net
def timm_mixer():
    from timm.models.mlp_mixer import MlpMixer
    return MlpMixer(10, 32, patch_size=8, num_blocks=2, embed_dim=32), pictures(), {}


@net
def timm_gmlp():
    from timm.models import mlp_mixer as m
    model = m.MlpMixer(10, 32, patch_size=8, num_blocks=2, embed_dim=32, mlp_ratio=6, mlp_layer=m.GatedMlp,
                       block_layer=m.SpatialGatingBlock)
    return model, pictures(), {}


@net
def timm_res2net(): return timm_model("res2net50_26w_4s", layers=(1, 1, 1, 1), channels=(16, 24, 32, 48))


@net
def timm_densenet(): return timm_model("densenet121", growth_rate=8, block_config=(2, 2, 2, 2))


@net
def timm_vovnet(): return timm_model("ese_vovnet19b_slim_dw")


@net
def timm_dla(): return timm_model("dla46_c")


@net
def timm_ghostnet(): return timm_model("ghostnet_050")


@net
def timm_mobilevit(): return timm_model("mobilevit_xxs")


@net
def timm_edgenext(): return timm_model("edgenext_xx_small")


@net
def timm_swin():
    return timm_model("swin_tiny_patch4_window7_224", 32, img_size=32, embed_dim=16, depths=(2, 1), num_heads=(2, 4),
                      window_size=4)


@net
def timm_cait(): return timm_model("cait_xxs24_224", img_size=64, embed_dim=32, depth=2, num_heads=4)


# transformers

def hf(kind: str, name: str, **config):
    "A model of transformers from its class and its configuration."
    import transformers
    return getattr(transformers, name)(getattr(transformers, f"{kind}Config")(**config))


def text(vocabulary: int, length: int = 12, batch: int = 3) -> dict:
    return dict(input_ids=tokens(vocabulary, batch, length), attention_mask=padding(batch, length))


@net
def hf_llama():
    model = hf("Llama", "LlamaForCausalLM", vocab_size=101, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0)
    return model, (), text(101) | dict(use_cache=False)


@net
def hf_gpt2():
    model = hf("GPT2", "GPT2LMHeadModel", vocab_size=97, n_embd=48, n_layer=2, n_head=4, n_positions=24,
               bos_token_id=1, eos_token_id=2)
    return model, (), text(97) | dict(use_cache=False)


@net
def hf_bert():
    model = hf("Bert", "BertForSequenceClassification", vocab_size=89, hidden_size=48, num_hidden_layers=2,
               num_attention_heads=4, intermediate_size=96, max_position_embeddings=24, num_labels=3)
    return model, (), text(89) | dict(token_type_ids=(torch.arange(12) > 6).long().expand(3, 12))


@net
def hf_distilbert():
    model = hf("DistilBert", "DistilBertForTokenClassification", vocab_size=89, dim=48, n_layers=2, n_heads=4,
               hidden_dim=96, max_position_embeddings=20, num_labels=5)
    return model, (), text(89)


@net
def hf_roberta():
    model = hf("Roberta", "RobertaForMaskedLM", vocab_size=79, hidden_size=48, num_hidden_layers=2,
               num_attention_heads=4, intermediate_size=96, max_position_embeddings=22)
    return model, (), text(79)


@net
def hf_electra():
    model = hf("Electra", "ElectraForTokenClassification", vocab_size=79, embedding_size=24, hidden_size=48,
               num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, max_position_embeddings=20)
    return model, (), text(79)


@net
def hf_albert():
    model = hf("Albert", "AlbertModel", vocab_size=79, embedding_size=16, hidden_size=48, num_hidden_layers=3,
               num_attention_heads=4, intermediate_size=96, max_position_embeddings=20)
    return model, (), text(79)


@net
def hf_t5():
    model = hf("T5", "T5ForConditionalGeneration", vocab_size=83, d_model=48, d_kv=12, d_ff=96, num_layers=2,
               num_decoder_layers=2, num_heads=4, relative_attention_num_buckets=8, decoder_start_token_id=0)
    return model, (), text(83) | dict(decoder_input_ids=tokens(83, 3, 9), use_cache=False)


@net
def hf_bart():
    model = hf("Bart", "BartForConditionalGeneration", vocab_size=83, d_model=48, encoder_layers=2, decoder_layers=2,
               encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
               max_position_embeddings=24, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return model, (), text(83) | dict(decoder_input_ids=tokens(83, 3, 9), use_cache=False)


@net
def hf_whisper():
    model = hf("Whisper", "WhisperModel", vocab_size=71, num_mel_bins=16, d_model=48, encoder_layers=2,
               decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
               decoder_ffn_dim=96, max_source_positions=20, max_target_positions=24, pad_token_id=0, bos_token_id=1,
               eos_token_id=2, decoder_start_token_id=1)
    return model, (), dict(input_features=torch.randn(2, 16, 40), decoder_input_ids=tokens(71, 2, 8), use_cache=False)


@net
def hf_opt():
    model = hf("OPT", "OPTForCausalLM", vocab_size=83, hidden_size=48, num_hidden_layers=2, ffn_dim=96,
               num_attention_heads=4, max_position_embeddings=24, word_embed_proj_dim=48)
    return model, (), text(83) | dict(use_cache=False)


@net
def hf_neox():
    model = hf("GPTNeoX", "GPTNeoXForCausalLM", vocab_size=83, hidden_size=48, num_hidden_layers=2,
               num_attention_heads=4, intermediate_size=96, max_position_embeddings=64)
    return model, (), text(83) | dict(use_cache=False)


@net
def hf_clip():
    words = dict(vocab_size=83, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=16, eos_token_id=82, bos_token_id=1, pad_token_id=0)
    images = dict(hidden_size=36, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                  patch_size=8)
    model = hf("CLIP", "CLIPModel", text_config=words, vision_config=images, projection_dim=24)
    return model, (), text(82, 10) | dict(pixel_values=pictures(batch=3)[0])


@net
def hf_vit():
    model = hf("ViT", "ViTForImageClassification", hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
               intermediate_size=96, image_size=32, patch_size=8, num_labels=10)
    return model, pictures(), {}


@net
def hf_resnet():
    model = hf("ResNet", "ResNetForImageClassification", embedding_size=16, hidden_sizes=[16, 24, 32],
               depths=[1, 2, 1], layer_type="basic", num_labels=10)
    return model, pictures(64), {}


@net
def hf_segformer():
    model = hf("Segformer", "SegformerForSemanticSegmentation", depths=[1, 1], num_encoder_blocks=2, sr_ratios=[2, 1],
               hidden_sizes=[16, 24], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2],
               mlp_ratios=[2, 2], decoder_hidden_size=20, num_labels=4)
    return model, pictures(64), {}


@net
def hf_wav2vec2():
    model = hf("Wav2Vec2", "Wav2Vec2Model", hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
               intermediate_size=96, conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3),
               num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, feat_extract_norm="layer",
               mask_time_prob=0.)
    return model, (torch.randn(2, 1200),), {}


# Written here

@net
def mlp():
    sizes = 20, 64, 32, 16, 5
    layers = []
    for a, b in zip(sizes, sizes[1:]): layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(.1)]
    return nn.Sequential(*layers[:-3]), (torch.randn(8, 20),), {}


class LeNet(nn.Module):
    def __init__(self, size: int = 32, classes: int = 10):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2, 2)
        after = ((size - 4)//2 - 4)//2
        self.fc1, self.fc2, self.fc3 = nn.Linear(16*after**2, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16*5*5)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


@net
def lenet(): return LeNet(), pictures(batch=4), {}


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1)
        self.norm1 = nn.GroupNorm(4, after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1)
        self.norm2 = nn.GroupNorm(4, after)
        self.shortcut = nn.Conv2d(before, after, 1, stride)

    def forward(self, x):
        y = F.silu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.silu(y + self.shortcut(x))


class SmallResNet(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.GroupNorm(4, width), nn.SiLU())
        self.blocks = nn.Sequential(Residual(width, width), Residual(width, 2*width, 2), Residual(2*width, 4*width, 2))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4*width, 10))

    def forward(self, x): return self.head(self.blocks(self.stem(x)))


@net
def resnet(): return SmallResNet(), pictures(), {}


def two_convs(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
                         nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.down1, self.down2 = two_convs(3, width), two_convs(width, 2*width)
        self.middle = two_convs(2*width, 4*width)
        self.up2, self.merge2 = nn.ConvTranspose2d(4*width, 2*width, 2, 2), two_convs(4*width, 2*width)
        self.up1, self.merge1 = nn.ConvTranspose2d(2*width, width, 2, 2), two_convs(2*width, width)
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.middle(self.pool(b))
        y = self.merge2(torch.cat([self.up2(c), b], dim=1))
        y = self.merge1(torch.cat([self.up1(y), a], dim=1))
        return self.last(y)


@net
def unet(): return UNet(), pictures(), {}


class Inception(nn.Module):
    def __init__(self, before: int, width: int):
        super().__init__()
        self.one = nn.Conv2d(before, width, 1)
        self.three = nn.Sequential(nn.Conv2d(before, width//2, 1), nn.ReLU(), nn.Conv2d(width//2, width, 3, padding=1))
        self.five = nn.Sequential(nn.Conv2d(before, width//2, 1), nn.ReLU(), nn.Conv2d(width//2, width, 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(before, width, 1))

    def forward(self, x):
        branches = [self.one(x), self.three(x), self.five(x), self.pool(x)]
        return F.relu(torch.cat(branches, dim=1))


@net
def inception():
    model = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), Inception(12, 8), nn.MaxPool2d(2),
                          Inception(32, 12), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(4*48, 10))
    return model, pictures(28, channels=1), {}


class Depthwise(nn.Module):
    "Separable convolutions in blocks with an expansion, a squeeze and a residual."
    def __init__(self, width: int, more: int = 2):
        super().__init__()
        inner = more*width
        self.expand = nn.Conv2d(width, inner, 1)
        self.depth = nn.Conv2d(inner, inner, 3, padding=1, groups=inner)
        self.norm = nn.BatchNorm2d(inner)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, width//4, 1), nn.ReLU(),
                                     nn.Conv2d(width//4, inner, 1), nn.Sigmoid())
        self.project = nn.Conv2d(inner, width, 1)

    def forward(self, x):
        y = F.relu6(self.norm(self.depth(F.relu6(self.expand(x)))))
        return x + self.project(y*self.squeeze(y))


@net
def mobile():
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), Depthwise(16), Depthwise(16, 3),
                          nn.Conv2d(16, 32, 3, 2, 1, groups=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(32, 6))
    return model, pictures(), {}


class Attention(nn.Module):
    "Query, key and value in one projection."
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3*width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width//self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1)/math.sqrt(q.shape[-1])
        if mask is not None: scores = scores.masked_fill(mask, float("-inf"))
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Perceptron(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x): return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width), Perceptron(width, 4*width)

    def forward(self, x, mask=None):
        x = x + self.attn(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 61, width: int = 48, longest: int = 16, blocks: int = 3):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        self.register_buffer("mask", torch.ones(longest, longest).triu(1).bool())

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.token(tokens) + self.position(torch.arange(length))
        for block in self.blocks: x = block(x, self.mask[:length, :length])
        return self.head(self.norm(x))


@net
def gpt(): return GPT(), (tokens(61, 2, 12),), {}


class ViT(nn.Module):
    def __init__(self, size: int = 32, patch: int = 8, width: int = 48):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size//patch)**2 + 1, width))
        self.blocks = nn.Sequential(Block(width, 6), Block(width, 6))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        x = self.blocks(x + self.positions)
        return self.head(self.norm(x[:, 0]))


@net
def vit(): return ViT(), pictures(), {}


class Tagger(nn.Module):
    "Torch's encoder over embedded words, with positions in a buffer."
    def __init__(self, vocabulary: int = 67, width: int = 48, longest: int = 20):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        angles = torch.arange(longest)[:, None]*torch.exp(-math.log(1e4)*torch.arange(0, width, 2)/width)
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))
        layer = nn.TransformerEncoderLayer(width, 4, 96, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 9)

    def forward(self, tokens, mask=None, padded=None):
        x = self.embedding(tokens) + self.positions[:tokens.shape[1]]
        return self.head(self.encoder(x, mask=mask, src_key_padding_mask=padded))


@net
def tagger():
    model = Tagger()
    mask = torch.ones(12, 12).triu(1).bool()
    return model, (tokens(67, 3, 12),), dict(mask=mask, padded=padding(3, 12) == 0)


class Translator(nn.Module):
    "Encoder and decoder of torch's own layers."
    def __init__(self, vocabulary: int = 59, width: int = 40, longest: int = 24):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(longest, width)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 80, batch_first=True), 2,
                                             enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(width, 4, 80, batch_first=True), 2)
        self.head = nn.Linear(width, vocabulary)

    def placed(self, x): return x + self.position(torch.arange(x.shape[1]))

    def forward(self, source, target, target_mask=None):
        memory = self.encoder(self.placed(self.source(source)))
        y = self.decoder(self.placed(self.target(target)), memory, tgt_mask=target_mask)
        return self.head(y)


@net
def translator():
    mask = torch.ones(7, 7).triu(1).bool()
    return Translator(), (tokens(59, 2, 10), tokens(59, 2, 7)), dict(target_mask=mask)


class Reader(nn.Module):
    "A recurrent network over words, with a state that may be given."
    def __init__(self, vocabulary: int = 71, width: int = 32, hidden: int = 24, classes: int = 4):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, hidden, 2, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2*hidden)
        self.head = nn.Linear(2*hidden, classes)

    def forward(self, tokens, state=None):
        y, _ = self.rnn(self.embedding(tokens), state)
        return self.head(self.norm(y).mean(1))


@net
def reader():
    return Reader(), (tokens(71, 3, 11),), dict(state=(torch.zeros(4, 3, 24), torch.zeros(4, 3, 24)))


class Seq2Seq(nn.Module):
    "A GRU that reads, and a GRU cell that writes with attention."
    def __init__(self, vocabulary: int = 53, width: int = 24):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.read = nn.GRU(width, width, batch_first=True)
        self.query = nn.Linear(width, width)
        self.cell = nn.GRUCell(2*width, width)
        self.head = nn.Linear(2*width, vocabulary)

    def forward(self, source, target):
        kept, state = self.read(self.words(source))
        state, logits = state[0], []
        for word in self.words(target).unbind(1):
            weights = torch.bmm(kept, self.query(state)[:, :, None]).softmax(1)
            context = (weights*kept).sum(1)
            state = self.cell(torch.cat([word, context], dim=1), state)
            logits.append(self.head(torch.cat([state, context], dim=1)))
        return torch.stack(logits, dim=1)


@net
def seq2seq(): return Seq2Seq(), (tokens(53, 3, 9), tokens(53, 3, 5)), {}


class TextCNN(nn.Module):
    def __init__(self, vocabulary: int = 71, width: int = 24, filters: int = 10):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, filters, size) for size in (2, 3, 4))
        self.head = nn.Linear(3*filters, 3)

    def forward(self, tokens):
        x = self.embedding(tokens).transpose(1, 2)
        found = [F.relu(conv(x)).amax(-1) for conv in self.convs]
        return self.head(torch.cat(found, dim=1))


@net
def textcnn(): return TextCNN(), (tokens(71, 3, 12),), {}


class Dilated(nn.Module):
    "A gated convolution over time, with a residual and a skip."
    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.gate = nn.Conv1d(width, 2*width, 3, padding=dilation, dilation=dilation)
        self.residual, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x):
        a, b = self.gate(x).chunk(2, dim=1)
        y = torch.tanh(a)*torch.sigmoid(b)
        return x + self.residual(y), self.skip(y)


class WaveNet(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.blocks = nn.ModuleList(Dilated(width, 2**i) for i in range(3))
        self.last = nn.Conv1d(width, 8, 1)

    def forward(self, x):
        x, total = self.first(x), 0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        return self.last(F.relu(total))


@net
def wavenet(): return WaveNet(), (torch.randn(2, 1, 40),), {}


class Fusion(nn.Module):
    "A picture and a row of a table, with embedded categories, in one prediction."
    def __init__(self):
        super().__init__()
        self.picture = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
                                     nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.categories = nn.ModuleList(nn.Embedding(n, 4) for n in (5, 9))
        self.table = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64 + 8 + 16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, picture, numbers, categories):
        words = [layer(categories[:, i]) for i, layer in enumerate(self.categories)]
        x = torch.cat([self.picture(picture), *words, self.table(numbers)], dim=1)
        return self.head(x)


@net
def fusion():
    categories = torch.stack([torch.randint(0, 5, (4,)), torch.randint(0, 9, (4,))], 1)
    return Fusion(), (pictures(16, 4)[0], torch.randn(4, 6), categories), {}


class AutoEncoder(nn.Module):
    "With a bottleneck that is reshaped to a picture again."
    def __init__(self, width: int = 8, code: int = 12):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2*width, 3, 2, 1),
                                    nn.ReLU(), nn.Flatten())
        self.mean, self.spread = nn.Linear(2*width*49, code), nn.Linear(2*width*49, code)
        self.back = nn.Linear(code, 2*width*49)
        self.decode = nn.Sequential(nn.ConvTranspose2d(2*width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
                                    nn.ConvTranspose2d(width, 1, 4, 2, 1))

    def forward(self, x):
        hidden = self.encode(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + spread.exp()*.1
        y = self.back(code).view(-1, 16, 7, 7)
        return x - self.decode(y), mean, spread


@net
def autoencoder(): return AutoEncoder(), pictures(28, 3, 1), {}


class CRNN(nn.Module):
    "Convolutions over a line of text, then a GRU over its columns."
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.rnn = nn.GRU(16*4, 20, batch_first=True, bidirectional=True)
        self.head = nn.Linear(40, 11)

    def forward(self, x):
        x = self.conv(x)
        batch, channels, height, width = x.shape
        x = x.permute(0, 3, 1, 2).reshape(batch, width, channels*height)
        return self.head(self.rnn(x)[0])


@net
def crnn(): return CRNN(), (torch.randn(2, 1, 16, 40),), {}


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.wide = nn.Sequential(nn.Conv1d(16, 48, 1), nn.BatchNorm1d(48), nn.ReLU())
        self.head = nn.Sequential(nn.Conv1d(64, 24, 1), nn.ReLU(), nn.Conv1d(24, 6, 1))

    def forward(self, points):
        x = self.local(points)
        whole = self.wide(x).amax(-1, keepdim=True).expand(-1, -1, points.shape[-1])
        return self.head(torch.cat([x, whole], dim=1))


@net
def pointnet(): return PointNet(), (torch.randn(2, 3, 30),), {}


class GraphLayer(nn.Module):
    def __init__(self, before: int, after: int):
        super().__init__()
        self.own, self.others = nn.Linear(before, after), nn.Linear(before, after)

    def forward(self, x, adjacency): return self.own(x) + adjacency @ self.others(x)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([GraphLayer(7, 16), GraphLayer(16, 24), GraphLayer(24, 16)])
        self.head = nn.Linear(16, 3)

    def forward(self, x, adjacency):
        for layer in self.layers: x = layer(x, adjacency).relu()
        return self.head(x)


@net
def gcn(): return GCN(), (torch.randn(14, 7), (torch.rand(14, 14) > .7).float()), {}


class Perceiver(nn.Module):
    "A few learned vectors read the input with torch's attention, twice."
    def __init__(self, width: int = 32, inputs: int = 20):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(6, width))
        self.read = nn.MultiheadAttention(width, 4, kdim=inputs, vdim=inputs, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.think = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.head = nn.Linear(6*width, 5)

    def forward(self, x, padded=None):
        y = self.latents.expand(x.shape[0], -1, -1)
        y = self.norm1(y + self.read(y, x, x, key_padding_mask=padded)[0])
        y = self.norm2(y + self.think(y, y, y)[0])
        return self.head(y.flatten(1))


@net
def perceiver(): return Perceiver(), (torch.randn(3, 15, 20),), dict(padded=padding(3, 15) == 0)


class Generator(nn.Module):
    def __init__(self, code: int = 16, width: int = 8):
        super().__init__()
        self.first = nn.Linear(code, 4*width*16)
        self.ups = nn.Sequential(nn.ConvTranspose2d(4*width, 2*width, 4, 2, 1), nn.BatchNorm2d(2*width), nn.ReLU(),
                                 nn.ConvTranspose2d(2*width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
                                 nn.Conv2d(width, 3, 3, padding=1), nn.Tanh())

    def forward(self, code):
        x = self.first(code)
        return self.ups(x.reshape(code.shape[0], 32, 4, 4))


@net
def generator(): return Generator(), (torch.randn(3, 16),), {}


class Recommender(nn.Module):
    def __init__(self, users: int = 30, films: int = 40, width: int = 12):
        super().__init__()
        self.users, self.films = nn.Embedding(users, width), nn.Embedding(films, width)
        self.mlp = nn.Sequential(nn.Linear(2*width, 20), nn.ReLU(), nn.Linear(20, 8))
        self.last = nn.Linear(width + 8, 1)

    def forward(self, user, film):
        u, f = self.users(user), self.films(film)
        deep = self.mlp(torch.cat([u, f], dim=-1))
        return self.last(torch.cat([u*f, deep], dim=-1)).squeeze(-1)


@net
def recommender(): return Recommender(), (torch.randint(0, 30, (6,)), torch.randint(0, 40, (6,))), {}


class ConvLSTM(nn.Module):
    "A cell with convolutions over a film, a picture at a time."
    def __init__(self, channels: int = 2, hidden: int = 6):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(channels + hidden, 4*hidden, 3, padding=1)
        self.out = nn.Conv2d(hidden, channels, 1)

    def forward(self, film):
        batch, length, _, height, width = film.shape
        h = c = film.new_zeros(batch, self.hidden, height, width)
        for t in range(length):
            i, f, o, g = self.gates(torch.cat([film[:, t], h], dim=1)).chunk(4, dim=1)
            c = f.sigmoid()*c + i.sigmoid()*g.tanh()
            h = o.sigmoid()*c.tanh()
        return self.out(h)


@net
def convlstm(): return ConvLSTM(), (torch.randn(2, 4, 2, 12, 12),), {}


class Upscaler(nn.Module):
    "A picture of twice the size, by shuffled channels, on top of one that is only stretched."
    def __init__(self, width: int = 12):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.PReLU(width),
                                  nn.Conv2d(width, 12, 3, padding=1))
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x): return self.shuffle(self.body(x)) + F.interpolate(x, scale_factor=2)


@net
def upscaler(): return Upscaler(), pictures(16), {}
