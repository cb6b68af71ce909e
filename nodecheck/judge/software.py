"""What CUDA's errors, variables of the environment and preloaded libraries mean (`software.toml`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from nodecheck.judge.finding import Cause, Owner

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CUDA_SOURCE = "NVIDIA cuda.h, CUresult (published, CUDA 12.9, 2025-05)"
VARIABLES_SOURCE = "NCCL user guide, environment variables (published, NCCL 2.27, 2025-06)"


@dataclass(frozen=True)
class CudaMeaning:
    """What a CUDA error means on a node that was just handed over."""

    meaning: str
    next_step: str
    cause: Cause
    owner: Owner


@dataclass(frozen=True)
class Variable:
    """A variable that changes how fast or whether things run."""

    effect: str
    harmless: tuple[str, ...]
    """Values that ask for what happens anyway."""
    from_cards: int
    """It is of no account on fewer cards."""


def cuda_meaning(code: int) -> CudaMeaning:
    """The meaning of a CUDA error's number."""
    return _cuda_errors().get(code) or _meaning(_document()["other_cuda_error"])


@cache
def _cuda_errors() -> Mapping[int, CudaMeaning]:
    return _by_each(_document()["cuda_error"], "codes", _meaning)


@cache
def variables() -> Mapping[str, Variable]:
    """The variables worth a warning, by name."""
    return _by_each(
        _document()["variable"],
        "names",
        lambda row: Variable(row["effect"], tuple(row.get("harmless", ())), row.get("from_cards", 1)),
    )


@cache
def benign_preloads() -> tuple[str, ...]:
    """Beginnings of the file names of libraries that may be preloaded."""
    return tuple(_document()["preload"]["benign"])


def _meaning(row: Mapping[str, Any]) -> CudaMeaning:
    return CudaMeaning(row["meaning"], row["next_step"], Cause(row["cause"]), Owner(row["owner"]))


def _by_each(rows: list[dict[str, Any]], keys: str, entry: Any) -> dict[Any, Any]:
    table: dict[Any, Any] = {}
    for row in rows:
        for key in row[keys]:
            if key in table:
                raise ValueError(f"software.toml: {key} stands there twice")
            table[key] = entry(row)
    return table


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(files("nodecheck.judge").joinpath("software.toml").read_text(encoding="utf-8"))
