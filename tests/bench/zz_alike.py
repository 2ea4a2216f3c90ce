import sys, warnings, torch; warnings.simplefilter("ignore"); torch.set_num_threads(1)
import hooklab as hl
from hooklab.stats.evidence import Run
from tests.bench.diagnose_healthy import healthy
rows=[]
for c in healthy():
    r=hl.ActivationStats.for_diagnosis(); torch.manual_seed(0)
    try: c.run(r,0)
    except Exception as e: print("ERR",c.kind,c.name,repr(e)[:100]); continue
    d=hl.diagnose(r)
    if d: print("ALARM",c.kind,c.name,[(f.sure,f.what,f.layers[:2],f.evidence[:150]) for f in d])
    s=[l["apart"]/l["size"] for l in Run(r).looks if l["n_rows"]>1 and l["size"]>0]
    if len(s)>4: rows.append((min(s), sorted(s)[len(s)//2], s[-1]/max(s[:5]), c.name))
for r in sorted(rows)[:12]: print(r)
print("shrink")
for r in sorted(rows,key=lambda r:r[2])[:8]: print(r)
