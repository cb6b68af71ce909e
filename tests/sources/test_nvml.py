"""The NVML source over the real pynvml and a library that hangs, crashes, refuses and forgets on command."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources import child
from nodecheck.sources.channel import Recorded, Recorder, encode
from nodecheck.sources.nvml import Nvml, Survey, error_number, live
from tests.fakes import nvml
from tests.surveys import healthy, needs_compiler, standing_in, survey

pytestmark = needs_compiler

HUNG = "nvmlDeviceGetPowerUsage 2"
SILENCE_SECONDS = 1.2


def asked(description: nvml.Description, **limits: float) -> Survey:
    said = survey(description, **limits)
    assert isinstance(said, Survey), said
    return said


def refusal(said: Maybe[Survey]) -> Absent:
    assert isinstance(said, Absent), said
    return said


def four(change: dict[str, str]) -> nvml.Description:
    return {**nvml.describe("h200", 4), **change}


# What a healthy node says


def test_answers_come_back_as_plain_json() -> None:
    said = healthy("h200", 4)
    assert said.get("nvmlSystemGetDriverVersion") == nvml.DRIVER
    assert said.get("nvmlDeviceGetCount") == 4
    assert said.get("nvmlDeviceGetHandleByIndex", 3) is True
    assert said.get("nvmlDeviceGetName", 3) == "NVIDIA H200"
    assert said.get("nvmlDeviceGetGspFirmwareVersion", 0) == nvml.DRIVER  # bytes in pynvml
    assert said.get("nvmlDeviceGetCudaComputeCapability", 0) == [9, 0]
    assert said.get("nvmlDeviceValidateInforom", 0) is True  # None in pynvml
    info = said.get("nvmlDeviceGetPciInfo", 1)
    assert isinstance(info, dict)
    assert info["busId"] == "00000000:2A:00.0"
    memory = said.get("nvmlDeviceGetMemoryInfo", 2, "nvmlMemory_v2")
    assert isinstance(memory, dict)
    assert memory["total"] == memory["reserved"] + memory["free"]


def test_module_ids_are_told_apart_in_spite_of_a_shared_default() -> None:
    assert [healthy("h200", 4).get("nvmlDeviceGetModuleId", i) for i in range(4)] == [1, 2, 3, 4]


def test_a_card_without_a_module_id_says_so() -> None:
    answer = healthy("l40s", 2).get("nvmlDeviceGetModuleId", 0)
    assert isinstance(answer, Absent)
    assert answer.why is Why.not_supported


def test_fields_come_in_their_own_types_and_each_with_its_own_error() -> None:
    said = healthy("h200", 2)
    assert said.get("nvmlDeviceGetFieldValues", 0, 91) == 18
    assert said.get("nvmlDeviceGetFieldValues", 0, 230) == 0
    assert said.get("nvmlDeviceGetFieldValues", 1, 164, 17) == 26562
    missing = said.get("nvmlDeviceGetFieldValues", 0, 90)
    assert isinstance(missing, Absent)
    assert missing.why is Why.not_supported


def test_every_pair_is_asked_once_and_in_the_first_cards_order() -> None:
    said = healthy("h200", 4)
    for a in range(4):
        for b in range(a + 1, 4):
            assert said.get("nvmlDeviceGetTopologyCommonAncestor", a, b) == 40
            # NVML_P2P_CAPS_INDEX_READ is a tuple in pynvml.
            assert said.get("nvmlDeviceGetP2PStatus", a, b, "NVML_P2P_CAPS_INDEX_READ") == 0
    assert not isinstance(healthy("l40s", 2).get("nvmlDeviceGetTopologyCommonAncestor", 0, 1), Absent)


def test_links_are_asked_up_to_the_number_the_card_has() -> None:
    said = healthy("h200", 2)
    assert said.get("nvmlDeviceGetNvLinkState", 1, 17) == 1
    beyond = said.get("nvmlDeviceGetNvLinkState", 1, 18)
    assert isinstance(beyond, Absent)
    assert beyond.why is Why.not_asked


def test_without_a_link_count_links_are_asked_until_one_is_not_there() -> None:
    description = nvml.describe("a100", 2)
    for card in (0, 1):
        description[f"nvmlDeviceGetFieldValues {card} 91 0"] = nvml.code(2)
    said = asked(description)
    assert said.get("nvmlDeviceGetNvLinkState", 1, 11) == 1
    last = said.get("nvmlDeviceGetNvLinkState", 1, 12)
    assert isinstance(last, Absent)
    assert error_number(last) == 2


def test_links_switched_off_by_the_driver_are_asked_once() -> None:
    said = asked(nvml.describe("h200", 1, links="disabled"))
    first, second = (said.get("nvmlDeviceGetNvLinkState", 0, link) for link in (0, 1))
    assert isinstance(first, Absent)
    assert first.why is Why.not_supported
    assert isinstance(second, Absent)
    assert second.why is Why.not_asked


def test_mig_devices_are_counted_only_where_mig_is_on() -> None:
    description = nvml.describe("h200", 1)
    description |= {
        "nvmlDeviceGetMigMode 0": "1 1",
        "nvmlDeviceGetMaxMigDeviceCount 0": "7",
        "nvmlDeviceGetMigDeviceHandleByIndex 0 0": "200",
    }
    said = asked(description)
    assert said.get("nvmlDeviceGetMigDeviceHandleByIndex", 0, 0) is True
    empty = said.get("nvmlDeviceGetMigDeviceHandleByIndex", 0, 6)
    assert isinstance(empty, Absent)
    assert empty.why is Why.not_present
    off = healthy("h200", 1).get("nvmlDeviceGetMigDeviceHandleByIndex", 0, 0)
    assert isinstance(off, Absent)
    assert off.why is Why.not_asked


def test_the_survey_says_how_long_calls_took() -> None:
    description = nvml.describe("h200", 2)
    said = asked(description)
    slowest = said.get("slowest", 1)
    assert isinstance(slowest, dict)
    assert slowest["question"].endswith(")") and slowest["seconds"] > 0
    assert isinstance(said.get("start", 1), float)
    assert isinstance(said.seconds, float)
    assert said.seconds > slowest["seconds"]


def test_no_card_at_all_is_a_survey_that_counts_none() -> None:
    assert asked(nvml.describe("h200", 0)).get("nvmlDeviceGetCount") == 0


def test_excluded_cards_are_asked_for() -> None:
    description = nvml.describe("h200", 1)
    description["nvmlGetExcludedDeviceCount"] = "1"
    description["nvmlGetExcludedDeviceInfoByIndex 0"] = (
        f"{nvml.pci_info('0000:DB:00.0')} GPU-11111111-0000-4000-8000-000000000000"
    )
    info: Any = asked(description).get("nvmlGetExcludedDeviceInfoByIndex", 0)
    assert info["pci"]["busId"] == "00000000:DB:00.0"


# NVML that does not start


@pytest.mark.parametrize(
    ("number", "why", "name"),
    [
        (4, Why.no_permission, "NVML_ERROR_NO_PERMISSION"),
        (9, Why.not_present, "NVML_ERROR_DRIVER_NOT_LOADED"),
        (15, Why.failed, "NVML_ERROR_GPU_IS_LOST"),
        (18, Why.failed, "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
        (999, Why.failed, "NVML_ERROR_UNKNOWN"),
        (777, Why.failed, "NVML_ERROR (777): error 777 of the stand-in"),
    ],
)
def test_nvml_that_does_not_start_says_why(number: int, why: Why, name: str) -> None:
    said = refusal(survey(four({"nvmlInitWithFlags": nvml.code(number)})))
    assert said.why is why
    assert said.detail.startswith(name)
    assert error_number(said) == number


def test_a_machine_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    said = Nvml(live()).survey()
    if isinstance(said, Survey):
        pytest.skip("this machine has a real NVML")
    assert (said.why, error_number(said)) in ((Why.not_present, 12), (Why.not_present, 9))


def test_an_interpreter_without_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    said = refusal(Nvml(live()).survey())
    assert said.why is Why.not_present
    assert "nvidia-ml-py" in said.detail


def test_an_interpreter_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert refusal(Nvml(live()).survey()).why is Why.not_present


# Cards that hang, crash and refuse


def assert_only_card_2_is_gone(said: Survey, why: Why, culprit: str) -> None:
    for unanswered in (
        said.get("nvmlDeviceGetCurrPcieLinkWidth", 2) if "Power" in culprit else said.get("slowest", 2),
        said.get("nvmlDeviceGetNvLinkVersion", 2, 17),
        said.get("slowest", 2),
    ):
        assert isinstance(unanswered, Absent)
        assert unanswered.why is why
        assert culprit in unanswered.detail
    for card in (0, 1, 3):
        assert said.get("nvmlDeviceGetPowerUsage", card) == 87500 + 137 * card
        assert isinstance(said.get("slowest", card), dict)
    assert said.get("nvmlDeviceGetP2PStatus", 0, 3, "NVML_P2P_CAPS_INDEX_NVLINK") == 0
    assert said.get("rest") == Absent(why=Why.not_asked, detail="rest()")


@pytest.mark.parametrize("fault", [nvml.HANG, nvml.DEAF])
@pytest.mark.parametrize("call", ["nvmlDeviceGetPowerUsage 2", "nvmlDeviceGetNvLinkState 2 5"])
def test_a_card_that_hangs_takes_only_itself_along(call: str, fault: str) -> None:
    began = time.monotonic()
    said = asked(four({call: fault}), silence_seconds=SILENCE_SECONDS)
    assert time.monotonic() - began < 10
    symbol, _, arguments = call.partition(" ")
    culprit = f"{symbol}({arguments.replace(' ', ',')})"
    hung = said.get(symbol, *arguments.split())
    assert isinstance(hung, Absent)
    assert hung.why is Why.timed_out
    assert culprit in hung.detail and f"{SILENCE_SECONDS:g} s" in hung.detail
    assert_only_card_2_is_gone(said, Why.timed_out, culprit)
    assert said.get("nvmlDeviceGetName", 2) == "NVIDIA H200"  # answered before it hung


def test_a_card_that_crashes_the_library_takes_only_itself_along() -> None:
    said = asked(four({HUNG: nvml.CRASH}))
    crashed = said.get("nvmlDeviceGetPowerUsage", 2)
    assert isinstance(crashed, Absent)
    assert crashed.why is Why.failed
    assert "SIGSEGV" in crashed.detail
    assert_only_card_2_is_gone(said, Why.failed, "nvmlDeviceGetPowerUsage(2)")


def test_a_library_that_ends_the_process_is_told_by_its_last_words() -> None:
    said = asked(four({HUNG: ""}))  # the stand-in gives up on a value that is too short
    ended = said.get("nvmlDeviceGetPowerUsage", 2)
    assert isinstance(ended, Absent)
    assert "code 70" in ended.detail and "too short" in ended.detail
    assert_only_card_2_is_gone(said, Why.failed, "nvmlDeviceGetPowerUsage(2)")


def test_a_handle_that_hangs_is_left_out_of_the_pairs_as_well() -> None:
    said = asked(four({"nvmlDeviceGetHandleByIndex_v2 2": nvml.HANG}), silence_seconds=SILENCE_SECONDS)
    for question in (
        ("nvmlDeviceGetHandleByIndex", 2),
        ("nvmlDeviceGetName", 2),
        ("nvmlDeviceGetP2PStatus", 1, 2, "NVML_P2P_CAPS_INDEX_READ"),
        ("nvmlDeviceGetP2PStatus", 2, 3, "NVML_P2P_CAPS_INDEX_READ"),
    ):
        answer = said.get(*question)  # type: ignore[arg-type]
        assert isinstance(answer, Absent)
        assert answer.why is Why.timed_out
    assert said.get("nvmlDeviceGetP2PStatus", 1, 3, "NVML_P2P_CAPS_INDEX_READ") == 0


def test_a_pair_that_hangs_costs_the_two_cards_their_pairs_and_nothing_else() -> None:
    said = asked(four({"nvmlDeviceGetP2PStatus 1 2 0": nvml.HANG}), silence_seconds=SILENCE_SECONDS)
    hung = said.get("nvmlDeviceGetP2PStatus", 1, 2, "NVML_P2P_CAPS_INDEX_WRITE")
    assert isinstance(hung, Absent)
    assert hung.why is Why.timed_out
    assert said.get("nvmlDeviceGetP2PStatus", 0, 3, "NVML_P2P_CAPS_INDEX_READ") == 0
    assert all(
        said.get("nvmlDeviceGetUtilizationRates", card) == {"gpu": 0, "memory": 0} for card in range(4)
    )


def test_every_card_may_hang_and_the_survey_still_ends() -> None:
    began = time.monotonic()
    said = asked(
        four({f"nvmlDeviceGetPciInfo_v3 {i}": nvml.HANG for i in range(4)}), silence_seconds=SILENCE_SECONDS
    )
    assert time.monotonic() - began < 15
    for card in range(4):
        answer = said.get("nvmlDeviceGetName", card)
        assert isinstance(answer, Absent)
        assert answer.why is Why.timed_out


@pytest.mark.parametrize(("fault", "why"), [(nvml.HANG, Why.timed_out), (nvml.CRASH, Why.failed)])
def test_a_start_that_never_ends(fault: str, why: Why) -> None:
    said = refusal(survey(four({"nvmlInitWithFlags": fault}), silence_seconds=SILENCE_SECONDS))
    assert said.why is why
    assert "nvmlInit()" in said.detail


def test_a_question_about_the_node_that_hangs_is_left_out() -> None:
    said = asked(four({"nvmlSystemGetConfComputeState": nvml.HANG}), silence_seconds=SILENCE_SECONDS)
    hung = said.get("nvmlSystemGetConfComputeState")
    assert isinstance(hung, Absent)
    assert hung.why is Why.timed_out
    assert said.get("nvmlDeviceGetName", 3) == "NVIDIA H200"


def test_a_count_that_hangs_leaves_no_cards_and_says_so() -> None:
    said = asked(four({"nvmlDeviceGetCount_v2": nvml.HANG}), silence_seconds=SILENCE_SECONDS)
    count = said.get("nvmlDeviceGetCount")
    assert isinstance(count, Absent)
    assert count.why is Why.timed_out
    assert said.get("nvmlSystemGetDriverVersion") == nvml.DRIVER


def test_the_deadline_ends_a_survey_whose_calls_only_crawl() -> None:
    began = time.monotonic()
    said = asked(four({HUNG: nvml.HANG}), silence_seconds=30, deadline_seconds=2)
    assert time.monotonic() - began < 10
    hung = said.get("nvmlDeviceGetNvLinkState", 2, 0)
    assert isinstance(hung, Absent)
    assert hung.why is Why.timed_out
    assert said.get("nvmlDeviceGetPowerUsage", 3) == 87911


def test_the_deadline_may_come_before_the_cards_are_counted() -> None:
    said = asked(four({"nvmlSystemGetDriverVersion": nvml.HANG}), silence_seconds=30, deadline_seconds=1)
    count = said.get("nvmlDeviceGetCount")
    assert isinstance(count, Absent)
    assert count.why is Why.timed_out


def test_an_interrupt_ends_the_survey_and_starts_nothing_again() -> None:
    done: list[Maybe[Survey]] = []
    with standing_in(four({"nvmlDeviceGetP2PStatus *": nvml.HANG})):
        thread = threading.Thread(target=lambda: done.append(Nvml(live(30, 60)).survey()))
        thread.start()
        for _ in range(100):
            time.sleep(0.05)
            child.end_all()
            if not thread.is_alive():
                break
        thread.join(timeout=5)
    assert done, "the survey went on after its children were ended"


@pytest.mark.parametrize(
    ("number", "why"), [(4, Why.no_permission), (15, Why.failed), (16, Why.failed), (999, Why.failed)]
)
def test_a_card_that_is_refused_has_that_reason_for_everything(number: int, why: Why) -> None:
    said = asked(four({"nvmlDeviceGetHandleByIndex_v2 1": nvml.code(number)}))
    for question in (
        ("nvmlDeviceGetHandleByIndex", 1),
        ("nvmlDeviceGetName", 1),
        ("nvmlDeviceGetTopologyCommonAncestor", 0, 1),
    ):
        answer = said.get(*question)  # type: ignore[arg-type]
        assert isinstance(answer, Absent)
        assert (answer.why, error_number(answer)) == (why, number)
    assert said.get("nvmlDeviceGetName", 0) == "NVIDIA H200"


def test_a_lost_card_says_so_in_every_answer() -> None:
    description = nvml.describe("h200", 2)
    nvml.lose(description, 1)
    said = asked(description)
    for question in (("nvmlDeviceGetName", 1), ("nvmlDeviceGetP2PStatus", 0, 1, "NVML_P2P_CAPS_INDEX_READ")):
        answer = said.get(*question)  # type: ignore[arg-type]
        assert isinstance(answer, Absent)
        assert answer.why is Why.failed
        assert error_number(answer) == 15


def test_a_corrupted_inforom_is_an_answer() -> None:
    description = nvml.describe("h200", 1)
    description["nvmlDeviceValidateInforom 0"] = nvml.code(14)
    assert asked(description).get("nvmlDeviceValidateInforom", 0) is False


def test_text_that_is_no_utf8_fails_and_the_rest_goes_on() -> None:
    with standing_in(nvml.describe("h200", 1)):
        path = Path(os.environ["NODECHECK_FAKE_NVML"])
        path.write_bytes(path.read_bytes().replace(b'"NVIDIA H200"', b'"NVIDIA \xff"'))
        said = Nvml(live()).survey()
    assert isinstance(said, Survey)
    name = said.get("nvmlDeviceGetName", 0)
    assert isinstance(name, Absent)
    assert name.why is Why.failed
    assert said.get("nvmlDeviceGetMinorNumber", 0) == 0


# Drivers and bindings of another age


def test_a_driver_without_the_newer_calls_is_asked_the_older_ones() -> None:
    description = nvml.describe("h200", 1)
    description["nvmlDeviceGetTemperatureV 0 0"] = nvml.code(13)
    description["nvmlDeviceGetCurrentClocksEventReasons 0"] = nvml.code(13)
    said = asked(description)
    newer = said.get("nvmlDeviceGetTemperatureV", 0, "NVML_TEMPERATURE_GPU")
    assert isinstance(newer, Absent)
    assert newer.why is Why.not_present
    assert said.get("nvmlDeviceGetTemperature", 0, "NVML_TEMPERATURE_GPU") == 31
    assert said.get("nvmlDeviceGetCurrentClocksThrottleReasons", 0) == 1


def test_a_driver_that_knows_only_the_second_fabric_struct() -> None:
    description = nvml.describe("h200", 2)
    for card in (0, 1):
        description[f"nvmlDeviceGetGpuFabricInfoV {card} 3"] = nvml.code(25)
    info: Any = asked(description).get("nvmlDeviceGetGpuFabricInfoV", 1)
    assert (info["state"], info["status"]) == (3, 0)


def test_a_field_that_the_driver_does_not_know_is_not_supported() -> None:
    description = nvml.describe("h200", 1)
    description["nvmlDeviceGetFieldValues 0 230 0"] = nvml.code(2)
    answer = asked(description).get("nvmlDeviceGetFieldValues", 0, 230)
    assert isinstance(answer, Absent)
    assert answer.why is Why.not_supported


def test_an_older_pynvml_lacks_calls_and_the_survey_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = ("nvmlDeviceGetRepairStatus", "nvmlDeviceGetTemperatureV", "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
               "c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetUnrepairableMemoryFlag_v1",
               "NVML_PERF_POLICY_RELIABILITY")  # fmt: skip
    (tmp_path / "pynvml.py").write_text(
        f"exec(compile(open({pynvml.__file__!r}).read(), 'pynvml.py', 'exec'))\n"
        + "".join(f"del {name}\n" for name in lacking)
        # These take the caller's variable, and have no other form.
        + "def nvmlDeviceGetModuleId(handle, moduleId):\n"
        "    return _nvmlGetFunctionPointer('nvmlDeviceGetModuleId')(handle, moduleId)\n"
        "def nvmlDeviceGetGspFirmwareVersion(handle, version):\n"
        "    code = _nvmlGetFunctionPointer('nvmlDeviceGetGspFirmwareVersion')(handle, version)\n"
        "    _nvmlCheckReturn(code)\n    return code\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    said = asked(nvml.describe("h200", 2))
    for question in (
        ("nvmlDeviceGetRepairStatus", 0),
        ("nvmlDeviceGetUnrepairableMemoryFlag_v1", 1),
        ("nvmlDeviceGetViolationStatus", 0, "NVML_PERF_POLICY_RELIABILITY"),
    ):
        answer = said.get(*question)  # type: ignore[arg-type]
        assert isinstance(answer, Absent)
        assert answer.why is Why.not_present
        assert "too old" in answer.detail
    assert said.get("nvmlDeviceGetModuleId", 1) == 2
    assert said.get("nvmlDeviceGetGspFirmwareVersion", 1) == nvml.DRIVER
    assert said.get("nvmlDeviceGetTemperature", 1, "NVML_TEMPERATURE_GPU") == 32
    assert said.get("nvmlDeviceGetFieldValues", 0, 230) == 0
    info: Any = said.get("nvmlDeviceGetGpuFabricInfoV", 0)
    assert info["healthSummary"] == 1


# Recording


def test_a_recording_answers_as_the_machine_did() -> None:
    description = four({HUNG: nvml.CRASH, "nvmlDeviceGetHandleByIndex_v2 1": nvml.code(4)})
    with standing_in(description):
        recorder = Recorder(live())
        seen = Nvml(recorder).survey()
    again = Nvml(Recorded(recorder.answers)).survey()
    assert isinstance(seen, Survey) and isinstance(again, Survey)
    for question in (
        ("nvmlDeviceGetName", 0),
        ("nvmlDeviceGetName", 1),
        ("nvmlDeviceGetPowerUsage", 2),
        ("nvmlDeviceGetNvLinkVersion", 2, 17),
        ("nvmlDeviceGetP2PStatus", 0, 3, "NVML_P2P_CAPS_INDEX_READ"),
        ("nvmlDeviceGetNoSuchThing", 0),
    ):
        assert again.get(*question) == seen.get(*question)  # type: ignore[arg-type]
    assert again.seconds == seen.seconds


def test_an_empty_recording_was_not_asked() -> None:
    said = Nvml(Recorded({})).survey()
    assert isinstance(said, Absent)
    assert said.why is Why.not_asked


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_a_damaged_recording_never_raises(stored: Any) -> None:
    said = Nvml(Recorded({"survey": stored})).survey()
    if isinstance(said, Survey):
        said.get("nvmlDeviceGetName", 0)
    damaged = Survey({"nvmlDeviceGetName(0)": stored, "survey()": stored})
    damaged.get("nvmlDeviceGetName", 0)
    assert isinstance(damaged.seconds, (float, Absent))


def test_reasons_go_from_the_call_to_its_cards_to_the_whole() -> None:
    lost, ended = (Absent(why=Why.failed, detail=d) for d in ("lost", "ended"))
    said = Survey({"nvmlDeviceGetName(1)": {"value": "x"}, "card(1)": encode(lost), "rest()": encode(ended)})
    assert said.get("nvmlDeviceGetName", 1) == "x"
    assert said.get("nvmlDeviceGetUUID", 1) == lost
    assert said.get("nvmlDeviceGetP2PStatus", 0, 1, "NVML_P2P_CAPS_INDEX_READ") == lost
    # The second argument is a card only where a pair is asked.
    assert said.get("nvmlDeviceGetNvLinkState", 0, 1) == ended
    assert said.get("nvmlGetExcludedDeviceInfoByIndex", 1) == ended


@pytest.mark.parametrize(
    ("detail", "number"),
    [
        ("NVML_ERROR_GPU_IS_LOST (15): GPU is lost", 15),
        ("NVML_ERROR (777): what", 777),
        ("nvmlDeviceGetName(15) did not come back", None),
        ("", None),
    ],
)
def test_the_number_of_an_error(detail: str, number: int | None) -> None:
    assert error_number(Absent(why=Why.failed, detail=detail)) == number
