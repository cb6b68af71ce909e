"""ROCm's binding through the real source and its child: what it prints, raises, lacks, and where it hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.sources import amdsmi
from nodecheck.sources.amdsmi import Amdsmi, AmdsmiSurvey
from nodecheck.sources.channel import Answer, Recorded
from tests.fakes.amd import amdsmi as binding
from tests.fakes.amd import describe


def asked(folder: Path, release: str = "7.0", *, kind: str = "bare", **how: str) -> Answer:
    node = describe("mi300x", 2, kind="guest" if kind == "guest" else "bare")
    return binding.survey(
        node, folder / "rocm", release, silence_seconds=1.5 if "hang" in how else 20.0, **how
    )


def survey(answer: Answer) -> AmdsmiSurvey:
    assert isinstance(answer, dict), answer
    return AmdsmiSurvey(answer)


def refusal(answer: Answer) -> Absent:
    assert isinstance(answer, Absent), answer
    return answer


def test_answers_come_back_as_plain_json(tmp_path: Path) -> None:
    said = survey(asked(tmp_path))
    assert said.get("amdsmi_get_processor_handles") == 2
    assert said.get("amdsmi_get_gpu_device_bdf", 1) == "0000:15:00.0"
    assert said.get("amdsmi_get_gpu_virtualization_mode", 0) == {"mode": 1}  # a c_uint32
    assert said.get("amdsmi_topo_get_link_type", 0, 1) == {"hops": 1, "type": 2}


def test_errors_of_the_library_by_their_codes(tmp_path: Path) -> None:
    said = survey(asked(tmp_path, kind="guest"))
    assert refusal(said.get("amdsmi_get_power_cap_info", 0)).why is Why.not_supported
    assert refusal(said.get("amdsmi_get_gpu_bad_page_threshold", 0)).why is Why.no_permission


def test_what_a_release_does_not_have(tmp_path: Path) -> None:
    assert (
        refusal(survey(asked(tmp_path, "6.0")).get("amdsmi_get_gpu_enumeration_info", 0)).why
        is Why.not_present
    )


@pytest.mark.parametrize(
    ("how", "reason", "words"),
    [
        ({"fault": "missing"}, Why.failed, "KeyError"),
        ({"fault": "older"}, Why.failed, "undefined symbol"),
        ({"fault": "exit"}, Why.failed, "SystemExit"),
        ({"fault": "crash"}, Why.failed, "SIGABRT"),
        ({"hang": "amdsmi_init"}, Why.timed_out, "amdsmi_init() did not come back"),
    ],
)
def test_a_binding_that_does_not_start(how: dict[str, str], reason: Why, words: str, tmp_path: Path) -> None:
    absent = refusal(asked(tmp_path, **how))
    assert absent.why is reason
    assert words in absent.detail


def test_a_binding_that_hangs_keeps_what_it_told(tmp_path: Path) -> None:
    said = survey(asked(tmp_path, hang="amdsmi_get_gpu_device_bdf"))
    assert said.get("amdsmi_get_processor_handles") == 2
    assert refusal(said.get("amdsmi_get_gpu_asic_info", 0)).why is Why.timed_out


def test_chatter_on_import_is_no_answer(tmp_path: Path) -> None:
    assert survey(asked(tmp_path, fault="chatter")).get("amdsmi_get_processor_handles") == 2


def test_the_release_that_needs_its_place_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = binding.write(describe("mi300x", 1), tmp_path / "rocm", "6.0")
    monkeypatch.delenv("ROCM_PATH", raising=False)
    monkeypatch.setattr(amdsmi, "ROCM", str(root))
    assert survey(amdsmi.live().ask("survey")).get("amdsmi_get_processor_handles") == 1


def test_no_binding_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setattr(amdsmi, "ROCM", str(tmp_path))
    assert refusal(amdsmi.live().ask("survey")).why is Why.not_present


def test_a_recording_without_it_was_not_asked() -> None:
    absent = Amdsmi(Recorded({})).survey()
    assert isinstance(absent, Absent)
    assert absent.why is Why.not_asked
    damaged = Amdsmi(Recorded({"survey": {"value": [1]}})).survey()
    assert isinstance(damaged, Absent)
    assert damaged.why is Why.failed
