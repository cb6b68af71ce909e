"""Stage `pairs`: copies from one card to another, as torch's `copy_` makes them.

Whether the driver lets the two see each other's memory decides the way (over NVLink or PCIe, or through the host's
memory); torch uses it by itself on the first copy, which therefore does not count. Copies run on the sender's stream,
and torch makes them wait for the receiver's: copies that follow each other are put on two streams of the receiver in
turn, so that none waits for the word that the one before has come.

The worker needs a context on both cards. One worker can measure every pair of the node: contexts cost 0.4 s and
some 500 MiB of memory each, so that one worker for all is far cheaper than one for each sender.
"""

from typing import Any, Callable, Dict, List, Tuple

MIB = 2**20

SIZE_BYTES = 512 * MIB
"""nvbandwidth's default."""
LATENCY_BYTES = 4096

REPETITIONS, WARMUPS = 8, 3
COPIES = 4
"""Within one timed repetition, in each direction: starting and joining the streams takes some 10 us, and one copy
of 512 MiB over NVLink 1.4 ms."""
SHORT_SECONDS = 0.01
"""A copy that takes longer stands alone in its repetition."""
LONGEST_SECONDS = 0.25
"""Of all repetitions together: pairs without a direct way take ten times as long, and eight cards have 56 pairs."""
LATENCY_REPETITIONS = 20
TURNS = 8
"""There and back within one timed repetition."""
HOLD_CYCLES = 2_000_000
"""About a millisecond, in which the host queues a whole repetition of small copies."""

EXAMPLES = 5
CHUNK_BYTES = 64 * MIB

MEASURES = ("one_way", "two_way", "latency")


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """`arguments`, all optional:

    pairs         [[from, to], …], keys of `worker.cards`; by default `peer` alone, or else every other card
    peer          key of the card to copy to; from the own card
    measures      any of `one_way`, `two_way`, `latency`; default: all
    size_bytes, repetitions

    Rows with `peer` (and `from` where that is not the own card): `pairs.one_way` (GB/s), `pairs.two_way` (GB/s, the
    sum of both directions at once), `pairs.latency` (us, one copy of 4 KiB with torch's waiting on both streams).
    Checks `pairs.data`: every byte of the last copy, for one way and, of both directions, for two-way. `access`:
    whether the driver lets `from` reach into `to`'s memory. Without a second card `skipped` says so.

    Raises ValueError for a card that is none of the run's.
    """
    if worker.backend == "cpu":
        return {"rows": [], "checks": [], "access": [], "skipped": "the CPU has no peers"}
    return measure(worker, arguments, Cards(worker))


