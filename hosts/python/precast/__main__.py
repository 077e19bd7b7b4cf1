"""The command, as `python -m precast`."""

import sys

from precast._command import main

if __name__ == "__main__":
    sys.exit(main())
