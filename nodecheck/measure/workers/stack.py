"""Runs in the renter's interpreter: which torch is here, what it sees, and whether it can use a card.

Stand-alone: Python >= 3.8, the standard library and torch (>= 2.0) alone. A worker that measures tries its card with
the functions below as it starts (`worker.py`); by itself this is started by its path as

    python stack.py find|describe|context|hip|cpu [CARD] DUMP_AFTER_SECONDS ANSWERS_DESCRIPTOR

`find` looks whether there is a torch, without importing it. `describe` says what the driver and torch say of
themselves. `context` makes a context and runs one tiny kernel on the only card of NVIDIA's that the environment
leaves, `hip` on that of AMD's, or on the one at the PCI address CARD; `cpu` runs the same kernel on the CPU.

Answers go to the descriptor, a JSON object a line:

    {"step": "import"}                               what is being done from here on
    {"item": "version", "value": "2.11.0+cu130"}     an answer; a later one replaces it
    {"item": "nccl", "error": {"type": …, "message": …, "code": …}}

Every item is asked on its own, so that one broken attribute costs nothing but itself. A hang leaves the name
of the step, and after DUMP_AFTER_SECONDS the stacks on stderr.
"""

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    # This script's folder: the renter's programs do not see it, so neither may the renter's torch.
    del sys.path[0]

import ctypes
import faulthandler
import glob
import json
import os
import re
import threading
import time
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

ELEMENTS = 2**20
"""How many integers the tiny kernel sums: 0 + 1 + … + (ELEMENTS - 1)."""

DRIVER_PATIENCE_SECONDS = 60.0
"""How long `describe` waits for cuInit before it goes on without it. With persistence mode off, cuInit starts
every card anew, which takes some seconds a card."""

MESSAGE_CHARACTERS = 2000

OF_INTEREST = re.compile(
    r"/lib(cuda|nvidia-ml|nccl|rccl|cudart|cudnn|amdhip64|hsa-runtime64|MIOpen|amd_smi|rocm_smi64|vgpu|cuda-control|vcuda|nvshare|gemhook)[-.\w]*\.so[.\w]*$"
)
"""Libraries worth naming when they are found in the process."""


class Pipe:
    """The way to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        os.set_inheritable(descriptor, False)

    def say(self, line: Dict[str, Any]) -> None:
        rest = (json.dumps(line, default=str) + "\n").encode("ascii")
        with self._lock:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]


class Answers:
    """What is found, line by line."""

    def __init__(self, say: Callable[[Dict[str, Any]], None]) -> None:
        self.say = say

    def step(self, name: str) -> None:
        self.say({"step": name})

    def value(self, item: str, value: Any) -> None:
        self.say({"item": item, "value": value})

    def error(self, item: str, error: Dict[str, Any]) -> None:
        self.say({"item": item, "error": error})

    def ask(self, item: str, question: Callable[[], Any]) -> Any:
        """Answer `item` with what `question` returns or raises; None where it raised."""
        try:
            value = question()
        except BaseException as error:  # whatever it is, the other items are still to be asked
            self.error(item, described(error))
            return None
        self.value(item, value)
        return value


def described(error: BaseException) -> Dict[str, Any]:
    """An exception as data; `code` is the CUDA error's number where the exception carries one."""
    code = getattr(error, "error_code", None)
    return {
        "type": type(error).__name__,
        "message": str(error)[:MESSAGE_CHARACTERS],
        "code": code if type(code) is int else None,
    }


class Api:
    """A vendor's API by ctypes: it gives the number of an error, where torch gives only its words."""

    def result(self, code: int) -> Dict[str, Any]:
        """What a call returned, with its name and text as the library gives them."""
        raise NotImplementedError

    def count(self) -> int:
        raise NotImplementedError

    def device(self, index: int) -> Dict[str, Any]:
        """UUID and PCI address of a device in the API's own order."""
        raise NotImplementedError

    def devices(self) -> List[Dict[str, Any]]:
        return [self.device(index) for index in range(self.count())]

    def require(self, code: int) -> None:
        if code != 0:
            raise DriverError(self.result(code))


