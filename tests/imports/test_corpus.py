"""Outputs of real nodes, judged as their index says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nodecheck.facts import known
from nodecheck.imports import Imported, read
from nodecheck.judge import Judgement, Verdict, judge
from nodecheck.profile import load

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")

ANOTHER = {"cards.model": "fail"}
NO_FAULT: dict[str, str] = {}

# Case → the profile it is held against → findings that must be there, by their gravest status. Nothing else may
# fail or warn unless the case is of another product; and the verdict is never better than INCOMPLETE.
EXPECTED: dict[tuple[str, str], dict[str, str]] = {
    ("smi-xml/a100-sxm4-80gb-mig-535-trimmed", "a100x8"): {"cards.count": "fail", "cards.mig": "fail"},
    ("smi-xml/a100-sxm4-80gb-mig-535-trimmed", "a100x4"): {"cards.count": "unknown", "cards.mig": "fail"},
    ("smi-xml/a100x1-lambda-570", "a100-40x1"): NO_FAULT,
    ("smi-xml/a100x1-lambda-570", "a100x8"): {"cards.count": "fail", "cards.memory.total": "fail"} | ANOTHER,
    ("smi-xml/a10gx1-aws-515", "l40sx1"): ANOTHER | {"cards.pcie.generation": "pass"},
    ("smi-xml/b200x8-healthy-580", "b200x8"): NO_FAULT,
    ("smi-xml/b200x8-healthy-580", "b200x2"): {"cards.count": "fail"},
    ("smi-xml/b200x8-healthy-580", "h100x8"): ANOTHER,
    ("smi-xml/gb200x4-healthy-580-arm64", "gb200x4"): NO_FAULT,
    ("smi-xml/gb200x4-healthy-580-arm64", "b200x4"): ANOTHER,
    ("smi-xml/gtx1070ti-minimal", "h200x1"): ANOTHER
    | {"cards.count": "unknown", "stack.driver.minimum": "unknown"},
    ("smi-xml/mock-a100x2-healthy", "a100-40x8"): {"cards.count": "fail", "cards.idle": "warn"},
    ("smi-xml/mock-gb200x2-healthy", "b200x2"): ANOTHER,
    ("smi-xml/mock-gb200x2-lost", "b200x2"): ANOTHER
    | {"cards.usable": "fail", "health.ecc_uncorrected_volatile": "fail"},
    ("smi-xml/mock-gb200x2-throttle", "gb200x4"): {"cards.count": "fail", "cards.clocks.violations": "pass"},
    ("smi-xml/p2000-525", "h100x1"): ANOTHER | {"health.ecc_mode": "unknown"},
    ("smi-xml/p400-418-oldest", "h100x1"): ANOTHER | {"stack.driver.minimum": "warn"},
    ("smi-xml/rtx3060x1-570", "rtx4090x1"): ANOTHER,
    ("smi-xml/rtx3080x1-536-win", "rtx4090x1"): ANOTHER,
    ("smi-xml/rtx3080x1-595-v13dtd", "rtx4090x1"): ANOTHER,
    ("smi-xml/t4x1-aws-g4dn-595", "l40sx1"): ANOTHER
    | {"health.ecc_corrected": "pass", "health.ecc_uncorrected_aggregate": "pass"},
    ("smi-text/a40x10-550", "l40sx8"): ANOTHER | {"cards.count": "fail", "cards.pcie.generation": "pass"},
    ("smi-text/h100-sxmx8-565-replays", "h100x8"): {
        "cards.pcie.replays": "pass",
        "topology.fabric.state": "pass",
    },
    ("smi-text/l40sx1-550", "l40sx1"): NO_FAULT,
    ("smi-text/l40sx1-550", "h100x1"): ANOTHER,
    ("smi-text/rtx3090x2-560", "rtx4090x2"): ANOTHER,
    ("smi-text/rtx6000adax8-550", "l40sx8"): ANOTHER,
    ("topo/a10-nvlink-s-empty", "h100x8"): {"topology.nvlink.active_links": "unknown"},
    ("topo/a100-lspci-nvswitch", "a100x8"): {"topology.nvswitch": "pass"},
    ("klog/fabricmanager-log-healthy", "h100x8"): NO_FAULT,
    ("klog/kmsg-nvswitch-clean", "h100x8"): {"kernel_log.xid": "unknown", "kernel_log.sxid": "unknown"},
    ("klog/mlx5-lines", "h100x8"): {"kernel_log.adapters": "warn", "kernel_log.xid": "unknown"},
    ("klog/nccl-segfault", "h100x8"): {"kernel_log.system": "warn"},
    ("klog/nvlink-knvlink-lines", "h100x8"): {"kernel_log.nvlink": "warn"},
    ("klog/pstore-panic-not-gpu", "h100x1"): {"kernel_log.system": "warn", "kernel_log.xid": "unknown"},
    ("klog/sxid-lines", "h100x8"): {"kernel_log.sxid": "fail", "kernel_log.nvlink": "warn"},
    ("klog/xid-31-48-and-link-flap", "h100x8"): {"kernel_log.xid": "fail", "kernel_log.adapters": "warn"},
    ("klog/xid-lines-79-14-149-154", "gb200x4"): {
        "kernel_log.xid": "fail",
        "kernel_log.fallen_off_bus": "fail",
    },
    ("amd/amd-smi-metric-ecc-json-mixed", "mi300xx8"): {
        "cards.count": "unknown",
        "cards.power_limit": "fail",
    },
    ("amd/amd-smi-static-text", "mi300xx8"): ANOTHER | {"cards.count": "fail", "cards.pci_id": "fail"},
    ("amd/amd-smi-topology-json-new", "mi300xx8"): {
        "cards.count": "fail",
        "topology.pairs.p2p": "warn",
        "topology.pairs.xgmi": "fail",
    },
    ("amd/mi100-rocm571-json", "mi300xx8"): ANOTHER | {"cards.count": "fail", "topology.pairs.xgmi": "fail"},
    ("amd/mi100-rocm602-json", "mi300xx8"): ANOTHER | {"cards.count": "fail", "topology.pairs.xgmi": "fail"},
    ("amd/mi300x-x1-rocm-smi", "mi300xx8"): {"cards.count": "fail"},
    ("amd/mi300x-x1-rocm-smi", "mi300xx1"): NO_FAULT,
    ("amd/mi300x-x8-amd-smi-topology", "mi300xx8"): {
        "cards.count": "pass",
        "topology.pairs.p2p": "pass",
        "topology.pairs.xgmi": "pass",
    },
    ("amd/mi50-vega20-json", "mi300xx1"): ANOTHER | {"cards.count": "unknown"},
    ("amd/rx6700xt-rocm430-json", "mi300xx1"): {"cards.model": "unknown", "cards.pci_id": "fail"},
    ("amd/vega10-json", "mi300xx1"): {"cards.model": "unknown", "cards.pci_id": "fail"},
    ("nccl/gpu-burn-8gpu", "a100x8"): NO_FAULT,
}
OF_ANOTHER_PRODUCT = (
    "cards.", "health.ecc_mode", "health.ecc_uncorrected_aggregate", "health.row_remap", "stack.driver.minimum",
)  # fmt: skip
"""Findings that a card of another product than the profile's may give besides."""

