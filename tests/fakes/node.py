"""A whole node, made up at its real boundaries: NVML's library, files below a folder, programs, torch.

    node = healthy("h200x4", kind="container")
    node.nvml["nvmlDeviceGetEccMode 2"] = "0 1"      # plant a fault; node.tree, node.files, … alike
    facts = node.probe(Ground(tmp_path / "node"))    # real sources, real pynvml in its child, real probes

What a folder of files cannot show (sizes of file systems, closed doors), what the process is told of itself,
what programs print and what the renter's interpreter says are answers to the sources' questions, by question.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nodecheck.facts import Absent, Level, Node, Why
from nodecheck.measure import Measuring, start
from nodecheck.probes import Probing
from nodecheck.profile import load
from nodecheck.sources import Sources, files, nvml
from nodecheck.sources.channel import Answer, Channel, Live
from tests.fakes import nvml as fake
from tests.fakes.nvml import Description, Links
from tests.fakes.nvml.products import PRODUCTS, Product
from tests.fakes.tree import GIB, KERNEL, Ground, Kind, Tree, plant, plant_cpu, set_parameters
from tests.fakes.workers import FakeWorkers

PYTHON = "/opt/venv/bin/python3"
SITE = "/opt/venv/lib/python3.12/site-packages"
NCCL = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
ARCHES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
ELEMENTS_SUM = 2**20 * (2**20 - 1) // 2
NO_PERMISSION = Absent(why=Why.no_permission, detail="Operation not permitted")
NOT_INSTALLED = Absent(why=Why.not_present, detail="there is no such program here")

Answers = dict[str, Any]

_SURVEYS: dict[tuple[str, str], Answer] = {}


@dataclass
class FakeNode:
    nvml: Description
    tree: Tree
    files: Answers = field(default_factory=dict)
    """Answers that go before the tree's: `usage /dev/shm`, `kmsg`, `read /etc/os-release`."""
    process: Answers = field(default_factory=dict)
    commands: Answers = field(default_factory=dict)
    amdsmi: Answers = field(default_factory=dict)
    interpreter: Answers = field(default_factory=dict)
    crew: FakeWorkers | None = None
    """The workers that measure: `crew.slow`, `crew.errors`, … plant faults."""
    silence_seconds: float = 10.0
    """How long an NVML call may take before it is given up."""

    def channels(self, ground: Ground) -> dict[str, Channel]:
        """Channels to this node, laid out on `ground`."""
        description = ground.folder / "nvml.json"
        ground.hold(self.tree)
        if self.crew is not None:
            said = self.interpreter.items()
            self.crew.contexts = {
                question[8:]: answer
                for question, answer in said
                if question.startswith("context ") and question != "context cpu"
            }
        fake.write(self.nvml, description)
        return {
            "files": _Answers(self.files, files.live(str(ground.root))),
            "process": _Answers(self.process),
            "commands": _Answers(self.commands),
            "nvml": self.driver(description),
            "amdsmi": _Answers(self.amdsmi),
            "interpreter": _Answers(self.interpreter),
            "workers": self.crew or _Answers({}),
        }

    def driver(self, description: Path) -> Channel:
        """The real NVML source over the real pynvml; only the library under it is ours.

        Nodes with the same description share one survey: children take time, and would say the same again.
        """
        live = nvml.live(silence_seconds=self.silence_seconds)
        told = description.read_text(encoding="utf-8")

        def answer(question: str) -> Answer:
            key = (question, told)
            if key not in _SURVEYS:
                with _environment(fake.environment(description)):
                    _SURVEYS[key] = live.ask(question)
            return _SURVEYS[key]

        return Live(answer)

    def probe(self, ground: Ground, level: Level = "quick") -> Node:
        """Every fact of this node; above level quick its measurements too."""
        return probe(self.channels(ground), level)

    def set_environment(self, **variables: str) -> None:
        self.process["environment"] = self.process["environment"] | variables

    def log(self, *lines: str) -> None:
        """Lines at the end of the kernel's log, an hour after boot."""
        content = self.tree.files["/dev/kmsg"]
        assert isinstance(content, str)
        for i, line in enumerate(lines):
            content += f"4,{content.count(chr(10))},{3_600_000_000 + 1000 * i},-;{line}\n"
        self.tree.files["/dev/kmsg"] = content

    def torch(self, **items: Any) -> None:
        """Change what the interpreter's torch says of itself: `torch(version=…, arch_list=[…])`."""
        self.interpreter["describe"]["items"].update(items)

    def context_fails(self, card: int, number: int, name: str, message: str, step: str = "context") -> None:
        """CUDA refuses a context on the card."""
        self.interpreter[f"context {fake.uuid(card)}"] = said(
            {"init": success(), step: {"code": number, "name": name, "message": message}}, step
        )

    def init_fails(self, number: int, name: str, message: str) -> None:
        """cuInit refuses, so torch sees no card and no context can be made."""
        result = {"code": number, "name": name, "message": message}
        self.torch(init=result, driver_devices=None, available=False, device_count=0, devices=[])
        for question in self.interpreter:
            if question.startswith("context GPU"):
                self.interpreter[question] = said({"init": result}, "init")


