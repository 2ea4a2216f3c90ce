"""accelerate: a small BERT classifies sentences in a loop with `Accelerator`.

After the example "nlp_example" of accelerate: everything is prepared, the loss is divided by the number of batches
whose gradients are summed, a linear schedule with warmup, batches of the tokenizer's padding. Error: wrong answers held
back."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

from tests.bench.libraries._data import KINDS, fast_tokenizer, seed_the_rest, sentences
from tests.bench.programs import Parts

SOURCE = "accelerate: examples/nlp_example"
PACKAGES = ("accelerate", "transformers", "tokenizers")
EPOCHS, EVERY = 6, 2


def call(model, batch): return model(**batch).loss


def build() -> Parts:
    seed_the_rest()
    tokens = fast_tokenizer()
    rows = [tokens(f"[CLS] {text} [SEP]") | {"labels": label} for text, label in zip(*sentences(1000))]

    def collate(examples): return tokens.pad(examples, padding="longest", return_tensors="pt")
    model = BertForSequenceClassification(BertConfig(
        vocab_size=len(tokens), hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=32, num_labels=len(KINDS)))
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3),
                 DataLoader(rows[:800], 16, shuffle=True, collate_fn=collate, drop_last=True), call=call,
                 valid=DataLoader(rows[800:], 100, collate_fn=collate))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    return torch.cat([(parts.model(**b).logits.argmax(1) != b["labels"]).float() for b in parts.valid]).mean().item()


def train(parts: Parts, record) -> float:
    accelerator = Accelerator(cpu=True)
    schedule = get_linear_schedule_with_warmup(parts.optimizer, 10, EPOCHS*len(parts.data)//EVERY)
    model, optimizer, data, schedule = accelerator.prepare(parts.model, parts.optimizer, parts.data, schedule)
    with record.on(model, optimizer=optimizer):
        for _ in range(EPOCHS):
            model.train()
            for step, batch in enumerate(data):
                loss = model(**batch).loss/EVERY
                accelerator.backward(loss)
                if step % EVERY == EVERY - 1:
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                    record.step(loss)
    return error(parts)