class Driver(Api):
    """The CUDA driver API."""

    def __init__(self) -> None:
        """Raises OSError where there is no libcuda.so.1."""
        self.library = ctypes.CDLL("libcuda.so.1")

    def init(self) -> Dict[str, Any]:
        return self.result(self.library.cuInit(0))

    def result(self, code: int) -> Dict[str, Any]:
        return {
            "code": code,
            "name": self._text("cuGetErrorName", code),
            "message": self._text("cuGetErrorString", code),
        }

    def version(self) -> int:
        """1000 × major + 10 × minor."""
        number = ctypes.c_int()
        self.require(self.library.cuDriverGetVersion(ctypes.byref(number)))
        return number.value

    def count(self) -> int:
        count = ctypes.c_int()
        self.require(self.library.cuDeviceGetCount(ctypes.byref(count)))
        return count.value

    def device(self, index: int) -> Dict[str, Any]:
        handle = self.handle(index)
        uuid, address = ctypes.create_string_buffer(16), ctypes.create_string_buffer(64)
        self.require(self.library.cuDeviceGetUuid(uuid, handle))
        self.require(self.library.cuDeviceGetPCIBusId(address, 64, handle))
        return {"uuid": dashed(uuid.raw), "pci_address": address.value.decode("ascii", "replace").lower()}

    def handle(self, index: int) -> ctypes.c_int:
        handle = ctypes.c_int()
        self.require(self.library.cuDeviceGet(ctypes.byref(handle), index))
        return handle

    def retain_context(self) -> Dict[str, Any]:
        """Make the first device's primary context, the one torch will use, and keep it to the end."""
        context = ctypes.c_void_p()
        return self.result(self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.handle(0)))

    def _text(self, function: str, code: int) -> str:
        text = ctypes.c_char_p()
        getattr(self.library, function)(code, ctypes.byref(text))
        return (text.value or b"").decode("utf-8", "replace")


class Hip(Api):
    """HIP's runtime: the very library that torch has loaded, of which a machine often has several."""

    def __init__(self) -> None:
        """Raises OSError where this process has not loaded it."""
        paths = [path for path in loaded_libraries() if "/libamdhip64" in path]
        if not paths:
            raise OSError("this torch has not loaded HIP's runtime (libamdhip64): it is no build for ROCm")
        self.library = ctypes.CDLL(paths[0])
        for function in ("hipGetErrorName", "hipGetErrorString"):
            getattr(self.library, function).restype = ctypes.c_char_p

    def init(self) -> Dict[str, Any]:
        return self.result(self.library.hipInit(0))

    def result(self, code: int) -> Dict[str, Any]:
        return {
            "code": code,
            "name": (self.library.hipGetErrorName(code) or b"").decode("utf-8", "replace"),
            "message": (self.library.hipGetErrorString(code) or b"").decode("utf-8", "replace"),
        }

    def version(self) -> int:
        """10 000 000 × major + 100 000 × minor + patch."""
        number = ctypes.c_int()
        self.require(self.library.hipRuntimeGetVersion(ctypes.byref(number)))
        return number.value

    def count(self) -> int:
        count = ctypes.c_int()
        self.require(self.library.hipGetDeviceCount(ctypes.byref(count)))
        return count.value

    def device(self, index: int) -> Dict[str, Any]:
        uuid = ctypes.create_string_buffer(16)
        self.require(self.library.hipDeviceGetUuid(uuid, index))
        return {"uuid": hip_uuid(uuid.raw), "pci_address": self.address(index)}

    def address(self, index: int) -> str:
        address = ctypes.create_string_buffer(64)
        self.require(self.library.hipDeviceGetPCIBusId(address, 64, index))
        return address.value.decode("ascii", "replace").lower()

    def addresses(self) -> List[str]:
        return [self.address(index) for index in range(self.count())]

    def index(self, address: Optional[str]) -> int:
        """Which device in HIP's order is at the PCI address; the first where none is given.

        Raises LookupError where HIP shows none there, or several, as of partitions whose addresses it cuts short.
        """
        if address is None:
            return 0
        addresses = self.addresses()
        if addresses.count(address) != 1:
            raise LookupError(
                "HIP shows %d devices at %s, of %d" % (addresses.count(address), address, len(addresses))
            )
        return addresses.index(address)

    def use(self, index: int) -> Dict[str, Any]:
        """Have a context on the device, as torch will."""
        code = self.library.hipSetDevice(index)
        return self.result(code or self.library.hipDeviceSynchronize())


