"""Stage `host`: the card's link to the host's memory, and what starting work on the card costs.

GB/s of payload: bytes copied ÷ time between two events on the card. `host.bidirectional` copies both ways at once on
two streams, and counts both. Latencies are wall clock on the host and end when the host knows that it is done.
"""

import time
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Tuple

BYTES = 512 * 2**20
"""nvbandwidth's size."""

PAGEABLE_BYTES = 128 * 2**20
"""Another size than BYTES: the figures of pinned memory are the ones that are promised."""

CPU_BYTES = 32 * 2**20
SMALL_BYTES = 4096
REPETITIONS = 20
CPU_REPETITIONS = 5
PAGEABLE_REPETITIONS = 5
SMALL_REPETITIONS = 100
LAUNCHES = 200
"""In a row; the queue of launches holds about a thousand, and a full one would make the host wait."""

LAUNCH_REPETITIONS = 20
TOGETHER_SECONDS = 0.4
"""How long each kind of copy lasts where all cards copy together."""

BATCH = 4
"""Copies queued at once when together."""

BARRIER_SECONDS = 60.0
EXAMPLES = 5

Kind = Tuple[str, int, Callable[[], Any]]
"""(measure, bytes moved, the copy)."""


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Arguments: `only`, names of measures; `together`: all workers begin each kind of copy at the same moment, for
    which `rank`, `world`, `address` and `port` say where they meet; `attempt`, from 2 on where it is measured again.

    Rows host.h2d, host.d2h, host.bidirectional (GB/s), both latencies, launch.latency and launch.kernel (us);
    together the three bandwidths alone. The check `host.data` holds the words that went to the card and back
    against each other. Raises what torch raises.
    """
    only = arguments.get("only")
    is_together = bool(arguments.get("together"))
    barrier = Barrier(worker, arguments) if is_together else None
    worker.step("allocate")
    pinned = worker.backend != "cpu"
    size = BYTES if pinned else CPU_BYTES
    # Which pages it lies in decides the rate (on an H200 53.1 or 55.5 GB/s, throughout a process): another try takes
    # others, since those of the tries before are taken.
    taken = [
        worker.torch.empty(2 * size, dtype=worker.torch.uint8, pin_memory=pinned)
        for _ in range(int(arguments.get("attempt", 1)) - 1)
    ]
    buffers = Buffers(worker, size, pinned)
    kinds = [kind for kind in buffers.kinds() if not only or kind[0] in only]
    rows: List[Dict[str, Any]] = []
    for measure, moved, copy in kinds:
        if barrier is not None:
            seconds = together(worker, barrier, measure, copy)
        else:
            worker.step(measure)
            seconds = worker.times(copy, REPETITIONS if pinned else CPU_REPETITIONS)
        rows.append(dict(bandwidth(measure, size, pinned, moved, seconds), together=is_together))
        said(worker, rows)
    checks = [buffers.check()]
    if barrier is not None:
        barrier.leave()
    del buffers, kinds, taken
    release_pinned(worker)
    if not is_together:
        rows += pageable(worker, only) if pinned else []
        rows += latencies(worker, only)
    return {"rows": rows, "checks": checks}


class Barrier:
    """Where workers of several processes wait for each other."""

    def __init__(self, worker: Any, arguments: Dict[str, Any]) -> None:
        """Raises what torch raises where the others do not come."""
        self._worker = worker
        self._rank, self._world = int(arguments["rank"]), int(arguments["world"])
        worker.step("meet the others")
        self._store = worker.torch.distributed.TCPStore(
            str(arguments["address"]),
            int(arguments["port"]),
            self._world,
            self._rank == 0,
            timeout=timedelta(seconds=BARRIER_SECONDS),
        )

    def wait(self, name: str) -> None:
        self._worker.step("wait for the others: " + name)
        if self._store.add("come to " + name, 1) == self._world:
            self._store.set("go on from " + name, "1")
        self._store.wait(["go on from " + name])

    def leave(self) -> None:
        """The meeting point is rank 0's, who goes last."""
        self._worker.step("wait for the others: end")
        left = self._store.add("left", 1)
        ends = time.monotonic() + BARRIER_SECONDS
        while self._rank == 0 and left < self._world and time.monotonic() < ends:
            time.sleep(0.005)
            left = self._store.add("left", 0)


