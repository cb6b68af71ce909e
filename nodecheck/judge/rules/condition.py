"""Are the cards free of other work, and is nothing holding them back?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodecheck.facts import Absent, Host, Maybe, Node, Why, known
from nodecheck.facts.card import BUSY_BYTES, BUSY_PERCENT
from nodecheck.judge.finding import NODE, Cause, Owner, Status
from nodecheck.judge.rule import (
    Look,
    OnAmd,
    Outcome,
    amd_smi,
    card_rule,
    fail,
    passed,
    rule,
    skipped,
    smi,
    unknown,
    warn,
)
from nodecheck.profile import Profile

MIB = 1024**2
RESERVED_BYTES = 2048 * MIB
RESERVED_SHARE = 0.02
"""The driver keeps 66 to 869 MiB on the cards that could be looked at (0.4 % of an H200, 616 MiB; of a 40 GB A100
1.3 %), whatever their size: the larger of the two is more than twice that."""
CLOCK_STEP_MHZ = 15
"""Clocks come in steps of 15 MHz: less than one step apart is the same clock."""
REPLAYS_PER_MINUTE = 8
"""DCGM's health watch of PCIe warns above it (DCGM_LIMIT_MAX_PCIREPLAY_RATE)."""
HOT_MARGIN_CELSIUS = 3
"""An idle card this close to its own limit is not cooled."""


@card_rule(
    "cards.processes",
    "No program runs on the card",
    path="processes",
    reads="processes on the card (nvmlDeviceGetComputeRunningProcesses_v3 and Graphics)",
    passes="no computing process is listed and no memory in use speaks against it",
    warns="a computing process is listed",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Another program shares the card: it takes memory and time from yours, and any measurement is "
    "off.",
    next_step="If the process is yours, end it and run nodecheck again. If it is not, the card is shared "
    "with somebody: tell the provider.",
    repeat="nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv",
    on_amd=OnAmd(
        reads="processes that hold memory of the card, by KFD (/sys/class/kfd/kfd/proc), amd-smi or ROCm's binding",
        repeat=amd_smi("process"),
    ),
)
def processes(look: Look) -> Outcome:
    computing = [p for p in look.value if p.kind != "graphics"]
    if computing:
        told = ", ".join(_process(p.pid, p.name, p.used_bytes) for p in computing)
        return warn(f"{len(computing)} on the card: {told}.", observed=len(computing), expected=0)
    hidden = look.card.memory.unexplained_bytes
    if known(hidden) and hidden > BUSY_BYTES:
        return Outcome(
            Status.unknown,
            detail=f"The list is empty while {hidden / MIB:,.0f} MiB are in use: processes of other "
            "containers are not shown here.",
            observed=0,
        )
    drawing = len(look.value)
    return passed(
        f"No computing process{f', {drawing} for graphics' if drawing else ''}.", observed=0, expected=0
    )


def _process(pid: int, name: Maybe[str], used_bytes: Maybe[int]) -> str:
    parts = [name if known(name) else "unnamed", f"pid {pid}"]
    if known(used_bytes):
        parts.append(f"{used_bytes / MIB:,.0f} MiB")
    return f"{parts[0]} ({', '.join(parts[1:])})"


@card_rule(
    "cards.memory.in_use",
    "The card's memory is free",
    path="memory.used_bytes",
    unit="bytes",
    passes=f"no more than {BUSY_BYTES // MIB} MiB are in use, which is less than one CUDA context takes",
    warns="more is in use before the run",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Somebody is on the card: a job of yours, a process that never ended, or another tenant.",
    next_step="End your own jobs and run nodecheck again. If the memory stays in use with none of your "
    "processes there, ask the provider to reset the card.",
    repeat=smi("memory.used", "memory.total"),
    on_amd=OnAmd(
        next_step="End your own jobs and run nodecheck again. If the memory stays in use with none of your "
        "processes there, ask the provider to reset the card (some 300 MiB are the driver's own).",
        repeat="cat /sys/class/drm/card*/device/mem_info_vram_used",
    ),
)
def memory_in_use(look: Look) -> Outcome:
    used = f"{look.value / MIB:,.0f} MiB in use before the run"
    if look.value <= BUSY_BYTES:
        return passed(f"{used}.")
    hidden = look.card.memory.unexplained_bytes
    if isinstance(hidden, Absent):
        by = "by whom could not be seen"
    elif hidden > BUSY_BYTES:
        by = "held by no process that can be seen from here"
    else:
        by = "held by processes that can be seen here"
    return warn(f"{used}, {by}.", expected=BUSY_BYTES, expected_from="less than one CUDA context takes")


