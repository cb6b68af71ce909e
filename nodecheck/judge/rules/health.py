"""Is the cards' memory sound, and does the driver ask for a repair?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodecheck.facts import (
    BROKE_DOWN,
    GIVEN_UP,
    Absent,
    Card,
    Fact,
    Maybe,
    Node,
    Why,
    known,
    or_none,
)
from nodecheck.facts.card import EccBlock, EccCounts
from nodecheck.judge.finding import NODE, Cause, Owner
from nodecheck.judge.rule import (
    Look,
    OnAmd,
    Outcome,
    amd_smi,
    card_rule,
    fail,
    passed,
    skipped,
    smi,
    unknown,
    warn,
)
from nodecheck.profile import CardSpec

MANY_CORRECTED = 10_000_000
"""Corrected errors since the driver was loaded; scitix/sichek and Azure's checks take a card out at 1e7."""
MANY_SRAM_UNCORRECTED = 4
"""Uncorrected SRAM errors over the card's life; scitix/sichek takes a card out above it."""
ROWS_IN_BANK = 512
"""Remapped rows; DCGM's diagnostic and Azure's node checks take a card out above it."""
MANY_RETIRED_PAGES = 63
"""Retired pages; DCGM's diagnostic takes a card out above it."""
MANY_LINK_CORRECTED = 100
"""Corrected errors of the xGMI links of an AMD card since the driver was loaded. Our own bound: nobody publishes "
"one."""
SLOW_CALL_SECONDS = 5.0
"""A healthy driver answers any one question about a started card in milliseconds."""

RESET = "Ask the provider to reset the card (or reboot the node) and to watch it afterwards."
WATCH_PAGES = (
    "Note the number with this report, to tell new pages from old ones; if it grows, ask for another card."
)
REPLACE = "Ask the provider for another card: this one is due for replacement."


def _has_ecc(spec: CardSpec) -> bool:
    return spec.ecc is not None


def _remaps(spec: CardSpec) -> bool:
    return spec.row_remap


@card_rule(
    "health.responsive",
    "The driver answers every question about the card",
    reads="how every NVML call about the card, or about it and another card, ended, and how long the slowest took",
    passes=f"every call came back, none after more than {SLOW_CALL_SECONDS:g} s",
    warns=f"a call took more than {SLOW_CALL_SECONDS:g} s",
    fails="a call did not come back within its deadline, or ended the program that made it",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="A card on which the driver hangs or crashes is about to be lost; programs that touch it hang as "
    "well and cannot be killed.",
    next_step="Keep your work off the card and ask the provider to reset or replace it.",
    repeat="timeout 20 nvidia-smi -q",
    on_amd=OnAmd(
        reads="whether the driver's files, amd-smi and ROCm's binding answered about the card, and how long the "
        "slowest took",
        door="amd_smi",
        repeat="timeout 60 amd-smi metric",
    ),
)
def responsive(look: Look) -> Outcome:
    health = look.card.health
    if look.card.vendor == "amd":
        return _responsive_of_amd(look)
    hung = dict(_timed_out(look.card))
    if hung:
        first = next((f": {detail}" for detail in hung.values() if detail), "")
        return fail(f"{_unanswered(hung)}{first}.", observed=f"{len(hung)} timed out")
    if told := _broken_between(look.card, look.node):
        return fail(f"{told}.", observed="no answer about two cards")
    if isinstance(look.card.usable, Absent):
        return unknown(NODE, look.card.usable)
    if not look.card.usable:
        return skipped("The driver does not hand out this card; see cards.usable.")
    if isinstance(health.slowest_call_seconds, Absent):
        slowest = health.slowest_call_seconds
        if slowest.why is Why.failed:
            return fail(f"The driver's library broke down: {slowest.detail}.", observed="broke down")
        if slowest.why is not Why.not_asked:
            return unknown(NODE, slowest)
        return passed("Every question was answered; how long it took was not noted.")
    told = f"{health.slowest_call_seconds:.2g} s ({health.slowest_call})"
    if health.slowest_call_seconds > SLOW_CALL_SECONDS:
        return warn(f"The slowest answer took {told}.", observed=told)
    return passed(f"The slowest answer took {told}.", observed=told)


