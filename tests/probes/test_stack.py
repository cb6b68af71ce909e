"""From what driver, files, programs and the worker say to the facts of the stack."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Card, Maybe, Stack, Why, known
from nodecheck.facts.base import AMD_ALONE
from nodecheck.facts.stack import CudaError, Library, Toolkit
from nodecheck.probes import cuda_errors, stack
from nodecheck.probes import interpreter as said_by
from nodecheck.sources import files as file_source
from nodecheck.sources import interpreter as interpreter_source
from nodecheck.sources.channel import Channel, Json, Recorded, encode
from nodecheck.sources.commands import Commands
from nodecheck.sources.files import Files
from nodecheck.sources.interpreter import Interpreter
from nodecheck.sources.nvml import Survey
from nodecheck.sources.process import Process
from tests.fakes import cuda as fake

NO_NVML = Absent(why=Why.not_present, detail="no NVML here")
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)  \n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
NVML = {
    "nvmlSystemGetDriverVersion()": {"value": "580.159.04"},
    "nvmlSystemGetNVMLVersion()": {"value": "13.580.159.04"},
    "nvmlSystemGetCudaDriverVersion_v2()": {"value": 13000},
    "nvmlSystemGetDriverBranch()": {"value": {"version": 1, "branch": "r580_00"}},
    "nvmlSystemGetConfComputeState()": {"value": {"environment": 0, "ccFeature": 0, "devToolsMode": 0}},
}


def answer(items: dict[str, Json], step: str = "done", **more: Json) -> dict[str, Json]:
    said = {
        "items": items,
        "errors": {},
        "step": step,
        "returncode": 0,
        "cut_off": "",
        "log": "",
        "seconds": 3.0,
    }
    return said | more


TORCH: dict[str, Json] = {
    "folders": ["/opt/torch"],
    "nccl_wheels": [],
    "nccl_settings": [],
    "init": {"code": 0, "name": "CUDA_SUCCESS", "message": "no error"},
    "libcuda_version": 13000,
    "import_seconds": 3,
    "version": "2.11.0+cu130",
    "path": "/opt/torch",
    "debug": False,
    "cuda": "13.0",
    "hip": None,
    "arch_list": ["sm_90"],
    "cudnn": 91900,
    "nccl": [2, 28, 9, "x"],
    "libraries": [],
    "nccl_loaded": None,
    "available": True,
    "device_count": 0,
    "devices": [],
    "warnings": [],
}
WORKS = answer(
    {
        "init": {"code": 0, "name": "CUDA_SUCCESS", "message": "no error"},
        "context": {"code": 0, "name": "CUDA_SUCCESS", "message": "no error"},
        "context_seconds": 0.3,
        "kernel_seconds": 0.05,
        "sum": {"got": 549755289600, "expected": 549755289600},
        "free_bytes": 149437939712,
    }
)


def works(card: int, **more: Json) -> dict[str, Json]:
    """`WORKS`, by this card."""
    device = {"uuid": fake.uuid(card), "pci_address": "0000:18:00.0"}
    return answer(WORKS["items"] | {"device": device} | more)


CHOSEN = {"path": "/opt/python", "version": "3.12.3", "chosen": "--python", "others": ["/usr/bin/python3"]}


class Asked:
    """A channel that keeps what it was asked."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._channel = Recorded({question: encode(said) for question, said in answers.items()})
        self.questions: list[str] = []

    def ask(self, question: str) -> Any:
        self.questions.append(question)
        return self._channel.ask(question)


def probe(
    tmp_path: Path,
    *,
    interpreter: Channel | dict[str, Any] | None = None,
    files: dict[str, str] | None = None,
    links: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    commands: dict[str, str] | None = None,
    survey: Maybe[Survey] = NO_NVML,
    cards: Maybe[tuple[Card, ...]] = NO_NVML,
    start: stack.Start | None = None,
) -> Stack:
    for path, text in (files or {}).items():
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for path, target in (links or {}).items():
        (tmp_path / path.lstrip("/")).symlink_to(target)
    if interpreter is None or isinstance(interpreter, dict):
        interpreter = Asked(
            {"chosen": CHOSEN, "describe": answer(TORCH), "context cpu": WORKS, **(interpreter or {})}
        )
    printed = {
        name: {"returncode": 0, "stdout": text, "stderr": "", "seconds": 0.1}
        for name, text in (commands or {}).items()
    }
    return stack.probe(
        survey,
        Files(file_source.live(str(tmp_path))),
        Process(Asked({"environment": environment or {}})),
        Commands(Asked(printed)),
        Interpreter(interpreter),
        cards,
        start,
    )


def cards(count: int) -> tuple[Card, ...]:
    return tuple(Card(vendor="nvidia", source="nvml", index=i, uuid=fake.uuid(i)) for i in range(count))


def absent(value: object) -> Absent:
    assert isinstance(value, Absent)
    return value


