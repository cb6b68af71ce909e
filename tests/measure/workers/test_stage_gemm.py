from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def stage(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = worker.beside("stage_gemm")
    monkeypatch.setattr(stage, "CPU_SHAPES", ((32, 32, 32), (16, 24, 40)))
    monkeypatch.setattr(stage, "CPU_PATIENCE_SECONDS", 5.0)
    return stage


@pytest.fixture
def products(worker: Any) -> Any:
    return worker.beside("products")


def randoms(worker: Any) -> Any:
    return lambda rows, columns, _: worker.torch.randn(rows, columns)


def test_rows(worker: Any, stage: Any) -> None:
    answer = worker.run("gemm", {})
    kinds = ["bfloat16", "float16", "float32", "float64"]
    assert [(row["measure"], row["dtype"], row["shape"]) for row in answer["rows"]] == [
        (f"gemm.{kind}", kind, shape) for kind in kinds for shape in ("32x32x32", "16x24x40")
    ]
    for row in answer["rows"]:
        assert row["unit"] == "TFLOP/s"
        assert len(row["values"]) >= stage.ROUNDS * stage.LEAST_BURST
        assert all(0 < value < 100 for value in row["values"])
        assert "sustained" not in row
    assert {absent["measure"] for absent in answer["absent"]} == {"gemm.tfloat32", "gemm.float8"}


def test_rate(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "times", lambda function, repetitions, warmup=3: [0.001] * repetitions)
    first, second = worker.run("gemm", {"only": ["gemm.float64"]})["rows"]
    assert first["values"][0] == pytest.approx(2 * 32**3 / 1e12 / 0.001)
    assert second["values"][0] == pytest.approx(2 * 16 * 24 * 40 / 1e12 / 0.001)


def test_arithmetic_that_this_cpu_emulates(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "CPU_PATIENCE_SECONDS", 0.0)
    answer = worker.run("gemm", {"only": ["gemm.float16"]})
    assert answer["rows"] == []
    assert answer["absent"][0]["why"].startswith("too slow on this CPU")


def test_sustained(worker: Any, stage: Any) -> None:
    (row,) = worker.run("gemm", {"sustained_seconds": 0.3})["rows"]
    assert row["sustained"] is True
    assert row["measure"] == "gemm.float32"
    assert len(row["values"]) >= 2
    assert all(value > 0 for value in row["values"])


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32", "float64"])
def test_products_are_right(worker: Any, products: Any, kind: str) -> None:
    torch = worker.torch
    whole = [torch.arange(12.0).view(3, 4), torch.arange(8.0).view(4, 2)]
    product = products.Product(worker, kind, (3, 2, 4), lambda rows, columns, number: whole[number])
    assert product.operations == 48
    assert product.run().tolist() == (whole[0] @ whole[1]).tolist()
    assert product.run().data_ptr() == product.run().data_ptr()  # no memory is taken anew


def test_tf32_forced_by_the_environment(worker: Any, products: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mm = worker.torch.mm

    def rounding(a: Any, b: Any, out: Any) -> Any:
        return mm(a.bfloat16().float(), b.bfloat16().float(), out=out)

    monkeypatch.setattr(worker.torch, "mm", rounding)
    with pytest.raises(products.Unavailable, match="done in TF32"):
        products.Product(worker, "float32", (64, 64, 64), randoms(worker))
    assert products.Product(worker, "tfloat32", (64, 64, 64), randoms(worker)).dtype == "tfloat32"


def test_tf32_that_is_none(worker: Any, products: Any) -> None:
    with pytest.raises(products.Unavailable, match="in float32 though TF32 was allowed"):
        products.Product(worker, "tfloat32", (64, 64, 64), randoms(worker))


@pytest.mark.parametrize(
    ("matmul", "name", "on", "off"),
    [
        (SimpleNamespace(allow_tf32="before"), "allow_tf32", True, False),
        (SimpleNamespace(fp32_precision="before", allow_tf32="none"), "fp32_precision", "tf32", "ieee"),
    ],
    ids=["old", "new"],
)
def test_setting_comes_back(products: Any, matmul: Any, name: str, on: Any, off: Any) -> None:
    product = object.__new__(products.Product)
    product._torch = SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul)))
    for kind, setting in (("tfloat32", on), ("bfloat16", off)):
        product.kind = kind
        with pytest.raises(ValueError, match="on purpose"), product.arithmetic():
            assert getattr(matmul, name) == setting
            raise ValueError("on purpose")
        assert getattr(matmul, name) == "before"


