"""ROCm's errors, its driver beside torch, and packages with GPU code, of both vendors."""

from __future__ import annotations

from typing import Any

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.facts.stack import CudaError, Extension
from nodecheck.judge import Cause, Owner, Status, judge, software
from nodecheck.probes.hip_errors import _HSA, ERRORS
from tests.judge.cases import DENIED, HUNG, UNASKED, Case, check, faulty, found, profile

PASS, WARN, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.warn, Status.fail, Status.unknown, Status.skipped
MISSING = Absent(why=Why.not_present, detail="none")


def case(id: str, faults: dict[str, Any], status: Status, profile: str = "mi300xx8", **words: Any) -> Case:
    return Case(id, faults, status, profile=profile, **words)


def failing(name: str, code: int, message: str, **more: Any) -> dict[str, Any]:
    """The context of card 2 ends in this error."""
    error = CudaError(code=code, name=name, message=message)
    return {"stack.contexts.2.ok": False, "stack.contexts.2.error": error, **more}


def package(name: str, *platforms: str, version: str = "1.2.3") -> Extension:
    return Extension(name=name, version=version, built_for=platforms)  # type: ignore[arg-type]


OVERRIDE = {"stack.environment": (("HSA_OVERRIDE_GFX_VERSION", "9.0.10"),)}
APART = {"stack.driver.version": "6.3.6", "stack.torch.hip": "7.2.26015"}

CASES = [
    # A kernel on each card
    case("stack.context", {}, PASS, count=8),
    case("stack.context", failing("hipErrorNoDevice", 100, "no ROCm-capable device is detected"), FAIL, count=1,
         cause=Cause.misconfigured, owner=Owner.renter, says="may not open /dev/kfd"),
    case("stack.context", failing("hipErrorInvalidDeviceFunction", 98, "invalid device function"), FAIL,
         owner=Owner.renter, says="no code for this card's target"),
    case("stack.context", failing("hipErrorECCNotCorrectable", 214, ""), FAIL, cause=Cause.faulty,
         owner=Owner.provider),
    case("stack.context", failing("HSA_STATUS_ERROR_MEMORY_FAULT", 43, "Memory access fault by GPU node-2"), FAIL,
         cause=Cause.faulty, says="Memory access fault by GPU node-2"),
    case("stack.context", failing("HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION", 42, "", **OVERRIDE), FAIL,
         cause=Cause.misconfigured, owner=Owner.renter, says="HSA_OVERRIDE_GFX_VERSION=9.0.10 makes it"),
    case("stack.context", failing("HSA_STATUS_ERROR_OUT_OF_RESOURCES", 0x1008, ""), FAIL, owner=Owner.renter),
    case("stack.context", failing("HIP error 1054", 1054, ""), FAIL, cause=Cause.faulty),
    # torch counts by another library than it runs on
    case("stack.torch.devices", {"stack.torch.device_count": 0, "stack.torch.devices": (),
                                 "stack.torch.runtime_count": 8}, FAIL,
         cause=Cause.misconfigured, owner=Owner.renter, says="The runtime below it counts 8", done="amdsmi clash"),
    # The other vendor's build
    case("stack.torch.gpu_build", {"stack.torch.hip": MISSING, "stack.torch.cuda": "12.8"}, FAIL, owner=Owner.renter),
    case("stack.torch.gpu_build", {"stack.torch.cuda": MISSING, "stack.torch.hip": "7.2.26015"}, FAIL, "h200x4",
         owner=Owner.renter, says="built with HIP"),
    # The driver beside torch's ROCm
    case("stack.rocm.driver", {}, PASS, says="amdgpu 6.16.13"),
    case("stack.rocm.driver", {"stack.torch.hip": "6.3.42134"}, PASS),
    case("stack.rocm.driver", {"stack.driver.version": "6.10.5"}, PASS, says="yet every card works"),
    case("stack.rocm.driver", {"stack.driver.version": "6.8.5", "stack.torch.hip": "6.4.43482"}, PASS),
    case("stack.rocm.driver", {"stack.driver.version": "6.19.14"}, PASS),
    case("stack.rocm.driver", APART, PASS, says="yet every card works"),
    case("stack.rocm.driver", APART | failing("hipErrorUnknown", 999, ""), WARN, says="releases apart"),
    case("stack.rocm.driver", {"stack.driver.in_tree": True, "stack.driver.version": MISSING}, SKIPPED),
    case("stack.rocm.driver", {"stack.torch.hip": MISSING}, SKIPPED),
    case("stack.rocm.driver", {"stack.driver.version": DENIED}, UNKNOWN),
    case("stack.rocm.driver", {}, SKIPPED, "h200x4"),
    # Packages with GPU code
    case("stack.extensions", {}, PASS, says="flash-attn 2.8.3"),
    case("stack.extensions", {}, PASS, "h200x4", says="triton 3.6.0"),
    case("stack.extensions", {"stack.extensions": ()}, PASS, says="There are none"),
    case("stack.extensions", {"stack.extensions": (package("flash-attn", "cuda"),)}, WARN, owner=Owner.renter,
         says="flash-attn 1.2.3 is built for CUDA, and not for ROCm", done="CUDA's"),
    case("stack.extensions", {"stack.extensions": (package("vllm", "hip"),)}, WARN, "h200x4",
         says="built for ROCm, and not for CUDA", done="ROCm's"),
    case("stack.extensions", {"stack.extensions": (package("bitsandbytes", "cuda", "hip"), package("apex"))}, PASS,
         done="both, and none"),
    case("stack.extensions", {"stack.extensions": (package("torch", "cuda"),)}, PASS, done="torch"),
    case("stack.extensions", {"stack.extensions.0.built_for": MISSING}, PASS),
    case("stack.extensions", {"stack.extensions": UNASKED}, SKIPPED),
    case("stack.extensions", {"stack.extensions": HUNG}, UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_case(one: Case) -> None:
    check(one)


@pytest.mark.parametrize("name", [*(name for name, _ in ERRORS.values()), *_HSA])
def test_every_error_says_who_acts(name: str) -> None:
    meaning = software.rocm_meaning(name)
    assert meaning.meaning.endswith(".") and meaning.next_step.endswith(".")
    assert meaning.owner is Owner.provider or meaning.cause is not Cause.faulty


@pytest.mark.parametrize(
    ("name", "faults", "command"),
    [
        ("mi300xx8", {"stack.torch.hip": MISSING, "stack.torch.cuda": "12.8"}, "ROCm 7.2"),
        ("h200x4", {"stack.torch.cuda": MISSING, "stack.torch.hip": "7.2.26015"}, "CUDA 13.0 or older"),
    ],
)
def test_the_other_vendor_s_build_comes_with_a_command(
    name: str, faults: dict[str, Any], command: str
) -> None:
    (finding,) = found(judge(faulty(name, faults), profile(name)), "stack.torch.gpu_build")
    assert "pip uninstall -y torch" in finding.next_step
    assert command in finding.next_step


def test_releases_of_the_driver_stand_in_order() -> None:
    releases = software.amdgpu_releases()
    assert list(releases) == sorted(releases)
    assert sorted(rocm for _, rocm in releases) == [rocm for _, rocm in releases]
