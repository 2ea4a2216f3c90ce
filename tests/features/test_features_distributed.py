"""extract in several processes: each sample once, whoever is faster, and an error in one is told to all."""
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hooklab.features.dataset import extract, load_features

torch.set_num_threads(1)
fork = multiprocessing.get_context("fork")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


class Logged(TensorDataset):
    "Writes down who read which sample; the second process takes its time."
    def __init__(self, log, n=57, pause=0.):
        super().__init__(torch.randn(n, 6, generator=torch.Generator().manual_seed(1)))
        self.log, self.pause = log, pause

    def __getitem__(self, i):
        rank = int(os.environ.get("RANK", 0))
        time.sleep(self.pause*(1 + rank))
        with open(self.log, "a") as f: f.write(f"{rank} {i}\n")
        return super().__getitem__(i)

    def who_read(self): return [tuple(map(int, line.split())) for line in open(self.log)]


def run(folder, log, **options): return extract(network(), DataLoader(Logged(log, **options), batch_size=5), ["2", "3"], folder, shard_size=10, progress=False)


@pytest.fixture
def direct(tmp_path): return run(tmp_path/"direct", tmp_path/"log of the direct run")


def same(folder, other):
    assert json.loads((folder/"index.json").read_text()) == json.loads((other/"index.json").read_text())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {path.name: path.read_bytes() for path in other.iterdir()}
    assert load_features(folder, "3").samples == list(range(57))


# As torchrun starts it

@pytest.fixture
def torchrun(tmp_path):
    script = tmp_path/"script.py"
    script.write_text(textwrap.dedent("""
        import os, sys
        import torch
        from test_features_distributed import load_features, run
        folder, log, pause = sys.argv[1:]
        open(log + " of processes", "a").write(f"{os.getpid()} ")
        rows = len(load_features(run(folder, log, pause=float(pause)), "2"))
        os.write(1, f"rows: {rows} {torch.distributed.is_initialized()}\\n".encode())  # at once, for two processes write there
        """))
    def start(folder, pause=0.):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, folder, tmp_path/"log", str(pause)]
        paths = os.pathsep.join([os.path.dirname(__file__), str(Path(__file__).parents[2])])
        return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return start


