"What comparing the replicas of two processes costs: a step that does not compare, and one that does."
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18

import hooklab as hl
from tests.bench.measure import ratios
from tests.support import sharded


def tiny_llama(): return sharded.llama(), lambda model: sharded.loss_of(model, sharded.words(0))


def small_resnet():
    torch.manual_seed(0)
    x = torch.randn(8, 3, 64, 64)
    return resnet18(num_classes=10), lambda model: model(x).square().mean()


def stepping(workload, every=None):
    "A training step of a wrapped model that compares its replicas after so many steps."
    model, loss = workload()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), .01)
    def step():
        loss(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    step.watch = every and hl.replicas(model, optimizer, every=every)
    return step


def several(step, n):
    "`n` steps at once."
    def steps():
        for _ in range(n): step()
    return steps


def work(rank, folder):
    torch.set_num_threads(1)
    port = Path(folder, "port").read_text()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    found = {}
    for title, workload, n, rounds in (("the tiny Llama", tiny_llama, 5, 41),
                                       ("resnet18 on 8 images of 64 by 64", small_resnet, 1, 15)):
        variants = {"not compared": several(stepping(workload, 10**9), n),
                    "compared": several(stepping(workload, 1), n)}
        plain = several(stepping(workload), n)
        found[f"A step of {title} under replicas, in steps without"] = ratios(plain, variants, rounds)
    if rank == 0: Path(folder, "found").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def measure():
    with TemporaryDirectory() as folder:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = store.port
        del store  # its port is free again
        Path(folder, "port").write_text(str(port))
        mp.spawn(work, (folder,), nprocs=2)
        return json.loads(Path(folder, "found").read_text())
