"""torchrl: values of actions from a replay buffer of `TensorDict` transitions, with a target that follows slowly.

After the tutorial "Get started with your own first training loop" of TorchRL, with a dataset in place of a simulator:
`QValueActor`, `DQNLoss` with delayed values, `SoftUpdate`, batches by the buffer. The way is a line of places with a
prize at its right end. Error: places at which the greedy action does not lead to the prize."""
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from tests.bench.programs import Parts

SOURCE = "torchrl: Get started with your own first training loop"
PACKAGES = ("torchrl", "tensordict")
PLACES, BATCH, STEPS = 8, 64, 300


def transitions(n: int) -> TensorDict:
    "Left, stay or right; the prize ends an episode."
    at, action = torch.randint(PLACES - 1, (n,)), torch.randint(3, (n,))
    then = (at + action - 1).clamp(min=0)
    done = (then == PLACES - 1)[:, None]

    def seen(place): return nn.functional.one_hot(place, PLACES).float() + .05*torch.randn(n, PLACES)
    after = TensorDict({"observation": seen(then), "reward": done.float(), "done": done, "terminated": done},
                       batch_size=n)
    return TensorDict({"observation": seen(at), "action": nn.functional.one_hot(action, 3), "next": after},
                      batch_size=n)


class Sampled:
    "The batches of a run, drawn from the buffer."
    def __init__(self, buffer): self.buffer = buffer

    def __len__(self): return STEPS

    def __iter__(self): return (self.buffer.sample() for _ in range(STEPS))


def call(loss_module, batch): return loss_module(batch)["loss"]


def build() -> Parts:
    actor = QValueActor(MLP(in_features=PLACES, out_features=3, num_cells=[32, 32]), in_keys=["observation"],
                        spec=OneHot(3))
    loss_module = DQNLoss(actor, action_space="one-hot", delay_value=True)
    loss_module.make_value_estimator(gamma=.9)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(2000), batch_size=BATCH)
    buffer.extend(transitions(2000))
    parts = Parts(loss_module, torch.optim.Adam(loss_module.parameters(), lr=2e-3), Sampled(buffer), call=call)
    parts.actor, parts.updater = actor, SoftUpdate(loss_module, tau=.05)
    return parts


@torch.no_grad()
def error(parts: Parts) -> float:
    at = torch.arange(PLACES - 1).repeat(20)
    seen = nn.functional.one_hot(at, PLACES).float() + .05*torch.randn(len(at), PLACES)
    chosen = parts.actor(TensorDict({"observation": seen}, batch_size=len(at)))["action"].int().argmax(-1)
    return (chosen != 2).float().mean().item()


def train(parts: Parts, record) -> float:
    optimizer = parts.optimizer
    with record.on(parts.model, optimizer=optimizer):
        for batch in parts.data:
            loss = call(parts.model, batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parts.model.parameters(), 10.)
            optimizer.step()
            optimizer.zero_grad()
            parts.updater.step()
            record.step(loss)
    return error(parts)
