"A part of the bench of spikes: plants that always do harm, and healthy runs whose losses are noisy."
from support.portions import may_be_wrong, sample, sweep
from tests.bench.bench_spikes import recorded
from tests.bench.spike_cases import KINDS, WAYS, fits, noisy, run_of, step_of

HARM = ("wrong labels", "NaN in a sample", "rate times 100", "momentum times 1000", "an epsilon that is too small",
        "a re-initialized layer")  # always, in the results of the bench
SEED = 9  # with which the bench has not run
CASES = [(kind, way) for kind in HARM for way in WAYS if fits(kind, way)]


@sweep
def test_spikes_are_found_in_their_step():
    missed, n = [], 0
    for kind, way in sample(4, CASES, kind=lambda case: case[0]):
        plant = KINDS[kind](step_of(way, kind, SEED))
        found = [spike.step for spike in recorded(run_of(way, plant), SEED).spikes()]
        n += 1
        if plant.shows not in found: missed.append((kind, way, plant.shows, found))
    assert len(missed) <= may_be_wrong(.05, n), missed


@sweep
def test_noisy_losses_are_no_spikes():
    steps, false = 0, []
    for case in sample(10, noisy(), name=lambda case: case.name):
        stats = recorded(case.run, SEED)
        steps += len(stats.log)
        false += [(case.name, str(spike)) for spike in stats.spikes()]
    assert len(false) <= may_be_wrong(1/1000, steps), false
