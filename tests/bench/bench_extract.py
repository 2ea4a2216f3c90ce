"""The features of pictures of 64 by 64, from resnet18 on two CPUs: `extract`, the same under torchrun, and Ray.

    python -m tests.bench extract --rounds 5
    python -m tests.bench.bench_extract extract 512 folder      one way and number of pictures, as each is started

Each way runs as a program of its own, with few and with many pictures, on one thread in each process. From both times
come what one more picture takes, and what passes before the first."""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

FEW, MANY, BATCH = 128, 2048, 32
WAYS = {"extract": [], "torchrun, 2 processes": "-m torch.distributed.run --standalone --nproc-per-node=2".split(),
        "Ray, 2 workers": []}


def features(way: str, n: int, folder: Path):
    "The program itself: write the features of `n` pictures."
    import torch
    from torchvision.models import resnet18

    import hooklab as hl
    torch.manual_seed(0)
    model, x = resnet18(), torch.randn(MANY, 3, 64, 64)[:n]
    if way.startswith("Ray"):
        import ray
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        ray.data.DataContext.get_current().enable_progress_bars = False
        made = hl.map_features(rows(ray, x), model, "avgpool", "x", batch_size=BATCH, workers=2)
        hl.write_features(made, folder, shard_size=BATCH)
        ray.shutdown()
    else:
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=BATCH)
        hl.extract(model, loader, "avgpool", folder, shard_size=BATCH, progress=False)
    assert len(hl.load_features(folder, "avgpool")) == n


def rows(ray, x):
    "The pictures as a data set of Ray, with some batches in a block."
    return ray.data.from_items([{"x": row.numpy()} for row in x], override_num_blocks=max(2, len(x)//128))


def seconds(way: str, n: int) -> float:
    one_thread = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([sys.executable, *WAYS[way], "-m", "tests.bench.bench_extract", way, str(n), folder], check=True,
                       env=os.environ | one_thread, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start


def spread(values: list[float]) -> list[float]:
    return [round(value, 2) for value in (median(values), *quantiles(2*values, n=4)[::2])]


def measure(*options):
    rounds = int(options[1]) if options else 5
    each, before = {way: [] for way in WAYS}, {way: [] for way in WAYS}
    for turn in range(rounds):
        for way in list(WAYS)[::-1 if turn % 2 else 1]:
            few, many = seconds(way, FEW), seconds(way, MANY)
            each[way].append(1000*(many - few)/(MANY - FEW))
            before[way].append(few - FEW*(many - few)/(MANY - FEW))
    return {"milliseconds for one more picture": {way: spread(values) for way, values in each.items()},
            "seconds before the first picture": {way: spread(values) for way, values in before.items()}}


if __name__ == "__main__": features(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
