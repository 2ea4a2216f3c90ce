"What is left to rewrite."
# Lessons that do not have the form of the second edition yet. The list only shrinks.
FIRST_EDITION = {
    "09-update-ratio",
    "10-nan-hunt",
    "11-probes",
    "12-cam",
}
