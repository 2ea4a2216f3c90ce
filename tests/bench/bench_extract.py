"""The features of pictures of 64 by 64, from resnet18 on two CPUs: `extract`, the same under torchrun, and Ray.

    python -m tests.bench extract --rounds 5
    python -m tests.bench.bench_extract extract folder      one way, as each is started

Each way runs as a program of its own, on one thread in each process. The times of the files that it writes tell how
long it takes to the first picture, and what each further one takes."""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

PICTURES, BATCH = 2048, 32
WAYS = {"extract": [], "torchrun, 2 processes": "-m torch.distributed.run --standalone --nproc-per-node=2".split(),
        "Ray, 2 workers": []}


def features(way: str, folder: Path):
    "The program itself: write the features of all pictures."
    import torch
    from torchvision.models import resnet18

    import hooklab as hl
    torch.manual_seed(0)
    model, x = resnet18(), torch.randn(PICTURES, 3, 64, 64)
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
    assert len(hl.load_features(folder, "avgpool")) == PICTURES


def rows(ray, x):
    "The pictures as a data set of Ray, with some batches in a block."
    return ray.data.from_items([{"x": row.numpy()} for row in x], override_num_blocks=len(x)//128)


def times(way: str) -> tuple[float, float]: # Milliseconds for a picture, seconds before the first
    one_thread = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        subprocess.run([sys.executable, *WAYS[way], "-m", "tests.bench.bench_extract", way, folder], check=True,
                       env=os.environ | one_thread, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        written = sorted(path.stat().st_mtime for path in Path(folder).rglob("*.safetensors"))
    each = (written[-1] - written[0])/(PICTURES - BATCH)
    return 1000*each, written[0] - start - BATCH*each


def spread(values: list[float]) -> list[float]:
    return [round(value, 2) for value in (median(values), *quantiles(2*values, n=4)[::2])]


def measure(*options):
    rounds = int(options[1]) if options else 5
    found = {way: [] for way in WAYS}
    for turn in range(rounds):
        for way in list(WAYS)[::-1 if turn % 2 else 1]: found[way].append(times(way))
    titles = "milliseconds for one more picture", "seconds before the first picture"
    return {title: {way: spread([pair[i] for pair in pairs]) for way, pairs in found.items()}
            for i, title in enumerate(titles)}


if __name__ == "__main__": features(sys.argv[1], Path(sys.argv[2]))
