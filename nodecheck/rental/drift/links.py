"""Are the links between the cards as they were?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nodecheck.facts import Absent, Card, known
from nodecheck.facts.card import Link
from nodecheck.judge import Cause, Owner
from nodecheck.judge.rule import Outcome, fail, of_card, passed, skipped, smi, unknown, warn
from nodecheck.rental.drift.rule import (
    NOTHING_BEFORE,
    Changed,
    Drift,
    card_drift,
    drift_rule,
    no_cards,
    pairs,
)
from nodecheck.report.text import plural

SEND = "Send this to the provider. If all links of a card are down, a reboot of the node may bring them back."


def _each_card(
    drift: Drift, trouble: Callable[[dict[int, Link], dict[int, Link]], str | Absent]
) -> Iterator[Outcome]:
    """What `trouble` says of the links of each card, then and now; one pass where it has nothing to say."""
    then = drift.reference
    if then is None:
        yield skipped(NOTHING_BEFORE)
        return
    if why := no_cards(drift, then):
        yield why
        return
    looked, silent = 0, True
    for before, card in pairs(then, drift.now):
        if isinstance(before.links, Absent) or not before.links:
            continue
        looked += 1
        words: dict[str, Any] = {"expected_from": drift.witness(then)}
        if isinstance(card.links, Absent):
            silent = False
            yield unknown(of_card(card), card.links, **words)
            continue
        said = trouble(*({link.index: link for link in some} for some in (before.links, card.links)))
        if isinstance(said, Absent):
            silent = False
            yield unknown(of_card(card), said, **words)
        elif said:
            silent = False
            words |= {"observed": _state(card), "expected": _state(before)}
            yield fail(f"{said[0].upper()}{said[1:]}.", subject=of_card(card), **words)
    if silent and looked:
        yield passed(
            f"{plural(looked, 'card')}: as they were.", observed=looked, expected_from=drift.witness(then)
        )
    elif silent:
        yield skipped(f"No links were seen in {drift.witness(then)}.")


def _state(card: Card) -> str:
    up = card.active_links
    return f"{up} up" if known(up) else f"not seen ({up})"


@drift_rule(
    "drift.links.active",
    "No link was lost",
    reads="the state of each NVLink or xGMI link (nvmlDeviceGetNvLinkState)",
    door="nvml",
    passes="every link that was up is up",
    fails="one is down, or no longer there",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Every missing link takes its share of the bandwidth between the cards; a card without any exchanges data "
    "over PCIe, many times more slowly.",
    next_step=SEND,
    repeat="nvidia-smi nvlink -s",
)
def active(drift: Drift) -> Iterator[Outcome]:
    def trouble(before: dict[int, Link], now: dict[int, Link]) -> str | Absent:
        down = []
        for index, link in before.items():
            state = now[index].active if index in now else False
            if link.active is True and isinstance(state, Absent):
                return state
            if link.active is True and not state:
                down.append(index)
        return f"down since then: {', '.join(map(str, down))}" if down else ""

    return _each_card(drift, trouble)


@drift_rule(
    "drift.links.speed",
    "No link has become slower",
    reads="the rate of each link that is up (field NVML_FI_DEV_NVLINK_GET_SPEED)",
    door="nvml",
    passes="every link runs at its rate of before, or above",
    fails="one runs below",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A link that was set up at a lower rate holds up every transfer between the cards that it joins.",
    next_step=SEND,
    repeat="nvidia-smi nvlink -s",
)
def speed(drift: Drift) -> Iterator[Outcome]:
    def trouble(before: dict[int, Link], now: dict[int, Link]) -> str | Absent:
        slow = []
        for index, link in before.items():
            if index not in now or link.active is not True or now[index].active is not True:
                continue  # for drift.links.active to say
            was, rate = link.speed_mb_per_s, now[index].speed_mb_per_s
            if known(was) and isinstance(rate, Absent):
                return rate
            if known(was) and known(rate) and rate < was:
                slow.append(f"link {index} at {rate / 1000:g} instead of {was / 1000:g} GB/s")
        return ", ".join(slow)

    return _each_card(drift, trouble)


@card_drift(
    "drift.links.fabric",
    "The card is in the fabric as it was",
    path="fabric.state",
    reads="membership of the NVSwitch fabric (nvmlDeviceGetGpuFabricInfoV, state)",
    passes="its state is as it was, or completed",
    fails="it was completed and is not",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The card can no longer reach the others through the NVSwitches: programs that use several cards end with "
    "an error or fall back to PCIe.",
    next_step="Ask the provider to look at the fabric manager (`nvidia-fabricmanager`) and to have it started anew.",
    repeat="nvidia-smi -q | grep -A4 Fabric",
)
def fabric(changed: Changed) -> Outcome | None:
    if changed.was != "completed":
        return None
    return fail(f"It was completed and is {changed.now.replace('_', ' ')}.")


@card_drift(
    "drift.links.fabric_health",
    "The fabric is as healthy as it was",
    path="fabric.health",
    reads="the fabric's own word on its health (nvmlDeviceGetGpuFabricInfoV, healthSummary)",
    passes="it is as it was, or healthy",
    warns="it is not healthy any more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Links or routes of the fabric are lost or repaired: traffic between cards is slower, or about to stop.",
    next_step="Send this to the provider.",
    repeat="nvidia-smi -q | grep -A10 Fabric",
)
def fabric_health(changed: Changed) -> Outcome | None:
    return None if changed.now == "healthy" else warn(f"It was {changed.was} and is {changed.now}.")


card_drift(
    "drift.links.clique",
    "The card is in the clique that it was in",
    path="fabric.clique_id",
    reads="the card's clique (nvmlDeviceGetGpuFabricInfoV, cliqueId)",
    passes="it is",
    warns="it is in another one",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Only cards of one clique reach each other over NVLink.",
    next_step="Ask the provider how the fabric was divided anew.",
    repeat=smi("fabric.cliqueId", "fabric.clusterUuid"),
)(lambda changed: warn(f"It was {changed.was} and is {changed.now}."))
