"Hugging Face's Trainer, with dropout, a warm-up, and a layer that keeps the scale of its inputs in a buffer."
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState

SAVED_AT, STEPS = 6, 6
LOST = {"scale": ("scale",), "losses_seen": ("smooth",)}


class Net(nn.Module):
    def __init__(self, complete):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(.2)), nn.Linear(8, 1)
        self.register_buffer("scale", torch.ones(()), persistent=complete)

    def forward(self, x, labels=None):
        self.scale.lerp_(x.abs().mean(), .2)
        out = self.head(self.body(x/self.scale))
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


class Smooth(TrainerCallback):
    "A running mean of the losses that the log shows; the checkpoint lacks it."
    def __init__(self, smooth=0.): self.smooth = smooth

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}): self.smooth = .9*self.smooth + .1*logs["loss"]


class KeptSmooth(Smooth, ExportableState):
    "The same in the checkpoint."
    def state(self): return {"args": {"smooth": self.smooth}, "attributes": {}}


def samples():
    made = torch.Generator().manual_seed(1)
    return [{"x": row, "labels": row.exp().sum(0, keepdim=True)} for row in torch.randn(22, 5, generator=made)]


def trainer(folder, complete=True):
    "A Trainer that is ready for `train`."
    args = TrainingArguments(output_dir=str(folder), max_steps=SAVED_AT + STEPS, save_steps=SAVED_AT, use_cpu=True,
                             learning_rate=1e-2, per_device_train_batch_size=4, warmup_steps=4, logging_steps=1,
                             report_to="none", disable_tqdm=True, log_level="error",
                             restore_callback_states_from_checkpoint=True)
    callback = KeptSmooth() if complete else Smooth()
    return Trainer(model=Net(complete), args=args, train_dataset=samples(), callbacks=[callback])


def ends(folder, complete=True):
    "The states after a run, and after one resumed in the midst of it by the library's own means."
    def states(made):
        (callback,) = [c for c in made.callback_handler.callbacks if isinstance(c, Smooth)]
        return {**made.model.state_dict(), "scale": made.model.scale, "losses_seen": torch.tensor(callback.smooth)}
    whole, again = trainer(folder, complete), trainer(Path(folder)/"again", complete)
    whole.train()
    again.train(resume_from_checkpoint=str(Path(folder)/f"checkpoint-{SAVED_AT}"))
    return states(whole), states(again)
