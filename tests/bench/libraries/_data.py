"Small data that the programs share: what scikit-learn ships in its wheel, and text that is made up."
import random
from functools import cache

import numpy as np
import torch
from sklearn import datasets
from tokenizers import Tokenizer, models, pre_tokenizers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
KINDS = {"fruit": "apple pear plum cherry grape melon", "tool": "hammer saw drill chisel file clamp",
         "bird": "robin heron finch swift crane dove", "river": "bend ford delta bank source mouth"}
COMMON = "the a near old small two with and some very".split()


def seed_the_rest():
    "Some libraries draw from `random` or numpy: both get the seed that torch has."
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)


@cache
def all_digits():
    found = datasets.load_digits()
    return torch.tensor(found.images, dtype=torch.float32)[:, None]/16, torch.tensor(found.target)


def digits(n: int = 1797):
    "Images of 1×8×8 between 0 and 1, and the digits that they show, in random order."
    x, y = all_digits()
    rows = torch.randperm(len(x))[:n]
    return x[rows], y[rows]


def split(*tensors, n: int):
    "The first `n` rows of all, and the others."
    return tuple(t[:n] for t in tensors), tuple(t[n:] for t in tensors)


def sentences(n: int, length: int = 9):
    "Sentences with words of one kind of things among common words, and the number of the kind."
    kinds = [words.split() for words in KINDS.values()]
    labels = torch.randint(len(kinds), (n,)).tolist()

    def word(label):
        own = torch.rand(()) < .4
        words = kinds[label] if own else COMMON
        return words[torch.randint(len(words), ()).item()]
    texts = [" ".join(word(label) for _ in range(length - torch.randint(4, ()).item())) for label in labels]
    return texts, labels


def tokenizer() -> Tokenizer:
    "One token a word."
    words = SPECIAL + COMMON + " ".join(KINDS.values()).split()
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


def fast_tokenizer():
    from transformers import PreTrainedTokenizerFast
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer(), pad_token="[PAD]", unk_token="[UNK]",
                                   cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", eos_token="[SEP]",
                                   bos_token="[CLS]")


@torch.no_grad()
def wrong(model, loader, answer=lambda model, batch: model(batch[0]), target=lambda batch: batch[1]) -> float:
    "The fraction of wrong classes, in eval mode."
    was = model.training
    model.eval()
    found = [(answer(model, batch).argmax(-1) != target(batch)).float() for batch in loader]
    model.train(was)
    return torch.cat(found).mean().item()


@torch.no_grad()
def mean_loss(model, loader, call) -> float:
    "The mean loss over the batches, in eval mode."
    was = model.training
    model.eval()
    found = [float(call(model, batch)) for batch in loader]
    model.train(was)
    return sum(found)/len(found)


def stories(n: int, length: int = 10) -> list[str]:
    "Sentences that can mostly be foreseen: the words of one kind in their order, again and again, with few others."
    kinds, found = [words.split() for words in KINDS.values()], []
    for _ in range(n):
        words, at = kinds[torch.randint(len(kinds), ()).item()], torch.randint(6, ()).item()
        keep = (torch.rand(length) < .92).tolist()
        found.append(" ".join(words[(at + i) % len(words)] if keep[i] else COMMON[torch.randint(len(COMMON), ()).item()]
                              for i in range(length)))
    return found
