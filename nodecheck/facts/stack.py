"""Driver, libraries and PyTorch, as the renter's own interpreter finds them."""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Fact, Gathered, Maybe, seen, seen_on_amd


class Driver(Fact):
    version: Maybe[str] = seen(
        "kernel module; of amdgpu only where it was installed beside the kernel",
        linux="/proc/driver/nvidia/version, or /sys/module/amdgpu/version",
        nvml="nvmlSystemGetDriverVersion",
    )
    library_version: Maybe[str] = seen("user-space library", nvml="nvmlSystemGetNVMLVersion")
    cuda_version: Maybe[str] = seen(
        "highest CUDA that the driver serves, `13.0`", nvml="nvmlSystemGetCudaDriverVersion_v2"
    )
    libcuda_version: Maybe[str] = seen(
        "CUDA of the libcuda that programs load; above `cuda_version` it is a forward-compatibility package",
        torch="libcuda.so.1 cuDriverGetVersion",
    )
    module: Maybe[Literal["open", "proprietary"]] = seen(
        "kernel module flavour", linux="/proc/driver/nvidia/version"
    )
    branch: Maybe[str] = seen("driver branch", nvml="nvmlSystemGetDriverBranch")
    confidential_computing: Maybe[bool] = seen(
        "GPU confidential computing", nvml="nvmlSystemGetConfComputeState"
    )
    rocm_version: Maybe[str] = seen_on_amd(
        "ROCm of the machine or image, `7.2.0`; torch carries its own",
        linux="/opt/rocm/.info/version",
        amd_smi="version, rocm_version",
    )
    amdsmi_version: Maybe[str] = seen_on_amd(
        "ROCm's management library, `26.2.0`; it goes with ROCm's release, not with the kernel module",
        amd_smi="version, amdsmi_library_version",
    )
    rocm_installations: Maybe[tuple[tuple[str, str], ...]] = seen_on_amd(
        "(folder, version) of every ROCm here", linux="/opt/rocm*/.info/version"
    )
    package_version: Maybe[str] = seen_on_amd(
        "package of the kernel driver, `6.16.13-2278356.24.04`", linux="/usr/src/amdgpu-*"
    )
    in_tree: Maybe[bool] = seen_on_amd(
        "amdgpu is the kernel's own, not one installed beside it", linux="/sys/module/amdgpu"
    )


class Interpreter(Fact):
    path: str
    version: str
    chosen: str
    """Why this one: `--python`, `the active environment`, `first python3 on PATH that has torch`, …"""


class Library(Fact):
    """A shared library that a program of the renter may pick up."""

    path: str
    version: Maybe[str] = seen("version in the file name or metadata", linux="file name")
    origin: str
    """How it is reached: `LD_LIBRARY_PATH`, `ld.so.cache`, `wheel`, `ROCm` (an installation in /opt), `LD_PRELOAD`,
    `/etc/ld.so.preload`, or `loaded` (found in torch's process)."""


class TorchDevice(Fact):
    """A device in torch's own order."""

    index: int
    name: Maybe[str] = seen("product name", torch="get_device_properties().name")
    uuid: Maybe[str] = seen("`GPU-…`, as NVML writes it", torch="get_device_properties().uuid")
    pci_address: Maybe[str] = seen("`0000:1b:00.0`", torch="get_device_properties().pci_*")
    capability: Maybe[str] = seen("`9.0`, or `gfx942`", torch="get_device_properties().major, minor")
    total_bytes: Maybe[int] = seen("memory", torch="get_device_properties().total_memory")
    multiprocessors: Maybe[int] = seen("SMs", torch="get_device_properties().multi_processor_count")


class Torch(Fact):
    version: Maybe[str] = seen("version with its build tag, `2.11.0+cu130`", torch="torch.__version__")
    path: Maybe[str] = seen("folder of the package", torch="torch.__file__")
    debug: Maybe[bool] = seen("a debug build", torch="torch.version.debug")
    cuda: Maybe[str] = seen("CUDA that torch was built with, `12.8`", torch="torch.version.cuda")
    hip: Maybe[str] = seen("HIP that torch was built with", torch="torch.version.hip")
    hip_runtime: Maybe[str] = seen_on_amd(
        "HIP's runtime in torch's process, `7.2.26015`", torch="libamdhip64 hipRuntimeGetVersion"
    )
    cudnn: Maybe[str] = seen("cuDNN", torch="torch.backends.cudnn.version()")
    miopen: Maybe[str] = seen_on_amd("MIOpen", torch="torch.backends.cudnn.version()")
    nccl: Maybe[str] = seen("NCCL or RCCL that torch was built with", torch="torch.cuda.nccl.version()")
    nccl_loaded: Maybe[Library] = seen(
        "the NCCL library in torch's process, with the version it gives itself; `not_present` where NCCL is "
        "linked into torch",
        torch="/proc/self/maps, ncclGetVersion",
    )
    libraries: Maybe[tuple[str, ...]] = seen(
        "paths of the GPU libraries in torch's process", torch="/proc/self/maps"
    )
    arch_list: Maybe[tuple[str, ...]] = seen(
        "`sm_90`, `compute_90`, `gfx942`", torch="torch.cuda.get_arch_list()"
    )
    available: Maybe[bool] = seen("torch sees a GPU", torch="torch.cuda.is_available()")
    device_count: Maybe[int] = seen("devices torch sees", torch="torch.cuda.device_count()")
    runtime_count: Maybe[int] = seen(
        "devices that the runtime counts, of which torch may count others by other means",
        torch="torch._C._cuda_getDeviceCount()",
    )
    devices: Maybe[tuple[TorchDevice, ...]] = seen("devices", torch="torch.cuda.get_device_properties()")
    import_seconds: Maybe[float] = seen("time for `import torch`", torch="clock around the import")
    folders: Maybe[tuple[str, ...]] = seen(
        "folders on this interpreter's sys.path that hold a torch; the first is the one imported",
        torch="sys.path",
    )
    warnings: Maybe[tuple[str, ...]] = seen("what torch warned of", torch="warnings while it looked for GPUs")


