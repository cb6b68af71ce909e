"""What nvidia-smi prints of a card: under which name in which of its forms, and what it means.

The names are those of `nvidia-smi -q -x` (nvsmi_device_v4.dtd to v13.dtd), of `nvidia-smi -q`, and of
`nvidia-smi --help-query-gpu`; older drivers have older names for some, which stand behind the newer ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodecheck.facts import NOT_ASKED, Absent, Card, Maybe, Why, known
from nodecheck.facts.card import (
    BankHistogram,
    Clocks,
    EccCounts,
    Fabric,
    Health,
    Identity,
    Memory,
    Modes,
    Pcie,
    Power,
    Process,
    Temperature,
    Violations,
)
from nodecheck.probes.answer import number
from nodecheck.probes.kernel_log import pci_address as read_address
from nodecheck.probes.nvidia import unexplained
from nodecheck.probes.text import word

MIB = 1024**2
MAX_CARDS = 256
"""No node has as many; what is beyond is damage."""

_REASONS: tuple[tuple[str, Why], ...] = (
    ("n/a", Why.not_supported),
    ("not supported", Why.not_supported),
    ("not available", Why.not_supported),
    ("requested functionality", Why.not_supported),
    ("insufficient permissions", Why.no_permission),
    ("no permission", Why.no_permission),
    ("not found", Why.not_present),
    ("timeout", Why.timed_out),
    ("gpu is lost", Why.failed),
    ("gpu requires reset", Why.failed),
    ("gpu requires restart", Why.failed),
    ("unknown error", Why.failed),
    ("uninitialized", Why.failed),
    ("err!", Why.failed),
)


def counted(indices: Iterable[int]) -> Maybe[int]:
    """How many cards a list shows by their numbers. nvidia-smi counts from 0 on without a gap: where one is missing,
    lines of the list are."""
    numbers = sorted(set(indices))
    if numbers == list(range(len(numbers))):
        return len(numbers)
    return Absent(
        why=Why.failed, detail="the list begins or goes on with a later card: lines of it are missing"
    )


def absence(text: str) -> Absent | None:
    """Why there is no value, where nvidia-smi says so instead of one."""
    said = text.strip().strip("[]").lower()
    if not said:
        return Absent(why=Why.failed, detail="nvidia-smi leaves it empty")
    for beginning, why in _REASONS:
        if said.startswith(beginning):
            return Absent(why=why, detail=f"nvidia-smi says {word(text)}"[:200])
    return None


class Answers:
    """What an output says of one card, by the names that it uses."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.pairs = list(pairs)
        self._first: dict[str, str] = {}
        for name, value in self.pairs:
            self._first.setdefault(name, value)

    @property
    def lost(self) -> bool:
        return any("gpu is lost" in value.lower() for value in self._first.values())

    @property
    def wants_reset(self) -> bool:
        return any("gpu requires res" in value.lower() for value in self._first.values())

    def get(self, *names: str) -> Maybe[str]:
        """What stands under the first of these names that is there; `not_asked` where none is.

        Where a whole group has one word instead of its parts (`<remapped_rows>N/A`), that is each part's.
        """
        for name in names:
            if name in self._first:
                value = self._first[name]
                return absence(value) or value.strip()
        for name in names:
            group = name.rpartition("/")[0]
            while group:
                if group in self._first:
                    return absence(self._first[group]) or NOT_ASKED
                group = group.rpartition("/")[0]
        return NOT_ASKED


# From words to values

Read = Callable[[str], Any]


def amount(unit: str, per_unit: int = 1, lowest: int = 0, highest: int = 2**53) -> Read:
    """A whole number, with or without its unit."""
    pattern = re.compile(rf"(-?\d{{1,18}})(?:\.0+)? ?(?:{unit})?$")

    def read(text: str) -> Any:
        match = pattern.match(text)
        return number(int(match[1]) * per_unit, lowest, highest) if match else None

    return read


def watts(text: str) -> Any:
    match = re.match(r"(\d{1,6}(?:\.\d{1,4})?) ?W?$", text)
    if match is None:
        return None
    value = float(match[1])
    return value if 0 < value < 20_000 else Absent(why=Why.failed, detail=f"{text} cannot be")


_YES, _NO = ("enabled", "yes", "on", "active", "true"), ("disabled", "no", "off", "not active", "false")


