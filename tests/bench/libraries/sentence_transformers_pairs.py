"""sentence-transformers: two sentences about one thing are near each other, and far from the rest of the batch.

After the examples "Static embeddings" and "MultipleNegativesRankingLoss": a model of one embedding bag, pairs, batches
of a list of dicts (one for each sentence of the pair) and labels that are not used. Error: how often the second
sentence is not among the nearest fifth."""
import torch
from sentence_transformers import InputExample, SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch.utils.data import DataLoader

from tests.bench.libraries._data import COMMON, KINDS, seed_the_rest, tokenizer
from tests.bench.programs import Parts

SOURCE = "sentence-transformers: Static Embeddings, MultipleNegativesRankingLoss"
PACKAGES = ("sentence-transformers", "tokenizers")
TOPICS = 12


def pairs(n: int):
    "Half of the words for a topic are used in first sentences only, the others in second ones."
    words, made = " ".join(KINDS.values()).split(), []
    for topic in torch.randint(TOPICS, (n,)).tolist():
        def sentence(word):
            others = [COMMON[i] for i in torch.randint(len(COMMON), (4,)).tolist()]
            others.insert(torch.randint(4, ()).item(), word)
            return " ".join(others)
        made.append(InputExample(texts=[sentence(words[topic]), sentence(words[topic + TOPICS])], label=1.))
    return made


def build() -> Parts:
    seed_the_rest()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer(), embedding_dim=32)], device="cpu")
    criterion = MultipleNegativesRankingLoss(model)

    def call(model, batch):
        features, labels = batch
        return criterion(features, labels)
    parts = Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-2),
                  DataLoader(pairs(1500), 32, shuffle=True, collate_fn=model.smart_batching_collate, drop_last=True),
                  call=call)
    parts.test = pairs(120)
    return parts


@torch.no_grad()
def error(parts: Parts) -> float:
    "By topics: those of the same topic as the first are all right answers."
    first, second = (parts.model.encode([example.texts[i] for example in parts.test], convert_to_tensor=True,
                                        show_progress_bar=False) for i in (0, 1))
    rank = (torch.nn.functional.normalize(first) @ torch.nn.functional.normalize(second).T).argsort(1, descending=True)
    return (rank[:, :len(rank)//5] != torch.arange(len(rank))[:, None]).all(1).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(5):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    return error(parts)
