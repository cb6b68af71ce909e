"""What `amd-smi … --json` prints, in the shapes of ROCm 6.0 to 10.x.

The text is not always JSON alone: warnings stand before it, several documents follow one another, a legend comes
after. The cards are a list at the top, or stand under `gpu_data` from 7.0 on; a value is a number, a text with its
unit, or an object of value and unit; keys are lower case from 7.14 on and were mixed before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.facts.card import EccBlock, Process
from nodecheck.probes.amdgpu import generation_of, of_blocks, of_gfx, whole
from nodecheck.probes.belief import Reading
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.text import word
from nodecheck.sources.child import Output

Entry = Mapping[str, Any]
"""What one document says of one card; the keys are lower case."""

MIB = 1024**2
MAX_CARDS = 1024
_MAX_TRIES = 1000
"""Places in one text where a document could begin."""

_GROUPS = re.compile(r"missing the following required groups: ([\w, -]{1,100})")
_NAMES_OF_NOTHING = ("", "N/A", "NA", "NONE", "UNKNOWN", "NOT SUPPORTED")
_BLANKS = frozenset({float(2**16 - 1), float(2**32 - 1), float(2**63 - 1), float(2**64 - 1)})
"""Marks for a value that is not there, of the widths that leak through."""


# From text to documents


def documents(text: str) -> Maybe[tuple[Any, ...]]:
    """Every JSON document in what a program printed; `failed` where one is cut short or there is none.

    A list or object that does not read to its end is not searched for smaller ones: its parts mean nothing alone.
    """
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    found: list[Any] = []
    at = tries = 0
    while (start := re.compile(r"[\[{]").search(text, at)) and tries < _MAX_TRIES:
        tries += 1
        try:
            value, at = decoder.raw_decode(text, start.start())
            found.append(_lowered(value))
        except (ValueError, RecursionError):
            if re.compile(r"\[\s*[{\]]|\{\s*[\"}]").match(text, start.start()):
                return Absent(why=Why.failed, detail="its JSON is cut short or damaged")
            at = start.end()
    if found:
        return tuple(found)
    shown = " ".join(text[:80].split())
    return Absent(why=Why.failed, detail=f"no JSON: {shown!r}" if shown else "it printed nothing")


def _lowered(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key).lower(): _lowered(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_lowered(item) for item in value]
    return value


def entries(found: Sequence[Any]) -> Iterator[Entry]:
    """The objects that speak of one card each; network cards and CPUs, which may stand beside, are left out."""
    for document in found:
        items = document
        if isinstance(document, dict):
            items = document.get("gpu_data", [document])
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and type(item.get("gpu")) is int:
                yield item


# One run of its commands


@dataclass(frozen=True)
class PairTold:
    """What `amd-smi topology` says of the way from one card to another."""

    link_type: Maybe[str]
    weight: Maybe[int]
    accessible: Maybe[bool]
    min_mb_per_s: Maybe[int]
    max_mb_per_s: Maybe[int]


class AmdSmi:
    """The answers to its commands (`list`, `static`, `metric`, …), read."""

    def __init__(self, said: Mapping[str, Maybe[Output]], virtual: bool) -> None:
        """`virtual`: the cards are virtual functions, which are told less."""
        self._said = said
        self._virtual = virtual
        self._found: dict[str, Maybe[tuple[Any, ...]]] = {
            command: output if isinstance(output, Absent) else self._read(output)
            for command, output in said.items()
        }

    def _read(self, output: Output) -> Maybe[tuple[Any, ...]]:
        found = documents(output.stdout)
        if not isinstance(found, Absent):
            return found
        last = " ".join((output.stderr.strip() or output.stdout.strip()).split())[-160:]
        code = f", exit code {output.returncode}" if output.returncode else ""
        why = Why.no_permission if self.missing_groups else found.why
        return Absent(why=why, detail=f"{found.detail}{code}" + (f"; it said: {last}" if last else ""))

    @cached_property
    def missing_groups(self) -> tuple[str, ...]:
        """Groups that amd-smi says this user is not in, though it should be."""
        for output in self._said.values():
            if not isinstance(output, Absent):
                match = _GROUPS.search(output.stdout) or _GROUPS.search(output.stderr)
                if match:
                    return tuple(name for name in re.split(r"[,\s]+", match[1]) if name)
        return ()

    @property
    def seconds(self) -> Maybe[float]:
        """The slowest of its commands."""
        took = [output.seconds for output in self._said.values() if not isinstance(output, Absent)]
        return max(took) if took else self.reason()

    def reason(self) -> Absent:
        """Why there is nothing of it."""
        for found in self._found.values():
            if isinstance(found, Absent):
                return found
        return Absent(why=Why.not_asked, detail="amd-smi was not asked")

    def _entries(self, command: str) -> Maybe[dict[int, Entry]]:
        found = self._found.get(command, Absent(why=Why.not_asked, detail=f"amd-smi {command} was not asked"))
        if isinstance(found, Absent):
            return found
        return {entry["gpu"]: entry for entry in entries(found) if 0 <= entry["gpu"] < MAX_CARDS}

    @cached_property
    def addresses(self) -> Maybe[dict[int, str]]:
        """amd-smi's own number of a card → its PCI address. The numbers mean nothing to anybody else."""
        reason: Absent | None = None
        for command, path in (
            ("list", ("bdf",)), ("static", ("bus", "bdf")), ("topology", ("bdf",)), ("xgmi", ("bdf",)),
        ):  # fmt: skip
            told = self._entries(command)
            if isinstance(told, Absent):
                reason = reason or told
                continue
            places = {gpu: _at(entry, *path) for gpu, entry in told.items()}
            named = {
                gpu: address
                for gpu, place in places.items()
                if isinstance(place, str) and (address := pci_address(place))
            }
            if named or not told:
                return named
            reason = reason or Absent(why=Why.failed, detail="amd-smi gives no PCI addresses")
        return reason or self.reason()

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Its own numbers of the cards that any of its answers speaks of."""
        told = [self._entries(command) for command in self._said]
        return tuple(sorted({gpu for cards in told if not isinstance(cards, Absent) for gpu in cards}))

    @property
    def release(self) -> Maybe[tuple[int, int]]:
        """ROCm's release, (7, 2), by which some of what it says is known to be wrong."""
        version = self.versions("rocm_version")
        if isinstance(version, Absent):
            return version
        match = re.match(r"([0-9]{1,2})\.([0-9]{1,2})\b", version)
        return (int(match[1]), int(match[2])) if match else Absent(why=Why.failed, detail=version)

    def versions(self, key: str) -> Maybe[str]:
        """Out of `amd-smi version`: `rocm_version`, `amdgpu_version`, `amdsmi_library_version`."""
        found = self._found.get("version", Absent(why=Why.not_asked, detail="amd-smi version was not asked"))
        if isinstance(found, Absent):
            return found
        for document in found:
            for item in document if isinstance(document, list) else [document]:
                if isinstance(item, dict) and key in item:
                    return self._text(item, key)
        return Absent(why=Why.not_present, detail=f"amd-smi version does not tell {key}")

    # What it says of one card

    def reading(self, address: str) -> Reading:
        """Everything it says of the card at `address`."""
        places = self.addresses
        if isinstance(places, Absent):
            return Reading("amd_smi", dict.fromkeys(_PATHS, places))
        gpu = next((gpu for gpu, place in places.items() if place == address), None)
        if gpu is None:
            missing = Absent(why=Why.not_present, detail="amd-smi does not list this card")
            return Reading("amd_smi", dict.fromkeys(_PATHS, missing))
        return Reading("amd_smi", self.values(gpu))

    def values(self, gpu: int) -> dict[str, Any]:
        """Everything it says of the card that it gives this number, by dotted paths below `Card`."""
        parts = {command: self._of(command, gpu) for command in self._said if command != "version"}
        values: dict[str, Any] = {}
        for command, read in (
            ("list", self._list), ("static", self._static), ("metric", self._metric),
            ("bad-pages", self._bad_pages), ("process", self._process), ("firmware", self._firmware),
        ):  # fmt: skip
            if command in parts:
                values |= read(parts[command])
        values |= self._partition(gpu, parts)
        return values

    def _of(self, command: str, gpu: int) -> Entry | Absent:
        told = self._entries(command)
        if isinstance(told, Absent):
            return told
        return told.get(gpu, Absent(why=Why.not_present, detail=f"amd-smi {command} leaves this card out"))

    def _list(self, said: Entry | Absent) -> dict[str, Any]:
        partition = self._number(said, "partition_id", highest=63)
        return {"uuid": self._uuid(said), "partition": partition}

    def _uuid(self, said: Entry | Absent) -> Maybe[str]:
        """Only as HIP writes it: until ROCm 7.13 amd-smi had a form of its own, which nothing else understands."""
        for key in ("hip_uuid", "uuid"):
            uuid = self._text(said, key)
            if isinstance(uuid, str) and re.fullmatch(r"GPU-[0-9a-f]{16}", uuid, re.I):
                return f"GPU-{uuid[4:].lower()}"
        if isinstance(said, Absent):
            return said
        return Absent(why=Why.not_supported, detail="this release does not write it as HIP does")

    def _static(self, said: Entry | Absent) -> dict[str, Any]:
        gfx = self._text(said, "asic.target_graphics_version")
        if isinstance(gfx, str):
            gfx = gfx.split(":")[0].lower()
        if gfx == "gfx9010":  # one release wrote 90010 so
            gfx = "gfx90a"
        return {
            "identity.name": self._text(said, "asic.market_name"),
            "identity.pci_id": self._ids(said, "asic.vendor_id", "asic.device_id"),
            "identity.pci_subsystem": self._ids(said, "asic.subvendor_id", "asic.subsystem_id"),
            "identity.serial": self._text(said, "board.product_serial"),
            "identity.board_part": self._text(said, "board.model_number"),
            "identity.vbios": self._text(said, "ifwi.part_number", "vbios.part_number"),
            "identity.ifwi_version": self._text(said, "ifwi.version", "vbios.version"),
            "identity.compute_units": self._number(said, "asic.num_compute_units", lowest=1, highest=4096),
            "identity.module_id": self._number(said, "asic.oam_id", highest=1023),
            **of_gfx(gfx),
            "memory.total_bytes": self._bytes(said, "vram.size", "vram.vram_size"),
            "memory.bus_width_bits": self._number(said, "vram.bit_width", lowest=1, highest=65536),
            "memory.kind": self._text(said, "vram.type"),
            "health.ecc_enabled": self._ecc_enabled(said),
            "health.bad_page_threshold": self._number(said, "ras.bad_page_threshold"),
            "health.bad_page_threshold_exceeded": self._flag(said, "ras.bad_page_threshold_exceeded"),
            "power.limit_watts": self._watts(
                said, "limit.ppt0.socket_power_limit", "limit.socket_power_limit", "limit.socket_power",
                "limit.power_cap",
            ),
            "power.min_limit_watts": self._watts(
                said, "limit.ppt0.min_power_limit", "limit.min_power_limit", "limit.min_power"
            ),
            "power.max_limit_watts": self._watts(
                said, "limit.ppt0.max_power_limit", "limit.max_power_limit", "limit.max_power"
            ),
            "pcie.max_width": self._number(said, "bus.max_pcie_width", lowest=1, highest=32),
            "pcie.max_generation": self._generation(said, "bus.max_pcie_speed"),
        }  # fmt: skip

    def _metric(self, said: Entry | Absent) -> dict[str, Any]:
        values = {
            "gpu_utilization_percent": whole(self._quantity(said, "usage.gfx_activity", highest=100)),
            "memory.used_bytes": self._bytes(said, "mem_usage.used_vram", "fb_usage.fb_used"),
            "power.draw_watts": self._watts(
                said, "power.socket_power", "power.current_socket_power", "power.current_power",
                "power.average_socket_power",
            ),
            "power.energy_joules": self._quantity(said, "energy.total_energy_consumption", highest=2**53),
            "clocks.sm_mhz": whole(self._quantity(said, "clock.gfx_0.clk", "clock.gfx.clk", "clock.gfx.cur_clk")),
            "clocks.memory_mhz": whole(
                self._quantity(said, "clock.mem_0.clk", "clock.mem.clk", "clock.mem.cur_clk")
            ),
            "clocks.max_sm_mhz": whole(self._quantity(said, "clock.gfx_0.max_clk", "clock.gfx.max_clk")),
            "clocks.max_memory_mhz": whole(self._quantity(said, "clock.mem_0.max_clk", "clock.mem.max_clk")),
            "clocks.performance_level": self._performance_level(said),
            "clocks.event_reasons": self._limits_active(said),
            "clocks.limited_percent": self._limits_percent(said),
            "temperature.gpu_celsius": whole(
                self._quantity(said, "temperature.hotspot", "temperature.junction", highest=250)
            ),
            "temperature.memory_celsius": whole(
                self._quantity(said, "temperature.mem", "temperature.vram", highest=250)
            ),
            "pcie.width": self._number(said, "pcie.width", "pcie.current_lanes", lowest=1, highest=32),
            "pcie.generation": self._generation(said, "pcie.speed", "pcie.current_speed"),
            "pcie.replays": self._number(said, "pcie.replay_count"),
            "pcie.rollovers": self._number(said, "pcie.replay_roll_over_count"),
            "pcie.recoveries": self._number(said, "pcie.l0_to_recovery_count"),
            "pcie.naks_sent": self._number(said, "pcie.nak_sent_count"),
            "pcie.naks_received": self._number(said, "pcie.nak_received_count"),
        }  # fmt: skip
        blocks = self._blocks(said)
        if not isinstance(blocks, Absent):
            values |= of_blocks(list(blocks))
        totals = {
            "health.ecc_volatile.corrected": self._number(
                said, "ecc.total_correctable_count", "ecc.correctable"
            ),
            "health.ecc_volatile.uncorrected": self._number(
                said, "ecc.total_uncorrectable_count", "ecc.uncorrectable"
            ),
            "health.ecc_volatile.deferred": self._number(said, "ecc.total_deferred_count", "ecc.deferred"),
        }
        for path, total in totals.items():
            if path not in values or not isinstance(total, Absent):
                values[path] = total
        return values | {"health.ecc_blocks": blocks}

    def _blocks(self, said: Entry | Absent) -> Maybe[tuple[EccBlock, ...]]:
        raw = self._raw(said, "ecc_blocks")
        if isinstance(raw, Absent):
            return raw
        if not isinstance(raw, dict):
            return _odd(raw)
        return tuple(
            EccBlock(
                name=str(name).upper()[:32],
                corrected=self._number(raw[name], "correctable_count"),
                uncorrected=self._number(raw[name], "uncorrectable_count"),
                deferred=self._number(raw[name], "deferred_count"),
            )
            for name in sorted(raw)
        )

    def _ecc_enabled(self, said: Entry | Absent) -> Maybe[bool]:
        raw = self._raw(said, "ras.ecc_block_state")
        if isinstance(raw, Absent):
            return raw
        states = list(raw.values()) if isinstance(raw, dict) else raw
        if isinstance(states, list):
            words = [str(item.get("status", "")) if isinstance(item, dict) else str(item) for item in states]
            if words and all(re.fullmatch(r"ENABLED|DISABLED|N/A|NONE", said.upper()) for said in words):
                return any(said.upper() == "ENABLED" for said in words)
        return _odd(raw)

    def _performance_level(self, said: Entry | Absent) -> Maybe[str]:
        level = self._text(said, "perf_level")
        return level if isinstance(level, Absent) else level.lower().removeprefix("amdsmi_dev_perf_level_")

    def _limits_active(self, said: Entry | Absent) -> Maybe[tuple[str, ...]]:
        told = self._throttle(said, "_violation_status")
        if isinstance(told, Absent):
            return told
        return tuple(name for name, value in told if str(value).strip().upper() in ("ACTIVE", "TRUE", "1"))

    def _limits_percent(self, said: Entry | Absent) -> Maybe[tuple[tuple[str, float], ...]]:
        told = self._throttle(said, "_violation_activity")
        if isinstance(told, Absent):
            return told
        shares = [(name, self._plain(value)) for name, value in told]
        return tuple(
            (name, share) for name, share in shares if isinstance(share, float) and 0 <= share <= 100
        )

    def _throttle(self, said: Entry | Absent, ending: str) -> Maybe[list[tuple[str, Any]]]:
        raw = self._raw(said, "throttle")
        if isinstance(raw, Absent):
            return raw
        if not isinstance(raw, dict):
            return _odd(raw)
        told = [
            (name.removesuffix(ending), value)
            for name, value in sorted(raw.items())
            if name.endswith(ending) and not isinstance(value, (list, Absent)) and not _is_blank(value)
        ]
        return told or Absent(why=Why.not_supported, detail="amd-smi says N/A of every limit")

    def _bad_pages(self, said: Entry | Absent) -> dict[str, Any]:
        def count(*keys: str) -> Maybe[int]:
            raw = self._raw(said, *keys)
            if isinstance(raw, Absent):
                return raw
            if isinstance(raw, dict):  # how it writes a list of one
                return 1
            if isinstance(raw, list):
                return len([page for page in raw if isinstance(page, dict)])
            if isinstance(raw, str) and raw.lower().startswith("no bad pages"):
                # A guest's driver has no table of them: there are none to show, whatever the card has.
                return self._none("amd-smi shows none") if self._virtual else 0
            return _odd(raw)

        return {
            "health.bad_pages_retired": count("retired", "retired_bad_pages"),
            "health.bad_pages_pending": count("pending", "pending_bad_pages"),
            "health.bad_pages_unreservable": count("un_res", "unreservable", "un_res_bad_pages"),
        }

    def _process(self, said: Entry | Absent) -> dict[str, Any]:
        raw = self._raw(said, "process_list")
        if isinstance(raw, Absent):
            return {"processes": raw}
        if isinstance(raw, str) and raw.lower().startswith("no running process"):
            return {"processes": ()}
        if not isinstance(raw, list):
            return {"processes": _odd(raw)}
        found = []
        for item in raw:
            info = item.get("process_info", item) if isinstance(item, dict) else item
            if not isinstance(info, dict):
                if str(info).lower().startswith(("no running process", "n/a")):
                    continue
                return {"processes": _odd(info)}
            pid = self._number(info, "pid", highest=2**32)
            if isinstance(pid, Absent):
                return {"processes": pid}
            used = self._bytes(info, "memory_usage.vram_mem", "mem_usage", "mem")
            found.append(Process(pid=pid, kind="compute", used_bytes=used, name=self._text(info, "name")))
        return {"processes": tuple(found)}

    def _firmware(self, said: Entry | Absent) -> dict[str, Any]:
        raw = self._raw(said, "fw_list")
        if isinstance(raw, Absent):
            return {"identity.firmware_bundle": raw}
        for item in raw if isinstance(raw, list) else ():
            if isinstance(item, dict) and "PLDM" in str(item.get("fw_id", item.get("fw_name", ""))).upper():
                return {"identity.firmware_bundle": self._text(item, "fw_version")}
        missing = Absent(why=Why.not_present, detail="amd-smi lists no bundle among the firmware")
        return {"identity.firmware_bundle": missing}

    def _partition(self, gpu: int, parts: Mapping[str, Entry | Absent]) -> dict[str, Any]:
        """Out of `static` until 6.4, out of `partition` from 7.0 on."""
        said: Entry | Absent = parts.get("static", Absent(why=Why.not_asked))
        found = self._found.get("partition")
        for document in found if isinstance(found, tuple) else ():
            listed = document.get("current_partition") if isinstance(document, dict) else document
            for item in listed if isinstance(listed, list) else ():
                if isinstance(item, dict) and item.get("gpu", item.get("gpu_id")) == gpu:
                    said = {"partition": {**item, **_dict(item.get("current_partition"))}}
        return {
            "modes.compute_partition": self._mode(
                said, "partition.accelerator_partition", "partition.compute_partition",
                "partition.accelerator_type",
            ),
            "modes.memory_partition": self._mode(said, "partition.memory_partition", "partition.memory"),
        }  # fmt: skip

    def _mode(self, said: Entry | Absent, *paths: str) -> Maybe[str]:
        mode = self._text(said, *paths)
        if isinstance(mode, Absent) or re.fullmatch(r"[SDTQC]PX|NPS[1248]", mode):
            return mode
        return Absent(why=Why.failed, detail=f"the mode {mode!r} has no meaning")

    # Links

    def link_states(self, address: str) -> Maybe[tuple[tuple[str | None, str], ...]]:
        """(Address of the far card where it is told, `U`, `D` or `X`) of each xGMI link of the card."""
        places = self.addresses
        if isinstance(places, Absent):
            return places
        found = self._entries("xgmi")
        if isinstance(found, Absent):
            return found
        gpu = next((gpu for gpu, place in places.items() if place == address), None)
        raw = self._raw(found.get(gpu, {}) if gpu is not None else {}, "link_status", "link_state")
        if isinstance(raw, dict):
            raw = raw.get("links", raw.get("status"))
        if isinstance(raw, Absent):
            return raw
        if not isinstance(raw, list):
            return _odd(raw)
        words = [str(_dict(item).get("status", item)).strip().upper() for item in raw]
        if not words or not set(words) <= {"U", "D", "X", "SELF", "N/A"}:
            return _odd(raw)
        far = [str(_dict(item).get("bdf", "")) for item in raw]
        if "SELF" in words and len(words) == len(places):
            far = [place for _, place in sorted(places.items())]
        states = [(pci_address(place), said) for place, said in zip(far, words, strict=True)]
        known = tuple((place, said) for place, said in states if said in ("U", "D", "X"))
        return known or Absent(why=Why.not_supported, detail="amd-smi says N/A of every link")

    @cached_property
    def pairs(self) -> Maybe[dict[tuple[str, str], PairTold]]:
        """(From, to), PCI addresses → what joins the two."""
        ways, places = self.ways, self.addresses
        if isinstance(ways, Absent):
            return ways
        if isinstance(places, Absent):
            return places
        return {(places[a], places[b]): told for (a, b), told in ways.items() if a in places and b in places}

    @cached_property
    def ways(self) -> Maybe[dict[tuple[int, int], PairTold]]:
        """(From, to), its own numbers → what joins the two. Its count of hops is left out: it is 1 for all of xGMI."""
        told = self._entries("topology")
        if isinstance(told, Absent):
            return told
        return {
            (gpu, there): self._pair(said)
            for gpu, entry in told.items()
            for there, said in self._ways(entry)
            if there != gpu
        }

    def _ways(self, entry: Entry) -> Iterator[tuple[int, Entry]]:
        """Links from a card: a list from 6.1.1 on, before that a table for each of their properties."""
        links = entry.get("links")
        if isinstance(links, list):
            for link in links:
                if isinstance(link, dict) and type(link.get("gpu")) is int:
                    yield link["gpu"], link
            return
        tables = (
            ("link_accessibility", "link_status"), ("weight", "weight"), ("link_type", "link_type"),
            ("numa_bandwidth", "bandwidth"),
        )  # fmt: skip
        gathered: dict[int, dict[str, Any]] = {}
        for table, name in tables:
            for key, value in _dict(entry.get(table)).items():
                if match := re.fullmatch(r"gpu_?([0-9]{1,4})", key):
                    gathered.setdefault(int(match[1]), {})[name] = value
        yield from gathered.items()

    def _pair(self, said: Entry) -> PairTold:
        kind = self._text(said, "link_type")
        status = self._text(said, "link_status")
        least, most = self._range(said)
        return PairTold(
            link_type=kind if isinstance(kind, Absent) else kind.lower(),
            weight=self._number(said, "weight", highest=10_000),
            accessible=status
            if isinstance(status, Absent)
            else {"ENABLED": True, "TRUE": True, "DISABLED": False, "FALSE": False}.get(
                status.upper(), _odd(status)
            ),
            min_mb_per_s=least,
            max_mb_per_s=most,
        )

    def _range(self, said: Entry) -> tuple[Maybe[int], Maybe[int]]:
        """`50000-100000`, in 10^6 bytes/s."""
        text = self._text(said, "bandwidth")
        if isinstance(text, Absent):
            return text, text
        match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", text)
        return (int(match[1]), int(match[2])) if match else (_odd(text), _odd(text))

    # Values

    def _none(self, detail: str) -> Absent:
        """There is no value: what stands in its place depends on who asks."""
        if self.missing_groups:
            groups = ", ".join(self.missing_groups)
            return Absent(why=Why.no_permission, detail=f"{detail}; this user is missing the groups {groups}")
        if self._virtual:
            return Absent(why=Why.not_supported, detail=f"{detail}: a virtual function is not told")
        return Absent(why=Why.not_supported, detail=detail)

    def _raw(self, said: Entry | Absent | Any, *paths: str) -> Any:
        """What stands at the first of the paths that there is."""
        if isinstance(said, Absent):
            return said
        for path in paths:
            value = _at(said, *path.split("."))
            if value is None:
                continue
            if _is_blank(value):
                return self._none("amd-smi says N/A")
            if isinstance(value, str) and value.startswith("AMDSMI_STATUS_"):
                return _status(value)
            return value
        if self._virtual:
            return self._none("amd-smi leaves it out")
        return Absent(why=Why.not_present, detail=f"amd-smi does not tell {paths[0]}")

    def _text(self, said: Entry | Absent, *paths: str) -> Maybe[str]:
        raw = self._raw(said, *paths)
        if isinstance(raw, Absent):
            return raw
        if isinstance(raw, bool) or not isinstance(raw, (str, int)):
            return _odd(raw)
        return word(str(raw)) or self._none("amd-smi says nothing")

    def _flag(self, said: Entry | Absent, *paths: str) -> Maybe[bool]:
        raw = self._raw(said, *paths)
        if isinstance(raw, (bool, Absent)):
            return raw
        named = {"TRUE": True, "YES": True, "FALSE": False, "NO": False, "1": True, "0": False}
        return named.get(str(raw).strip().upper(), _odd(raw))

    def _number(
        self, said: Entry | Absent | Any, *paths: str, lowest: int = 0, highest: int = 2**53
    ) -> Maybe[int]:
        value = self._quantity(said, *paths, highest=2**64)
        if isinstance(value, Absent):
            return value
        if value == int(value) and lowest <= value <= highest:
            return int(value)
        return Absent(why=Why.failed, detail=f"{value:g} cannot be: it is not within {lowest} and {highest}")

    def _quantity(self, said: Entry | Absent | Any, *paths: str, highest: float = 100_000) -> Maybe[float]:
        """A number in the unit that amd-smi has for it."""
        raw = self._raw(said, *paths)
        if isinstance(raw, Absent):
            return raw
        value = self._plain(raw)
        if value in _BLANKS:
            return self._none(f"the mark for no value, {raw}")
        if isinstance(value, Absent) or 0 <= value <= highest:
            return value
        return Absent(why=Why.failed, detail=f"{value:g} cannot be: it is not within 0 and {highest:g}")

    def _plain(self, raw: Any) -> Maybe[float]:
        number, _ = _with_unit(raw)
        return _odd(raw) if number is None else number

    def _watts(self, said: Entry | Absent, *paths: str) -> Maybe[float]:
        """Watts. The library counts in microwatts since ROCm 6.1.2; a release let them through as W."""
        value = self._quantity(said, *paths, highest=2**53)
        if isinstance(value, Absent):
            return value
        _, unit = _with_unit(self._raw(said, *paths))
        scale = {"uw": 1e-6, "µw": 1e-6, "mw": 1e-3}.get(unit.lower(), 1e-6 if value > 20_000 else 1.0)
        watts = value * scale
        return watts if watts <= 20_000 else Absent(why=Why.failed, detail=f"{watts:g} W cannot be")

    def _bytes(self, said: Entry | Absent, *paths: str) -> Maybe[int]:
        """Bytes. What amd-smi calls MB is MiB; a number without a unit is as the field was in the older releases."""
        value = self._quantity(said, *paths, highest=2**60)
        if isinstance(value, Absent):
            return value
        _, unit = _with_unit(self._raw(said, *paths))
        scale = {"b": 1, "kb": 1024, "mb": MIB, "gb": 1024**3, "": MIB if value < 2**24 else 1}.get(
            unit.lower()
        )
        return _odd(unit) if scale is None else round(value * scale)

    def _generation(self, said: Entry | Absent, *paths: str) -> Maybe[int]:
        raw = self._raw(said, *paths)
        if isinstance(raw, Absent):
            return raw
        value, unit = _with_unit(raw)
        if value is None:
            return _odd(raw)
        if unit.upper().startswith("MT") or value >= 1000:
            value /= 1000
        elif not unit and value > 64:
            value /= 10
        return generation_of(f"{value:.1f} GT/s") or _odd(raw)

    def _ids(self, said: Entry | Absent, vendor: str, device: str) -> Maybe[str]:
        parts = []
        for path in (vendor, device):
            text = self._text(said, path)
            if isinstance(text, Absent):
                return text
            match = re.match(r"(?:0x)?([0-9a-f]{1,4})\b", text.lower())
            if match is None:
                return _odd(text)
            parts.append(match[1].zfill(4))
        return ":".join(parts)