def flag(text: str) -> bool | None:
    said = text.lower()
    return True if said in _YES else False if said in _NO else None


def named(names: Mapping[str, str]) -> Read:
    """The facts' word for nvidia-smi's; one that is not known here stays as it is, so that rules can say so."""

    def read(text: str) -> str | None:
        said = re.sub(r"[\s_-]+", " ", text).strip().lower()
        return names.get(said) or re.sub(r"\W+", "_", said).strip("_")[:60] or None

    return read


def pci_id(text: str) -> str | None:
    """`233010DE` and `0x233010DE`, device before vendor, are `10de:2330`."""
    match = re.match(r"(?:0x)?([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})$", text)
    return f"{match[2]}:{match[1]}".lower() if match else None


def card_id(text: str) -> Maybe[str] | None:
    """The same, of one of NVIDIA's cards."""
    said = pci_id(text)
    if said is None or said.startswith("10de:"):
        return said
    return Absent(
        why=Why.failed, detail=f"{text} is none of NVIDIA's ids: whoever passed this on has changed it"
    )


def uuid(text: str) -> Any:
    match = re.match(r"(?:GPU|MIG)-[0-9A-Fa-f-]{8,64}$", text)
    if match is None:
        return None
    if not text[4:].strip("0-"):
        return Absent(why=Why.failed, detail="all zeros: whoever passed this on has taken it out")
    return text


def version(text: str) -> str | None:
    return text if re.match(r"\d[\w.+-]{0,60}$", text) else None


COMPUTE_MODES = {
    "default": "default", "exclusive thread": "exclusive_thread", "e. thread": "exclusive_thread",
    "prohibited": "prohibited", "exclusive process": "exclusive_process", "e. process": "exclusive_process",
}  # fmt: skip
_VIRTUALIZATION = {"pass through": "passthrough", "host vgpu": "host_vgpu", "host vsga": "host_vsga"}
_RECOVERY = {"reset": "gpu_reset", "reboot": "node_reboot"}
_ARCHITECTURES = {"ada lovelace": "ada"}
_lanes = amount("x", 1, 1, 32)
_generation = amount("", 1, 1, 9)
_mib = amount("MiB", MIB, 0, 16 * 1024**4)
_size = amount("MiB", MIB, MIB, 16 * 1024**4)
_mhz = amount("MHz", 1, 1, 20_000)
_celsius = amount("C", 1, 1, 150)
_count = amount(r"bank\(s\)|us|", 1, 0, 2**53)

_POWER = ("gpu_power_readings", "power_readings", "gpu power readings", "power readings")


def _of_power(*names: str) -> tuple[str, ...]:
    return tuple(f"{group}/{name}" for name in names for group in _POWER)


