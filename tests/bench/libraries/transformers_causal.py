"""transformers: a small GPT-2 from a config learns sentences with the library's `Trainer`.

After chapter 7 of the course "Training a causal language model from scratch": a collator for language modeling makes
the labels from the tokens, weight decay only on matrices, a cosine schedule with warmup. Error: loss on sentences held
back."""
import torch
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
)
from transformers.utils import logging

from tests.bench.libraries._data import fast_tokenizer, mean_loss, seed_the_rest, stories
from tests.bench.programs import Parts

SOURCE = "transformers: course, Training a causal language model from scratch"
PACKAGES = ("transformers", "accelerate", "tokenizers")


def call(model, batch): return model(**batch).loss


def grouped(model):
    plain = [p for name, p in model.named_parameters() if "bias" in name or "ln_" in name]
    others = [p for name, p in model.named_parameters() if not ("bias" in name or "ln_" in name)]
    return [{"params": others, "weight_decay": .1}, {"params": plain, "weight_decay": 0.}]


class Recorded(TrainerCallback):
    "Once for each step of the optimizer."
    def __init__(self, record): self.record, self.loss = record, None

    def on_step_end(self, args, state, control, **kwargs): self.record.step(self.loss)


class KeepsLoss(Trainer):
    def training_step(self, *args, **kwargs):
        self.recorded.loss = super().training_step(*args, **kwargs)
        return self.recorded.loss


def build() -> Parts:
    seed_the_rest()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokens = fast_tokenizer()
    rows = [{"input_ids": tokens(text + " [SEP]").input_ids} for text in stories(900)]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokens), n_positions=16, n_embd=48, n_layer=2, n_head=4,
                                       bos_token_id=tokens.bos_token_id, eos_token_id=tokens.eos_token_id))
    collator = DataCollatorForLanguageModeling(tokens, mlm=False)
    parts = Parts(model, torch.optim.AdamW(grouped(model), lr=5e-3),
                  DataLoader(rows[:700], 16, shuffle=True, collate_fn=collator), call=call,
                  valid=DataLoader(rows[700:], 64, collate_fn=collator))
    parts.collator, parts.tokens = collator, tokens
    return parts


def error(parts: Parts) -> float: return mean_loss(parts.model, parts.valid, call)


def train(parts: Parts, record) -> float:
    epochs, recorded = 4, Recorded(record)
    schedule = get_cosine_schedule_with_warmup(parts.optimizer, 10, epochs*len(parts.data))
    options = TrainingArguments(
        output_dir="unused", num_train_epochs=epochs, per_device_train_batch_size=16, use_cpu=True, save_strategy="no",
        logging_strategy="no", report_to="none", disable_tqdm=True, seed=torch.initial_seed() % 2**32)
    trainer = KeepsLoss(parts.model, options, parts.collator, train_dataset=parts.data.dataset,
                        processing_class=parts.tokens, optimizers=(parts.optimizer, schedule), callbacks=[recorded])
    trainer.recorded = recorded
    trainer.remove_callback(PrinterCallback)
    with record.on(parts.model, optimizer=parts.optimizer): trainer.train()
    return error(parts)
