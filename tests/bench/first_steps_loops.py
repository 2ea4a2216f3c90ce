"""Training loops of common kinds on synthetic data, ten of them with steps of a quarter of a millisecond up to 200.

Each is a function that returns `(model, optimizers, step)`: `step()` trains for one step and returns the loss."""
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import resnet18

from tests.bench.bench_compiled import GPT, Block


def trains(model, x, y, optimizer, loss=F.cross_entropy):
    def step():
        optimizer.zero_grad()
        found = loss(model(x), y)
        found.backward()
        optimizer.step()
        return found
    return model, [optimizer], step


def mlp():
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    return trains(model, torch.randn(64, 64), torch.randint(10, (64,)), torch.optim.SGD(model.parameters(), .1))


class Experts(nn.Module):
    "16 small networks, two of which see each sample."
    def __init__(self, n=64, experts=16):
        super().__init__()
        self.gate = nn.Linear(n, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n)) for _ in range(experts))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        made = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            sample, place = (chosen == i).nonzero(as_tuple=True)
            if len(sample): made = made.index_add(0, sample, expert(x[sample])*weights[sample, place, None])
        return made


def moe():
    "A mixture of experts: 49 layers, few of them large enough to be worth a look."
    model = Experts()
    return trains(model, torch.randn(256, 64), torch.randint(64, (256,)), torch.optim.Adam(model.parameters(), 1e-3))


class GraphConvolution(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(i, o)/i**.5), nn.Parameter(torch.zeros(o))

    def forward(self, x, edges): return torch.sparse.mm(edges, x @ self.weight) + self.bias