FIELDS: dict[type[Any], dict[str, tuple[Read, tuple[str, ...]]]] = {
    Identity: {
        "name": (word, ("product_name", "product name", "name", "gpu_name")),
        "pci_id": (card_id, ("pci/pci_device_id", "pci/device id", "pci.device_id")),
        "pci_subsystem": (pci_id, ("pci/pci_sub_system_id", "pci/sub system id", "pci.sub_device_id")),
        "serial": (word, ("serial", "serial number", "gpu_serial")),
        "board_part": (word, ("board_part_number", "board part number")),
        "vbios": (word, ("vbios_version", "vbios version")),
        "inforom_image": (
            word,
            ("inforom_version/img_version", "inforom version/image version", "inforom.img", "inforom.image"),
        ),
        "gsp_firmware": (word, ("gsp_firmware_version", "gsp firmware version", "gsp.firmware.version")),
        "architecture": (named(_ARCHITECTURES), ("product_architecture", "product architecture")),
        "compute_capability": (version, ("compute_cap",)),
        "module_id": (
            amount("", 1, 0, 1023),
            ("platforminfo/module_id", "platform info/module id", "platform.module_id"),
        ),
        "minor": (amount("", 1, 0, 1023), ("minor_number", "minor number")),
    },
    Memory: {
        "total_bytes": (_size, ("fb_memory_usage/total", "fb memory usage/total", "memory.total")),
        "reserved_bytes": (_mib, ("fb_memory_usage/reserved", "fb memory usage/reserved", "memory.reserved")),
        "used_bytes": (_mib, ("fb_memory_usage/used", "fb memory usage/used", "memory.used")),
        "free_bytes": (_mib, ("fb_memory_usage/free", "fb memory usage/free", "memory.free")),
        "bar1_total_bytes": (_size, ("bar1_memory_usage/total", "bar1 memory usage/total")),
    },
    Health: {
        "ecc_enabled": (flag, ("ecc_mode/current_ecc", "ecc mode/current", "ecc.mode.current")),
        "ecc_enabled_after_reset": (flag, ("ecc_mode/pending_ecc", "ecc mode/pending", "ecc.mode.pending")),
        "sram_threshold_exceeded": (
            flag,
            ("ecc_errors/aggregate/sram_threshold_exceeded", "ecc errors/aggregate/sram threshold exceeded"),
        ),
        "retired_pages_single_bit": (
            _count,
            (
                "retired_pages/multiple_single_bit_retirement/retired_count",
                "retired pages/single bit ecc",
                "retired_pages.single_bit_ecc.count",
                "retired_pages.sbe",
            ),
        ),
        "retired_pages_double_bit": (
            _count,
            (
                "retired_pages/double_bit_retirement/retired_count",
                "retired pages/double bit ecc",
                "retired_pages.double_bit.count",
                "retired_pages.dbe",
            ),
        ),
        "retired_pages_pending": (
            flag,
            (
                "retired_pages/pending_retirement",
                "retired_pages/pending_blacklist",
                "retired pages/pending page blacklist",
                "retired_pages.pending",
            ),
        ),
        "remapped_rows_corrected": (
            _count,
            (
                "remapped_rows/remapped_row_corr",
                "remapped rows/correctable error",
                "remapped_rows.correctable",
            ),
        ),
        "remapped_rows_uncorrected": (
            _count,
            (
                "remapped_rows/remapped_row_unc",
                "remapped rows/uncorrectable error",
                "remapped_rows.uncorrectable",
            ),
        ),
        "row_remap_pending": (
            flag,
            ("remapped_rows/remapped_row_pending", "remapped rows/pending", "remapped_rows.pending"),
        ),
        "row_remap_failed": (
            flag,
            (
                "remapped_rows/remapped_row_failure",
                "remapped rows/remapping failure occurred",
                "remapped_rows.failure",
            ),
        ),
        "channel_repair_pending": (
            flag,
            ("ecc_errors/channel_repair_pending", "ecc errors/channel repair pending"),
        ),
        "tpc_repair_pending": (flag, ("ecc_errors/tpc_repair_pending", "ecc errors/tpc repair pending")),
        "unrepairable_memory": (flag, ("ecc_errors/unrepairable_memory", "ecc errors/unrepairable memory")),
        "recovery_action": (
            named(_RECOVERY),
            ("gpu_recovery_action", "gpu recovery action"),
        ),
    },
    Power: {
        "limit_watts": (
            watts,
            (
                *_of_power(
                    "current_power_limit",
                    "enforced_power_limit",
                    "current power limit",
                    "enforced power limit",
                ),
                "enforced.power.limit",
            ),
        ),
        "requested_limit_watts": (
            watts,
            (
                *_of_power("requested_power_limit", "power_limit", "requested power limit", "power limit"),
                "power.limit",
            ),
        ),
        "default_limit_watts": (
            watts,
            (*_of_power("default_power_limit", "default power limit"), "power.default_limit"),
        ),
        "min_limit_watts": (watts, (*_of_power("min_power_limit", "min power limit"), "power.min_limit")),
        "max_limit_watts": (watts, (*_of_power("max_power_limit", "max power limit"), "power.max_limit")),
        "draw_watts": (
            watts,
            (
                *_of_power(
                    "instant_power_draw",
                    "power_draw",
                    "average_power_draw",
                    "instantaneous power draw",
                    "power draw",
                    "average power draw",
                ),
                "power.draw.instant",
                "power.draw",
                "power.draw.average",
            ),
        ),
    },
    Clocks: {
        "sm_mhz": (_mhz, ("clocks/sm_clock", "clocks/sm", "clocks.current.sm", "clocks.sm")),
        "memory_mhz": (
            _mhz,
            ("clocks/mem_clock", "clocks/memory", "clocks.current.memory", "clocks.mem"),
        ),
        "max_sm_mhz": (_mhz, ("max_clocks/sm_clock", "max clocks/sm", "clocks.max.sm")),
        "max_memory_mhz": (
            _mhz,
            ("max_clocks/mem_clock", "max clocks/memory", "clocks.max.memory", "clocks.max.mem"),
        ),
        "application_sm_mhz": (
            _mhz,
            (
                "applications_clocks/graphics_clock",
                "applications clocks/graphics",
                "clocks.applications.graphics",
            ),
        ),
        "application_memory_mhz": (
            _mhz,
            ("applications_clocks/mem_clock", "applications clocks/memory", "clocks.applications.memory"),
        ),
        "default_application_sm_mhz": (
            _mhz,
            (
                "default_applications_clocks/graphics_clock",
                "default applications clocks/graphics",
                "clocks.default_applications.graphics",
            ),
        ),
        "default_application_memory_mhz": (
            _mhz,
            (
                "default_applications_clocks/mem_clock",
                "default applications clocks/memory",
                "clocks.default_applications.memory",
            ),
        ),
        "performance_state": (amount("", 1, 0, 15), ()),
    },
    Temperature: {
        "gpu_celsius": (
            _celsius,
            ("temperature/gpu_temp", "temperature/gpu current temp", "temperature.gpu"),
        ),
        "memory_celsius": (
            _celsius,
            ("temperature/memory_temp", "temperature/memory current temp", "temperature.memory"),
        ),
        "margin_celsius": (
            amount("C", 1, -100, 150),
            ("temperature/gpu_temp_tlimit", "temperature/gpu t.limit temp", "temperature.gpu.tlimit"),
        ),
        "slowdown_celsius": (
            _celsius,
            ("temperature/gpu_temp_slow_threshold", "temperature/gpu slowdown temp"),
        ),
        "shutdown_celsius": (
            _celsius,
            ("temperature/gpu_temp_max_threshold", "temperature/gpu shutdown temp"),
        ),
    },
    Pcie: {
        "generation": (
            _generation,
            (
                "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
                "pci/gpu link info/pcie generation/current",
                "pcie.link.gen.current",
                "pcie.link.gen.gpucurrent",
            ),
        ),
        "width": (
            _lanes,
            (
                "pci/pci_gpu_link_info/link_widths/current_link_width",
                "pci/gpu link info/link width/current",
                "pcie.link.width.current",
            ),
        ),
        "max_generation": (
            _generation,
            (
                "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
                "pci/gpu link info/pcie generation/max",
                "pcie.link.gen.max",
            ),
        ),
        "max_width": (
            _lanes,
            (
                "pci/pci_gpu_link_info/link_widths/max_link_width",
                "pci/gpu link info/link width/max",
                "pcie.link.width.max",
            ),
        ),
        "card_max_generation": (
            _generation,
            (
                "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
                "pci/gpu link info/pcie generation/device max",
                "pcie.link.gen.gpumax",
            ),
        ),
        "replays": (
            amount("", 1, 0, 2**32 - 2),
            ("pci/replay_counter", "pci/replays since reset"),
        ),
    },
    Modes: {
        "mig_enabled": (flag, ("mig_mode/current_mig", "mig mode/current", "mig.mode.current")),
        "mig_enabled_after_reset": (flag, ("mig_mode/pending_mig", "mig mode/pending", "mig.mode.pending")),
        "compute": (named(COMPUTE_MODES), ("compute_mode", "compute mode")),
        "persistence": (flag, ("persistence_mode", "persistence mode")),
        "virtualization": (
            named(_VIRTUALIZATION),
            (
                "gpu_virtualization_mode/virtualization_mode",
                "gpu virtualization mode/virtualization mode",
                "gpu virtualization mode/virtualization mode ",
            ),
        ),
        "addressing": (named({}), ("addressing_mode", "addressing mode")),
    },
}
"""Model → field → how it is read, and its names; a name of several parts has them joined by `/`."""