@card_rule(
    "cards.memory.unexplained",
    "A process that can be seen accounts for the memory in use",
    path="memory.unexplained_bytes",
    unit="bytes",
    passes=f"no more than {BUSY_BYTES // MIB} MiB are held by nobody who can be seen",
    warns="more is held, and no process in sight holds it",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="The card is shared with somebody outside this container, or a process that ended has left its "
    "memory behind.",
    next_step="Look in your other containers on this node. If nothing of yours is there, send this report "
    "to the provider: the card is not yours alone.",
    repeat=smi("memory.used") + "; nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
    on_amd=OnAmd(repeat="cat /sys/class/drm/card*/device/mem_info_vram_used; ls /sys/class/kfd/kfd/proc"),
)
def memory_unexplained(look: Look) -> Outcome:
    if look.value <= BUSY_BYTES:
        return passed("")
    return warn(f"{look.value / MIB:,.0f} MiB are held by no process that can be seen from here.", expected=0)


@card_rule(
    "cards.memory.reserved",
    "The driver keeps no more of the memory than usual",
    path="memory.reserved_bytes",
    unit="bytes",
    applies=lambda spec: spec.vendor == "nvidia",  # AMD's driver tells of no such part
    not_supported="The driver of this card does not tell what it keeps for itself.",
    reads="memory that the driver keeps, and what is neither used, free nor kept (nvmlDeviceGetMemoryInfo v2)",
    passes=f"both are below {RESERVED_BYTES // MIB} MiB or {RESERVED_SHARE:.0%} of the memory, whichever is more",
    warns="more is kept, or nobody accounts for more",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="This memory is counted in the card's total, and no program can have it: models and batches that fit on "
    "another card of this kind do not fit here.",
    next_step="Ask the provider to reset the card, and what keeps its memory if it stays so.",
    repeat=smi("memory.total", "memory.reserved", "memory.used", "memory.free"),
)
def memory_reserved(look: Look) -> Outcome:
    memory = look.card.memory
    total, used, free = memory.total_bytes, memory.used_bytes, memory.free_bytes
    if isinstance(total, Absent) or isinstance(used, Absent) or isinstance(free, Absent):
        absent = next(value for value in (total, used, free) if isinstance(value, Absent))
        return unknown(NODE, absent)
    most = max(RESERVED_BYTES, round(RESERVED_SHARE * total))
    words: dict[str, Any] = {"expected": most, "expected_from": "more than twice what drivers keep elsewhere"}
    if look.value > most:
        return warn(f"The driver keeps {look.value / MIB:,.0f} MiB for itself.", **words)
    rest = total - used - free - look.value
    if rest > most:
        return warn(
            f"{rest / MIB:,.0f} MiB are neither used, free nor kept by the driver.", observed=rest, **words
        )
    return passed(f"{look.value / MIB:,.0f} MiB, {look.value / total:.1%} of the memory.", **words)


@card_rule(
    "cards.idle",
    "The card is idle",
    path="gpu_utilization_percent",
    unit="%",
    not_supported="Utilisation is not told for this card (as under MIG).",
    passes=f"the card was busy for less than {BUSY_PERCENT} % of the last sample, or is just being started",
    warns="the card is busy before the run",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Something computes on the card. Your work and any measurement share it.",
    next_step="Find the program (cards.processes) and end it, or wait. If nothing of yours runs, tell the "
    "provider.",
    repeat=smi("utilization.gpu", "memory.used"),
    on_amd=OnAmd(repeat="cat /sys/class/drm/card*/device/gpu_busy_percent"),
)
def idle(look: Look) -> Outcome:
    busy = f"Busy for {look.value} % of the last sample"
    if look.value < BUSY_PERCENT:
        return passed(f"{busy}.")
    card = look.card
    nobody = card.processes == () and known(card.memory.used_bytes) and card.memory.used_bytes <= BUSY_BYTES
    if nobody and card.modes.persistence is False:
        # Without persistence mode the driver starts the card for each question, and counts that as work.
        return passed(f"{busy}, with no memory in use: the card starts up for each question.")
    return warn(f"{busy}{', with no process in sight' if card.processes == () else ''}.", expected=0)


