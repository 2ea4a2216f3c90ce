"""normflows: coupling layers learn a density of two moons from samples that are drawn in each step.

After the tutorial "Real NVP" of normflows: no dataset, the batch is one tensor of samples, the loss is a method of the
model, and a loss that is not finite is skipped. Error: forward Kullback-Leibler divergence above that of the target."""
import normflows as nf
import torch

from tests.bench.programs import Parts

SOURCE = "normflows: Real NVP"
PACKAGES = ("normflows",)


class Samples:
    "Draws a batch from the target in each step."
    def __init__(self, target, size: int, steps: int): self.target, self.size, self.steps = target, size, steps

    def __len__(self): return self.steps

    def __iter__(self): return (self.target.sample(self.size) for _ in range(self.steps))


def call(model, x): return model.forward_kld(x)


def build() -> Parts:
    target, flows = nf.distributions.TwoMoons(), []
    for _ in range(8):
        flows.append(nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 32, 32, 2], init_zeros=True)))
        flows.append(nf.flows.Permute(2, mode="swap"))
    model = nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2), flows)
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5), Samples(target, 256, 300),
                  call=call)
    parts.test = target.sample(2000)
    return parts


@torch.no_grad()
def error(parts: Parts) -> float:
    "The constant of the target is that of the best density here, so that it is 0 for a perfect one."
    lines = torch.linspace(-3, 3, 400)
    grid = torch.cartesian_prod(lines, lines)
    target = parts.data.target
    constant = target.log_prob(grid).logsumexp(0) + 2*(lines[1] - lines[0]).log()
    best = -(target.log_prob(parts.test) - constant).mean()
    return (call(parts.model, parts.test) - best).item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for x in parts.data:
            optimizer.zero_grad()
            loss = call(model, x)
            if not (torch.isnan(loss) | torch.isinf(loss)):
                loss.backward()
                optimizer.step()
            record.step(loss)
    return error(parts)
