"""The table of what is recorded: all of it is measured and can be read and drawn; rows that a later version adds."""
from dataclasses import replace

import matplotlib
import pytest
import torch
from torch import nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import hooklab as hl
from hooklab.stats.records import moments, statistics, together
from hooklab.stats.records.reading import read_records
from hooklab.stats.records.recorded import Records
from hooklab.stats.records.statistics import SAMPLE_ROWS, STATISTICS, row_names


def test_all_that_is_in_the_table_is_recorded_and_drawn_under_its_label():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(1))
    optimizer = torch.optim.SGD(model.parameters(), .1)
    with hl.ActivationStats(counts=True, samples=True, include_paramless=True).on(model, optimizer) as s:
        for _ in range(3):
            model(torch.randn(16, 4)).square().sum().backward()
            optimizer.step()
            s.step()
    shown = {name: one for name, one in STATISTICS.items() if not one.is_doubt}
    assert ["n", *s.history.whats, *s.updates.whats] == [*shown]
    assert {one.row for one in STATISTICS.values()} == {*s.history.rows, *s.updates.rows}
    for name, one in shown.items():
        history, noun = (s.updates, "update") if one.group == "updates" else (s.history, "output")
        assert history.values(name).shape == (len(history.names), 3) and one.row in history.rows
        ax = history.plot(name)
        said = ax.get_ylabel() or "".join(text.get_text() for text in ax.texts)
        assert one.label.replace("{}", noun) in said and (ax.get_yscale() == "log") == (one.axis == "log"), (name, said)
        plt.close("all")


def test_where_the_largest_counts_nothing_is_added(monkeypatch):
    "No row of the table is kept in this way today; here the fourth one is."
    monkeypatch.setattr(moments, "MAX_ROW_NUMBERS", [3])
    monkeypatch.setattr(together, "MAX_ROWS", {"near_zero"})
    tables = torch.tensor([[[4., 4., 0.], [0., 0., 0.], [1., 1., 0.], [-2., 7., 0.]],
                           [[0., 4., 0.], [0., 1., 0.], [0., 1., 0.], [0., 9., 0.]]])
    assert moments.merge_tables(tables)[3].tolist() == [-2, 9, 0]
    assert moments.scale_to_all(tables[0], 10)[2:].tolist() == [[10, 10, 0], [-2, 7, 0]]
    batch = moments.Batch([5000, 10])
    batch.tensors[0].fill_(0.)  # of two whole rows, and a third
    batch.tensors[1].fill_(1.)
    assert batch.measured()[3].tolist() == [2048, 0]
    metadata = [{"names": ["a", "b", "c"], "steps": [0], "stage": None, "parts": {}}]*2
    columns = [together.Columns(metadata, rank, of_parameters=False) for rank in range(2)]
    merging = [together.merge_moments(t[None].double(), c, row_names(False, False)) for t, c in zip(tables, columns)]
    assert [found[0, 3].tolist() for found in together.merge_side_by_side(merging)] == [[-2, 9, 0]]*2


@pytest.fixture
def earlier_file(tmp_path):
    "A record of a version that did not know the last of the counts."
    torch.manual_seed(0)
    rows = [row for row in row_names(True, False, True) if row != "around_zero"]
    history = hl.History(["0"], rows)
    history.fill([0, 1], torch.rand(2, len(rows), 1) + 2)
    Records({"activations": history}).save(tmp_path/"run.safetensors")
    return tmp_path/"run.safetensors", history


def test_a_record_of_an_earlier_version_lacks_a_number_and_goes_on(earlier_file, monkeypatch):
    path, history = earlier_file
    monkeypatch.setitem(statistics.STATISTICS, "around_zero", replace(STATISTICS["around_zero"], is_later=True))
    s = hl.ActivationStats.load(path)
    assert s.history.rows == row_names(True, False, True, True)
    assert s.history.values("around_zero").isnan().all()
    for what in history.whats: assert torch.equal(s.history.values(what), history.values(what))
    model = nn.Sequential(nn.Linear(4, 8))
    s.resume(model)
    model(torch.randn(16, 4))
    s.step()
    s.remove()
    assert s.steps == [0, 1, 2] and s.history.values("around_zero").isnan().tolist() == [[True, True, False]]


def test_numbers_that_were_always_recorded_may_not_be_missing(earlier_file):
    with pytest.raises(ValueError, match="doesn't know"): read_records(earlier_file[0])


@pytest.mark.parametrize("rows", [
    [], ["n", "mean"], ["update", "data"], row_names(True, False)[::-1], ["n", *row_names(False, False)],
    [*row_names(False, False), *SAMPLE_ROWS[:3]], [*row_names(True, True), "other"]])
def test_rows_that_no_version_recorded_are_refused(rows, tmp_path):
    history = hl.History(["0"], rows)
    history.fill([0], torch.ones(1, len(rows), 1))
    Records({"activations": history}).save(tmp_path/"run.safetensors")
    with pytest.raises(ValueError, match="doesn't know"): read_records(tmp_path/"run.safetensors")


@pytest.mark.parametrize("steps", [3, 256, 300])
def test_what_was_recorded_follows_the_model_to_its_device_when_it_is_resumed(steps):
    history = hl.History(["0"], row_names(False, False))
    history.fill(range(steps), torch.ones(steps, 4, 1))
    history.go_on(steps)
    assert not history.is_meta
    for step in range(steps, steps + 2): history.add(torch.zeros(4, 1, device="meta"), step)
    assert len(history) == steps + 2 and all(chunk.is_meta for chunk in history.kept.chunks)
