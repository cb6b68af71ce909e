"""`python -m nodecheck`, and where the command begins."""

from __future__ import annotations

import sys


def main() -> None:
    """The command line, interruptible from its first moment on: reading its modules takes a tenth of a second."""
    try:
        from nodecheck.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