CSV_NAMES = frozenset(
    name for fields in FIELDS.values() for _, names in fields.values() for name in names if " " not in name
) | {
    "index",
    "uuid",
    "gpu_uuid",
    "pci.bus_id",
    "gpu_bus_id",
    "driver_version",
    "count",
    "timestamp",
    "pstate",
}
"""Names that the header of a CSV may hold."""


def value(answers: Answers, read: Read, *names: str) -> Any:
    """The value under one of these names, or why there is none."""
    text = answers.get(*names)
    if isinstance(text, Absent):
        return text
    found = read(text)
    return Absent(why=Why.failed, detail=f"not understood: {word(text[:80])!r}") if found is None else found


def _model(model: type[Any], answers: Answers, **more: Any) -> Any:
    told = {name: value(answers, read, *names) for name, (read, names) in FIELDS[model].items() if names}
    return model(**told | more)


def card(answers: Answers, source: str, index: int, address: str = "") -> Card:
    """The card that the output speaks of. `address` is its name in the output, where it has one."""
    pci = value(answers, read_address, "pci/pci_bus_id", "pci/bus id", "pci.bus_id", "gpu_bus_id")
    if not known(pci) and (named_so := read_address(address)):
        pci = named_so
    processes = _processes(answers)
    memory = _model(Memory, answers)
    if known(memory.reserved_bytes):
        left = unexplained(memory.used_bytes, processes)
        memory = memory.model_copy(update={"unexplained_bytes": left})
    return Card(
        vendor="nvidia",
        source=source,
        index=index,
        usable=not (answers.lost or answers.wants_reset),
        lost=answers.lost,
        pci_address=pci,
        uuid=value(answers, uuid, "uuid", "gpu uuid", "gpu_uuid"),
        identity=_model(Identity, answers),
        memory=memory,
        health=_model(
            Health,
            answers,
            ecc_volatile=_ecc(answers, "volatile"),
            ecc_aggregate=_ecc(answers, "aggregate"),
            bank_histogram=_histogram(answers),
        ),
        power=_model(Power, answers),
        clocks=_model(
            Clocks,
            answers,
            event_reasons=_event_reasons(answers),
            violations=_violations(answers),
            performance_state=value(
                answers,
                lambda text: number(int(text[1:])) if re.match(r"P\d{1,2}$", text) else None,
                "performance_state",
                "performance state",
                "pstate",
            ),
        ),
        temperature=_model(Temperature, answers),
        pcie=_model(Pcie, answers),
        modes=_modes(answers),
        fabric=_fabric(answers),
        processes=processes,
        gpu_utilization_percent=value(
            answers, amount("%", 1, 0, 100), "utilization/gpu_util", "utilization/gpu", "utilization.gpu"
        ),
    )


