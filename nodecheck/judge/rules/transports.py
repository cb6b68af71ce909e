"""Which way do NCCL's data go?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodecheck.facts import Absent, known
from nodecheck.facts.measurements import Transport
from nodecheck.judge import figures, software
from nodecheck.judge.finding import NODE, Cause, Owner, Status
from nodecheck.judge.rule import Outcome, passed, skipped, unknown, warn
from nodecheck.judge.rules.measurements import Look, load_rule

_SETTINGS = (
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE",
    "NCCL_HOSTID",
    "NCCL_NET",
    "NCCL_CUMEM_ENABLE",
    "NCCL_TOPO_FILE",
    "NCCL_GRAPH_FILE",
)
"""What sends data another way; `software.toml` says how each does."""
_OFF_NVLS = ("NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_ALGO", "NCCL_P2P_DISABLE")


def _settings(look: Look, names: tuple[str, ...]) -> str:
    """Those of the renter's settings that send data another way, `NAME=value`; the environment goes before files.

    What NCCL's own log says that it obeyed goes before both.
    """
    stack = look.node.stack
    found: dict[str, str] = {}
    for part in () if isinstance(stack, Absent) else (stack.nccl_settings, stack.environment):
        if known(part):
            found |= dict(part)
    for transport in look.measured.transports:
        found |= dict(pair for note in transport.notes if len(pair := note.split(" set to ", 1)) == 2)
    table = software.variables()
    return ", ".join(
        f"{name}={found[name]}"
        for name in names
        if name in found and found[name].strip() not in table[name].harmless
    )


def _yours(look: Look, names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The renter's settings as a sentence, and who acts."""
    settings = _settings(look, names)
    if not settings:
        return "", {}
    return f" {settings} is set, which explains it.", {
        "cause": Cause.misconfigured,
        "owner": Owner.renter,
        "next_step": f"Unset it ({settings}) in the environment or NCCL's files, and measure again.",
    }


@load_rule(
    "measurements.transport",
    "Collectives go over the cards' links",
    reads="NCCL's own log of a short run: the transports that each group's channels use",
    passes="cards that NVLink or xGMI joins use it; for others the way is stated",
    warns="cards of one machine that neither joins exchange data over network sockets",
    fails="cards that NVLink or xGMI joins exchange data through host memory (SHM) or the network (NET)",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="Collectives run ten to a hundred times slower than over the links.",
    next_step="Look at topology.pairs.p2p, /dev/shm, and IOMMU and ACS in the host section; containers and virtual "
    "machines that keep cards from reaching each other are the provider's to mend.",
    repeat="NCCL_DEBUG=INFO nodecheck measure collectives; grep ' via ' evidence/*",
)
def transport(look: Look) -> Iterator[Outcome]:
    transports = look.measured.transports
    if not transports:
        if len(look.node.known_cards) < 2:
            yield skipped("There is no group of cards.")
        else:
            yield Outcome(Status.unknown, detail="Not seen: NCCL's log was not read.")
        return
    for one in transports:
        yield _way(look, one)


def _way(look: Look, one: Transport) -> Outcome:
    paths = ", ".join(one.paths) or "none is named"
    words: dict[str, Any] = {
        "subject": look.subject(one.cards, one.name),
        "observed": paths,
        "observed_from": f"log of {one.library or 'the library'}",
    }
    told = f"{one.library + ' uses ' if one.library else ''}{paths}"
    if not one.paths:
        return Outcome(Status.unknown, detail="The log names no transport.", **words)
    detour = [path for path in one.paths if path.startswith(("NET/", "SHM"))]
    over_network = [path for path in detour if path.startswith("NET/")]
    spec = look.profile.links
    joined = figures.joined(look.node, look.profile, one.cards)
    said, who = _yours(look, _SETTINGS)
    if joined and detour:
        amd = look.profile.vendor == "amd"
        link = "xGMI" if amd else "NVLink"
        return Outcome(
            Status.fail,
            detail=f"{told}, although {link} joins these cards.{said}",
            expected=f"P2P over {link}",
            expected_from=spec.stated_by("interconnect").witness
            if spec and spec.interconnect in ("nvlink", "xgmi")
            else f"topology.pairs.{'xgmi' if amd else 'nvlink'}",
            **words,
            **who,
        )
    if any("Socket" in path for path in over_network):
        one_card = len(set(one.cards)) == 1
        why = (
            " Several ranks share one card here, which NCCL allows only where it takes them for several machines."
            if one_card
            else ""
        )
        return warn(f"{told}: sockets, within one machine.{why}{said}", expected="P2P or SHM", **words, **who)
    return passed(f"{told}.", **words)


@load_rule(
    "measurements.nvls",
    "The NVSwitches do reductions (NVLS)",
    reads="NCCL's own log: whether the group of all cards uses NVLink SHARP",
    passes=f"it does; asked only of whole NVSwitch boards, and from {figures.NVLS_FROM} cards on",
    warns="it does not",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Degraded: an all-reduce over all cards loses about a quarter of its bandwidth. No link is broken by that.",
    next_step="Ask the provider for multicast over the NVSwitches: the fabric manager has to grant it, and a virtual "
    "machine has to be given the whole board.",
    repeat="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NVLS nodecheck measure collectives",
)
def nvls(look: Look) -> Iterator[Outcome]:
    on = figures.nvls(look.node, look.profile)
    if on is None:
        yield skipped("This board, or so small a group, does without NVLS.")
    elif isinstance(on, Absent):
        yield unknown(NODE, on)
    elif on:
        yield passed("NCCL uses NVLS over all cards.", observed=True, expected=True)
    else:
        said, who = _yours(look, _OFF_NVLS)
        log = [note for one in look.measured.transports for note in one.notes if " set to " not in note]
        words = f' NCCL says: "{log[0]}".' if log else ""
        yield warn(
            f"Degraded: NVLS is off.{said}{words}{_told_apart(look)}", observed=False, expected=True, **who
        )


def _told_apart(look: Look) -> str:
    """Whether the figure is what healthy links give without NVLS: then nothing else is wrong."""
    for promised in look.profile.figures:
        if promised.measure != "all_reduce.busbw_without_nvls":
            continue
        same = promised.model_copy(update={"measure": "all_reduce.busbw"})
        for figure in figures.measured(same, look.measured.figures).values():
            limit = figures.limits(promised).first or 0.0
            sound = figure.median >= limit
            return (
                f" all_reduce gives {figure.median:.4g} {figure.unit}; healthy links without NVLS give "
                f"{promised.typical:.4g}: {'the links are sound' if sound else 'something else is slow as well'}."
            )
    return ""