# Are they unrestrained?


@card_rule(
    "cards.power_limit",
    "The power limit is the product's",
    path="power.limit_watts",
    expects="power_limit_watts",
    unit="W",
    passes="the limit is the product's, above it, or within what is still sold as the product",
    fails="the limit is lower",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    vital=True,
    meaning="A capped card is slower under load than the product, the more so the longer the load.",
    next_step="Ask the provider to set the power limit to the product's (`nvidia-smi -pl`, as root).",
    repeat=smi("enforced.power.limit", "power.limit", "power.default_limit", "power.max_limit"),
    on_amd=OnAmd(
        next_step="Ask the provider to set the power limit to the product's (`amd-smi set --power-cap WATTS`, as "
        "root).",
        repeat=amd_smi("static", "limit"),
    ),
)
def power_limit(look: Look) -> Outcome:
    full, limit = look.expected, look.value
    least = min(full, look.spec.power_limit_min_watts or full)
    if limit < least - 1:
        return fail(f"Capped at {limit:g} W; the product has {full:g} W.")
    if limit < full - 1:
        return passed(f"{limit:g} W, below {full:g} W and still within what is sold ({least:g} W).")
    return passed(f"{limit:g} W, above the product's {full:g} W." if limit > full + 1 else "")


@card_rule(
    "cards.clocks.max",
    "The highest clocks are the product's",
    path="clocks.max_sm_mhz",
    expects="max_sm_clock_mhz",
    unit="MHz",
    reads="highest SM and memory clock (nvmlDeviceGetMaxClockInfo, SM and MEM)",
    passes="both reach the product's",
    warns="one is lower",
    fails="one is lower by more than a tenth",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="A card whose clocks are capped in its VBIOS or driver computes more slowly than the product.",
    next_step="Ask the provider whether the card's clocks are limited, and why.",
    repeat=smi("clocks.max.sm", "clocks.max.memory"),
    on_amd=OnAmd(
        reads="highest clock of compute units and memory (pp_dpm_sclk, pp_dpm_mclk, or KFD's max_engine_clk_fcompute)",
        repeat="cat /sys/class/drm/card*/device/pp_dpm_sclk",
    ),
)
def clocks_max(look: Look) -> Outcome:
    pairs = [("SM" if look.card.vendor == "nvidia" else "compute", look.value, look.expected)]
    memory, promised = look.card.clocks.max_memory_mhz, look.spec.max_memory_clock_mhz
    if promised is not None and known(memory):
        pairs.append(("memory", memory, promised))
    low = [(name, seen, full) for name, seen, full in pairs if seen < full - CLOCK_STEP_MHZ]
    if not low:
        return passed(", ".join(f"{name} {seen} MHz" for name, seen, _ in pairs) + ".")
    detail = ", ".join(f"{name} clock up to {seen} MHz, not {full} MHz" for name, seen, full in low)
    gross = any(seen < 0.9 * full for _, seen, full in low)
    return (fail if gross else warn)(f"{detail[0].upper()}{detail[1:]}.")


@card_rule(
    "cards.clocks.application",
    "Application clocks do not hold the card back",
    path="clocks.application_sm_mhz",
    unit="MHz",
    not_supported="This card or driver has no application clocks.",
    reads="application clocks, and those that the card comes with (nvmlDeviceGetApplicationsClock, "
    "nvmlDeviceGetDefaultApplicationsClock)",
    passes="they are what the card comes with, or higher; on some products that is below the highest clock",
    warns="one is lower",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Somebody has set the clocks below what the card comes with; it will not boost above them.",
    next_step="Have the application clocks reset (`nvidia-smi -rac`, as root).",
    repeat=smi(
        "clocks.applications.graphics",
        "clocks.applications.memory",
        "clocks.default_applications.graphics",
        "clocks.default_applications.memory",
    ),
)
def clocks_application(look: Look) -> Outcome:
    clocks = look.card.clocks
    default = clocks.default_application_sm_mhz
    if isinstance(default, Absent):
        return unknown(NODE, default)
    low = [
        f"{name} {set_to} of {comes_with} MHz"
        for name, set_to, comes_with in (
            ("SM", look.value, default),
            ("memory", clocks.application_memory_mhz, clocks.default_application_memory_mhz),
        )
        if known(set_to) and known(comes_with) and set_to < comes_with - CLOCK_STEP_MHZ
    ]
    return warn(f"Held down: {', '.join(low)}.") if low else passed("")


