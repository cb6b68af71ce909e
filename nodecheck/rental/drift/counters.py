"""What has been counted since: errors, repairs, and time under a limit.

A counter that fell was set back (a reset of the card, a driver that was loaded anew) and has counted from zero; so
has one that lives no longer than the driver, where the machine or the card's own energy counter began anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from nodecheck.facts import NOT_ASKED, Absent, Card, Maybe, Node, Why, known
from nodecheck.facts.card import EccCounts
from nodecheck.judge import Cause, Owner, Status
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import Outcome, fail, of_card, passed, skipped, smi, unknown, warn
from nodecheck.judge.rules.condition import REPLAYS_PER_MINUTE
from nodecheck.rental.drift.rule import GRAVITY, NOTHING_BEFORE, Drift, drift_rule, no_cards, pairs
from nodecheck.report.text import plural

CORRECTED_PER_HOUR = 10_000
"""Corrected memory errors. Cards are taken out at 1e7 since the driver was loaded (scitix/sichek, Azure); at this rate
that takes six weeks, and a healthy card counts next to none. Our own bound."""
LINK_REPLAYS_PER_HOUR = 1_000
"""Replays and flit errors of one link. A healthy one has none (H200, 2026-11-30). Our own bound."""
AER_PER_HOUR = 480
"""Corrected PCIe errors; DCGM's test of PCIe bears that many in all."""
HOT_SHARE, HOT_LEAST_SECONDS = 0.05, 10.0
"""Of the time that passed, and at least. A single burst under full load is no fault of the cooling. Our own bounds."""
LEAST_HOURS = 1.0
"""Rates by the hour are counted over an hour at least: what a look after a minute finds is no rate yet."""


def elapsed_hours(then: Node, now: Node) -> float:
    """How long the two looks lie apart; by the time since boot where both are of one boot, which no clock sets back."""
    if same_boot(then, now) is True and known(then.host) and known(now.host):
        before, after = then.host.uptime_seconds, now.host.uptime_seconds
        if known(before) and known(after) and after >= before:
            return (after - before) / 3600
    return max((now.taken_at - then.taken_at).total_seconds(), 0.0) / 3600


def same_boot(then: Node, now: Node) -> bool | None:
    """Whether the machine was not started in between; None where nothing tells."""
    if isinstance(then.host, Absent) or isinstance(now.host, Absent):
        return None
    before, after = then.host.boot_id, now.host.boot_id
    if known(before) and known(after):
        return before == after
    up_then, up_now = then.host.uptime_seconds, now.host.uptime_seconds
    if known(up_then) and known(up_now):
        # In a sandbox without boot ids: the time since boot can only have grown by the time that passed.
        return up_now >= up_then + 0.5 * (now.taken_at - then.taken_at).total_seconds()
    return None


@dataclass(frozen=True)
class Pair:
    """A card at two times."""

    before: Card
    card: Card
    then: Node
    now: Node

    @property
    def began_anew(self) -> bool:
        """Whether counters of the driver started from zero in between."""
        was, energy = self.before.power.energy_joules, self.card.power.energy_joules
        reset = known(was) and known(energy) and energy < was
        return reset or same_boot(self.then, self.now) is False

    def grown(self, was: Maybe[float], now: Maybe[float], *, lifelong: bool = False) -> Maybe[float]:
        """By how much a counter has grown; `lifelong` ones outlive the driver."""
        if isinstance(now, Absent):
            return now
        if isinstance(was, Absent):
            return was
        return now if now < was or (self.began_anew and not lifelong) else now - was

    @property
    def hours(self) -> float:
        """Between the two, `LEAST_HOURS` at least."""
        return max(elapsed_hours(self.then, self.now), LEAST_HOURS)


Say = Callable[[Pair], Outcome]


