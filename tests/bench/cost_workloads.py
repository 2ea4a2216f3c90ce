"""Ten training loops with the shapes of well-known examples, on synthetic data.

Each is a function that returns `(model, optimizers, step)`: `step()` makes one step of training. Where an example takes
seconds for a step on one thread, its batch is smaller."""
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import resnet18

VOCABULARY = 10_000  # of the Penn Treebank


def classifies(model, x, y, optimizer):
    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, [optimizer], step


def mnist_cnn():
    "pytorch/examples, mnist."
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Dropout(.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(.5),
                          nn.Linear(128, 10))
    return classifies(model, torch.randn(64, 1, 28, 28), torch.randint(10, (64,)),
                      torch.optim.Adadelta(model.parameters(), 1.))


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
        loss(d(fake), yes).backward()
        of_g.step()
    return model, [of_g, of_d], step


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
    "pytorch/examples, vae."
    model, x = VAE(), torch.rand(128, 784)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step():
        optimizer.zero_grad()
        made, mu, logvar = model(x)
        (F.binary_cross_entropy(made, x, reduction="sum") - .5*(1 + logvar - mu.pow(2) - logvar.exp()).sum()).backward()
        optimizer.step()
    return model, [optimizer], step


class LSTM(nn.Module):
    def __init__(self, n=200):
        super().__init__()
        self.drop, self.encoder, self.rnn = nn.Dropout(.2), nn.Embedding(VOCABULARY, n), nn.LSTM(n, n, 2, dropout=.2)
        self.decoder = nn.Linear(n, VOCABULARY)

    def forward(self, x): return self.decoder(self.drop(self.rnn(self.drop(self.encoder(x)))[0])).view(-1, VOCABULARY)


class Transformer(nn.Module):
    def __init__(self, n=200):
        super().__init__()
        self.embedding, self.drop = nn.Embedding(VOCABULARY, n), nn.Dropout(.2)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(n, 2, 200, .2), 2)
        self.decoder, self.mask = nn.Linear(n, VOCABULARY), nn.Transformer.generate_square_subsequent_mask(35)

    def forward(self, x):
        return self.decoder(self.encoder(self.drop(self.embedding(x)), mask=self.mask)).view(-1, VOCABULARY)


def language(model):
    "pytorch/examples, word_language_model."
    return classifies(model, torch.randint(VOCABULARY, (35, 20)), torch.randint(VOCABULARY, (700,)),
                      torch.optim.SGD(model.parameters(), 1.))


def lstm(): return language(LSTM())
def transformer(): return language(Transformer())


def bert():
    "A classifier of sentences with a BERT of 4 layers."
    from transformers import BertConfig, BertForSequenceClassification
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                        intermediate_size=1024)
    model = BertForSequenceClassification(config).train()
    x, y = torch.randint(VOCABULARY, (16, 64)), torch.randint(2, (16,))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-5)

    def step():
        optimizer.zero_grad()
        model(input_ids=x, labels=y).loss.backward()
        optimizer.step()
    return model, [optimizer], step


class GraphConvolution(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(i, o)/i**.5), nn.Parameter(torch.zeros(o))

    def forward(self, x, edges): return torch.sparse.mm(edges, x @ self.weight) + self.bias


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(1433, 16), GraphConvolution(16, 7)

    def forward(self, x, edges): return F.log_softmax(self.gc2(F.dropout(F.relu(self.gc1(x, edges)), .5), edges), 1)


def gcn(nodes=2708, n_edges=10_556):
    "tkipf/pygcn, with the shapes of Cora."
    model, x, y = Graph(), torch.rand(nodes, 1433), torch.randint(7, (140,))
    ends, weights = torch.randint(nodes, (2, n_edges)), torch.full((n_edges,), .25)
    edges = torch.sparse_coo_tensor(ends, weights, (nodes, nodes)).coalesce()
    optimizer = torch.optim.Adam(model.parameters(), .01, weight_decay=5e-4)

    def step():
        optimizer.zero_grad()
        F.nll_loss(model(x, edges)[:140], y).backward()
        optimizer.step()
    return model, [optimizer], step


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.resnet = resnet18()
        self.resnet.conv1, self.resnet.fc = nn.Conv2d(1, 64, 7, 2, 3, bias=False), nn.Identity()
        self.fc = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(inplace=True), nn.Linear(256, 1))
        self.sigmoid = nn.Sigmoid()

    def forward(self, a, b): return self.sigmoid(self.fc(torch.cat([self.resnet(a), self.resnet(b)], 1))).squeeze(1)


def siamese(batch=16):
    "pytorch/examples, siamese_network, with a batch of 16 and not 64."
    model, a, b = Siamese(), torch.randn(batch, 1, 28, 28), torch.randn(batch, 1, 28, 28)
    y = torch.randint(2, (batch,)).float()
    optimizer = torch.optim.Adadelta(model.parameters(), 1.)

    def step():
        optimizer.zero_grad()
        F.binary_cross_entropy(model(a, b), y).backward()
        optimizer.step()
    return model, [optimizer], step


def residual():
    "A resnet18 on images of 64×64."
    model = resnet18(num_classes=10)
    return classifies(model, torch.randn(16, 3, 64, 64), torch.randint(10, (16,)),
                      torch.optim.SGD(model.parameters(), .1, .9))


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
        (torch.stack(gains).sum() + torch.stack(losses).sum()).backward()
        optimizer.step()
    return model, [optimizer], step


WIDTH, HEADS, LAYERS, LENGTH, WORDS = 192, 6, 6, 128, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3*WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4*WIDTH), nn.GELU(), nn.Linear(4*WIDTH, WIDTH))
        self.norm2 = nn.LayerNorm(WIDTH)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    "Decoder blocks, for a training step or a pass of which hooks are measured."
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.word(words) + self.place.weight
        for block in self.blocks: x = block(x)
        return self.head(self.norm(x))


WORKLOADS = mnist_cnn, dcgan, vae, lstm, transformer, bert, gcn, siamese, residual, actor_critic
