"A doctor by rote, who knows what each disease of the clinic shows, and nothing of the plan of a case."
import math

from hooklab.exercises.checking import NotYet
from hooklab.exercises.looks import LOOKS
from hooklab.exercises.reports import SIGNS

SHOWS = {  # look, row, what is measured, sign, number, and the layer to name; {act} is each layer of that name in turn
    "NaN or Inf": ["gradients {before} output_finite_first < 1 {act}"],
    "constant inputs": ["batch inputs std < .05"],
    "inputs not scaled": ["batch inputs std > 10"],
    "labels shuffled": ["batch labels as_stored < .5"],
    "too few samples": ["batch samples different < 100"],
    "train and validation differ": ["batch inputs as_stored < .1"],
    "label in the input": ["batch inputs as_stored < .95"],
    "activation before the loss": ["loss answer smallest >= 0 last"],
    "wrong sign": ["loss answer gradient_right > 0", "updates head along_gradient > .2"],
    "eval mode": ["modes drop training < .5"],
    "batch norm": ["modes {norm} differ > .5 {norm}"],
    "learning rate too large": ["updates rate first > .1"],
    "learning rate jumps": ["updates rate largest > .1"],
    "learning rate too small": ["updates rate first < .001"],
    "scheduler each batch": ["updates rate last < 1e-4"],
    "weight decay too strong": ["updates lin1 growth < .5"],
    "no zero_grad": ["gradients head used > 1.5"],
    "step before backward": ["gradients head used < 1e-9"],
    "clipping too tight": ["gradients all used < .5"],
    "other parameters in the optimizer": ["updates head step < 1e-9"],
    "constant output": ["outputs {lin} std < 1e-9 {lin}"],
    "dead units": ["outputs {act} std < 1e-9 {act}", "outputs {act} near_zero > .99 {act}"],
    "saturated": ["outputs {act} near_zero < .01 {act}"],
    "samples alike": ["outputs {act} std_samples < 1e-9 {act}"],
    "units alike": ["outputs lin1 std_units < .01"],
    "activations vanish": ["outputs lin4 std < .01"],
    "dropout too strong": ["outputs drop near_zero > .9 drop"],
    "activations explode": ["outputs lin4 std > 20", "outputs lin4 finite < 1"],
    "gradients explode": ["gradients rnn parameters > 1000 rnn", "outputs rnn std > 1000 rnn"],
    "not trained": ["gradients lin4 reached < 1 lin4"],
    "frozen part": ["gradients lin1 requires_grad < 1"],
    "not in the optimizer": ["updates lin1 step < 1e-9", "updates rnn step < 1e-9 rnn"],
    "gradients vanish": ["gradients lin1 output < .01"]}


def claims_of(disease: str, layers: list[str]) -> list[tuple[str, tuple[str, str, str, float], str | None]]:
    "What would show a disease in a model of these layers: look, claim and layer."
    found = []
    for text in SHOWS[disease]:
        kind = next((kind for kind in ("act", "lin", "norm") if f"{{{kind}}}" in text), None)
        for i, layer in [*enumerate(layers)][::-1 if "{before}" in text else 1]:  # a gradient comes from the end
            if kind is not None and not layer.startswith(kind): continue
            filled = {kind: layer, "before": layers[i - 1]} if kind else {}
            look, row, what, sign, number, *named = text.format(**filled).split()
            found.append((look, (row, what, sign, float(number)), *(named or [None])))
            if kind is None: break
    return found


def examine(case) -> list[str]:
    "Take all looks that cost a point, and name what shows: the right names, and none for a healthy network."
    looks, named = {what: case.look(what) for what, side in LOOKS.items() if side.cost == 1}, []
    for disease in SHOWS:
        for look, claim, layer in claims_of(disease, [*looks["outputs"].table]):
            row, what, sign, number = claim
            if not SIGNS[sign](looks[look].table.get(row, {}).get(what, math.nan), number): continue
            if is_told(case.claim, *claim) and is_told(case.name, disease, layer): named.append(disease)
            if disease in named: break
        if len(named) == 2: return named
    case.name("nothing is wrong")
    return named


def is_told(f, *given) -> bool:
    "Whether what is said is right, or was before."
    try: f(*given)
    except NotYet as message: return "already" in str(message)
    return True
