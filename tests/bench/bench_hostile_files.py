"""5,000 hostile files of five kinds, and what their readers make of them; and 300 writers that are killed."""
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

import hooklab as hl
from hooklab.features.dataset import load_features

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.hostile import KINDS, MOST_MIB, MOST_SECONDS, MOST_TIMES, Case, Originals, outcomes

FILES, KILLS = 5_000, 300


def of_kind(kind: str, cases: list[Case], originals: Originals) -> dict:
    "A row of the table: each case is read by two of its readers, chosen at random."
    seconds, grown, faults, refused = [], [], Counter(), 0
    for case in cases:
        with TemporaryDirectory() as folder:
            for found in outcomes(case, originals, Path(folder), some=2):
                seconds.append(found.seconds)
                grown.append(found.grown)
                refused += bool(found.said)
                faults["other than one sentence"] += bool(found.problem)
                faults["memory"] += found.much
                faults["time"] += found.seconds > MOST_SECONDS
                if found.problem or found.much or found.seconds > MOST_SECONDS: print(found, flush=True)
    return {"kind": kind, "files": len(cases), "reads": len(seconds), "refused": refused,
            "other than one sentence": faults["other than one sentence"],
            f"more than {MOST_MIB} MiB and {MOST_TIMES} times the file": faults["memory"],
            f"more than {MOST_SECONDS} s": faults["time"],
            "median ms": round(1000*median(seconds), 1), "most s": round(max(seconds), 2),
            "most MiB": round(max(grown), 1)}


def writers(originals: Originals, folder: Path) -> dict:
    "What writes a file again and again, and what reads it."
    run = hl.ActivationStats.load(originals.folder/"run.safetensors")
    x = torch.randn(4, 5, 4)
    def shards():
        for file in (folder/"features").glob("*.safetensors"): file.unlink()
        originals.features(folder/"features")
    def shards_read():
        if (folder/"features"/"index.json").exists(): originals.features(folder/"features")
        return load_features(folder/"features", "embed")[:]
    def page_read():
        if not (folder/"page").read_text(encoding="utf-8").endswith("</html>\n"): raise ValueError("half a page")
    return {"run": (lambda: run.save(folder/"run"), lambda: hl.ActivationStats.load(folder/"run")),
            "page": (lambda: run.report(folder/"page"), page_read),
            "record": (lambda: hl.record(originals.net, folder/"record", x),
                       lambda: hl.compare(folder/"record", originals.net)),
            "shards": (shards, shards_read)}


def killed(name: str, write, read, folder: Path, kills: int, drawn: random.Random) -> dict:
    "How often a file could not be read after its writer was killed at a random moment, and what is left beside it."
    broken, amid = 0, 0
    write()
    for _ in range(kills):
        child = os.fork()
        if not child:
            while True: write()
        time.sleep(drawn.random()*.1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        amid += any(folder.rglob(".*.unfinished"))
        try: read()
        except Exception as error:
            broken += 1
            print(name, error, flush=True)
    write()
    return {"file": name, "killed": kills, "amid writing": amid, "not whole": broken,
            "left after the next write": len([*folder.rglob(".*.unfinished")])}


def measure(files: str = "", kills: str = "") -> dict:
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    files, kills = (int(given.lstrip("-") or usual) for given, usual in ((files, FILES), (kills, KILLS)))
    with TemporaryDirectory() as place:
        originals = Originals(Path(place))
        cases = [Case(number) for number in range(files)]
        table = [of_kind(kind, [case for case in cases if case.kind == kind], originals) for kind in KINDS]
        rows, drawn = [], random.Random(0)
        (folder := Path(place)/"killed").mkdir()
        for name, (write, read) in writers(originals, folder).items():
            rows.append(killed(name, write, read, folder, kills//4, drawn))
    return {"hostile files, two readers each": table, "writers that were killed": rows}
