"""Stage `hbm`: the rate at which the card reads and writes its own memory.

GB/s of traffic: bytes read plus bytes written, over the time between two events on the card. nvbandwidth counts a
copied byte once; its figure stands beside as `hbm.copy_payload`. float32, in buffers many times any L2 cache.
"""

from typing import Any, Callable, Dict, List, Tuple

BYTES = 4 * 2**30
CPU_BYTES = 256 * 2**20
SHARE_OF_FREE = 4
"""Three buffers fit into what is free, and a quarter of it stays."""

REPETITIONS = 20
CPU_REPETITIONS = 3
SCALE = 3.0


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Arguments: `only`, names of measures; else all: hbm.copy (and its payload), read, write, triad."""
    torch = worker.torch
    only = arguments.get("only")
    on_card = worker.backend != "cpu"
    size = buffer_bytes(worker)
    worker.step("allocate")
    a = torch.zeros(size // 4, dtype=torch.float32, device=worker.device)
    b, c = torch.ones_like(a), torch.ones_like(a)
    total = torch.empty((), dtype=torch.float32, device=worker.device)
    kinds: List[Tuple[str, int, Callable[[], Any]]] = [
        ("hbm.copy", 2, lambda: a.copy_(b)),
        ("hbm.read", 1, lambda: torch.sum(b, 0, out=total)),
        ("hbm.write", 1, lambda: a.fill_(SCALE)),
        ("hbm.triad", 3, lambda: torch.add(b, c, alpha=SCALE, out=a)),
    ]
    rows: List[Dict[str, Any]] = []
    for number, (measure, moved, function) in enumerate(kinds):
        if only and measure not in only:
            continue
        worker.step(measure)
        seconds = worker.times(
            function, REPETITIONS if on_card else CPU_REPETITIONS, warmup=3 if on_card else 1
        )
        values = [moved * size / each / 1e9 for each in seconds]
        rows.append(row(measure, size, values))
        if measure == "hbm.copy":
            rows.append(row("hbm.copy_payload", size, [value / 2 for value in values]))
        worker.progress(
            (number + 1) / len(kinds), "%s %.0f GB/s" % (measure[4:], sorted(values)[len(values) // 2])
        )
    return {"rows": rows, "checks": []}


def buffer_bytes(worker: Any) -> int:
    """4 GiB, or the largest power of two of which the free memory holds four."""
    if worker.backend == "cpu":
        free, size = free_host_bytes(), CPU_BYTES
    else:
        worker.torch.cuda.empty_cache()
        free, size = worker.torch.cuda.mem_get_info(worker.device)[0], BYTES
    while size * SHARE_OF_FREE > free and size > 2**20:
        size //= 2
    return size


def free_host_bytes() -> int:
    """An eighth of MemAvailable: workers of other CPUs take theirs at the same time."""
    with open("/proc/meminfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 // 8
    return 2**30


def row(measure: str, size: int, values: List[float]) -> Dict[str, Any]:
    return {"measure": measure, "unit": "GB/s", "size_bytes": size, "dtype": "float32", "values": values}
