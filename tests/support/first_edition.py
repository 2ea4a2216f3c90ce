"What is left to rewrite."
# Lessons that do not have the form of the second edition yet. The list only shrinks.
FIRST_EDITION = set()
