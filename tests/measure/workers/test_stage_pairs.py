"""Pairs of cards that a stand-in makes of the CPU's memory: what is copied, timed and compared."""

from __future__ import annotations

import importlib.util
from itertools import pairwise, permutations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nodecheck.measure

torch = pytest.importorskip("torch")


def load(name: str) -> ModuleType:
    path = Path(nodecheck.measure.__file__).parent / "workers" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"under_test_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


stage = load("stage_pairs")

KEYS = ["GPU-a", "GPU-b", "GPU-c"]
SIZE = 1 << 20


class Worker:
    backend = "cuda"
    card = KEYS[0]
    torch = torch

    def __init__(self, cards: list[str] | None = None) -> None:
        self.cards = KEYS if cards is None else cards
        self.steps: list[str] = []
        self.said: list[tuple[float, str]] = []

    def step(self, name: str) -> None:
        self.steps.append(name)

    def progress(self, fraction: float, figure: str = "") -> None:
        self.said.append((fraction, figure))


class Cards(stage.Cards):  # type: ignore[misc,name-defined]
    """Cards whose memory is the CPU's; a copy takes a millisecond, more where `slow` says so."""

    def __init__(self, worker: Worker, copy: Any = None, slow: float = 1.0) -> None:
        super().__init__(worker)
        self._copy = copy or (lambda target, source: target.copy_(source))
        self._slow = slow
        self.copied = 0
        self.repeated: list[int] = []
        self.released = False

    def device(self, card: int) -> Any:
        assert 0 <= card < len(KEYS)
        return torch.device("cpu")

    def access(self, own: int, peer: int) -> bool:
        return (own, peer) != (0, 2)

    def synchronize(self, *cards: int) -> None:
        pass

    def copies(self, source: Any, target: Any, count: int, lane: int = 0) -> Any:
        for _ in range(count):
            self._copy(target, source)
        self.copied += count
        return "a stream"

    def there_and_back(self, here: Any, there: Any, turns: int) -> list[Any]:
        self.copied += 2 * turns
        return []

    def times(self, own: int, queue: Any, repetitions: int, warmups: int) -> list[float]:
        seconds = []
        for number in range(warmups + repetitions):
            before = self.copied
            queue()
            if number >= warmups:
                seconds.append((self.copied - before) * 1e-3 * self._slow)
        self.repeated.append(repetitions)
        return seconds

    def release(self) -> None:
        self.released = True


def measure(arguments: dict[str, Any] | None = None, **how: Any) -> tuple[dict[str, Any], Cards, Worker]:
    worker = Worker()
    cards = Cards(worker, **how)
    return stage.measure(worker, {"size_bytes": SIZE, **(arguments or {})}, cards), cards, worker


def test_every_other_card_is_a_peer() -> None:
    answer, cards, worker = measure()
    assert {row["peer"] for row in answer["rows"]} == {"GPU-b", "GPU-c"}
    assert {row["measure"] for row in answer["rows"]} == {"pairs.one_way", "pairs.two_way", "pairs.latency"}
    assert all("from" not in row for row in answer["rows"])
    assert answer["access"] == [{"peer": "GPU-b", "p2p": True}, {"peer": "GPU-c", "p2p": False}]
    assert worker.steps == ["GPU-a to GPU-b", "GPU-a to GPU-c"]
    assert worker.said[-1][0] == 1.0 and cards.released


def test_one_worker_measures_any_pair() -> None:
    pairs = [list(pair) for pair in permutations(KEYS, 2)]
    answer, _, _ = measure({"pairs": pairs, "measures": ["one_way"]})
    found = [[row.get("from", "GPU-a"), row["peer"]] for row in answer["rows"]]
    assert found == pairs
    assert [check["wrong"] for check in answer["checks"]] == [0] * 6


def test_one_way_counts_what_arrives_and_two_way_both_directions() -> None:
    answer, _, _ = measure({"peer": "GPU-b"})
    rows = {row["measure"]: row for row in answer["rows"]}
    one, two, latency = (rows[f"pairs.{name}"] for name in ("one_way", "two_way", "latency"))
    assert one["unit"] == two["unit"] == "GB/s" and latency["unit"] == "us"
    assert one["values"] == pytest.approx([SIZE / 1e-3 / 1e9] * stage.REPETITIONS)
    # Eight copies of a millisecond, one after the other here: four in each direction.
    assert two["values"] == pytest.approx([2 * SIZE / 2e-3 / 1e9] * stage.REPETITIONS)
    assert latency["values"] == pytest.approx([1000.0] * stage.LATENCY_REPETITIONS)
    assert (one["size_bytes"], latency["size_bytes"]) == (SIZE, 4096)


