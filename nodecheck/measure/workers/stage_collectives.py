"""Stage `collectives`: what a group's collectives reach, and whether every element of every result is right.

Definitions are nccl-tests' (doc/PERFORMANCE.md and `GetBw` of its v2.19.6): S is the size in bytes that it prints,
algbw = S / t, busbw = algbw × factor, GB/s = 10^9 bytes/s. `size_of` and `busbw_factor` hold them.

One run is one collective at one size, type and placement: inputs are written, the first call is checked element by
element (it also opens the connections), calls that do not count follow, then the timed loop. On cards a pair of
events stands around each iteration, on the stream that waits for the collective, and all iterations are queued
without waiting between them; on the CPU it is the wall clock around each call. Inputs are small integers that
depend on the rank and the place, so that every sum is exact in the type, whatever the order of the additions.

All ranks decide alike, from figures that they agreed on: how many iterations, and which sizes are left out.
"""

import time
from statistics import median
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

KIB, MIB, GIB = 2**10, 2**20, 2**30

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
)

SHARED = ("all_gather", "reduce_scatter", "all_to_all")
"""Collectives whose S is the whole array, of which each rank has a share."""

PLACEMENTS = {
    # torch's own functions have one buffer here; a copy would be timed with them.
    "all_reduce": (True,),
    "broadcast": (True,),
    "reduce": (True,),
    "all_gather": (False, True),
    "reduce_scatter": (False, True),
    # Sender and receiver may not be one buffer.
    "all_to_all": (False,),
    "send_recv": (False,),
}
"""In place (True) and out of place, where they exist."""

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

EXACT = {"bfloat16": 256, "float16": 2048, "float32": 2**24}
"""Every integer up to here has its own value in the type: 8, 11 and 24 bits of mantissa."""

ROOT = 0
"""Of broadcast and reduce; nccl-tests' default."""

CARD_SIZES = tuple(8 ** (i + 1) for i in range(11))
"""8 B to 8 GiB in steps of 8: the curve of all_reduce."""
CARD_STATED_SIZES = (MIB, GIB, 8 * GIB)
"""Of the other collectives."""
GROUP_SIZES = (MIB, GIB, 8 * GIB)
"""Of all_reduce in a part of the cards: it is compared with its siblings."""
CPU_SIZES = (8, 4 * KIB, MIB, 16 * MIB)
CPU_STATED_SIZES = (4 * KIB, MIB, 4 * MIB)
FULL_SIZES = tuple(2**i for i in range(3, 35))
FULL_STATED_SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB, 8 * GIB)

WARMUPS, ITERATIONS = 5, 20
HUGE_BYTES, HUGE_WARMUPS, HUGE_ITERATIONS = 4 * GIB, 2, 10
"""A call of this size takes ten milliseconds and more, and repeats well."""

RUN_SECONDS = {"cpu": 0.5, "cuda": 3.0, "hip": 3.0}
"""What the timed loop of one run may take: where it would take longer, iterations are fewer."""

PACE_BYTES = MIB
"""From here on what a call takes grows with its size; below it is latency."""

DEADLINE_SECONDS = 120.0

MARGIN_BYTES = GIB
"""Of a card's memory that stays free: NCCL's own buffers and what checking takes."""

CARD_TILE, CPU_TILE = 2**24, 2**20
"""Elements that are written or compared at once."""

EXAMPLES = 5


def size_of(collective: str, count: int, item_bytes: int, ranks: int) -> int:
    """S in bytes for `count` elements a rank, as nccl-tests prints it.

    all_reduce, broadcast, reduce and send_recv: count × size of an element. all_gather, reduce_scatter and
    all_to_all: count × size × ranks, the whole array.
    """
    return count * item_bytes * (ranks if collective in SHARED else 1)