class DriverError(Exception):
    def __init__(self, result: Dict[str, Any]) -> None:
        super().__init__("%(name)s: %(message)s" % result)
        self.error_code = result["code"]


def dashed(raw: bytes) -> str:
    """A UUID as NVML writes it."""
    digits = raw.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def hip_uuid(raw: bytes) -> Optional[str]:
    """A UUID as KFD and ROCm's tools write it: HIP's sixteen bytes are the characters of that number.

    None where the card has none to give (a virtual function may not).
    """
    digits = raw.decode("ascii", "replace").lower()
    return "GPU-" + digits if re.match(r"[0-9a-f]{16}$", digits) else None


def torch_uuid(torch: Any, properties: Any) -> Optional[str]:
    """The UUID in a device's properties; None where this torch has none."""
    told = getattr(properties, "uuid", None)
    if told is None:
        return None
    if not torch.version.hip:
        return "GPU-" + str(told)
    digits = str(told).replace("-", "")
    return hip_uuid(bytes.fromhex(digits)) if re.match(r"[0-9a-f]{32}$", digits) else None


def find(answers: Answers) -> None:
    answers.ask("executable", lambda: sys.executable)
    answers.ask("python", lambda: "%d.%d.%d" % sys.version_info[:3])
    answers.ask("prefix", lambda: sys.prefix)
    answers.ask("torch", torch_origin)


def torch_origin() -> Optional[str]:
    """The file that `import torch` would load first; None where there is no torch."""
    from importlib.util import find_spec

    spec = find_spec("torch")
    # A bare folder called torch is a namespace without a file: no PyTorch.
    return spec.origin if spec is not None and spec.has_location else None


def describe(answers: Answers) -> None:
    answers.step("search")
    answers.ask("folders", torch_folders)
    answers.ask("nccl_wheels", nccl_wheels)
    answers.ask("nccl_settings", nccl_settings)

    answers.step("init")
    driver, devices = ask_driver(answers)

    answers.step("import")
    torch, seconds = import_torch(answers)
    if torch is None:
        return
    answers.value("import_seconds", seconds)

    answers.step("attributes")
    answers.ask("version", lambda: str(torch.__version__))
    answers.ask("path", lambda: os.path.dirname(torch.__file__))
    answers.ask("debug", lambda: bool(torch.version.debug))
    answers.ask("cuda", lambda: torch.version.cuda)
    answers.ask("hip", lambda: torch.version.hip)
    answers.ask("arch_list", lambda: arch_list(torch))
    answers.ask("cudnn", lambda: torch.backends.cudnn.version())
    answers.ask("nccl", lambda: list(torch.cuda.nccl.version()))
    answers.ask("libraries", loaded_libraries)
    answers.ask("nccl_loaded", nccl_loaded)

    answers.step("devices")  # from here on a sick card can hang every call
    if driver == "silent":
        answers.error(
            "available", {"type": "TimeoutError", "message": "cuInit had not returned", "code": None}
        )
        return
    if torch.version.hip:
        devices = ask_hip(answers)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers.ask("available", torch.cuda.is_available)
        count = answers.ask("device_count", torch.cuda.device_count)
        # torch.cuda.device_count() may ask another library than the runtime, and be told otherwise.
        if torch.version.cuda or torch.version.hip:
            answers.ask("runtime_count", lambda: int(torch._C._cuda_getDeviceCount()))
        answers.ask("devices", lambda: [torch_device(torch, index, devices) for index in range(count or 0)])
    answers.ask("warnings", lambda: [str(warning.message)[:MESSAGE_CHARACTERS] for warning in caught][:20])
    answers.ask("libraries", loaded_libraries)
    answers.step("done")


def import_torch(answers: Answers) -> Tuple[Any, float]:
    """torch and the seconds it took, or None (and the answer `import` says why)."""
    began = time.perf_counter()
    try:
        import torch
    except BaseException as error:  # an ImportError mostly, but also what a half-installed package raises
        why = described(error)
        why["missing"] = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        answers.error("import", why)
        return None, 0.0
    return torch, time.perf_counter() - began


