"""What `rocm-smi -a --json` prints: the last that is asked, where neither amd-smi nor ROCm's binding answers.

Every value is text. Keys changed their letters and their names from release to release, and the program ends well
where there is no driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes.amd_smi import documents
from nodecheck.probes.belief import Reading
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.text import word
from nodecheck.sources.child import Output


def readings(output: Maybe[Output]) -> Maybe[dict[str, Reading]]:
    """PCI address → everything it says of that card. Its own numbers of the cards are those of the DRM."""
    if isinstance(output, Absent):
        return output
    found = documents(output.stdout)
    if isinstance(found, Absent):
        return found
    cards: dict[str, Reading] = {}
    for document in found:
        for name, said in document.items() if isinstance(document, dict) else ():
            if re.fullmatch(r"card[0-9]{1,3}", name) and isinstance(said, dict):
                address = pci_address(str(said.get("pci bus", "")))
                if address:
                    cards[address] = Reading("rocm_smi", _values(said))
    return cards


def _values(said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "uuid": _uuid(said),
        "identity.name": _text(said, "card series", "card model"),
        "identity.vbios": _text(said, "vbios version"),
        "memory.total_bytes": _number(said, "vram total memory (b)"),
        "memory.used_bytes": _number(said, "vram total used memory (b)"),
        "power.limit_watts": _decimal(said, "max graphics package power (w)"),
        "pcie.replays": _number(said, "pcie replay count"),
    }


def _uuid(said: Mapping[str, Any]) -> Maybe[str]:
    """As HIP writes it: the digits, with the zeros in front that rocm-smi leaves out."""
    text = _text(said, "unique id")
    if isinstance(text, Absent):
        return text
    match = re.fullmatch(r"0x([0-9a-f]{1,16})", text.lower())
    if match is None or int(match[1], 16) in (0, 2**64 - 1):
        return Absent(why=Why.not_supported, detail=f"rocm-smi says {text[:20]!r}")
    return f"GPU-{match[1].zfill(16)}"


def _text(said: Mapping[str, Any], *keys: str) -> Maybe[str]:
    for key in keys:
        if key in said:
            text = word(str(said[key]))
            if text is None or text.upper() in ("N/A", "NONE", "UNKNOWN"):
                return Absent(why=Why.not_supported, detail=f"rocm-smi says {said[key]!r}")
            return text
    return Absent(why=Why.not_present, detail=f"rocm-smi does not tell {keys[0]!r}")


def _decimal(said: Mapping[str, Any], key: str) -> Maybe[float]:
    text = _text(said, key)
    if isinstance(text, Absent):
        return text
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)", text)
    return float(match[1]) if match else Absent(why=Why.failed, detail=f"rocm-smi says {text[:40]!r}")


def _number(said: Mapping[str, Any], key: str) -> Maybe[int]:
    value = _decimal(said, key)
    return value if isinstance(value, Absent) else int(value)