def count_of(collective: str, size_bytes: int, item_bytes: int, ranks: int) -> int:
    """Elements a rank for about `size_bytes`, at least one."""
    return max(1, size_bytes // (item_bytes * (ranks if collective in SHARED else 1)))


def busbw_factor(collective: str, ranks: int) -> float:
    """busbw / algbw: 2 (n - 1) / n for all_reduce, (n - 1) / n for all_gather, reduce_scatter and all_to_all, and
    1 for broadcast, reduce and send_recv (nccl-tests, doc/PERFORMANCE.md)."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in SHARED:
        return (ranks - 1) / ranks
    return 1.0


def algbw(size_bytes: int, seconds: float) -> float:
    """S / t in GB/s."""
    return size_bytes / seconds / 1e9


class Run(NamedTuple):
    """One collective at one size, type and placement."""

    collective: str
    elements: int
    """Of one rank's share: nccl-tests' count."""
    dtype: str
    in_place: bool
    iterations: int
    warmups: int

    def size_bytes(self, ranks: int) -> int:
        return size_of(self.collective, self.elements, ITEM_BYTES[self.dtype], ranks)

    def needed_bytes(self, ranks: int) -> int:
        """Of all buffers on one rank."""
        share = self.elements * ITEM_BYTES[self.dtype]
        size = self.size_bytes(ranks)
        if self.collective in ("all_gather", "reduce_scatter"):
            return size if self.in_place else size + share
        return size if self.in_place else 2 * size

    def conditions(self, ranks: int) -> Dict[str, Any]:
        return {
            "size_bytes": self.size_bytes(ranks),
            "dtype": self.dtype,
            "ranks": ranks,
            "in_place": self.in_place,
        }

    def words(self, ranks: int) -> str:
        return "%s %s %s%s" % (
            self.collective,
            bytes_in_words(self.size_bytes(ranks)),
            self.dtype,
            " in place" if self.in_place else "",
        )


def bytes_in_words(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return "%g %s" % (round(size / unit, 1), name)
    return "%d B" % size


class Pattern:
    """Integers from 0 to below `modulus`, a different one for each rank and place, and their sum over the ranks.

    The value of rank r at place i is (h(i) + 7 r + 3 × (i // tile)) mod `modulus`, where h scatters the places of one
    tile: data that came from another place or rank shows. The sum over all ranks stays exact in the type.
    """

    def __init__(self, torch: Any, device: Any, dtype: str, ranks: int, tile: int) -> None:
        """Raises ValueError where the type has no room for a sum over so many ranks."""
        most = min(251, EXACT[dtype] // ranks + 1)
        if most < 2:
            raise ValueError("a sum over %d ranks is not exact in %s" % (ranks, dtype))
        self.modulus = max(n for n in range(2, most + 1) if all(n % k for k in range(2, n)))
        self.torch = torch
        self._device = device
        self._ranks = ranks
        self._dtype = getattr(torch, dtype)
        places = torch.arange(tile, dtype=torch.int64, device=device)
        # Two multiplications: with one, a place and its neighbour would too often have the same value.
        mixed = places * 2654435761 % 2**32
        mixed = (mixed ^ (mixed >> 15)) * 0x45D9F3B % 2**32
        self._base = ((mixed >> 16) % self.modulus).to(torch.int32)

    def table(self, ranks: Optional[Sequence[int]] = None) -> Any:
        """What stands at h = 0, 1, …: the sum over `ranks`, by default all."""
        among = range(self._ranks) if ranks is None else ranks
        n = self.modulus
        sums = [sum((h + 7 * rank) % n for rank in among) for h in range(n)]
        return self.torch.tensor(sums, dtype=self._dtype, device=self._device)

    def pieces(self, data: Any, start: int, table: Any) -> Iterator[Tuple[int, Any, Any]]:
        """Offset, piece and what belongs into it, piece by piece of `data`, whose first place is `start`."""
        tile, at = self._base.numel(), 0
        while at < data.numel():
            number, first = divmod(start + at, tile)
            length = min(tile - first, data.numel() - at)
            turned = self.torch.roll(table, -(3 * number % self.modulus))
            expected = turned.index_select(0, self._base[first : first + length])
            yield at, data[at : at + length], expected
            at += length

    def write(self, data: Any, start: int, table: Any) -> None:
        for _, piece, expected in self.pieces(data, start, table):
            piece.copy_(expected)

    def differences(
        self, data: Any, start: int, table: Any, most: int
    ) -> Tuple[int, List[Tuple[int, Any, Any]]]:
        """How many elements are wrong, and (place, expected, read) of the first `most`."""
        wrong, examples = 0, []  # type: int, List[Tuple[int, Any, Any]]
        for at, piece, expected in self.pieces(data, start, table):
            differs = piece != expected
            count = int(differs.sum().item())
            if count and len(examples) < most:
                places = differs.nonzero().flatten()[: most - len(examples)].tolist()
                examples += [(at + i, expected[i].item(), piece[i].item()) for i in places]
            wrong += count
        return wrong, examples


class Group:
    """The ranks, and what they agree on."""

    def __init__(self, worker: Any, arguments: Dict[str, Any]) -> None:
        self.worker = worker
        self.torch = worker.torch
        self.device = worker.device
        self.on_card = worker.backend != "cpu"
        self.dist, self.rank, self.world = worker.join(arguments)
        self._one = self.torch.zeros(1, device=self.device)
        self.align()
        self.synchronize()

    def synchronize(self) -> None:
        self.worker.synchronize()

    def align(self) -> None:
        """Nobody goes on before all are here; on cards that is so in the order of the stream, without waiting."""
        self.dist.all_reduce(self._one)

    def agree(self, value: float, least: bool = False) -> float:
        """The largest (or least) of all ranks' values."""
        operation = self.dist.ReduceOp.MIN if least else self.dist.ReduceOp.MAX
        # float64 holds a number of bytes exactly.
        box = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(box, op=operation)
        return float(box.item())

    def free_bytes(self) -> Optional[int]:
        """On the card that has least; None for the CPU, where sizes are small."""
        if not self.on_card:
            return None
        self.torch.cuda.empty_cache()
        return int(self.agree(float(self.torch.cuda.mem_get_info(self.device)[0]), least=True)) - MARGIN_BYTES


class Exchange:
    """The buffers of one run, one call of it, and what must come out."""

    def __init__(self, group: Group, run: Run) -> None:
        """Raises torch's error where memory runs out."""
        torch, world, rank = group.torch, group.world, group.rank
        self.group, self.run = group, run
        count, name = run.elements, run.collective
        whole = count * world

        def buffer(elements: int) -> Any:
            return torch.empty(elements, dtype=getattr(torch, run.dtype), device=group.device)

        own = slice(rank * count, (rank + 1) * count)
        if name == "all_gather":
            self.output = buffer(whole)
            self.input = self.output[own] if run.in_place else buffer(count)
        elif name == "reduce_scatter":
            self.input = buffer(whole)
            self.output = self.input[own] if run.in_place else buffer(count)
        elif name == "all_to_all":
            self.input, self.output = buffer(whole), buffer(whole)
        else:
            self.input = buffer(count)
            self.output = self.input if run.in_place else buffer(count)

    def launch(self) -> None:
        """One call; on a card the current stream waits for it, the host does not."""
        dist, group = self.group.dist, self.group
        name = self.run.collective
        if name == "all_reduce":
            dist.all_reduce(self.output)
        elif name == "all_gather":
            dist.all_gather_into_tensor(self.output, self.input)
        elif name == "reduce_scatter":
            dist.reduce_scatter_tensor(self.output, self.input)
        elif name == "all_to_all":
            dist.all_to_all_single(self.output, self.input)
        elif name == "broadcast":
            dist.broadcast(self.output, src=ROOT)
        elif name == "reduce":
            dist.reduce(self.output, dst=ROOT)
        else:  # a ring: each rank sends to the next
            onward = dist.P2POp(dist.isend, self.input, (group.rank + 1) % group.world)
            coming = dist.P2POp(dist.irecv, self.output, (group.rank - 1) % group.world)
            for work in dist.batch_isend_irecv([onward, coming]):
                work.wait()

    def write(self, pattern: Pattern) -> None:
        """Own data into the input, and nothing of it into the output."""
        if not self.run.in_place or self.run.collective == "all_gather":
            self.output.fill_(-1)
        if self.run.collective == "broadcast" and self.group.rank != ROOT:
            self.input.fill_(-1)
            return
        pattern.write(self.input, 0, pattern.table([self.group.rank]))

    def expected(self) -> List[Tuple[int, int, int, Optional[int]]]:
        """What the output must hold: (offset, elements, place of the first, whose data or None: everybody's sum)."""
        name, count, rank, world = self.run.collective, self.run.elements, self.group.rank, self.group.world
        if name == "all_reduce":
            return [(0, count, 0, None)]
        if name == "reduce":
            return [(0, count, 0, None)] if rank == ROOT else []
        if name == "reduce_scatter":
            return [(0, count, rank * count, None)]
        if name == "broadcast":
            return [(0, count, 0, ROOT)]
        if name == "send_recv":
            return [(0, count, 0, (rank - 1) % world)]
        place = rank * count if name == "all_to_all" else 0
        return [(sender * count, count, place, sender) for sender in range(world)]

    def check(self, pattern: Pattern) -> Dict[str, Any]:
        """Every element of the output against its exact value."""
        compared, wrong, examples = 0, 0, []  # type: int, int, List[str]
        for offset, count, place, sender in self.expected():
            table = pattern.table(None if sender is None else [sender])
            part = self.output[offset : offset + count]
            bad, places = pattern.differences(part, place, table, EXAMPLES - len(examples))
            compared += count
            wrong += bad
            origin = "" if sender is None else ", sent by rank %d" % sender
            examples += [
                "rank %d (%s), element %d%s: expected %g, read %g"
                % (self.group.rank, self.group.worker.card, offset + at, origin, expected, read)
                for at, expected, read in places
            ]
        return dict(
            self.run.conditions(self.group.world),
            check=self.run.collective + ".data",
            compared=compared,
            wrong=wrong,
            examples=examples,
        )

    def seconds(self, iterations: int) -> Tuple[List[float], float]:
        """Seconds of each iteration, and of the whole loop by the host's clock divided by their number.

        Before each turn of the ring everybody is waited for, outside of the time: else a late rank delays one
        neighbour after the other, and nobody could tell whose delay it was.
        """
        group = self.group
        apart = self.run.collective == "send_recv"
        group.align()
        group.synchronize()
        if not group.on_card:
            seconds = []
            for _ in range(iterations):
                if apart:
                    group.align()
                began = time.perf_counter()
                self.launch()
                seconds.append(time.perf_counter() - began)
            return seconds, sum(seconds) / iterations
        event = group.torch.cuda.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(iterations)]
        began = time.perf_counter()
        for begin, end in pairs:
            if apart:
                group.align()
            begin.record()
            self.launch()
            end.record()
        group.synchronize()
        loop = (time.perf_counter() - began) / iterations
        return [begin.elapsed_time(end) / 1000 for begin, end in pairs], loop

    def estimate(self) -> float:
        """Seconds of one call, agreed on."""
        self.group.align()
        self.group.synchronize()
        began = time.perf_counter()
        self.launch()
        self.group.synchronize()
        return self.group.agree(time.perf_counter() - began)


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """`arguments`: what `Worker.join` takes, and any of

    level       `standard` (default) or `full`
    group       `all` (default): everything; another name: all_reduce alone, to compare parts of the cards
    runs        instead of those: a list of {"collective", "size_bytes", "dtype", "in_place", "iterations", "warmups"}
    seconds     what one run's timed loop may take
    deadline_seconds    the stage's: no run is begun after the first half of it

    Rows, each with one value an iteration, of this rank: `<collective>.busbw` and `.algbw` (GB/s) and `.latency` (us);
    a row's `loop` is the same by the host's clock around the whole loop, as nccl-tests has it. `send_recv.rank`
    (GB/s) is send_recv's own figure of this rank, by which a slow card or link can be told. Checks:
    `<collective>.data`. `skipped` names what did not run, and why.
    """
    group = Group(worker, arguments)
    runs = list(
        asked(arguments, group.world)
        if "runs" in arguments
        else planned(worker.backend, group.world, arguments)
    )
    measured = Measured(
        group,
        float(arguments.get("seconds", RUN_SECONDS[worker.backend])),
        float(arguments.get("deadline_seconds", DEADLINE_SECONDS)) / 2,
    )
    for number, one in enumerate(runs):
        measured.take(one, number / len(runs))
    return measured.answer()


def asked(arguments: Dict[str, Any], ranks: int) -> Iterator[Run]:
    for one in arguments["runs"]:
        dtype = str(one.get("dtype", "bfloat16"))
        collective = str(one["collective"])
        yield Run(
            collective,
            count_of(collective, int(one["size_bytes"]), ITEM_BYTES[dtype], ranks),
            dtype,
            bool(one.get("in_place", PLACEMENTS[collective][0])),
            int(one.get("iterations", ITERATIONS)),
            int(one.get("warmups", WARMUPS)),
        )


def planned(backend: str, ranks: int, arguments: Dict[str, Any]) -> Iterator[Run]:
    """Sizes in rising order, so that what the next takes can be told from the last; what profiles state comes first."""
    whole = arguments.get("group", "all") == "all"
    for dtype in ("bfloat16", "float32") if whole else ("bfloat16",):
        for collective in COLLECTIVES if whole else ("all_reduce",):
            full = arguments.get("level") == "full"
            wanted = sizes(backend, collective, full, whole)
            if dtype == "float32" and collective != "all_reduce" and not full:
                wanted = tuple(size for size in wanted if size < HUGE_BYTES)
            counts = [count_of(collective, size, ITEM_BYTES[dtype], ranks) for size in wanted]
            for in_place in PLACEMENTS[collective]:
                for count in dict.fromkeys(counts):
                    huge = size_of(collective, count, ITEM_BYTES[dtype], ranks) >= HUGE_BYTES
                    iterations, warmups = (HUGE_ITERATIONS, HUGE_WARMUPS) if huge else (ITERATIONS, WARMUPS)
                    yield Run(collective, count, dtype, in_place, iterations, warmups)


def sizes(backend: str, collective: str, full: bool, whole: bool) -> Tuple[int, ...]:
    if backend == "cpu":
        return CPU_SIZES if collective == "all_reduce" else CPU_STATED_SIZES
    if not whole:
        return GROUP_SIZES
    if collective == "all_reduce":
        return FULL_SIZES if full else CARD_SIZES
    return FULL_STATED_SIZES if full else CARD_STATED_SIZES


class Measured:
    """What came of the runs so far."""

    def __init__(self, group: Group, seconds: float, whole_seconds: float) -> None:
        self.group = group
        self._seconds = seconds
        self._whole_seconds = whole_seconds
        self._began = time.monotonic()
        self._free = group.free_bytes()
        self._patterns = {}  # type: Dict[str, Any]
        self._lacking = {}  # type: Dict[Tuple[str, str], str]
        self._pace = {}  # type: Dict[Tuple[str, str, bool], float]
        """Seconds a byte of the last size."""
        self.rows = []  # type: List[Dict[str, Any]]
        self.checks = []  # type: List[Dict[str, Any]]
        self.skipped = []  # type: List[Dict[str, Any]]

    def answer(self) -> Dict[str, Any]:
        return {
            "rows": self.rows,
            "checks": self.checks,
            "skipped": self.skipped,
            "rank": self.group.rank,
            "world": self.group.world,
        }

    def take(self, one: Run, fraction: float) -> None:
        """One run, or why not."""
        world, worker = self.group.world, self.group.worker
        worker.step(one.words(world))
        why = self._obstacle(one)
        if why:
            self.skipped.append(dict(one.conditions(world), collective=one.collective, why=why))
            return
        exchange = Exchange(self.group, one)
        pattern = self._patterns[one.dtype]
        exchange.write(pattern)
        self.group.align()
        exchange.launch()
        self.group.synchronize()
        self.checks.append(exchange.check(pattern))
        estimate = exchange.estimate()
        for _ in range(min(one.warmups - 1, int(self._seconds / 2 / estimate))):
            exchange.launch()
        room = int(self._seconds / estimate)
        seconds, loop = exchange.seconds(max(1, min(one.iterations, room)))
        size = one.size_bytes(world)
        if size >= PACE_BYTES:
            call = self.group.agree(median(seconds))
            self._pace[(one.collective, one.dtype, one.in_place)] = call / size
        self._rows(one, seconds, loop)
        figure = "%s %.4g GB/s" % (one.words(world), busbw(one, world, median(seconds)))
        worker.progress(fraction, figure)

    def _rows(self, one: Run, seconds: List[float], loop: float) -> None:
        world = self.group.world
        size = one.size_bytes(world)
        factor = busbw_factor(one.collective, world)
        rates = [algbw(size, t) for t in seconds]
        # Of each: unit, values, and the same of the whole loop by the host's clock.
        figures = {
            "busbw": ("GB/s", [rate * factor for rate in rates], algbw(size, loop) * factor),
            "algbw": ("GB/s", rates, algbw(size, loop)),
            "latency": ("us", [t * 1e6 for t in seconds], loop * 1e6),
        }
        if one.collective == "send_recv":
            figures["rank"] = ("GB/s", rates, algbw(size, loop))
        for name, (unit, values, of_loop) in figures.items():
            row = dict(
                one.conditions(world),
                measure="%s.%s" % (one.collective, name),
                unit=unit,
                values=values,
                loop=of_loop,
            )
            if name == "rank":
                row["subject"] = "card"
            self.rows.append(row)

    def _obstacle(self, one: Run) -> str:
        """Why a run is left out; the same on all ranks."""
        world = self.group.world
        if world < 2:
            return "a group of one has nobody to exchange with"
        if self._free is not None and one.needed_bytes(world) > self._free:
            return "buffers of %s do not fit into %s" % (
                bytes_in_words(one.needed_bytes(world)),
                bytes_in_words(max(self._free, 0)),
            )
        took = self.group.agree(time.monotonic() - self._began)
        if took > self._whole_seconds:
            return "the runs before it took %.0f s" % took
        call = self._pace.get((one.collective, one.dtype, one.in_place), 0.0) * one.size_bytes(world)
        if call > 2 * self._seconds:
            return "one call would take about %.0f s, by the pace of the size before" % call
        key = (one.collective, one.dtype)
        if key not in self._lacking:
            self._lacking[key] = self._lack(one)
        return self._lacking[key]

    def _lack(self, one: Run) -> str:
        """What cannot be done at all: gloo has not every collective and type in every torch."""
        group = self.group
        if one.dtype not in self._patterns:
            tile = CARD_TILE if group.on_card else CPU_TILE
            try:
                self._patterns[one.dtype] = Pattern(group.torch, group.device, one.dtype, group.world, tile)
            except ValueError as error:
                return str(error)
        if group.on_card:
            return ""
        try:
            tiny = Exchange(group, one._replace(elements=1))
            tiny.write(self._patterns[one.dtype])
            tiny.launch()
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            if not lacks(error):
                raise
            return "not with gloo and this torch: " + " ".join(str(error).split())[:200]
        return ""


def lacks(error: BaseException) -> bool:
    """Whether an error says that something does not exist, rather than that it went wrong."""
    if isinstance(error, (NotImplementedError, AttributeError)):
        return True
    words = str(error).lower()
    return any(
        sign in words
        for sign in (
            "support",
            "not implemented",
            "scalar type",
            "is not exact",
            "invalid dtype",
            "no backend",
        )
    )


def busbw(one: Run, ranks: int, seconds: float) -> float:
    """GB/s."""
    return algbw(one.size_bytes(ranks), seconds) * busbw_factor(one.collective, ranks)
