"""peft: LoRA on a BERT that already knows another task; all but small matrices and the head is frozen.

After the guide "LoRA for sequence classification" of PEFT: `get_peft_model`, the head as a module to save, AdamW with a
linear schedule. The body is first trained in full to find hidden words. Error: wrong answers on sentences held back."""
import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    DataCollatorForLanguageModeling,
    get_linear_schedule_with_warmup,
)

from tests.bench.libraries._data import KINDS, fast_tokenizer, seed_the_rest, sentences
from tests.bench.programs import Parts

SOURCE = "peft: LoRA for sequence classification"
PACKAGES = ("peft", "transformers", "tokenizers")
EPOCHS = 8


def call(model, batch): return model(**batch).loss


def pretrained(tokens) -> BertForMaskedLM:
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokens), hidden_size=48, num_hidden_layers=2,
                                       num_attention_heads=4, intermediate_size=96, max_position_embeddings=32))
    rows = [tokens(f"[CLS] {text} [SEP]") for text in sentences(800)[0]]
    hidden = DataCollatorForLanguageModeling(tokens, mlm_probability=.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(4):
        for batch in DataLoader(rows, 32, shuffle=True, collate_fn=hidden):
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
    return model


def build() -> Parts:
    seed_the_rest()
    tokens = fast_tokenizer()
    body = pretrained(tokens)
    body.config.num_labels = len(KINDS)
    model = BertForSequenceClassification(body.config)
    model.bert.load_state_dict(body.bert.state_dict(), strict=False)
    model = get_peft_model(model, LoraConfig(task_type=TaskType.SEQ_CLS, r=8, lora_alpha=16, lora_dropout=.1,
                                             target_modules=["query", "value"]))
    rows = [tokens(f"[CLS] {text} [SEP]") | {"labels": label} for text, label in zip(*sentences(800))]

    def collate(examples): return tokens.pad(examples, padding="longest", return_tensors="pt")
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3),
                 DataLoader(rows[:600], 32, shuffle=True, collate_fn=collate), call=call,
                 valid=DataLoader(rows[600:], 100, collate_fn=collate))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    return torch.cat([(parts.model(**b).logits.argmax(1) != b["labels"]).float() for b in parts.valid]).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = get_linear_schedule_with_warmup(optimizer, 9, EPOCHS*len(parts.data))
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
