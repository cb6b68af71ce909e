from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def stage(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stage, with little memory: blocks of 64 KiB in pieces of 16 KiB, the last one ragged."""
    stage = worker.beside("stage_memory")
    monkeypatch.setattr(stage, "CPU_BYTES", 5 * 2**16 + 24)
    monkeypatch.setattr(stage, "CPU_BLOCK_BYTES", 2**16)
    monkeypatch.setattr(stage, "LEAST_BLOCK_BYTES", 2**13)
    monkeypatch.setattr(stage, "PIECE_BYTES", 2**14)
    return stage


def faulty(stage: Any, fault: Any) -> Any:
    """Memory whose reads pass through `fault(number of the block, start, words)`."""
    made: list[Any] = []

    class Faulty(stage.Block):  # type: ignore[misc]
        def __init__(self, worker: Any, words: int) -> None:
            super().__init__(worker, words)
            self.number = len(made)
            made.append(self)

        def read(self, start: int, words: int) -> Any:
            return fault(self.number, start, super().read(start, words).clone())

    return Faulty


@pytest.mark.parametrize(("level", "passes"), [("standard", 2), ("full", 8)])
def test_sound_memory(worker: Any, stage: Any, level: str, passes: int) -> None:
    answer = worker.run("memory", {"level": level})
    (check,) = answer["checks"]
    assert check["wrong"] == 0
    assert check["compared"] == passes * stage.CPU_BYTES
    assert check["examples"] == []
    assert "covered" not in check  # on the CPU
    assert answer["memory"]["taken"] == stage.CPU_BYTES
    fractions = [line["progress"]["fraction"] for line in worker.said if "progress" in line]
    assert fractions[-1] == 1
    assert fractions == sorted(fractions)


def test_every_word_is_another_and_every_bit_is_turned(worker: Any, stage: Any) -> None:
    torch = worker.torch
    kept: dict[str, list[Any]] = {}

    class Kept(stage.Block):  # type: ignore[misc]
        def read(self, start: int, words: int) -> Any:
            read = super().read(start, words)
            kept.setdefault(test.name, []).append(read.clone())
            return read

    test = stage.Test(worker, stage.STANDARD)
    go_through = test.go_through

    def named(number: int, name: str, multiplier: int, offset: int) -> None:
        test.name = name
        go_through(number, name, multiplier, offset)

    test.go_through = named
    stage_block, stage.Block = stage.Block, Kept
    try:
        test.run()
    finally:
        stage.Block = stage_block
    first, second = (torch.cat(parts) for parts in kept.values())
    assert first.unique().numel() == first.numel() == stage.CPU_BYTES // 8
    assert bool((first == ~second).all())
    # Word i holds i × multiplier + offset, mod 2^64, whatever block it lies in.
    _, multiplier, offset = stage.STANDARD[0]
    for i in (0, 1, 8191, 8192, first.numel() - 1):
        assert int(first[i]) % 2**64 == (i * multiplier + offset) % 2**64


def test_wrong_byte_is_found_with_its_address(
    worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = 2**14 // 8 + 5  # in the second piece

    def stuck(number: int, start: int, read: Any) -> Any:
        if number == 3 and start <= word < start + read.numel():
            read[word - start] |= 1 << 20
        return read

    monkeypatch.setattr(stage, "Block", faulty(stage, stuck))
    answer = worker.run("memory", {})
    (check,) = answer["checks"]
    assert check["wrong"] == 1  # the bit is set in one of pattern and complement
    i = 3 * 2**13 + word
    _, multiplier, offset = stage.STANDARD[0]
    expected = (i * multiplier + offset) % 2**64
    name = "addresses"
    if expected >> 20 & 1:
        expected, name = expected ^ (2**64 - 1), "complement of addresses"
    assert check["examples"] == [
        f"block 3, byte 0x{8 * word:x}: expected 0x{expected:016x}, read 0x{expected | 1 << 20:016x} ({name})"
    ]


def test_address_line_that_is_stuck(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two addresses share one cell: what was written last is read at both."""

    def aliased(number: int, start: int, read: Any) -> Any:
        if number == 0:
            read[0] = read[8]
        return read

    monkeypatch.setattr(stage, "Block", faulty(stage, aliased))
    (check,) = worker.run("memory", {})["checks"]
    assert check["wrong"] > 0
    assert check["examples"][0].startswith("block 0, byte 0x0: expected 0x")


def test_read_that_is_wrong_once(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def flaky(number: int, start: int, read: Any) -> Any:
        reads.append(number)
        if len(reads) == 2:
            read[7] ^= 1
        return read

    monkeypatch.setattr(stage, "Block", faulty(stage, flaky))
    (check,) = worker.run("memory", {})["checks"]
    assert check["wrong"] == 1
    assert "1 words differed when first read, none when read again" in check["examples"][0]


def test_examples_are_few(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "Block", faulty(stage, lambda number, start, read: read.zero_()))
    (check,) = worker.run("memory", {})["checks"]
    assert check["wrong"] > check["compared"] * 0.9  # some bytes are zero by right
    assert len(check["examples"]) == stage.EXAMPLES


def test_memory_that_runs_out_while_it_is_taken(
    worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stage.Block
    taken: list[int] = []

    def limited(worker: Any, words: int) -> Any:
        if sum(taken) + words * 8 > 3 * 2**16 + 2**15:
            raise worker.torch.cuda.OutOfMemoryError("CUDA out of memory.\nmore")
        taken.append(words * 8)
        return whole(worker, words)

    monkeypatch.setattr(stage, "Block", limited)
    monkeypatch.setattr(stage, "MARGIN_BYTES", 2**13)
    answer = worker.run("memory", {})
    assert answer["memory"]["taken"] == 3 * 2**16 + 2**15  # three whole blocks and a half
    assert answer["checks"][0]["compared"] == 2 * answer["memory"]["taken"]
    assert answer["stopped"].endswith("could be taken: CUDA out of memory.")


def test_memory_that_runs_out_during_a_pass(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def runs_out(number: int, start: int, read: Any) -> Any:
        looks.append(number)
        if len(looks) > 10:
            raise worker.torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return read

    monkeypatch.setattr(stage, "Block", faulty(stage, runs_out))
    answer = worker.run("memory", {})
    assert answer["checks"][0]["compared"] == 2 * 2**16  # two blocks of four pieces
    assert answer["checks"][0]["wrong"] == 0
    assert answer["stopped"] == "out of memory during a pass: CUDA out of memory."


def test_nothing_to_be_had(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(worker: Any, words: int) -> Any:
        raise worker.torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(stage, "Block", none)
    with pytest.raises(MemoryError, match="out of memory"):
        worker.run("memory", {})


def test_other_errors_are_the_stages(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(number: int, start: int, read: Any) -> Any:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    monkeypatch.setattr(stage, "Block", faulty(stage, broken))
    with pytest.raises(RuntimeError, match="uncorrectable ECC"):
        worker.run("memory", {})


def test_covered_is_a_share_of_the_card(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a card, of which so much is free."""
    total = 8 * 2**16
    monkeypatch.setattr(stage, "MARGIN_BYTES", 2**15)
    monkeypatch.setattr(stage, "BLOCK_BYTES", 2**16)
    monkeypatch.setattr(worker, "backend", "cuda")
    monkeypatch.setattr(worker, "synchronize", lambda: None)
    monkeypatch.setattr(worker.torch.cuda, "mem_get_info", lambda device: (7 * 2**16 + 2**15, total))
    monkeypatch.setattr(worker.torch.cuda, "empty_cache", lambda: None)
    (check,) = worker.run("memory", {})["checks"]
    assert check["covered"] == 7 / 8
    assert check["compared"] == 2 * 7 * 2**16