def _responsive_of_amd(look: Look) -> Outcome:
    """amd-smi asks of all cards at once, so that a card that runs a kernel is not the one that holds it up."""
    card, topology = look.card, look.node.topology
    hung = dict(_timed_out(card))
    if hung:
        works = _runs_a_kernel(card, look.node)
        beside = (
            ", although the card runs a kernel: amd-smi itself, or another card, holds it up" if works else ""
        )
        return (warn if works else fail)(f"{_unanswered(hung)}{beside}.", observed=f"{len(hung)} timed out")
    if isinstance(card.usable, Absent):
        return unknown(NODE, card.usable)
    if not card.usable:
        return skipped("The driver does not hand out this card; see cards.usable.")
    slowest = topology if isinstance(topology, Absent) else topology.amd_smi_seconds
    if isinstance(slowest, Absent):
        return passed(
            "Every question to the driver's files was answered; amd-smi told nothing.", observed="answered"
        )
    told = f"The slowest answer of amd-smi took {slowest:.2g} s."
    words: dict[str, Any] = {
        "observed": f"{slowest:.2g} s",
        "observed_from": "amd_smi: the slowest of its commands",
    }
    return (warn if slowest > SLOW_CALL_SECONDS else passed)(told, **words)


def _runs_a_kernel(card: Card, node: Node) -> bool:
    tests = node.stack if isinstance(node.stack, Absent) else node.stack.contexts
    return not isinstance(tests, Absent) and any(test.card == card.key and test.ok is True for test in tests)


def _unanswered(hung: dict[str, str]) -> str:
    names = sorted(hung)
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"No answer in time about {', '.join(names[:4])}{more}"


def _timed_out(fact: Fact) -> Iterator[tuple[str, str]]:
    """Each value that did not come in time, and what was said of that."""
    for name in type(fact).model_fields:
        value = getattr(fact, name)
        if isinstance(value, Absent):
            if value.why is Why.timed_out:
                yield name, value.detail
        elif isinstance(value, Fact):
            yield from _timed_out(value)
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Fact):
                    yield from _timed_out(item)


def _broken_between(card: Card, node: Node) -> str:
    """The first question about this card and another that hung, or ended the program that asked it."""
    pairs = None if isinstance(node.topology, Absent) else or_none(node.topology.pairs)
    others = {other.key: other.short_name for other in node.known_cards}
    for pair in pairs or ():
        if card.key not in (pair.a, pair.b):
            continue
        for name in type(pair).model_fields:
            answer = getattr(pair, name)
            if not isinstance(answer, Absent) or GIVEN_UP in answer.detail:
                continue
            if answer.why is Why.timed_out or BROKE_DOWN in answer.detail:
                peer = pair.b if card.key == pair.a else pair.a
                return f"Asked of it and {others.get(peer, peer)}, one of the two broke down: {answer.detail}"
    return ""


# ECC


@card_rule(
    "health.ecc_mode",
    "ECC is as the product has it",
    path="health.ecc_enabled",
    expects="ecc",
    passes="ECC is on, or as the profile says",
    fails="ECC is off on a card that is sold with it on",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    vital=True,
    meaning="Without ECC, errors in memory are neither corrected nor noticed: results may be wrong in "
    "silence.",
    next_step="Have ECC switched on (`nvidia-smi -e 1`, as root, then a reset).",
    repeat=smi("ecc.mode.current", "ecc.mode.pending"),
    on_amd=OnAmd(
        reads="whether the driver watches over any block of the card (RAS, ras/features)",
        next_step="Have the driver loaded with RAS on: `amdgpu.ras_enable=0` on the kernel's command line, or in "
        "the module's options, turns it off.",
        repeat="cat /sys/class/drm/card*/device/ras/features",
    ),
)
def ecc_mode(look: Look) -> Outcome:
    if look.expected and not look.value:
        return fail("ECC is off.")
    return passed("On." if look.value else "Off, as the profile says.")


