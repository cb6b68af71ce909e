"""amd-smi's and rocm-smi's texts: shapes of every release, what stands around the JSON, and recordings of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes import amd, rocm_smi
from nodecheck.probes.amd_smi import AmdSmi, documents
from nodecheck.sources import Commands, Files
from nodecheck.sources import files as live_files
from nodecheck.sources.channel import Recorded
from nodecheck.sources.child import Output
from tests.fakes.amd.tree import NODES, link
from tests.fakes.tree import Ground, Tree

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "amd"
recorded = pytest.mark.skipif(not CORPUS.is_dir(), reason="no recordings here")

PLACE = "0000:0c:00.0"


def output(text: str, *, stderr: str = "", returncode: int = 0) -> Output:
    return Output(returncode, text, stderr, 0.2)


def smi(virtual: bool = False, **said: Any) -> AmdSmi:
    """What it says to each command: text, or a document."""
    listed = {
        "list": [{"gpu": 0, "bdf": PLACE}],
        **{name.replace("_", "-"): text for name, text in said.items()},
    }
    return AmdSmi(
        {name: output(text if isinstance(text, str) else json.dumps(text)) for name, text in listed.items()},
        virtual,
    )


def told(path: str, virtual: bool = False, **said: Any) -> Any:
    return smi(virtual, **said).reading(PLACE).values[path]


def static(**parts: Any) -> list[dict[str, Any]]:
    return [{"gpu": 0, **parts}]


def why(value: object) -> Why | None:
    return value.why if isinstance(value, Absent) else None


# Documents


@pytest.mark.parametrize(
    "text",
    [
        '[{"gpu": 0}]',
        '\n\n  [{"gpu": 0}]\n',
        'RuntimeError: WARNING: User is missing the following required groups: render, video\n[{"gpu": 0}]',
        'a warning [deprecated] on the same line, {see} [1]? no: [{"gpu": 0}]'.replace("[1]", "[x]"),
        '[{"gpu": 0}]\nLegend:\n  * = Current mode [SPX]\n'.replace("[SPX]", "[*]"),
        '[{"GPU": 0}]',
    ],
)
def test_what_stands_around_a_document_is_left_out(text: str) -> None:
    assert documents(text) == ([{"gpu": 0}],)


def test_several_documents_follow_one_another() -> None:
    assert documents('[{"gpu": 0}]\n[{"nic": 0}]{"a": 1}') == ([{"gpu": 0}], [{"nic": 0}], {"a": 1})


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", '[{"gpu": 0}, {"gpu": 1', '[{"gpu": 0, "links": [{"gpu": 1},\n...]}]', "[" * 100_000],
)
def test_what_is_cut_short_is_no_document(text: str) -> None:
    assert why(documents(text)) is Why.failed


@given(st.text(alphabet='[]{}",:0123gpu \n\\', max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    found = documents(text)
    assert isinstance(found, (tuple, Absent))


_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 2**65), st.floats(), st.text(max_size=8), st.just("N/A")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ("asic", "limit", "vram", "size", "value", "unit", "ecc", "ras", "pcie", "links", "gpu", "weight",
                 "market_name", "ppt0", "socket_power_limit", "process_info", "ecc_block_state", "throttle")
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(("asic", "limit", "vram", "ras", "bus", "ecc", "ecc_blocks", "pcie", "links",
                                        "process_list", "retired", "fw_list", "link_status", "throttle", "clock")),
                       _values, max_size=6))  # fmt: skip
def test_no_answer_breaks_the_reading(parts: dict[str, Any]) -> None:
    entry = [{"gpu": 0, "bdf": PLACE, **parts}]
    read = smi(
        static=entry, metric=entry, topology=entry, xgmi=entry, process=entry, bad_pages=entry, firmware=entry,
        partition=entry, version=entry,
    )  # fmt: skip
    read.reading(PLACE)
    assert read.pairs is not None and read.link_states(PLACE) is not None and read.seconds == 0.2


# Values


@pytest.mark.parametrize(
    ("said", "watts"),
    [
        ({"limit": {"socket_power": {"value": 750, "unit": "W"}}}, 750),
        ({"limit": {"ppt0": {"socket_power_limit": {"value": 750, "unit": "W"}}, "ppt1": "N/A"}}, 750),
        ({"limit": {"power_cap": 750}}, 750),
        ({"limit": {"power_cap": {"value": 750_000_000, "unit": "uW"}}}, 750),
        ({"limit": {"socket_power": {"value": 750_000_000, "unit": "W"}}}, 750),  # microwatts called watts
        ({"limit": {"socket_power": "750 W"}}, 750),
    ],
)
def test_power_in_every_shape(said: dict[str, Any], watts: float) -> None:
    assert told("power.limit_watts", static=static(**said)) == watts


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ({"value": 196592, "unit": "MB"}, 196592 * 1024**2),  # what it calls MB is MiB
        ("196592 MB", 196592 * 1024**2),
        (196592, 196592 * 1024**2),
        ({"value": 192, "unit": "GB"}, 192 * 1024**3),
        ({"value": 206141652992, "unit": "B"}, 206141652992),
    ],
)
def test_memory_in_every_shape(size: object, expected: int) -> None:
    assert told("memory.total_bytes", static=static(vram={"size": size})) == expected


@pytest.mark.parametrize(
    "speed", [{"value": 32, "unit": "GT/s"}, "32 GT/s", {"value": 32000, "unit": "MT/s"}, 32000]
)
def test_link_speed_in_every_shape(speed: object) -> None:
    assert told("pcie.generation", metric=static(pcie={"speed": speed})) == 5


@pytest.mark.parametrize(
    "blank", ["N/A", "", None, {"value": "N/A", "unit": "W"}, 65535, 2**32 - 1, 2**64 - 1]
)
def test_marks_for_no_value_are_no_value(blank: object) -> None:
    value = told("pcie.replays", metric=static(pcie={"replay_count": blank}))
    assert why(value) in (Why.not_supported, Why.not_present)
    assert why(told("power.draw_watts", metric=static(power={"socket_power": blank}))) is not None


def test_errors_in_the_place_of_values() -> None:
    for text, reason in (
        ("AMDSMI_STATUS_FILE_ERROR - Error opening file", Why.failed),
        ("AMDSMI_STATUS_NO_PERM - Permission denied", Why.no_permission),
        ("AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported", Why.not_supported),
    ):
        assert why(told("identity.name", static=static(asic={"market_name": text}))) is reason


def test_a_virtual_function_is_not_told_and_not_well() -> None:
    pages = [{"gpu": 0, "retired": "No bad pages found.", "pending": "N/A"}]
    assert why(told("health.bad_pages_retired", virtual=True, bad_pages=pages)) is Why.not_supported
    assert told("health.bad_pages_retired", bad_pages=pages) == 0
    assert why(told("health.ecc_volatile.uncorrected", virtual=True, metric=static())) is Why.not_supported
    assert why(told("health.ecc_volatile.uncorrected", metric=static())) is Why.not_present


def test_errors_are_counted_under_the_name_they_have() -> None:
    for ecc in ({"total_uncorrectable_count": 7}, {"uncorrectable": 7}):
        for document in (static(ecc=ecc), {"gpu_data": static(ecc=ecc)}):
            assert told("health.ecc_volatile.uncorrected", metric=document) == 7


def test_an_own_form_of_uuid_is_not_taken_for_hips() -> None:
    for uuid, expected in (
        ("2eff74a1-0000-1000-80d2-32a0c8ac2a4e", None),
        ("GPU-9A3B000011110000", "GPU-9a3b000011110000"),
    ):
        value = told("uuid", list=[{"gpu": 0, "bdf": PLACE, "uuid": uuid}])
        assert value == expected or (expected is None and why(value) is Why.not_supported)


def test_a_card_that_it_does_not_list() -> None:
    values = smi(static=static()).reading("0000:15:00.0").values
    assert why(values["identity.name"]) is Why.not_present


def test_its_own_count_of_hops_is_not_taken() -> None:
    links = [
        {
            "gpu": 1,
            "bdf": "0000:15:00.0",
            "weight": 30,
            "link_status": "ENABLED",
            "link_type": "XGMI",
            "num_hops": 1,
        }
    ]
    read = smi(
        list=[{"gpu": 0, "bdf": PLACE}, {"gpu": 1, "bdf": "0000:15:00.0"}],
        topology=[{"gpu": 0, "links": links}],
    )
    assert isinstance(read.pairs, dict)
    pair = read.pairs[PLACE, "0000:15:00.0"]
    assert (pair.link_type, pair.weight, pair.accessible) == ("xgmi", 30, True)


# Recordings


def answers(name: str, file: str) -> Output:
    return output((CORPUS / name / file).read_text(encoding="utf-8"))


@recorded
@pytest.mark.parametrize(
    ("name", "count", "memory", "watts"),
    [
        ("mi100-rocm571-json", 6, 34342961152, 290.0),
        ("mi100-rocm602-json", 4, 34342961152, 290.0),
        ("mi50-vega20-json", 1, 34342961152, 225.0),
        ("rx6700xt-rocm430-json", 1, 12868124672, 211.0),
        ("vega10-json", 1, 17163091968, 170.0),
    ],
)
def test_rocm_smi_of_other_releases(name: str, count: int, memory: int, watts: float) -> None:
    found = rocm_smi.readings(answers(name, "rocm-smi-a.json"))
    assert isinstance(found, dict)
    assert len(found) == count
    for reading in found.values():
        assert (reading.values["memory.total_bytes"], reading.values["power.limit_watts"]) == (memory, watts)
        assert isinstance(reading.values["identity.vbios"], str)
        assert reading.values["pcie.replays"] == 0


@recorded
def test_unique_ids_as_hip_writes_them() -> None:
    found = rocm_smi.readings(answers("mi50-vega20-json", "rocm-smi-a.json"))
    assert isinstance(found, dict)
    assert [reading.values["uuid"] for reading in found.values()] == ["GPU-02f048617326b1ea"]


@recorded
def test_a_recorded_power_document() -> None:
    text = (CORPUS / "amd-smi-metric-ecc-json-mixed" / "amd-smi-metric-p.json").read_text(encoding="utf-8")
    assert told("power.draw_watts", metric=text) == 10


@recorded
def test_a_recorded_topology_and_one_that_is_elided() -> None:
    folder = CORPUS / "amd-smi-topology-json-new"
    whole, elided = (
        (folder / name).read_text(encoding="utf-8")
        for name in ("amd-smi-topology-a-t.json", "amd-smi-topology.json")
    )
    read = AmdSmi({"topology": output(whole)}, virtual=False)
    assert isinstance(read.pairs, dict)
    assert {(pair.link_type, pair.accessible) for pair in read.pairs.values()} == {("pcie", False)}
    broken = AmdSmi({"topology": output(elided)}, virtual=False)
    assert why(broken.pairs) is Why.failed


@recorded
@pytest.mark.parametrize(
    "path", sorted(CORPUS.rglob("*.txt")) if CORPUS.is_dir() else [], ids=lambda path: path.name
)
def test_texts_for_people_are_no_json_and_break_nothing(path: Path) -> None:
    read = AmdSmi(
        {name: output(path.read_text(encoding="utf-8")) for name in ("list", "static", "metric")},
        virtual=False,
    )
    assert why(read.addresses) is Why.failed
    assert why(rocm_smi.readings(output(path.read_text(encoding="utf-8")))) is Why.failed


@recorded
@pytest.mark.parametrize(
    ("name", "cards", "joined", "packages"),
    [
        ("rccl-topo-mi300x-x8", 8, 28, 8),
        ("rccl-topo-mi300a-x4", 4, 6, 4),
        ("rccl-topo-mi250-8gcd", 8, 12, 8),  # it counts one link wherever there are any, so no die has a twin
        ("rccl-topo-mi250x-16gcd", 16, 28, 8),
    ],
)
def test_recorded_topologies_as_kfd_would_show_them(
    name: str, cards: int, joined: int, packages: int, tmp_path: Path
) -> None:
    ground = Ground(tmp_path / "node")
    ground.hold(as_kfd(xml.parse(CORPUS / name / "nccl-topo.xml")))  # noqa: S314  (our own recording)
    asked = Commands(Recorded({}))
    missing: Maybe[Any] = Absent(why=Why.not_present, detail="no binding")
    found = amd.probe(Files(live_files.live(str(ground.root))), asked, lambda: missing, missing)
    assert len(found.cards) == cards
    assert len({card.package for card in found.cards}) == packages
    kinds = [pair.link_type for pair in found.pairs]
    assert kinds.count("xgmi") == joined
    assert kinds.count("pcie") == len(kinds) - joined


def as_kfd(topology: Any) -> Tree:
    """A tree of KFD with the devices and xGMI links of a topology that RCCL wrote down; a link is 50 GB/s."""
    tree = Tree()
    found = [(pci.get("busid"), gpu) for pci in topology.iter("pci") if (gpu := pci.find("gpu")) is not None]
    numbers = {place: i + 2 for i, (place, _) in enumerate(found)}
    for place, gpu in found:
        domain, bus, slot = place.split(":")
        folder = f"{NODES}/{numbers[place]}"
        old = gpu.get("gcn") == "910"
        tree.files[f"{folder}/gpu_id"] = f"{1000 + numbers[place]}\n"
        tree.files[f"{folder}/properties"] = properties(
            simd_count=4 * int(gpu.get("sm")), simd_per_cu=4, gfx_target_version=90010 if old else 90402,
            location_id=int(bus, 16) << 8 | int(slot.split(".")[0], 16) << 3, domain=int(domain, 16),
            unique_id=numbers[place] * 2**40, hive_id=7,
        )  # fmt: skip
        tree.folders |= {f"{folder}/io_links", f"{folder}/mem_banks"}
        for i, way in enumerate(gpu.findall("xgmi")):
            rate = 50_000 * int(way.get("count"))
            link(tree, folder, i, numbers[place], numbers[way.get("target")], 11, 15, rate, rate)
    return tree


def properties(**values: int) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


def test_a_number_beyond_all_bounds_is_no_value() -> None:
    stdout = json.dumps([{"gpu": 0, "usage": {"gfx_activity": {"value": 10**400, "unit": "%"}}}])
    said = {"metric": Output(stdout=stdout, stderr="", returncode=0, seconds=0.1)}
    told = AmdSmi(said, virtual=False).values(0)["gpu_utilization_percent"]
    assert isinstance(told, Absent) and told.why is Why.failed
