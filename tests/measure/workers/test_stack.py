"""The worker itself, in real processes: with the real CPU torch, in old Pythons, and over a made-up CUDA."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodecheck.facts import Absent
from nodecheck.sources import child
from nodecheck.sources.child import Transcript
from nodecheck.sources.interpreter import WORKER, read_answers
from tests.fakes import cuda as fake

OLD_PYTHONS = sorted(Path("~/.pyenv/versions").expanduser().glob("3.[89].*/bin/python"))


def bare_python() -> str:
    """A Python that surely has no torch: an environment of its own, removed at the end."""
    folder = tempfile.mkdtemp(prefix="nodecheck-bare-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    venv.EnvBuilder(symlinks=True).create(folder)
    return f"{folder}/bin/python"


BARE = str(OLD_PYTHONS[0]) if OLD_PYTHONS else bare_python()
"""A Python without torch, the oldest at hand."""


def work(
    mode: str,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    seconds: float = 30.0,
    card: tuple[str, ...] = (),
) -> tuple[str, dict[str, Any], dict[str, Any], Transcript]:
    """The worker's last step, its items, its errors, and all that it printed."""
    said = child.collect(
        [python, str(WORKER), mode, *card, f"{0.7 * seconds:g}"],
        deadline_seconds=seconds,
        env=environment,
        answers=True,
    )
    assert not isinstance(said, Absent), said
    return (*read_answers(said.answers), said)


def over_cuda(
    mode: str, seconds: float = 30.0, /, **variables: str
) -> tuple[str, dict[str, Any], dict[str, Any], Transcript]:
    return work(mode, BARE, fake.environment(**variables), seconds)


# The real torch


@pytest.fixture(scope="module")
def described() -> tuple[str, dict[str, Any], dict[str, Any], Transcript]:
    pytest.importorskip("torch")
    return work("describe")


def test_the_real_torch_describes_itself(described: Any) -> None:
    import torch

    step, items, errors, said = described
    assert (step, said.returncode) == ("done", 0)
    assert items["version"] == torch.__version__
    assert items["path"] == str(Path(torch.__file__).parent)
    assert items["folders"] == [items["path"]]
    assert items["debug"] is torch.version.debug
    assert items["cuda"] == torch.version.cuda
    assert items["device_count"] == len(items["devices"]) == torch.cuda.device_count()
    assert 0 < items["import_seconds"] < said.seconds
    assert set(errors) <= {"init", "nccl"}


def test_the_real_torch_runs_the_kernel_on_the_cpu() -> None:
    pytest.importorskip("torch")
    step, items, errors, _ = work("cpu")
    assert (step, errors) == ("done", {})
    assert items["sum"] == {"got": 549755289600, "expected": 549755289600}
    assert items["kernel_seconds"] > 0


def test_finding_torch_does_not_import_it() -> None:
    _, items, _, said = work("find", environment=fake.environment(FAKE_TORCH="raises"))
    assert items["torch"] == str(fake.SITE / "torch" / "__init__.py")
    assert said.seconds < 5


# Without torch, and in old Pythons


@pytest.mark.parametrize("python", OLD_PYTHONS, ids=lambda path: path.parts[-3])
def test_old_pythons_without_torch_answer_cleanly(python: Path) -> None:
    step, items, _, said = work("find", str(python), {"PATH": "/usr/bin"})
    assert (items["torch"], said.returncode, said.stderr) == (None, 0, "")
    assert items["python"] == python.parts[-3]
    for mode in ("describe", "cpu"):
        step, items, errors, said = work(mode, str(python), {"PATH": "/usr/bin"})
        assert (step, said.returncode, said.stderr) == ("import", 0, "")
        assert errors["import"]["missing"] is True
        assert "version" not in items


def test_a_folder_that_is_called_torch_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    _, items, _, _ = work("find", BARE, {"PATH": "/usr/bin", "PYTHONPATH": str(tmp_path)})
    assert items["torch"] is None


