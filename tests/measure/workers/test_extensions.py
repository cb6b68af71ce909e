"""Packages with GPU code, found by their metadata and their shared objects; nothing of them is imported."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.sources.interpreter import EXTENSIONS

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here")


@pytest.fixture(scope="module")
def program() -> Any:
    spec = spec_from_file_location("extensions_under_test", EXTENSIONS)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Shared objects: with kernels in AMD's and NVIDIA's section, linked to either's runtime, and plain."""
    folder = tmp_path_factory.mktemp("objects")

    def build(name: str, source: str, *flags: str) -> Path:
        path = folder / name
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, "-x", "c", "-", "-x", "none", *flags], input=source,
                       text=True, check=True)  # fmt: skip
        return path

    section = '__attribute__((section("%s"), used)) static const char code[] = "kernels";'
    built = {
        "hip": build("hip.so", section % ".hip_fatbin"),
        "cuda": build("cuda.so", section % ".nv_fatbin"),
    }
    built["plain"] = build("plain.so", "int one(void) { return 1; }")
    for name, runtime in (("linked to hip", "libamdhip64.so.7"), ("linked to cuda", "libcudart.so.12")):
        library = build(runtime, "int two(void) { return 2; }", f"-Wl,-soname,{runtime}")
        built[name] = build(f"{name}.so", "int two(void); int three(void) { return two(); }", str(library))
    return built


def package(site: Path, name: str, version: str, *files: tuple[str, Path]) -> None:
    metadata = site / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    lines = [f"{name}/__init__.py,,"]
    for place, source in files:
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, site / place)
        lines.append(f"{place},sha256=x,7")
    (metadata / "RECORD").write_text("\n".join(lines) + "\n")
    (site / name).mkdir(exist_ok=True)
    (site / name / "__init__.py").write_text("raise SystemExit('nobody asked to import this')\n")


@needs_compiler
def test_versions_and_vendors(tmp_path: Path, objects: dict[str, Path]) -> None:
    site = tmp_path / "site"
    package(site, "flash_attn", "2.8.3", ("flash_attn_2_cuda.cpython-312.so", objects["cuda"]))
    package(site, "bitsandbytes", "0.48.1", ("bitsandbytes/libbitsandbytes_rocm62.so", objects["linked to hip"]),
            ("bitsandbytes/libbitsandbytes_cuda124.so", objects["linked to cuda"]))  # fmt: skip
    package(site, "vllm", "0.11.0+rocm700", ("vllm/_C.abi3.so", objects["hip"]))
    package(site, "deepspeed", "0.18.0")
    package(site, "apex", "0.1", ("amp_C.so", objects["plain"]))
    package(site, "pytorch_triton_rocm", "3.5.1", ("triton/_C/libtriton.so", objects["plain"]),
            ("triton/backends/amd/driver.py", objects["plain"]))  # fmt: skip
    package(site, "numpy", "2.3.0", ("numpy/core.so", objects["cuda"]))
    egg = site / "causal_conv1d-1.5.2-py3.12-linux-x86_64.egg"
    (egg / "EGG-INFO").mkdir(parents=True)
    shutil.copy(objects["hip"], egg / "causal_conv1d_cuda.so")
    (site / "torch" / "lib").mkdir(parents=True)
    (site / "torch" / "lib" / "libaotriton_v2.so.0.11.1").write_bytes(objects["hip"].read_bytes())

    found = ask({"PYTHONPATH": f"{site}{os.pathsep}{egg}"})
    named = {one["name"]: (one["version"], one["built_for"], one["files"] > 0) for one in found}
    assert {name: named[name] for name in named if name != "torch"} == {
        "aotriton": ("0.11.1", ["hip"], True),
        "apex": ("0.1", [], True),
        "bitsandbytes": ("0.48.1", ["cuda", "hip"], True),
        "causal-conv1d": ("1.5.2", ["hip"], True),
        "deepspeed": ("0.18.0", [], False),
        "flash-attn": ("2.8.3", ["cuda"], True),
        "pytorch-triton-rocm": ("3.5.1", ["hip"], True),
        "vllm": ("0.11.0+rocm700", ["hip"], True),
    }


def ask(environment: dict[str, str]) -> list[dict[str, Any]]:
    reader, writer = os.pipe()
    try:
        subprocess.run(
            [sys.executable, EXTENSIONS, "10", str(writer)],
            pass_fds=(writer,),
            env={**os.environ, **environment},
            check=True,
            timeout=20,
        )
    finally:
        os.close(writer)
    with os.fdopen(reader) as answers:
        said = json.loads(answers.readline())
    assert said["item"] == "extensions"
    return list(said["value"])


@pytest.fixture(scope="module")
def one_object(objects: dict[str, Path]) -> Iterator[bytes]:
    yield objects["linked to hip"].read_bytes()


@needs_compiler
@pytest.mark.parametrize(
    ("name", "platforms"),
    [
        ("hip", {"hip"}),
        ("cuda", {"cuda"}),
        ("plain", set()),
        ("linked to hip", {"hip"}),
        ("linked to cuda", {"cuda"}),
    ],
)
def test_shared_objects(program: Any, objects: dict[str, Path], name: str, platforms: set[str]) -> None:
    with objects[name].open("rb") as file:
        assert program.platforms(file) == platforms


@needs_compiler
@given(data=st.data())
def test_a_damaged_shared_object_is_none(program: Any, one_object: bytes, data: st.DataObject) -> None:
    """Whatever stands in a file: it is read within bounds, and what comes of it is a set or a plain error."""
    damaged = bytearray(one_object)
    table = int.from_bytes(one_object[0x28:0x30], "little")
    places = st.integers(0, 63) | st.integers(table, len(one_object) - 1)
    for place in data.draw(st.lists(places, max_size=8)):
        damaged[place] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    with contextlib.suppress(ValueError, OSError, program.struct.error):
        assert program.platforms(io.BytesIO(bytes(damaged))) <= {"cuda", "hip"}


def test_a_package_whose_files_are_not_listed(program: Any, tmp_path: Path) -> None:
    (tmp_path / "xformers-0.0.32.dist-info").mkdir()
    assert program.recorded(str(tmp_path), str(tmp_path / "xformers-0.0.32.dist-info")) == []
    assert program.built_for([str(tmp_path / "gone.so")]) == set()