def measure(worker: Any, arguments: Dict[str, Any], cards: Any) -> Dict[str, Any]:
    """`cards` is a `Cards`."""
    wanted = chosen(worker, arguments)
    measures = [name for name in MEASURES if name in arguments.get("measures", MEASURES)]
    answer = {"rows": [], "checks": [], "access": []}  # type: Dict[str, Any]
    if not wanted:
        answer["skipped"] = "there is no other card"
    for number, (own, peer) in enumerate(wanted):
        worker.step("%s to %s" % (own, peer))
        pair = Pair(cards, worker.cards, own, peer, arguments)
        named = {"peer": peer} if own == worker.card else {"peer": peer, "from": own}
        answer["access"].append(dict(named, p2p=pair.access()))
        for name in measures:
            row, check = getattr(pair, name)()
            answer["rows"].append(dict(row, **named))
            if check is not None:
                answer["checks"].append(dict(check, **named))
            best = sorted(row["values"])[len(row["values"]) // 2]
            figure = "%s to %s %s %.4g %s" % (own, peer, name.replace("_", " "), best, row["unit"])
            worker.progress((number + 1) / len(wanted), figure)
        del pair
    cards.release()
    return answer


def chosen(worker: Any, arguments: Dict[str, Any]) -> List[Tuple[str, str]]:
    if "pairs" in arguments:
        pairs = [(str(own), str(peer)) for own, peer in arguments["pairs"]]
    elif "peer" in arguments:
        pairs = [(worker.card, str(arguments["peer"]))]
    else:
        pairs = [(worker.card, peer) for peer in worker.cards if peer != worker.card]
    for own, peer in pairs:
        if own not in worker.cards or peer not in worker.cards or own == peer:
            raise ValueError("no pair of this run: %s and %s" % (own, peer))
    return pairs


class Cards:
    """Copies between cards, and their times."""

    def __init__(self, worker: Any) -> None:
        self.torch = worker.torch
        self._streams = {}  # type: Dict[int, List[Any]]

    def device(self, card: int) -> Any:
        return self.torch.device("cuda", card)

    def access(self, own: int, peer: int) -> bool:
        return bool(self.torch.cuda.can_device_access_peer(own, peer))

    def streams(self, card: int) -> List[Any]:
        """Four: two to send on or receive on in turn, for each direction."""
        if card not in self._streams:
            self._streams[card] = [self.torch.cuda.Stream(device=self.device(card)) for _ in range(4)]
        return self._streams[card]

    def synchronize(self, *cards: int) -> None:
        for card in cards:
            self.torch.cuda.synchronize(self.device(card))

    def copies(self, source: Any, target: Any, count: int, lane: int = 0) -> Any:
        """Queue `count` copies; returns the stream they run on. `lane` 0 and 1 do not wait for each other."""
        cuda = self.torch.cuda
        sender = self.streams(source.device.index)[2 * lane]
        receivers = self.streams(target.device.index)[2 * lane : 2 * lane + 2]
        for number in range(count):
            with cuda.stream(sender), cuda.stream(receivers[number % 2]):
                target.copy_(source, non_blocking=True)
        return sender

    def there_and_back(self, here: Any, there: Any, turns: int) -> List[Any]:
        """Queue `turns` copies there and as many back, each of which waits for the one before."""
        cuda = self.torch.cuda
        near, far = self.streams(here.device.index)[0], self.streams(there.device.index)[0]
        with cuda.stream(near), cuda.stream(far):
            for _ in range(turns):
                there.copy_(here, non_blocking=True)
                here.copy_(there, non_blocking=True)
        return [near, far]

    def times(self, own: int, queue: Callable[[], List[Any]], repetitions: int, warmups: int) -> List[float]:
        """Seconds from the start of what `queue` queues to the end of all streams that it returns.

        Both events stand on one stream of card `own`, as the time between two cards' events is not defined; what is
        queued waits for the first, the second for what is queued. The stream is held up before the first, so that the
        host's time is not measured.
        """
        cuda = self.torch.cuda
        with cuda.device(own):
            gate = cuda.Stream()
        pairs = []
        for number in range(warmups + repetitions):
            with cuda.device(own), cuda.stream(gate):
                begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
                if hasattr(cuda, "_sleep"):
                    cuda._sleep(HOLD_CYCLES)
                begin.record(gate)
            for streams in self._streams.values():
                for stream in streams:
                    stream.wait_event(begin)
            for stream in queue():
                gate.wait_stream(stream)
            with cuda.device(own):
                end.record(gate)
            if number >= warmups:
                pairs.append((begin, end))
        gate.synchronize()
        return [begin.elapsed_time(end) / 1000 for begin, end in pairs]

    def release(self) -> None:
        self._streams.clear()
        self.torch.cuda.empty_cache()


class Pair:
    """Buffers on two cards."""

    def __init__(self, cards: Any, keys: List[str], own: str, peer: str, arguments: Dict[str, Any]) -> None:
        self.cards, self.names = cards, (own, peer)
        self.own, self.peer = keys.index(own), keys.index(peer)
        self.size = int(arguments.get("size_bytes", SIZE_BYTES)) // 8 * 8
        self.most = int(arguments.get("repetitions", REPETITIONS))
        self.ends = [self.words(self.own), self.words(self.peer)]
        """What is sent from either end, and by whom."""
        self.landings = [self.words(self.own), self.words(self.peer)]
        """What arrives at either end."""

    def words(self, card: int) -> Any:
        torch = self.cards.torch
        return torch.empty(self.size // 8, dtype=torch.int64, device=self.cards.device(card))

    def access(self) -> bool:
        return bool(self.cards.access(self.own, self.peer))

    def one_way(self) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        self.prepare(1)

        def queue(copies: int) -> List[Any]:
            return [self.cards.copies(self.ends[0], self.landings[1], copies)]

        seconds = self.seconds(queue)
        return self.row("one_way", "GB/s", [self.size / t / 1e9 for t in seconds]), self.check([1])

    def two_way(self) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        self.prepare(0)
        self.prepare(1)

        def queue(copies: int) -> List[Any]:
            return [
                self.cards.copies(self.ends[0], self.landings[1], copies, lane=0),
                self.cards.copies(self.ends[1], self.landings[0], copies, lane=1),
            ]

        seconds = self.seconds(queue)
        return self.row("two_way", "GB/s", [2 * self.size / t / 1e9 for t in seconds]), self.check([0, 1])

    def latency(self) -> Tuple[Dict[str, Any], None]:
        source, target = self.ends[0][: LATENCY_BYTES // 8], self.landings[1][: LATENCY_BYTES // 8]
        hops = 2 * TURNS
        seconds = self.cards.times(
            self.own, lambda: self.cards.there_and_back(source, target, TURNS), LATENCY_REPETITIONS, WARMUPS
        )
        row = self.row("latency", "us", [t / hops * 1e6 for t in seconds])
        return dict(row, size_bytes=LATENCY_BYTES), None

    def seconds(self, queue: Callable[[int], List[Any]]) -> List[float]:
        """Seconds a copy (in each direction) takes, one value a repetition; fewer where the way is slow."""
        (one,) = self.cards.times(self.own, lambda: queue(1), 1, 1)  # the first call opens the way
        copies = COPIES if one < SHORT_SECONDS else 1
        repetitions = min(self.most, max(3, int(LONGEST_SECONDS / (copies * one))))
        warmups = min(WARMUPS, repetitions - 1)
        return [t / copies for t in self.cards.times(self.own, lambda: queue(copies), repetitions, warmups)]

    def row(self, name: str, unit: str, values: List[float]) -> Dict[str, Any]:
        return {"measure": "pairs." + name, "unit": unit, "values": values, "size_bytes": self.size}

    def prepare(self, landing: int) -> None:
        """Data into the end that sends to `landing`, and its complement there: what did not arrive is wrong."""
        pattern = self.pattern(1 - landing)
        for first, piece in self.pieces(self.ends[1 - landing]):
            piece.copy_(pattern(piece, first))
        for first, piece in self.pieces(self.landings[landing]):
            piece.copy_(pattern(piece, first))
            piece.bitwise_not_()
        self.cards.synchronize(self.own, self.peer)

    def pattern(self, end: int) -> Callable[[Any, int], Any]:
        """64 bits that depend on the place in the buffer and on who sends; made anew on the card that is asked."""
        torch = self.cards.torch
        sender = (self.own, self.peer)[end] + 1
        # An odd factor gives every place its own value (2^64 / golden ratio, as a signed number).
        factor = -7046029254386353131

        def values(like: Any, first: int) -> Any:
            places = torch.arange(first, first + like.numel(), dtype=torch.int64, device=like.device)
            return places.mul_(factor).add_(sender * 1000003)

        return values

    def pieces(self, buffer: Any) -> Any:
        step = CHUNK_BYTES // 8
        return [(first, buffer[first : first + step]) for first in range(0, buffer.numel(), step)]

    def check(self, landings: List[int]) -> Dict[str, Any]:
        """Every byte that arrived; `compared` and `wrong` count bytes."""
        self.cards.synchronize(self.own, self.peer)
        compared, wrong, examples = 0, 0, []  # type: int, int, List[str]
        for landing in landings:
            pattern = self.pattern(1 - landing)
            for first, piece in self.pieces(self.landings[landing]):
                expected = pattern(piece, first)
                compared += 8 * piece.numel()
                places = (piece != expected).nonzero().flatten()
                if places.numel() == 0:
                    continue
                wrong += different_bytes(piece[places] ^ expected[places])
                examples += [
                    "byte 0x%x on %s: expected 0x%016x, read 0x%016x"
                    % (
                        8 * (first + i),
                        self.names[landing],
                        int(expected[i].item()) % 2**64,
                        int(piece[i].item()) % 2**64,
                    )
                    for i in places[: EXAMPLES - len(examples)].tolist()
                ]
        return {
            "check": "pairs.data",
            "compared": compared,
            "wrong": wrong,
            "examples": examples,
            "size_bytes": self.size,
            "together": len(landings) > 1,
        }


def different_bytes(bits: Any) -> int:
    """How many bytes of 64-bit words hold a one."""
    return sum(int(((bits >> shift) & 0xFF != 0).sum().item()) for shift in range(0, 64, 8))
