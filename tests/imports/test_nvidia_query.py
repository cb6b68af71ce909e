"""`nvidia-smi -q -x`, `-q` and CSV: the same answers, the same facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.facts import Absent, Why, known
from nodecheck.imports.readers.nvidia_fields import absence
from tests.imports import outputs
from tests.imports.outputs import card, cards, imported, kinds, node

MIB = 1024**2


@pytest.mark.parametrize(
    ("form", "kind"), [(outputs.xml, "nvidia-smi -q -x"), (outputs.text, "nvidia-smi -q")]
)
def test_both_forms_give_the_same_facts(form, kind) -> None:
    found = imported(form(cards(2, used="2048 MiB", corrected="3")))
    assert (kinds(found), found.conflicts, found.not_understood) == ([kind], (), ())
    first = card(found.node)
    assert (first.vendor, first.source, first.index) == ("nvidia", kind, 0)
    assert first.pci_address == "0000:1b:00.0"
    assert first.uuid == "GPU-11111111-2222-3333-4444-555555550000"
    assert first.identity.name == "NVIDIA H200"
    assert first.identity.pci_id == "10de:2335"
    assert first.identity.architecture == "hopper"
    assert first.memory.total_bytes == 143771 * MIB
    assert first.power.limit_watts == 700.0
    assert first.pcie.width == 16
    assert first.pcie.replays == 0
    assert first.clocks.performance_state == 0
    assert first.temperature.gpu_celsius == 30
    assert first.modes.mig_enabled is False
    assert first.modes.persistence is True
    assert (first.usable, first.lost) == (True, False)
    assert first.health.ecc_volatile.corrected == 3
    assert first.health.remapped_rows_corrected == 0
    assert found.node.topology.nvml_count == 2
    assert found.node.stack.driver.version == "580.95.05"
    assert found.node.stack.driver.cuda_version == "13.0"
    assert found.node.taken_at == datetime(2026, 11, 30, 17, 4, 42, tzinfo=timezone.utc)
    assert found.node.level == "quick"


def test_errors_are_summed_over_their_places() -> None:
    counts = card(node(outputs.text(cards(1, corrected="3")))).health.ecc_volatile
    assert (counts.sram_uncorrected, counts.dram_uncorrected, counts.uncorrected) == (2, 1, 3)


def test_processes_are_named_without_their_arguments() -> None:
    found = imported(outputs.text(cards(1, used="1028 MiB")))
    first, second = card(found.node).processes
    assert (first.pid, first.kind, first.name, first.used_bytes) == (4711, "compute", "python3", 1024 * MIB)
    assert (second.kind, second.name) == ("graphics", "Xorg")
    assert card(found.node).memory.unexplained_bytes == 0
    assert "hunter2" not in found.node.model_dump_json()


def test_memory_that_no_process_holds_is_unexplained() -> None:
    assert card(node(outputs.xml(cards(1, used="2048 MiB")))).memory.unexplained_bytes == 2048 * MIB


def test_reasons_for_the_clocks() -> None:
    assert card(node(outputs.xml(cards(1)))).clocks.event_reasons == ("gpu_idle",)
    assert card(node(outputs.text(cards(1)))).clocks.event_reasons == ("gpu_idle", "hw_thermal_slowdown")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("N/A", Why.not_supported),
        ("[N/A]", Why.not_supported),
        ("[Not Supported]", Why.not_supported),
        ("Requested functionality has been deprecated", Why.not_supported),
        ("Insufficient Permissions", Why.no_permission),
        ("[Insufficient Permissions]", Why.no_permission),
        ("GPU is lost", Why.failed),
        ("[Unknown Error]", Why.failed),
        ("Unknown Error", Why.failed),
        ("[GPU requires reset]", Why.failed),
        ("ERR!", Why.failed),
        ("", Why.failed),
        ("nonsense", Why.failed),
        ("-5 W", Why.failed),
        ("99999999999999999999 W", Why.failed),
    ],
)
@pytest.mark.parametrize("form", [outputs.xml, outputs.text])
def test_what_is_no_value_says_why(form, said: str, why: Why) -> None:
    limit = card(node(form([replace(cards(1)[0], limit=said)]))).power.limit_watts
    assert isinstance(limit, Absent)
    assert limit.why is why


def test_one_word_for_a_whole_group_is_each_parts() -> None:
    made = outputs.xml(cards(1)).replace(
        "<remapped_rows><remapped_row_corr>0</remapped_row_corr></remapped_rows>",
        "<remapped_rows>GPU is lost</remapped_rows>",
    )
    health = card(node(made)).health
    assert isinstance(health.row_remap_failed, Absent)
    assert health.row_remap_failed.why is Why.failed


def test_a_lost_card_is_lost_and_the_other_is_not() -> None:
    made = cards(2)
    made[1] = replace(made[1], memory="GPU is lost")
    found = node(outputs.xml(made))
    assert [(c.lost, c.usable) for c in found.known_cards] == [(False, True), (True, False)]


def test_a_card_that_wants_a_reset_is_not_usable() -> None:
    first = card(node(outputs.xml(cards(1, memory="GPU requires reset"))))
    assert (first.lost, first.usable) == (False, False)


def test_mig_devices_are_counted() -> None:
    devices = "<mig_device><index>0</index></mig_device><mig_device><index>1</index></mig_device>"
    modes = card(node(outputs.xml(cards(1, mig="Enabled", more={"mig_devices": devices})))).modes
    assert (modes.mig_enabled, modes.mig_instances) == (True, 2)
    none = card(node(outputs.xml(cards(1, mig="Enabled", more={"mig_devices": "None"})))).modes
    assert none.mig_instances == 0


def test_a_uuid_of_zeros_was_taken_out() -> None:
    made = [replace(one, uuid="GPU-00000000-0000-0000-0000-000000000000") for one in cards(2)]
    found = node(outputs.xml(made))
    assert len(found.known_cards) == 2
    assert isinstance(card(found).uuid, Absent)


def test_fewer_cards_than_are_attached() -> None:
    found = imported(outputs.xml(cards(1), attached=4))
    assert found.node.topology.nvml_count == 4
    assert "says that 4 cards are attached and shows 1" in found.not_understood[0]


def test_nobody_says_how_many_are_attached() -> None:
    made = outputs.xml(cards(1)).replace("<attached_gpus>1</attached_gpus>", "")
    assert isinstance(node(made).topology.nvml_count, Absent)


@pytest.mark.parametrize("form", [outputs.xml, outputs.text])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 0.95])
def test_a_cut_end_leaves_what_came_before_it(form, share: float) -> None:
    whole = form(cards(4))
    found = node(whole[: int(len(whole) * share)])
    assert len(found.known_cards) >= 1
    assert card(found).identity.name == "NVIDIA H200"
    assert found.topology.nvml_count == 4


def test_entities_are_not_resolved() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n'
    made = outputs.xml(cards(1, name="&b;"))
    found = imported(bomb + made[made.index("<nvidia_smi_log") :])
    assert "aaaa" not in found.node.model_dump_json()
    assert "cut short or damaged" in found.not_understood[0]


def csv(*columns: str, rows: int = 2, header: bool = True) -> str:
    values = {
        "index": "{k}", "name": "NVIDIA H200", "uuid": "GPU-11111111-2222-3333-4444-55555555000{k}",
        "memory.total [MiB]": "143771 MiB", "power.limit [W]": "700.00 W", "count": "2",
        "ecc.errors.uncorrected.volatile.total": "0", "temperature.gpu": "30", "pcie.link.width.current": "16",
    }  # fmt: skip
    lines = [", ".join(columns)] if header else []
    lines += [", ".join(values[name].format(k=k) for name in columns) for k in range(rows)]
    return "\n".join(lines) + "\n"


def test_csv() -> None:
    found = imported(
        csv(
            "index",
            "name",
            "memory.total [MiB]",
            "power.limit [W]",
            "ecc.errors.uncorrected.volatile.total",
            "count",
        )
    )
    first = card(found.node)
    assert kinds(found) == ["nvidia-smi --query-gpu"]
    assert (first.memory.total_bytes, first.power.requested_limit_watts) == (143771 * MIB, 700.0)
    assert first.health.ecc_volatile.uncorrected == 0
    assert found.node.topology.nvml_count == 2
    assert isinstance(first.uuid, Absent)


def test_csv_without_a_count_does_not_say_how_many() -> None:
    assert isinstance(node(csv("index", "name")).topology.nvml_count, Absent)


def test_csv_without_units_and_with_the_header_in_the_command() -> None:
    command = "$ nvidia-smi --query-gpu=index,memory.total,name --format=csv,noheader,nounits\n"
    found = imported(command + "0, 143771, NVIDIA H200\n1, 143771, NVIDIA H200\n")
    assert [c.memory.total_bytes for c in found.node.known_cards] == [143771 * MIB] * 2


def test_csv_with_a_damaged_line() -> None:
    found = imported(csv("index", "name") + "2, NVIDIA H200, too much\n")
    assert len(found.node.known_cards) == 2
    assert "another number of values" in found.not_understood[0]


@given(st.text(max_size=200))
def test_a_word_is_a_value_or_a_reason(said: str) -> None:
    reason = absence(said)
    assert reason is None or not known(reason)


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet=st.characters(blacklist_characters="<&"), max_size=60))
def test_any_text_in_a_field_is_read(said: str) -> None:
    found = imported(outputs.xml(cards(1, name=said, limit=said, memory=said)))
    assert kinds(found) == ["nvidia-smi -q -x"]
