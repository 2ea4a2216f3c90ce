"""Lets nbdev write the notebooks as pages, two at a time, and corrects what it writes."""
import json
import os
import re
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

SHORT_TYPES = {"__main__.": "", "torch.nn.modules.module.Module": "nn.Module", "torch.Tensor": "Tensor",
               "collections.abc.": "", "typing.": "", "pathlib.Path": "Path"}
# nbdev makes a link of each symbol in backticks, also within the text of a link:
# [[`Hook`](/lib/hooks/hook.html#hook) here](page.ipynb)
INNER_LINK = re.compile(r"\[(`[^`]+`)\]\([^)]*\)")
LINK_IN_LINK = re.compile(r"\[((?:[^\[\]]*\[`[^`]+`\]\([^)]*\))+[^\[\]]*)\](?=\()")
SIGNATURE = re.compile(r"(?<=^```python\n)def .*?(?=\n```$)", re.M | re.S)
SOURCE_LINK = re.compile(r"\[source\]\(\S*/blob/\w+/hooklab/(\S+?)\.py#L(\d+)\)\{.*?\}")


def process_notebooks(everything: bool):
    "Lets nbdev write the notebooks as pages into _proc: documented symbols, links, no hidden cells."
    import nbdev.processors
    import nbdev.serve
    nbdev.processors.get_config = cache(nbdev.processors.get_config)  # it is read for each cell: a third of the time
    nbdev.serve.parallel = in_processes
    nbdev.serve.proc_nbs(force=everything)


def in_processes(process, files: list, **_):
    "Does its work on each file, in as many processes as there are processors."
    if len(files) > 20:  # what notebooks import is read once, and not in each process
        for name in ("hooklab.all", "IPython", "matplotlib.pyplot"): import_module(name)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        list(pool.map(partial(attempt, process), files))


def attempt(process, file):
    "Does its work in another process, from which an error comes back as a text: not every kind of error can be sent."
    try: process(file)
    except Exception as error: raise RuntimeError(str(error)) from None
    tidy_page(file[1])


def spaced(signature: re.Match) -> str:
    "A signature as nbdev writes it, `x:int=1)->package.module.Type`, with the spaces of code and without our modules."
    lines = [re.match(r"(.*?)( # .*)?$", line).groups("") for line in signature[0].splitlines()]
    annotated = [
        (re.sub(r"(?<=[\s*])(\w+):(?=\S)", r"\1: ", re.sub(r"\bhooklab\.(?:[a-z_]\w*\.)+", "", code)), comment)
        for code, comment in lines
    ]
    return "\n".join(
        re.sub(r"(: [^=]+)=(?=\S)", r"\1 = ", code).replace(")->", ") -> ") + comment for code, comment in annotated
    )


def tidy_page(file: Path):
    "Fixes what nbdev wrote: a link within a link, source links to a repository, signatures without spaces, long types."
    nb = json.loads(file.read_text(encoding="utf-8"))
    for cell in nb["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = LINK_IN_LINK.sub(
                lambda link: "[" + INNER_LINK.sub(r"\1", link[1]) + "]", "".join(cell["source"])
            )
        for data in (output["data"] for output in cell.get("outputs", []) if "text/markdown" in output.get("data", {})):
            text = SOURCE_LINK.sub(r"[source](/source/\1.html#L\2){.source-link}", "".join(data["text/markdown"]))
            for long, short in SHORT_TYPES.items(): text = text.replace(long, short)
            text = SIGNATURE.sub(spaced, text)
            data["text/markdown"] = text
    file.write_text(json.dumps(nb), encoding="utf-8")