# Driver


@pytest.mark.parametrize(
    ("text", "version", "module"), [(OPEN, "580.159.04", "open"), (CLOSED, "535.183.01", "proprietary")]
)
def test_the_kernel_module(tmp_path: Path, text: str, version: str, module: str) -> None:
    driver = probe(tmp_path, files={"/proc/driver/nvidia/version": text}).driver
    assert (driver.version, driver.module) == (version, module)


def test_the_driver_by_nvml(tmp_path: Path) -> None:
    driver = probe(tmp_path, survey=Survey(dict(NVML))).driver
    assert (driver.version, driver.library_version) == ("580.159.04", "580.159.04")
    assert (driver.cuda_version, driver.libcuda_version, driver.branch) == ("13.0", "13.0", "r580_00")
    assert driver.confidential_computing is False
    assert absent(driver.module).why is Why.not_present


def test_without_a_driver_every_field_says_why(tmp_path: Path) -> None:
    missing = {"type": "OSError", "message": "libcuda.so.1: cannot open", "code": None, "missing": True}
    items = {name: value for name, value in TORCH.items() if name not in ("init", "libcuda_version")}
    facts = probe(tmp_path, interpreter={"describe": answer(items, errors={"init": missing})})
    driver = [absent(value) for _, value in facts.driver if value != AMD_ALONE]
    assert driver and all(value.why is Why.not_present for value in driver)
    assert "libcuda.so.1" in absent(facts.driver.libcuda_version).detail
    assert absent(facts.cuda_init).why is Why.not_present


@pytest.mark.parametrize("text", ["", "NVRM version: nonsense", "GCC version: 13.2.0", "\0" * 50])
def test_a_version_file_of_another_shape_is_an_answer_that_failed(tmp_path: Path, text: str) -> None:
    driver = probe(tmp_path, files={"/proc/driver/nvidia/version": text}).driver
    assert absent(driver.version).why is Why.failed


def test_nonsense_from_nvml_is_an_answer_that_failed(tmp_path: Path) -> None:
    survey = Survey({name: {"value": [1]} for name in NVML})
    driver = probe(tmp_path, survey=survey).driver
    for field in ("library_version", "cuda_version", "branch", "confidential_computing"):
        assert absent(getattr(driver, field)).why is Why.failed


# torch


def test_torch(tmp_path: Path) -> None:
    device = {
        "index": 0, "name": "NVIDIA H200", "uuid": fake.uuid(0), "pci_address": None, "capability": "9.0",
        "total_bytes": 150109880320, "multiprocessors": "many",
    }  # fmt: skip
    items = TORCH | {
        "devices": [device, "nonsense"],
        "device_count": 1,
        "nccl_loaded": {"path": "/wheel/libnccl.so.2", "version": 22809},
    }
    facts = probe(tmp_path, interpreter={"describe": answer(items)})
    torch = facts.torch
    assert not isinstance(torch, Absent)
    assert (torch.version, torch.cuda, torch.cudnn, torch.nccl) == (
        "2.11.0+cu130",
        "13.0",
        "9.19.0",
        "2.28.9",
    )
    assert torch.nccl_loaded == Library(path="/wheel/libnccl.so.2", version="2.28.9", origin="loaded")
    assert torch.import_seconds == 3.0
    assert absent(torch.hip).why is Why.not_present
    assert not isinstance(torch.devices, Absent)
    (only,) = torch.devices
    assert (only.uuid, only.capability) == (fake.uuid(0), "9.0")
    assert absent(only.pci_address).why is Why.not_supported
    assert absent(only.multiprocessors).why is Why.failed
    assert facts.other_torches == ("/usr/bin/python3",)
    assert facts.cuda_init == CudaError(code=0, name="CUDA_SUCCESS", message="no error")


@pytest.mark.parametrize(
    ("number", "version"), [(8902, "8.9.2"), (7605, "7.6.5"), (90100, "9.1.0"), (91900, "9.19.0")]
)
def test_cudnns_number(tmp_path: Path, number: int, version: str) -> None:
    torch = probe(tmp_path, interpreter={"describe": answer(TORCH | {"cudnn": number})}).torch
    assert not isinstance(torch, Absent)
    assert torch.cudnn == version


@pytest.mark.parametrize(("number", "version"), [(2708, "2.7.8"), (21003, "2.10.3"), (22809, "2.28.9")])
def test_nccls_number(tmp_path: Path, number: int, version: str) -> None:
    items = TORCH | {"nccl_loaded": {"path": "/l", "version": number}}
    torch = probe(tmp_path, interpreter={"describe": answer(items)}).torch
    assert not isinstance(torch, Absent)
    assert not isinstance(torch.nccl_loaded, Absent)
    assert torch.nccl_loaded.version == version