@card_rule(
    "health.ecc_pending",
    "ECC stays as it is",
    path="health.ecc_enabled_after_reset",
    applies=_has_ecc,
    passes="ECC will be the same after the next reset",
    warns="ECC will change with the next reset",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="After the next reboot the card has other memory protection than it was accepted with.",
    next_step="Ask the provider which of the two is meant, and have it applied by a reset.",
    repeat=smi("ecc.mode.current", "ecc.mode.pending"),
)
def ecc_pending(look: Look) -> Outcome:
    now = look.card.health.ecc_enabled
    if isinstance(now, Absent):
        return unknown(NODE, now)
    later = "on" if look.value else "off"
    words: dict[str, Any] = {"expected": now, "expected_from": "the mode now"}
    return (
        passed(f"{later.title()}.", **words) if look.value is now else warn(f"It will be {later}.", **words)
    )


def _uncorrected(counts: EccCounts) -> Maybe[int]:
    """All uncorrected errors; the parts count where the total was not told, or is smaller."""
    parts = [part for part in (counts.sram_uncorrected, counts.dram_uncorrected) if known(part)]
    if isinstance(counts.uncorrected, Absent):
        return sum(parts) if len(parts) == 2 or any(parts) else counts.uncorrected
    return max(counts.uncorrected, sum(parts))


def _where(counts: EccCounts, blocks: Maybe[tuple[EccBlock, ...]]) -> str:
    if known(blocks):
        with_errors = (
            f"{block.name} {block.uncorrected}"
            for block in blocks
            if known(block.uncorrected) and block.uncorrected
        )
        return ", ".join(with_errors) or "no block names them"
    return f"SRAM {counts.sram_uncorrected}, DRAM {counts.dram_uncorrected}"


@card_rule(
    "health.ecc_uncorrected_volatile",
    "No uncorrected memory error since the driver was loaded",
    path="health.ecc_volatile",
    applies=_has_ecc,
    passes="none",
    fails="one or more",
    cause=Cause.faulty,
    owner=Owner.provider,
    vital=True,
    meaning="Data in the card's memory was lost. The program that held it was ended, or went on with wrong "
    "data.",
    next_step=RESET,
    repeat=smi("ecc.errors.uncorrected.volatile.total"),
    on_amd=OnAmd(
        reads="uncorrected errors of every block since the driver was loaded",
        repeat=amd_smi("metric", "ecc", "ecc-blocks"),
    ),
)
def ecc_uncorrected_volatile(look: Look) -> Outcome:
    errors = _uncorrected(look.value)
    if isinstance(errors, Absent):
        return unknown(NODE, errors, expected=0)
    words: dict[str, Any] = {
        "observed": errors,
        "expected": 0,
        "expected_from": "no uncorrected error is normal",
    }
    where = _where(look.value, look.card.health.ecc_blocks)
    return fail(f"{errors} ({where}).", **words) if errors else passed("None.", **words)


@card_rule(
    "health.ecc_uncorrected_aggregate",
    "No uncorrected memory error over the card's life",
    path="health.ecc_aggregate",
    applies=_has_ecc,
    passes="none",
    warns="one or more: the card has lost data before; repaired memory keeps its count",
    fails=f"more than {MANY_SRAM_UNCORRECTED} in SRAM",
    cause=Cause.faulty,
    owner=Owner.provider,
    vital=True,
    meaning="The card has lost data in an earlier rental. Where the memory was repaired since, it may be "
    "sound; errors in SRAM are not repaired.",
    next_step="Note the count with this report, so that new errors can be told from old ones. If it grows, "
    "ask for another card.",
    repeat=smi("ecc.errors.uncorrected.aggregate.total", "remapped_rows.uncorrectable"),
)
def ecc_uncorrected_aggregate(look: Look) -> Outcome:
    errors, sram = _uncorrected(look.value), look.value.sram_uncorrected
    if isinstance(errors, Absent):
        return unknown(NODE, errors, expected=0)
    words: dict[str, Any] = {
        "observed": errors,
        "expected": 0,
        "expected_from": "no uncorrected error is normal",
    }
    where = _where(look.value, look.card.health.ecc_blocks)
    if known(sram) and sram > MANY_SRAM_UNCORRECTED:
        words |= {
            "expected_from": f"at most {MANY_SRAM_UNCORRECTED} in SRAM: scitix/sichek",
            "next_step": REPLACE,
        }
        return fail(f"{errors} ({where}).", **words)
    return warn(f"{errors} ({where}).", **words) if errors else passed("None.", **words)