def _modes(answers: Answers) -> Modes:
    modes: Modes = _model(Modes, answers)
    if isinstance(modes.mig_enabled, Absent):
        instances: Maybe[int] = modes.mig_enabled
    elif not modes.mig_enabled:
        instances = 0
    else:
        indices = ("mig_devices/mig_device/index", "mig device/index", "mig devices/mig device/index")
        found = sum(name in indices for name, _ in answers.pairs)
        none = str(answers.get("mig_devices", "mig devices")).lower() == "none"
        instances = found if found or none else NOT_ASKED
    return modes.model_copy(update={"mig_instances": instances})


# Groups of several numbers

_ECC_LAYOUTS: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    (
        "ecc_errors",
        {
            "sram_corrected": ("sram_correctable",),
            "sram_uncorrected": (
                "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded",
            ),
            "dram_corrected": ("dram_correctable",),
            "dram_uncorrected": ("dram_uncorrectable",),
        },
    ),
    (
        "ecc errors",
        {
            "sram_corrected": ("sram correctable",),
            "sram_uncorrected": (
                "sram uncorrectable", "sram uncorrectable parity", "sram uncorrectable sec-ded",
            ),
            "dram_corrected": ("dram correctable",),
            "dram_uncorrected": ("dram uncorrectable",),
        },
    ),
)  # fmt: skip
_ECC_TOTALS = {
    # Before Turing: by cell, single or double bit.
    "corrected": (
        "ecc_errors/{0}/single_bit/total", "ecc errors/{0}/single bit/total", "ecc.errors.corrected.{0}.total",
    ),
    "uncorrected": (
        "ecc_errors/{0}/double_bit/total", "ecc errors/{0}/double bit/total", "ecc.errors.uncorrected.{0}.total",
    ),
    "dram_corrected": (
        "ecc_errors/{0}/single_bit/device_memory", "ecc errors/{0}/single bit/device memory",
        "ecc.errors.corrected.{0}.dram", "ecc.errors.corrected.{0}.device_memory",
    ),
    "dram_uncorrected": (
        "ecc_errors/{0}/double_bit/device_memory", "ecc errors/{0}/double bit/device memory",
        "ecc.errors.uncorrected.{0}.dram", "ecc.errors.uncorrected.{0}.device_memory",
    ),
    "sram_corrected": ("ecc.errors.corrected.{0}.sram",),
    "sram_uncorrected": ("ecc.errors.uncorrected.{0}.sram",),
}  # fmt: skip