class Buffers:
    """Memory at both ends, for each direction its own."""

    def __init__(self, worker: Any, size: int, pinned: bool) -> None:
        torch = worker.torch
        self._worker = worker
        self._size = size
        words = size // 8
        self.up_from = torch.empty(words, dtype=torch.int64, pin_memory=pinned)
        torch.arange(words, out=self.up_from)
        self.down_to = torch.zeros(words, dtype=torch.int64, pin_memory=pinned)
        self.up_to = torch.zeros(words, dtype=torch.int64, device=worker.device)
        # Words of another kind, so that nothing left over passes for what was copied.
        self.down_from = torch.arange(words, dtype=torch.int64, device=worker.device).bitwise_not_()
        self._streams: Optional[Tuple[Any, Any]] = (
            None if worker.backend == "cpu" else (torch.cuda.Stream(), torch.cuda.Stream())
        )
        worker.synchronize()

    def kinds(self) -> List[Kind]:
        return [
            ("host.h2d", self._size, self.up),
            ("host.d2h", self._size, self.down),
            ("host.bidirectional", 2 * self._size, self.both),
        ]

    def up(self) -> None:
        self.up_to.copy_(self.up_from, non_blocking=True)

    def down(self) -> None:
        self.down_to.copy_(self.down_from, non_blocking=True)

    def both(self) -> None:
        if self._streams is None:
            self.up()
            self.down()
            return
        cuda = self._worker.torch.cuda
        current = cuda.current_stream()
        for stream, copy in zip(self._streams, (self.up, self.down)):
            stream.wait_stream(current)
            with cuda.stream(stream):
                copy()
        for stream in self._streams:
            current.wait_stream(stream)

    def check(self) -> Dict[str, Any]:
        """Both directions once more; each word against the value that it was made with."""
        torch, worker = self._worker.torch, self._worker
        worker.step("compare")
        # Nothing that is left over from the timed copies may pass for what this one brings.
        self.up_to.zero_()
        self.down_to.zero_()
        worker.synchronize()
        self.both()
        worker.synchronize()
        words = self.up_from.numel()
        sent = torch.arange(words, dtype=torch.int64, device=worker.device)
        wrong, examples = differences("to the card", self.up_to, sent)
        if not torch.equal(self.down_to, self.up_from.bitwise_not_()):
            count, more = differences("to the host", self.down_to, self.up_from)
            wrong, examples = wrong + count, examples + more
        return {
            "check": "host.data",
            "size_bytes": self._size,
            "pinned": worker.backend != "cpu",
            "compared": 2 * words,
            "wrong": wrong,
            "examples": examples,
        }


def differences(direction: str, got: Any, expected: Any) -> Tuple[int, List[str]]:
    differs = got != expected
    count = int(differs.sum().item())
    if not count:
        return 0, []
    return count, [
        "%s, byte 0x%x: expected 0x%016x, read 0x%016x"
        % (direction, 8 * i, int(expected[i].item()) % 2**64, int(got[i].item()) % 2**64)
        for i in differs.nonzero().flatten()[:EXAMPLES].tolist()
    ]


def together(worker: Any, barrier: Barrier, measure: str, copy: Callable[[], Any]) -> List[float]:
    """Seconds of each copy, for TOGETHER_SECONDS from the moment at which all are ready."""
    worker.times(copy, 1, warmup=1)
    barrier.wait(measure)
    worker.step(measure + " together")
    end = time.monotonic() + TOGETHER_SECONDS
    seconds: List[float] = []
    while not seconds or time.monotonic() < end:
        seconds += worker.times(copy, BATCH, warmup=0)
    return seconds