def test_a_cpu_build_has_no_nccl_which_is_no_failure(tmp_path: Path) -> None:
    error = {
        "type": "AttributeError",
        "message": "module 'torch._C' has no attribute '_nccl_version'",
        "code": None,
    }
    items = TORCH | {"cuda": None, "cudnn": None}
    del items["nccl"]
    torch = probe(tmp_path, interpreter={"describe": answer(items, errors={"nccl": error})}).torch
    assert not isinstance(torch, Absent)
    assert absent(torch.nccl).why is absent(torch.cuda).why is Why.not_present


DUMP = """Timeout (0:00:01)!
Thread 0x1 (most recent call first):
  File "/opt/torch/__init__.py", line 9 in <module>
  File "<frozen importlib._bootstrap>", line 241 in _call
  File "/nodecheck/stack.py", line 260 in import_torch
"""
NO_TORCH = {
    "type": "ModuleNotFoundError",
    "message": "No module named 'torch'",
    "code": None,
    "missing": True,
}
BROKEN = {"type": "ImportError", "message": "libcudart.so.13: cannot open", "code": None, "missing": False}


@pytest.mark.parametrize(
    ("said", "why", "words"),
    [
        (answer({}, "import", errors={"import": NO_TORCH}), Why.not_present, "No module named 'torch'"),
        (answer({}, "import", errors={"import": BROKEN}), Why.failed, "libcudart.so.13"),
        (
            answer({}, "import", returncode=None, cut_off="not ended after 120 s", log=DUMP),
            Why.timed_out,
            "not ended after 120 s, at the step 'import'; stack: <module> (/opt/torch/__init__.py:9)",
        ),
        (answer({}, "import", returncode=-4, log="x\n"), Why.failed, "SIGILL"),
        (answer({}, "", returncode=-250), Why.failed, "signal 250"),
        (answer({}, "", returncode=1, log="a\nSyntaxError: no\n"), Why.failed, "SyntaxError: no"),
        (answer({}, "done"), Why.not_asked, "not reached"),
        (Absent(why=Why.not_present, detail="no such program"), Why.not_present, "no such program"),
    ],
)
def test_why_there_is_no_torch(tmp_path: Path, said: Any, why: Why, words: str) -> None:
    facts = probe(tmp_path, interpreter={"describe": said})
    assert absent(facts.torch).why is why
    assert words in absent(facts.torch).detail


def test_what_was_said_before_a_hang_stays(tmp_path: Path) -> None:
    items = {name: TORCH[name] for name in ("import_seconds", "version", "cuda", "hip", "arch_list", "init")}
    said = answer(items, "devices", returncode=None, cut_off="not ended after 120 s")
    torch = probe(tmp_path, interpreter={"describe": said}).torch
    assert not isinstance(torch, Absent)
    assert (torch.version, torch.arch_list) == ("2.11.0+cu130", ("sm_90",))
    assert absent(torch.devices).why is Why.timed_out
    assert "'devices'" in absent(torch.devices).detail


# Contexts


def test_the_cards_are_tried_and_the_cpu_is_not(tmp_path: Path) -> None:
    channel = Asked(
        {"chosen": CHOSEN, "describe": answer(TORCH)}
        | {f"context {fake.uuid(i)}": works(i) for i in range(2)}
    )
    facts = probe(tmp_path, interpreter=channel, cards=cards(2))
    assert not isinstance(facts.contexts, Absent)
    assert [(test.card, test.ok, test.step) for test in facts.contexts] == [
        (fake.uuid(0), True, "done"),
        (fake.uuid(1), True, "done"),
    ]
    assert facts.contexts[0].free_bytes == 149437939712
    assert "context cpu" not in channel.questions


def test_without_cards_the_cpu_is_tried(tmp_path: Path) -> None:
    for none in ((), NO_NVML):
        facts = probe(tmp_path, cards=none)
        assert not isinstance(facts.contexts, Absent)
        (test,) = facts.contexts
        assert (test.card, test.ok) == ("cpu", True)
        assert absent(test.context_seconds).why is Why.not_present


def test_all_are_tried_side_by_side(tmp_path: Path) -> None:
    variables = fake.environment(FAKE_TORCH="slow", FAKE_CUDA_CARDS="8")
    channel = interpreter_source.live("python3", deadline_seconds=60, environment=variables)
    began = time.monotonic()
    facts = probe(tmp_path, interpreter=channel, cards=cards(8))
    # Nine imports of a second each.
    assert time.monotonic() - began < 6
    assert not isinstance(facts.contexts, Absent)
    assert [test.ok for test in facts.contexts] == [True] * 8
    assert not isinstance(facts.torch, Absent)
    assert facts.torch.device_count == 8


def tried(answer: dict[str, Json]) -> dict[str, Json]:
    """What a worker that started says, having found what a process of its own says in `answer`."""
    return {"binding": "0-31", "context": {name: answer[name] for name in ("items", "errors", "step")}}


