"""Entries of our own in the user's crontab: a block between two marks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodecheck.facts import Absent
from nodecheck.rental.schedule.plan import Plan, ScheduleError, run, runs, seed, told, variables
from nodecheck.report.text import brief
from nodecheck.sources.commands import find

BEGIN: Final = "# >>> nodecheck (`nodecheck schedule remove` takes this block out) >>>"
END: Final = "# <<< nodecheck <<<"

LONGEST_LINE = 998
"""Vixie's cron and Debian's take no longer command."""
LARGEST_BYTES = 1024 * 1024
PROCESSES = Path("/proc")


class Cron:
    """The user's crontab."""

    name = "cron"

    def trouble(self) -> str:
        try:
            self._read()
        except ScheduleError as error:
            return str(error)
        return "" if _cron_runs() else "no cron daemon runs here"

    def install(self, plan: Plan) -> str:
        before = self._read()
        lines = lines_of(plan)
        after = with_block(before, lines)
        if after != before:
            self._write(after)
            shown = self._read()
            if with_block(shown, lines) != shown:
                raise ScheduleError("crontab took the entries, and does not show them: look at `crontab -l`")
        return "cron mails what a check prints; see MAILTO in crontab(5)"

    def remove(self) -> bool:
        before = self._read()
        after = with_block(before, ())
        if after != before:
            self._write(after)
        return after != before

    def entries(self) -> tuple[str, ...]:
        if isinstance(find("crontab"), Absent):
            return ()
        return block(self._read())

    def _read(self) -> str:
        said = run("crontab", "-l")
        if said.returncode == 0:
            if len(said.stdout) > LARGEST_BYTES:
                raise ScheduleError("the crontab is larger than 1 MiB, so it is left alone")
            return said.stdout
        # Nothing else is taken for an empty one: what cannot be read must not be overwritten. The second is busybox's.
        if "no crontab for" in said.stderr or (
            "can't open '" in said.stderr and "No such file" in said.stderr
        ):
            return ""
        raise ScheduleError(f"crontab -l failed: {told(said)}")

    def _write(self, text: str) -> None:
        said = run("crontab", "-", given=text.encode("utf-8", "surrogateescape"))
        if said.returncode != 0:
            raise ScheduleError(f"crontab did not take the entries: {told(said)}")


def lines_of(plan: Plan) -> tuple[str, ...]:
    """The entries of a crontab. Raises `ScheduleError` where one is longer than cron takes."""
    times = {"check": _cron_times(plan)}
    if plan.active_at is not None:
        hour, minute = plan.active_at
        times["active"] = f"{minute} {hour} * * *"
    setting = [f"{name}={value}" for name, value in variables().items()]
    lines = []
    for name, command in runs(plan).items():
        line = shlex.join(["env", *setting, *command])
        if plan.options:
            line = f"cd {shlex.quote(str(plan.folder))} && {line}"
        line = line.replace("%", "\\%")  # cron takes a bare one for the end of the line
        if len(line.encode("utf-8", "surrogateescape")) > LONGEST_LINE:
            raise ScheduleError(
                f"the entry has more than the {LONGEST_LINE} characters that cron takes: start it with a shorter PATH"
            )
        if not line.isprintable():
            raise ScheduleError(
                f"a path or variable has characters that no crontab can hold: {brief(line, 300)}"
            )
        lines.append(f"{times[name]} {line}")
    return tuple(lines)


def _cron_times(plan: Plan) -> str:
    every, chosen = plan.every_minutes, seed()
    if every == 1:
        return "* * * * *"
    within_hour = min(every, 60)
    minute = chosen % within_hour
    if plan.active_at is not None and (plan.active_at[1] - minute) % within_hour == 0:
        # Not in the minute of the other check, which would find the node busy.
        minute = (minute + within_hour // 2) % within_hour
    if every < 60:
        return f"{minute}-59/{every} * * * *"
    hours = every // 60
    if hours == 1:
        return f"{minute} * * * *"
    first = chosen // 60 % hours
    return f"{minute} {first} * * *" if hours == 24 else f"{minute} {first}-23/{hours} * * *"


def with_block(crontab: str, lines: Sequence[str]) -> str:
    """The crontab with these lines as our block, at its old place or at the end; without one where there are none.

    Every other line stays as it is, to the byte. Raises `ScheduleError` where a mark of the block was lost.
    """
    before, found, after = _parted(crontab)
    made = "".join(f"{line}\n" for line in (BEGIN, *lines, END)) if lines else ""
    if made and not found and before and not before.endswith("\n"):
        before += "\n"
    return before + made + after


def block(crontab: str) -> tuple[str, ...]:
    """The lines of our block. Raises `ScheduleError` where a mark of it was lost."""
    return tuple(_parted(crontab)[1].splitlines())


def _parted(crontab: str) -> tuple[str, str, str]:
    """What stands before our block, the lines in it, and what stands behind it."""
    found = [*_BLOCK.finditer(crontab)]
    if len(found) > 1 or any(len(mark.findall(crontab)) != len(found) for mark in (_BEGIN_LINE, _END_LINE)):
        raise ScheduleError(
            "the marks of nodecheck's block in your crontab are damaged: mend it with `crontab -e`"
        )
    if not found:
        return crontab, "", ""
    return crontab[: found[0].start()], found[0][1], crontab[found[0].end() :]


_BEGIN_LINE, _END_LINE = (re.compile(rf"^{re.escape(mark)}\r?$", re.MULTILINE) for mark in (BEGIN, END))
_BLOCK = re.compile(rf"^{re.escape(BEGIN)}\r?\n(.*?)^{re.escape(END)}(?:\r?\n|\Z)", re.MULTILINE | re.DOTALL)


def _cron_runs() -> bool:
    """Whether a cron daemon is among the processes that can be seen."""
    for name in PROCESSES.glob("[0-9]*/comm"):
        with suppress(OSError):
            comm = name.read_text().strip()
            if comm in ("cron", "crond", "fcron", "dcron") or (
                comm == "busybox" and b"crond" in (name.parent / "cmdline").read_bytes().split(b"\0")
            ):
                return True
    return False
