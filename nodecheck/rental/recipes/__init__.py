"""Ready recipes for those who start checks otherwise: Slurm's prolog, Kubernetes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib.resources import files


def slurm_prolog(program: Sequence[str]) -> str:
    """A shell script; `program` is nodecheck as it is started here."""
    return _text("slurm_prolog.sh").replace("@NODECHECK@", shlex.join(program))


def kubernetes() -> str:
    """A DaemonSet, in YAML."""
    return _text("kubernetes.yaml")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