def test_what_workers_say_of_their_cards_is_not_asked_again(tmp_path: Path) -> None:
    began: list[tuple[str, tuple[str, ...]]] = []

    def start(python: str, some: tuple[Card, ...]) -> dict[str, Json]:
        began.append((python, tuple(card.key for card in some)))
        return {card.key: tried(works(i)) for i, card in enumerate(some)}

    channel = Asked({"chosen": CHOSEN, "describe": answer(TORCH)})
    facts = probe(tmp_path, interpreter=channel, cards=cards(2), start=start)
    assert began == [("/opt/python", (fake.uuid(0), fake.uuid(1)))]
    assert not any(question.startswith("context") for question in channel.questions)
    alone = probe(
        tmp_path, interpreter={f"context {fake.uuid(i)}": works(i) for i in range(2)}, cards=cards(2)
    )
    assert facts == alone
    assert not isinstance(facts.contexts, Absent)
    assert [test.ok for test in facts.contexts] == [True, True]


@pytest.mark.parametrize(
    "worker",
    [
        None,
        {"binding": "as found", "kernel_seconds": 0.02},  # as workers answered before they tried their cards
        tried(works(1)),
        tried(works(0) | {"step": "kernel"}),
        tried(answer({name: WORKS["items"][name] for name in ("init", "context")}, "kernel")),
        {"context": "nonsense"},
        "nonsense",
    ],
)
def test_a_worker_that_is_not_well_has_no_say(tmp_path: Path, worker: Json) -> None:
    """It sees every card: whose fault it is shows where each is tried alone."""
    refused = answer({"init": {"code": 802, "name": "CUDA_ERROR_SYSTEM_NOT_READY", "message": "m"}}, "init")
    for alone, ok in ((works(0), True), (refused, False)):
        facts = probe(
            tmp_path,
            interpreter={f"context {fake.uuid(0)}": alone},
            cards=cards(1),
            start=lambda _python, _cards: {} if worker is None else {fake.uuid(0): worker},
        )
        assert not isinstance(facts.contexts, Absent)
        assert facts.contexts[0].ok is ok


def test_a_wrong_sum_counts_whoever_finds_it(tmp_path: Path) -> None:
    wrong = works(0, sum={"got": 1, "expected": 549755289600})
    facts = probe(
        tmp_path,
        interpreter={f"context {fake.uuid(0)}": works(0)},
        cards=cards(1),
        start=lambda _python, _cards: {fake.uuid(0): tried(wrong)},
    )
    assert not isinstance(facts.contexts, Absent)
    assert facts.contexts[0].ok is False


def test_no_worker_is_started_on_a_card_that_is_hidden(tmp_path: Path) -> None:
    seen = TORCH | {"devices": [{"index": 0, "uuid": fake.uuid(1)}], "device_count": 1}
    began: list[str] = []

    def start(_python: str, some: tuple[Card, ...]) -> dict[str, Json]:
        began.extend(card.key for card in some)
        return {fake.uuid(1): tried(works(1))}

    facts = probe(
        tmp_path,
        interpreter={"describe": answer(seen)},
        environment={"CUDA_VISIBLE_DEVICES": "1"},
        cards=cards(2),
        start=start,
    )
    assert began == [fake.uuid(1)]
    assert not isinstance(facts.contexts, Absent)
    assert "hides it" in absent(facts.contexts[0].ok).detail
    assert facts.contexts[1].ok is True


def test_one_sick_card_among_healthy_ones(tmp_path: Path) -> None:
    refused = answer(
        {"init": WORKS["items"]["init"], "context": {"code": 46, "name": "", "message": ""}}, "context"
    )
    facts = probe(
        tmp_path,
        interpreter={f"context {fake.uuid(0)}": works(0), f"context {fake.uuid(1)}": refused},
        cards=cards(2),
    )
    assert not isinstance(facts.contexts, Absent)
    well, sick = facts.contexts
    assert (well.ok, sick.ok) == (True, False)
    assert sick.error == CudaError(
        code=46,
        name="CUDA_ERROR_DEVICE_UNAVAILABLE",
        message="CUDA-capable device(s) is/are busy or unavailable",
    )
    assert absent(sick.free_bytes).why is Why.not_asked


@pytest.mark.parametrize(
    ("said", "why", "words"),
    [
        (answer({}, "kernel", returncode=None, cut_off="not ended after 120 s"), Why.timed_out, "'kernel'"),
        (answer({}, "context", returncode=-11), Why.failed, "SIGSEGV"),
        (answer({}, "import", errors={"import": NO_TORCH}), Why.not_present, "No module named"),
        (
            answer(
                {}, "kernel", errors={"sum": {"type": "AssertionError", "message": "not compiled with CUDA"}}
            ),
            Why.failed,
            "not compiled with CUDA",
        ),
        (
            answer(WORKS["items"] | {"device": {"uuid": fake.uuid(7), "pci_address": "0000:99:00.0"}}),
            Why.failed,
            "another card",
        ),
        (Absent(why=Why.failed, detail="could not be started"), Why.failed, "could not be started"),
    ],
)
def test_a_test_without_a_result_says_why(tmp_path: Path, said: Any, why: Why, words: str) -> None:
    facts = probe(tmp_path, interpreter={f"context {fake.uuid(0)}": said}, cards=cards(1))
    assert not isinstance(facts.contexts, Absent)
    (test,) = facts.contexts
    assert absent(test.ok).why is why
    assert words in absent(test.ok).detail