def test_nothing_of_nodecheck_can_be_imported_in_the_worker(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import sys\nraise ImportError(repr(sys.path))\n")
    _, _, errors, _ = work("describe", BARE, {"PATH": "/usr/bin", "PYTHONPATH": str(tmp_path)})
    assert str(tmp_path) in errors["import"]["message"]
    assert str(WORKER.parent) not in errors["import"]["message"]
    assert "site-packages/nodecheck" not in errors["import"]["message"]


def test_the_users_nccl_file_is_read_for_nccl_alone(tmp_path: Path) -> None:
    file = tmp_path / ".nccl.conf"
    file.write_text("# mine\n NCCL_P2P_DISABLE = 1 \nPASSWORD=secret\nNCCL_ALGO\n")
    _, items, _, said = work("describe", BARE, {"PATH": "/usr/bin", "HOME": str(tmp_path)})
    assert items["nccl_settings"] == [["NCCL_P2P_DISABLE", "1"]]
    assert "secret" not in said.answers


# A made-up CUDA


def test_a_cuda_build_describes_its_cards() -> None:
    step, items, errors, _ = over_cuda("describe", FAKE_CUDA_CARDS="2")
    assert (step, errors) == ("done", {})
    assert items["init"] == {"code": 0, "name": "CUDA_SUCCESS", "message": "no error"}
    assert items["libcuda_version"] == 13000
    assert items["arch_list"] == ["sm_80", "sm_90", "compute_90"]
    assert items["nccl"] == [2, 28, 9, "suffix"]
    assert items["warnings"] == ["CUDA initialization: this is a warning"]
    assert any(path.endswith("libcuda.so.1") for path in items["libraries"])
    second = items["devices"][1]
    assert second == {
        "index": 1,
        "name": "NVIDIA H200",
        "uuid": fake.uuid(1),
        "pci_address": "0000:19:00.0",
        "capability": "9.0",
        "total_bytes": 150109880320,
        "multiprocessors": 132,
    }


def test_an_old_torch_gets_uuid_and_address_from_the_driver() -> None:
    _, items, _, _ = over_cuda("describe", FAKE_CUDA_CARDS="2", FAKE_TORCH="old")
    assert [(device["uuid"], device["pci_address"]) for device in items["devices"]] == [
        (fake.uuid(0), "0000:18:00.0"),
        (fake.uuid(1), "0000:19:00.0"),
    ]


def test_a_broken_attribute_costs_only_itself() -> None:
    step, items, errors, _ = over_cuda("describe", FAKE_TORCH="broken")
    assert step == "done"
    assert set(errors) == {"debug", "cudnn", "nccl"}
    assert errors["cudnn"]["message"] == "cuDNN version incompatibility"
    assert items["version"] == "2.11.0+cu130"
    assert len(items["devices"]) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [("raises", "ImportError", "libcudart.so.13"), ("exits", "SystemExit", "does not like it")],
)
def test_an_import_that_breaks_is_an_answer(fault: str, kind: str, words: str) -> None:
    step, items, errors, said = over_cuda("describe", FAKE_TORCH=fault)
    assert (step, said.returncode) == ("import", 0)
    assert errors["import"]["type"] == kind
    assert words in errors["import"]["message"]
    assert errors["import"]["missing"] is False
    assert items["init"]["code"] == 0


def test_an_import_that_hangs_leaves_its_stack() -> None:
    began = time.monotonic()
    step, items, _, said = over_cuda("describe", 1.5, FAKE_TORCH="hangs")
    assert (step, said.returncode) == ("import", None)
    assert items["init"]["code"] == 0
    assert "site/torch/__init__.py" in said.stderr
    assert "in import_torch" in said.stderr
    assert time.monotonic() - began < 5


def test_an_import_that_dies_by_a_signal_leaves_its_stack() -> None:
    step, _, _, said = over_cuda("describe", FAKE_TORCH="dies")
    assert (step, said.returncode) == ("import", -4)
    assert "site/torch/__init__.py" in said.stderr


def test_garbage_on_stdout_is_no_answer() -> None:
    step, items, _, said = over_cuda("describe", FAKE_TORCH="prints")
    assert (step, items["version"]) == ("done", "2.11.0+cu130")
    assert "not mine" in said.stdout
    assert "more garbage" in said.stderr


def test_the_error_of_cuinit_comes_with_its_number() -> None:
    step, items, _, _ = over_cuda("describe", FAKE_CUDA_INIT="802")
    assert items["init"]["code"] == 802
    assert items["init"]["name"] == "CUDA_ERROR_SYSTEM_NOT_READY"
    assert "driver_devices" not in items
    assert step == "done"