class _Answers:
    """Kept answers, then another channel's; a question nobody knows is a mistake of the test's."""

    def __init__(self, kept: Mapping[str, Any], otherwise: Channel | None = None) -> None:
        self._kept = kept
        self._otherwise = otherwise

    def ask(self, question: str) -> Answer:
        if question in self._kept:
            return self._kept[question]
        if self._otherwise is None:
            raise KeyError(f"the made-up node has no answer to {question!r}")
        return self._otherwise.ask(question)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def healthy(
    profile: str, *, kind: Kind = "bare", on_bus: int | None = None, links: Links | None = None
) -> FakeNode:
    """A node that is all that the shipped profile promises.

    A card rented alone has no links where it is a guest (the driver is told to leave them off), dead ones on
    bare metal, and live ones in a container, which sees the board as it is.
    """
    if profile == "cpu":
        node = _without_cards(kind)
        node.crew = FakeWorkers(load(profile), ())
        return node
    name, _, number = profile.rpartition("x")
    card, count = PRODUCTS[name], int(number)
    if links is None and card.form == "board" and count == 1:
        links = {"guest": "disabled", "bare": "inactive", "container": "up"}[kind]  # type: ignore[assignment]
    tree = plant(card, count, kind=kind, on_bus=on_bus)
    if links == "disabled":
        set_parameters(tree, NvLinkDisable=1)
    node = FakeNode(nvml=fake.describe(card, count, virtual=kind == "guest", links=links), tree=tree)
    node.crew = FakeWorkers(load(profile), tuple(fake.uuid(i) for i in range(count)))
    _around(node, kind, machine="aarch64" if card.arm else "x86_64")
    _with_torch(node, card, count, kind)
    if card.form == "board" and kind == "bare":
        node.commands["fabric_manager"] = output(f"Fabric Manager version is : {fake.DRIVER}\n")
        node.process["processes"].append([812, "nv-fabricmanage", "S"])
    return node


def _without_cards(kind: Kind) -> FakeNode:
    node = FakeNode(nvml={"nvmlInitWithFlags": fake.code(12)}, tree=plant_cpu(kind=kind))
    _around(node, kind)
    missing = {
        "type": "OSError",
        "message": "libcuda.so.1: cannot open shared object file",
        "code": None,
        "missing": True,
    }
    node.interpreter = {
        "chosen": _chosen(),
        "extensions": said({"extensions": []}, ""),
        "describe": said(
            _torch_items("2.11.0+cpu") | {"available": False, "device_count": 0, "devices": []}, "done"
        ),
        "context cpu": said(_kernel(), "done"),
    }
    node.interpreter["describe"]["errors"] = {"init": missing}
    return node


def _around(node: FakeNode, kind: Kind, machine: str = "x86_64") -> None:
    tebibyte = 1024 * GIB
    node.files |= {
        "usage /": [3 * tebibyte, 2 * tebibyte],
        "usage /data": [7 * tebibyte, 6 * tebibyte],
        "usage /dev/shm": [64 * GIB, 64 * GIB] if kind == "container" else [tebibyte, tebibyte],
    }
    online = node.tree.files["/sys/devices/system/cpu/online"]
    assert isinstance(online, str)
    node.process |= {
        "environment": {
            "PATH": "/opt/venv/bin:/usr/local/cuda/bin:/usr/bin:/bin",
            "VIRTUAL_ENV": "/opt/venv",
            "OMP_NUM_THREADS": "8",
        },
        "limits": {"memlock": -1, "nofile": 1048576, "nproc": -1},
        "uname": {"node": "node", "release": KERNEL, "version": "#63-Ubuntu SMP", "machine": machine},
        "user_id": 1000 if kind == "container" else 0,
        "cpus": int(online.strip().rpartition("-")[2]) + 1,
        "clock_synchronized": True,
        "processes": [[1, "systemd", "S"], [640, "nvidia-persiste", "S"], [9120, "bash", "S"]],
    }
    node.commands |= {
        "dmesg": output(
            "", returncode=1, stderr="dmesg: read kernel buffer failed: Operation not permitted\n"
        ),
        "journal": NOT_INSTALLED,
        "nvcc": NOT_INSTALLED,
        "fabric_manager": NOT_INSTALLED,
        "ldconfig": NOT_INSTALLED,
    }
    if kind == "container":
        node.files["kmsg"] = NO_PERMISSION
        node.process["processes"] = [[1, "bash", "S"], [42, "python", "R"]]


def probe(channels: dict[str, Channel], level: Level) -> Node:
    """Every fact that these channels tell; above level quick the measurements too."""
    sources = Sources.over(channels)
    if level == "quick":
        return Probing(sources, level).run()
    node = Probing(sources, level).run(start=partial(start, sources.workers, force=False))
    found = Measuring(sources.workers, node, level).run()
    return node.model_copy(update={"measurements": found})


def output(stdout: str, *, returncode: int = 0, stderr: str = "") -> Answers:
    """What a program printed."""
    return {"returncode": returncode, "stdout": stdout, "stderr": stderr, "seconds": 0.01}


