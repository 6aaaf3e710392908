"""`python -m flanders` does the same as the command `flanders`."""

import sys

from flanders.cli import main

if __name__ == "__main__":
    sys.exit(main())
