"""The stand-in is only worth something if the real pynvml takes it for NVML."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import nvml
from tests.fakes.nvml.products import PRODUCTS

pytestmark = pytest.mark.skipif(not nvml.compiler(), reason="no C compiler here")


def ask(description: nvml.Description, tmp_path: Path, expression: str, timeout: float = 20) -> Any:
    """What `expression` gives in a fresh interpreter where `p` is pynvml and `h` the list of handles."""
    nvml.write(description, tmp_path / "node.json")
    program = (
        "import json, sys, pynvml as p\n"
        "from ctypes import byref\n"
        "def tried(call, *arguments):\n"
        "    try:\n        return call(*arguments)\n"
        "    except p.NVMLError as error:\n        return type(error).__name__\n"
        "started = tried(p.nvmlInit)\n"
        "indices = range(p.nvmlDeviceGetCount()) if started is None else ()\n"
        "h = [p.nvmlDeviceGetHandleByIndex(i) for i in indices]\n"
        "def asked(struct, version, call):\n"
        "    struct.version = version\n    call(h[0], byref(struct))\n"
        "    return [list(v) if hasattr(v, '__len__') else v\n"
        "            for v in (getattr(struct, name) for name, *_ in struct._fields_ if name != 'version')]\n"
        f"print(json.dumps({expression}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **nvml.environment(tmp_path / "node.json")},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, "pynvml", done.stdout, done.stderr)
    return json.loads(done.stdout)


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_product_answers_as_described(product: str, tmp_path: Path) -> None:
    card = PRODUCTS[product]
    count = 4
    seen = ask(
        nvml.describe(product, count),
        tmp_path,
        "[[p.nvmlDeviceGetName(x), p.nvmlDeviceGetPciInfo(x).busId,"
        " hex(p.nvmlDeviceGetPciInfo(x).pciDeviceId), p.nvmlDeviceGetMemoryInfo(x, p.nvmlMemory_v2).total,"
        " p.nvmlDeviceGetCudaComputeCapability(x), p.nvmlDeviceGetEnforcedPowerLimit(x)] for x in h]",
    )
    assert seen == [
        [
            card.name,
            f"0000{address.upper()}",
            hex(card.device_id << 16 | 0x10DE),
            card.memory_mib * 1024**2,
            list(card.capability),
            card.watts * 1000,
        ]
        for address in nvml.addresses(card, count)
    ]


def test_structs_come_out_whole(tmp_path: Path) -> None:
    d = nvml.describe("h200", 2)
    d["nvmlDeviceGetSramEccErrorStatus 0"] = "1 2 3 4 5 6 7 8 9 10 11 1"
    d["nvmlDeviceGetRetiredPages_v2 0 0"] = "4096 17 8192 18"
    d["nvmlDeviceGetComputeRunningProcesses_v3 1"] = (
        f"{nvml.process(41, 1 << 30)} {nvml.process(42, 2 << 30)}"
    )
    d["nvmlDeviceGetGpuFabricInfoV 0 3"] = "00112233445566778899aabbccddeeff 0 7 3 21 2"
    seen = ask(
        d,
        tmp_path,
        "[asked(p.c_nvmlEccSramErrorStatus_v1_t(), p.nvmlEccSramErrorStatus_v1,"
        " p.nvmlDeviceGetSramEccErrorStatus),"
        " asked(p.c_nvmlGpuFabricInfo_v3_t(), p.nvmlGpuFabricInfo_v3, p.nvmlDeviceGetGpuFabricInfoV),"
        " [[q.pid, q.usedGpuMemory] for q in p.nvmlDeviceGetComputeRunningProcesses(h[1])],"
        " [list(x.values()) for x in p.nvmlDeviceGetRetiredPages_v2(h[0], 0)],"
        " [p.nvmlDeviceGetMemoryInfo(h[0]).used, p.nvmlDeviceGetMemoryInfo(h[0], p.nvmlMemory_v2).used],"
        " [-v.nvmlReturn or v.value.uiVal for v in p.nvmlDeviceGetFieldValues(h[0], [91, (164, 3), 9999])]]",
    )
    assert seen == [
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1],
        [list(bytes.fromhex("00112233445566778899aabbccddeeff")), 0, 7, 3, 21, 2],
        [[41, 1 << 30], [42, 2 << 30]],
        [[4096, 17], [8192, 18]],
        [616 * 1024**2, 0],
        [18, 26562, -3],
    ]


def test_links_end_where_the_card_ends(tmp_path: Path) -> None:
    seen = ask(
        nvml.describe("a100", 2),
        tmp_path,
        "[tried(p.nvmlDeviceGetNvLinkState, h[1], i) for i in (0, 11, 12)]",
    )
    assert seen == [1, 1, "NVMLError_InvalidArgument"]
    seen = ask(nvml.describe("l40s", 2), tmp_path, "[tried(p.nvmlDeviceGetNvLinkState, h[1], 0)]")
    assert seen == ["NVMLError_NotSupported"]


def test_text_survives(tmp_path: Path) -> None:
    d = nvml.describe("h200", 1)
    d["nvmlDeviceGetName 0"] = name = 'NVIDIA "H200"\\ \n<b>é'
    assert ask(d, tmp_path, "[p.nvmlDeviceGetName(h[0])]") == [name]


def test_codes_reach_pynvml_as_its_exceptions(tmp_path: Path) -> None:
    d = nvml.describe("h200", 2)
    nvml.lose(d, 1)
    d["nvmlDeviceGetName 0"] = nvml.code(4)
    seen = ask(
        d, tmp_path, "[tried(p.nvmlDeviceGetName, x) for x in h] + [tried(p.nvmlDeviceGetP2PStatus, *h, 0)]"
    )
    assert seen == ["NVMLError_NoPermission", "NVMLError_GpuIsLost", "NVMLError_GpuIsLost"]
    d["nvmlInitWithFlags"] = nvml.code(18)
    assert ask(d, tmp_path, "started") == "NVMLError_LibRmVersionMismatch"


def test_a_crash_is_a_crash(tmp_path: Path) -> None:
    d = nvml.describe("h200", 1)
    d["nvmlDeviceGetName 0"] = nvml.CRASH
    with pytest.raises(subprocess.CalledProcessError) as died:
        ask(d, tmp_path, "p.nvmlDeviceGetName(h[0])")
    assert died.value.returncode == -signal.SIGSEGV


@pytest.mark.parametrize(("fault", "dies"), [(nvml.HANG, True), (nvml.DEAF, False)])
def test_a_hang_hangs(fault: str, dies: bool, tmp_path: Path) -> None:
    d = nvml.describe("h200", 1)
    d["nvmlDeviceGetName 0"] = fault
    nvml.write(d, tmp_path / "node.json")
    program = (
        "import pynvml as p; p.nvmlInit(); h = p.nvmlDeviceGetHandleByIndex(0)\n"
        "print('asked', flush=True); p.nvmlDeviceGetName(h)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **nvml.environment(tmp_path / "node.json")},
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.3)
        child.terminate()
        if dies:
            assert child.wait(timeout=5) == -signal.SIGTERM
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(timeout=0.3)
    finally:
        child.kill()
        child.wait()