def test_a_driver_without_texts_still_gives_numbers() -> None:
    _, items, _, _ = over_cuda("describe", FAKE_CUDA_INIT="34", FAKE_CUDA_MUTE="1")
    assert items["init"] == {"code": 34, "name": "", "message": ""}


def test_a_cuinit_that_hangs_does_not_cost_what_torch_says(tmp_path: Path) -> None:
    patient = tmp_path / "stack.py"
    text = WORKER.read_text(encoding="utf-8")
    assert "DRIVER_PATIENCE_SECONDS = 60.0" in text
    patient.write_text(text.replace("DRIVER_PATIENCE_SECONDS = 60.0", "DRIVER_PATIENCE_SECONDS = 0.3"))
    said = child.collect(
        [BARE, str(patient), "describe", "20"],
        deadline_seconds=20,
        env=fake.environment(FAKE_CUDA_INIT="hang"),
        answers=True,
    )
    assert isinstance(said, Transcript)
    step, items, errors = read_answers(said.answers)
    assert said.returncode == 0
    assert (step, items["version"], items["arch_list"][0]) == ("devices", "2.11.0+cu130", "sm_80")
    assert "init" not in items
    assert errors["available"]["type"] == "TimeoutError"


def test_a_context_and_a_kernel() -> None:
    step, items, errors, _ = over_cuda("context", FAKE_CUDA_CARDS="4", CUDA_VISIBLE_DEVICES=fake.uuid(2))
    assert (step, errors) == ("done", {})
    assert items["device"]["uuid"] == fake.uuid(2)
    assert items["context"]["code"] == 0
    assert items["sum"]["got"] == items["sum"]["expected"]
    assert items["free_bytes"] == 149437939712


def test_a_refused_context_is_not_tried_with_torch() -> None:
    step, items, _, said = over_cuda("context", FAKE_CUDA_CONTEXT="46", FAKE_TORCH="dies")
    assert (step, said.returncode) == ("context", 0)
    assert items["context"]["name"] == "CUDA_ERROR_DEVICE_UNAVAILABLE"


def test_a_card_that_cuda_does_not_hand_out() -> None:
    step, items, errors, _ = over_cuda("context", FAKE_CUDA_CARDS="1", CUDA_VISIBLE_DEVICES=fake.uuid(5))
    assert step == "context"
    assert errors["context"]["code"] == 101
    assert "sum" not in items


def test_torchs_exception_carries_its_number() -> None:
    _, items, errors, _ = over_cuda("context", FAKE_TORCH="kernel-209")
    assert errors["sum"]["code"] == 209
    assert "no kernel image" in errors["sum"]["message"]
    assert "sum" not in items


@pytest.mark.parametrize(
    ("variables", "step"),
    [
        ({"FAKE_CUDA_INIT": "hang"}, "init"),
        ({"FAKE_CUDA_CONTEXT": "hang"}, "context"),
        ({"FAKE_TORCH": "kernel-hangs"}, "kernel"),
    ],
)
def test_a_card_that_hangs_is_named_by_its_step(variables: dict[str, str], step: str) -> None:
    last, _, _, said = over_cuda("context", 1.0, **variables)
    assert (last, said.returncode) == (step, None)
    assert "most recent call first" in said.stderr


@pytest.mark.parametrize(
    ("variables", "step"),
    [({"FAKE_CUDA_CONTEXT": "crash"}, "context"), ({"FAKE_TORCH": "kernel-dies"}, "kernel")],
)
def test_a_crash_is_named_by_its_step(variables: dict[str, str], step: str) -> None:
    last, _, _, said = over_cuda("context", **variables)
    assert (last, said.returncode) == (step, -11)


# A build for ROCm, over a libamdhip64 of our own


def rocm(mode: str, *card: str, **variables: str) -> tuple[str, dict[str, Any], dict[str, Any], Transcript]:
    return work(mode, card=card, environment=fake.rocm_environment(**variables))