def _counter_rule(
    id: str, title: str, *, stands: bool = False, door: str = "nvml", **words: Any
) -> Callable[[Say], Say]:
    """Register the decorated function as a rule on the counters of every card.

    What has grown since the last look is told by the look that finds it; what `stands` is counted from acceptance on.
    A rate is held against both times: what creeps is lost between looks that lie close together. One pass stands for
    all cards of which nothing is to be said.
    """

    def register(say: Say) -> Say:
        def compare(drift: Drift) -> Iterator[Outcome]:
            times = (drift.reference,) if stands else (drift.before, drift.baseline)
            thens = [then for then in times if then is not None]
            if not thens:
                yield skipped(NOTHING_BEFORE)
                return
            if why := no_cards(drift, thens[0]):
                yield why
                return
            told: list[str] = []
            silent = True
            for card in drift.now.known_cards:
                said = [
                    replace(say(pair), subject=of_card(card), expected_from=drift.witness(pair.then))
                    for then in thens
                    for pair in (Pair(old, new, then, drift.now) for old, new in pairs(then, drift.now))
                    if pair.card is card
                ]
                worst = max(said, key=lambda outcome: GRAVITY.index(outcome.status), default=None)
                if worst is None or worst.status is Status.skipped:
                    continue
                if worst.status is Status.passed:
                    told.append(worst.detail)
                else:
                    silent = False
                    yield worst
            if silent and told:
                what = " ".join(dict.fromkeys(told))
                yield passed(f"{plural(len(told), 'card')}: {what}", expected_from=drift.witness(thens[0]))
            elif silent:
                yield skipped("It is not counted here, or was not counted before.")

        drift_rule(id, title, door=door, fleeting=not stands, **words)(compare)
        return say

    return register


_UNCOUNTED = (Why.not_supported, Why.not_asked)
"""What a card does not count, or was not asked for then, is no loss of sight."""


def _uncounted(absent: Absent) -> Outcome:
    return skipped("not counted") if absent.why in _UNCOUNTED else unknown(NODE, absent)


def _ecc(of: Maybe[EccCounts], field: str) -> Maybe[int]:
    value: Maybe[int] = of if isinstance(of, Absent) else getattr(of, field)
    return value


@_counter_rule(
    "drift.counters.ecc_uncorrected",
    "No uncorrected memory error since acceptance",
    stands=True,
    reads="uncorrected errors over the card's life, or since the driver was loaded where that is not counted",
    passes="none has been added",
    fails="one or more have",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Data in the card's memory was lost. The program that held it was ended, or went on with wrong data.",
    next_step="Ask the provider to reset the card and to watch it; if it happens again, ask for another card.",
    repeat=smi("ecc.errors.uncorrected.aggregate.total", "ecc.errors.uncorrected.volatile.total"),
)
def ecc_uncorrected(pair: Pair) -> Outcome:
    was, now = pair.before.health, pair.card.health
    grown = pair.grown(
        _ecc(was.ecc_aggregate, "uncorrected"), _ecc(now.ecc_aggregate, "uncorrected"), lifelong=True
    )
    if isinstance(grown, Absent):
        grown = pair.grown(_ecc(was.ecc_volatile, "uncorrected"), _ecc(now.ecc_volatile, "uncorrected"))
    if isinstance(grown, Absent):
        return _uncounted(grown)
    if grown:
        return fail(f"{grown:.0f} have been added.", observed=grown, expected=0)
    return passed("none.")


@_counter_rule(
    "drift.counters.ecc_corrected",
    "Corrected memory errors stay rare",
    reads="corrected errors since the driver was loaded",
    passes=f"fewer than {CORRECTED_PER_HOUR:,} an hour; the number is stated",
    warns="more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Corrected errors do no harm by themselves; this many of them announce uncorrected ones.",
    next_step="Watch the counter under load. If it keeps growing, ask for another card.",
    repeat=smi("ecc.errors.corrected.volatile.total"),
)
def ecc_corrected(pair: Pair) -> Outcome:
    was, now = pair.before.health.ecc_volatile, pair.card.health.ecc_volatile
    return _rate(pair, _ecc(was, "corrected"), _ecc(now, "corrected"), CORRECTED_PER_HOUR)


def _rate(pair: Pair, was: Maybe[int], now: Maybe[int], limit: float) -> Outcome:
    grown = pair.grown(was, now)
    if isinstance(grown, Absent):
        return _uncounted(grown)
    rate = grown / pair.hours
    if rate > limit:
        said = f"{grown:,.0f} have been added, {rate:,.0f} an hour."
        return warn(said, observed=round(rate, 1), expected=f"at most {limit:,.0f}", unit="per hour")
    return passed(f"{grown:,.0f} added." if grown else "none.")