REFUSED = (
    "amd/rccl-topo-mi250-8gcd",
    "amd/rccl-topo-mi250x-16gcd",
    "amd/rccl-topo-mi300a-x4",
    "amd/rccl-topo-mi300x-x8",
    "nccl/a100x2-gpu-copy-bw",
    "nccl/azure-nd-a100-v4-allreduce",
    "nccl/azure-nd-h100-v5-allreduce",
    "nccl/hbm-stream-sm100",
    "nccl/ib-loopback-hdr",
)
"""Of other programs: RCCL's own topology, copies, STREAM and InfiniBand benchmarks, tables that somebody typed."""

GRAVITY = ("skipped", "pass", "warn", "unknown", "fail")
FAMILIES = ("smi-xml", "smi-text", "topo", "klog", "amd", "nccl")
NOT_AN_OUTPUT = {"SOURCE", "DGX_A100.json"}
"""The second is a list that an operator wrote."""


def pasted(case: str) -> list[tuple[str, bytes]]:
    files = [path for path in sorted((CORPUS / case).iterdir()) if path.name not in NOT_AN_OUTPUT]
    return [(path.name, path.read_bytes()) for path in files]


def gravest(judgement: Judgement) -> dict[str, str]:
    found: dict[str, str] = {}
    for finding in judgement.findings:
        status = finding.status.value
        if GRAVITY.index(status) >= GRAVITY.index(found.get(finding.id, "skipped")):
            found[finding.id] = status
    return found


@pytest.mark.parametrize(
    ("case", "profile"), EXPECTED, ids=lambda value: value if isinstance(value, str) else "=".join(value)
)
def test_it_is_judged_as_the_index_says(case: str, profile: str) -> None:
    imported = read(pasted(case))
    expected = EXPECTED[case, profile]
    judgement = judge(imported.node, load(profile))
    found = gravest(judgement)
    assert {id: found[id] for id in expected} == expected
    trouble = {id for id, status in found.items() if status in ("fail", "warn")} - set(expected)
    allowed = OF_ANOTHER_PRODUCT if "cards.model" in expected or "mock" in case else ()
    assert not [id for id in trouble if not id.startswith(allowed)], trouble
    assert judgement.verdict in (Verdict.incomplete, Verdict.rejected)
    assert (judgement.verdict is Verdict.rejected) is ("fail" in found.values())
    assert imported.conflicts == ()
    assert not own_faults(imported)


