"""pyro: a variational autoencoder as a model and a guide, with the loss of stochastic variational inference.

After the tutorials "Variational autoencoders" and "Customizing SVI objectives and training loops" of Pyro: parts of the
net are given to Pyro by name, `Trace_ELBO` makes the loss, a torch optimizer steps. A batch is a list of one tensor.
Error: squared error of what is decoded from the mean, over the variance of the images."""
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import Trace_ELBO
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits
from tests.bench.programs import Parts

SOURCE = "pyro-ppl: Variational Autoencoders; Customizing SVI objectives"
PACKAGES = ("pyro-ppl", "scikit-learn")


class Decoder(nn.Module):
    def __init__(self, z_dim, hidden):
        super().__init__()
        self.fc1, self.fc21, self.softplus = nn.Linear(z_dim, hidden), nn.Linear(hidden, 64), nn.Softplus()

    def forward(self, z): return torch.sigmoid(self.fc21(self.softplus(self.fc1(z))))


class Encoder(nn.Module):
    def __init__(self, z_dim, hidden):
        super().__init__()
        self.fc1, self.softplus = nn.Linear(64, hidden), nn.Softplus()
        self.fc21, self.fc22 = nn.Linear(hidden, z_dim), nn.Linear(hidden, z_dim)

    def forward(self, x):
        hidden = self.softplus(self.fc1(x.reshape(-1, 64)))
        return self.fc21(hidden), torch.exp(self.fc22(hidden))


class VAE(nn.Module):
    def __init__(self, z_dim=8, hidden=100):
        super().__init__()
        self.encoder, self.decoder, self.z_dim = Encoder(z_dim, hidden), Decoder(z_dim, hidden), z_dim

    def model(self, x):
        pyro.module("decoder", self.decoder)
        with pyro.plate("data", len(x)):
            z = pyro.sample("latent", dist.Normal(x.new_zeros(len(x), self.z_dim), 1.).to_event(1))
            pyro.sample("obs", dist.Bernoulli(self.decoder(z), validate_args=False).to_event(1), obs=x.reshape(-1, 64))

    def guide(self, x):
        pyro.module("encoder", self.encoder)
        with pyro.plate("data", len(x)): pyro.sample("latent", dist.Normal(*self.encoder(x)).to_event(1))


def build() -> Parts:
    pyro.clear_param_store()
    x, _ = digits()
    vae, loss_fn = VAE(), Trace_ELBO().differentiable_loss

    def call(vae, batch): return loss_fn(vae.model, vae.guide, batch[0])
    return Parts(vae, torch.optim.Adam(vae.parameters(), lr=5e-3),
                 DataLoader(TensorDataset(x[:1400]), 64, shuffle=True), call=call,
                 valid=DataLoader(TensorDataset(x[1400:]), 128))


@torch.no_grad()
def error(parts: Parts) -> float:
    x = parts.valid.dataset.tensors[0]
    again = parts.model.decoder(parts.model.encoder(x)[0])
    return ((again - x.flatten(1))**2).mean().item()/x.var(0).mean().item()


def train(parts: Parts, record) -> float:
    vae, optimizer = parts.model, parts.optimizer
    with record.on(vae, optimizer=optimizer):
        for epoch in range(40):
            for batch in parts.data:
                loss = parts.call(vae, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
            if epoch % 10 == 0:
                with torch.no_grad():
                    for batch in parts.valid: parts.call(vae, batch)
    return error(parts)
