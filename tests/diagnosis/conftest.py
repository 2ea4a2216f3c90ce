"Rules are tested here, too: each finding keeps the level of its rule."
from tests.stats.conftest import words_of_the_rules  # noqa: F401 (a fixture)
