"""Words for what can be wrong with a node: each gives a `Plant`, which does it to a healthy `FakeNode`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodecheck.facts import Absent, Why
from tests.fakes import nvml
from tests.fakes.node import FakeNode, said, success
from tests.fakes.tree import set_parameters

Plant = Callable[[FakeNode], object]

DENIED = Absent(why=Why.no_permission, detail="Permission denied")
MISSING = Absent(why=Why.not_present, detail="No such file or directory")
TIMED_OUT = Absent(why=Why.timed_out, detail="no answer within its deadline")


def both(*plants: Plant) -> Plant:
    """All of them, one after the other."""

    def plant(node: FakeNode) -> None:
        for one in plants:
            one(node)

    return plant


def driver(call: str, answer: str) -> Plant:
    """NVML answers the call otherwise: `driver("nvmlDeviceGetEccMode 2", "0 1")`."""
    return lambda node: node.nvml.update({call: answer})


def on_every_card(call: str, answer: str) -> Plant:
    """The same of every card: `on_every_card("nvmlDeviceGetMigMode", "1 1")`."""

    def plant(node: FakeNode) -> None:
        for card in range(int(node.nvml["nvmlDeviceGetCount_v2"])):
            node.nvml[f"{call} {card}"] = answer

    return plant


def on_every_link(card: int, call: str, answer: str) -> Plant:
    """The same of every NVLink of a card; `{link}` in `answer` is its number."""

    def plant(node: FakeNode) -> None:
        for link in range(18):
            if f"nvmlDeviceGetNvLinkState {card} {link}" in node.nvml:
                node.nvml[f"{call} {card} {link}"] = answer.format(link=link)

    return plant


def lost(card: int) -> Plant:
    return lambda node: nvml.lose(node.nvml, card)


def memory(card: int, total_mib: int, reserved_mib: int = 616) -> Plant:
    return lambda node: nvml.set_memory(node.nvml, card, total_mib * 1024**2, reserved_mib * 1024**2)


def occupied(card: int, gib: int) -> Plant:
    """Somebody's programs hold so much of the card, and no list shows them."""
    return lambda node: nvml.occupy(node.nvml, card, gib * 1024**3)


def field(card: int, number: int, value: int | str, scope: int = 0) -> Plant:
    return lambda node: nvml.field(node.nvml, card, number, value, scope)


def fabric(card: int, **state: int) -> Plant:
    return lambda node: nvml.set_fabric(node.nvml, card, **state)


def unlinked(card: int) -> Plant:
    """The card has its NVLinks and none is up; nobody reaches it over NVLink."""

    def plant(node: FakeNode) -> None:
        on_every_link(card, "nvmlDeviceGetNvLinkState", "0")(node)
        for call in [c for c in node.nvml if c.startswith("nvmlDeviceGetP2PStatus ") and c.endswith(" 2")]:
            if str(card) in call.split()[1:3]:
                node.nvml[call] = "5"

    return plant


def no_links(node: FakeNode) -> None:
    """NVML knows no NVLink of any card, as with NvLinkDisable."""
    for call in [c for c in node.nvml if "NvLink" in c]:
        del node.nvml[call]
    for card in range(int(node.nvml["nvmlDeviceGetCount_v2"])):
        del node.nvml[f"nvmlDeviceGetFieldValues {card} {nvml.FIELD_LINK_COUNT} 0"]


def impatient(seconds: float) -> Plant:
    """Give a silent NVML call up after so long."""

    def plant(node: FakeNode) -> None:
        node.silence_seconds = seconds

    return plant


def file(path: str, content: str | bytes) -> Plant:
    """A file of procfs, sysfs, /dev or /etc says something else."""
    return lambda node: node.tree.files.update({path: content})


def without(path: str) -> Plant:
    """A file or folder is not there."""
    return lambda node: node.tree.remove(path)


def of_device(address: str, attribute: str, content: str | bytes) -> Plant:
    """An attribute of a PCI device in sysfs."""
    return lambda node: node.tree.files.update({f"{node.tree.place(address)}/{attribute}": content})


