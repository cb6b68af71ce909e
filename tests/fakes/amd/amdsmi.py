"""ROCm's Python binding of each release, as a module: its keys, units, marks, enumerations and exceptions.

`write` lays out `share/amd_smi/amdsmi` below a folder that then is what $ROCM_PATH names.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nodecheck.sources import amdsmi
from nodecheck.sources.channel import Answer
from tests.fakes.amd import AmdNode

RELEASES = ("6.0", "6.1", "6.2", "6.4", "7.0", "7.14", "10.1")

MODULE = Path(__file__).with_name("amdsmi_module.py")


def write(
    node: AmdNode,
    root: Path,
    release: str,
    *,
    fault: str = "",
    hang: str = "",
) -> Path:
    """The module below `root`. `fault` is what goes wrong at import, `hang` the call that never returns."""
    package = root / "share" / "amd_smi" / "amdsmi"
    package.mkdir(parents=True, exist_ok=True)
    described: dict[str, Any] = {
        "release": [int(part) for part in release.split(".")],
        "loaded": node.loaded,
        "virtual": node.virtual,
        "product": asdict(node.product),
        "module": node.module,
        "cards": [asdict(card) for card in node.given],
        "ways": [
            [a, b, way.kind, way.weight, way.mb_per_s, way.down]
            for (a, b), way in node.ways.items()
            if not {a, b} & node.hidden
        ],
        "fault": fault,
        "hang": hang,
    }
    (package / "node.json").write_text(json.dumps(described))
    (package / "__init__.py").write_text(MODULE.read_text())
    return root


def survey(node: AmdNode, root: Path, release: str, *, silence_seconds: float = 20.0, **how: str) -> Answer:
    """What the real source says of the module, found where $ROCM_PATH names it."""
    before = os.environ.get("ROCM_PATH")
    os.environ["ROCM_PATH"] = str(write(node, root, release, **how))
    try:
        return amdsmi.live(silence_seconds=silence_seconds, deadline_seconds=40.0).ask("survey")
    finally:
        os.environ.pop("ROCM_PATH")
        if before is not None:
            os.environ["ROCM_PATH"] = before
