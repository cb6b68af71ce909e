"""What the kernel has logged since. The ordinary rules on the log judge it, over the events that are new."""

from __future__ import annotations

from collections.abc import Iterator

from nodecheck.facts import Absent, KernelLog, LogEvent, Node, Why, known
from nodecheck.judge import REGISTRY as ORDINARY
from nodecheck.judge import Rule, Status
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import Outcome, passed, skipped, unknown
from nodecheck.rental.drift.counters import same_boot
from nodecheck.rental.drift.rule import Compare, Drift, drift_rule

_Key = tuple[object, ...]


def since(now: Node, then: Node | None) -> Node:
    """`now` with only what its kernel log holds beyond that of `then`; whole where there is no such look.

    Within one boot an event is new where its last line came later than the same event's did then: both times are the
    log's own, which no other clock is exact enough to be held against. Of another boot everything is new.
    """
    log = now.kernel_log
    if (
        then is None
        or isinstance(log, Absent)
        or isinstance(log.events, Absent)
        or same_boot(then, now) is False
    ):
        return now
    before = then.kernel_log
    if isinstance(before, Absent) or isinstance(before.events, Absent):
        events = tuple(event for event in log.events if _after(event, then))
    else:
        known_events = {_key(event): event for event in before.events}
        events = tuple(
            fresh
            for event in log.events
            if (fresh := _fresh(event, known_events.get(_key(event)))) is not None
        )
    return now.model_copy(update={"kernel_log": log.model_copy(update={"events": events})})


def _key(event: LogEvent) -> _Key:
    device = None if isinstance(event.device, Absent) else event.device
    return event.kind, event.code, event.name, device, event.severity


def _fresh(event: LogEvent, before: LogEvent | None) -> LogEvent | None:
    """What is new of the event: as many lines as were added, with the time of the last."""
    if before is None:
        return event
    last, old = event.last_seconds, before.last_seconds
    later = last > old if known(last) and known(old) else event.count > before.count
    if not later:
        return None
    # Where the log has lost its oldest lines, the number says less than the time.
    return event.model_copy(update={"count": max(event.count - before.count, 1), "first_seconds": last})


def _after(event: LogEvent, then: Node) -> bool:
    """Whether the event came after a look that could not read the log."""
    if isinstance(then.host, Absent) or isinstance(then.host.uptime_seconds, Absent):
        return True
    return isinstance(event.last_seconds, Absent) or event.last_seconds > then.host.uptime_seconds


def _lost(log: KernelLog, now: Node, then: Node | None) -> Absent | None:
    """What says that lines which came after `then` are no longer in the log."""
    if log.complete is True:
        return None
    seen_until = 0.0
    if then is not None and same_boot(then, now) is not False:
        if isinstance(then.host, Absent) or isinstance(then.host.uptime_seconds, Absent):
            return None
        seen_until = then.host.uptime_seconds
    if not log.lines:
        return Absent(why=Why.failed, detail="the log holds no line: it was cleared")
    first = log.first_line_seconds
    if isinstance(first, Absent) or first <= seen_until:
        return None
    detail = f"the log begins {first:.0f} s after boot: what it held before was overwritten or cleared"
    return Absent(why=Why.failed, detail=detail)


def _of(rule: Rule) -> Compare:
    """The ordinary rule, asked of what is new.

    A failure stands from acceptance until the machine is started anew or the node accepted anew; a warning, which
    a program of the renter's may have caused, is told by the look that first sees it.
    """

    def compare(drift: Drift) -> Iterator[Outcome]:
        recent = tuple(rule.judge(since(drift.now, drift.before or drift.baseline), drift.profile))
        unasked = next((outcome for outcome in recent if outcome.status is Status.skipped), None)
        if unasked:
            yield skipped(unasked.detail)
            return
        log = drift.now.kernel_log
        if isinstance(log, Absent):
            yield unknown(NODE, log)
            return
        if isinstance(log.events, Absent):
            yield unknown(NODE, log.events)
            return
        standing = tuple(rule.judge(since(drift.now, drift.baseline), drift.profile))
        trouble = [o for o in standing if o.status is Status.fail] + [
            o for o in recent if o.status is Status.warn
        ]
        yield from trouble
        then = drift.before or drift.baseline
        if lost := _lost(log, drift.now, then):
            yield unknown(NODE, lost)
        elif not trouble:
            yield passed(
                f"Nothing since {drift.witness(then)}." if then else "Nothing since boot.", observed=0
            )

    return compare


for _rule in [
    rule for rule in ORDINARY.values() if rule.door == "kernel_log" and rule.id != "kernel_log.readable"
]:
    drift_rule(
        f"drift.{_rule.id}",
        f"Since the last look: {_rule.title[0].lower()}{_rule.title[1:]}",
        reads=f"{_rule.reads}; of these, the lines that are new",
        door=_rule.door,
        passes=_rule.passes,
        warns=f"{_rule.warns} Told by the look that first sees it." if _rule.warns else "",
        fails=f"{_rule.fails} It stands until the machine is started or the node accepted anew."
        if _rule.fails
        else "",
        cause=_rule.cause,
        owner=_rule.owner,
        meaning=_rule.meaning,
        next_step=_rule.next_step,
        repeat=_rule.repeat,
        fleeting=True,
    )(_of(_rule))