_REASONS: dict[str, tuple[Status, str]] = {
    "gpu_idle": (Status.passed, "idle"),
    "applications_clocks_setting": (Status.passed, "application clocks"),
    "sw_power_cap": (Status.passed, "the power limit, as under full load"),
    "sync_boost": (Status.passed, "held in step with other cards"),
    "display_clock_setting": (Status.passed, "a display"),
    "sw_thermal_slowdown": (Status.warn, "heat (the driver slows the card)"),
    "hw_slowdown": (Status.fail, "a hardware slowdown"),
    "hw_thermal_slowdown": (Status.fail, "heat (the hardware slows the card)"),
    "hw_power_brake_slowdown": (Status.fail, "the server's power brake"),
    # AMD's, as amd-smi and as ROCm's binding call them.
    **dict.fromkeys(("ppt", "ppt_pwr"), (Status.passed, "the power limit, as under full load")),
    "low_utilization": (Status.passed, "idle"),
    **dict.fromkeys(
        tuple(
            f"gfx_clk_below_host_limit{part}" for part in ("", "_pwr", "_thm", "_total", "_power", "_thermal")
        ),
        (Status.passed, "a limit told by another of these"),
    ),
    **dict.fromkeys(("socket_thermal", "socket_thrm"), (Status.warn, "heat of the package")),
    **dict.fromkeys(("hbm_thermal", "hbm_thrm"), (Status.warn, "heat of its memory")),
    **dict.fromkeys(("vr_thermal", "vr_thrm"), (Status.warn, "heat of its voltage regulators")),
    **dict.fromkeys(("prochot", "prochot_thrm"), (Status.fail, "the server's signal to slow down (PROCHOT)")),
}


@card_rule(
    "cards.clocks.event_reasons",
    "Nothing holds the clocks down",
    path="clocks.event_reasons",
    passes="no reason, idleness, the power limit or a setting",
    warns="the driver slows the card because it is hot",
    fails="the hardware slows the card: heat, or the server's power brake",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The card is slowed before any load is on it: cooling or power supply of the server is not "
    "right.",
    next_step="Send this report to the provider: fans, heat sinks, power supplies and their cables want a "
    "look.",
    repeat=smi("clocks_event_reasons.active", "temperature.gpu", "power.draw"),
    on_amd=OnAmd(repeat=amd_smi("metric", "throttle", "temperature", "power")),
)
def clocks_event_reasons(look: Look) -> Outcome:
    strange = [reason for reason in look.value if reason not in _REASONS]
    told = ", ".join(_REASONS[reason][1] for reason in look.value if reason in _REASONS)
    statuses = {_REASONS[reason][0] for reason in look.value if reason in _REASONS}
    if Status.fail in statuses:
        return fail(f"The clocks are held down by {told}.")
    if Status.warn in statuses:
        return warn(f"The clocks are held down by {told}.")
    if strange:
        return Outcome(
            Status.unknown, detail=f"A reason that this version does not know: {', '.join(strange)}."
        )
    return passed(f"Clocks set by {told}." if told else "No reason is given.")


HOT_SECONDS = 60.0


