"""CUDA errors by number, and the number behind torch's words.

Numbers, names and texts: `cuda.h` and `cudaGetErrorString` of the CUDA 12.9 runtime. The driver's and the
runtime's numbers agree, save for those marked as the runtime's own.
"""

from __future__ import annotations

import re

from nodecheck.facts.stack import CudaError

ERRORS: dict[int, tuple[str, str]] = {
    0: ("CUDA_SUCCESS", "no error"),
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    34: ("CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"),
    # The runtime's own.
    35: ("cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"),
    36: ("cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"),
    100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    102: ("CUDA_ERROR_DEVICE_NOT_LICENSED", "device doesn't have valid Grid license"),
    # The runtime's own.
    127: ("cudaErrorStartupFailure", "startup failure in cuda runtime"),
    200: ("CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    209: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"),
    214: ("CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"),
    216: (
        "CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
        "exclusive-thread device already in use by a different thread",
    ),
    218: ("CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    220: ("CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution"),
    221: ("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"),
    222: (
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the provided PTX was compiled with an unsupported toolchain.",
    ),
    223: ("CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX JIT compilation was disabled"),
    226: ("CUDA_ERROR_CONTAINED", "Invalid access of peer GPU memory over nvlink or a hardware error"),
    304: ("CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    702: ("CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"),
    714: ("CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"),
    715: ("CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"),
    716: ("CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"),
    717: ("CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space"),
    718: ("CUDA_ERROR_INVALID_PC", "invalid program counter"),
    719: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    800: ("CUDA_ERROR_NOT_PERMITTED", "operation not permitted"),
    801: ("CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"),
    803: (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "system has unsupported display driver / cuda driver combination",
    ),
    804: (
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "forward compatibility was attempted on non supported HW",
    ),
    805: (
        "CUDA_ERROR_MPS_CONNECTION_FAILED",
        "MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    806: (
        "CUDA_ERROR_MPS_RPC_FAILURE",
        "the remote procedural call between the MPS server and the MPS client failed",
    ),
    807: ("CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server is not ready to accept new MPS client requests"),
    808: (
        "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        "the hardware resources required to create MPS client have been exhausted",
    ),
    809: (
        "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
        "the hardware resources required to support device connections have been exhausted",
    ),
    810: ("CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS client has been terminated by the server"),
    999: ("CUDA_ERROR_UNKNOWN", "unknown error"),
}

_TORCH_SAYS: tuple[tuple[str, int], ...] = (
    ("CUDA out of memory", 2),
    ("The NVIDIA driver on your system is too old", 35),
    ("No CUDA GPUs are available", 100),
)
"""Where torch has words of its own."""

_NUMBERED = re.compile(r"\bError (\d{1,4}): ")
_WORDED = re.compile(r"\bCUDA (?:driver )?error: (.*)")


def of_code(code: int, name: str = "", message: str = "") -> CudaError:
    """The error with this number, in the driver's own words where it gave some."""
    known_name, known_message = ERRORS.get(code, (f"CUDA error {code}", ""))
    return CudaError(code=code, name=name or known_name, message=message or known_message)


def of_exception(message: str, code: int | None = None) -> CudaError | None:
    """The CUDA error behind an exception of torch; None where it was no CUDA error.

    `code` is the exception's `error_code` (torch >= 2.8); older ones only have the runtime's text.
    """
    if code:
        return of_code(code)
    numbered = _NUMBERED.search(message)
    if numbered:
        return of_code(int(numbered[1]))
    for words, number in _TORCH_SAYS:
        if words in message:
            return of_code(number)
    worded = _WORDED.search(message)
    if worded:
        said = worded[1].strip()
        for number, (_, text) in ERRORS.items():
            if said == text:
                return of_code(number)
    return None
