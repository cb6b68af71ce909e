"""Timers of our own among the user's systemd units."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nodecheck.rental.schedule.plan import Plan, ScheduleError, run, runs, told, variables
from nodecheck.report.text import brief
from nodecheck.writing import reason, write_whole


class Systemd:
    """Timers of the user's own systemd."""

    name = "systemd"

    def trouble(self) -> str:
        try:
            self._ctl("show", "--property=Version")
        except ScheduleError as error:
            return str(error)
        return ""

    def install(self, plan: Plan) -> str:
        wanted = unit_files(plan)
        folder = _unit_folder()
        before = {path.name: _content(path) for path in _units(folder)}
        if before != wanted:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                for name, content in wanted.items():
                    write_whole(folder / name, content, 0o644)
            except OSError as error:
                raise ScheduleError(f"cannot write to {folder}: {reason(error)}") from None
            self._take_out([folder / name for name in before if name not in wanted])
            self._ctl("daemon-reload")
        timers = [name for name in wanted if name.endswith(".timer")]
        self._ctl("enable", *timers)
        self._ctl("restart", *timers)
        where = f"what a check prints is in `journalctl --user --unit {_UNIT}check`"
        if _lingers():
            return where
        return f"{where}; it runs while you are logged in, and always after `loginctl enable-linger`"

    def remove(self) -> bool:
        paths = _units(_unit_folder())
        if paths:
            self._take_out(paths)
            self._ctl("daemon-reload")
        return bool(paths)

    def entries(self) -> tuple[str, ...]:
        timers = [path for path in _units(_unit_folder()) if path.suffix == ".timer"]
        return tuple(f"{path.name}: {self._state(path.name)}, {_times(_content(path))}" for path in timers)

    def _state(self, timer: str) -> str:
        try:
            return run("systemctl", "--user", "is-active", timer).stdout.strip() or "not known"
        except ScheduleError:
            return "not known"

    def _take_out(self, paths: Sequence[Path]) -> None:
        timers = [path.name for path in paths if path.suffix == ".timer"]
        if timers:
            self._ctl("disable", "--now", *timers)
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise ScheduleError(f"cannot remove {path}: {reason(error)}") from None

    def _ctl(self, *arguments: str) -> None:
        said = run("systemctl", "--user", *arguments)
        if said.returncode != 0:
            raise ScheduleError(f"systemctl --user {arguments[0]} failed: {told(said)}")


_UNIT = "nodecheck-"


def unit_files(plan: Plan) -> dict[str, bytes]:
    """Services and timers by file name. Raises `ScheduleError` where systemd cannot hold a path or variable."""
    clocks = {"check": f"OnBootSec=1min\nOnUnitActiveSec={plan.every_minutes}min\nRandomizedDelaySec=30s"}
    if plan.active_at is not None:
        hour, minute = plan.active_at
        clocks["active"] = f"OnCalendar=*-*-* {hour:02}:{minute:02}:00"
    setting = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in variables().items())
    if plan.options:
        setting += f"WorkingDirectory={_printable(str(plan.folder)).replace('%', '%%')}\n"
    files = {}
    for name, command in runs(plan).items():
        started = " ".join(_quoted(word).replace("$", "$$") for word in command)
        files[f"{_UNIT}{name}.service"] = (
            "[Unit]\nDescription=nodecheck: what has changed on this node?\n\n[Service]\nType=oneshot\n"
            f"{setting}ExecStart={started}\n"
            "# Another check was at work.\nSuccessExitStatus=75\n"
        ).encode()
        files[f"{_UNIT}{name}.timer"] = (
            f"[Unit]\nDescription=nodecheck by the clock\n\n[Timer]\n{clocks[name]}\n\n"
            "[Install]\nWantedBy=timers.target\n"
        ).encode()
    return files


def _quoted(word: str) -> str:
    """One word of a unit file, systemd.syntax(7)."""
    return '"' + _printable(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _printable(word: str) -> str:
    if not word.isprintable():
        raise ScheduleError(f"a path or variable has characters that no unit can hold: {brief(word, 300)}")
    return word


def _unit_folder() -> Path:
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(configured) if os.path.isabs(configured) else Path.home() / ".config") / "systemd" / "user"  # noqa: PTH117


def _units(folder: Path) -> list[Path]:
    return [
        path
        for name in ("check", "active")
        for ending in ("service", "timer")
        if (path := folder / f"{_UNIT}{name}.{ending}").exists()
    ]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ScheduleError(f"cannot read {path}: {reason(error)}") from None


def _times(timer: bytes) -> str:
    return ", ".join(line for line in timer.decode("utf-8", "replace").splitlines() if line.startswith("On"))


def _lingers() -> bool:
    try:
        said = run("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
    except ScheduleError:
        return False
    return said.stdout.strip() == "yes"
