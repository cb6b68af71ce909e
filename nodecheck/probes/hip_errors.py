"""HIP's errors by number, and those behind the words of torch, of HIP and of ROCm's runtime (HSA) below it.

Numbers, names and texts: `hip_runtime_api.h` and `hipGetErrorString` of HIP 6.4 and 7.2; HSA's from `hsa.h` and
`hsa_ext_amd.h` of ROCR 1.15.
"""

from __future__ import annotations

import re

from nodecheck.facts.stack import CudaError

ERRORS: dict[int, tuple[str, str]] = {
    1: ("hipErrorInvalidValue", "invalid argument"),
    2: ("hipErrorOutOfMemory", "out of memory"),
    3: ("hipErrorNotInitialized", "initialization error"),
    35: ("hipErrorInsufficientDriver", "driver version is insufficient for runtime version"),
    98: ("hipErrorInvalidDeviceFunction", "invalid device function"),
    100: ("hipErrorNoDevice", "no ROCm-capable device is detected"),
    101: ("hipErrorInvalidDevice", "invalid device ordinal"),
    200: ("hipErrorInvalidImage", "device kernel image is invalid"),
    209: ("hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"),
    214: ("hipErrorECCNotCorrectable", "uncorrectable ECC error encountered"),
    303: ("hipErrorSharedObjectInitFailed", "shared object initialization failed"),
    304: ("hipErrorOperatingSystem", "OS call failed or operation not supported on this OS"),
    700: ("hipErrorIllegalAddress", "an illegal memory access was encountered"),
    702: ("hipErrorLaunchTimeOut", "the launch timed out and was terminated"),
    719: ("hipErrorLaunchFailure", "unspecified launch failure"),
    801: ("hipErrorNotSupported", "operation not supported"),
    999: ("hipErrorUnknown", "unknown error"),
}

_TORCH_SAYS: tuple[tuple[str, int], ...] = (
    ("HIP out of memory", 2),
    ("No HIP GPUs are available", 100),
    ("Unable to find code object for all current devices", 209),
    ("hipErrorNoBinaryForGpu", 209),
)

_HSA: dict[str, int] = {
    "HSA_STATUS_ERROR": 0x1000,
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES": 0x1008,
    "HSA_STATUS_ERROR_INVALID_ISA": 0x100F,
    "HSA_STATUS_ERROR_EXCEPTION": 0x1016,
    "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION": 0x29,
    "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION": 0x2A,
    "HSA_STATUS_ERROR_MEMORY_FAULT": 0x2B,
}

_WORDED = re.compile(r"\bHIP error: (.*)")
_OF_HSA = re.compile(r"\b(HSA_STATUS_ERROR[A-Z_]*)\b(?::? *(.*))?")
_FAULT = re.compile(r"\bMemory access fault by GPU\b.*")


def of_code(code: int) -> CudaError:
    """The error with this number."""
    name, message = ERRORS.get(code, (f"HIP error {code}", ""))
    return CudaError(code=code, name=name, message=message)


def of_exception(message: str, code: int | None = None) -> CudaError | None:
    """The error behind an exception of a torch built for ROCm; None where it is none of HIP's.

    `code` is the exception's `error_code` (torch >= 2.8), which of a CUDA build is CUDA's.
    """
    worded = _WORDED.search(message)
    if worded and code:
        return of_code(code)
    for words, number in _TORCH_SAYS:
        if words in message:
            return of_code(number)
    if worded:
        said = worded[1].strip()
        return next((of_code(number) for number, (_, text) in ERRORS.items() if said == text), None)
    return None


def of_log(log: str) -> CudaError | None:
    """The error with which ROCm's runtime ended a process: it writes the reason and aborts."""
    fault = _FAULT.search(log)
    if fault:
        name = "HSA_STATUS_ERROR_MEMORY_FAULT"
        return CudaError(code=_HSA[name], name=name, message=fault[0][:300])
    found = _OF_HSA.search(log)
    if found is None:
        return None
    return CudaError(code=_HSA.get(found[1], 0x1000), name=found[1], message=(found[2] or "").strip()[:300])