class OldTorch:
    """torch with a `_scaled_mm` of another time, and with a card of AMD's; the rest is the real one."""

    def __init__(self, torch: Any, scaled: Any, arch: str = "") -> None:
        self._torch = torch
        self._scaled_mm = scaled
        self.cuda = SimpleNamespace(
            get_device_properties=lambda device: SimpleNamespace(**({"gcnArchName": arch} if arch else {}))
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


def exact(torch: Any, a: Any, b: Any, out_dtype: Any) -> Any:
    return (a.float() @ b.float()).to(out_dtype)


@pytest.fixture
def without_card(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """On the CPU, but taken for a card of the kind whose capability is not asked."""
    monkeypatch.setattr(worker, "backend", "hip")
    monkeypatch.setattr(worker, "synchronize", lambda: None)
    if not hasattr(worker.torch, "float8_e4m3fn"):
        pytest.skip("a torch without types of 8 bits")
    return worker


@pytest.mark.parametrize("age", ["2.5", "2.2", "2.1"])
def test_float8_of_every_time(
    without_card: Any, products: Any, monkeypatch: pytest.MonkeyPatch, age: str
) -> None:
    worker, torch = without_card, without_card.torch

    def with_out(a: Any, b: Any, scale_a: Any, scale_b: Any, *, out: Any, out_dtype: Any, **_: Any) -> Any:
        return out.copy_(exact(torch, a, b, out_dtype))

    def pair(a: Any, b: Any, *, scale_a: Any, scale_b: Any, out_dtype: Any, use_fast_accum: bool) -> Any:
        return exact(torch, a, b, out_dtype), torch.zeros(())

    def bare(a: Any, b: Any, *, out_dtype: Any, use_fast_accum: bool) -> Any:
        return exact(torch, a, b, out_dtype), torch.zeros(())

    scaled = {"2.5": with_out, "2.2": pair, "2.1": bare}[age]
    monkeypatch.setattr(worker, "torch", OldTorch(torch, scaled))
    whole = [torch.arange(12.0).view(3, 4), torch.arange(8.0).view(2, 4)]  # the second in columns
    product = products.Product(worker, "float8", (3, 2, 4), lambda rows, columns, number: whole[number])
    assert product.dtype == "float8_e4m3fn"
    expected = whole[0].to(torch.float8_e4m3fn).float() @ whole[1].to(torch.float8_e4m3fn).float().t()
    assert product.run().float().tolist() == expected.bfloat16().float().tolist()


def test_float8_of_mi300(without_card: Any, products: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, torch = without_card, without_card.torch

    def scaled(a: Any, b: Any, out_dtype: Any, **options: Any) -> Any:
        if a.dtype == torch.float8_e4m3fn:
            raise RuntimeError("only fnuz")
        return exact(torch, a, b, out_dtype)

    monkeypatch.setattr(worker, "torch", OldTorch(torch, scaled))
    product = products.Product(worker, "float8", (16, 16, 16), randoms(worker))
    assert product.dtype == "float8_e4m3fnuz"


@pytest.mark.parametrize(
    ("arch", "dtype"),
    [
        ("gfx942:sramecc+:xnack-", "float8_e4m3fnuz"),
        ("gfx950:sramecc+:xnack-", "float8_e4m3fn"),
        ("gfx1201", "float8_e4m3fn"),
    ],
)
def test_float8_of_the_card_s_own_type(
    without_card: Any, products: Any, monkeypatch: pytest.MonkeyPatch, arch: str, dtype: str
) -> None:
    """The other is not tried, which some torch might do by detours."""
    worker, torch, tried = without_card, without_card.torch, set()

    def scaled(a: Any, b: Any, out_dtype: Any, **options: Any) -> Any:
        tried.add(str(a.dtype))
        return exact(torch, a, b, out_dtype)

    monkeypatch.setattr(worker, "torch", OldTorch(torch, scaled, arch))
    assert products.Product(worker, "float8", (16, 16, 16), randoms(worker)).dtype == dtype
    assert tried == {f"torch.{dtype}"}


def test_float8_of_a_torch_without_the_card_s_type(
    without_card: Any, products: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = OldTorch(without_card.torch, exact, "gfx942")
    old.float8_e4m3fnuz = None  # type: ignore[attr-defined]
    monkeypatch.setattr(without_card, "torch", old)
    with pytest.raises(products.Unavailable, match="this torch has no float8_e4m3fnuz"):
        products.Product(without_card, "float8", (16, 16, 16), randoms(without_card))


def test_float8_refused(without_card: Any, products: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(*_: Any, **__: Any) -> Any:
        raise RuntimeError("torch._scaled_mm is only supported on devices\nand more")

    monkeypatch.setattr(without_card, "torch", OldTorch(without_card.torch, scaled))
    with pytest.raises(
        products.Unavailable, match=r"refused: torch._scaled_mm is only supported on devices$"
    ):
        products.Product(without_card, "float8", (16, 16, 16), randoms(without_card))


def test_float8_before_ada(worker: Any, products: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "backend", "cuda")
    monkeypatch.setattr(worker.torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(products.Unavailable, match="the card has no products in 8 bits"):
        products.Product(worker, "float8", (16, 16, 16), randoms(worker))
