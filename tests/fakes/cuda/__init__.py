"""CUDA and ROCm, made up: libraries of our own that the worker really loads, and a torch that stands for a build.

    environment = fake.environment(FAKE_CUDA_INIT="802", FAKE_TORCH="raises")
    environment = fake.rocm_environment(FAKE_HIP_CARDS="4")

What can be set stands in `libcuda.c`, in `libamdhip64.c` and in `site/torch/__init__.py`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

SITE = Path(__file__).parent / "site"


def library(source_name: str = "libcuda.c", name: str = "libcuda.so.1") -> Path:
    """The folder with our library, compiled on first use."""
    source = Path(__file__).with_name(source_name)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"nodecheck-fake-{source.stem}-{os.getuid()}-{digest}"
    built = folder / name
    if not built.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        draft = folder / f"draft-{os.getpid()}"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(draft), str(source)], check=True
        )
        draft.replace(built)
    return folder


def uuid(card: int) -> str:
    return f"GPU-{card + 1:08x}-0000-4000-8000-000000000000"


def hip_uuid(card: int) -> str:
    return f"GPU-{0xABC01 + card:016x}"


def rocm_environment(**variables: str) -> dict[str, str]:
    """The same with our libamdhip64 and our torch as a build for ROCm, and no libcuda."""
    folder = library("libamdhip64.c", "libamdhip64.so.7")
    return environment(**{"FAKE_HIP": "7.2.26015-fc0010cf6a", "LD_LIBRARY_PATH": str(folder), **variables})


def environment(**variables: str) -> dict[str, str]:
    """The environment of a process that finds our libcuda and our torch, and nothing of this process's Python."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "LD_LIBRARY_PATH": str(library()),
        "PYTHONPATH": str(SITE),
        "PYTHONDONTWRITEBYTECODE": "1",
    } | variables
