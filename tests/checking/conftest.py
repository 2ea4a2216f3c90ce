"Tests of rules ask how clearly a rule has seen something. Which word that has earned is tested in tests/findings."
from tests.stats.conftest import words_of_the_rules  # noqa: F401 (a fixture of each test)
