"""torch.utils.collect_env: what PyTorch says of itself and of the machine in a bug report.

It exits 0 whatever happened, and writes `Could not collect` for what it could not see.
"""

from __future__ import annotations

import re
from typing import Any

from nodecheck.facts import NOT_ASKED, Absent, Card, Host, Maybe, Stack, Why
from nodecheck.facts.card import Identity
from nodecheck.facts.host import Cpu
from nodecheck.facts.stack import Driver, Torch
from nodecheck.imports.kind import Kind, Piece, Section, Unreadable
from nodecheck.imports.readers.amd_fields import card as amd_card
from nodecheck.imports.readers.amd_fields import is_amd

_LINE = re.compile(r"([A-Z][\w ()/-]{1,60}):[ \t]{0,60}(.{0,400})$", re.MULTILINE)
_CARD = re.compile(r"^(?:GPU models and configuration: ?)?GPU (\d{1,3}): (.{1,100})$", re.MULTILINE)
_MIG = re.compile(r"^\s+MIG ", re.MULTILINE)
_NCCL = re.compile(r"\bnvidia-nccl-cu\d+==([\d.]{1,20})")
_CUDNN = re.compile(r"\bnvidia-cudnn-cu\d+==([\d.]{1,20})")


def read(section: Section) -> Piece:
    """Raises `Unreadable` where it does not even name PyTorch's version."""
    told: dict[str, str] = {}
    for name, value in _LINE.findall(section.text):
        told.setdefault(name.strip(), value.strip())

    def answer(name: str) -> Maybe[str]:
        value = told.get(name)
        if value is None:
            return Absent(why=Why.not_asked, detail=f"the output has no line {name}")
        if value in ("", "Could not collect", "N/A", "No CUDA", "None"):
            return Absent(why=Why.not_present, detail=f"collect_env: {value or 'an empty answer'}")
        return value

    version = answer("PyTorch version")
    if isinstance(version, Absent):
        raise Unreadable("it does not name PyTorch's version")
    nccl, cudnn = _NCCL.search(section.text), _CUDNN.search(section.text)
    torch: dict[str, Any] = {
        "version": version,
        "debug": _yes(answer("Is debug build")),
        "cuda": answer("CUDA used to build PyTorch"),
        "hip": answer("ROCM used to build PyTorch"),
        "available": _yes(answer("Is CUDA available")),
    }
    if nccl:
        torch["nccl"] = nccl[1]
    if cudnn:
        torch["cudnn"] = cudnn[1]
    driver = answer("Nvidia driver version")
    cpu = Cpu(
        model=answer("Model name"),
        architecture=answer("Architecture"),
        present=_number(answer("CPU(s)")),
        sockets=_number(answer("Socket(s)")),
        numa_nodes=_number(answer("NUMA node(s)")),
    )
    cards = tuple(_card(int(index), name.strip()) for index, name in _CARD.findall(section.text))
    numbers = [card.index for card in cards]
    return Piece(
        cards=cards if cards and len(set(numbers)) == len(numbers) else NOT_ASKED,
        host=Host(os=answer("OS"), cpu=cpu),
        stack=Stack(driver=Driver(version=driver), torch=Torch(**torch)),
        remarks=("it lists MIG devices, which are not told apart here",) if _MIG.search(section.text) else (),
    )


def _card(index: int, name: str) -> Card:
    if is_amd(name):
        return amd_card("collect_env", index, values={"identity.name": name})
    return Card(vendor="nvidia", source="collect_env", index=index, identity=Identity(name=name))


def _yes(answer: Maybe[str]) -> Maybe[bool]:
    return answer if isinstance(answer, Absent) else answer == "True"


def _number(answer: Maybe[str]) -> Maybe[int]:
    if isinstance(answer, Absent) or (answer.isdecimal() and len(answer) < 7):
        return answer if isinstance(answer, Absent) else int(answer)
    return Absent(why=Why.failed, detail=f"{answer[:40]} is no number")


KINDS = (
    Kind(
        name="torch.utils.collect_env",
        read=read,
        begins=re.compile(r"Collecting environment information\.\.\."),
        goes_on=re.compile(r"PyTorch version: "),
        recognises=lambda text: "PyTorch version:" in text,
    ),
)
