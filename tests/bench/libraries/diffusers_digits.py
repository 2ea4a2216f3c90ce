"""diffusers: a small `UNet2DModel` learns to name the noise in digits; batches are dicts of images.

After the tutorial "Train a diffusion model" of Diffusers: a `DDPMScheduler` adds the noise, a cosine schedule with
warmup, gradients clipped, a loop with `Accelerator`. Error: mean loss on digits held back."""
import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.libraries._data import digits, mean_loss
from tests.bench.programs import Parts

SOURCE = "diffusers: Train a diffusion model"
PACKAGES = ("diffusers", "accelerate", "scikit-learn")
EPOCHS, TIMES = 5, 100


def build() -> Parts:
    x, _ = digits()
    rows = [{"images": image*2 - 1} for image in x]
    model = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32),
                        down_block_types=("DownBlock2D", "AttnDownBlock2D"), norm_num_groups=8, attention_head_dim=8,
                        up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    scheduler = DDPMScheduler(num_train_timesteps=TIMES)

    def call(model, batch):
        clean = batch["images"]
        noise, times = torch.randn(clean.shape), torch.randint(0, TIMES, (len(clean),))
        guessed = model(scheduler.add_noise(clean, noise, times), times, return_dict=False)[0]
        return F.mse_loss(guessed, noise)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), DataLoader(rows[:1200], 32, shuffle=True),
                 call=call, valid=DataLoader(rows[1200:], 64))


def error(parts: Parts) -> float: return mean_loss(parts.model, parts.valid, parts.call)


def train(parts: Parts, record) -> float:
    accelerator = Accelerator(cpu=True)
    schedule = get_cosine_schedule_with_warmup(parts.optimizer, 20, EPOCHS*len(parts.data))
    model, optimizer, data, schedule = accelerator.prepare(parts.model, parts.optimizer, parts.data, schedule)
    with record.on(model, optimizer=optimizer):
        for _ in range(EPOCHS):
            model.train()
            for batch in data:
                with accelerator.accumulate(model):
                    loss = parts.call(model, batch)
                    accelerator.backward(loss)
                    accelerator.clip_grad_norm_(model.parameters(), 1.)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                record.step(loss)
    return error(parts)
