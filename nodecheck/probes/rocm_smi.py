"""What `rocm-smi -a --json` prints: the last that is asked, where neither amd-smi nor ROCm's binding answers.

Every value is text. Keys changed their letters and their names from release to release, and the program ends well
where there is no driver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes.amd_smi import Entry, documents
from nodecheck.probes.amdgpu import generation_of, whole
from nodecheck.probes.belief import Reading
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.text import word
from nodecheck.sources.child import Output


def readings(output: Maybe[Output]) -> Maybe[dict[str, Reading]]:
    """PCI address → everything it says of that card."""
    if isinstance(output, Absent):
        return output
    found = documents(output.stdout)
    if isinstance(found, Absent):
        return found
    cards = entries(found).values()
    return {place: Reading("rocm_smi", values(said)) for said in cards if (place := address(said))}


def entries(found: Sequence[Any]) -> dict[int, Entry]:
    """Its own number of a card, by which it says `card0`, → what the documents say of it.

    It counts the cards in the order of their PCI addresses, as amd-smi does (rocm_smi_main.cc of ROCm/rocm_smi_lib).
    """
    cards: dict[int, Entry] = {}
    for document in found:
        for name, said in document.items() if isinstance(document, dict) else ():
            match = re.fullmatch(r"card([0-9]{1,3})", name)
            if match and isinstance(said, dict):
                cards[int(match[1])] = said
    return cards


def address(said: Entry) -> str | None:
    """The card's PCI address, where it is told."""
    return pci_address(str(said.get("pci bus", "")))


def values(said: Entry) -> dict[str, Any]:
    """What it says of one card, by dotted paths below `Card`."""
    speed, width = _link(said)
    return {
        "uuid": _uuid(said),
        "identity.name": _name(said),
        "identity.pci_id": _pci_id(said),
        "identity.vbios": _text(said, "vbios version"),
        "memory.total_bytes": _number(said, "vram total memory (b)"),
        "memory.used_bytes": _number(said, "vram total used memory (b)"),
        "modes.compute_partition": _mode(said, "compute partition"),
        "modes.memory_partition": _mode(said, "memory partition"),
        "power.limit_watts": _decimal(said, "max graphics package power (w)"),
        "power.draw_watts": _decimal(
            said, "current socket graphics package power (w)", "average graphics package power (w)"
        ),
        "temperature.gpu_celsius": whole(_decimal(said, "temperature (sensor junction) (c)")),
        "temperature.memory_celsius": whole(_decimal(said, "temperature (sensor memory) (c)")),
        "gpu_utilization_percent": _number(said, "gpu use (%)"),
        "pcie.generation": speed,
        "pcie.width": width,
        "pcie.replays": _number(said, "pcie replay count"),
    }


def _uuid(said: Entry) -> Maybe[str]:
    """As HIP writes it: the digits, with the zeros in front that rocm-smi leaves out."""
    text = _text(said, "unique id")
    if isinstance(text, Absent):
        return text
    match = re.fullmatch(r"0x([0-9a-f]{1,16})", text.lower())
    if match is None or int(match[1], 16) in (0, 2**64 - 1):
        return Absent(why=Why.not_supported, detail=f"rocm-smi says {text[:20]!r}")
    return f"GPU-{match[1].zfill(16)}"


def _name(said: Entry) -> Maybe[str]:
    """The product's name. Where it has none, some releases show a PCI id."""
    text = _text(said, "card series", "device name", "card model")
    if isinstance(text, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text):
        return Absent(why=Why.not_supported, detail=f"rocm-smi says {text!r}")
    return text


def _pci_id(said: Entry) -> Maybe[str]:
    """`GPU ID` until ROCm 5.7, `Device ID` from 6.0 on."""
    text = _text(said, "device id", "gpu id")
    if isinstance(text, Absent):
        return text
    match = re.fullmatch(r"0x([0-9a-f]{4})", text.lower())
    return f"1002:{match[1]}" if match else _odd(text)


def _mode(said: Entry, key: str) -> Maybe[str]:
    mode = _text(said, key)
    if isinstance(mode, Absent) or re.fullmatch(r"[SDTQC]PX|NPS[1248]", mode):
        return mode
    return _odd(mode)


def _link(said: Entry) -> tuple[Maybe[int], Maybe[int]]:
    """Generation and lanes of `1 (16.0GT/s x16)`."""
    text = _text(said, "pcie clock level")
    if isinstance(text, Absent):
        return text, text
    match = re.search(r"\(([0-9]{1,2}\.[0-9])GT/s x([0-9]{1,2})\)", text)
    if match is None:
        return _odd(text), _odd(text)
    return generation_of(f"{match[1]} GT/s") or _odd(text), int(match[2])


def _text(said: Entry, *keys: str) -> Maybe[str]:
    for key in keys:
        if key in said:
            text = word(str(said[key]))
            if text is None or text.upper() in ("N/A", "NONE", "UNKNOWN", "UNSUPPORTED"):
                return Absent(why=Why.not_supported, detail=f"rocm-smi says {said[key]!r}")
            return text
    return Absent(why=Why.not_present, detail=f"rocm-smi does not tell {keys[0]!r}")


def _decimal(said: Entry, *keys: str) -> Maybe[float]:
    text = _text(said, *keys)
    if isinstance(text, Absent):
        return text
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)", text)
    return float(match[1]) if match else _odd(text)


def _number(said: Entry, key: str) -> Maybe[int]:
    value = _decimal(said, key)
    return value if isinstance(value, Absent) else int(value)


def _odd(text: str) -> Absent:
    return Absent(why=Why.failed, detail=f"rocm-smi says {text[:40]!r}, which is not understood")
