"""A loss of samples with samples is meant so; what mixes them before that is not."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.checking.passes import changed_beyond_softmax, is_pair_matrix, other_changed_samples

pytestmark = pytest.mark.usefixtures("one_thread")


def encoder(n_in): return nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, 16))
def twins(n=24): return torch.randn(n, 10), torch.randn(n, 9)


class Two(nn.Module):
    "Both sides are encoded, and each sample is compared with each; the batch is one dict, so that both sides change."
    def __init__(self, how, before=None):
        super().__init__()
        self.a, self.b, self.how, self.before = encoder(10), encoder(9), how, before

    def forward(self, pictures, words):
        a, b = self.a(pictures), self.b(words)
        if self.before: a, b = self.before(a), self.before(b)
        a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
        return self.how(a, b)


def with_each(a, b): return 5*a @ b.T
def both_ways(a, b): return {"of_pictures": 5*a @ b.T, "of_words": 5*b @ a.T, "pictures": a, "words": b}
def in_shares(a, b): return (5*a @ b.T).softmax(1)
def in_logs(a, b): return (5*a @ b.T).log_softmax(1)
def distances(a, b): return torch.cdist(a, b)


def views(a, b):
    z = torch.cat([a, b])
    return 5*z @ z.T


def without_themselves(a, b):
    scores = views(a, b)
    return scores[~torch.eye(len(scores), dtype=torch.bool)].view(len(scores), -1)


def loss_of(out):
    "Each sample belongs to that of its own number, or to that of the other side."
    if isinstance(out, dict): return (loss_of(out["of_pictures"]) + loss_of(out["of_words"]))/2
    n, m = out.shape
    if (out >= 0).all() and torch.allclose(out.sum(1), torch.ones(n)): return -out.diagonal().log().mean()
    if n != m: return F.cross_entropy(out, torch.cat([torch.arange(n//2) + n//2 - 1, torch.arange(n//2)]))
    return F.cross_entropy(out, torch.arange(n))


def checked(model, **options):
    torch.manual_seed(0)
    def make(): return dict(zip(("pictures", "words"), twins()))
    return hl.preflight(model, None, [make(), make()], torch.optim.Adam(model.parameters(), 1e-3), overfit=False,
                        call=lambda m, b: loss_of(m(**b)), **options)


@pytest.mark.parametrize("how", [with_each, both_ways, in_shares, in_logs, distances, views, without_themselves])
def test_samples_that_are_compared_with_each_other(how):
    torch.manual_seed(0)
    found = checked(Two(how))
    assert not {"samples leak", "softmax over samples"} & {f.what for f in found}, f"{found!r}"
    assert "No sample changes the output of another." not in found.not_looked_at


@pytest.mark.parametrize("how", [with_each, both_ways, in_shares, views, without_themselves])
@pytest.mark.parametrize("mixes", [lambda h: h - h.mean(0), lambda h: F.normalize(h, dim=0),
                                   lambda h: h + h.roll(1, 0)])
def test_what_mixes_samples_before_they_are_compared(how, mixes):
    torch.manual_seed(0)
    assert "samples leak" in checked(Two(how, mixes))


def test_scores_of_samples_that_go_back_into_the_model():
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(10, 16), nn.Linear(16, 3)

        def forward(self, x):
            h = self.a(x)
            return self.b((h @ h.T).softmax(1) @ h)
    torch.manual_seed(0)
    model, x = Attends(), torch.randn(24, 10)
    optimizer = torch.optim.Adam(model.parameters())
    found = hl.preflight(model, F.cross_entropy, (x, torch.arange(24) % 3), optimizer, overfit=False)
    assert {"samples leak", "softmax over samples"} <= {f.what for f in found}


def test_two_views_in_one_batch_are_apart():
    "With as many features as samples, the second dimension is not taken for them."
    torch.manual_seed(0)
    model = encoder(10)
    def call(m, b):
        z = F.normalize(m(torch.cat(b)), dim=1)
        scores = (5*z @ z.T).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        return F.cross_entropy(scores, torch.arange(len(z)).roll(len(z)//2))
    def make(): return torch.randn(20, 10), torch.randn(20, 10)
    found = hl.preflight(model, None, [make(), make()], torch.optim.Adam(model.parameters()), call=call, overfit=False)
    assert "samples leak" not in found, f"{found!r}"


def test_a_matrix_of_pairs():
    n, z = 12, torch.randn(12, 5)
    def scores(z): return z @ z.T
    def changed(f, i=3):
        other = z.clone()
        other[i] += 1
        return other_changed_samples(f(z), f(other), n, {i})
    assert not changed(scores) and not changed(lambda z: scores(z).softmax(1))
    assert not changed(lambda z: scores(z).log_softmax(1))
    assert changed(lambda z: scores(z - z.mean(0))) and changed(lambda z: z - z.mean(0)) and not changed(lambda z: z)
    assert not changed(lambda z: scores(torch.cat([z, 2*z])))
    assert not changed(lambda z: scores(z.repeat_interleave(2, 0)))
    assert is_pair_matrix(torch.zeros(24, 23), n)
    assert not is_pair_matrix(torch.zeros(24, 25), n) and not is_pair_matrix(torch.zeros(n), n)
    a = torch.rand(2, 9)
    assert changed_beyond_softmax(a, torch.stack([a[0]*2, a[1]**2])).tolist() == [False, True]
    assert not changed_beyond_softmax(a, a + 3).any()


@pytest.mark.peers
def test_clip_of_hugging_face():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    both = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = both | {"vocab_size": 50, "max_position_embeddings": 8, "eos_token_id": 49, "bos_token_id": 0}
    picture = both | {"image_size": 8, "patch_size": 4}
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=picture, projection_dim=16))
    def make():
        ids = torch.randint(1, 48, (20, 8))
        ids[:, -1] = 49
        return {"input_ids": ids, "pixel_values": torch.randn(20, 3, 8, 8)}
    found = hl.preflight(model, None, [make(), make()], torch.optim.Adam(model.parameters(), 1e-3), overfit=False,
                         call=lambda m, b: m(**b, return_loss=True).loss)
    assert not found, f"{found!r}"
