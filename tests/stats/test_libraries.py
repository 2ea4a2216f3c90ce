"Healthy trainings with libraries from outside: what is certain is never said of them, and a record changes no loss."
import pytest
from bench.bench_libraries import alarms, look_apart
from bench.libraries import is_installed, names, packages_of

from support.portions import sample, sweep


@sweep
@pytest.mark.parametrize("name", sample(20, names()))
def test_a_healthy_training_with_a_library(name):
    if missing := [package for package in packages_of(name) if not is_installed(package)]:
        pytest.skip(f"needs {', '.join(missing)}, of the extra `wild`")
    row = look_apart(name)
    assert "failed" not in row and not row["changed"], row
    assert not [found for found in alarms(row) if found[0] == "certain"], row