def _ecc(answers: Answers, since: str) -> Maybe[EccCounts]:
    """Errors since the driver was loaded (`volatile`) or ever (`aggregate`)."""
    counts: dict[str, Maybe[int]] = {
        name: value(answers, _count, *(at.format(since) for at in names))
        for name, names in _ECC_TOTALS.items()
    }
    for group, layout in _ECC_LAYOUTS:
        for name, parts in layout.items():
            told = [value(answers, _count, f"{group}/{since}/{part}") for part in parts]
            counts[name] = _either(counts[name], _sum(told))
    for total, parts in (
        ("corrected", ("sram_corrected", "dram_corrected")),
        ("uncorrected", ("sram_uncorrected", "dram_uncorrected")),
    ):
        both = [counts[part] for part in parts]
        if not known(counts[total]) and all(known(part) for part in both):
            counts[total] = _sum(both)
        elif not known(counts[total]):
            counts[total] = next((part for part in both if isinstance(part, Absent)), counts[total])
    absent = [count for count in counts.values() if isinstance(count, Absent)]
    if len(absent) == len(counts):
        return next((one for one in absent if one != NOT_ASKED), NOT_ASKED)
    return EccCounts(**counts)


def _sum(parts: Iterable[Maybe[int]]) -> Maybe[int]:
    """The sum of the parts that are printed; one that is printed without a number makes the sum absent."""
    printed = [part for part in parts if part != NOT_ASKED]
    if not printed:
        return NOT_ASKED
    return next((part for part in printed if isinstance(part, Absent)), None) or sum(
        part for part in printed if not isinstance(part, Absent)
    )


def _either(first: Maybe[int], second: Maybe[int]) -> Maybe[int]:
    return second if isinstance(first, Absent) and second != NOT_ASKED else first


def _histogram(answers: Answers) -> Maybe[BankHistogram]:
    counts = {
        name: value(
            answers,
            _count,
            f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}",
            f"remapped rows/bank remap availability histogram/{name}",
            f"remapped_rows.histogram.{name}",
        )
        for name in BankHistogram.model_fields
    }
    absent = next((count for count in counts.values() if isinstance(count, Absent)), None)
    return absent or BankHistogram(**counts)


_REASON_NAMES = {
    "gpu_idle": "gpu_idle", "idle": "gpu_idle",
    "applications_clocks_setting": "applications_clocks_setting", "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown", "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown", "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown", "display_clocks_setting": "display_clock_setting",
    "display_clock_setting": "display_clock_setting",
}  # fmt: skip
_REASON_GROUPS = re.compile(
    r"clocks[_ ](?:event|throttle)[_ ]reasons/(?:hw slowdown/)?(?:clocks_(?:event|throttle)_reason_)?(?P<name>[\w ]+)$"
    r"|clocks_(?:event|throttle)_reasons\.(?P<csv>\w+)$"
)


def _event_reasons(answers: Answers) -> Maybe[tuple[str, ...]]:
    active: list[str] = []
    absent: Absent = NOT_ASKED
    seen = False
    for name, said in answers.pairs:
        match = _REASON_GROUPS.match(name)
        if match is None:
            if re.match(r"clocks[_ ](?:event|throttle)[_ ]reasons$", name):
                absent = absence(said) or absent
            continue
        reason = _REASON_NAMES.get((match["name"] or match["csv"]).replace(" ", "_"))
        on = flag(said)
        if reason is None:
            continue
        if on is None:
            absent = absence(said) or Absent(why=Why.failed, detail=f"not understood: {word(said[:80])!r}")
            continue
        seen = True
        if on and reason not in active:
            active.append(reason)
    return tuple(active) if seen else absent