def said(items: Answers, step: str, **more: Any) -> Answers:
    """What the worker in the renter's interpreter said, up to its last `step`."""
    return {
        "items": items,
        "errors": {},
        "step": step,
        "returncode": 0,
        "cut_off": "",
        "log": "",
        "seconds": 3.1,
    } | more


def success() -> Answers:
    return {"code": 0, "name": "CUDA_SUCCESS", "message": "no error"}


def _chosen() -> Answers:
    return {"path": PYTHON, "version": "3.12.3", "chosen": "the active environment", "others": []}


def _torch_items(version: str) -> Answers:
    return {
        "folders": [f"{SITE}/torch"],
        "nccl_wheels": [],
        "nccl_settings": [],
        "import_seconds": 2.9,
        "version": version,
        "path": f"{SITE}/torch",
        "debug": False,
        "cuda": None,
        "hip": None,
        "arch_list": [],
        "cudnn": None,
        "nccl": None,
        "libraries": [],
        "nccl_loaded": None,
        "warnings": [],
    }


def _kernel() -> Answers:
    return {"sum": {"got": ELEMENTS_SUM, "expected": ELEMENTS_SUM}, "kernel_seconds": 0.02}


def _with_torch(node: FakeNode, card: Product, count: int, kind: Kind) -> None:
    node.commands["nvcc"] = output("Cuda compilation tools, release 13.0, V13.0.88\n")
    folder = f"/usr/lib/{'aarch64' if card.arm else 'x86_64'}-linux-gnu"
    node.commands["ldconfig"] = output(
        "3 libs found in cache `/etc/ld.so.cache'\n"
        + "".join(f"\t{name}.1 (libc6) => {folder}/{name}.1\n" for name in ("libcuda.so", "libnvidia-ml.so"))
    )
    node.tree.files |= {
        f"{SITE}/torch/version.py": "from typing import Optional\n\n__version__ = '2.11.0+cu130'\n"
        "debug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n",
        f"{SITE}/nvidia_nccl_cu13-2.28.9.dist-info/METADATA": "Name: nvidia-nccl-cu13\nVersion: 2.28.9\n",
        NCCL: "",
        f"{folder}/libcuda.so.{fake.DRIVER}": "",
        f"{folder}/libnvidia-ml.so.{fake.DRIVER}": "",
    }
    for name in ("libcuda.so", "libnvidia-ml.so"):
        node.tree.links[f"{folder}/{name}.1"] = f"{folder}/{name}.{fake.DRIVER}"
    usable = (card.memory_mib - card.reserved_mib) * 1024**2
    places = fake.addresses(card, count, virtual=kind == "guest")
    items = _torch_items("2.11.0+cu130") | {
        "init": success(),
        "libcuda_version": 13000,
        "driver_devices": [{"uuid": fake.uuid(i), "pci_address": place} for i, place in enumerate(places)],
        "cuda": "13.0",
        "arch_list": list(ARCHES),
        "cudnn": 91900,
        "nccl": [2, 28, 9],
        "nccl_wheels": [{"path": NCCL, "version": "2.28.9"}],
        "nccl_loaded": {"path": NCCL, "version": 22809},
        "libraries": [f"{folder}/libcuda.so.{fake.DRIVER}", NCCL],
        "available": True,
        "device_count": count,
        "runtime_count": count,
        "devices": [
            {
                "index": i,
                "name": card.name,
                "uuid": fake.uuid(i),
                "pci_address": place,
                "capability": f"{card.capability[0]}.{card.capability[1]}",
                "total_bytes": usable,
                "multiprocessors": card.cores // (64 if card.capability == (8, 0) else 128),
            }
            for i, place in enumerate(places)
        ],
    }
    node.interpreter = {
        "chosen": _chosen(),
        "extensions": said({"extensions": _extensions()}, ""),
        "describe": said(items, "done"),
        "context cpu": said(_kernel(), "done"),
    }
    for i, place in enumerate(places):
        node.interpreter[f"context {fake.uuid(i)}"] = said(
            {
                "init": success(),
                "device": {"uuid": fake.uuid(i), "pci_address": place},
                "context": success(),
                "context_seconds": 0.31,
                "free_bytes": usable - 500 * 1024**2,
                **_kernel(),
            },
            "done",
        )


def _extensions() -> list[dict[str, Any]]:
    """What the worker says of packages with GPU code."""
    return [
        {"name": "flash-attn", "version": "2.8.3", "built_for": ["cuda"], "files": 1},
        {"name": "torch", "version": "2.11.0", "built_for": ["cuda"], "files": 9},
        {"name": "triton", "version": "3.6.0", "built_for": ["cuda", "hip"], "files": 4},
    ]


def split(profile: str) -> tuple[str, int]:
    """Card and count of a shipped profile's name: `h200x4` is (`h200`, 4); `cpu` is (`cpu`, 0)."""
    found = re.fullmatch(r"(.+)x(\d+)", profile)
    return (found[1], int(found[2])) if found else (profile, 0)
