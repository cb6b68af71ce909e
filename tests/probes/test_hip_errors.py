"""Errors of HIP and of ROCm's runtime, as torch and their logs word them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.probes.hip_errors import of_exception, of_log


@pytest.mark.parametrize(
    ("message", "code", "name"),
    [
        (
            "HIP error: invalid device function\nHIP kernel errors might be …",
            None,
            "hipErrorInvalidDeviceFunction",
        ),
        (
            "HIP error: no kernel image is available for execution on the device",
            None,
            "hipErrorNoBinaryForGpu",
        ),
        ("HIP error: something of tomorrow", 1054, "HIP error 1054"),
        ("HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has …", None, "hipErrorOutOfMemory"),
        ("No HIP GPUs are available", None, "hipErrorNoDevice"),
        (
            '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
            None,
            "hipErrorNoBinaryForGpu",
        ),
        ("HIP error: out of memory", None, "hipErrorOutOfMemory"),
    ],
)
def test_exceptions(message: str, code: int | None, name: str) -> None:
    error = of_exception(message, code)
    assert error is not None
    assert error.name == name


@pytest.mark.parametrize(
    "message", ["", "CUDA error: invalid argument", "HIP error: of words that nobody knows", "out of memory"]
)
def test_what_is_none_of_hip_s(message: str) -> None:
    assert of_exception(message) is None


def test_a_cuda_error_s_number_is_not_hip_s() -> None:
    assert of_exception("CUDA error: an illegal memory access was encountered", 700) is None


LOG = """\
:0:rocdevice.cpp            :2984: 1196829 us: [pid:7 tid:0x7f] Callback: Queue 0x7f aborting with error : \
HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest legal address. \
code: 0x29
"""


def test_what_the_runtime_wrote_before_it_aborted() -> None:
    error = of_log(LOG)
    assert error is not None
    assert (error.code, error.name) == (0x29, "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION")
    assert error.message.startswith("The agent attempted to access memory")
    fault = of_log(
        "Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f00. Reason: Page not present"
    )
    assert fault is not None
    assert (fault.code, fault.name) == (0x2B, "HSA_STATUS_ERROR_MEMORY_FAULT")
    assert "on address 0x7f00" in fault.message
    assert of_log("HSA_STATUS_SUCCESS, and no error") is None


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    of_exception(text)
    of_log(text)
    error = of_log(f"HSA_STATUS_ERROR: {text}")
    assert error is not None
    assert len(error.message) <= 300