def _violations(answers: Answers) -> Maybe[Violations]:
    def counted(*names: str) -> Maybe[float]:
        told = [
            value(
                answers,
                _count,
                f"clocks_event_reasons_counters/clocks_event_reasons_counters_{xml}",
                f"clocks event reasons counters/{text}",
            )
            for xml, text in (name.split("|") for name in names)
        ]
        micros = _sum(told)
        return micros if isinstance(micros, Absent) else micros / 1e6

    power = counted("sw_power_cap|sw power capping")
    heat = counted("sw_therm_slowdown|sw thermal slowdown", "hw_therm_slowdown|hw thermal slowdown")
    if isinstance(power, Absent) and isinstance(heat, Absent):
        return power
    return Violations(power_seconds=power, thermal_seconds=heat)


_FABRIC_PROBLEMS = (
    ("bandwidth", "bandwidth", "degraded_bandwidth", ("degraded",)),
    ("route_recovery_in_progress", "route recovery in progress", "route_recovery", ("true", "yes")),
    ("route_unhealthy", "route unhealthy", "route_unhealthy", ("true", "yes")),
    ("access_timeout_recovery", "access timeout recovery", "access_timeout_recovery", ("true", "yes")),
)


def _fabric(answers: Answers) -> Fabric:
    problems: list[str] = []
    said: list[Maybe[str]] = []
    for xml, text, problem, bad in _FABRIC_PROBLEMS:
        told = answers.get(f"fabric/health/{xml}", f"fabric/health/{text}")
        said.append(told)
        if isinstance(told, str) and told.lower() in bad:
            problems.append(problem)
    configuration = answers.get(
        "fabric/health/incorrect_configuration", "fabric/health/incorrect configuration"
    )
    said.append(configuration)
    if isinstance(configuration, str) and configuration.lower() not in ("none", "false", "no", "correct"):
        problems.append("incorrect_configuration")
    absent = [one for one in said if isinstance(one, Absent)]
    return Fabric(
        state=value(answers, named({}), "fabric/state"),
        status=value(answers, named({}), "fabric/status"),
        health=value(answers, named({}), "fabric/health/summary"),
        health_problems=absent[0] if len(absent) == len(said) else tuple(problems),
        clique_id=value(answers, amount("", 1, 0, 2**32 - 2), "fabric/cliqueid"),
        cluster_uuid=value(answers, word, "fabric/clusteruuid"),
    )


_PROCESS_KINDS = {"C": "compute", "G": "graphics", "C+G": "compute", "M": "mps", "M+C": "mps"}


def process(pid: str, kind: str, name: str, used: str) -> Process | None:
    """A process on the card; None where its number is none."""
    if not re.match(r"\d{1,10}$", pid):
        return None
    memory = absence(used) or _mib(used.strip())
    return Process.model_validate(
        {
            "pid": int(pid),
            "kind": _PROCESS_KINDS.get(kind.strip().upper(), "compute"),
            "used_bytes": Absent(why=Why.failed, detail="not understood") if memory is None else memory,
            # The command line of a process may hold its user's secrets.
            "name": absence(name) or program(name),
        }
    )


def program(command_line: str) -> Maybe[str]:
    """`/usr/bin/python3 train.py --token …` is `python3`."""
    name = word(command_line.split()[0].rsplit("/", 1)[-1]) if command_line.split() else None
    return name or Absent(why=Why.failed, detail="nvidia-smi leaves it empty")


def _processes(answers: Answers) -> Maybe[tuple[Process, ...]]:
    found: list[Process] = []
    entry: dict[str, str] = {}
    printed: Maybe[str] = NOT_ASKED
    for name, said in [*answers.pairs, ("processes/process_info/pid", "")]:
        if name == "processes":
            printed = said
        group, _, part = name.rpartition("/")
        if not group.startswith("processes"):
            continue
        if part in ("pid", "process id"):
            one = process(*(entry.get(key, "") for key in ("pid", "type", "name", "memory")))
            if one is not None:
                found.append(one)
            entry = {"pid": said}
        elif part in ("type", "process_name", "used_memory", "name", "used gpu memory"):
            entry[
                {"process_name": "name", "used_memory": "memory", "used gpu memory": "memory"}.get(part, part)
            ] = said
    if found:
        return tuple(found)
    if isinstance(printed, str):
        return () if printed.strip().lower() in ("", "none") else absence(printed) or NOT_ASKED
    return NOT_ASKED