@_counter_rule(
    "drift.counters.row_remaps",
    "No row of memory was remapped",
    reads="remapped rows and, before Ampere and on AMD's cards, retired pages",
    passes="none has been added",
    warns="one or more have",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The card has found a bad place in its memory and put a spare one there. That is what spares are for; a "
    "card that does it again and again is about to run out of them.",
    next_step="Note it. With the next ones, or where a remap is pending or has failed, ask the provider for a reset or "
    "another card.",
    repeat=smi("remapped_rows.correctable", "remapped_rows.uncorrectable"),
)
def row_remaps(pair: Pair) -> Outcome:
    added: dict[str, float] = {}
    absent: Absent = NOT_ASKED
    for name, field in (
        ("rows for corrected errors", "remapped_rows_corrected"),
        ("rows for uncorrected errors", "remapped_rows_uncorrected"),
        ("pages for corrected errors", "retired_pages_single_bit"),
        ("pages for uncorrected errors", "retired_pages_double_bit"),
        ("bad pages", "bad_pages_retired"),
    ):
        was, now = getattr(pair.before.health, field), getattr(pair.card.health, field)
        grown = pair.grown(was, now, lifelong=True)
        if isinstance(grown, Absent):
            absent = grown if absent.why in _UNCOUNTED else absent
        else:
            added[name] = grown
    told = ", ".join(f"{name}: {number:.0f}" for name, number in added.items() if number)
    if told:
        return warn(f"Added {told}.", observed=sum(added.values()), expected=0)
    if added and absent.why in _UNCOUNTED:
        return passed("none.")
    return _uncounted(absent)


@_counter_rule(
    "drift.counters.pcie_replays",
    "The PCIe link repeats few packets",
    reads="the replay counter (nvmlDeviceGetPcieReplayCounter)",
    passes=f"at most {REPLAYS_PER_MINUTE} a minute; the number is stated",
    warns="more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The link corrupts packets and sends them again: a slot, riser or cable with bad contact.",
    next_step="Look again under load. If the counter keeps growing so, tell the provider.",
    repeat="nvidia-smi -q | grep -i replay",
)
def pcie_replays(pair: Pair) -> Outcome:
    return _rate(pair, pair.before.pcie.replays, pair.card.pcie.replays, 60 * REPLAYS_PER_MINUTE)


@_counter_rule(
    "drift.counters.links",
    "The links between the cards carry data without trouble",
    reads="recovery, replay and CRC counters of every link, and errors left after correction on NVLink 5",
    passes=f"no recovery, no error left after correction, and at most {LINK_REPLAYS_PER_HOUR} replays or flit CRC "
    "errors of a link an hour; CRC errors in data, which healthy links count too, are stated",
    warns="a link has had to recover, or has counted more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The link loses data on the way and sends it again; a link that recovers stands still meanwhile, and may "
    "go down next.",
    next_step="Look again under load. If the counters grow, tell the provider which links it is.",
    repeat="nvidia-smi nvlink -e",
)
def links(pair: Pair) -> Outcome:
    if isinstance(pair.card.links, Absent):
        return _uncounted(pair.card.links)
    if isinstance(pair.before.links, Absent):
        return _uncounted(pair.before.links)
    before = {link.index: link for link in pair.before.links}
    bad: list[str] = []
    absent: Absent = NOT_ASKED
    counted, data = False, 0.0
    for link in pair.card.links:
        old = before.get(link.index)
        for name, field, bearable in _LINK_COUNTERS if old else ():
            grown = pair.grown(getattr(old, field), getattr(link, field))
            if isinstance(grown, Absent):
                absent = grown if absent.why in _UNCOUNTED else absent
                continue
            counted = True
            if bearable is None:
                data += grown
            elif grown > bearable * pair.hours:
                bad.append(f"Link {link.index}: {grown:,.0f} {name}")
    if bad:
        return warn(f"{'; '.join(bad[:8])}.", observed="; ".join(bad), expected="none to speak of")
    if not counted or absent.why not in _UNCOUNTED:
        return _uncounted(absent)
    return passed(f"no trouble ({data:,.0f} CRC errors in data, sent again)." if data else "no trouble.")


_LINK_COUNTERS: tuple[tuple[str, str, float | None], ...] = (
    ("recoveries", "recovery_errors", 0),
    ("replays", "replay_errors", LINK_REPLAYS_PER_HOUR),
    ("CRC errors (flit)", "crc_flit_errors", LINK_REPLAYS_PER_HOUR),
    ("errors after correction", "effective_errors", 0),
    ("CRC errors (data)", "crc_data_errors", None),
)
"""Name, field, and how many an hour are bearable; None: any number."""


