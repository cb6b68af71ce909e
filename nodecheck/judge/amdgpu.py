"""The table of amdgpu's messages (`amdgpu.toml`): what each means, how grave it is and who acts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from nodecheck.judge.xids import Entry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AMDGPU_SOURCE = "source of amdgpu, and docs.kernel.org/gpu/amdgpu/ras.html (published, Linux 6.18, 2025-11)"


@cache
def messages() -> Mapping[str, Entry]:
    """The messages by the names that the probe of the kernel's log gives them."""
    document: dict[str, Any] = tomllib.loads(
        files("nodecheck.judge").joinpath("amdgpu.toml").read_text(encoding="utf-8")
    )
    table: dict[str, Entry] = {}
    for row in document["message"]:
        if row["name"] in table:
            raise ValueError(f"amdgpu.toml: {row['name']} stands there twice")
        table[row["name"]] = Entry(
            row["title"], row["meaning"], row["gravity"], document["steps"][row["step"]]
        )
    return table