@card_rule(
    "cards.clocks.violations",
    "The card has not been slowed by heat",
    path="clocks.violations",
    not_supported="This card does not count the time under a limit.",
    reads="time under each limit since the driver was loaded (nvmlDeviceGetViolationStatus)",
    passes=f"heat has held the clocks down for {HOT_SECONDS:g} s or less; the times are stated",
    warns="heat has held them down for longer",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="In earlier work this card got too hot to run at full speed; it will again.",
    next_step="Watch temperature and clocks under load, and tell the provider if they fall again.",
    repeat="nvidia-smi -q -d PERFORMANCE",
)
def clocks_violations(look: Look) -> Outcome:
    times = {
        "power": look.value.power_seconds,
        "heat": look.value.thermal_seconds,
        "board limit": look.value.board_limit_seconds,
        "reliability": look.value.reliability_seconds,
    }
    told = ", ".join(f"{name} {value:.1f} s" for name, value in times.items() if known(value))
    heat = look.value.thermal_seconds
    if isinstance(heat, Absent):
        return (
            skipped("This card does not count the time.")
            if heat.why is Why.not_supported
            else unknown(NODE, heat)
        )
    if heat > HOT_SECONDS:
        return warn(
            f"Heat has held the clocks down for {heat:.0f} s since the driver was loaded.", observed=told
        )
    return passed(f"Since the driver was loaded: {told}.", observed=told)


@card_rule(
    "cards.temperature",
    "The idle card is cool",
    path="temperature.gpu_celsius",
    unit="°C",
    reads="temperature of chip and memory, margin to the card's own limit (nvmlDeviceGetTemperatureV, "
    "nvmlDeviceGetMarginTemperature, nvmlDeviceGetTemperatureThreshold)",
    passes=f"more than {HOT_MARGIN_CELSIUS} °C are left to the card's own limit",
    warns="fewer are left, or the memory is at 95 °C",
    fails="nothing is left",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A card that is hot before any load on it will slow down or switch off under load.",
    next_step="If the card was just at work, wait some minutes and look again. Otherwise tell the provider "
    "that it is not cooled.",
    repeat=smi("temperature.gpu", "temperature.memory", "temperature.gpu.tlimit"),
    on_amd=OnAmd(
        reads="temperature of the hottest spot and of memory, and the card's own limit (hwmon temp2, temp3, "
        "temp2_crit)",
        repeat=amd_smi("metric", "temperature"),
    ),
)
def temperature(look: Look) -> Outcome:
    now, heat = look.value, look.card.temperature
    if not -20 < now < 150:
        return Outcome(Status.unknown, detail=f"{now} °C is no temperature that a working card can have.")
    margin = heat.margin_celsius
    if isinstance(margin, Absent):
        margin = (
            heat.slowdown_celsius
            if isinstance(heat.slowdown_celsius, Absent)
            else heat.slowdown_celsius - now
        )
    told = f"{now} °C"
    if known(margin):
        told += f", {margin} °C from the limit"
        if margin <= 0:
            return fail(f"{told}.")
        if margin <= HOT_MARGIN_CELSIUS:
            return warn(f"{told}.")
    memory = heat.memory_celsius
    if known(memory):
        told += f", memory {memory} °C"
        if 95 <= memory < 150:
            return warn(
                f"{told}.",
                expected="memory under 95",
                expected_from="limit of scitix/sichek for H200 and B200",
            )
    if isinstance(margin, Absent):
        return Outcome(Status.unknown, detail=f"{told}; the card does not tell its limit ({margin}).")
    return passed(f"{told}.")


@card_rule(
    "cards.mig",
    "The card is whole (MIG as rented)",
    path="modes.mig_enabled",
    not_supported="The card cannot be divided.",
    expects="mig",
    passes="MIG is as the profile says",
    warns="it will change with the next reset, or MIG is on and there is no slice to use",
    fails="MIG is on and was not rented so, or the other way round",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    vital=True,
    meaning="With MIG on, a program gets a slice of the card, without NVLink, and torch may see no card at "
    "all.",
    next_step="Ask the provider to switch MIG off (`nvidia-smi -mig 0`, as root, then a reset), or for "
    "slices.",
    repeat=smi("mig.mode.current", "mig.mode.pending") + "; nvidia-smi -L",
)
def mig(look: Look) -> Outcome:
    modes, on = look.card.modes, look.value
    if on is not look.expected:
        return fail(f"MIG is {'on' if on else 'off'}; the profile has it {'on' if look.expected else 'off'}.")
    if known(modes.mig_enabled_after_reset) and modes.mig_enabled_after_reset is not on:
        return warn(f"MIG is {'on' if on else 'off'} and will be the other way after the next reset.")
    if on and modes.mig_instances == 0:
        return warn("MIG is on and no slice has been made.")
    return passed(f"On, {modes.mig_instances} slices." if on else "Off.")


