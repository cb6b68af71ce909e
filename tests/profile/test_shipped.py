"""The shipped profiles: whole, sourced, and true of the machines they describe."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import defusedxml.ElementTree as ElementTree
import pytest

from nodecheck.facts import Absent
from nodecheck.judge import Status
from nodecheck.judge.figures import limits, measured
from nodecheck.profile import MEASURES, Figure, Profile, ProfileError, load, names
from nodecheck.profile.check import GROSS_FAULT
from nodecheck.profile.levels import first_level
from nodecheck.report.document import load as load_report

PROJECT = Path(__file__).parents[2]
SHARED = PROJECT / "../shared"

PROMISED = {
    "a100": (1, 2, 4, 8),
    "a100-40": (1, 2, 4, 8),
    "h100": (1, 2, 4, 8),
    "h100-pcie": (1, 2, 4, 8),
    "h100-nvl": (1, 2, 4),
    "h200": (1, 2, 4, 8),
    "h200-nvl": (1, 2, 4),
    "b200": (1, 2, 4, 8),
    "gb200": (4,),
    "l40s": (1, 2, 4, 8),
    "rtx4090": (1, 2, 4, 8),
    "mi300x": (1, 2, 4, 8),
    "mi325x": (1, 2, 4, 8),
    "mi355x": (8,),
    "mi300a": (4,),
    "mi250x": (4, 8),
    "mi210": (4, 8),
}
BOARDS = ("hgx", "ubb", "mesh", "bridged")
BUNDLES = [name for name in names() if name != "cpu"]
FILES = sorted(path.stem for path in (PROJECT / "profiles").glob("*.toml"))


def test_every_promised_bundle_is_there() -> None:
    promised = {f"{card}x{count}" for card, counts in PROMISED.items() for count in counts}
    assert promised | {"cpu"} <= set(names())


@pytest.mark.parametrize("name", FILES)
def test_a_file_loads_under_its_own_name_and_survives_json(name: str) -> None:
    profile = load(name, allow_abstract=True)
    assert profile.name == name
    assert profile.abstract == (name not in names())
    assert Profile.model_validate_json(profile.model_dump_json(by_alias=True)) == profile
    assert Profile.model_validate_json(profile.model_dump_json()) == profile


@pytest.mark.parametrize("name", FILES)
def test_every_number_has_a_source_and_a_date(name: str) -> None:
    profile = load(name, allow_abstract=True)
    sections = [profile.card, profile.links, profile.host, profile.stack]
    for part in [section for section in sections if section] + list(profile.figures):
        assert len(part.source) >= 10
        assert date(2015, 1, 1) <= part.date <= date(2026, 12, 31)
        assert part.source in part.witness and part.date.isoformat() in part.witness


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_is_what_its_name_says(name: str) -> None:
    profile = load(name)
    card, _, count = name.rpartition("x")
    assert profile.count == int(count)
    assert profile.extends in (card, *(f"{card}-{board}" for board in BOARDS))
    assert profile.card and profile.card == load(card, allow_abstract=True).card
    assert profile.links and (profile.links.interconnect == "none") == (profile.count == 1)
    assert profile.host and profile.stack
    if profile.vendor == "amd":
        assert profile.stack.rocm_min and profile.card.compute_units and profile.card.arch.startswith("gfx")
    else:
        assert profile.stack.driver_min and profile.stack.cuda_min


NEEDED = ("host.h2d", "host.d2h", "hbm.copy", "gemm.bfloat16")
"""CONTRIBUTING.md lists them."""


@pytest.mark.parametrize("name", BUNDLES)
def test_the_performance_sections_are_filled_in(name: str) -> None:
    profile = load(name)
    needed = {*NEEDED, "all_reduce.busbw"} if profile.count > 1 else set(NEEDED)
    missing = sorted(needed - {figure.measure for figure in profile.figures})
    assert not missing, f"profiles/{name}.toml (or what it extends) has no figure for {', '.join(missing)}"
    for figure in profile.figures:
        if "ranks" in MEASURES[figure.measure].at:
            assert figure.at.ranks == profile.count, (
                f"profiles/{name}.toml: {figure.measure} is of {figure.at.ranks} ranks, the bundle has "
                f"{profile.count} cards: a figure of another count says nothing of it"
            )


@pytest.mark.parametrize("name", FILES)
def test_every_promised_figure_is_measured_at_some_level(name: str) -> None:
    for figure in load(name, allow_abstract=True).figures:
        assert first_level(figure) is not None, (
            f"profiles/{name}.toml: no level measures {figure.measure} ({figure.at}), so nothing is held against it"
        )


def test_figures_that_were_derived_reject_on_a_gross_fault_only() -> None:
    derived = [figure for name in names() for figure in load(name).figures if figure.kind == "derived"]
    assert len(derived) > 50
    for figure in derived:
        assert figure.fail_below is None or figure.fail_below <= GROSS_FAULT * figure.typical


def test_only_switched_boards_of_hopper_and_later_join_a_fabric() -> None:
    fabric = {name for name in names() if (links := load(name).links) and links.fabric}
    assert fabric >= {"h100x2", "h100x8", "h200x4", "b200x8", "gb200x4"}
    assert not fabric & {"h200x1", "a100x8", "h100-nvlx2", "h100-pciex8", "l40sx8", "cpu"}


def test_what_a_container_with_dockers_defaults_gives_is_enough_for_one_card() -> None:
    for name in names():
        profile = load(name)
        assert profile.host is not None
        if profile.count == 1:
            assert profile.host.shm_bytes is None and profile.host.memlock_bytes is None
        if profile.count > 1:
            assert profile.host.shm_bytes == 2**30
        assert profile.host.kind == "derived"


@pytest.mark.parametrize(
    ("name", "measure", "size", "typical"),
    [
        ("h200x4", "all_reduce.busbw", "8GiB", 363.3),
        ("h200x8", "all_reduce.busbw", "8GiB", 473.1),
        ("h200x8", "all_reduce.busbw_without_nvls", "8GiB", 365.6),
        ("b200x4", "all_reduce.busbw", "8GiB", 673.2),
        ("b200x8", "all_reduce.busbw", "4GiB", 740.6),
        ("b200x8", "all_reduce.busbw", "8GiB", 838),
        ("h100x8", "all_reduce.busbw", "8GiB", 478.9),
        ("a100x8", "all_reduce.busbw", "8GiB", 231.6),
        ("mi300xx2", "all_reduce.busbw", "4GiB", 47.7),
        ("mi300xx8", "all_reduce.busbw", "8GiB", 315.8),
    ],
)
def test_thresholds_depend_on_count_and_size(name: str, measure: str, size: str, typical: float) -> None:
    found = figure(load(name), measure, size=size)
    assert found.typical == typical
    assert found.warn_below is not None and 0.90 * typical <= found.warn_below < typical


def test_the_figures_of_our_own_card_are_what_was_measured() -> None:
    table = SHARED / "nodes/h200x1/spread.md"
    if not table.is_file():
        pytest.skip("no recorded node here")
    median = {
        match[1]: float(match[2])
        for match in re.finditer(r"^\| (\w+) \| ([0-9.]+) \|", table.read_text(), re.M)
    }
    profile = load("h200x1")
    for measure, name, shape in (
        ("host.h2d", "h2d", None),
        ("host.d2h", "d2h", None),
        ("host.bidirectional", "bidir_sum", None),
        ("gemm.bfloat16", "bfloat16_4096_TF", "4096x4096x4096"),
        ("gemm.bfloat16", "bfloat16_8192_TF", "8192x8192x8192"),
        ("gemm.float8", "float8_e4m3fn_8192_TF", "8192x8192x8192"),
        ("launch.latency", "launch_us", None),
    ):
        found = figure(profile, measure, shape=shape) if shape else figure(profile, measure)
        assert found.typical == pytest.approx(median[name], rel=0.005)
        assert found.kind == "measured"


@pytest.mark.parametrize("name", ["h200x1", "h200x2"])
def test_what_our_recorded_cards_gave_is_typical(name: str) -> None:
    facts = load_report(PROJECT / "reports" / name).facts
    assert not isinstance(facts.measurements, Absent)
    tight = {("hbm.copy", "4GiB"): 0.004, ("gemm.float32", "4096x4096x4096"): 0.005}
    for promised in load(name).figures:
        exact = tight.pop((promised.measure, promised.at.size or promised.at.shape or ""), None)
        found = measured(promised, facts.measurements.figures)
        assert found, promised
        for seen in found.values():
            assert limits(promised).status(seen.median) is Status.passed, promised
            assert exact is None or seen.median == pytest.approx(promised.typical, rel=exact)
    assert not tight


def figure(profile: Profile, measure: str, **at: Any) -> Figure:
    found = [
        candidate
        for candidate in profile.figures
        if candidate.measure == measure
        and all(getattr(candidate.at, key) == value for key, value in at.items())
    ]
    assert len(found) == 1, f"{len(found)} figures {measure} {at} in {profile.name}"
    return found[0]


XML = {
    "corpus/smi-xml/a100x1-lambda-570/nvidia-smi-q.xml": "a100-40x1",
    "corpus/smi-xml/a100-sxm4-80gb-mig-535-trimmed/nvidia-smi-q.xml": "a100x1",
    "corpus/smi-xml/b200x8-healthy-580/nvidia-smi-q.xml": "b200x8",
    "corpus/smi-xml/gb200x4-healthy-580-arm64/nvidia-smi-q.xml": "gb200x4",
    "nodes/h200x1/nvidia-smi-q.xml": "h200x1",
}


@pytest.mark.parametrize("capture", XML)
def test_a_recorded_healthy_node_is_what_its_profile_says(capture: str) -> None:
    path = SHARED / capture
    if not path.is_file():
        pytest.skip("no recorded node here")
    profile = load(XML[capture])
    cards = ElementTree.fromstring(path.read_text()).findall("gpu")
    assert len(cards) == profile.count
    for card in cards:
        read = {key: card.findtext(place) for key, place in XML_PLACES.items()}
        agrees(profile, read)


XML_PLACES = {
    "name": "product_name",
    "architecture": "product_architecture",
    "device": "pci/pci_device_id",
    "memory": "fb_memory_usage/total",
    "ecc": "ecc_mode/current_ecc",
    "sm": "max_clocks/sm_clock",
    "mem": "max_clocks/mem_clock",
    "power": "gpu_power_readings/current_power_limit",
    "generation": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "width": "pci/pci_gpu_link_info/link_widths/current_link_width",
}

TEXT = {"corpus/smi-text/h100-sxmx8-565-replays": "h100x8", "corpus/smi-text/l40sx1-550": "l40sx1"}
TEXT_PLACES = {
    "name": r"Product Name +: (.+)",
    "architecture": r"Product Architecture +: (\w+)",
    "device": r"Device Id +: 0x(\w+)",
    "memory": r"FB Memory Usage\n +Total +: (.+)",
    "ecc": r"ECC Mode\n +Current +: (.+)",
    "sm": r"Max Clocks\n.*\n +SM +: (.+)",
    "mem": r"Max Clocks\n.*\n.*\n +Memory +: (.+)",
    "power": r"Current Power Limit +: (.+)",
    "generation": r"PCIe Generation\n +Max +: (.+)",
    "width": r"Link Width\n +Max +: .+\n +Current +: (.+)",
}


@pytest.mark.parametrize("capture", TEXT)
def test_a_recorded_text_of_a_healthy_node_is_what_its_profile_says(capture: str) -> None:
    path = SHARED / capture / "nvidia-smi-q.txt"
    if not path.is_file():
        pytest.skip("no recorded node here")
    profile = load(TEXT[capture])
    cards = re.split(r"^GPU [0-9A-F]{8}:", path.read_text(), flags=re.M)[1:]
    assert len(cards) == profile.count
    for card in cards:
        found = {key: re.search(pattern, card) for key, pattern in TEXT_PLACES.items()}
        agrees(profile, {key: match[1] if match else None for key, match in found.items()})


def agrees(profile: Profile, read: dict[str, str | None]) -> None:
    """What nvidia-smi printed of one card against the profile's card."""
    spec = profile.card
    assert spec is not None
    told = {key: value or "" for key, value in read.items()}
    assert told["name"] in spec.names
    assert told["architecture"].lower().startswith(spec.architecture)
    assert f"10de:{told['device'][:4].lower()}" in spec.pci_ids and told["device"].endswith("10DE")
    assert abs(number(told["memory"]) - spec.memory_mib) <= spec.memory_tolerance_mib
    assert spec.ecc is None or (told["ecc"] == "Enabled") == spec.ecc
    assert spec.max_sm_clock_mhz in (None, number(told["sm"]))
    assert spec.max_memory_clock_mhz in (None, number(told["mem"]))
    assert spec.power_limit_watts is None or number(told["power"]) >= spec.power_limit_watts
    assert spec.pcie_generation in (None, number(told["generation"]))
    assert number(told["width"]) in spec.pcie_widths


