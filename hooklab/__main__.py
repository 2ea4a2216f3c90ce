"""`python -m hooklab`: the command, for a shell that finds Python but not its scripts."""
from .cli import main

if __name__ == "__main__": main()