def torch_folders() -> List[str]:
    """Folders that hold a torch, in the order of sys.path; lib64 is often the same as lib."""
    folders = [os.path.realpath(os.path.join(entry, "torch")) for entry in sys.path if entry]
    here = [folder for folder in folders if os.path.isfile(os.path.join(folder, "__init__.py"))]
    return list(dict.fromkeys(here))


def nccl_wheels() -> List[Dict[str, Any]]:
    """NCCL as packages of its own beside torch: path and the package's version."""
    found = []
    for entry in sys.path:
        for path in glob.glob(os.path.join(glob.escape(entry), "nvidia", "nccl", "lib", "libnccl.so*")):
            packages = glob.glob(os.path.join(glob.escape(entry), "nvidia_nccl_*.dist-info"))
            named = re.search(r"-([^-]+)\.dist-info$", packages[0]) if len(packages) == 1 else None
            found.append({"path": path, "version": named.group(1) if named else None})
    return found


def nccl_settings() -> List[List[str]]:
    """The user's own NCCL settings, of which only NCCL's variables are read."""
    path = os.environ.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf")
    if not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        pairs = [line.partition("=")[::2] for line in file.read(65536).splitlines() if "=" in line]
    return [[name.strip(), value.strip()] for name, value in pairs if name.strip().startswith("NCCL_")]


def ask_driver(answers: Answers) -> Tuple[str, List[Dict[str, Any]]]:
    """Ask the driver API in a thread: a cuInit that hangs must not cost what torch can say without it.

    Returns `silent` where cuInit has not returned, else `answered`; and the devices, if there are any.
    """
    devices: List[Dict[str, Any]] = []

    def talk() -> None:
        try:
            driver = Driver()
        except OSError as error:
            answers.error("init", dict(described(error), missing=True))
            return
        result = answers.ask("init", driver.init)
        answers.ask("libcuda_version", driver.version)
        if result and result["code"] == 0:
            devices.extend(answers.ask("driver_devices", driver.devices) or [])

    thread = threading.Thread(target=talk, name="cuInit", daemon=True)
    thread.start()
    thread.join(DRIVER_PATIENCE_SECONDS)
    return ("silent" if thread.is_alive() else "answered"), list(devices)


def ask_hip(answers: Answers) -> List[Dict[str, Any]]:
    """The devices in HIP's own order, if there are any."""
    try:
        hip = Hip()
    except OSError as error:
        answers.error("hip_init", described(error))
        return []
    answers.ask("hip_runtime", hip.version)
    result = answers.ask("hip_init", hip.init)
    return (answers.ask("driver_devices", hip.devices) or []) if result and result["code"] == 0 else []


def arch_list(torch: Any) -> List[str]:
    # torch.cuda.get_arch_list() may be empty where no card can be used, which is when it matters.
    flags = getattr(torch._C, "_cuda_getArchFlags", None)
    return (flags() or "").split() if flags else list(torch.cuda.get_arch_list())


def loaded_libraries() -> List[str]:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(None, 5)[-1].strip() for line in file if ".so" in line}
    return sorted(path for path in paths if OF_INTEREST.search(path))


def nccl_loaded() -> Optional[Dict[str, Any]]:
    """The NCCL (or RCCL) library that torch calls and the version it gives itself; None where none is loaded.

    A preloaded library stands beside torch's own: it is the one whose functions are found first.
    """

    def function(path: Optional[str]) -> Any:
        return ctypes.CDLL(path).ncclGetVersion

    def address(path: Optional[str]) -> Optional[int]:
        return ctypes.cast(function(path), ctypes.c_void_p).value

    paths = [path for path in loaded_libraries() if re.search(r"/lib[nr]ccl\.so", path)]
    if not paths:
        return None
    try:
        first = address(None)
    except AttributeError:  # loaded for torch alone
        first = None
    used = next((path for path in paths if address(path) == first), paths[0])
    version = ctypes.c_int()
    code = function(used)(ctypes.byref(version))
    return {"path": used, "version": version.value if code == 0 else None}