def own_faults(imported: Imported) -> list[str]:
    return [trouble for trouble in imported.not_understood if "own fault" in trouble]


def test_every_case_is_in_the_table() -> None:
    named = {case for case, _ in EXPECTED}
    for family in FAMILIES:
        for folder in (CORPUS / family).iterdir():
            case = f"{family}/{folder.name}"
            assert case in named or case in REFUSED or not pasted(case), case


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_is_refused(case: str) -> None:
    imported = read(pasted(case))
    assert imported.recognised == ()
    assert len(imported.not_understood) == len(pasted(case))
    assert all("nothing in it is an output that nodecheck knows" in said for said in imported.not_understood)


def test_an_elided_document_is_unknown() -> None:
    files = [
        (name, raw)
        for name, raw in pasted("amd/amd-smi-topology-json-new")
        if name == "amd-smi-topology.json"
    ]
    imported = read(files)
    assert "its JSON is cut short or damaged" in imported.not_understood[0]
    assert not known(imported.node.cards)
    assert judge(imported.node, load("mi300xx8")).verdict is Verdict.incomplete


def test_what_the_index_says_of_amds_cards() -> None:
    mixed = read(pasted("amd/amd-smi-metric-ecc-json-mixed")).node.known_cards
    assert [card.power.limit_watts for card in mixed] == [203.0, 213.0]
    blocks = mixed[0].health.ecc_blocks
    assert known(blocks) and len(blocks) == 7
    assert {(block.corrected, block.uncorrected, block.deferred) for block in blocks} == {(0, 0, 0)}
    assert known(mixed[0].health.ecc_volatile) and mixed[0].health.ecc_volatile.uncorrected == 0
    old = read(pasted("amd/mi100-rocm571-json")).node.known_cards
    assert {(card.pcie.generation, card.pcie.width) for card in old} == {(3, 16)}
    mesh = read(pasted("amd/mi300x-x8-amd-smi-topology")).node.topology
    assert known(mesh) and known(mesh.pairs) and len(mesh.pairs) == 28
    told = {(p.link_type, p.weight, p.hops, p.accessible, p.max_bandwidth_mb_per_s) for p in mesh.pairs}
    assert told == {("xgmi", 15, 1, True, 50000)}


# Mutated real files


def mutated(raw: bytes, dice: random.Random) -> bytes:
    """The file with a few of the things done to it that pasting, cutting and damage do."""
    data = bytearray(raw)
    for _ in range(dice.randint(1, 6)):
        if not data:
            break
        at, length = dice.randrange(len(data)), dice.randint(1, 200)
        what = dice.randrange(8)
        if what == 0:
            del data[at:]
        elif what == 1:
            del data[at : at + length]
        elif what == 2:
            data[at : at + length] = bytes(dice.randrange(256) for _ in range(length))
        elif what == 3:
            data[at:at] = data[at : at + 2000] * dice.randint(1, 20)
        elif what == 4:
            data[at:at] = dice.choice(
                [b"\n", b"\r\n", b"\0", b"\xff", b"\x1b[31m", b"> ", b"$ nvidia-smi\n", b"|", b"<gpu>"]
            )
        elif what == 5:
            data[at : at + 8] = dice.choice(
                [b"N/A", b"ERR!", b"GPU is lost", b"-1", b"9" * 40, b"0x", b"[Unknown Error]"]
            )
        elif what == 6:
            data = bytearray(bytes(data).replace(b"\n", dice.choice([b"\r\n", b"\r", b"\n\n", b" "])))
        else:
            data = bytearray(data[at:])
    return bytes(data)


@pytest.mark.parametrize("family", FAMILIES)
def test_mutated_files_are_read_and_judged(family: str) -> None:
    dice = random.Random(f"{family} 1")
    files = [
        path
        for path in sorted((CORPUS / family).glob("*/*"))
        if path.name not in NOT_AN_OUTPUT and path.stat().st_size < 30_000
    ]
    profile = load("mi300xx8" if family == "amd" else "h100x8")
    for number in range(120):
        chosen = dice.sample(files, dice.randint(1, 2))
        imported = read([(path.name, mutated(path.read_bytes(), dice)) for path in chosen])
        assert not own_faults(imported), (number, imported.not_understood)
        if number % 10 == 0:
            judgement = judge(imported.node, profile)
            assert judgement.verdict in (Verdict.incomplete, Verdict.rejected)
            assert not [f for f in judgement.findings if f.door == "nodecheck"]