@card_rule(
    "health.ecc_corrected",
    "Few corrected memory errors",
    path="health.ecc_volatile",
    applies=_has_ecc,
    passes="few or none since the driver was loaded; the number is stated",
    warns=f"{MANY_CORRECTED:,} or more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Corrected errors do no harm by themselves; this many of them announce uncorrected ones.",
    next_step="Read the counter again under load. If it keeps growing, ask for another card.",
    repeat=smi("ecc.errors.corrected.volatile.total", "ecc.errors.corrected.aggregate.total"),
    on_amd=OnAmd(repeat=amd_smi("metric", "ecc", "ecc-blocks")),
)
def ecc_corrected(look: Look) -> Outcome:
    errors = look.value.corrected
    if isinstance(errors, Absent):
        return unknown(NODE, errors)
    words: dict[str, Any] = {
        "observed": errors,
        "expected": f"below {MANY_CORRECTED:,}",
        "expected_from": "scitix/sichek, Azure/azurehpc-health-checks",
    }
    aggregate = look.card.health.ecc_aggregate
    told = f"{errors:,} since the driver was loaded"
    if isinstance(aggregate, EccCounts) and known(aggregate.corrected):
        told += f", {aggregate.corrected:,} over the card's life"
    return warn(f"{told}.", **words) if errors >= MANY_CORRECTED else passed(f"{told}.", **words)


@card_rule(
    "health.ecc_deferred",
    "No memory error waits to be met",
    of="amd",
    path="health.ecc_volatile",
    reads="deferred errors since the driver was loaded: found by the hardware in data that no program has used yet",
    passes="none, or this driver does not count them",
    warns="one or more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Data in the card's memory is known to be bad. The program that reads it is ended (poison), and the "
    "page is "
    "taken out of use.",
    next_step="Look at health.bad_pages, and ask the provider to reset the card and to watch it.",
    repeat=amd_smi("metric", "ecc", "ecc-blocks"),
)
def ecc_deferred(look: Look) -> Outcome:
    errors = look.value.deferred
    if isinstance(errors, Absent):
        return (
            skipped("This driver does not count them.")
            if errors.why is Why.not_supported
            else unknown(NODE, errors)
        )
    words: dict[str, Any] = {
        "observed": errors,
        "expected": 0,
        "expected_from": "no deferred error is normal",
    }
    return warn(f"{errors}.", **words) if errors else passed("None.", **words)


_LINK_BLOCK = "XGMI_WAFL"