@pytest.mark.parametrize("said", [{"got": 1, "expected": 2}, {"got": 1, "expected": 1}])
def test_a_wrong_sum_is_no_success(tmp_path: Path, said: Json) -> None:
    wrong = works(0, sum=said)
    facts = probe(tmp_path, interpreter={f"context {fake.uuid(0)}": wrong}, cards=cards(1))
    assert not isinstance(facts.contexts, Absent)
    assert facts.contexts[0].ok is False


SUM = {"got": 549755289600, "expected": 549755289600}


@pytest.mark.parametrize(
    ("said", "why", "words"),
    [
        (works(0) | {"step": "kernel", "returncode": -11}, Why.failed, "SIGSEGV"),
        (works(0) | {"returncode": -11}, Why.failed, "SIGSEGV"),
        (works(0) | {"returncode": 1}, Why.failed, "status 1"),
        (works(0) | {"returncode": False}, Why.failed, "status False"),
        (
            works(0) | {"step": "kernel", "returncode": None, "cut_off": "not ended"},
            Why.timed_out,
            "'kernel'",
        ),
        (works(0) | {"cut_off": "not ended"}, Why.timed_out, "not ended"),
        (works(0) | {"step": "kernel"}, Why.failed, "'kernel'"),
        (works(0, sum={"got": 549755289600.0}), Why.failed, "another shape"),
        (works(0, sum={"got": None, "expected": None}), Why.failed, "another shape"),
        (works(0, sum={}), Why.failed, "another shape"),
        (works(0, sum=[1]), Why.failed, "another shape"),
        (works(0, init={"code": False}), Why.failed, "another shape"),
        (works(0, context={"code": 0.0}), Why.failed, "another shape"),
        (works(0, context={}), Why.failed, "another shape"),
        (works(0, device={}), Why.failed, "another card"),
        (answer(WORKS["items"]), Why.not_asked, "not reached"),
        (answer({"sum": SUM}), Why.not_asked, "not reached"),
        (works(0) | {"errors": {"sum": {"type": "RuntimeError", "message": "odd"}}}, Why.failed, "odd"),
        (works(0) | {"errors": {"context": {"type": "OSError", "message": "odd"}}}, Why.failed, "odd"),
    ],
)
def test_a_right_sum_alone_is_no_success(tmp_path: Path, said: Any, why: Why, words: str) -> None:
    facts = probe(tmp_path, interpreter={f"context {fake.uuid(0)}": said}, cards=cards(1))
    assert not isinstance(facts.contexts, Absent)
    (test,) = facts.contexts
    assert absent(test.ok).why is why
    assert words in absent(test.ok).detail


def test_without_libcuda_torch_has_the_word(tmp_path: Path) -> None:
    missing = {"type": "OSError", "message": "libcuda.so.1: cannot open", "code": None, "missing": True}
    said = answer({"sum": SUM, "kernel_seconds": 0.1, "free_bytes": 1}, errors={"init": missing})
    facts = probe(tmp_path, interpreter={f"context {fake.uuid(0)}": said}, cards=cards(1))
    assert not isinstance(facts.contexts, Absent)
    assert facts.contexts[0].ok is True


def test_a_bool_where_torch_gives_a_number_costs_that_number_alone(tmp_path: Path) -> None:
    device = {"name": True, "uuid": fake.uuid(0), "total_bytes": True, "multiprocessors": 132}
    facts = probe(tmp_path, interpreter={"describe": answer(TORCH | {"devices": [device]})})
    assert not isinstance(facts.torch, Absent)
    assert not isinstance(facts.torch.devices, Absent)
    (seen,) = facts.torch.devices
    assert (seen.uuid, seen.multiprocessors) == (fake.uuid(0), 132)
    assert absent(seen.total_bytes).why is absent(seen.name).why is Why.failed


def test_a_card_without_uuid_is_not_tried(tmp_path: Path) -> None:
    card = Card(vendor="nvidia", source="nvml", index=0, pci_address="0000:18:00.0")
    facts = probe(tmp_path, cards=(card,))
    assert not isinstance(facts.contexts, Absent)
    assert facts.contexts[0].card == "0000:18:00.0"
    assert absent(facts.contexts[0].ok).why is Why.not_asked