def test_a_slow_way_is_measured_less_often() -> None:
    answer, _, _ = measure({"peer": "GPU-b", "measures": ["one_way"]}, slow=100.0)
    (row,) = answer["rows"]
    assert len(row["values"]) == 3
    assert row["values"] == pytest.approx([SIZE / 0.1 / 1e9] * 3)


def test_every_byte_is_compared() -> None:
    answer, _, _ = measure({"peer": "GPU-b"})
    one, two = answer["checks"]
    assert (one["compared"], one["wrong"], one["together"]) == (SIZE, 0, False)
    assert (two["compared"], two["wrong"], two["together"]) == (2 * SIZE, 0, True)


def test_a_wrong_byte_is_found_with_its_place() -> None:
    def copy(target: Any, source: Any) -> None:
        target.copy_(source)
        target[1000] ^= 0x4200

    answer, _, _ = measure({"peer": "GPU-b", "measures": ["one_way"]}, copy=copy)
    (check,) = answer["checks"]
    assert check["wrong"] == 1
    (example,) = check["examples"]
    assert example.startswith("byte 0x1f40 on GPU-b: expected 0x")
    expected, read = (int(word.split()[-1], 16) for word in example.partition(": ")[2].split(", "))
    assert expected ^ read == 0x4200


def test_what_never_arrived_is_wrong_in_every_byte() -> None:
    answer, _, _ = measure({"peer": "GPU-b"}, copy=lambda target, source: None)
    assert [(check["wrong"], len(check["examples"])) for check in answer["checks"]] == [
        (SIZE, 5),
        (2 * SIZE, 5),
    ]


def test_data_of_the_other_direction_is_wrong() -> None:
    def copy(target: Any, source: Any) -> None:
        # Shifted by one word: another place's data.
        target.copy_(source.roll(1))

    answer, _, _ = measure({"peer": "GPU-b", "measures": ["two_way"]}, copy=copy)
    assert answer["checks"][0]["wrong"] > 0.9 * 2 * SIZE


@pytest.mark.parametrize("peer", ["GPU-a", "GPU-z", ""])
def test_a_card_that_is_no_peer_is_an_error(peer: str) -> None:
    with pytest.raises(ValueError, match="no pair of this run"):
        measure({"peer": peer})


def test_the_cpu_and_a_single_card_have_no_pairs() -> None:
    worker = Worker([KEYS[0]])
    answer = stage.measure(worker, {}, Cards(worker))
    assert answer["rows"] == [] and answer["skipped"]
    worker.backend = "cpu"
    answer = stage.run(worker, {})
    assert answer["rows"] == [] and answer["skipped"]


# The streams of the real `Cards`, on a CUDA that only takes notes.


class Line:
    def __init__(self, device: Any) -> None:
        self.device = device
        self.waits: list[Any] = []

    def wait_event(self, event: Any) -> None:
        self.waits.append(event)

    def wait_stream(self, stream: Any) -> None:
        self.waits.append(stream)


class Cuda:
    def __init__(self) -> None:
        self.current: dict[int, Line] = {}

    def Stream(self, device: Any) -> Line:
        return Line(device)

    def stream(self, stream: Line) -> Any:
        cuda = self

        class Turn:
            def __enter__(self) -> None:
                self.before = cuda.current.get(stream.device.index)
                cuda.current[stream.device.index] = stream

            def __exit__(self, *_: object) -> None:
                cuda.current[stream.device.index] = self.before  # type: ignore[assignment]

        return Turn()


class Buffer:
    def __init__(self, card: int, cuda: Cuda, log: list[tuple[Line, Line]]) -> None:
        self.device = torch.device("cuda", card)
        self._cuda, self._log = cuda, log

    def copy_(self, source: Buffer, non_blocking: bool) -> None:
        assert non_blocking
        self._log.append((self._cuda.current[source.device.index], self._cuda.current[self.device.index]))


class Torch:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.device = torch.device


def test_copies_that_follow_each_other_do_not_wait_for_the_receiver_nor_for_the_other_direction() -> None:
    cuda = Cuda()
    log: list[tuple[Line, Line]] = []
    worker = Worker()
    worker.torch = Torch(cuda)
    cards = stage.Cards(worker)
    here, there = Buffer(0, cuda, log), Buffer(1, cuda, log)
    one = cards.copies(here, there, 4, lane=0)
    other = cards.copies(there, here, 4, lane=1)
    out, back = log[:4], log[4:]
    assert {sender for sender, _ in out} == {one} and {sender for sender, _ in back} == {other}
    assert all(a[1] is not b[1] for a, b in pairwise(out))
    assert not {stream for pair in out for stream in pair} & {stream for pair in back for stream in pair}
