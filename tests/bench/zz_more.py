import sys, torch, collections; torch.set_num_threads(1)
from tests.bench.bench_diagnose import judge
from tests.bench.diagnose_faults import faults
from tests.bench.diagnose_healthy import healthy
from tests.bench.diagnose_more import more
seed=int(sys.argv[2]) if len(sys.argv)>2 else 0
cases=more() if sys.argv[1]=="more" else [*faults(),*healthy()]
vs=[judge(c,seed) for c in cases]
bad=[v for v in vs if v.case.causes and v.case.reach]; good=[v for v in vs if v.case.healthy]
sh=lambda f: sum(f)/max(len(f),1)
for v in bad+good:
    if not v.right or (v.first is False): print(str(v)[:230], "" if v.first is not False else " FIRST")
print(sys.argv, "cause",sh([v.cause for v in bad]),"rel",sh([v.relevant for v in bad]),"first",sh([v.first for v in bad if v.first is not None]),"certain",sh([any(a.startswith("certain") for a in v.alarms) for v in good]),"any",sh([bool(v.alarms) for v in good]),len(bad),len(good))