def port_down(adapter: int) -> Plant:
    """The InfiniBand port of an adapter is down."""

    def plant(node: FakeNode) -> None:
        place = node.tree.links[f"/sys/class/infiniband/mlx5_{adapter}"]
        node.tree.files[f"{place}/ports/1/state"] = "1: DOWN\n"

    return plant


def parameters(**values: str | int) -> Plant:
    """Parameters of the driver's kernel module."""
    return lambda node: set_parameters(node.tree, **values)


def log(*lines: str) -> Plant:
    """Lines in the kernel's log."""
    return lambda node: node.log(*lines)


def files(question: str, answer: Any) -> Plant:
    """What the file system answers: `files("usage /data", TIMED_OUT)`."""
    return lambda node: node.files.update({question: answer})


def process(question: str, answer: Any) -> Plant:
    return lambda node: node.process.update({question: answer})


def limits(**values: int) -> Plant:
    return lambda node: node.process["limits"].update(values)


def program(name: str, answer: Any) -> Plant:
    """What a program prints."""
    return lambda node: node.commands.update({name: answer})


def environment(**variables: str) -> Plant:
    return lambda node: node.set_environment(**variables)


def torch(**items: Any) -> Plant:
    """What the renter's torch says of itself."""
    return lambda node: node.torch(**items)


def package(name: str, *platforms: str) -> Plant:
    """A package beside torch whose shared objects carry code for these platforms."""

    def plant(node: FakeNode) -> None:
        found = {"name": name, "version": "1.2.3", "built_for": list(platforms), "files": 1}
        node.interpreter["extensions"]["items"]["extensions"].append(found)

    return plant


def no_torch(error: dict[str, Any]) -> Plant:
    """`import torch` fails with the error, in the worker that describes it and in those that use the cards."""

    def plant(node: FakeNode) -> None:
        for question, answer in node.interpreter.items():
            if question == "chosen":
                continue
            for item in ("import_seconds", "version", "available", "devices", "sum", "kernel_seconds"):
                answer["items"].pop(item, None)
            answer["errors"]["import"] = error
            answer["step"] = "import"

    return plant


def import_hangs(node: FakeNode) -> None:
    """`import torch` never ends, wherever it is tried."""
    for question in node.interpreter:
        if question != "chosen":
            node.interpreter[question] = said(
                {"init": success()}, "import", returncode=None, cut_off="no end after 120 s"
            )


def no_interpreter(node: FakeNode) -> None:
    """None can be started."""
    node.interpreter = dict.fromkeys(node.interpreter, DENIED)


def fewer_devices(count: int) -> Plant:
    """torch sees only the first cards."""

    def plant(node: FakeNode) -> None:
        devices = node.interpreter["describe"]["items"]["devices"]
        node.torch(device_count=count, runtime_count=count, devices=devices[:count])

    return plant


def cuda_init(number: int, name: str, message: str) -> Plant:
    return lambda node: node.init_fails(number, name, message)


def context(card: int, number: int, name: str, message: str) -> Plant:
    """CUDA refuses a context on the card."""
    return lambda node: node.context_fails(card, number, name, message)


def kernels_fail(number: int, message: str) -> Plant:
    """Contexts can be made, and no card runs torch's kernel."""

    def plant(node: FakeNode) -> None:
        for question, answer in node.interpreter.items():
            if question.startswith("context GPU"):
                del answer["items"]["sum"]
                answer["step"] = "kernel"
                answer["errors"]["sum"] = {"type": "AcceleratorError", "message": message, "code": number}

    return plant


def ended(card: int, step: str, **how: Any) -> Plant:
    """The process that tries the card ends at `step`: `ended(1, "kernel", returncode=-11)`."""
    key = f"context {nvml.uuid(card)}"
    return lambda node: node.interpreter.update({key: said({"init": success()}, step, **how)})


def wrong_sum(card: int) -> Plant:
    """The card computes, and the result is wrong."""

    def plant(node: FakeNode) -> None:
        node.interpreter[f"context {nvml.uuid(card)}"]["items"]["sum"]["got"] += 64

    return plant
