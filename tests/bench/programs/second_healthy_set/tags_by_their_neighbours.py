"""Words of a sentence are tagged by a bidirectional LSTM and a table of which tag follows which.

Habits of the source: one sentence at a time; the LSTM begins each sentence with a random state, when testing too;
transitions into the start and out of the end are -10000 from the beginning; the loss is the sum over a sentence, the
logarithm of all paths less the score of the true one; SGD with a small rate and decay; the best path is looked for
without any gradient and is no part of the loss.
Score: the part of wrong tags on sentences that were held back. Below .25; above .7 for the untrained model."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/tutorials beginner_source/nlp/advanced_tutorial.py", 2017
WORDS, TAGS, LONG = 30, 5, 7
START, STOP = TAGS, TAGS + 1


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.lstm, self.out = nn.Embedding(WORDS, 12), nn.LSTM(12, 8, bidirectional=True), nn.Linear(16, 7)
        self.transitions = nn.Parameter(torch.randn(7, 7))      # to the row's tag from the column's
        self.transitions.data[START, :] = -10000
        self.transitions.data[:, STOP] = -10000

    def scores(self, sentence):
        state = torch.randn(2, 1, 8), torch.randn(2, 1, 8)
        return self.out(self.lstm(self.word(sentence)[:, None], state)[0][:, 0])

    def all_paths(self, scores):
        ahead = torch.full((7,), -10000.)
        ahead[START] = 0
        for score in scores: ahead = torch.logsumexp(ahead + self.transitions + score[:, None], 1)
        return torch.logsumexp(ahead + self.transitions[STOP], 0)

    def of_path(self, scores, tags):
        before = torch.cat([torch.tensor([START]), tags])
        after = torch.cat([tags, torch.tensor([STOP])])
        return scores.gather(1, tags[:, None]).sum() + self.transitions[after, before].sum()

    def forward(self, sentence):
        "The best path, by dynamic programming."
        ahead, pointers = torch.full((7,), -10000.), []
        ahead[START] = 0
        for score in self.scores(sentence):
            best, pointer = (ahead + self.transitions).max(1)
            ahead = best + score
            pointers.append(pointer)
        path = [(ahead + self.transitions[STOP]).argmax()]
        for pointer in reversed(pointers[1:]): path.append(pointer[path[-1]])
        return torch.stack(path[::-1])


def sentences(n: int, follows, spoken):
    "Tags that follow each other, and words, of which some have several tags."
    made = []
    for _ in range(n):
        tags = [int(torch.randint(TAGS, ()))]
        while len(tags) < LONG: tags.append(int(torch.multinomial(follows[tags[-1]], 1)))
        tags = torch.tensor(tags)
        made.append((torch.multinomial(spoken[tags], 1)[:, 0], tags))
    return made


def call(model, batch):
    sentence, tags = batch
    scores = model.scores(sentence)
    return model.all_paths(scores) - model.of_path(scores, tags)


def build(repaired: bool) -> Parts:
    model = Tagger()
    follows, spoken = torch.softmax(2.5*torch.randn(TAGS, TAGS), 1), torch.softmax(2.5*torch.randn(TAGS, WORDS), 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=.02, weight_decay=1e-4)
    return Parts(model, optimizer, sentences(250, follows, spoken), call=call, valid=sentences(100, follows, spoken))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(3):
            for batch in parts.data:
                model.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    with torch.no_grad(): wrong = [(model(sentence) != tags).float().mean() for sentence, tags in parts.valid]
    return torch.stack(wrong).mean().item()
