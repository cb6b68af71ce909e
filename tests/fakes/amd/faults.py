"""Words for what can be wrong with a node of AMD's.

Those that give a `Change` are done to what the node is, before any source tells of it; so every source tells the same.
A `Plant` is done to one of its boundaries (`tests.fakes.faults` has more of them).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from nodecheck.facts import Absent, Why
from tests.fakes.amd import PRODUCTS, AmdNode, Way, amd_smi, describe, tree
from tests.fakes.faults import Plant
from tests.fakes.node import FakeNode, said
from tests.fakes.tree import KERNEL

Change = Callable[[AmdNode], object]

HUNG = Absent(why=Why.timed_out, detail="no answer within its deadline")


def nothing(_: AmdNode | FakeNode) -> None:
    """The node as it is."""


def changed(*changes: Change) -> Change:
    """All of them, one after the other."""

    def change(node: AmdNode) -> None:
        for one in changes:
            one(node)

    return change


# What the node is


def card(number: int, **values: Any) -> Change:
    """Attributes of a card: `card(1, cap_watts=550)`."""
    return lambda node: node.cards[number].__dict__.update(values)


def every_card(**values: Any) -> Change:
    def change(node: AmdNode) -> None:
        for one in node.cards:
            one.__dict__.update(values)

    return change


def fewer(count: int) -> Change:
    """The machine has so many cards."""

    def change(node: AmdNode) -> None:
        del node.cards[count:]
        node.ways = {ends: way for ends, way in node.ways.items() if max(ends) < count}

    return change


def partitioned(mode: str) -> Change:
    """Every package is cut up as somebody left it: `CPX` makes eight devices of an MI300X."""

    def change(node: AmdNode) -> None:
        product = next(name for name, one in PRODUCTS.items() if one is node.product)
        cut = describe(product, len(node.cards), kind=node.kind, compute=mode)
        node.cards, node.ways = cut.cards, cut.ways

    return change


def errors(number: int, block: str, *, corrected: int = 0, uncorrected: int = 0, deferred: int = 0) -> Change:
    """RAS errors of a block of a card."""
    return lambda node: node.cards[number].ecc.update({block: [corrected, uncorrected, deferred]})


def way(a: int, b: int, kind: str, weight: int, mb_per_s: int = 0) -> Change:
    """What joins two cards."""
    return lambda node: node.set_way(a, b, Way(kind, weight, mb_per_s))  # type: ignore[arg-type]


def link_down(a: int, b: int) -> Change:
    def change(node: AmdNode) -> None:
        node.ways[a, b].down = node.ways[b, a].down = True

    return change


def apart(*numbers: int) -> Change:
    """These cards are a hive of their own, and PCI Express alone leads to the others."""

    def change(node: AmdNode) -> None:
        for number in numbers:
            node.cards[number].hive += 1
            for other in set(range(len(node.cards))) - set(numbers):
                node.set_way(number, other, Way("pcie", 72, 0))

    return change


def of_node(**values: Any) -> Change:
    """Attributes of the node: `of_node(loaded=False)`."""
    return lambda node: node.__dict__.update(values)


def hidden(*numbers: int) -> Change:
    """KFD keeps these cards from the container."""
    return lambda node: node.hidden.update(numbers)


# What one source says


def attribute(number: int, name: str, content: str | bytes | None) -> Plant:
    """A file of a card in sysfs says something else; None: it is not there."""

    def plant(made: FakeNode) -> None:
        path = f"{_folders(made)[number]}/{name}"
        if content is None:
            made.tree.remove(path)
        else:
            made.tree.files[path] = content

    return plant


def every_attribute(name: str, content: str | bytes | None) -> Plant:
    """The same of every card."""

    def plant(made: FakeNode) -> None:
        for number in range(len(_folders(made))):
            attribute(number, name, content)(made)

    return plant


def _folders(made: FakeNode) -> list[str]:
    """Of the cards, in the order of their addresses."""
    links = made.tree.links
    return [links[path] for path in sorted(links) if path.startswith("/sys/bus/pci/drivers/amdgpu/")]


def not_started(number: int) -> Plant:
    """amdgpu has not brought up this card: KFD lacks it."""

    def plant(made: FakeNode) -> None:
        made.tree.remove(f"{tree.NODES}/{2 + number}")

    return plant


def shut(*paths: str, groups: tuple[int, ...] = (1000,)) -> Plant:
    """Device files that this user, of these groups, may not open."""

    def plant(made: FakeNode) -> None:
        made.files.update({f"access {path}": False for path in paths})
        made.process["groups"] = list(groups)

    return plant


def no_amd_smi(made: FakeNode) -> None:
    """There is no such program."""
    absent = Absent(why=Why.not_present, detail="there is no such program here")
    _amd_smi(made, lambda _: absent)


def amd_smi_hangs(made: FakeNode) -> None:
    _amd_smi(made, lambda _: HUNG)


def amd_smi_prints(change: Callable[[str], str]) -> Plant:
    """What it prints, changed."""
    return lambda made: _amd_smi(made, lambda output: {**output, "stdout": change(output["stdout"])})


def _amd_smi(made: FakeNode, change: Callable[[Any], Any]) -> None:
    for question, output in made.commands.items():
        if question.startswith("amd_smi"):
            made.commands[question] = change(output)


def amd_smi_differs(node: AmdNode, *commands: str, change: Change) -> Plant:
    """amd-smi tells of another node than the other sources do."""
    other = copy.deepcopy(node)
    change(other)
    return lambda made: made.commands.update(
        {f"amd_smi_{name}": amd_smi.output(other, name, "7.2") for name in commands}
    )


def binding(answer: Any) -> Plant:
    """ROCm's binding in its child process."""
    return lambda made: made.amdsmi.update(survey=answer)