@pytest.mark.parametrize(
    ("variable", "seen", "tried"),
    [
        ("1", [1], [1]),
        ("1,0", [1, 0], [0, 1]),
        ("", [], []),
        ("-1", [], []),
        ("0,1", [], [0, 1]),
        ("0,-1,1", [], []),
        ("0", [], []),
        (fake.uuid(1), [], [1]),
        ("GPU-00000001", [], [0]),
        ("NoDevFiles", [], []),
        ("¹", [], []),
    ],
)
def test_what_the_renter_hides_is_left_alone(
    tmp_path: Path, variable: str, seen: list[int], tried: list[int]
) -> None:
    devices = [{"uuid": fake.uuid(i)} for i in seen]
    channel = Asked(
        {"chosen": CHOSEN, "describe": answer(TORCH | {"devices": devices})}
        | {f"context {fake.uuid(i)}": works(i) for i in range(2)}
    )
    facts = probe(
        tmp_path, interpreter=channel, cards=cards(2), environment={"CUDA_VISIBLE_DEVICES": variable}
    )
    asked = [question for question in channel.questions if question.startswith("context")]
    assert sorted(asked) == [f"context {fake.uuid(i)}" for i in tried]
    assert not isinstance(facts.contexts, Absent)
    for index, test in enumerate(facts.contexts):
        if index not in tried:
            assert absent(test.ok).why is Why.not_asked
            assert "CUDA_VISIBLE_DEVICES" in absent(test.ok).detail


# CUDA errors


@pytest.mark.parametrize(
    ("message", "code", "number"),
    [
        ("CUDA error: no kernel image is available for execution on the device\nmore", None, 209),
        ("CUDA error: unknown error\nmore", None, 999),
        ("CUDA driver error: out of memory", None, 2),
        ("whatever it says", 719, 719),
        ("Unexpected error from cudaGetDeviceCount(). … Error 803: system has unsupported …", None, 803),
        ("CUDA out of memory. Tried to allocate 2.00 MiB.", None, 2),
        ("The NVIDIA driver on your system is too old (found version 11040).", None, 35),
        ("No CUDA GPUs are available", None, 100),
        ("CUDA error: uncorrectable ECC error encountered", None, 214),
        ("CUDA error: a text of the future", None, None),
        ("Torch not compiled with CUDA enabled", None, None),
        ("", None, None),
    ],
)
def test_the_number_behind_torchs_words(message: str, code: int | None, number: int | None) -> None:
    error = cuda_errors.of_exception(message, code)
    assert (error.code if error else None) == number


def test_an_unknown_number_keeps_what_the_driver_says() -> None:
    assert cuda_errors.of_code(77, "CUDA_ERROR_NEW", "so new") == CudaError(
        code=77, name="CUDA_ERROR_NEW", message="so new"
    )
    assert cuda_errors.of_code(77).name == "CUDA error 77"


@given(st.text())
def test_any_message_gives_an_error_or_none(message: str) -> None:
    error = cuda_errors.of_exception(message)
    assert error is None or error.code >= 0


# Libraries, toolkits, environment


def test_nccl_libraries_in_the_order_they_are_found(tmp_path: Path) -> None:
    items = TORCH | {
        "libraries": ["/w/nvidia/nccl/lib/libnccl.so.2", "/usr/lib/libcuda.so.580.159.04"],
        "nccl_wheels": [{"path": "/w/nvidia/nccl/lib/libnccl.so.2", "version": "2.28.9"}, "nonsense"],
    }
    facts = probe(
        tmp_path,
        interpreter={"describe": answer(items)},
        files={
            "/opt/old/libnccl.so.2.18.1": "",
            "/opt/old/libother.so": "",
            "/usr/lib/libnccl.so.2.28.3": "",
            "/usr/lib/libcuda.so.580.159.04": "",
        },
        links={"/opt/old/libnccl.so.2": "libnccl.so.2.18.1", "/usr/lib/libnccl.so.2": "libnccl.so.2.28.3"},
        environment={"LD_LIBRARY_PATH": ":relative:/no/such:/opt/old/"},
        commands={
            "ldconfig": "1 libs found\n\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/libnccl.so.2\n"
            "\tlibc.so.6 (libc6) => /lib/libc.so.6\n"
        },
    )
    assert facts.nccl_libraries == (
        Library(path="/w/nvidia/nccl/lib/libnccl.so.2", version="2.28.9", origin="loaded"),
        Library(path="/opt/old/libnccl.so.2.18.1", version="2.18.1", origin="LD_LIBRARY_PATH"),
        Library(path="/usr/lib/libnccl.so.2.28.3", version="2.28.3", origin="ld.so.cache"),
    )
    assert facts.driver_libraries == (
        Library(path="/usr/lib/libcuda.so.580.159.04", version="580.159.04", origin="loaded"),
    )


