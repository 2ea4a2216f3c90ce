"""torch-audit 0.3 on the runs of the bench, where it is installed.

It is not a part of any environment here: `pip install --no-deps --target FOLDER torch-audit rich click markdown-it-py
mdurl`, then `TORCH_AUDIT=FOLDER python -m tests.bench diagnose`."""
import contextlib
import importlib.util
import io
import os
import sys
from contextlib import contextmanager

# What its rules about training say, in hooklab's ids. Rules about style and speed are left out.
told = {"TA100": "NaN or Inf", "TA101": "NaN or Inf", "TA102": "gradients explode", "TA103": "not trained, dead units",
        "TA104": "not trained", "TA105": "dead units", "TA301": "inputs not scaled", "TA302": "constant inputs",
        "TA304": "batch norm", "TA305": "NaN or Inf", "TA500": "never ran"}


def installed() -> bool:
    folder = os.environ.get("TORCH_AUDIT")
    if folder and folder not in sys.path: sys.path.append(folder)
    return importlib.util.find_spec("torch_audit") is not None


class Audit:
    "torch-audit in the place of a record, every ten steps."
    def __init__(self): self.said: list[str] = []

    @contextmanager
    def on(self, model, optimizer=None, scaler=None, auto=False):
        from torch_audit import autopatch
        first = optimizer[0] if isinstance(optimizer, list) else optimizer
        with contextlib.redirect_stdout(io.StringIO()):
            auditor = autopatch(model, optimizer=first, every_n_steps=10, reporters=[], suppress_internal_errors=True)
        try: yield self
        finally:
            auditor.finish(report=False)
            auditor.unpatch()
            self.said = list(dict.fromkeys(what for f in auditor.findings if f.rule_id in told
                                           for what in told[f.rule_id].split(", ")))

    def step(self, loss=None): pass