def boot(options: str) -> Plant:
    """The kernel's command line."""
    line = f"BOOT_IMAGE=/boot/vmlinuz-{KERNEL} root=/dev/nvme0n1p2 ro {options}\n"
    return lambda made: made.tree.files.update({"/proc/cmdline": line})


# What torch says


def hip(code: int, name: str, message: str, *numbers: int, step: str = "context") -> Plant:
    """HIP refuses a context on these cards, or on every one."""

    def plant(made: FakeNode) -> None:
        for question, answer in _contexts(made, numbers):
            error = {"code": code, "name": name, "message": message}
            before = {"init": answer["items"]["init"]} if step != "init" else {}
            made.interpreter[question] = said(before | {step: error}, step)

    return plant


def kernel(message: str, *numbers: int) -> Plant:
    """torch's kernel ends in an error."""

    def plant(made: FakeNode) -> None:
        for _, answer in _contexts(made, numbers):
            del answer["items"]["sum"]
            answer["step"] = "kernel"
            answer["errors"]["sum"] = {"type": "AcceleratorError", "message": message, "code": None}

    return plant


def ended(number: int, step: str, **how: Any) -> Plant:
    """The process that tries the card ends at `step`: `ended(1, "kernel", returncode=-11)`."""

    def plant(made: FakeNode) -> None:
        ((question, answer),) = _contexts(made, (number,))
        made.interpreter[question] = said({"init": answer["items"]["init"]}, step, **how)

    return plant


def wrong_sum(number: int) -> Plant:
    def plant(made: FakeNode) -> None:
        ((_, answer),) = _contexts(made, (number,))
        answer["items"]["sum"]["got"] += 64

    return plant


def _contexts(made: FakeNode, numbers: tuple[int, ...]) -> list[tuple[str, Any]]:
    said = made.interpreter.items()
    found = [item for item in said if item[0].startswith("context ") and item[0] != "context cpu"]
    return [found[number] for number in numbers] if numbers else found
