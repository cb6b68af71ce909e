"""Stage `context`: what starting up cost, one exact kernel, and who holds the card's memory.

Times were taken as the worker started (`Worker.start`), when each happened for the first and only time. Free memory
is asked three times over: of torch, of the driver API (both see this process's context), and of NVML (which sees
the whole card). `total - free` of NVML is what is in use by anybody; the driver's total is NVML's less what the
driver keeps for itself.
"""

import ctypes
from typing import Any, Dict


def run(worker: Any, _arguments: Dict[str, Any]) -> Dict[str, Any]:
    """No arguments. Rows `context.import`, `context.create`, `context.kernel` (s); `memory` in bytes."""
    started = worker.started
    rows = [
        {"measure": "context." + name, "unit": "s", "values": [started[name + "_seconds"]]}
        for name in ("import", "create", "kernel")
        if name + "_seconds" in started
    ]
    worker.step("kernel")
    count = 2**22
    # Every element against its value, not only a sum: of another path than the one that made it.
    made = worker.torch.arange(count, dtype=worker.torch.int64, device=worker.device) * 3 + 1
    expected = worker.torch.arange(1, 3 * count + 1, 3, dtype=worker.torch.int64, device=worker.device)
    differs = (made != expected).nonzero().flatten()
    wrong = int(differs.numel())
    examples = [
        "element %d: expected %d, read %d" % (i, int(expected[i].item()), int(made[i].item()))
        for i in differs[:5].tolist()
    ]
    kernel = started["context"]["items"]["sum"]
    if kernel["got"] != kernel["expected"]:
        wrong += 1
        examples.append("first sum: expected %(expected)d, got %(got)d" % kernel)
    del made, expected, differs
    answer = {
        "rows": rows,
        "checks": [{"check": "context.kernel", "compared": count, "wrong": wrong, "examples": examples}],
        "started": started,
    }
    if worker.backend != "cpu":
        worker.step("memory")
        answer["memory"] = memory(worker)
    return answer


def memory(worker: Any) -> Dict[str, Any]:
    """Bytes by who says so; a source that cannot be asked is missing. `explained` is one sentence."""
    torch = worker.torch
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(worker.device)
    said = {
        "torch_free": int(free),
        "torch_total": int(total),
        "torch_properties_total": int(torch.cuda.get_device_properties(worker.device).total_memory),
        "torch_reserved": int(torch.cuda.memory_reserved(worker.device)),
    }  # type: Dict[str, Any]
    if worker.backend == "cuda":
        for ask in (by_driver, by_nvml):
            try:
                said.update(ask(worker))
            except (OSError, AttributeError, RuntimeError) as error:
                said[ask.__name__ + "_error"] = str(error)[:200]
    if "nvml_total" in said:
        said["explained"] = (
            "the driver keeps %d MiB of NVML's total for itself; %d MiB are used, of which this process's context "
            "and torch are a part"
        ) % ((said["nvml_total"] - int(total)) // 2**20, said["nvml_used"] // 2**20)
    return said


def by_driver(_worker: Any) -> Dict[str, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    require(
        ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo"
    )
    return {"driver_free": free.value, "driver_total": total.value}


def by_nvml(worker: Any) -> Dict[str, int]:
    """Total, free and used of the whole card; NVML counts the driver's own share as used."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    require(nvml.nvmlInit_v2(), "nvmlInit")
    try:
        handle = ctypes.c_void_p()
        uuid = worker.card.partition("#")[0].encode()
        require(nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)), "nvmlDeviceGetHandleByUUID")
        sizes = (ctypes.c_uint64 * 3)()  # total, free, used
        require(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(sizes)), "nvmlDeviceGetMemoryInfo")
        return {"nvml_total": sizes[0], "nvml_free": sizes[1], "nvml_used": sizes[2]}
    finally:
        nvml.nvmlShutdown()


def require(code: int, function: str) -> None:
    if code != 0:
        raise RuntimeError("%s: error %d" % (function, code))
