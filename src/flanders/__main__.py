"""`python -m flanders` is `flanders`."""

import sys

from flanders.cli import main

if __name__ == "__main__":
    sys.exit(main())
