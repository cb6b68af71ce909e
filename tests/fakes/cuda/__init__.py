"""CUDA, made up: a libcuda of our own that the worker really loads, and a torch that stands for a CUDA build.

    environment = fake.environment(FAKE_CUDA_INIT="802", FAKE_TORCH="raises")

What can be set stands in `libcuda.c` and in `site/torch/__init__.py`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

SITE = Path(__file__).parent / "site"


def library() -> Path:
    """The folder with our libcuda.so.1, compiled on first use."""
    source = Path(__file__).with_name("libcuda.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"nodecheck-fake-cuda-{os.getuid()}-{digest}"
    built = folder / "libcuda.so.1"
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


def environment(**variables: str) -> dict[str, str]:
    """The environment of a process that finds our libcuda and our torch, and nothing of this process's Python."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "LD_LIBRARY_PATH": str(library()),
        "PYTHONPATH": str(SITE),
        "PYTHONDONTWRITEBYTECODE": "1",
    } | variables
