"""Stand-ins for `crontab`, `systemctl` and `loginctl` on PATH, that answer as the real ones do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CRONTAB = r"""#!/bin/sh
table="$TABLE"
case "$1" in
-l) [ -e "$table" ] || { echo "no crontab for $(id -un)" >&2; exit 1; }
    cat "$table" ;;
-)  cat > "$table.new"
    if [ -s "$table.new" ] && [ -n "$(tail -c 1 "$table.new")" ]; then
        echo '"-":1: missing newline before EOF' >&2; exit 1
    fi
    mv "$table.new" "$table" ;;
*)  echo "usage error: unrecognized option" >&2; exit 1 ;;
esac
"""

SYSTEMCTL = r"""#!/bin/sh
[ "$1" = --user ] || exit 1
echo "$*" >> "$CALLS"
case "$2" in
show) echo Version=252 ;;
is-active) echo active ;;
esac
"""

NO_BUS = "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n"

NOT_ALLOWED = "#!/bin/sh\necho 'You (renter) are not allowed to use this program (crontab)' >&2\nexit 1\n"


class Machine:
    """A folder of programs, a crontab, a home, and the environment that a program is started with."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.home = folder / "home"
        self.table = folder / "table"
        self.calls = folder / "calls"
        self.calls.touch()
        for made in (self.programs, self.home):
            made.mkdir()
        self.env = {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(folder / "state"),
            "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
            "TABLE": str(self.table),
            "CALLS": str(self.calls),
            "XDG_CONFIG_HOME": "",
        }
        self.has("systemctl", NO_BUS)
        self.has("loginctl", NO_BUS)

    def has(self, name: str, program: str) -> None:
        path = self.programs / name
        path.write_text(program)
        path.chmod(0o755)

    def units(self) -> dict[str, str]:
        folder = self.home / ".config" / "systemd" / "user"
        return {path.name: path.read_text() for path in sorted(folder.glob("*"))}


@contextmanager
def cron_daemon() -> Iterator[None]:
    """A process that is called like one."""
    code = "open('/proc/self/comm', 'w').write('cron'); print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        try:
            yield
        finally:
            os.kill(daemon.pid, 9)
