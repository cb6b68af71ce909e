"""Rules on driver, torch, contexts, NCCL and the environment."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Why
from nodecheck.facts.stack import CudaError, Library, Toolkit
from nodecheck.judge import REGISTRY, Cause, Owner, Status, Verdict, judge, software
from nodecheck.judge.rules.stack import runs_on
from nodecheck.profile import Profile
from tests.judge.cases import DENIED, HUNG, UNASKED, Case, check, faulty, found, healthy, profile
from tests.judge.rules import test_amd, test_rocm

PASS, WARN, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.warn, Status.fail, Status.unknown, Status.skipped
NONE = Absent(why=Why.not_present, detail="none")
BROKEN = Absent(why=Why.failed, detail="ImportError: libcudart.so.13: cannot open shared object file")
MISMATCH = Absent(
    why=Why.failed, detail="NVML_ERROR_LIB_RM_VERSION_MISMATCH (18): Driver/library version mismatch"
)
SITE = "/opt/venv/lib/python3.12/site-packages"


def error(code: int, name: str = "CUDA_ERROR", message: str = "its text") -> CudaError:
    return CudaError(code=code, name=name, message=message)


def refused(card: int, code: int) -> dict[str, Any]:
    here = f"stack.contexts.{card}"
    return {f"{here}.ok": False, f"{here}.error": error(code), f"{here}.step": "context"}


def stopped(card: int, why: Why, step: str, signal: str | Absent = NONE) -> dict[str, Any]:
    here = f"stack.contexts.{card}"
    return {
        f"{here}.ok": Absent(why=why, detail=f"not ended after 120 s, at the step {step!r}"),
        f"{here}.step": step,
        f"{here}.signal": signal,
    }


def variables(**values: str) -> dict[str, Any]:
    return {"stack.environment": tuple(sorted(values.items()))}


def library(path: str, version: str | Absent = NONE, origin: str = "loaded") -> Library:
    return Library(path=path, version=version, origin=origin)


def stack_but(**changes: Any) -> Any:
    def but(profile: Profile) -> Profile:
        assert profile.stack is not None
        return profile.model_copy(update={"stack": profile.stack.model_copy(update=changes)})

    return but


def without_stack(profile: Profile) -> Profile:
    return profile.model_copy(update={"stack": None})


PUBLISHED = stack_but(kind="published")
NO_CONTEXT = {"stack.contexts.*.ok": False}
CPU_ONLY = {
    "stack.torch.cuda": NONE,
    "stack.torch.nccl": NONE,
    "stack.torch.cudnn": NONE,
    "stack.torch.arch_list": (),
}
GIB = 1024**3
NO_TORCH = {"stack.torch": NONE}
UNSEEN = {"stack": UNASKED}

CASES = [
    *test_amd.STACK,
    *test_rocm.CASES,
    # The oldest driver
    Case("stack.driver.minimum", {}, PASS, says="580.159.04"),
    Case("stack.driver.minimum", {"stack.driver.version": "550.54.15"}, PASS),
    Case(
        "stack.driver.minimum",
        {"stack.driver.version": "550.54.9"},
        FAIL,
        but=PUBLISHED,
        owner=Owner.provider,
    ),
    Case("stack.driver.minimum", {"stack.driver.version": "535.183.01"}, WARN, but=stack_but(kind="derived")),
    Case("stack.driver.minimum", {"stack.driver.version": "1000.1"}, PASS),
    Case("stack.driver.minimum", {"stack.driver.version": DENIED}, UNKNOWN),
    Case("stack.driver.minimum", UNSEEN, UNKNOWN),
    Case("stack.driver.minimum", {}, SKIPPED, but=stack_but(driver_min=None)),
    Case("stack.driver.minimum", {}, SKIPPED, but=without_stack),
    Case("stack.driver.minimum", {}, SKIPPED, profile="cpu"),
    # Driver and library
    Case("stack.driver.library_match", {}, PASS),
    Case(
        "stack.driver.library_match",
        {
            "stack.driver_libraries": (
                library("/usr/local/cuda/compat/libcuda.so.570.1", "570.1", "ld.so.cache"),
            )
        },
        PASS,
        says="/usr/local/cuda/compat/libcuda.so.570.1 (570.1)",
    ),
    Case(
        "stack.driver.library_match",
        {"stack.driver.library_version": "570.86.15"},
        FAIL,
        cause=Cause.misconfigured,
    ),
    Case(
        "stack.driver.library_match", {"stack.driver.library_version": MISMATCH}, FAIL, owner=Owner.provider
    ),
    Case("stack.driver.library_match", {"stack.driver.library_version": HUNG}, UNKNOWN),
    Case("stack.driver.library_match", {"stack.driver.version": DENIED}, UNKNOWN),
    Case("stack.driver.library_match", {}, SKIPPED, profile="cpu"),
    # The fabric manager
    Case("stack.driver.fabric_manager", {}, PASS, says="Both are"),
    Case(
        "stack.driver.fabric_manager", {"host.fabric_manager_version": "570.1"}, WARN, says="every card works"
    ),
    Case(
        "stack.driver.fabric_manager",
        {"host.fabric_manager_version": "570.1", "host.services": ()},
        PASS,
        says="unused",
    ),
    Case("stack.driver.fabric_manager", {"host.fabric_manager_version": "570.1"} | NO_CONTEXT, FAIL),
    Case(
        "stack.driver.fabric_manager", {"host.fabric_manager_version": "570.1", "stack.contexts": HUNG}, FAIL
    ),
    Case("stack.driver.fabric_manager", {}, UNKNOWN, view="container"),
    Case("stack.driver.fabric_manager", {"stack.driver.version": DENIED}, UNKNOWN),
    Case("stack.driver.fabric_manager", {"host": UNASKED}, UNKNOWN),
    Case("stack.driver.fabric_manager", {}, SKIPPED, profile="l40sx4"),
    # Driver and runtime
    Case("stack.driver.runtime", {}, PASS),
    Case("stack.driver.runtime", {"stack.torch.cuda": "11.8"}, PASS),
    Case(
        "stack.driver.runtime",
        {
            "stack.torch.cuda": "12.8",
            "stack.driver.cuda_version": "12.4",
            "stack.driver.libcuda_version": "12.4",
        },
        PASS,
        says="minor-version compatibility",
    ),
    Case(
        "stack.driver.runtime",
        {"stack.driver.cuda_version": "12.4"},
        PASS,
        says="forward-compatibility package; the driver's own CUDA is 12.4",
    ),
    Case(
        "stack.driver.runtime",
        {"stack.driver.cuda_version": "12.4", "stack.driver.libcuda_version": "12.4"} | NO_CONTEXT,
        FAIL,
        owner=Owner.renter,
    ),
    Case(
        "stack.driver.runtime",
        {"stack.driver.cuda_version": "12.4", "stack.driver.libcuda_version": "12.4"},
        WARN,
    ),
    Case("stack.driver.runtime", {"stack.driver.libcuda_version": NONE}, PASS),
    Case(
        "stack.driver.runtime",
        {"stack.driver.libcuda_version": NONE, "stack.driver.cuda_version": NONE},
        UNKNOWN,
    ),
    Case("stack.driver.runtime", {"stack.torch.cuda": BROKEN}, UNKNOWN),
    Case("stack.driver.runtime", NO_TORCH, UNKNOWN),
    Case("stack.driver.runtime", NO_TORCH, SKIPPED, but=stack_but(torch_required=False)),
    Case("stack.driver.runtime", CPU_ONLY, SKIPPED),
    # The interpreter
    Case("stack.interpreter", {}, PASS, says="the active environment"),
    Case("stack.interpreter", {"stack.other_torches": ("/usr/bin/python3",)}, PASS, says="/usr/bin/python3"),
    Case("stack.interpreter", {"stack.interpreter": NONE}, UNKNOWN),
    Case("stack.interpreter", {}, PASS, profile="cpu"),
    # torch
    Case("stack.torch.present", {}, PASS, says="2.11.0+cu130"),
    Case("stack.torch.present", {"stack.torch.version": BROKEN, "stack.torch.import_seconds": HUNG}, PASS),
    Case("stack.torch.present", NO_TORCH, WARN, cause=Cause.misconfigured, owner=Owner.renter),
    Case("stack.torch.present", NO_TORCH, WARN, profile="cpu"),
    Case("stack.torch.present", NO_TORCH, WARN, but=without_stack),
    Case("stack.torch.present", NO_TORCH, SKIPPED, but=stack_but(torch_required=False)),
    Case("stack.torch.present", NO_TORCH, SKIPPED, profile="cpu", but=without_stack),
    Case("stack.torch.present", {"stack.torch": BROKEN}, FAIL, says="libcudart.so.13"),
    Case("stack.torch.present", {"stack.torch": HUNG}, UNKNOWN),
    Case("stack.torch.present", {"stack.torch": NONE, "stack.interpreter": NONE}, UNKNOWN),
    # Its build
    Case("stack.torch.gpu_build", {}, PASS, says="CUDA 13.0"),
    Case(
        "stack.torch.gpu_build",
        CPU_ONLY,
        FAIL,
        cause=Cause.misconfigured,
        owner=Owner.renter,
        says="CPU alone",
    ),
    Case("stack.torch.gpu_build", CPU_ONLY | {"stack.torch.hip": "6.4"}, FAIL, says="HIP 6.4"),
    Case("stack.torch.gpu_build", {"stack.torch.cuda": BROKEN}, UNKNOWN),
    Case("stack.torch.gpu_build", {"stack.torch": HUNG}, UNKNOWN),
    Case("stack.torch.gpu_build", CPU_ONLY, SKIPPED, profile="cpu"),
    # Its architectures
    Case("stack.torch.arch", {}, PASS, count=4, says="sm_90 runs on"),
    Case(
        "stack.torch.arch",
        {"stack.torch.arch_list": ("sm_80",)},
        PASS,
        profile="l40sx2",
        says="sm_80 runs on",
    ),
    Case(
        "stack.torch.arch", {"stack.torch.arch_list": ("sm_80", "compute_80")}, WARN, count=4, says="Only PTX"
    ),
    Case("stack.torch.arch", {"stack.torch.arch_list": ("sm_80",)}, WARN, says="yet a kernel ran"),
    Case(
        "stack.torch.arch",
        {"stack.torch.arch_list": ("sm_80",)} | NO_CONTEXT,
        FAIL,
        count=4,
        owner=Owner.renter,
    ),
    Case("stack.torch.arch", {"stack.torch.arch_list": ()} | NO_CONTEXT, FAIL),
    Case("stack.torch.arch", {"stack.torch.arch_list": ("sm_90a",)}, PASS),
    Case("stack.torch.arch", {"stack.torch.arch_list": ("sm_90a",)} | NO_CONTEXT, FAIL, profile="b200x4"),
    Case("stack.torch.arch", {"cards.0.identity.compute_capability": DENIED}, PASS, count=4),
    Case(
        "stack.torch.arch",
        {"cards.0.identity.compute_capability": DENIED, "stack.torch.devices": HUNG},
        UNKNOWN,
        count=1,
    ),
    Case("stack.torch.arch", {"stack.torch.arch_list": BROKEN}, UNKNOWN),
    Case("stack.torch.arch", {"cards": HUNG}, UNKNOWN),
    Case("stack.torch.arch", {"cards": ()}, SKIPPED),
    Case("stack.torch.arch", NO_TORCH, UNKNOWN),
    Case("stack.torch.arch", CPU_ONLY, SKIPPED),
    *(
        Case("stack.torch.arch", {"cards.0.identity.compute_capability": capability}, UNKNOWN, count=1)
        for capability in ("", "9", "None.None", "gfx942")
    ),
    # What torch sees of each card
    *(Case("stack.torch.cards", {}, PASS, profile=name) for name in ("h200x4", "b200x4", "a100x4", "l40sx4")),
    *(
        Case(
            "stack.torch.cards",
            faults,
            FAIL,
            count=1,
            says=says,
            cause=Cause.not_as_rented,
            owner=Owner.provider,
        )
        for faults, says in (
            ({"stack.torch.devices.1.total_bytes": 70 * GIB}, "71680 MiB of memory"),
            ({"stack.torch.devices.1.total_bytes": 0}, "0 MiB of memory"),
            ({"stack.torch.devices.1.total_bytes": 180 * GIB}, "of memory"),
            ({"stack.torch.devices.1.multiprocessors": 66}, "66 multiprocessors (8448 cores), NVML 16896"),
            ({"stack.torch.devices.1.capability": "8.0"}, "capability 8.0, NVML 9.0"),
            ({"stack.torch.devices.1.name": "NVIDIA A100"}, "NVIDIA A100"),
            ({"stack.contexts.1.free_bytes": 70 * GIB}, "free in a context"),
            ({"stack.contexts.1.free_bytes": 70 * GIB, "cards.1.processes": DENIED}, "free in a context"),
            ({"stack.torch.devices.1.multiprocessors": 66, "stack.torch.devices.1.name": HUNG}, "66"),
        )
    ),
    Case(
        "stack.torch.cards",
        {"stack.contexts.1.free_bytes": 70 * GIB, "cards.1.memory.used_bytes": 60 * GIB},
        PASS,
        count=4,
    ),
    Case("stack.torch.cards", {"cards.1.identity.cores": DENIED}, PASS, count=4),
    Case("stack.torch.cards", {"cards.1.memory.reserved_bytes": DENIED}, PASS, count=4),
    *(
        Case("stack.torch.cards", {path: HUNG}, UNKNOWN, count=1)
        for path in (
            "stack.torch.devices.1.uuid",
            "stack.torch.devices.1.name",
            "stack.torch.devices.1.total_bytes",
            "stack.torch.devices.1.multiprocessors",
            "stack.contexts.1.free_bytes",
            "cards.1.memory.total_bytes",
            "cards.1.memory.free_bytes",
            "cards.1.identity.name",
        )
    ),
    Case("stack.torch.cards", {"stack.torch.devices": HUNG}, UNKNOWN, count=4),
    Case("stack.torch.cards", {"stack.contexts": ()}, UNKNOWN, count=4),
    Case("stack.torch.cards", {"cards.1.modes.mig_enabled": True}, PASS, count=3),
    Case("stack.torch.cards", {"cards": HUNG}, UNKNOWN),
    Case("stack.torch.cards", {"cards": ()}, SKIPPED),
    Case("stack.torch.cards", NO_TORCH, UNKNOWN),
    Case("stack.torch.cards", CPU_ONLY, SKIPPED),
    # Its CUDA
    Case("stack.torch.cuda_minimum", {}, PASS),
    Case("stack.torch.cuda_minimum", {"stack.torch.cuda": "11.7"} | NO_CONTEXT, FAIL, but=PUBLISHED),
    Case("stack.torch.cuda_minimum", {"stack.torch.cuda": "11.7"}, WARN, but=PUBLISHED),
    Case(
        "stack.torch.cuda_minimum",
        {"stack.torch.cuda": "11.7"} | NO_CONTEXT,
        WARN,
        but=stack_but(kind="derived"),
    ),
    Case("stack.torch.cuda_minimum", {"stack.torch.cuda": BROKEN}, UNKNOWN),
    Case("stack.torch.cuda_minimum", NO_TORCH, UNKNOWN),
    Case("stack.torch.cuda_minimum", CPU_ONLY, SKIPPED),
    Case("stack.torch.cuda_minimum", {}, SKIPPED, but=stack_but(cuda_min=None)),
    # Several of them
    Case("stack.torch.duplicates", {}, PASS),
    Case("stack.torch.duplicates", {"stack.other_torches": ("/usr/bin/python3",)}, PASS),
    Case("stack.torch.duplicates", {"stack.torch.folders": (f"{SITE}/torch", "/root/.local/torch")}, WARN),
    Case("stack.torch.duplicates", {"stack.torch.folders": BROKEN}, UNKNOWN),
    Case("stack.torch.duplicates", NO_TORCH, UNKNOWN),
    # The cards it sees
    Case("stack.torch.devices", {}, PASS, says="4 of 4"),
    Case(
        "stack.torch.devices",
        {"stack.torch.devices": tuple(reversed(healthy("h200x4").stack.torch.devices))},  # type: ignore[union-attr, arg-type]
        PASS,
        says="in another order",
    ),
    Case("stack.torch.devices", {"stack.torch.devices": HUNG}, PASS),
    Case(
        "stack.torch.devices",
        {"stack.torch.device_count": 3, "stack.torch.devices": healthy("h200x4").stack.torch.devices[:3]},  # type: ignore[union-attr, index]
        FAIL,
        cause=Cause.faulty,
        owner=Owner.provider,
        says="It does not see GPU 3",
    ),
    Case(
        "stack.torch.devices",
        {"stack.torch.device_count": 1} | variables(CUDA_VISIBLE_DEVICES="0"),
        WARN,
        cause=Cause.misconfigured,
        owner=Owner.renter,
        says="CUDA_VISIBLE_DEVICES=0 is set",
    ),
    Case("stack.torch.devices", {"stack.torch.device_count": 0}, FAIL),
    Case("stack.torch.devices", {"stack.torch.device_count": 5}, WARN),
    Case("stack.torch.devices", {"stack.torch.devices.0.uuid": "GPU-of-another-node"}, FAIL),
    Case(
        "stack.torch.devices",
        {"cards.*.modes.mig_enabled": True, "stack.torch.device_count": 1},
        PASS,
        says="MIG",
    ),
    Case("stack.torch.devices", {"cards.3.usable": False, "stack.torch.device_count": 3}, PASS),
    Case("stack.torch.devices", {"stack.torch.device_count": HUNG}, UNKNOWN),
    Case("stack.torch.devices", {"cards": HUNG}, UNKNOWN),
    Case("stack.torch.devices", CPU_ONLY, SKIPPED),
    # cuDNN
    Case("stack.torch.cudnn", {}, PASS, says="9.19.0"),
    Case(
        "stack.torch.cudnn",
        {
            "stack.torch.libraries": (
                f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9",
                "/usr/lib/x86_64-linux-gnu/libcudnn_graph.so.9.14.0",
            )
        },
        WARN,
        says="/usr/lib/x86_64-linux-gnu",
    ),
    Case("stack.torch.cudnn", {"stack.torch.cudnn": BROKEN}, WARN, says="refuses"),
    Case("stack.torch.cudnn", {"stack.torch.libraries": DENIED}, UNKNOWN),
    Case("stack.torch.cudnn", {"stack.torch.cudnn": HUNG}, UNKNOWN),
    Case("stack.torch.cudnn", CPU_ONLY, SKIPPED),
    # cuInit
    Case("stack.cuda_init", {}, PASS),
    Case(
        "stack.cuda_init", {"stack.cuda_init": error(802)}, FAIL, owner=Owner.provider, says="fabric manager"
    ),
    Case(
        "stack.cuda_init",
        {"stack.cuda_init": error(803)},
        FAIL,
        owner=Owner.provider,
        says="do not belong together",
    ),
    Case(
        "stack.cuda_init",
        {
            "stack.cuda_init": error(803),
            "stack.driver_libraries": (library("/usr/local/cuda/compat/libcuda.so.570.1", "570.1"),),
        },
        FAIL,
        owner=Owner.renter,
        says="Programs here load /usr/local/cuda/compat/libcuda.so.570.1",
    ),
    Case("stack.cuda_init", {"stack.cuda_init": error(804)}, FAIL, owner=Owner.renter),
    Case("stack.cuda_init", {"stack.cuda_init": error(999)}, FAIL, cause=Cause.faulty, owner=Owner.provider),
    Case(
        "stack.cuda_init", {"stack.cuda_init": error(31337)}, FAIL, cause=Cause.faulty, owner=Owner.provider
    ),
    Case("stack.cuda_init", {"stack.cuda_init": error(100)}, FAIL, owner=Owner.provider),
    Case(
        "stack.cuda_init",
        {"stack.cuda_init": error(100)} | variables(CUDA_VISIBLE_DEVICES=""),
        FAIL,
        owner=Owner.renter,
        says="CUDA_VISIBLE_DEVICES=''",
    ),
    Case(
        "stack.cuda_init",
        {"stack.cuda_init": NONE},
        FAIL,
        cause=Cause.misconfigured,
        says="no libcuda.so.1: the driver's compute libraries are not installed.",
    ),
    Case(
        "stack.cuda_init",
        {"stack.cuda_init": NONE},
        FAIL,
        view="container",
        says="no libcuda.so.1: the container was started without",
    ),
    Case(
        "stack.cuda_init",
        {"stack.cuda_init": NONE, "host": UNASKED},
        FAIL,
        says="are not installed, or the container was started without",
    ),
    Case("stack.cuda_init", {"stack.cuda_init": HUNG}, FAIL, cause=Cause.faulty),
    Case("stack.cuda_init", {"stack.cuda_init": HUNG, "stack.interpreter": HUNG}, UNKNOWN),
    Case("stack.cuda_init", {"stack.cuda_init": UNASKED}, UNKNOWN),
    Case("stack.cuda_init", {}, SKIPPED, profile="cpu"),
    # Contexts
    Case("stack.context", {}, PASS, count=4, says="context 0.30 s"),
    Case("stack.context", {}, PASS, profile="cpu", count=1),
    Case("stack.context", refused(1, 46), FAIL, count=1, cause=Cause.misconfigured, owner=Owner.provider),
    Case("stack.context", refused(1, 2), FAIL, owner=Owner.renter, says="holds its memory"),
    Case("stack.context", refused(1, 209), FAIL, owner=Owner.renter),
    Case("stack.context", refused(1, 214), FAIL, cause=Cause.faulty, owner=Owner.provider, says="ECC"),
    Case("stack.context", refused(1, 719), FAIL, cause=Cause.faulty),
    Case("stack.context", {"stack.contexts.2.ok": False}, FAIL, cause=Cause.faulty, says="came out wrong"),
    Case(
        "stack.context", stopped(0, Why.timed_out, "init"), FAIL, cause=Cause.faulty, says="does not answer"
    ),
    Case("stack.context", stopped(0, Why.timed_out, "kernel"), FAIL, count=1),
    Case("stack.context", stopped(0, Why.timed_out, "import"), UNKNOWN, says="Not seen"),
    Case(
        "stack.context", stopped(0, Why.failed, "kernel", "SIGSEGV"), FAIL, cause=Cause.faulty, says="crashed"
    ),
    Case("stack.context", stopped(0, Why.failed, "import", "SIGILL"), UNKNOWN),
    Case("stack.context", stopped(0, Why.failed, "done", "SIGSEGV"), FAIL, count=1, says="crashed"),
    Case("stack.context", stopped(0, Why.timed_out, "done"), FAIL, count=1, says="does not answer"),
    Case(
        "stack.context",
        stopped(0, Why.failed, "kernel") | CPU_ONLY,
        UNKNOWN,
        says="The driver itself made a context",
    ),
    Case("stack.context", stopped(0, Why.not_asked, "init"), UNKNOWN, count=1),
    Case("stack.context", {"stack.contexts": HUNG}, UNKNOWN),
    Case("stack.context", {"stack.contexts": ()}, UNKNOWN, count=4),
    Case("stack.context", {"stack.contexts": ()}, UNKNOWN, profile="cpu"),
    Case("stack.context", {"cards": DENIED}, UNKNOWN, count=1),
    Case("stack.context", {"cards": ()}, UNKNOWN, count=1),
    Case(
        "stack.context",
        NO_TORCH | stopped(0, Why.not_present, "import"),
        SKIPPED,
        profile="cpu",
        but=stack_but(torch_required=False),
    ),
    Case("stack.context", UNSEEN, UNKNOWN),
    # NCCL
    Case("stack.nccl.version", {}, PASS, says="2.28.9"),
    Case("stack.nccl.version", {"stack.torch.nccl": NONE}, WARN),
    Case("stack.nccl.version", {"stack.torch.nccl": NONE}, PASS, profile="h200x1"),
    Case("stack.nccl.version", {"stack.torch.nccl": BROKEN}, UNKNOWN),
    Case("stack.nccl.version", {"stack.torch": HUNG}, UNKNOWN),
    Case("stack.nccl.version", CPU_ONLY, SKIPPED),
    Case("stack.nccl.shadowed", {}, PASS),
    Case("stack.nccl.shadowed", {"stack.torch.nccl_loaded": NONE}, PASS, says="linked into torch"),
    Case(
        "stack.nccl.shadowed",
        {"stack.nccl_libraries": (library("/usr/lib/libnccl.so.2.18.1", "2.18.1", "ld.so.cache"),)},
        PASS,
        says="/usr/lib/libnccl.so.2.18.1 (2.18.1)",
    ),
    Case(
        "stack.nccl.shadowed",
        {"stack.torch.nccl_loaded.version": "2.29.1"},
        PASS,
        says="The wheel's NCCL is 2.29.1",
    ),
    Case(
        "stack.nccl.shadowed", {"stack.torch.nccl_loaded": library("/usr/lib/libnccl.so.2", "2.18.1")}, WARN
    ),
    Case("stack.nccl.shadowed", {"stack.torch.nccl_loaded": BROKEN}, UNKNOWN),
    Case("stack.nccl.shadowed", {"stack.torch.nccl_loaded.version": BROKEN}, UNKNOWN),
    Case("stack.nccl.shadowed", {"stack.torch.nccl": BROKEN}, UNKNOWN),
    Case("stack.nccl.shadowed", {"stack.torch.nccl": NONE}, SKIPPED),
    # The environment
    Case("stack.environment.nccl", {}, PASS),
    Case(
        "stack.environment.nccl",
        variables(NCCL_DEBUG="INFO", NCCL_VERSION="2.28.3-1", NCCL_IB_HCA="mlx5"),
        PASS,
    ),
    Case("stack.environment.nccl", variables(NCCL_P2P_DISABLE="0", NCCL_NVLS_ENABLE="2"), PASS),
    Case(
        "stack.environment.nccl",
        variables(NCCL_P2P_DISABLE="1"),
        WARN,
        owner=Owner.renter,
        says="host memory",
    ),
    Case("stack.environment.nccl", variables(NCCL_P2P_DISABLE="1"), PASS, profile="h200x1", says="so few"),
    Case("stack.environment.nccl", variables(NCCL_TOPO_FILE="/etc/topo.xml"), WARN, profile="h200x2"),
    Case(
        "stack.environment.nccl",
        {"stack.nccl_settings": (("NCCL_NVLS_ENABLE", "0"),)},
        WARN,
        profile="h200x8",
        says="a quarter",
    ),
    Case("stack.environment.nccl", variables(NCCL_NVLS_ENABLE="0"), PASS, profile="h200x4", says="so few"),
    Case(
        "stack.environment.nccl",
        {"stack.nccl_settings": (("NCCL_P2P_DISABLE", "1"),)} | variables(NCCL_P2P_DISABLE="0"),
        PASS,
    ),
    Case("stack.environment.nccl", {"stack.environment": DENIED}, UNKNOWN),
    Case("stack.environment.nccl", {"stack.nccl_settings": HUNG}, UNKNOWN),
    Case("stack.environment.nccl", variables(NCCL_P2P_DISABLE="1"), SKIPPED, profile="cpu"),
    Case("stack.environment.cuda", {}, PASS),
    Case("stack.environment.cuda", variables(CUDA_LAUNCH_BLOCKING="0", CUDA_MODULE_LOADING="EAGER"), PASS),
    Case("stack.environment.cuda", variables(CUDA_LAUNCH_BLOCKING="1"), WARN, profile="h200x1"),
    Case("stack.environment.cuda", variables(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50"), WARN),
    Case("stack.environment.cuda", {"stack.environment": DENIED}, UNKNOWN),
    Case("stack.environment.preload", {}, PASS),
    Case(
        "stack.environment.preload",
        {"stack.preloads": (library("libjemalloc.so.2", origin="LD_PRELOAD"),)},
        PASS,
    ),
    Case(
        "stack.environment.preload", {"stack.preloads": (library("/opt/mine.so", origin="LD_PRELOAD"),)}, WARN
    ),
    Case(
        "stack.environment.preload",
        {"stack.preloads": (library("/usr/local/vgpu/libvgpu.so", origin="/etc/ld.so.preload"),)},
        WARN,
        cause=Cause.not_as_rented,
        owner=Owner.provider,
    ),
    Case(
        "stack.environment.preload",
        {"stack.preloads": (library("/usr/local/vgpu/libvgpu.so"),)}
        | variables(CUDA_DEVICE_MEMORY_LIMIT_0="20000m"),
        FAIL,
        cause=Cause.not_as_rented,
        says="CUDA_DEVICE_MEMORY_LIMIT_0=20000m",
    ),
    Case(
        "stack.environment.preload",
        {"stack.preloads": (library("/usr/local/vgpu/libvgpu.so"),)} | variables(CUDA_DEVICE_SM_LIMIT="30"),
        FAIL,
    ),
    Case(
        "stack.environment.preload",
        {"stack.preloads": (library("/usr/local/vgpu/libvgpu.so"),)}
        | variables(CUDA_DEVICE_MEMORY_LIMIT_0="143771m", CUDA_DEVICE_SM_LIMIT="0"),
        WARN,
    ),
    Case("stack.environment.preload", {"stack.preloads": DENIED}, UNKNOWN),
    Case("stack.toolkit", {}, PASS, says="13.0.2"),
    Case("stack.toolkit", {"stack.toolkits": ()}, PASS, says="None is installed"),
    Case("stack.toolkit", {"stack.toolkits": (Toolkit(path="/usr/local/cuda", version=NONE),)}, PASS),
    Case("stack.toolkit", {"stack.toolkits": DENIED}, UNKNOWN),
]
RULES = [id for id in REGISTRY if id.startswith("stack.")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("id", RULES)
def test_every_rule_has_been_seen_to_pass_to_object_and_to_be_blind(id: str) -> None:
    seen = {case.status for case in CASES if case.id == id}
    rule = REGISTRY[id]
    assert {PASS, UNKNOWN} <= seen
    assert bool(rule.warns) is (WARN in seen)
    assert bool(rule.fails) is (FAIL in seen)


@pytest.mark.parametrize("id", RULES)
def test_nothing_of_the_stack_seen_is_never_a_pass(id: str) -> None:
    name = next(case.profile for case in CASES if case.id == id and case.status is PASS)
    judgement = judge(faulty(name, UNSEEN), profile(name))
    assert {finding.status for finding in found(judgement, id)} == {
        UNKNOWN
    } or id == "stack.driver.fabric_manager"
    assert judgement.verdict is Verdict.incomplete


def test_a_torch_for_the_cpu_is_one_trouble_and_the_renters() -> None:
    node = faulty(
        "h200x4", {**CPU_ONLY, **stopped(0, Why.failed, "kernel"), **stopped(1, Why.failed, "kernel")}
    )
    judgement = judge(node, profile("h200x4"))
    assert judgement.verdict is Verdict.rejected
    wrong = [
        f for f in judgement.findings if f.status in (FAIL, WARN) or (f.status is UNKNOWN and f.required)
    ]
    assert {f.id for f in wrong if f.root is None} == {"stack.torch.gpu_build"}


def test_no_torch_is_one_trouble() -> None:
    gone = {f"stack.contexts.{i}.ok": NONE for i in range(4)} | {
        f"stack.contexts.{i}.step": "import" for i in range(4)
    }
    judgement = judge(faulty("h200x4", NO_TORCH | gone), profile("h200x4"))
    wrong = [f for f in judgement.findings if f.status in (FAIL, WARN, UNKNOWN)]
    assert {f.id for f in wrong if f.root is None} == {"stack.torch.present"}


@pytest.mark.parametrize("name", ["h200x4", "a100x8", "rtx4090x1", "cpu"])
@pytest.mark.parametrize("view", ["bare", "vm", "container"])
def test_a_healthy_stack_gives_nothing_to_object_to(name: str, view: Any) -> None:
    judgement = judge(healthy(name, view), profile(name))
    for id in RULES:
        assert {f.status for f in found(judgement, id)} <= {PASS, SKIPPED, UNKNOWN}
        assert not any(f.required for f in found(judgement, id) if f.status is UNKNOWN)


# Architectures


@pytest.mark.parametrize(
    ("capability", "arch", "code", "ptx"),
    [
        ("8.9", "sm_80", True, False),
        ("8.9", "sm_89", True, False),
        ("8.6", "sm_89", False, False),
        ("9.0", "sm_89", False, False),
        ("9.0", "sm_90a", True, False),
        ("10.0", "sm_90a", False, False),
        ("10.0", "sm_100", True, False),
        ("10.3", "sm_100", True, False),
        ("10.3", "sm_100a", False, False),
        ("10.3", "sm_100f", True, False),
        ("12.0", "sm_100f", False, False),
        ("12.1", "sm_120", True, False),
        ("10.0", "compute_90", False, True),
        ("9.0", "compute_90", False, True),
        ("8.9", "compute_90", False, False),
        ("10.0", "compute_90a", False, False),
        ("12.0", "compute_100f", False, False),
        ("9.0", "gfx942", False, False),
        ("9.0", "sm_", False, False),
    ],
)
def test_what_runs_on_what(capability: str, arch: str, code: bool, ptx: bool) -> None:
    assert runs_on(capability, [arch]) == ((arch,) if code else (), (arch,) if ptx else ())


@given(st.text(), st.lists(st.text()))
def test_any_list_of_architectures_can_be_judged(capability: str, arches: list[str]) -> None:
    code, ptx = runs_on(capability, arches)
    assert set(code) | set(ptx) <= set(arches)


# Tables


@pytest.mark.parametrize(
    "code", [2, 3, 34, 35, 46, 100, 101, 209, 214, 220, 719, 802, 803, 804, 805, 999, 12345]
)
def test_every_error_says_what_it_means_who_acts_and_what_comes_next(code: int) -> None:
    meaning = software.cuda_meaning(code)
    assert meaning.meaning.endswith(".")
    assert meaning.next_step.endswith(".")


def test_only_settings_that_change_something_are_in_the_table() -> None:
    table = software.variables()
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_VERSION", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"):
        assert name not in table
    for name in (
        "NCCL_P2P_DISABLE",
        "NCCL_SHM_DISABLE",
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_TOPO_FILE",
        "NCCL_NET",
    ):
        assert table[name].from_cards == 2
    assert table["NCCL_NVLS_ENABLE"].from_cards == 5
    assert all(variable.effect and not variable.effect.endswith(".") for variable in table.values())


@pytest.mark.parametrize("capability", ["", "9", "x.y"])
def test_nothing_is_said_to_run_on_a_capability_without_numbers(capability: str) -> None:
    assert runs_on(capability, ["sm_90", "compute_90", "sm_90f", "sm_90a"]) == ((), ())
