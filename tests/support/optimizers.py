"Optimizers that do more in a step than torch's."
import torch


class Clears(torch.optim.SGD):
    "Calls the step of its parent, which calls the hooks too, and clears the gradients."
    def step(self, closure=None):
        loss = super().step(closure)
        self.zero_grad()
        return loss
