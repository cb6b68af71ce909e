"""`nodecheck check` by the clock, without root: by the user's cron, or by the user's own systemd.

Nothing but our own entries is touched.
"""

from __future__ import annotations

import shlex

from nodecheck.rental.schedule.cron import Cron, lines_of
from nodecheck.rental.schedule.plan import Plan, ScheduleError, Way, plan, program, rehearse, runs, variables
from nodecheck.rental.schedule.systemd import Systemd

__all__ = ["WAYS", "Plan", "ScheduleError", "Way", "by_hand", "plan", "program", "rehearse"]

WAYS: tuple[Way, ...] = (Cron(), Systemd())
"""The better one first: cron runs whether or not anybody is logged in, and mails."""


def by_hand(plan: Plan) -> str:
    """What whoever can schedule here has to enter. Raises `ScheduleError`."""
    check = shlex.join(
        ["env", *(f"{name}={value}" for name, value in variables().items()), *runs(plan)["check"]]
    )
    return (
        "# a crontab's lines:\n"
        + "".join(f"{line}\n" for line in lines_of(plan))
        + "# or, where a container is started, in the background of what it runs:\n"
        + f"( cd {shlex.quote(str(plan.folder))}; while sleep {plan.every_minutes * 60}; do {check}; done ) &\n"
    )
