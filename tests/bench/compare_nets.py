"""Small random networks of many kinds, on which `hl.compare` is tried.

Each is a function `make(seed) -> (model, args, kwargs)`: a model in eval mode, in float32, and the inputs of a call.
`nets` has them all by name, `large` the names of those whose pass takes about 50 milliseconds or more. Random weights
alone would leave norms trivial, so `stir` gives every parameter and every running statistic a value that a trained
model could have."""
import math
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

nets: dict[str, Callable] = {}
large: list[str] = []


def net(make):
    "Puts a factory on the list; it runs from a random state of its own, and its model comes in eval mode."
    def seeded(seed: int = 0):
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(1000 + seed)
            model, args, kwargs = make()
            return stir(model.eval(), args, kwargs), args, kwargs
    seeded.__name__, seeded.make = make.__name__, make
    nets[make.__name__] = seeded
    if make.__name__.endswith("_large"): large.append(make.__name__)
    return seeded


@torch.no_grad()
def stir(model, args, kwargs):
    "Random parameters of a size that keeps signals alive; running statistics are measured on the inputs, and moved."
    for module in model.modules():
        kind = type(module).__name__
        for name, p in module.named_parameters(recurse=False):
            if "Norm" in kind: p.copy_(1 + .25*torch.randn_like(p) if name == "weight" else .2*torch.randn_like(p))
            elif kind.startswith(("Linear", "NonDynamic", "Conv")):
                inputs = p.shape[0] if kind == "Conv1D" else p[0].numel()
                p.copy_(torch.randn_like(p)/math.sqrt(inputs) if p.ndim > 1 else .15*torch.randn_like(p))
            elif kind in ("Embedding", "LSTM", "GRU", "GRUCell"): pass  # these begin with random values that will do
            elif name == "layer_scale": p.copy_(.4 + .1*torch.randn_like(p))
            elif name == "in_proj_weight": p.copy_(torch.randn_like(p)/math.sqrt(p.shape[1]))
            else: p.copy_(.15*torch.randn_like(p))
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d | nn.BatchNorm1d)]
    for norm in norms: norm.train().momentum = None
    if norms: model(*args, **kwargs)
    for norm in norms:
        norm.eval().momentum = .1
        norm.running_var.clamp_(min=.2*norm.running_var.mean().item())  # few values may be alike by chance
        norm.running_mean += .1*norm.running_var.sqrt()*torch.randn_like(norm.running_mean)
        norm.running_var *= 1 + .4*(torch.rand_like(norm.running_var) - .5)
    return model


def padding(batch: int, length: int, left: bool = False) -> torch.Tensor:
    "A mask of 1 and 0: of each sample but the first, some positions at the end (or at the beginning) are padding."
    lengths = torch.tensor([length - 2*i for i in range(batch)])
    mask = (torch.arange(length) < lengths[:, None]).long()
    return mask.flip(1) if left else mask


# Transformers of the package of that name

def tokens(vocabulary: int, *shape: int) -> torch.Tensor: return torch.randint(3, vocabulary, shape)


@net
def llama(length=12, **options):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = dict(vocab_size=101, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0) | options
    ids = tokens(config["vocab_size"], 3, length)
    inputs = dict(input_ids=ids, attention_mask=padding(*ids.shape), use_cache=False)
    return LlamaForCausalLM(LlamaConfig(**config)), (), inputs


@net
def llama_large():
    return llama.make(length=80, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8,
                      num_key_value_heads=4, max_position_embeddings=128, vocab_size=1000)


@net
def gpt2(**options):
    from transformers import GPT2Config, GPT2LMHeadModel
    config = dict(vocab_size=97, n_embd=64, n_layer=3, n_head=4, n_positions=48, bos_token_id=1, eos_token_id=2)
    inputs = dict(input_ids=tokens(97, 3, 12), attention_mask=padding(3, 12), use_cache=False)
    return GPT2LMHeadModel(GPT2Config(**config | options)), (), inputs


@net
def gpt2_eager():
    "The same with attention written out, its masks as numbers that are added, and the padding in front."
    model, args, kwargs = gpt2.make(attn_implementation="eager")
    return model, args, kwargs | dict(attention_mask=padding(3, 12, left=True))