@card_rule(
    "health.xgmi_errors",
    "The xGMI links carry data without errors",
    of="amd",
    path="health.ecc_blocks",
    reads="errors of the RAS block XGMI_WAFL since the driver was loaded; the driver counts those of the links nowhere "
    "else on MI300 and later (ROCm/rocm-systems#11468)",
    passes="no uncorrected one; corrected ones are stated",
    warns=f"{MANY_LINK_CORRECTED} or more corrected ones",
    fails="an uncorrected one",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A link between the cards loses data: collectives hang or end in an error, or slow down while it is sent "
    "again.",
    next_step=RESET,
    repeat=amd_smi("metric", "ecc-blocks"),
)
def xgmi_errors(look: Look) -> Outcome:
    if look.profile.links is None or look.profile.links.interconnect != "xgmi":
        return skipped("The profile promises no xGMI between cards.")
    block = next((block for block in look.value if block.name == _LINK_BLOCK), None)
    if block is None:
        return unknown(NODE, Absent(why=Why.not_present, detail=f"the driver names no block {_LINK_BLOCK}"))
    for count in (block.uncorrected, block.corrected):
        if isinstance(count, Absent):
            return unknown(NODE, count)
    uncorrected, corrected = or_none(block.uncorrected) or 0, or_none(block.corrected) or 0
    told = f"{uncorrected} uncorrected, {corrected} corrected"
    words: dict[str, Any] = {
        "observed": told,
        "expected": "0 uncorrected",
        "expected_from": "no such error is normal",
    }
    judged = fail if uncorrected else warn if corrected >= MANY_LINK_CORRECTED else passed
    return judged(f"{told}.", **words)


@card_rule(
    "health.bad_pages",
    "No page of the card's memory is bad",
    of="amd",
    path="health.bad_pages_retired",
    reads="pages that are retired, wait for it, or could not be taken out of use, and the driver's threshold",
    passes="none",
    warns="some are retired, fewer than the driver bears",
    fails="one waits for a reset or could not be taken out of use, or as many are retired as the driver bears",
    cause=Cause.faulty,
    owner=Owner.provider,
    vital=True,
    meaning="The card's memory has had errors that cannot be corrected. A page that waits is still in use; at the "
    "threshold the driver does not start the card any more.",
    next_step=RESET,
    repeat="amd-smi bad-pages",
)
def bad_pages(look: Look) -> Outcome:
    health, retired = look.card.health, look.value
    told = [f"{retired} retired"]
    gone = health.bad_page_threshold_exceeded is True
    if known(health.bad_page_threshold) and health.bad_page_threshold > 0:
        told.append(f"the driver bears {health.bad_page_threshold}")
        gone = gone or retired >= health.bad_page_threshold
    waiting = {
        "waiting": health.bad_pages_pending,
        "not to be taken out of use": health.bad_pages_unreservable,
    }
    told[1:1] = [f"{number} {name}" for name, number in waiting.items() if known(number) and number]
    words: dict[str, Any] = {
        "observed": ", ".join(told),
        "expected": 0,
        "expected_from": "AMD's acceptance guide (ROCm/system-acceptance-docs@23e7312) and amd/node-scraper@c393416",
    }
    if gone:
        return fail(f"{words['observed']}.", next_step=REPLACE, **words)
    if any(known(number) and number for number in waiting.values()):
        return fail(f"{words['observed']}.", **words)
    if retired:
        return warn(f"{words['observed']}.", next_step=WATCH_PAGES, **words)
    unseen = next((number for number in waiting.values() if isinstance(number, Absent)), None)
    if unseen is not None and unseen.why is not Why.not_supported:
        return unknown(NODE, unseen)
    return passed("None.", **words)


# What the driver flags


def _flag_rule(
    id: str, title: str, *, path: str, clear: str, trouble: str, bad: bool = True, **words: Any
) -> None:
    """A rule on a fact that is either right or wrong: it fails where the fact is `bad`."""

    @card_rule(id, title, path=path, passes=clear, fails=trouble, owner=Owner.provider, **words)
    def judged(look: Look) -> Outcome:
        if look.value is bad:
            return fail(f"{trouble[0].upper()}{trouble[1:]}.", expected=not bad)
        return passed("", expected=not bad)


_flag_rule(
    "health.sram_threshold",
    "SRAM errors are below the vendor's threshold",
    path="health.sram_threshold_exceeded",
    not_supported="This card does not tell.",
    clear="the threshold is not passed",
    trouble="SRAM errors have passed the vendor's threshold",
    cause=Cause.faulty,
    meaning="The vendor takes a card in this state for broken; errors in SRAM are not repaired.",
    next_step=REPLACE,
    repeat="nvidia-smi -q -d ECC | grep -i threshold",
)