def torch_device(torch: Any, index: int, devices: List[Dict[str, Any]]) -> Dict[str, Any]:
    """A device by torch; its UUID and address by the driver API where torch is too old to tell."""
    properties = torch.cuda.get_device_properties(index)
    known: Dict[str, Any] = devices[index] if index < len(devices) else {}

    def item(name: str) -> Any:
        return getattr(properties, name, None)

    def address() -> Optional[str]:
        if item("pci_bus_id") is None:
            return known.get("pci_address")
        return "%04x:%02x:%02x.0" % (
            item("pci_domain_id") or 0,
            item("pci_bus_id"),
            item("pci_device_id") or 0,
        )

    # A CUDA build has gcnArchName too, and writes the card's name into it.
    arch = str(item("gcnArchName")).split(":")[0] if torch.version.hip else None
    return {
        "index": index,
        "name": item("name"),
        "uuid": torch_uuid(torch, properties) or known.get("uuid"),
        "pci_address": address(),
        "capability": arch or "%s.%s" % (item("major"), item("minor")),
        "total_bytes": item("total_memory"),
        "multiprocessors": item("multi_processor_count"),
    }


def context(answers: Answers) -> None:
    if make_context(answers):
        kernel(answers, "cuda:0")


def hip(answers: Answers, address: Optional[str] = None) -> None:
    answers.step("import")
    torch, _ = import_torch(answers)
    index = None if torch is None else make_hip_context(answers, address)
    if index is not None:
        add_up(answers, torch, "cuda:%d" % index)


def cpu(answers: Answers) -> None:
    kernel(answers, "cpu")


def kernel(answers: Answers, device: str) -> None:
    answers.step("import")
    torch, _ = import_torch(answers)
    if torch is not None:
        add_up(answers, torch, device)


def add_up(answers: Answers, torch: Any, device: Any) -> None:
    """A sum of integers on `device`, whose result is exactly known."""
    answers.step("kernel")
    try:
        began = time.perf_counter()
        # .item() waits for the card.
        total = int(torch.arange(ELEMENTS, dtype=torch.int64, device=device).sum().item())
        answers.value("kernel_seconds", time.perf_counter() - began)
    except BaseException as error:
        answers.error("sum", described(error))
        return
    answers.value("sum", {"got": total, "expected": ELEMENTS * (ELEMENTS - 1) // 2})
    if str(device) != "cpu":
        answers.ask("free_bytes", lambda: int(torch.cuda.mem_get_info(device)[0]))
    answers.step("done")


def make_context(answers: Answers) -> bool:
    """Make a context through the driver API, whose errors have numbers; False where the driver refused.

    Without libcuda torch has the word: it may be built for another vendor's cards.
    """
    answers.step("init")
    try:
        driver = Driver()
    except OSError as error:
        answers.error("init", dict(described(error), missing=True))
        return True
    result = answers.ask("init", driver.init)
    if not result or result["code"] != 0:
        return False
    answers.step("context")
    answers.ask("device", lambda: driver.device(0))
    began = time.perf_counter()
    result = answers.ask("context", driver.retain_context)
    answers.value("context_seconds", time.perf_counter() - began)
    return bool(result and result["code"] == 0)


def make_hip_context(answers: Answers, address: Optional[str] = None) -> Optional[int]:
    """The same through HIP's runtime, once torch has loaded it, on the device at the PCI address, else on the first.

    Its index; None where HIP refused, or is not there.
    """
    answers.step("init")
    try:
        hip = Hip()
    except OSError as error:
        answers.error("init", described(error))
        return None
    result = answers.ask("init", hip.init)
    if not result or result["code"] != 0:
        return None
    answers.step("context")
    try:
        index = hip.index(address)
    except (DriverError, LookupError) as error:
        answers.error("context", described(error))
        return None
    answers.ask("device", lambda: hip.device(index))
    began = time.perf_counter()
    result = answers.ask("context", lambda: hip.use(index))
    answers.value("context_seconds", time.perf_counter() - began)
    return index if result and result["code"] == 0 else None


def main() -> None:
    mode, *card, dump_after, descriptor = sys.argv[1:]
    faulthandler.enable(file=2)
    faulthandler.dump_traceback_later(float(dump_after), file=2)
    answers = Answers(Pipe(int(descriptor)).say)
    {"find": find, "describe": describe, "context": context, "hip": hip, "cpu": cpu}[mode](answers, *card)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not through Python's own end: a card that hangs would hang it too, and what was to be said is said.
    os._exit(0)


if __name__ == "__main__":
    main()