@net
def bert():
    from transformers import BertConfig, BertModel
    config = BertConfig(vocab_size=89, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                        intermediate_size=128, max_position_embeddings=40)
    second = (torch.arange(14) > 6).long().expand(3, 14)
    inputs = dict(input_ids=tokens(89, 3, 14), attention_mask=padding(3, 14), token_type_ids=second)
    return BertModel(config), (), inputs


@net
def t5():
    from transformers import T5Config, T5ForConditionalGeneration
    config = T5Config(vocab_size=83, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_decoder_layers=2, num_heads=4,
                      relative_attention_num_buckets=8, relative_attention_max_distance=16, decoder_start_token_id=0,
                      feed_forward_proj="gated-gelu")
    return T5ForConditionalGeneration(config), (), dict(input_ids=tokens(83, 3, 12), attention_mask=padding(3, 12),
                                                        decoder_input_ids=tokens(83, 3, 9), use_cache=False)


@net
def mistral():
    "With a window of attention that is shorter than the sequence."
    from transformers import MistralConfig, MistralForCausalLM
    config = MistralConfig(vocab_size=79, hidden_size=48, intermediate_size=96, num_hidden_layers=3,
                           num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, sliding_window=6,
                           attn_implementation="eager")
    return MistralForCausalLM(config), (tokens(79, 2, 16),), dict(use_cache=False)


@net
def qwen2():
    "With biases in attention, padding in front, and embeddings and head tied."
    from transformers import Qwen2Config, Qwen2ForCausalLM
    config = Qwen2Config(vocab_size=103, hidden_size=48, intermediate_size=88, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         tie_word_embeddings=True)
    mask = padding(3, 11, left=True)
    return Qwen2ForCausalLM(config), (tokens(103, 3, 11),), dict(attention_mask=mask, use_cache=False)


@net
def vit():
    from transformers import ViTConfig, ViTForImageClassification
    config = ViTConfig(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96, image_size=32,
                       patch_size=8, num_labels=10)
    return ViTForImageClassification(config), (torch.randn(3, 3, 32, 32),), {}


@net
def whisper():
    from transformers import WhisperConfig, WhisperModel
    config = WhisperConfig(vocab_size=71, num_mel_bins=16, d_model=48, encoder_layers=2, decoder_layers=2,
                           encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
                           max_source_positions=20, max_target_positions=24, pad_token_id=0, bos_token_id=1,
                           eos_token_id=2, decoder_start_token_id=1)
    inputs = dict(input_features=torch.randn(2, 16, 40), decoder_input_ids=tokens(71, 2, 8), use_cache=False)
    return WhisperModel(config), (), inputs


# torchvision

def pictures(batch: int = 2, size: int = 64) -> tuple[torch.Tensor]: return (torch.randn(batch, 3, size, size),)


@net
def resnet18(): return torchvision.models.resnet18(num_classes=20), pictures(3), {}


@net
def resnet18_large(): return torchvision.models.resnet18(num_classes=20), pictures(4, 160), {}


@net
def mobilenet(): return torchvision.models.mobilenet_v3_small(num_classes=20), pictures(), {}


@net
def densenet():
    model = torchvision.models.DenseNet(growth_rate=12, block_config=(3, 4, 3), num_init_features=24, num_classes=20)
    return model, pictures(), {}


@net
def densenet_large(): return torchvision.models.densenet121(num_classes=20), pictures(2, 128), {}


@net
def convnext(): return torchvision.models.convnext_tiny(num_classes=20), pictures(1), {}


@net
def efficientnet(): return torchvision.models.efficientnet_b0(num_classes=20), pictures(), {}


# Torch's own layers of layers

class Positions(nn.Module):
    "Adds a vector for each position, sines of growing wavelength, which is a buffer."
    def __init__(self, width: int, length: int = 64):
        super().__init__()
        angles = torch.arange(length)[:, None]*torch.exp(-math.log(1e4)*torch.arange(0, width, 2)/width)
        self.register_buffer("table", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def forward(self, x): return x + self.table[:x.shape[1]]


class Tagger(nn.Module):
    "torch's TransformerEncoder over embedded tokens; tokens of 0 are padding."
    def __init__(self, vocabulary: int = 67, width: int = 48, first: bool = False, activation="relu"):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.positions = Positions(width)
        layer = nn.TransformerEncoderLayer(width, 4, 2*width, activation=activation, batch_first=True, norm_first=first)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 9)

    def forward(self, tokens):
        padded = tokens == 0
        x = self.positions(self.embedding(tokens)*math.sqrt(self.embedding.embedding_dim))
        return self.head(self.norm(self.encoder(x, src_key_padding_mask=padded)))