class Graph(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(features, 16), GraphConvolution(16, 7)

    def forward(self, x, edges): return F.log_softmax(self.gc2(F.dropout(F.relu(self.gc1(x, edges)), .5), edges), 1)


def gcn(nodes=1000, features=400, n_edges=4000):
    "tkipf/pygcn, on a graph of a third of the size of Cora."
    model, x, y = Graph(features), torch.rand(nodes, features), torch.randint(7, (140,))
    ends, weights = torch.randint(nodes, (2, n_edges)), torch.full((n_edges,), .25)
    edges = torch.sparse_coo_tensor(ends, weights, (nodes, nodes)).coalesce()
    optimizer = torch.optim.Adam(model.parameters(), .01, weight_decay=5e-4)

    def step():
        optimizer.zero_grad()
        loss = F.nll_loss(model(x, edges)[:140], y)
        loss.backward()
        optimizer.step()
        return loss
    return model, [optimizer], step


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, 784)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + torch.randn_like(mu)*torch.exp(.5*logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def vae():
    "pytorch/examples, vae, with a batch of 64 and not 128."
    def loss(found, x):
        made, mu, logvar = found
        return F.binary_cross_entropy(made, x, reduction="sum") - .5*(1 + logvar - mu.pow(2) - logvar.exp()).sum()
    model, x = VAE(), torch.rand(64, 784)
    return trains(model, x, x, torch.optim.Adam(model.parameters(), 1e-3), loss)


class UNet(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(True),
                                 nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(True))
        self.down1, self.down2, self.middle, self.pool = block(3, n), block(n, 2*n), block(2*n, 4*n), nn.MaxPool2d(2)
        self.up2, self.up1 = nn.ConvTranspose2d(4*n, 2*n, 2, 2), nn.ConvTranspose2d(2*n, n, 2, 2)
        self.join2, self.join1, self.head = block(4*n, 2*n), block(2*n, n), nn.Conv2d(n, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        b = self.join2(torch.cat([b, self.up2(self.middle(self.pool(b)))], 1))
        return self.head(self.join1(torch.cat([a, self.up1(b)], 1)))


def unet():
    model = UNet()
    return trains(model, torch.randn(6, 3, 48, 48), torch.randint(2, (6, 48, 48)),
                  torch.optim.Adam(model.parameters(), 1e-3))


def cnn():
    "pytorch/examples, mnist, with a batch of 24 and fewer channels."
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Dropout(.25), nn.Flatten(), nn.Linear(4608, 128), nn.ReLU(), nn.Dropout(.5),
                          nn.Linear(128, 10))
    return trains(model, torch.randn(24, 1, 28, 28), torch.randint(10, (24,)),
                  torch.optim.Adadelta(model.parameters(), 1.))


class ViT(nn.Module):
    def __init__(self, n=128, layers=4, patch=4, size=32, classes=10):
        super().__init__()
        self.patches, self.position = nn.Conv2d(3, n, patch, patch), nn.Parameter(.02*torch.randn((size//patch)**2, n))
        self.blocks, self.norm = nn.Sequential(*(Block(n, 4) for _ in range(layers))), nn.LayerNorm(n)
        self.head = nn.Linear(n, classes)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.patches(x).flatten(2).mT + self.position)).mean(1))


def vit():
    model = ViT()
    return trains(model, torch.randn(12, 3, 32, 32), torch.randint(10, (12,)),
                  torch.optim.AdamW(model.parameters(), 1e-3))


class LSTM(nn.Module):
    def __init__(self, n=100, words=2000):
        super().__init__()
        self.drop, self.encoder, self.rnn = nn.Dropout(.2), nn.Embedding(words, n), nn.LSTM(n, n, 2, dropout=.2)
        self.decoder = nn.Linear(n, words)

    def forward(self, x): return self.decoder(self.drop(self.rnn(self.drop(self.encoder(x)))[0])).flatten(0, 1)


def lstm(words=2000, length=20, batch=20):
    "pytorch/examples, word_language_model, in a small size."
    model, x = LSTM(words=words), torch.randint(words, (length, batch))
    return trains(model, x, torch.randint(words, (length*batch,)), torch.optim.SGD(model.parameters(), 1.))


def gpt():
    "6 blocks of width 192."
    model = GPT()
    return trains(model, torch.randint(256, (16, 64)), torch.randint(256, (16,)),
                  torch.optim.AdamW(model.parameters(), 1e-4))


def residual():
    "resnet18 on images of 64×64."
    model = resnet18(num_classes=10)
    return trains(model, torch.randn(16, 3, 64, 64), torch.randint(10, (16,)),
                  torch.optim.SGD(model.parameters(), .1, .9))


def dcgan(size=64, noise=100, batch=8):
    "pytorch/examples, dcgan, with a batch of 8 and not 64."
    def up(i, o, *more): return nn.ConvTranspose2d(i, o, 4, *more, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)
    def down(i, o): return nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.2, True)
    g = nn.Sequential(*up(noise, 8*size, 1, 0), *up(8*size, 4*size, 2, 1), *up(4*size, 2*size, 2, 1),
                      *up(2*size, size, 2, 1), nn.ConvTranspose2d(size, 3, 4, 2, 1, bias=False), nn.Tanh())
    d = nn.Sequential(nn.Conv2d(3, size, 4, 2, 1, bias=False), nn.LeakyReLU(.2, True), *down(size, 2*size),
                      *down(2*size, 4*size), *down(4*size, 8*size),
                      nn.Conv2d(8*size, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0))
    model, loss = nn.ModuleDict({"g": g, "d": d}), nn.BCELoss()
    of_g, of_d = (torch.optim.Adam(m.parameters(), 2e-4, (.5, .999)) for m in (g, d))
    real, yes, no = torch.randn(batch, 3, 64, 64), torch.ones(batch), torch.zeros(batch)

    def step():
        d.zero_grad()
        loss(d(real), yes).backward()
        fake = g(torch.randn(batch, noise, 1, 1))
        loss(d(fake.detach()), no).backward()
        of_d.step()
        g.zero_grad()
        of_fake = loss(d(fake), yes)
        of_fake.backward()
        of_g.step()
        return of_fake
    return model, [of_g, of_d], step


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.action_head, self.value_head = nn.Linear(4, 128), nn.Linear(128, 2), nn.Linear(128, 1)

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), -1), self.value_head(x)


def actor_critic(length=50):
    "pytorch/examples, reinforcement_learning: a step is an episode of 50 moves of a cart, with no pole."
    model = Policy()
    optimizer = torch.optim.Adam(model.parameters(), 3e-2)

    def step():
        state, chosen, values = torch.zeros(4), [], []
        for _ in range(length):
            probabilities, value = model(state)
            moves = torch.distributions.Categorical(probabilities)
            action = moves.sample()
            chosen.append(moves.log_prob(action))
            values.append(value)
            state = state*.9 + .1*(2*action.item() - 1)
        returns = torch.linspace(1, -1, length)
        gains = [-p*(r - v.item()) for p, v, r in zip(chosen, values, returns)]
        losses = [F.smooth_l1_loss(v, r[None]) for v, r in zip(values, returns)]
        optimizer.zero_grad()
        loss = torch.stack(gains).sum() + torch.stack(losses).sum()
        loss.backward()
        optimizer.step()
        return loss
    return model, [optimizer], step


LOOPS = {loop.__name__: loop for loop in (mlp, moe, gcn, vae, unet, cnn, vit, lstm, gpt, residual)}
MORE = {"dcgan": dcgan, "actor_critic": actor_critic}  # two optimizers; 50 calls in a step: only if they are named
