"""Lets nbdev write the notebooks as pages, two at a time, and corrects what it writes."""
import json
import os
import re
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

from site_figures import fitted

# nbdev makes a link of each symbol in backticks, also within the text of a link:
# [[`Hook`](/lib/hooks/hook.html#hook) here](page.ipynb)
INNER_LINK = re.compile(r"\[(`[^`]+`)\]\([^)]*\)")
LINK_IN_LINK = re.compile(r"\[((?:[^\[\]]*\[`[^`]+`\]\([^)]*\))+[^\[\]]*)\](?=\()")


def process_notebooks(everything: bool):
    "Lets nbdev write the notebooks as pages into _proc: documented symbols, links, no hidden cells."
    import nbdev.processors
    import nbdev.serve
    nbdev.processors.get_config = cache(nbdev.processors.get_config)  # it is read for each cell: a third of the time
    nbdev.serve.parallel = in_processes
    nbdev.serve.proc_nbs(force=everything)


def in_processes(process, files: list, **_):
    "Does its work on each file, in as many processes as there are processors."
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        list(pool.map(partial(attempt, process), files))


def attempt(process, file):
    "Does its work in another process, from which an error comes back as a text: not every kind of error can be sent."
    try: process(file)
    except Exception as error: raise RuntimeError(str(error)) from None
    tidy_page(file[1])


def tidy_page(file: Path):
    "Takes links out of the text of links, where nbdev put them, and fits the figures to the site."
    nb = json.loads(file.read_text(encoding="utf-8"))
    data = [output.get("data", {}) for cell in nb["cells"] for output in cell.get("outputs", [])]
    for number, drawn in enumerate((each for each in data if "image/svg+xml" in each), 1):
        drawn["image/svg+xml"] = fitted("".join(drawn["image/svg+xml"]), number)
    def without_inner(link): return "[" + INNER_LINK.sub(r"\1", link[1]) + "]"
    for cell in nb["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = LINK_IN_LINK.sub(without_inner, "".join(cell["source"]))
    file.write_text(json.dumps(nb), encoding="utf-8")