def test_a_rocm_build_describes_its_cards() -> None:
    step, items, errors, _ = rocm("describe", FAKE_HIP_CARDS="2")
    assert (step, set(errors)) == ("done", {"init"})  # no libcuda
    assert (items["cuda"], items["hip"]) == (None, "7.2.26015-fc0010cf6a")
    assert (items["hip_init"]["code"], items["hip_runtime"], items["cudnn"]) == (0, 70226015, 3005001)
    assert items["arch_list"] == ["gfx90a", "gfx942", "gfx950"]
    assert (items["device_count"], items["runtime_count"]) == (2, 2)
    assert [device["uuid"] for device in items["devices"]] == [fake.hip_uuid(0), fake.hip_uuid(1)]
    assert items["devices"][1]["pci_address"] == "0021:00:00.0"
    assert items["devices"][0]["capability"] == "gfx942"
    assert any("libamdhip64" in path for path in items["libraries"])


def test_an_old_rocm_build_is_helped_out_by_hip() -> None:
    _, items, _, _ = rocm("describe", FAKE_TORCH="old")
    assert items["devices"][0]["uuid"] == fake.hip_uuid(0)


def test_a_torch_that_counts_by_another_library_than_it_runs_on() -> None:
    _, items, _, _ = rocm("describe", FAKE_TORCH="amdsmi", FAKE_HIP_CARDS="8")
    assert (items["device_count"], items["runtime_count"]) == (0, 8)


def test_a_kernel_on_amd_s_card() -> None:
    step, items, errors, said = rocm("hip", FAKE_HIP_CARDS="4", ROCR_VISIBLE_DEVICES=fake.hip_uuid(2))
    assert (step, errors, said.returncode) == ("done", {}, 0)
    assert items["device"] == {"uuid": fake.hip_uuid(2), "pci_address": "0031:00:00.0"}
    assert (items["init"]["name"], items["context"]["code"], items["sum"]["got"]) == (
        "hipSuccess",
        0,
        549755289600,
    )


@pytest.mark.parametrize(
    ("variables", "step", "item", "told"),
    [
        ({"FAKE_HIP_INIT": "100"}, "init", "init", "hipErrorNoDevice"),
        ({"HIP_VISIBLE_DEVICES": "7"}, "init", "init", "hipErrorNoDevice"),
        ({"FAKE_HIP_CONTEXT": "999"}, "context", "context", "hipErrorUnknown"),
    ],
)
def test_hip_s_errors_have_numbers_and_names(
    variables: dict[str, str], step: str, item: str, told: str
) -> None:
    at, items, _, _ = rocm("hip", **variables)
    assert (at, items[item]["name"]) == (step, told)
    assert "sum" not in items


def test_a_cuda_build_is_none_for_amd_s_cards() -> None:
    step, items, errors, _ = work("hip", environment=fake.environment())
    assert step == "init"
    assert "no build for ROCm" in errors["init"]["message"]
    assert "sum" not in items


@pytest.mark.parametrize("variables", [{}, {"HIP_VISIBLE_DEVICES": "3,2"}], ids=str)
def test_a_card_without_a_uuid_is_found_by_its_address(variables: dict[str, str]) -> None:
    """Whatever HIP's order is."""
    step, items, errors, said = rocm(
        "hip", "0031:00:00.0", FAKE_HIP_CARDS="4", FAKE_HIP_MUTE="1", **variables
    )
    assert (step, errors, said.returncode) == ("done", {}, 0)
    assert items["device"] == {"uuid": None, "pci_address": "0031:00:00.0"}
    assert items["sum"]["got"] == 549755289600


@pytest.mark.parametrize(
    ("address", "variables", "told"),
    [
        ("0031:00:00.1", {}, "HIP shows 0 devices at 0031:00:00.1, of 4"),
        ("0031:00:00.0", {"HIP_VISIBLE_DEVICES": "0"}, "HIP shows 0 devices at 0031:00:00.0, of 1"),
        ("0031:00:00.0", {"HIP_VISIBLE_DEVICES": "2,2"}, "HIP shows 2 devices at 0031:00:00.0, of 2"),
    ],
)
def test_a_card_that_hip_does_not_show_is_not_tried(
    address: str, variables: dict[str, str], told: str
) -> None:
    """Nor is another in its place."""
    step, items, errors, _ = rocm("hip", address, FAKE_HIP_CARDS="4", FAKE_HIP_MUTE="1", **variables)
    assert (step, errors["context"]["message"]) == ("context", told)
    assert not items.keys() & {"device", "sum"}


def test_a_card_without_a_uuid_is_none_the_worse() -> None:
    step, items, _, _ = rocm("hip", FAKE_HIP_MUTE="1")
    assert (step, items["device"]["uuid"]) == ("done", None)
