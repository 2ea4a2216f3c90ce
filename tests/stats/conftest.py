"Tests of rules ask how clearly a rule has seen something. Which word that has earned is tested in tests/findings."
import pytest

from hooklab.findings import found


@pytest.fixture(autouse=True)
def words_of_the_rules(monkeypatch):
    "Each finding keeps the level of its rule."
    monkeypatch.setattr(found, "earned_word", lambda tool, what, level: level)
