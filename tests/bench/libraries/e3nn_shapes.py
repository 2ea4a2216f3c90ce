"""e3nn: a polynomial that turns with its input tells eight shapes of four cubes apart, two of them mirror images.

After the example "Tetris polynomial" of e3nn: spherical harmonics of the edges, two tensor products whose weights are
all the parameters there are, one batch of all shapes. Error: wrong shapes after they were turned at random."""
import torch
from e3nn import o3
from torch import nn

from tests.bench.programs import Parts

SOURCE = "e3nn: Tetris polynomial"
PACKAGES = ("e3nn",)
SHAPES = torch.tensor([
    [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0]], [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, -1, 0]],
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3]],
    [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]], [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0]],
    [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 1]], [[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 0]]], dtype=torch.float)


def summed(values, where, n: int): return values.new_zeros(n, values.shape[1]).index_add(0, where, values)


class InvariantPolynomial(nn.Module):
    def __init__(self):
        super().__init__()
        self.irreps_sh = o3.Irreps.spherical_harmonics(3)
        irreps_mid = o3.Irreps("32x0e + 16x1e + 16x2e + 32x0o + 16x1o + 16x2o")
        self.tp1 = o3.FullyConnectedTensorProduct(self.irreps_sh, self.irreps_sh, irreps_mid)
        self.tp2 = o3.FullyConnectedTensorProduct(irreps_mid, self.irreps_sh, o3.Irreps("1x0o + 7x0e"))

    def forward(self, pos):
        shapes, cubes = pos.shape[:2]
        pos, graph = pos.reshape(-1, 3), torch.arange(shapes).repeat_interleave(cubes)
        near = (torch.cdist(pos, pos) < 1.1) & (graph[:, None] == graph) & ~torch.eye(len(pos), dtype=bool)
        src, dst = near.nonzero().T
        edges = o3.spherical_harmonics(self.irreps_sh, pos[src] - pos[dst], False, "component")
        nodes = summed(edges, dst, len(pos))/2**.5
        mid = summed(self.tp1(nodes[src], edges), dst, len(pos))/2**.5
        return summed(summed(self.tp2(mid[src], edges), dst, len(pos))/2**.5, graph, shapes)/cubes**.5


def turned():
    "All shapes, each turned at random."
    return torch.einsum("zij,zaj->zai", o3.rand_matrix(len(SHAPES)), SHAPES)


def targets():
    "The first number is the hand of the first two, the others say which shape it is."
    found = torch.zeros(8, 8)
    found[0, 0], found[1, 0] = 1, -1
    found[0, 1] = found[1, 1] = 1
    found[2:, 2:] = torch.eye(6)
    return found


def build() -> Parts:
    model = InvariantPolynomial()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), (turned(), targets()),
                 lambda output, y: (output - y).pow(2).sum())


@torch.no_grad()
def error(parts: Parts) -> float:
    found = [(parts.model(turned()).round() != targets()).any(1).float().mean().item() for _ in range(10)]
    return sum(found)/len(found)


def train(parts: Parts, record) -> float:
    model, optimizer, (x, y) = parts.model, parts.optimizer, parts.data
    with record.on(model, optimizer=optimizer):
        for _ in range(150):
            loss = parts.loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.step(loss)
    return error(parts)
