"""Documents of a query are put in order by gradients of the scores, without a loss.

Habits of the source: the gradient of each score is worked out by hand, from pairs weighed by what their exchange would
change in the measure, and handed to `backward` of the scores; queries have different numbers of documents and are
called one by one; gradients of many queries are added up before a step; features are not scaled; the scores end in a
sigmoid, as the source describes it; Xavier weights and biases of .01; queries without a relevant document are left out;
the pairwise loss is only looked at. Pairs are weighed by the order of the scores, as in the paper that it cites.
Score: 1 - NDCG on new queries. Below .15; about .35 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "haowei01/pytorch-examples ranking/LambdaRank.py", 2018
FEATURES, QUERIES = 12, 20


def start(layer):
    if isinstance(layer, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.constant_(layer.bias, .01)


def queries(n: int, weights):
    "Features of documents, of different size, and a relevance of 0 to 3 that mostly follows two products of them."
    made, sizes = [], torch.linspace(.2, 3, FEATURES)
    while len(made) < n:
        x = torch.rand(int(torch.randint(6, 16, ())), FEATURES)
        worth = x @ weights + 2*x[:, 0]*x[:, 1] + .15*torch.randn(len(x))
        relevance = torch.bucketize(worth, torch.tensor([1.2, 1.8, 2.4])).float()
        if relevance.sum() > 0: made.append((x*sizes, relevance[:, None]))
    return made


def gains(relevance): return 2**relevance - 1


def discounts(scores): return 1/(scores.argsort(0, descending=True).argsort(0) + 2.).log2()


def ndcg(scores, relevance):
    return (gains(relevance)*discounts(scores)).sum()/(gains(relevance)*discounts(relevance)).sum()


@torch.no_grad()
def slopes(scores, relevance):
    "The gradient of each score."
    right = (relevance > relevance.T).float()
    pull = -right*torch.sigmoid(scores.T - scores)
    best = (gains(relevance)*discounts(relevance)).sum()
    change = ((gains(relevance) - gains(relevance).T)*(discounts(scores) - discounts(scores).T)).abs()/best
    return ((pull - pull.T)*change).sum(1, keepdim=True)


def pairwise(scores, relevance): return F.softplus(scores.T - scores)[relevance > relevance.T].mean()


def call(model, query):
    "A number whose gradient is that of the source."
    scores = model(query[0])
    return (scores*slopes(scores, query[1])).sum()


def build(repaired: bool) -> Parts:
    weights = torch.randn(FEATURES)*.5
    weights = weights - weights.mean() + .15
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(),
                          nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    model.apply(start)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), queries(200, weights), call=call,
                 valid=queries(100, weights))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, .75)
    with record.on(model, optimizer):
        for _ in range(15):
            model.train()
            model.zero_grad()
            waiting = []
            for i in torch.randperm(len(parts.data)).tolist():
                x, relevance = parts.data[i]
                scores = model(x)
                waiting.append((scores, slopes(scores, relevance), pairwise(scores.detach(), relevance)))
                if len(waiting) < QUERIES: continue
                for scores, slope, _ in waiting: scores.backward(slope/QUERIES)
                optimizer.step()
                model.zero_grad()
                record.step(sum(loss for *_, loss in waiting)/QUERIES)
                waiting = []
            schedule.step()
    model.eval()
    with torch.no_grad(): return 1 - torch.stack([ndcg(model(x), y) for x, y in parts.valid]).mean().item()
