"""What statistics add to a training step in compiled code, in one graph: without gradients, whose hooks split it."""
import torch

from tests.bench.bench_stats import Training, residual, with_hooklab
from tests.bench.measure import ratios


class Block(torch.nn.Module):
    def __init__(self, n, heads):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, torch.nn.LayerNorm(n), torch.nn.LayerNorm(n)
        self.qkv, self.out = torch.nn.Linear(n, 3*n), torch.nn.Linear(n, n)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(n, 4*n), torch.nn.GELU(), torch.nn.Linear(4*n, n))

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln2(x))


class GPT(torch.nn.Module):
    def __init__(self, n=192, layers=6, heads=6, vocabulary=256):
        super().__init__()
        self.embedding, self.position = torch.nn.Embedding(vocabulary, n), torch.nn.Parameter(.02*torch.randn(64, n))
        self.blocks = torch.nn.Sequential(*(Block(n, heads) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(n), torch.nn.Linear(n, vocabulary)

    def forward(self, x): return self.head(self.norm(self.blocks(self.embedding(x) + self.position)))[:, -1]


def gpt(): return GPT(), (16, 64), 1


class TrainingOnTokens(Training):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.x = torch.randint(0, 256, self.x.shape)


class InOneGraph:
    "A training step that is compiled without a break."
    def __init__(self, make, build, attach=None):
        self.training = make(build, attach)
        self.training.called = torch.compile(self.training.model, fullgraph=True)

    def __call__(self): self.training()


def of_all_layers(model): return with_hooklab(model, include_paramless=True, samples=True)


def added(make, build, rounds=40):
    ours = {"hooklab": with_hooklab, "hooklab, samples of all layers": of_all_layers}
    steps = {name: InOneGraph(make, build, attach) for name, attach in ours.items()}
    return ratios(InOneGraph(make, build), steps, rounds)


def measure():
    return {
        "training step of resnet18 in compiled code, to one without statistics": added(Training, residual),
        "training step of a GPT in compiled code, to one without statistics": added(TrainingOnTokens, gpt),
    }
