"""pytorch-forecasting: a temporal fusion transformer forecasts sales, trained by Lightning.

After the tutorial "Demand forecasting with the Temporal Fusion Transformer": a `TimeSeriesDataSet` from a data frame,
batches of (a dict of inputs, (targets, weights)), the loss over quantiles, gradients clipped. Error: mean absolute
error of the medians held back, over that of the mean of the series."""
import lightning as L
import pandas as pd
import torch
from pytorch_forecasting import GroupNormalizer, QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet

from tests.bench.libraries._data import seed_the_rest
from tests.bench.programs import Parts

SOURCE = "pytorch-forecasting: Demand forecasting with the Temporal Fusion Transformer"
PACKAGES = ("pytorch-forecasting", "lightning")
SHOPS, DAYS, SEEN, AHEAD = 6, 80, 12, 4


class Recorded(L.Callback):
    def __init__(self, record): self.record = record

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx): self.record.step(outputs["loss"])


def sales() -> pd.DataFrame:
    rows = []
    for shop in range(SHOPS):
        level, swing, noise = 5 + 5*torch.rand(()), 2 + 2*torch.rand(()), .3*torch.randn(DAYS)
        for day in range(DAYS):
            weekend = day % 7 >= 5
            rows.append({"shop": f"shop {shop}", "day": day, "weekday": str(day % 7),
                         "sold": float(level + swing*(2*weekend - 1) + noise[day])})
    return pd.DataFrame(rows)


def build() -> Parts:
    seed_the_rest()
    frame = sales()
    known = TimeSeriesDataSet(frame[frame.day < 60], time_idx="day", target="sold", group_ids=["shop"],
                              max_encoder_length=SEEN, max_prediction_length=AHEAD, static_categoricals=["shop"],
                              time_varying_known_categoricals=["weekday"], time_varying_known_reals=["day"],
                              time_varying_unknown_reals=["sold"], add_relative_time_idx=True,
                              target_normalizer=GroupNormalizer(groups=["shop"]))
    held = TimeSeriesDataSet.from_dataset(known, frame[frame.day >= 60 - SEEN], stop_randomization=True)
    model = TemporalFusionTransformer.from_dataset(
        known, learning_rate=.02, hidden_size=8, attention_head_size=1, dropout=.1, hidden_continuous_size=4,
        loss=QuantileLoss(), optimizer="adam", log_interval=0, reduce_on_plateau_patience=4)

    def call(model, batch):
        x, y = batch
        return model.loss(model(x)["prediction"], y)
    optimizer = torch.optim.Adam(model.parameters(), lr=.02)
    model.configure_optimizers = lambda: optimizer
    return Parts(model, optimizer, known.to_dataloader(train=True, batch_size=32, num_workers=0), call=call,
                 valid=held.to_dataloader(train=False, batch_size=64, num_workers=0))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    found = [(parts.model.to_prediction(parts.model(x)), y[0], x["target_scale"][:, :1]) for x, y in parts.valid]
    guessed, wanted, level = map(torch.cat, zip(*found))
    return ((guessed - wanted).abs().mean()/(level - wanted).abs().mean()).item()


def train(parts: Parts, record) -> float:
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False, gradient_clip_val=.1,
                        enable_progress_bar=False, enable_model_summary=False, callbacks=[Recorded(record)])
    with record.on(parts.model, optimizer=parts.optimizer): trainer.fit(parts.model, parts.data, parts.valid)
    return error(parts)