@card_rule(
    "cards.compute_mode",
    "Any program may use the card",
    path="modes.compute",
    passes="the compute mode is `default`",
    warns="only one process at a time may use the card",
    fails="no program may compute on the card",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Exclusive mode turns away the second process on a card (data loaders with CUDA, MPS clients, "
    "a second shell); prohibited mode turns away all.",
    next_step="Have the mode set back (`nvidia-smi -c DEFAULT`, as root).",
    repeat=smi("compute_mode"),
)
def compute_mode(look: Look) -> Outcome:
    if look.value == "default":
        return passed("")
    if look.value == "prohibited":
        return fail("Computing on the card is prohibited.", expected="default")
    if look.value.startswith("exclusive"):
        return warn("Only one process at a time may use the card.", expected="default")
    return warn(f"A compute mode that this version does not know: {look.value}.", expected="default")


@card_rule(
    "cards.persistence",
    "Persistence mode (stated)",
    path="modes.persistence",
    passes="always; whether the driver keeps the card ready between programs is stated",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat=smi("persistence_mode"),
)
def persistence(look: Look) -> Outcome:
    return passed(
        "On." if look.value else "Off: the first program on an idle card starts some seconds later."
    )


@card_rule(
    "cards.virtualization",
    "The card is a whole card",
    path="modes.virtualization",
    passes="bare metal or pass-through: the whole card belongs to this machine; of AMD's also its virtual function, "
    "which "
    "is how clouds rent it, and of which cards.compute_units and cards.memory.total say whether it is all of the card",
    fails="the card is a virtual one, or serves virtual ones to guests",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    vital=True,
    meaning="A vGPU is a share of a card: other guests compute on the same chip, and peer access and "
    "profiling are limited.",
    next_step="Ask the provider for a card of its own (pass-through), if that is what was rented.",
    repeat="nvidia-smi -q | grep -A2 'Virtualization Mode'",
    on_amd=OnAmd(
        repeat="lspci -nn -d 1002:", next_step="Ask the provider for whole cards, if that is what was rented."
    ),
)
def virtualization(look: Look) -> Outcome:
    if look.value in ("none", "passthrough"):
        return passed(
            "Bare metal." if look.value == "none" else "Passed through to this virtual machine, whole."
        )
    if look.value == "virtual_function":
        return passed(
            "A virtual function: the whole card's compute units and memory, without its settings and sensors."
        )
    if look.value in ("vgpu", "host_vgpu", "host_vsga"):
        what = "a share of a card (vGPU)" if look.value == "vgpu" else "serving virtual cards to guests"
        return fail(f"The card is {what}.", expected="none or passthrough")
    return fail(
        f"A virtualisation mode that this version does not know: {look.value}.",
        expected="none or passthrough",
    )


@rule(
    "cards.confidential_computing",
    "Confidential computing (stated)",
    reads="the driver's confidential-computing state (nvmlSystemGetConfComputeState)",
    door="nvml",
    passes="always; whether it is on is stated",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat="nvidia-smi conf-compute -f",
)
def confidential_computing(node: Node, profile: Profile) -> Iterator[Outcome]:
    if profile.count == 0:
        yield skipped(f"The profile {profile.name} has no cards.")
    elif isinstance(node.stack, Absent):
        yield unknown(NODE, node.stack)
    elif isinstance(node.stack.driver.confidential_computing, Absent):
        state = node.stack.driver.confidential_computing
        yield (
            skipped("This driver or card has no confidential computing.")
            if state.why is Why.not_supported
            else unknown(NODE, state)
        )
    elif node.stack.driver.confidential_computing:
        yield passed(
            "On: transfers between host and card are encrypted and slower than the figures.", observed=True
        )
    else:
        yield passed("Off.", observed=False)


# AMD's settings


def _partition_rule(kind: str, title: str, whole: str, meaning: str) -> None:
    @card_rule(
        f"cards.partition.{kind}",
        title,
        path=f"modes.{kind}_partition",
        expects=f"{kind}_partition",
        of="amd",
        passes="it is the mode that the bundle is sold in",
        fails="it is another, left on by somebody",
        cause=Cause.misconfigured,
        owner=Owner.provider,
        vital=True,
        door="kfd",
        meaning=meaning,
        next_step=f"Ask the provider to set it back (`amd-smi set --{kind}-partition {whole}`, as root, with no "
        "program on "
        "the card).",
        repeat=f"cat /sys/class/drm/card*/device/current_{kind}_partition",
    )
    def judged(look: Look) -> Outcome:
        if look.value == look.expected:
            return passed("")
        package = look.card.package
        of = f" of the package {package}" if known(package) and kind == "compute" else ""
        return fail(f"The mode{of} is {look.value}, not {look.expected}.")


_partition_rule(
    "compute",
    "The package is not split into devices other than rented",
    "SPX",
    "In DPX, QPX or CPX mode each package shows as two, four or eight small devices: what looks like 64 cards is "
    "eight, and "
    "a program that takes one device gets an eighth of a card.",
)
_partition_rule(
    "memory",
    "The card's memory is not split other than rented",
    "NPS1",
    "In NPS2 or NPS4 mode the memory is divided among parts of the package: one allocation cannot have all of it, and "
    "copies go at another speed than the figures.",
)

_FREE_LEVELS = ("auto", "high", "perf_determinism", "determinism", "stable_peak", "profile_peak")


@card_rule(
    "cards.clocks.performance_level",
    "Nobody holds the clocks down by hand",
    path="clocks.performance_level",
    of="amd",
    passes="the level is `auto`, `high` or deterministic",
    warns="it is `low`, `manual` or another that is made for measurements of drivers",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The card keeps to the clocks that somebody has set, whatever the load.",
    next_step="Have it set back (`amd-smi set --perf-level auto`, as root).",
    repeat="cat /sys/class/drm/card*/device/power_dpm_force_performance_level",
)
def performance_level(look: Look) -> Outcome:
    level = look.value.lower()
    return (
        passed(f"{level}.")
        if level in _FREE_LEVELS
        else warn(f"The clocks are set by hand: {level}.", expected="auto")
    )


# The host link


@card_rule(
    "cards.pcie.width",
    "The PCIe link has its lanes",
    path="pcie.width",
    expects="pcie_widths",
    unit="lanes",
    passes="the link has a width that the bundle comes with",
    fails="it has fewer lanes (unlike the generation, the width does not fall when the card idles)",
    cause=Cause.faulty,
    owner=Owner.provider,
    vital=True,
    meaning="Half the lanes are half the bandwidth between host and card: a badly seated card, riser or "
    "cable.",
    next_step="Send this report to the provider: the card or its riser wants to be seated anew.",
    repeat=smi("pcie.link.width.current", "pcie.link.width.max"),
    on_amd=OnAmd(repeat="grep -H . /sys/bus/pci/devices/*/current_link_width"),
)
def pcie_width(look: Look) -> Outcome:
    if look.value <= 0:
        return Outcome(Status.unknown, detail="The driver gives no width.")
    if look.value < min(look.expected):
        widest = look.card.pcie.max_width
        could = f"; card and slot could do {widest}" if known(widest) else ""
        return fail(f"{look.value} lanes, not {' or '.join(map(str, look.expected))}{could}.")
    return passed(f"{look.value} lanes.")


@card_rule(
    "cards.pcie.generation",
    "Card and slot can run the product's PCIe generation",
    path="pcie.max_generation",
    expects="pcie_generation",
    reads="highest generation of card and slot together, of the card alone, and now "
    "(nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetGpuMaxPcieLinkGeneration, "
    "nvmlDeviceGetCurrPcieLinkGeneration)",
    passes="card and slot together reach it, or the link runs at it now",
    fails="they do not reach it; in a virtual machine, whose slot may be an emulated one, that is unknown",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="One generation less is half the bandwidth between host and card.",
    next_step="Ask the provider for a server whose slots run the card at its own generation.",
    repeat=smi("pcie.link.gen.max", "pcie.link.gen.gpumax", "pcie.link.gen.current"),
    on_amd=OnAmd(
        reads="link speed that card and slot reach together, and now (max_link_speed, current_link_speed)",
        repeat="grep -H . /sys/bus/pci/devices/*/max_link_speed",
    ),
)
def pcie_generation(look: Look) -> Outcome:
    pcie, full = look.card.pcie, look.expected
    now = f", now {pcie.generation}" if known(pcie.generation) else ""
    told = f"Up to generation {look.value}{now}"
    if look.value >= full or (known(pcie.generation) and pcie.generation >= full):
        return passed(f"{told}.")
    if known(pcie.card_max_generation) and pcie.card_max_generation < full:
        return fail(f"{told}: the card itself reaches generation {pcie.card_max_generation} only.")
    host = look.node.host
    if isinstance(host, Host) and known(host.virtualization) and host.virtualization != "none":
        return Outcome(
            Status.unknown,
            detail=f"{told}; the slot that this virtual machine shows may not be the real one.",
        )
    return fail(f"{told}: the slot holds the card down.")


@card_rule(
    "cards.pcie.replays",
    "The PCIe link repeats few packets",
    path="pcie.replays",
    not_supported="This card does not count replays.",
    passes=f"at most {REPLAYS_PER_MINUTE} a minute since boot, on average, or as many as an hour would "
    "bear; the number is stated",
    warns="more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The link corrupts packets and sends them again: a slot, riser or cable with bad contact.",
    next_step="Read the counter again under load. If it grows by more than some a minute, tell the provider.",
    repeat=smi("pcie.link.gen.current", "pcie.link.width.current") + "; nvidia-smi -q | grep -i replay",
    on_amd=OnAmd(repeat="cat /sys/class/drm/card*/device/pcie_replay_count"),
)
def pcie_replays(look: Look) -> Outcome:
    host = look.node.host
    uptime = host.uptime_seconds if isinstance(host, Host) else host
    if look.value <= 60 * REPLAYS_PER_MINUTE:
        return passed(f"{look.value} since the driver was loaded.")
    if isinstance(uptime, Absent):
        return Outcome(
            Status.unknown,
            detail=f"{look.value} replays, over an unknown time: the uptime was not seen ({uptime}).",
        )
    per_minute = look.value / max(uptime / 60, 60)
    if per_minute > REPLAYS_PER_MINUTE:
        return warn(
            f"{look.value} in {uptime / 3600:.1f} h since boot, {per_minute:.1f} a minute.",
            expected=f"at most {REPLAYS_PER_MINUTE} a minute",
            expected_from="DCGM, health watch of PCIe",
        )
    return passed(f"{look.value} in {uptime / 3600:.1f} h since boot.")


_MANY_LINK_EVENTS = 100


@card_rule(
    "cards.pcie.link_events",
    "The PCIe link seldom has to recover",
    of="amd",
    path="pcie.recoveries",
    not_supported="The driver does not count them for this card.",
    reads="times the link went to recovery, refused packets both ways and overruns of the replay counter (amd-smi "
    "metric)",
    passes=f"at most {_MANY_LINK_EVENTS} of each since the driver was loaded; the numbers are stated",
    warns="more of one of them",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The link breaks off and begins anew, or packets are refused: a slot, riser or cable with bad contact.",
    next_step="Read the counters again under load. If they grow, tell the provider.",
    repeat=amd_smi("metric", "pcie"),
)
def pcie_link_events(look: Look) -> Outcome:
    pcie = look.card.pcie
    counts = {
        "recoveries": pcie.recoveries,
        "packets refused by the card": pcie.naks_sent,
        "packets of the card refused": pcie.naks_received,
        "overruns of the replay counter": pcie.rollovers,
    }
    seen = {name: number for name, number in counts.items() if known(number)}
    told = ", ".join(f"{number} {name}" for name, number in seen.items())
    words: dict[str, Any] = {
        "observed": told,
        "expected": f"at most {_MANY_LINK_EVENTS} of each",
        "expected_from": "ROCm/cvs@dddd914, health checks",
    }
    most = max(seen.values())
    return (warn if most > _MANY_LINK_EVENTS else passed)(f"{told}.", **words)
