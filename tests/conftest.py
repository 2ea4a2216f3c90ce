"""Fixtures that every test may ask for, and who runs where."""
import atexit
import fcntl
import gc
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.checks import REPO

# A busy machine is slow, and not wrong.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def repo() -> Path:
    "The top of the repository."
    return REPO


@pytest.fixture(scope="session")
def site(repo) -> Path:
    "The folder of the site, built once for all tests that look at it."
    with open(repo/"pyproject.toml") as lock:  # of two processes that test, one builds and the other finds it built
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run([sys.executable, "tools/site.py"], cwd=repo, capture_output=True, text=True)
    if built.returncode: pytest.fail(f"The site could not be built (make site):\n{built.stdout}\n{built.stderr}", pytrace=False)
    return repo/"_docs"


@pytest.fixture(autouse=True)
def same_random_numbers():
    "A test has the same random numbers whichever tests ran before it, so that what fails fails again."
    random.seed(0)
    if "numpy" in sys.modules: sys.modules["numpy"].random.seed(0)
    if "torch" not in sys.modules: return
    torch = sys.modules["torch"]
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch):
    "A busy machine is slow, and not wrong: no time passes for the limit of preflight. A test of it has its own clock."
    if "hooklab" not in sys.modules: return
    from hooklab.stats.checking import time_limit
    monkeypatch.setattr(time_limit, "now", float)


@pytest.fixture
def net(request):
    "The `Net` of the file of tests, or that of support/nets.py, with the same numbers in each test."
    import torch

    from support import nets
    torch.manual_seed(0)
    return getattr(request.module, "Net", nets.Net)()


@pytest.fixture
def x():
    "A batch for it."
    import torch
    torch.manual_seed(1)
    return torch.randn(2, 4, requires_grad=True)


@pytest.fixture(scope="session", autouse=True)
def no_seeds_for_devices_that_are_not_there():
    "Else `torch.manual_seed` notes for each kind of device from where it was called, which takes longer than a test."
    for name in ("cuda", "xpu", "mtia") if "torch" in sys.modules else ():
        device = getattr(sys.modules["torch"], name, None)
        if device and not device.is_available(): device.manual_seed_all = lambda seed: None


@pytest.fixture(scope="module", autouse=True)
def quick_garbage_collection():
    "A test that collects garbage looks at what its file has made, and not at a million objects of imported libraries."
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def compiled_for_this_file():
    "What the tests of a file have compiled is not used by those of the next: torch keeps it by the class of a layer."
    yield
    if "torch._dynamo" in sys.modules: sys.modules["torch._dynamo"].reset()


@pytest.fixture(scope="module")
def one_thread():
    "The tests of a file that asks for it compute with one thread."
    import torch
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    "With `-n 2 --dist loadfile`, who runs what is said in support/sharing.py."
    if config.getvalue("dist") != "loadfile": return None
    from support.sharing import LongestFirst
    return LongestFirst(config, log)


def pytest_unconfigure():
    "The garbage that pytest collects at the end, five times, is that of the tests, and not all that was imported."
    gc.freeze()
    atexit.register(gc.unfreeze)  # else some libraries speak of leaks then


def pytest_collection_modifyitems(items):
    address = next((item.nodeid for item in items if " at 0x" in item.nodeid), None)
    if address: raise pytest.UsageError(f"{address}\nis called otherwise in each process of tests: give it another id.")
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu: return
    import torch
    if torch.cuda.is_available(): return
    for item in on_gpu: item.add_marker(pytest.mark.skip(reason="needs a GPU"))