@card_rule(
    "health.retired_pages",
    "Few memory pages are retired",
    path="health.retired_pages_pending",
    not_supported="Pages are not retired on this card: it remaps rows instead.",
    reads="pages retired and pages that wait for it, on cards before Ampere (nvmlDeviceGetRetiredPages_v2, "
    "nvmlDeviceGetRetiredPagesPendingStatus)",
    passes=f"none waits, and no more than {MANY_RETIRED_PAGES} are retired",
    fails=f"one waits for a reset, or more than {MANY_RETIRED_PAGES} are retired",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A page that waits is bad and still in use. With very many retired, the card is worn out.",
    next_step=RESET,
    repeat="nvidia-smi -q -d PAGE_RETIREMENT",
)
def retired_pages(look: Look) -> Outcome:
    health = look.card.health
    pages = [p for p in (health.retired_pages_single_bit, health.retired_pages_double_bit) if known(p)]
    if look.value:
        return fail("A bad page waits for a reset to be retired.")
    if sum(pages) > MANY_RETIRED_PAGES:
        return fail(
            f"{sum(pages)} pages are retired.",
            observed=sum(pages),
            expected=f"at most {MANY_RETIRED_PAGES}",
            expected_from="DCGM's diagnostic",
            next_step=REPLACE,
        )
    if len(pages) < 2:
        return unknown(NODE, Absent(why=Why.not_present, detail="the number of retired pages"))
    return passed(f"{sum(pages)} retired, none waits.", observed=sum(pages))


_flag_rule(
    "health.row_remap_pending",
    "No memory row waits to be remapped",
    path="health.row_remap_pending",
    applies=_remaps,
    clear="none waits",
    trouble="a bad memory row waits for a reset to be remapped",
    cause=Cause.faulty,
    vital=True,
    meaning="A row of the card's memory is bad and still in use until the card is reset.",
    next_step=RESET,
    repeat=smi("remapped_rows.pending", "remapped_rows.uncorrectable"),
)
_flag_rule(
    "health.row_remap_failed",
    "No remapping of a memory row has failed",
    path="health.row_remap_failed",
    applies=_remaps,
    clear="none has failed",
    trouble="the remapping of a memory row has failed",
    cause=Cause.faulty,
    vital=True,
    meaning="The card has bad memory and no spare rows left for it: errors there will come back.",
    next_step=REPLACE,
    repeat=smi("remapped_rows.failure"),
)


@card_rule(
    "health.row_remap_capacity",
    "Spare memory rows are left",
    path="health.bank_histogram",
    applies=_remaps,
    reads="rows remapped, and banks by the spare rows they have left (nvmlDeviceGetRemappedRows, "
    "nvmlDeviceGetRowRemapperHistogram)",
    passes="every bank has spare rows; the number of remapped rows is stated",
    warns="a bank has no spare row left",
    fails=f"more than {ROWS_IN_BANK} rows are remapped for uncorrected errors",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The next bad row in a bank without spare rows cannot be repaired, and the card fails then.",
    next_step=REPLACE,
    repeat=smi(
        "remapped_rows.correctable",
        "remapped_rows.uncorrectable",
        "remapped_rows.histogram.low",
        "remapped_rows.histogram.none",
    ),
)
def row_remap_capacity(look: Look) -> Outcome:
    health, banks = look.card.health, look.value
    rows = health.remapped_rows_uncorrected
    told = f"{rows if known(rows) else 'unknown'} rows remapped for uncorrected errors"
    if known(health.remapped_rows_corrected) and health.remapped_rows_corrected:
        told += f", {health.remapped_rows_corrected} for corrected ones"
    words: dict[str, Any] = {
        "observed": f"{told}; {banks.none} banks without spare rows, {banks.low} with few"
    }
    if known(rows) and rows > ROWS_IN_BANK:
        expected = {"expected": f"at most {ROWS_IN_BANK} rows", "expected_from": "DCGM's diagnostic"}
        return fail(f"{told}.", **words, **expected)
    if banks.none:
        return warn(f"{banks.none} memory banks have no spare row left; {told}.", **words)
    return passed(f"{told}.", **words)