class CudaError(Fact):
    """A result of CUDA's driver API, of HIP's runtime, or of ROCm's below it."""

    code: int
    name: str
    """`CUDA_ERROR_SYSTEM_NOT_READY`, `hipErrorNoDevice`, `HSA_STATUS_ERROR_OUT_OF_RESOURCES`."""
    message: str


class ContextTest(Fact):
    """A context and one tiny kernel on one card, in a process of its own."""

    card: str
    """`Card.key`, or `cpu`."""
    ok: Maybe[bool] = seen("the kernel's result was right", torch="a sum of 2^20 integers on the card")
    step: Maybe[str] = seen(
        "the step it was in when it ended: `init`, `context`, `import`, `kernel`, `done`", torch="worker"
    )
    signal: Maybe[str] = seen("the signal that ended the process, if one did, `SIGSEGV`", torch="worker")
    error: Maybe[CudaError] = seen("the CUDA error, if there was one", torch="cuInit, or the exception")
    context_seconds: Maybe[float] = seen("to make the context", torch="first allocation")
    kernel_seconds: Maybe[float] = seen("first kernel, synchronised", torch="first kernel")
    free_bytes: Maybe[int] = seen("free memory as CUDA sees it", torch="torch.cuda.mem_get_info()")


class Toolkit(Fact):
    path: str
    version: Maybe[str] = seen("CUDA toolkit", linux="version.json, version.txt or nvcc --version")


class Extension(Fact):
    """A package with code for cards, beside torch."""

    name: str
    version: str
    built_for: Maybe[tuple[Literal["cuda", "hip"], ...]] = seen(
        "platforms that it carries code for; none: no code of its own",
        linux="sections and linked libraries of its shared objects",
    )


class Stack(Gathered):
    driver: Driver = Driver()
    interpreter: Maybe[Interpreter] = seen("the renter's Python", linux="PATH")
    torch: Maybe[Torch] = seen("PyTorch in that interpreter", torch="import torch")
    extensions: Maybe[tuple[Extension, ...]] = seen(
        "packages with GPU code in that interpreter, torch and triton among them",
        linux="the packages' metadata and shared objects",
    )
    other_torches: Maybe[tuple[str, ...]] = seen(
        "further interpreters and folders with a torch of their own", linux="PATH, sys.path"
    )
    cuda_init: Maybe[CudaError] = seen("what cuInit(0) says; code 0 is success", torch="libcuda.so.1 cuInit")
    contexts: Maybe[tuple[ContextTest, ...]] = seen("a context and a kernel on every card", torch="worker")
    nccl_libraries: Maybe[tuple[Library, ...]] = seen("NCCL libraries within reach", linux="search paths")
    driver_libraries: Maybe[tuple[Library, ...]] = seen(
        "libcuda and libnvidia-ml within reach", linux="search paths"
    )
    preloads: Maybe[tuple[Library, ...]] = seen(
        "libraries put before every program's own, and known interceptors of CUDA in torch's process",
        linux="LD_PRELOAD, /etc/ld.so.preload",
        torch="/proc/self/maps",
    )
    nccl_settings: Maybe[tuple[tuple[str, str], ...]] = seen(
        "settings from NCCL's own files, (`NCCL_…`, value); the environment goes before them",
        linux="/etc/nccl.conf",
        torch="NCCL_CONF_FILE, or ~/.nccl.conf",
    )
    toolkits: Maybe[tuple[Toolkit, ...]] = seen("CUDA toolkits", linux="/usr/local/cuda*, CUDA_HOME, nvcc")
    environment: Maybe[tuple[tuple[str, str], ...]] = seen(
        "allow-listed environment, sorted by name", linux="the process's environment"
    )
    image_hints: Maybe[tuple[str, ...]] = seen(
        "what the container image says of itself", linux="environment, files"
    )
