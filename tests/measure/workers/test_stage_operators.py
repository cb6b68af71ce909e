"""Stage `operators` on the CPU's own torch, sound and with faults planted in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def stage(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = worker.beside("stage_operators")
    monkeypatch.setitem(stage.DTYPES, "cpu", ("float32", "bfloat16"))
    return stage


def only(stage: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(stage, "OPERATORS", tuple(one for one in stage.OPERATORS if one.name in names))
    monkeypatch.setattr(stage, "FLOAT8", ())


def replace(stage: Any, monkeypatch: pytest.MonkeyPatch, name: str, call: Any) -> None:
    """Let an operator give what `call` gives on the device; the reference in float64 stays sound."""
    (operator,) = (one for one in stage.OPERATORS if one.name == name)

    def either(torch: Any, *arguments: Any) -> Any:
        wide = any(x.dtype == torch.float64 for x in arguments)
        return operator.call(torch, *arguments) if wide else call(operator.call, torch, *arguments)

    monkeypatch.setattr(stage, "OPERATORS", (operator._replace(call=either, dtypes=("float32",)),))
    monkeypatch.setattr(stage, "FLOAT8", ())


def test_sound(worker: Any, stage: Any) -> None:
    answer = worker.run("operators", {})
    assert [check for check in answer["checks"] if check["wrong"] or not check["compared"]] == []
    names = {check["check"] for check in answer["checks"]}
    assert {"operators.linear", "operators.attention_math", "operators.conv2d", "operators.cast"} <= names
    assert "operators.compile" not in names
    # A back end that is the card's alone is named, and nothing is wrong for it.
    assert any(one["measure"] == "operators.attention_cudnn_attention" for one in answer["absent"])


def test_settings_are_as_they_were(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only(stage, monkeypatch, "gelu")
    torch = worker.torch
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision(), dict(os.environ)
    worker.run("operators", {})
    assert (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision(), dict(os.environ)) == before


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda call, torch, x: call(torch, x) + (torch.arange(512) == 7) * 0.5, "output [0, 7]"),
        (
            lambda call, torch, x: call(torch, x) * torch.where(torch.arange(512) == 9, float("nan"), 1.0),
            "nan",
        ),
        (lambda call, torch, x: call(torch, x.detach()) + 0 * x, "gradient 0"),
    ],
    ids=["one column", "no number", "a gradient alone"],
)
def test_wrong_numbers_are_found(
    worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch, fault: Any, says: str
) -> None:
    replace(stage, monkeypatch, "softmax", fault)
    (check,) = worker.run("operators", {})["checks"]
    assert check["wrong"] > 0 and any(says in example for example in check["examples"])


def test_an_operator_that_raises_is_wrong(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("HIP error: invalid device function")

    replace(stage, monkeypatch, "gelu", broken)
    (check,) = worker.run("operators", {})["checks"]
    assert check["wrong"] == 1 and "invalid device function" in check["examples"][0]


def test_eight_bits_rounded_otherwise(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only(stage, monkeypatch)
    monkeypatch.setattr(stage, "FLOAT8", ("float8_e4m3fn", "float8_of_tomorrow"))
    answer = worker.run("operators", {})
    assert [(check["dtype"], check["wrong"]) for check in answer["checks"]] == [("float8_e4m3fn", 0)]
    assert answer["absent"][0]["dtype"] == "float8_of_tomorrow"


def test_compiling_leaves_nothing_behind(
    worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    only(stage, monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(worker.torch, "compile", lambda function, **_: function)
    before = dict(os.environ)
    (check,) = worker.run("operators", {"level": "full"})["checks"]
    assert (check["check"], check["wrong"]) == ("operators.compile", 0)
    assert dict(os.environ) == before and list(tmp_path.iterdir()) == []


def test_no_compiler_is_no_wrong_number(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only(stage, monkeypatch)

    def broken(*_: Any) -> Any:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(worker.torch, "compile", lambda _function, **_: broken)
    answer = worker.run("operators", {"level": "full"})
    assert answer["checks"] == [] and "C compiler" in answer["absent"][0]["why"]


def test_standard_leaves_out_what_is_slow_at_its_first_use(
    worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stage.DTYPES, "cpu", ("float32", "float16"))
    kinds = [one for one in stage.OPERATORS if one.name in ("gelu", "silu")]
    monkeypatch.setattr(stage, "OPERATORS", (kinds[0], kinds[1]._replace(slow_on=("cpu",))))
    monkeypatch.setattr(stage, "FLOAT8", ())
    monkeypatch.setattr(worker.torch, "compile", lambda function, **_: function)

    def ran(level: str) -> set[tuple[str, str]]:
        found = worker.run("operators", {"level": level})["checks"]
        return {(check["check"].partition(".")[2], check["dtype"]) for check in found}

    assert ran("standard") == {("gelu", "float32")}
    both = {(name, dtype) for name in ("gelu", "silu") for dtype in ("float32", "float16")}
    assert ran("full") == {*both, ("compile", "float32")}


def test_a_card_that_takes_nothing_more_is_not_asked_on(
    worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def refuses(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    only(stage, monkeypatch, "gelu", "silu", "softmax")
    softmax, gelu, silu = stage.OPERATORS
    monkeypatch.setattr(stage, "OPERATORS", (softmax, gelu._replace(call=sometimes(gelu, broken)), silu))
    monkeypatch.setattr(worker.torch, "ones", refuses)
    answer = worker.run("operators", {})
    assert "after gelu in float32" in answer["spent"]
    told = [(check["check"], check["dtype"], bool(check["wrong"])) for check in answer["checks"]]
    assert told[-1] == ("operators.gelu", "float32", True)
    assert not any(name == "operators.silu" for name, _, _ in told)


def sometimes(operator: Any, broken: Any) -> Any:
    """The operator, which breaks wherever it is not the reference."""
    return lambda torch, *arguments: (
        operator.call(torch, *arguments)
        if any(x.dtype == torch.float64 for x in arguments)
        else broken(torch, *arguments)
    )


IMPORTS = """
import sys
from pathlib import Path
from importlib import util

spec = util.spec_from_file_location("worker", sys.argv[1])
program = util.module_from_spec(spec)
spec.loader.exec_module(program)
worker = program.Worker(lambda line: None)
worker.start({"card": "cpu0", "cards": ["cpu0"]})
before = set(sys.modules)
worker.run("operators", {})
print("sympy" in set(sys.modules) - before)
"""


def test_nothing_heavy_is_imported_for_a_gradient(stage: Any) -> None:
    """torch's own backward(gradient) imports sympy, which takes a second."""
    program = Path(stage.__file__).with_name("worker.py")
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS, program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.splitlines()[-1] == "False"
