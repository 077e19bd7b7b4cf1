"""The command `precast`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command line of this process and returns its exit status: 0, 1 or 2."""
    from . import _engine

    command = getattr(_engine, "command", None)
    if command is None:
        print("this build of the package has no command", file=sys.stderr)
        return 2
    # Python only notes an interrupt until the engine returns. The default ends the process, and the command replaces
    # it where it has work to finish.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return int(command(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
