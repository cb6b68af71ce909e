"""A torch that stands for a CUDA build, or for one of ROCm with FAKE_HIP=its version. FAKE_TORCH names what is wrong:

hangs, raises, exits, dies     while it is imported; `slow` takes a second
prints                         garbage on stdout and stderr
broken                         attributes that raise
kernel-209, kernel-wrong, kernel-hangs, kernel-dies     in the first kernel
old                            a torch that tells neither UUID nor PCI address
amdsmi                         torch.cuda.device_count() is 0, whatever the runtime says
hsa                            ROCm's runtime aborts in the first kernel
"""

import ctypes
import os
import signal
import sys
import time
import warnings

FAULT = os.environ.get("FAKE_TORCH", "")

if FAULT == "hangs":
    time.sleep(600)
if FAULT == "slow":
    time.sleep(1)
if FAULT == "raises":
    raise ImportError("libcudart.so.13: cannot open shared object file: No such file or directory")
if FAULT == "exits":
    sys.exit("torch does not like it here")
if FAULT == "dies":
    os.kill(os.getpid(), signal.SIGILL)
if FAULT == "prints":
    print('{"item": "version", "value": "not mine"}')
    print("more garbage", file=sys.stderr)
    os.write(1, b"\xff\xfe" * 20000)

HIP = os.environ.get("FAKE_HIP")
_library = ctypes.CDLL("libamdhip64.so.7") if HIP else None

__version__ = "2.11.0+rocm7.2" if HIP else "2.11.0+cu130"
int64 = "int64"


class AcceleratorError(RuntimeError):
    pass


class version:
    cuda = None if HIP else "13.0"
    hip = HIP
    debug = False


class _C:
    @staticmethod
    def _cuda_getArchFlags():
        return "gfx90a gfx942 gfx950" if HIP else "sm_80 sm_90 compute_90"

    @staticmethod
    def _cuda_getDeviceCount():
        return _count()


class backends:
    class cudnn:
        @staticmethod
        def version():
            if FAULT == "broken":
                raise RuntimeError("cuDNN version incompatibility")
            return 3005001 if HIP else 91900


class _Properties:
    name = "AMD Instinct MI300X" if HIP else "NVIDIA H200"
    gcnArchName = "gfx942:sramecc+:xnack-" if HIP else "NVIDIA H200"
    major, minor = (9, 4) if HIP else (9, 0)
    total_memory = 206141652992 if HIP else 150109880320
    multi_processor_count = 304 if HIP else 132

    def __init__(self, index):
        if FAULT != "old" and HIP:
            raw = ctypes.create_string_buffer(16)
            _library.hipDeviceGetUuid(raw, index)
            # As torch writes it: the characters of HIP's number, each as a number of its own.
            digits = raw.raw.hex()
            parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
            self.uuid = "-".join(parts)
        elif FAULT != "old":
            self.uuid = "%08x-0000-4000-8000-000000000000" % (index + 1)
            self.pci_domain_id, self.pci_bus_id, self.pci_device_id = 0, 0x18 + index, 0


def _count():
    if not HIP:
        return int(os.environ.get("FAKE_CUDA_CARDS", "1"))
    count = ctypes.c_int()
    _library.hipGetDeviceCount(ctypes.byref(count))
    return count.value


class cuda:
    class nccl:
        @staticmethod
        def version():
            return (2, 28, 9, "suffix")

    @staticmethod
    def is_available():
        warnings.warn("CUDA initialization: this is a warning", stacklevel=2)
        return True

    @staticmethod
    def device_count():
        return 0 if FAULT == "amdsmi" else _count()

    @staticmethod
    def get_device_properties(index):
        return _Properties(index)

    @staticmethod
    def get_device_name(index):
        return _Properties.name

    @staticmethod
    def set_device(index):
        pass

    @staticmethod
    def synchronize(device=None):
        pass

    empty_cache = synchronize

    @staticmethod
    def mem_get_info(device):
        return (149437939712, 150109880320)


def device(*words):
    return ":".join(map(str, words))


class _Numbers:
    def __init__(self, count):
        self.count = count

    def sum(self):
        return self

    def item(self):
        total = self.count * (self.count - 1) // 2
        return total + 1 if FAULT == "kernel-wrong" else total


def arange(count, dtype, device):
    if FAULT == "kernel-hangs":
        time.sleep(600)
    if FAULT == "kernel-dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "hsa":
        os.write(
            2,
            b":0:rocdevice.cpp :2984: 1 us: Callback: Queue 0x7f00 aborting with error : "
            b"HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the "
            b"largest legal address. code: 0x29\n",
        )
        os.kill(os.getpid(), signal.SIGABRT)
    if FAULT == "kernel-209" and HIP:
        raise RuntimeError(
            "HIP error: invalid device function\nHIP kernel errors might be asynchronously reported"
        )
    if FAULT == "kernel-209":
        error = AcceleratorError(
            "CUDA error: no kernel image is available for execution on the device\n"
            "CUDA kernel errors might be asynchronously reported at some other API call"
        )
        error.error_code = 209
        raise error
    return _Numbers(count)


if FAULT == "broken":
    del version.debug
    del cuda.nccl
