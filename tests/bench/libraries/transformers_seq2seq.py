"""transformers: a small T5 writes numbers of a row in reverse, in a loop of one's own.

After the task guide "Translation" and its version without the Trainer: `DataCollatorForSeq2Seq` pads inputs with one
number and labels with another, batches are `BatchEncoding`, AdamW with a linear schedule. Error: loss on rows held
back."""
import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, T5Config, T5ForConditionalGeneration, get_scheduler

from tests.bench.libraries._data import fast_tokenizer, mean_loss, seed_the_rest
from tests.bench.programs import Parts

SOURCE = "transformers: Translation, without the Trainer"
PACKAGES = ("transformers", "tokenizers")
EPOCHS = 12


def call(model, batch): return model(**batch).loss


def build() -> Parts:
    seed_the_rest()
    tokens, rows = fast_tokenizer(), []
    for _ in range(700):
        row = torch.randint(5, 13, (3 + torch.randint(4, ()).item(),)).tolist()
        rows.append({"input_ids": [*row, tokens.eos_token_id], "labels": [*row[::-1], tokens.eos_token_id]})
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=len(tokens), d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, dropout_rate=.05,
        decoder_start_token_id=tokens.pad_token_id, pad_token_id=tokens.pad_token_id, eos_token_id=tokens.eos_token_id))
    collator = DataCollatorForSeq2Seq(tokens, model=model)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=5e-3),
                 DataLoader(rows[:600], 32, shuffle=True, collate_fn=collator), call=call,
                 valid=DataLoader(rows[600:], 50, collate_fn=collator))


def error(parts: Parts) -> float: return mean_loss(parts.model, parts.valid, call)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=EPOCHS*len(parts.data))
    with record.on(model, optimizer=optimizer):
        for _ in range(EPOCHS):
            model.train()
            for batch in parts.data:
                loss = model(**batch).loss
                loss.backward()
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                record.step(loss)
            error(parts)
    return error(parts)