def pageable(worker: Any, only: Optional[List[str]]) -> List[Dict[str, Any]]:
    """Memory as programs have it by default: the driver copies it piece by piece through its own."""
    torch = worker.torch
    here = torch.ones(PAGEABLE_BYTES, dtype=torch.uint8)
    there = torch.ones(PAGEABLE_BYTES, dtype=torch.uint8, device=worker.device)
    rows: List[Dict[str, Any]] = []
    copies = (("host.h2d", lambda: there.copy_(here)), ("host.d2h", lambda: here.copy_(there)))
    for measure, copy in copies:
        if not only or measure in only:
            worker.step(measure + " pageable")
            seconds = worker.times(copy, PAGEABLE_REPETITIONS, warmup=1)
            rows.append(bandwidth(measure, PAGEABLE_BYTES, False, PAGEABLE_BYTES, seconds))
            said(worker, rows)
    return rows


def latencies(worker: Any, only: Optional[List[str]]) -> List[Dict[str, Any]]:
    torch = worker.torch
    pinned = worker.backend != "cpu"
    here = torch.zeros(SMALL_BYTES, dtype=torch.uint8, pin_memory=pinned)
    there = torch.zeros(SMALL_BYTES, dtype=torch.uint8, device=worker.device)
    one = torch.zeros(1, device=worker.device)
    small = {"size_bytes": SMALL_BYTES, "pinned": pinned}
    kinds: List[Tuple[str, Dict[str, Any], Callable[[], List[float]]]] = [
        ("host.h2d_latency", small, lambda: waited(worker, lambda: there.copy_(here, non_blocking=True))),
        ("host.d2h_latency", small, lambda: waited(worker, lambda: here.copy_(there, non_blocking=True))),
        ("launch.latency", {}, lambda: launches(worker, one)),
        ("launch.kernel", {}, lambda: worker.times(lambda: one.add_(1), SMALL_REPETITIONS, warmup=10)),
    ]
    rows: List[Dict[str, Any]] = []
    for measure, conditions, seconds in kinds:
        if not only or measure in only:
            worker.step(measure)
            values = [each * 1e6 for each in seconds()]
            rows.append(dict(conditions, measure=measure, unit="us", values=values))
            said(worker, rows)
    return rows


def waited(worker: Any, copy: Callable[[], Any]) -> List[float]:
    """Seconds from asking for a copy until the host knows that it is done."""
    seconds: List[float] = []
    for number in range(SMALL_REPETITIONS + 10):
        began = time.perf_counter()
        copy()
        worker.synchronize()
        if number >= 10:
            seconds.append(time.perf_counter() - began)
    return seconds


def launches(worker: Any, one: Any) -> List[float]:
    """Seconds of the host's time that one launch takes, of LAUNCHES in a row; the card is not waited for."""
    seconds: List[float] = []
    for number in range(LAUNCH_REPETITIONS + 1):
        worker.synchronize()
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            one.add_(1)
        if number:
            seconds.append((time.perf_counter() - began) / LAUNCHES)
    worker.synchronize()
    return seconds


def bandwidth(measure: str, size: int, pinned: bool, moved: int, seconds: List[float]) -> Dict[str, Any]:
    values = [moved / each / 1e9 for each in seconds]
    return {"measure": measure, "unit": "GB/s", "size_bytes": size, "pinned": pinned, "values": values}


def said(worker: Any, rows: List[Dict[str, Any]]) -> None:
    last = rows[-1]
    figure = "%s %.3g %s" % (last["measure"], sorted(last["values"])[len(last["values"]) // 2], last["unit"])
    worker.progress(min(0.95, len(rows) / 9), figure)


def release_pinned(worker: Any) -> None:
    """torch keeps pinned memory for later: here it would stay locked for the rest of the run."""
    release = getattr(worker.torch._C, "_host_emptyCache", None)
    if worker.backend != "cpu" and release is not None:
        release()
