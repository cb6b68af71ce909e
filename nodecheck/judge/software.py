"""What CUDA's and ROCm's errors, variables of the environment and preloaded libraries mean (`software.toml`)."""

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
ROCM_SOURCE = "AMD hip_runtime_api.h, hipError_t, and hsa.h, hsa_status_t (published, ROCm 7.2, 2026-01)"
VARIABLES_SOURCE = "NCCL user guide, environment variables (published, NCCL 2.27, 2025-06)"


@dataclass(frozen=True)
class ErrorMeaning:
    """What an error means on a node that was just handed over."""

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
    of: str | None
    """The vendor whose cards it holds back; None for all."""


def cuda_meaning(code: int) -> ErrorMeaning:
    """The meaning of a CUDA error's number."""
    return _cuda_errors().get(code) or _meaning(_document()["other_cuda_error"])


def rocm_meaning(name: str) -> ErrorMeaning:
    """The meaning of an error of HIP's or HSA's."""
    return _rocm_errors().get(name) or _meaning(_document()["other_rocm_error"])


@cache
def _cuda_errors() -> Mapping[int, ErrorMeaning]:
    return _by_each(_document()["cuda_error"], "codes", _meaning)


@cache
def _rocm_errors() -> Mapping[str, ErrorMeaning]:
    return _by_each(_document()["rocm_error"], "names", _meaning)


@cache
def amdgpu_releases() -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """(First two numbers of the kernel module's version, ROCm's release), oldest first."""
    return tuple((_pair(module), _pair(rocm)) for module, rocm in _document()["amdgpu"]["releases"])


def _pair(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


@cache
def variables() -> Mapping[str, Variable]:
    """The variables worth a warning, by name."""
    return _by_each(
        _document()["variable"],
        "names",
        lambda row: Variable(
            row["effect"], tuple(row.get("harmless", ())), row.get("from_cards", 1), row.get("of")
        ),
    )


@cache
def benign_preloads() -> tuple[str, ...]:
    """Beginnings of the file names of libraries that may be preloaded."""
    return tuple(_document()["preload"]["benign"])


def _meaning(row: Mapping[str, Any]) -> ErrorMeaning:
    return ErrorMeaning(row["meaning"], row["next_step"], Cause(row["cause"]), Owner(row["owner"]))


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