@net
def encoder(): return Tagger(), (tokens(67, 3, 12)*padding(3, 12),), {}


@net
def encoder_prenorm(): return Tagger(first=True, activation="gelu"), (tokens(67, 3, 12)*padding(3, 12),), {}


class Translator(nn.Module):
    "torch's Transformer, sequence first."
    def __init__(self, vocabulary: int = 61, width: int = 48):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.positions = Positions(width)
        self.transformer = nn.Transformer(width, 4, 2, 2, 2*width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source, target):
        a, b = (self.positions(e).transpose(0, 1) for e in (self.source(source), self.target(target)))
        later = torch.ones(len(b), len(b), dtype=torch.bool).triu(1)
        return self.head(self.transformer(a, b, tgt_mask=later)).transpose(0, 1)


@net
def transformer(): return Translator(), (tokens(61, 2, 10), tokens(61, 2, 8)), {}


# Written by hand

class RecurrentLM(nn.Module):
    "A language model: embedding, two layers of an LSTM or GRU, norm, head."
    def __init__(self, cell=nn.LSTM, vocabulary: int = 73, width: int = 40, layers: int = 2, two_ways: bool = False):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(.2)
        self.rnn = cell(width, width, layers, batch_first=True, bidirectional=two_ways)
        self.norm = nn.LayerNorm((1 + two_ways)*width)
        self.head = nn.Linear((1 + two_ways)*width, vocabulary)

    def forward(self, tokens, state=None):
        output, state = self.rnn(self.dropout(self.embedding(tokens)), state)
        return self.head(self.norm(output)), state


@net
def lstm(): return RecurrentLM(), (tokens(73, 3, 15),), {}


@net
def gru(): return RecurrentLM(nn.GRU, width=32, two_ways=True), (tokens(73, 3, 13),), {}


class Attend(nn.Module):
    "Additive attention of a decoder's state over the outputs of an encoder."
    def __init__(self, width: int):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(2*width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, state, outputs, mask):
        scores = self.score(torch.tanh(self.query(state)[:, None] + self.key(outputs))).squeeze(-1)
        weights = scores.masked_fill(mask == 0, -1e9).softmax(dim=-1)
        return (weights[..., None]*outputs).sum(1)


class Seq2Seq(nn.Module):
    "A GRU that reads both ways, and a GRU cell that writes, a step at a time, with attention."
    def __init__(self, vocabulary: int = 59, width: int = 32):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.reader = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2*width, width)
        self.attend = Attend(width)
        self.cell = nn.GRUCell(3*width, width)
        self.head = nn.Linear(4*width, vocabulary)

    def forward(self, source, target, mask):
        outputs, last = self.reader(self.source(source))
        state = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=-1)))
        logits = []
        for step in range(target.shape[1]):
            word = self.target(target[:, step])
            context = self.attend(state, outputs, mask)
            state = self.cell(torch.cat([word, context], dim=-1), state)
            logits.append(self.head(torch.cat([state, context, word], dim=-1)))
        return torch.stack(logits, dim=1)


@net
def seq2seq(): return Seq2Seq(), (tokens(59, 3, 11), tokens(59, 3, 6)), dict(mask=padding(3, 11))