@_counter_rule(
    "drift.counters.throttling",
    "The cards are not held down by heat",
    reads="time under each limit (nvmlDeviceGetViolationStatus) as a share of the time that passed, and why the "
    "clocks are where they are now; the power limit, which every full load reaches, is stated and not held against "
    "a card",
    passes=f"heat has held the clocks down for less than {HOT_SHARE:.0%} of the time, or for less than "
    f"{HOT_LEAST_SECONDS:g} s",
    warns="for more; or the server's power brake holds the card down right now; or heat does, on a card that does not "
    "count the time",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The card does not run at full speed: its cooling, or the server's power supply, does not keep up.",
    next_step="Look at temperature and clocks under load, and tell the provider.",
    repeat="nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
)
def throttling(pair: Pair) -> Outcome:
    was, violations = pair.before.clocks.violations, pair.card.clocks.violations
    counted = known(violations) and known(was)
    reasons = pair.card.clocks.event_reasons
    slowing = _BRAKE if counted else _BRAKE | _HEAT
    slowed = [slowing[reason] for reason in (reasons if known(reasons) else ()) if reason in slowing]
    if slowed:
        return warn(f"Right now the card is slowed by {', '.join(slowed)}.", observed=", ".join(slowed))
    if isinstance(violations, Absent):
        return _uncounted(violations)
    if isinstance(was, Absent):
        return _uncounted(was)
    passed_seconds = max(elapsed_hours(pair.then, pair.now) * 3600, 1.0)
    hot = pair.grown(was.thermal_seconds, violations.thermal_seconds)
    if isinstance(hot, Absent):
        return _uncounted(hot)
    capped = pair.grown(was.power_seconds, violations.power_seconds)
    share = min(hot / passed_seconds, 1.0)
    words: dict[str, Any] = {"observed": round(100 * share, 1), "unit": "%"}
    if share >= HOT_SHARE and hot >= HOT_LEAST_SECONDS:
        limit = f"below {HOT_SHARE:.0%}"
        return warn(
            f"Heat has held the clocks down for {hot:.0f} s, {share:.0%} of the time.",
            expected=limit,
            **words,
        )
    power = f", the power limit for {min(capped / passed_seconds, 1.0):.0%}" if known(capped) else ""
    return passed(f"heat for {share:.0%} of the time{power}.", **words)


_BRAKE = {"hw_power_brake_slowdown": "the server's power brake"}
_HEAT = {
    "hw_thermal_slowdown": "heat (the hardware slows it)",
    "sw_thermal_slowdown": "heat (the driver slows it)",
}


@drift_rule(
    "drift.counters.aer",
    "The cards' slots count few PCIe errors",
    reads="AER counters of each card and NVSwitch (aer_dev_correctable, aer_dev_fatal, aer_dev_nonfatal)",
    door="pci",
    passes=f"no uncorrected error, and at most {AER_PER_HOUR} corrected ones an hour",
    warns="more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Transfers over PCIe fail or are repeated: slot, riser, cable, or the card.",
    next_step="Send this to the provider.",
    repeat="grep -H . /sys/bus/pci/devices/*/aer_dev_*",
    fleeting=True,
)
def aer(drift: Drift) -> Iterator[Outcome]:
    then = drift.before or drift.baseline
    if then is None:
        yield skipped(NOTHING_BEFORE)
        return
    if isinstance(drift.now.topology, Absent):
        yield unknown(NODE, drift.now.topology)
        return
    now, was = (
        drift.now.topology.pci_devices,
        then.topology if isinstance(then.topology, Absent) else (then.topology.pci_devices),
    )
    if isinstance(now, Absent):
        yield unknown(NODE, now)
        return
    if isinstance(was, Absent):
        yield skipped(f"They were not seen in {drift.witness(then)}.")
        return
    before = {device.address: device for device in was}
    anew = same_boot(then, drift.now) is False
    bad, counted = [], 0
    for device in now:
        old = before.get(device.address)
        for kind, bearable in (("corrected", AER_PER_HOUR), ("uncorrected", 0)) if old else ():
            first, last = getattr(old, f"aer_{kind}"), getattr(device, f"aer_{kind}")
            if isinstance(first, Absent) or isinstance(last, Absent):
                continue
            counted += 1
            grown = last if anew or last < first else last - first
            if grown > bearable * max(elapsed_hours(then, drift.now), LEAST_HOURS):
                bad.append(f"{device.address}: {grown:,} {kind}")
    words: dict[str, Any] = {"expected_from": drift.witness(then)}
    if bad:
        yield warn(f"{'; '.join(bad)}.", observed="; ".join(bad), expected="none to speak of", **words)
    elif counted:
        yield passed("Few or none.", observed=0, **words)
    else:
        yield skipped("The slots do not count errors, or do not show them here.")