_PATHS = (
    "uuid", "identity.name", "identity.pci_id", "identity.vbios", "identity.ifwi_version", "identity.gfx",
    "identity.firmware_bundle", "identity.module_id", "memory.total_bytes", "memory.kind", "power.limit_watts",
    "modes.compute_partition", "modes.memory_partition", "health.ecc_volatile.uncorrected",
    "health.ecc_volatile.corrected", "health.ecc_blocks", "health.ecc_enabled", "health.bad_pages_retired",
    "health.bad_page_threshold", "health.bad_page_threshold_exceeded", "clocks.event_reasons",
    "clocks.limited_percent", "processes", "pcie.naks_sent", "pcie.naks_received", "pcie.recoveries",
    "pcie.rollovers", "pcie.replays",
)  # fmt: skip
"""Facts that amd-smi is asked for, and whose absence it has to answer for where it does not work."""


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_blank(value: Any) -> bool:
    if isinstance(value, dict) and "value" in value:
        value = value["value"]
    return value is None or (isinstance(value, str) and value.strip().upper() in _NAMES_OF_NOTHING)


def _status(text: str) -> Absent:
    """`AMDSMI_STATUS_NO_PERM - Permission denied`: an error of the library in the place of a value."""
    why = Why.failed
    if "NOT_SUPPORTED" in text or "NOT_YET_IMPLEMENTED" in text:
        why = Why.not_supported
    elif "NO_PERM" in text:
        why = Why.no_permission
    elif "TIMEOUT" in text:
        why = Why.timed_out
    elif "NOT_FOUND" in text or "NO_DATA" in text:
        why = Why.not_present
    return Absent(why=why, detail=text[:120])


def _with_unit(raw: Any) -> tuple[float | None, str]:
    """(750.0, `W`) of `{"value": 750, "unit": "W"}`, `"750 W"` or 750; (None, …) where there is no number."""
    unit = ""
    if isinstance(raw, dict):
        unit, raw = str(raw.get("unit", "")), raw.get("value")
    if isinstance(raw, bool):
        return None, unit
    if isinstance(raw, (int, float)):
        try:
            return float(raw), unit
        except OverflowError:  # JSON bounds no number
            return None, unit
    match = (
        re.fullmatch(r"\s*(-?[0-9]{1,20}(?:\.[0-9]{1,9})?)\s*([^\d\s]\S{0,7})?\s*", raw)
        if isinstance(raw, str)
        else None
    )
    return (float(match[1]), unit or match[2] or "") if match else (None, unit)


def _odd(value: Any) -> Absent:
    return Absent(why=Why.failed, detail=f"amd-smi says {str(value)[:60]!r}, which is not understood")