def number(text: str) -> float:
    match = re.match(r"[0-9.]+", text)
    assert match, f"no number in {text!r}"
    return float(match[0])


def test_an_abstract_profile_accepts_nothing() -> None:
    with pytest.raises(
        ProfileError, match=r"accepts nothing by itself: name a bundle of it \(h200x1, h200x2"
    ):
        load("h200")
    with pytest.raises(ProfileError, match="accepts nothing by itself"):
        load("base")


def test_the_examples_of_the_documentation_are_valid(tmp_path: Path) -> None:
    figure_example, profile_example = re.findall(
        r"```toml\n(.*?)```", (PROJECT / "docs/profiles.md").read_text(), flags=re.S
    )
    (tmp_path / "ours.toml").write_text(profile_example)
    ours = load(str(tmp_path / "ours.toml"))
    assert ours.card and ours.card.pcie_widths == (8, 16) and ours.card.names == ("NVIDIA H200",)
    assert figure(ours, "host.h2d").typical == 27.5
    (tmp_path / "figure.toml").write_text(
        f'schema = 1\nname = "x"\ntitle = "x"\nextends = "h200x4"\n{figure_example}'
    )
    shown = figure(load(str(tmp_path / "figure.toml")), "all_reduce.busbw", size="8GiB")
    shipped = figure(load("h200x4"), "all_reduce.busbw", size="8GiB")
    assert (shown.typical, shown.warn_below, shown.fail_below, shown.ceiling, shown.date) == (
        (shipped.typical, shipped.warn_below, shipped.fail_below, shipped.ceiling, shipped.date)
    )
