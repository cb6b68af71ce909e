from __future__ import annotations

from typing import Any

import pytest

from nodecheck.facts.topology import Adapter
from nodecheck.judge import Cause, Owner, Status, judge
from nodecheck.profile import Profile
from tests.judge.cases import DENIED, UNASKED, UNSUPPORTED, Case, check, faulty, found, healthy, profile

PASS, WARN, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.warn, Status.fail, Status.unknown, Status.skipped


def pairs(name: str, **changes: Any) -> tuple[Any, ...]:
    """The pairs of a healthy node, those of its third card changed."""
    node = healthy(name)
    card = node.known_cards[2].key
    return tuple(
        pair.model_copy(update=changes) if card in (pair.a, pair.b) else pair
        for pair in node.topology.pairs  # type: ignore[union-attr]
    )


def links_but(profile: Profile, **changes: Any) -> Profile:
    assert profile.links is not None
    return profile.model_copy(update={"links": profile.links.model_copy(update=changes)})


def port(name: str, state: str) -> Adapter:
    return Adapter(
        name=name, port=1, link_layer="InfiniBand", state=state, rate_gbit_per_s=400.0, link_downed=2
    )


ALL_DOWN = {"cards.0.links.*.active": False}

CASES = [
    # The links of a card
    Case("topology.nvlink.active_links", {}, PASS, says="18 are up"),
    Case("topology.nvlink.active_links", {"cards.1.links.7.active": False}, FAIL, count=1, says="down: 7"),
    Case("topology.nvlink.active_links", ALL_DOWN, FAIL, says="None is up"),
    Case("topology.nvlink.active_links", {"cards.0.links": ()}, FAIL, says="None is up"),
    Case("topology.nvlink.active_links", {"cards.*.links": UNSUPPORTED}, FAIL, count=4, says="no NVLink"),
    Case(
        "topology.nvlink.active_links",
        {"cards.0.links": healthy("h200x4").known_cards[0].links[:8]},  # type: ignore[index]
        FAIL,
        says="the card has 8 and the product 18",
    ),
    Case("topology.nvlink.active_links", {"cards.0.links": DENIED}, UNKNOWN),
    Case("topology.nvlink.active_links", {"cards.0.links.2.active": DENIED}, UNKNOWN),
    Case("topology.nvlink.active_links", {}, SKIPPED, profile="h200x1"),
    Case("topology.nvlink.active_links", {}, SKIPPED, profile="h100-pciex4"),
    Case(
        "topology.nvlink.active_links",
        {
            "cards.*.links": tuple(
                link.model_copy(update={"active": False}) for link in healthy("h200x4").known_cards[0].links
            )
        },  # type: ignore[union-attr]
        SKIPPED,
        profile="h100-pciex4",
    ),
    Case("topology.nvlink.speed", {}, PASS),
    Case("topology.nvlink.speed", {"cards.0.links.5.speed_mb_per_s": 0}, FAIL, says="link 5: 0"),
    Case("topology.nvlink.speed", {"cards.0.links.5.speed_mb_per_s": 25000}, FAIL),
    Case("topology.nvlink.speed", {"cards.0.links.5.speed_mb_per_s": 25781}, PASS),
    Case("topology.nvlink.speed", {"cards.0.links.5.speed_mb_per_s": DENIED}, UNKNOWN),
    Case("topology.nvlink.speed", {"cards.0.links": DENIED}, UNKNOWN),
    Case("topology.nvlink.speed", {"cards.*.links.*.active": False}, SKIPPED),
    Case("topology.nvlink.speed", {}, SKIPPED, profile="h200x1"),
    Case("topology.nvlink.version", {}, PASS),
    Case("topology.nvlink.version", {"cards.0.links.*.version": "3.0"}, FAIL, cause=Cause.not_as_rented),
    Case("topology.nvlink.version", {"cards.0.links.1.version": DENIED}, UNKNOWN),
    Case("topology.nvlink.version", {"cards.0.links.1.version": "four"}, UNKNOWN),
    Case("topology.nvlink.errors", {}, PASS, says="None"),
    Case("topology.nvlink.errors", {"cards.0.links.1.replay_errors": 3}, PASS),
    Case(
        "topology.nvlink.errors", {"cards.0.links.1.replay_errors": 3000}, WARN, says="link 1: 3000 replays"
    ),
    Case("topology.nvlink.errors", {"cards.0.links.1.recovery_errors": 1}, WARN, says="1 recoveries"),
    Case("topology.nvlink.errors", {"cards.0.links.1.effective_errors": 4}, WARN),
    Case(
        "topology.nvlink.errors",
        {
            f"cards.0.links.*.{field}": DENIED
            for field in (
                "replay_errors",
                "recovery_errors",
                "crc_flit_errors",
                "crc_data_errors",
                "effective_errors",
            )
        },
        UNKNOWN,
    ),
    Case("topology.nvlink.disabled_by_driver", {}, PASS),
    Case("topology.nvlink.disabled_by_driver", {}, PASS, profile="h200x1", says="promises no NVLink"),
    Case(
        "topology.nvlink.disabled_by_driver",
        {"topology.nvlink_disabled_by_driver": True},
        FAIL,
        cause=Cause.misconfigured,
        owner=Owner.provider,
    ),
    Case("topology.nvlink.disabled_by_driver", {"topology.nvlink_disabled_by_driver": DENIED}, UNKNOWN),
    Case(
        "topology.nvlink.disabled_by_driver",
        {"topology.nvlink_disabled_by_driver": DENIED},
        SKIPPED,
        profile="h200x1",
    ),
    # The pairs
    Case("topology.pairs.nvlink", {}, PASS, count=6),
    Case("topology.pairs.nvlink", {"topology.pairs": pairs("h200x4", nvlinks=0)}, FAIL, count=3),
    Case("topology.pairs.nvlink", {"topology.pairs": pairs("h200x4", nvlinks=17)}, FAIL, says="17 NVLinks"),
    Case("topology.pairs.nvlink", {"topology.pairs.0.p2p_nvlink": "disabled_by_regkey"}, FAIL, count=1),
    Case("topology.pairs.nvlink", {"topology.pairs.0.nvlinks": DENIED}, UNKNOWN, count=1),
    Case("topology.pairs.nvlink", {"topology.pairs": ()}, UNKNOWN, count=6, says="not looked at"),
    Case("topology.pairs.nvlink", {"topology.pairs": DENIED}, UNKNOWN),
    Case("topology.pairs.nvlink", {}, PASS, profile="h100-nvlx4", count=4),
    Case("topology.pairs.nvlink", {}, SKIPPED, profile="h100-pciex4"),
    Case(
        "topology.pairs.nvlink",
        {"topology.pairs": pairs("h100-nvlx4", nvlinks=0)},
        FAIL,
        profile="h100-nvlx4",
        count=2,
        says="No bridge",
    ),
    Case(
        "topology.pairs.nvlink",
        {"topology.pairs": pairs("h100-nvlx4", nvlinks=DENIED)},
        UNKNOWN,
        profile="h100-nvlx4",
    ),
    Case("topology.pairs.distance", {}, PASS, says="6 × NODE"),
    Case("topology.pairs.distance", {"topology.pairs.1.distance": DENIED}, UNKNOWN),
    Case("topology.pairs.p2p", {}, PASS, count=6),
    Case("topology.pairs.p2p", {"topology.pairs.0.p2p_write": "chipset_not_supported"}, FAIL, count=1),
    Case(
        "topology.pairs.p2p",
        {"topology.pairs.*.p2p_read": "chipset_not_supported"},
        PASS,
        profile="h100-pciex4",
        says="as the product is",
    ),
    Case(
        "topology.pairs.p2p",
        {"topology.pairs.*.p2p_read": "chipset_not_supported"},
        WARN,
        profile="h100-pciex4",
        but=lambda profile: links_but(profile, peer_to_peer=True),
    ),
    Case("topology.pairs.p2p", {}, PASS, profile="rtx4090x2", says="as the product is"),
    Case("topology.pairs.p2p", {"topology.pairs.0.p2p_read": DENIED}, UNKNOWN),
    Case("topology.pairs.p2p", {"topology.pairs": ()}, UNKNOWN),
    # The fabric
    Case("topology.fabric.state", {}, PASS),
    Case("topology.fabric.state", {}, PASS, profile="h200x1"),
    Case("topology.fabric.state", {"cards.0.fabric.state": UNSUPPORTED}, PASS, profile="h200x1"),
    Case("topology.fabric.state", {"cards.0.fabric.state": UNASKED}, SKIPPED, profile="h200x1"),
    Case("topology.fabric.state", {}, PASS, profile="a100x8"),
    Case(
        "topology.fabric.state",
        {"cards.*.fabric.state": "in_progress"},
        FAIL,
        says="802",
        owner=Owner.provider,
        count=4,
    ),
    Case("topology.fabric.state", {"cards.0.fabric.state": "in_progress"}, FAIL, profile="h200x1"),
    Case("topology.fabric.state", {"cards.0.fabric.state": "not_started"}, FAIL),
    Case("topology.fabric.state", {"cards.0.fabric.state": "not_started"}, WARN, profile="h200x1"),
    Case("topology.fabric.state", {"cards.0.fabric.status": "NVML_ERROR_INVALID_STATE"}, FAIL, says="error"),
    Case("topology.fabric.state", {"cards.0.fabric.state": "not_supported"}, FAIL),
    Case("topology.fabric.state", {"cards.0.fabric.state": UNSUPPORTED}, FAIL),
    Case("topology.fabric.state", {"cards.0.fabric.state": "9"}, UNKNOWN),
    Case("topology.fabric.state", {"cards.0.fabric.state": DENIED}, UNKNOWN),
    Case("topology.fabric.state", {"cards.0.fabric.status": DENIED}, UNKNOWN),
    Case("topology.fabric.health", {}, PASS),
    Case("topology.fabric.health", {"cards.0.fabric.health": "unhealthy"}, FAIL),
    Case(
        "topology.fabric.health", {"cards.0.fabric.health": "limited_capacity"}, FAIL, says="limited capacity"
    ),
    Case(
        "topology.fabric.health",
        {"cards.0.fabric.health_problems": ("degraded_bandwidth",)},
        FAIL,
        says="degraded bandwidth",
    ),
    Case("topology.fabric.health", {"cards.*.fabric.health": UNSUPPORTED}, SKIPPED),
    Case("topology.fabric.health", {"cards.0.fabric.health": DENIED}, UNKNOWN),
    Case("topology.fabric.clique", {}, PASS),
    Case("topology.fabric.clique", {"cards.1.fabric.clique_id": 2}, FAIL, says="3 in"),
    Case("topology.fabric.clique", {"cards.1.fabric.clique_id": DENIED}, UNKNOWN),
    Case("topology.fabric.clique", {"cards.1.fabric.clique_id": UNSUPPORTED}, SKIPPED),
    Case("topology.nvswitch", {}, PASS, says="4 can be seen"),
    Case("topology.nvswitch", {}, PASS, view="vm", says="None can be seen"),
    Case("topology.nvswitch", {}, PASS, profile="a100x8", says="6 can be seen"),
    Case("topology.nvswitch", {}, SKIPPED, profile="h200x1"),
    Case("topology.nvswitch", {"topology.pci_devices": DENIED}, UNKNOWN),
    # Around the cards
    Case("topology.numa", {}, PASS, says="NUMA node 0, CPUs"),
    Case("topology.numa", {}, PASS, view="vm", says="one NUMA node"),
    Case("topology.numa", {"cards.0.numa_node": -1}, UNKNOWN),
    Case("topology.numa", {"cards.0.numa_node": DENIED}, UNKNOWN),
    Case("topology.adapters", {}, PASS),
    Case("topology.adapters", {"topology.adapters": ()}, PASS),
    Case(
        "topology.adapters",
        {"topology.adapters": (port("mlx5_0", "ACTIVE"), port("mlx5_1", "DOWN"))},
        WARN,
        says="mlx5_1/1",
    ),
    Case("topology.adapters", {"topology.adapters": (port("mlx5_0", "DOWN"),)}, PASS, says="down 2 times"),
    Case("topology.adapters", {"topology.adapters.1.state": DENIED}, UNKNOWN, says="Not seen"),
    Case("topology.adapters", {"topology.adapters.1.link_layer": UNASKED}, UNKNOWN),
    Case("topology.adapters", {"topology.adapters": DENIED}, UNKNOWN),
    Case("topology.pci.aer", {}, PASS),
    Case("topology.pci.aer", {"topology.pci_devices.*.aer_uncorrected": 1}, WARN, count=4),
    Case("topology.pci.aer", {"topology.pci_devices.*.aer_corrected": 400}, PASS),
    Case("topology.pci.aer", {"topology.pci_devices.*.aer_corrected": 4000}, WARN),
    Case(
        "topology.pci.aer",
        {"topology.pci_devices.*.aer_corrected": 4000, "host.uptime_seconds": DENIED},
        UNKNOWN,
    ),
    Case("topology.pci.aer", {"topology.pci_devices.*.aer_corrected": DENIED}, UNKNOWN),
    Case("topology.pci.aer", {"topology.pci_devices": ()}, UNKNOWN),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check(case)


def test_nvlink_switched_off_by_the_driver_is_the_root_of_all_missing_links() -> None:
    node = faulty(
        "h200x4",
        {
            "topology.nvlink_disabled_by_driver": True,
            "cards.*.links": UNSUPPORTED,
            "topology.pairs.*.nvlinks": 0,
            "topology.pairs.*.p2p_nvlink": "not_supported",
        },
    )
    judgement = judge(node, profile("h200x4"))
    roots = {f.id: f.root for f in judgement.findings if f.status is Status.fail}
    assert roots["topology.nvlink.disabled_by_driver"] is None
    for id in ("topology.nvlink.active_links", "topology.pairs.nvlink"):
        assert roots[id] == "topology.nvlink.disabled_by_driver"


def test_one_card_without_links_is_named_and_its_pairs_follow_from_it() -> None:
    node = faulty("h200x4", {"cards.2.links.*.active": False, "topology.pairs": pairs("h200x4", nvlinks=0)})
    judgement = judge(node, profile("h200x4"))
    (card,) = [f for f in found(judgement, "topology.nvlink.active_links") if f.status is Status.fail]
    assert card.subject.label == node.known_cards[2].label
    failed = [f for f in found(judgement, "topology.pairs.nvlink") if f.status is Status.fail]
    assert len(failed) == 3
    assert {f.root for f in failed} == {"topology.nvlink.active_links"}


def test_a_fabric_in_progress_explains_cuda_802() -> None:
    node = faulty(
        "h200x4",
        {
            "cards.*.fabric.state": "in_progress",
            "stack.cuda_init.code": 802,
            "stack.cuda_init.name": "CUDA_ERROR_SYSTEM_NOT_READY",
            "stack.contexts.*.ok": False,
        },
    )
    judgement = judge(node, profile("h200x4"))
    assert judgement.reasons[0].startswith("topology.fabric.state (4 cards): ")
    followers = [f for f in judgement.findings if f.id in ("stack.cuda_init", "stack.context")]
    assert all(f.root == "topology.fabric.state" for f in followers if f.status is Status.fail)


def test_a_badly_seated_bridge_joins_with_fewer_links() -> None:
    node = faulty("h100-nvlx4", {"topology.pairs": pairs("h100-nvlx4", nvlinks=3)})
    judgement = judge(node, links_but(profile("h100-nvlx4"), links_per_pair=12))
    failed = [f for f in found(judgement, "topology.pairs.nvlink") if f.status is Status.fail]
    assert [f.subject.key for f in failed] == [node.known_cards[2].key, node.known_cards[3].key]


def test_how_far_cards_are_apart_is_said_in_words() -> None:
    node = faulty("h200x4", {"topology.pairs.0.nvlinks": 0, "topology.pairs.0.distance": "SYS"})
    (failed,) = (
        f for f in found(judge(node, profile("h200x4")), "topology.pairs.nvlink") if f.status is Status.fail
    )
    assert failed.detail == (
        "No NVLink joins them; over PCIe their data goes from one NUMA node to another (SYS)."
    )