@pytest.mark.slow
def test_torchrun(torchrun, direct, tmp_path):
    out, _ = torchrun(tmp_path/"shared").communicate(timeout=300)
    assert out.count("rows: 57 False") == 2, out  # both return when all is there, and the group that extract began is gone
    same(tmp_path/"shared", direct)
    read = Logged(tmp_path/"log").who_read()
    for looked_at in [(rank, i) for rank in range(2) for i in range(5)]: read.remove(looked_at)  # both compare the first batch
    assert sorted(i for _, i in read) == list(range(57))
    assert {rank: {i//10 for r, i in read if r == rank} for rank in (0, 1)} == {0: {0, 2, 4}, 1: {1, 3, 5}}


@pytest.mark.slow
def test_torchrun_killed_and_taken_up(torchrun, direct, tmp_path):
    folder = tmp_path/"shared"
    process = torchrun(folder, pause=.02)
    deadline = time.time() + 240
    while not len(list(folder.glob("features-*"))) >= 2:
        assert process.poll() is None and time.time() < deadline, process.communicate()[0]
        time.sleep(.01)
    for pid in [process.pid, *map(int, (tmp_path/"log of processes").read_text().split())]: os.kill(pid, signal.SIGKILL)
    process.communicate()
    done = len(list(folder.glob("features-*")))
    assert 2 <= done < 6
    (tmp_path/"log").unlink()
    same(run(folder, tmp_path/"log"), direct)  # one process goes on with what two began
    assert len(Logged(tmp_path/"log").who_read()) <= 5 + 57 - 10*(done - 1) - 7  # what was done is not done again


# In a process group that is there already

def together(tmp_path, work, n=2):
    "Call `work(rank)` in `n` processes of one group; what each returned or raised."
    answers = fork.Queue()
    def call(rank):
        os.environ["RANK"] = str(rank)
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=rank, world_size=n)
        try: answers.put((rank, work(rank)))
        except Exception as e: answers.put((rank, f"{type(e).__name__}: {e}"))
        torch.distributed.destroy_process_group()
    processes = [fork.Process(target=call, args=(rank,)) for rank in range(n)]
    for p in processes: p.start()
    told = dict(answers.get(timeout=120) for _ in processes)
    for p in processes: p.join(timeout=60)
    assert [p.exitcode for p in processes] == [0]*n
    return [told[rank] for rank in range(n)]


def test_three_processes(direct, tmp_path):
    assert together(tmp_path, lambda rank: len(load_features(run(tmp_path/"shared", tmp_path/"log"), "3")), n=3) == [57]*3
    same(tmp_path/"shared", direct)


def test_more_processes_than_shards(direct, tmp_path):
    shutil.copytree(direct, tmp_path/"shared")
    (tmp_path/"shared"/"features-00003.safetensors").unlink()
    together(tmp_path, lambda rank: str(run(tmp_path/"shared", tmp_path/"log")))
    same(tmp_path/"shared", direct)


def test_data_parallel_models(direct, tmp_path):
    "Data parallel synchronizes buffers in each forward pass, and the processes have different numbers of batches."
    def work(rank):
        model = nn.parallel.DistributedDataParallel(network())
        extract(model, DataLoader(Logged(tmp_path/"log"), batch_size=5), ["2", "3"], tmp_path/"shared", shard_size=10, progress=False)
        return model.training and model.module.training
    assert together(tmp_path, work) == [True, True]
    same(tmp_path/"shared", direct)


def test_sharded_models_are_refused(tmp_path):
    def work(rank):
        from torch.distributed.fsdp import fully_shard
        model = network()
        fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
        extract(model, DataLoader(Logged(tmp_path/"log"), batch_size=5), "3", tmp_path/"shared")
    assert all("extract needs the whole model in each" in told for told in together(tmp_path, work))
    assert not (tmp_path/"shared").exists()


def test_an_error_in_one_is_told_to_all(direct, tmp_path):
    class Breaks(Logged):
        def __getitem__(self, i):
            if i == 33: raise OSError("broken")
            return super().__getitem__(i)
    def work(rank): extract(network(), DataLoader(Breaks(tmp_path/"log"), batch_size=5), ["2", "3"], tmp_path/"shared", shard_size=10, progress=False)
    first, second = together(tmp_path, work)
    assert first == "RuntimeError: process 1 failed: OSError: broken" and second == "OSError: broken"
    assert sorted(path.name for path in (tmp_path/"shared").glob("features-*")) == [f"features-0000{i}.safetensors" for i in (0, 1, 2, 4)]
    same(run(tmp_path/"shared", tmp_path/"log"), direct)


@pytest.mark.parametrize("what, text", [("weights", "different weights"), ("samples", "different samples"), ("layers", "layers: 2, 3 there, 3 here")])
def test_processes_must_agree(tmp_path, what, text):
    def work(rank):
        model, other = network(), rank == 1
        if what == "weights" and other: model[0].weight.data += 1
        data = Logged(tmp_path/"log", n=56 if what == "samples" and other else 57)
        extract(model, DataLoader(data, batch_size=5), ["3"] if what == "layers" and other else ["2", "3"], tmp_path/"shared")
    first, second = together(tmp_path, work)
    assert first.startswith("RuntimeError: process 1 failed: ValueError: process 0 has different settings") and text in first and text in second
    assert not (tmp_path/"shared").exists()


def test_processes_must_share_the_disk(tmp_path):
    told = together(tmp_path, lambda rank: run(tmp_path/f"disk {rank}", tmp_path/"log"))
    assert all("3 shards of other processes are missing in" in text for text in told)