class TwoConvs(nn.Sequential):
    def __init__(self, before: int, after: int):
        super().__init__(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
                         nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


class Up(nn.Module):
    "Twice the size, beside what the way down kept."
    def __init__(self, before: int, after: int):
        super().__init__()
        self.scale = nn.Upsample(scale_factor=2, mode="bilinear")
        self.reduce = nn.Conv2d(before, after, 1)
        self.convs = TwoConvs(2*after, after)

    def forward(self, x, kept):
        x = self.reduce(self.scale(x))
        return self.convs(torch.cat([kept, x], dim=1))


class UNet(nn.Module):
    def __init__(self, width: int = 12, depth: int = 3):
        super().__init__()
        sizes = [width*2**i for i in range(depth + 1)]
        self.down = nn.ModuleList(TwoConvs(a, b) for a, b in zip([3, *sizes], sizes[:-1]))
        self.pool = nn.MaxPool2d(2)
        self.middle = TwoConvs(sizes[-2], sizes[-1])
        self.up = nn.ModuleList(Up(b, a) for a, b in reversed(list(zip(sizes, sizes[1:]))))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for block in self.up: x = block(x, kept.pop())
        return self.last(x).clamp(-1, 1)


@net
def unet(): return UNet(), (torch.randn(2, 3, 32, 32),), {}


@net
def unet_large(): return UNet(24), (torch.randn(2, 3, 128, 128),), {}


class Perceptron(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)

    def forward(self, x): return self.fc2(self.act(self.fc1(x)))


class MixerBlock(nn.Module):
    def __init__(self, width: int, places: int):
        super().__init__()
        self.norm1, self.places = nn.LayerNorm(width), Perceptron(places, 2*places)
        self.norm2, self.channels = nn.LayerNorm(width), Perceptron(width, 2*width)

    def forward(self, x):
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    "An MLP-mixer for pictures of 32 by 32."
    def __init__(self, width: int = 48, blocks: int = 4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(*(MixerBlock(width, 16) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


@net
def mixer(): return Mixer(), (torch.randn(3, 3, 32, 32),), {}


class SelfAttention(nn.Module):
    "Query, key and value in one projection."
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.scale = heads, (width//heads)**-.5
        self.qkv, self.proj = nn.Linear(width, 3*width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2)*self.scale).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))


class ViTBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), SelfAttention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width), Perceptron(width, 3*width)
        self.drop = nn.Dropout(.1)

    def forward(self, x):
        x = x + self.drop(self.attn(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class OwnViT(nn.Module):
    "A vision transformer for pictures of 32 by 32."
    def __init__(self, width: int = 48, blocks: int = 4, heads: int = 4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = Positions(width)
        self.blocks = nn.ModuleList(ViTBlock(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = self.positions(torch.cat([self.token.expand(len(x), -1, -1), x], dim=1))
        for block in self.blocks: x = block(x)
        return self.head(self.norm(x)[:, 0])


@net
def vit_own(): return OwnViT(), (torch.randn(3, 3, 32, 32),), {}


@net
def vit_own_large(): return OwnViT(384, 6, 6), (torch.randn(10, 3, 48, 48),), {}


class ResidualBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int = 1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.act = nn.LeakyReLU(.1)
        self.shortcut = nn.Conv2d(before, after, 1, stride) if before != after else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))
        return self.act(y + self.shortcut(x))


class ResidualCNN(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.GroupNorm(4, width), nn.SiLU(), nn.MaxPool2d(2))
        self.stages = nn.Sequential(ResidualBlock(width, width), ResidualBlock(width, 2*width, 2),
                                    ResidualBlock(2*width, 2*width))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.neck = nn.Sequential(nn.Flatten(), nn.Linear(8*width, 32), nn.ReLU6(), nn.Dropout(.3))
        self.head = nn.Linear(32, 10)

    def forward(self, x): return F.log_softmax(self.head(self.neck(self.pool(self.stages(self.stem(x)))*8)), dim=-1)


@net
def cnn(): return ResidualCNN(), (torch.randn(3, 3, 32, 32),), {}


class SharedLayer(nn.Module):
    "One block that is called several times, as in ALBERT: mean over the tokens that are no padding at the end."
    def __init__(self, vocabulary: int = 53, width: int = 40, times: int = 3):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width, padding_idx=0), nn.Embedding(32, width)
        self.times, self.block = times, ViTBlock(width, 4)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 6)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for _ in range(self.times): x = self.block(x)
        mask = (tokens != 0)[..., None].to(x.dtype)
        return self.head((self.norm(x)*mask).sum(1)/mask.sum(1))


@net
def shared(): return SharedLayer(), (tokens(53, 3, 10)*padding(3, 10),), {}


def main():
    import time
    torch.set_num_threads(1)
    for name, make in nets.items():
        start = time.perf_counter()
        model, args, kwargs = make(0)
        made = time.perf_counter() - start
        with torch.no_grad():
            model(*args, **kwargs)
            times = []
            for _ in range(5):
                start = time.perf_counter()
                model(*args, **kwargs)
                times.append(time.perf_counter() - start)
        count = sum(p.numel() for p in model.parameters())
        print(f"{name:<18} {1000*sorted(times)[2]:7.1f} ms a pass  {1000*made:6.0f} ms to make  "
              f"{len(list(model.modules())):4} modules  {count:9,} parameters")


if __name__ == "__main__": main()
