"""``python -m sar``: the same as the ``sar`` command."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
