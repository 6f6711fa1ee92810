"""`python -m ksivi.cli` runs the command line, as `ksivi` does."""

from . import main

main()