def test_nothing_found_and_nothing_seen_are_two_things(tmp_path: Path) -> None:
    assert absent(probe(tmp_path).nccl_libraries).why is Why.not_asked
    assert probe(tmp_path, commands={"ldconfig": "0 libs found\n"}).nccl_libraries == ()


def test_preloads(tmp_path: Path) -> None:
    facts = probe(
        tmp_path,
        interpreter={
            "describe": answer(TORCH | {"libraries": ["/usr/local/vgpu/libvgpu.so", "/usr/lib/libcuda.so.1"]})
        },
        environment={"LD_PRELOAD": "libjemalloc.so.2:/opt/x.so  /opt/y.so"},
        files={"/etc/ld.so.preload": "# none\n/usr/local/vgpu/libvgpu.so\n"},
    )
    assert not isinstance(facts.preloads, Absent)
    assert [(library.path, library.origin) for library in facts.preloads] == [
        ("libjemalloc.so.2", "LD_PRELOAD"),
        ("/opt/x.so", "LD_PRELOAD"),
        ("/opt/y.so", "LD_PRELOAD"),
        ("/usr/local/vgpu/libvgpu.so", "/etc/ld.so.preload"),
    ]


def test_nccls_files(tmp_path: Path) -> None:
    facts = probe(
        tmp_path,
        interpreter={"describe": answer(TORCH | {"nccl_settings": [["NCCL_ALGO", "Ring"], ["broken"]]})},
        files={"/etc/nccl.conf": "NCCL_ALGO=Tree\n NCCL_DEBUG = WARN \nnonsense\nPASSWORD=x\n"},
    )
    assert facts.nccl_settings == (("NCCL_ALGO", "Ring"), ("NCCL_DEBUG", "WARN"))


def test_the_users_nccl_file_unread_is_not_an_empty_one(tmp_path: Path) -> None:
    facts = probe(tmp_path, interpreter={"describe": Absent(why=Why.timed_out, detail="hangs")})
    assert absent(facts.nccl_settings).why is Why.timed_out


def test_toolkits(tmp_path: Path) -> None:
    facts = probe(
        tmp_path,
        files={
            "/usr/local/cuda-13.0/version.json": json.dumps(
                {"cuda": {"name": "CUDA SDK", "version": "13.0.2"}}
            ),
            "/usr/local/cuda-10.1/version.txt": "CUDA Version 10.1.243\n",
            "/usr/local/cuda-12.4/bin/nvcc": "",
            "/usr/local/cuda-12.8/lib64/libcudart.so": "",
            "/opt/cuda/version.json": "{not json",
        },
        links={"/usr/local/cuda": "cuda-13.0"},
        environment={"CUDA_HOME": "/opt/cuda"},
        commands={"nvcc": "Cuda compilation tools, release 13.0, V13.0.88\n"},
    )
    assert not isinstance(facts.toolkits, Absent)
    versions = {toolkit.path: toolkit.version for toolkit in facts.toolkits}
    assert absent(versions.pop("/opt/cuda")).why is Why.failed
    assert versions == {
        "/usr/local/cuda-13.0": "13.0.2",
        "/usr/local/cuda-10.1": "10.1.243",
        "/usr/local/cuda-12.4": "12.4",
        "nvcc on PATH": "13.0.88",
    }
    assert Toolkit(path="/usr/local/cuda-13.0", version="13.0.2") in facts.toolkits


def test_environment_and_image(tmp_path: Path) -> None:
    facts = probe(
        tmp_path,
        environment={"OMP_NUM_THREADS": "8", "CUDA_VERSION": "13.0.2"},
        files={"/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n'},
    )
    assert facts.environment == (("CUDA_VERSION", "13.0.2"), ("OMP_NUM_THREADS", "8"))
    assert facts.image_hints == ("CUDA_VERSION=13.0.2", "/etc/os-release: Ubuntu 24.04.3 LTS")


# Recordings may hold anything


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TORCH, "code", "uuid"]), inner)
    ),
    max_leaves=10,
)


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("items", "errors", "step", "returncode", "cut_off", "log"), json_values),
    )
)
def test_any_answer_gives_facts_that_can_be_written(said: dict[str, Json]) -> None:
    interpreter = Interpreter(
        Recorded({q: {"value": said} for q in ("chosen", "describe", f"context {fake.uuid(0)}")})
    )
    nothing: dict[str, Json] = {}
    facts = stack.probe(
        Survey({}),
        Files(Recorded(nothing)),
        Process(Recorded(nothing)),
        Commands(Recorded(nothing)),
        interpreter,
        cards(1),
        lambda _python, _cards: {fake.uuid(0): {"context": said}},
    )
    json.dumps(facts.model_dump(mode="json"), allow_nan=False)


@given(st.text(max_size=200))
def test_any_text_of_a_file_gives_a_version_or_a_reason(text: str) -> None:
    version, module = stack._kernel_module(text)
    assert isinstance(version, (str, Absent))
    assert isinstance(module, (str, Absent))