@card_rule(
    "health.repair_pending",
    "No repair waits for a reset",
    path="health.channel_repair_pending",
    not_supported="This card does not repair channels or TPCs.",
    reads="pending repairs of memory channels and of TPCs (nvmlDeviceGetRepairStatus)",
    passes="none waits",
    fails="a memory channel or a TPC waits for a reset to be repaired",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The card knows of a broken part and goes on using it until it is reset.",
    next_step=RESET,
    repeat="nvidia-smi -q -d ECC | grep -i 'repair pending'",
)
def repair_pending(look: Look) -> Outcome:
    tpc = look.card.health.tpc_repair_pending
    waiting = [
        name for name, waits in (("a memory channel", look.value), ("a TPC", tpc)) if known(waits) and waits
    ]
    if waiting:
        return fail(f"A repair waits for a reset: {' and '.join(waiting)}.", observed=True, expected=False)
    if isinstance(tpc, Absent) and tpc.why is not Why.not_supported:
        return unknown(NODE, tpc)
    return passed("")


_flag_rule(
    "health.unrepairable_memory",
    "The memory can be repaired",
    path="health.unrepairable_memory",
    not_supported="This card does not tell.",
    clear="no memory is beyond repair",
    trouble="the card has memory that can no longer be repaired",
    cause=Cause.faulty,
    meaning="Errors in that memory will come back.",
    next_step=REPLACE,
    repeat="nvidia-smi -q -d ECC | grep -i unrepairable",
)

_ACTIONS = {
    "gpu_reset": "a reset of the card",
    "node_reboot": "a reboot of the node",
    "drain_p2p": "its peers to stop their work with it (drain), then a reset",
    "drain_and_reset": "its work to be drained, then a reset",
    "imex_reset": "the IMEX domain to be reset",
    "bus_reset": "a reset over the PCIe bus",
    "system_reboot": "a reboot of the whole system",
}


@card_rule(
    "health.recovery_action",
    "The driver asks for no repair of the card",
    path="health.recovery_action",
    not_supported="This driver does not tell.",
    passes="the driver asks for nothing",
    fails="the driver asks for a reset, a reboot or a drain",
    cause=Cause.faulty,
    owner=Owner.provider,
    vital=True,
    meaning="After an error the driver itself says that the card is not to be used before it was seen to.",
    next_step="Have the provider do what the driver asks for, and look for the Xid that led to it.",
    repeat="nvidia-smi -q | grep -i 'recovery action'",
)
def recovery_action(look: Look) -> Outcome:
    if look.value == "none":
        return passed("", expected="none")
    asked = _ACTIONS.get(look.value)
    if asked is None:
        return fail(f"The driver asks for {look.value}, which this version does not know.", expected="none")
    return fail(f"The driver wants {asked}.", expected="none")


@card_rule(
    "health.inforom",
    "The InfoROM is intact",
    path="identity.inforom_valid",
    not_supported="The card has no InfoROM that could be checked.",
    passes="its checksum is right",
    fails="its checksum is wrong",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The card's memory of its own serial number, ECC settings and retired rows is damaged: what it "
    "says about its health cannot be believed.",
    next_step=REPLACE,
    repeat=smi("inforom.img", "inforom.checksum_validation"),
)
def inforom(look: Look) -> Outcome:
    return passed("", expected=True) if look.value else fail("The InfoROM is corrupt.", expected=True)


@card_rule(
    "health.start",
    "The card starts at once (stated)",
    path="health.start_seconds",
    unit="s",
    passes="always; how long the driver took to hand out the card is stated",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat="time nvidia-smi -L",
)
def start(look: Look) -> Outcome:
    return passed(f"After {look.value:.2g} s.")
