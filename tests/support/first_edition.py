"What is left to rewrite."
# Lessons that do not have the form of the second edition yet. The list only shrinks.
FIRST_EDITION = {
    "01-why-hooks",
    "02-four-signatures",
    "03-hook-class",
    "04-capture",
    "05-stats",
    "06-callback",
    "07-init",
    "08-gradients",
    "13-intervene",
    "14-patching",
    "15-memory-time",
    "16-text",
}