# AMD's


AMD_UUID = "GPU-00000000000abc01"
SUCCESS: Json = {"code": 0, "name": "hipSuccess", "message": "no error"}
HIP_WORDS = "HIP error: invalid device function\nHIP kernel errors might be asynchronously reported"
HSA_WORDS = (
    "aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate. code: 0x1008"
)


def amd_card() -> Card:
    return Card(vendor="amd", source="sysfs", index=0, uuid=AMD_UUID, pci_address="0000:0c:00.0")


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, None),
        ({"ROCR_VISIBLE_DEVICES": "0"}, None),
        ({"ROCR_VISIBLE_DEVICES": AMD_UUID.upper()}, None),
        ({"ROCR_VISIBLE_DEVICES": ""}, "ROCR_VISIBLE_DEVICES= hides it"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000007"}, "hides it"),
        ({"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "-1"}, "HIP_VISIBLE_DEVICES=-1 hides it"),
        ({"GPU_DEVICE_ORDINAL": "3"}, "GPU_DEVICE_ORDINAL=3 may hide it"),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, None),
    ],
    ids=str,
)
def test_a_card_of_amd_s_that_the_renter_hides_is_left_alone(
    tmp_path: Path, variables: dict[str, str], why: str | None
) -> None:
    told = {"init": SUCCESS, "device": {"uuid": AMD_UUID}, "context": SUCCESS, "sum": SUM}
    found = probe(
        tmp_path,
        environment=variables,
        cards=(amd_card(),),
        interpreter={f"context {AMD_UUID}": answer(told, "done"), "describe": answer({"devices": []})},
    )
    assert known(found.contexts)
    (test,) = found.contexts
    if why is None:
        assert test.ok is True
    else:
        assert isinstance(test.ok, Absent)
        assert why in test.ok.detail


def test_what_a_rocm_build_says(tmp_path: Path) -> None:
    items = TORCH | {
        "cuda": None,
        "hip": "7.2.26015-fc0010cf6a",
        "cudnn": 3005001,
        "hip_runtime": 70226015,
        "device_count": 0,
        "runtime_count": 8,
        "nccl": [2, 27, 7],
        "nccl_loaded": {"path": "/venv/torch/lib/librccl.so.1", "version": 22707},
    }
    found = probe(
        tmp_path,
        interpreter={"describe": answer(items)},
        files={"/opt/rocm-7.2.0/lib/librccl.so.1.0.70200": "", "/opt/rocm-7.2.0/lib/librccl-anp.so": ""},
    )
    torch = found.torch
    assert known(torch)
    assert (torch.miopen, torch.hip_runtime, torch.runtime_count) == ("3.5.1", "7.2.26015", 8)
    assert isinstance(torch.cudnn, Absent)
    assert known(torch.nccl_loaded)
    assert torch.nccl_loaded.version == "2.27.7"
    assert known(found.nccl_libraries)
    assert [(one.path, one.version, one.origin) for one in found.nccl_libraries] == [
        ("/opt/rocm-7.2.0/lib/librccl.so.1.0.70200", "1.0.70200", "ROCm")
    ]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (
            answer({"init": {"code": 100, "name": "hipErrorNoDevice", "message": "none"}}, "init"),
            "hipErrorNoDevice",
        ),
        (
            answer(
                {"init": SUCCESS}, "kernel", errors={"sum": {"type": "RuntimeError", "message": HIP_WORDS}}
            ),
            "hipErrorInvalidDeviceFunction",
        ),
        (
            {**answer({"init": SUCCESS}, "kernel"), "returncode": -6, "log": HSA_WORDS},
            "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        ),
    ],
    ids=["HIP's number", "torch's words", "the runtime's last words"],
)
def test_errors_of_rocm_have_names(said: dict[str, Any], name: str) -> None:
    test = said_by.context(AMD_UUID, said_by.Said(said))
    assert test.ok is False
    assert known(test.error)
    assert test.error.name == name


def test_extensions_and_what_they_are_built_for(tmp_path: Path) -> None:
    packages = [
        {"name": "flash-attn", "version": "2.8.3", "built_for": ["hip", "quantum"], "files": 1},
        {"name": "deepspeed", "version": "0.18.0", "built_for": [], "files": 0},
        {"name": 7, "version": "1"},
        "nonsense",
    ]
    found = probe(tmp_path, interpreter={"extensions": answer({"extensions": packages}, "")})
    assert known(found.extensions)
    assert [(one.name, one.version) for one in found.extensions] == [
        ("flash-attn", "2.8.3"),
        ("deepspeed", "0.18.0"),
    ]
    assert found.extensions[0].built_for == ("hip",)
    assert isinstance(found.extensions[1].built_for, Absent)
    older = probe(tmp_path)
    assert isinstance(older.extensions, Absent)
    assert older.extensions.why is Why.not_asked
