"""ROCm's Python binding of each release, as a module: its keys, units, marks, enumerations and exceptions.

`write` lays out `share/amd_smi/amdsmi` below a folder that then is what $ROCM_PATH names.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
