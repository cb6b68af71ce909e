from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def stage(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = worker.beside("stage_agreement")
    kinds = (("float32", (48, 32, 64)), ("bfloat16", (48, 32, 64)), ("float8", (48, 32, 64)))
    monkeypatch.setattr(stage, "CPU_KINDS", kinds)
    monkeypatch.setattr(stage, "CPU_SECONDS", 0.02)
    monkeypatch.setattr(stage, "ROWS_AT_ONCE", 20)  # ragged
    return stage


def disturb(worker: Any, monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    """Let each result pass through `fault(how many there were, result)`."""
    product = worker.beside("products").Product
    run = product.run
    runs: list[int] = []

    def disturbed(self: Any) -> Any:
        runs.append(1)
        return fault(len(runs), run(self))

    monkeypatch.setattr(product, "run", disturbed)


def test_sound(worker: Any, stage: Any) -> None:
    answer = worker.run("agreement", {"level": "standard"})
    assert [(check["check"], check["dtype"], check["wrong"]) for check in answer["checks"]] == [
        ("agreement.self", "float32", 0),
        ("agreement.self", "bfloat16", 0),
    ]
    for check in answer["checks"]:
        assert check["shape"] == "48x32x64"
        assert check["compared"] >= stage.CPU_REPETITIONS * 48 * 32
    assert list(answer["digests"]) == ["float32 48x32x64", "bfloat16 48x32x64"]
    assert all(len(digest) == 16 for digest in answer["digests"].values())
    assert answer["absent"][0]["measure"] == "agreement.float8"


def test_siblings_agree(make_worker: Any, worker: Any, stage: Any) -> None:
    first = worker.run("agreement", {})["digests"]
    monkey = make_worker()
    other = monkey.beside("stage_agreement")
    other.CPU_KINDS, other.CPU_SECONDS = stage.CPU_KINDS, 0.02  # its own copy of the stage, in larger pieces
    assert monkey.run("agreement", {})["digests"] == first


def test_wrong_bit_is_found(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flipped: dict[str, int] = {}

    def fault(count: int, result: Any) -> Any:
        # The first run shows that float32 is float32, the second is what all later ones are held against.
        if count != 4:
            return result
        wrong = result.clone()
        bits = wrong.view(worker.torch.int32)
        flipped["expected"] = int(bits[17, 5]) % 2**32
        bits[17, 5] ^= 1
        return wrong

    disturb(worker, monkeypatch, fault)
    answer = worker.run("agreement", {})
    check = answer["checks"][0]
    assert check["wrong"] == 1
    expected = flipped["expected"]
    assert check["examples"] == [
        f"repetition 2, row 17, column 5: expected 0x{expected:x}, read 0x{expected ^ 1:x}"
    ]
    assert answer["checks"][1]["wrong"] == 0


def test_card_that_is_always_wrong_has_another_digest(
    worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = worker.run("agreement", {})["digests"]

    def fault(count: int, result: Any) -> Any:
        if result.dtype == worker.torch.float32:
            result.view(worker.torch.int32)[47, 31] ^= 1 << 30
        return result

    disturb(worker, monkeypatch, fault)
    monkeypatch.setattr(worker.beside("products"), "TF32_ERROR", 1e9)
    answer = worker.run("agreement", {})
    assert answer["checks"][0]["wrong"] == 0
    assert answer["digests"]["float32 48x32x64"] != sound["float32 48x32x64"]
    assert answer["digests"]["bfloat16 48x32x64"] == sound["bfloat16 48x32x64"]


def test_nan_and_zeros_compare_by_their_bits(worker: Any, stage: Any) -> None:
    torch = worker.torch
    numbers = torch.tensor([[0.0, -0.0, float("nan"), 1.0]])
    bits = stage.bits(worker, numbers)
    assert bool((bits == bits.clone()).all())
    assert bits[0, 0] != bits[0, 1]


def test_checksum(worker: Any, stage: Any) -> None:
    torch = worker.torch
    integers = torch.randint(-(2**15), 2**15, (45, 7), dtype=torch.int16)
    expected = sum(value * (i * stage.ODD % 2**64 | 1) for i, value in enumerate(integers.flatten().tolist()))
    assert stage.checksum(worker, integers) == expected % 2**64
    for bit in range(15):
        other = integers.clone()
        other[30, 3] ^= 1 << bit
        assert stage.checksum(worker, other) != expected % 2**64


def test_factors(worker: Any, stage: Any) -> None:
    a = stage.hashed(worker, 50, 64, 0)
    assert a.shape == (50, 64)
    assert float(a.min()) >= -1
    assert float(a.max()) < 1
    assert abs(float(a.mean())) < 0.05
    assert a.unique().numel() > 3100  # of 3200
    assert bool((a != stage.hashed(worker, 50, 64, 1)).any())

    def word(i: int) -> int:  # as the stage's docstrings say, in Python's integers
        x: int = stage.signed((i + 1) * stage.ODD)
        x = stage.signed((x ^ x >> 30) * stage.OTHER_ODD)
        return x ^ x >> 27

    for i in (0, 1, 63, 64, 1279, 1280, 3199):  # across pieces
        assert float(a.flatten()[i]) == ((word(i) >> 20) % 2**24 - 2**23) / 2**23


def test_rocm_adds_in_one_order(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "backend", "hip")
    torch = worker.torch
    assert not torch.are_deterministic_algorithms_enabled()
    with stage.deterministic(worker):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
