"""Was everything measured, and did all data come back right?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nodecheck.facts import Absent, Measurements, Node
from nodecheck.facts.measurements import Check, StageName, StageRun
from nodecheck.judge import figures
from nodecheck.judge.finding import NODE, Cause, Owner, Status, Subject
from nodecheck.judge.rule import Outcome, fail, of_card, passed, rule, skipped, unknown, warn
from nodecheck.profile import Profile

CARD_STAGES: tuple[StageName, ...] = ("context", "memory", "hbm", "gemm", "agreement", "host")
COVERED = 0.95
"""Share of a card's memory that the pattern has to reach."""
COVERED_BUT_BYTES = 2.5 * 1024**3
"""Or all but this: a context, the driver and a margin take as much of a small card as of a large one."""
_BROKEN = ("uncorrectable ecc", "uncorrectable nvlink", "hardware stack error", "gpu is lost")
"""Parts of the CUDA runtime's messages (cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable,
cudaErrorHardwareStackError; NVML_ERROR_GPU_IS_LOST) after which the card, not the stage, is at fault."""


@dataclass(frozen=True)
class Look:
    """What a rule on the measurements is shown."""

    node: Node
    profile: Profile
    measured: Measurements

    def named(self, sentence: str) -> str:
        """With the cards' short names in place of their keys."""
        for key, card in figures.by_key(self.node).items():
            sentence = sentence.replace(key, card.short_name)
        return sentence

    def subject(self, cards: Iterable[str], name: str = "") -> Subject:
        """A card, a pair (from, to), or a group of cards."""
        keys = tuple(cards)
        known = figures.by_key(self.node)
        labels = [known[key].short_name if key in known else key for key in keys]
        if len(keys) == 1:
            if keys[0] in known:
                return of_card(known[keys[0]])
            return Subject(kind="node", key=keys[0], label=keys[0])
        key = "+".join(keys)
        if not keys:
            return Subject(kind="disk", key=name or "disk", label=name or "disk") if name else NODE
        if len(keys) == 2 and name in ("", "link"):
            return Subject(kind="pair", key=key, label=" → ".join(labels))
        if name == "split" or not known.keys() & set(keys):
            return Subject(kind="group", key=key, label=", ".join(labels))
        if name in ("", "all"):
            return Subject(kind="group", key=key, label=f"all {len(keys)} cards")
        return Subject(kind="group", key=key, label=f"{name} ({', '.join(labels)})")


def load_rule(
    id: str, title: str, **words: Any
) -> Callable[[Callable[[Look], Iterator[Outcome]]], Callable[[Look], Iterator[Outcome]]]:
    """Register a rule on what was measured; it is `unknown` where nothing was."""

    def register(look: Callable[[Look], Iterator[Outcome]]) -> Callable[[Look], Iterator[Outcome]]:
        def judge(node: Node, profile: Profile) -> Iterator[Outcome]:
            if isinstance(node.measurements, Absent):
                yield unknown(NODE, node.measurements)
            else:
                yield from look(Look(node, profile, node.measurements))

        rule(id, title, under_load=True, **{"door": "torch", **words})(judge)
        return look

    return register


@rule(
    "measurements.performed",
    "The node was measured under load",
    reads="the level of the run, and what the workers in the renter's interpreter answered",
    door="torch",
    passes="figures were measured; what the time budget left out is stated. At level quick it is skipped, and no "
    "other finding of this subject is asked",
    cause=Cause.slow,
    owner=Owner.provider,
    required=True,
    meaning="",
    next_step="",
    repeat="nodecheck measure",
)
def performed(node: Node, profile: Profile) -> Iterator[Outcome]:
    promised = profile.figures
    names = ", ".join(dict.fromkeys(figure.measure for figure in promised))
    if node.level == "quick":
        if promised:
            yield skipped(
                f"Level {node.level} measures nothing: {len(promised)} figures of the profile were not held "
                f"against this node ({names})."
            )
        else:
            yield skipped(f"Level quick measures nothing, and the profile {profile.name} has no figures.")
    elif isinstance(node.measurements, Absent):
        yield unknown(NODE, node.measurements)
    elif not node.measurements.figures:
        detail = _why_nothing(node.measurements)
        yield Outcome(Status.unknown, detail=f"Nothing was measured{detail}.", observed=0, unit="figures")
    else:
        seen = node.measurements
        count, checks = len(seen.figures), len(seen.checks)
        detail = f"{count} figures and {checks} checks of data in {seen.seconds:.0f} s."
        if seen.dropped:
            detail += f" The time budget left out: {', '.join(seen.dropped)}."
        yield passed(detail, observed=count, unit="figures")


def _why_nothing(seen: Measurements) -> str:
    reasons = dict.fromkeys(first_line(run.detail) for run in seen.stages if run.status != "done")
    told = "; ".join(reason for reason in reasons if reason)
    return f": {told}" if told else ""


def first_line(text: str) -> str:
    """Of an error, without the log behind it, as a part of a sentence."""
    return text.strip().partition("\n")[0].strip().rstrip(".")


@load_rule(
    "measurements.stages",
    "Every stage ran to its end",
    reads="how each stage of the measurement went on each card and group",
    passes="every stage that applies to the node ran to its end. A stage that did not is unknown, with the error, the "
    "signal or the user of the card that stood in its way; one that the time budget left out is skipped, and each of "
    "the profile's figures that it would have measured is unknown",
    fails="the driver reported an error of the card that cannot be corrected",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="The card broke off its work with an error of its own hardware.",
    next_step="Send this report to the provider, and ask for another card or node.",
    repeat="nodecheck measure",
)
def stages(look: Look) -> Iterator[Outcome]:
    seen = look.measured
    done: list[str] = []
    yielded = False
    for stage, cards, run in _runs(look):
        subject = look.subject(cards, "all" if len(cards) > 2 else "")
        if run is None:
            if figures.stage_left_out(stage, seen):
                yield skipped(f"{stage}: left out for the time budget.", subject)
            else:
                yield Outcome(Status.unknown, subject, detail=f"{stage}: nothing says that it ran.")
            yielded = True
        elif run.status == "skipped" and figures.stage_left_out(stage, seen):
            yield skipped(f"{stage}: {first_line(run.detail) or 'left out for the time budget'}.", subject)
            yielded = True
        elif run.status == "done":
            done.append(stage)
        else:
            yield _not_done(run, subject)
            yielded = True
    if done:
        names = ", ".join(dict.fromkeys(done))
        yield passed(f"{names}: to the end, in {seen.seconds:.0f} s.", observed=len(done), unit="runs")
    elif not yielded:
        yield Outcome(Status.unknown, detail="No stage is recorded.")


def _runs(look: Look) -> Iterator[tuple[StageName, tuple[str, ...], StageRun | None]]:
    """Every run that there was, storage and operators aside, and None for each that there should have been."""
    seen = look.measured
    accounted: set[tuple[StageName, tuple[str, ...]]] = set()
    for run in seen.stages:
        if run.stage in ("storage", "operators"):
            continue  # judged by findings of their own, which hold up nothing
        each = [(card,) for card in run.cards] if run.stage in CARD_STAGES and run.cards else [run.cards]
        for cards in each:
            accounted.add((run.stage, cards))
            yield run.stage, cards, run
    keys = tuple(card.key for card in look.node.known_cards)
    for stage in CARD_STAGES:
        for key in keys:
            if (stage, (key,)) not in accounted:
                yield stage, (key,), None
    groups: tuple[StageName, ...] = ("pairs", "collectives")
    for stage in groups:
        if len(keys) > 1 and not any(name == stage for name, _ in accounted):
            yield stage, keys, None


def _not_done(run: StageRun, subject: Subject) -> Outcome:
    reason = first_line(run.detail) or "no reason is given"
    if any(words in run.detail.lower() for words in _BROKEN):
        return Outcome(Status.fail, subject, detail=f"{run.stage}: {reason}.", observed=run.status)
    how = {"failed": "failed", "timed_out": "did not end in time", "skipped": "was not run"}[run.status]
    return Outcome(Status.unknown, subject, detail=f"{run.stage} {how}: {reason}.", observed=run.status)


# Data


def _missing(look: Look, stage: StageName, cards: tuple[str, ...]) -> Outcome:
    """The outcome for a check that is not there, with the reason."""
    subject = look.subject(cards, "all" if len(cards) > 2 else "")
    run = figures.run_of(stage, cards, look.measured)
    if figures.stage_left_out(stage, look.measured) and (run is None or run.status == "skipped"):
        return skipped(f"{stage} was left out for the time budget.", subject)
    if run is not None and run.status != "done":
        why = first_line(run.detail) or run.status
        return Outcome(Status.unknown, subject, detail=f"Not checked: {why}.")
    return Outcome(Status.unknown, subject, detail="Not checked, and nothing says why.")


def _examples(check: Check) -> str:
    return f" {'; '.join(check.examples[:3])}." if check.examples else ""


def _of_each_card(look: Look, *names: str) -> Iterator[tuple[tuple[str, ...], list[Check]]]:
    """The checks of these names by card: of the cards listed, then of whatever else was checked."""
    found: dict[tuple[str, ...], list[Check]] = {(card.key,): [] for card in look.node.known_cards}
    for check in look.measured.checks:
        if check.check in names:
            found.setdefault(check.cards, []).append(check)
    yield from found.items()


@load_rule(
    "measurements.memory",
    "The card's memory keeps what is written to it",
    reads="patterns that depend on the address, and their complements, written to all memory that is free and read "
    "back, every byte compared",
    passes=f"every byte came back, over {COVERED:.0%} of the memory or all but {COVERED_BUT_BYTES / 1024**3:g} GiB",
    warns="every byte came back, over less of the memory",
    fails="a byte came back changed",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="The card changes data without an error being reported: results and checkpoints are not to be trusted.",
    next_step="Send this report with the addresses to the provider, and ask for another card. Do not work on this one.",
    repeat="nodecheck measure memory",
)
def memory(look: Look) -> Iterator[Outcome]:
    any_card = False
    for cards, checks in _of_each_card(look, "memory.pattern"):
        any_card = True
        yield _memory(look, cards, checks) if checks else _missing(look, "memory", cards)
    if not any_card:
        yield skipped("There is no card whose memory could be checked.")


def _memory(look: Look, cards: tuple[str, ...], checks: list[Check]) -> Outcome:
    subject = look.subject(cards)
    wrong, compared = sum(c.wrong for c in checks), sum(c.compared for c in checks)
    covered = max((c.covered for c in checks if c.covered is not None), default=None)
    words: dict[str, Any] = {"subject": subject, "observed": wrong, "expected": 0, "unit": "wrong bytes"}
    if wrong:
        told = "".join(_examples(check) for check in checks if check.wrong)
        return fail(f"{wrong} of {compared} bytes came back changed on {subject.label}.{told}", **words)
    if not compared:
        return Outcome(Status.unknown, detail="Nothing was compared.", **words)
    told = f"{compared / 1e9:.1f} GB compared, none wrong"
    card = figures.by_key(look.node).get(cards[0])
    if card is None:
        return passed(f"{told}.", **words)
    if covered is None:
        return Outcome(
            Status.unknown, detail=f"{told}; how much of the memory that is was not told.", **words
        )
    total = card.memory.total_bytes
    rest = 0.0 if isinstance(total, Absent) else COVERED_BUT_BYTES / total
    if covered < min(COVERED, 1 - rest):
        return warn(
            f"{told}, and only {covered:.1%} of the memory could be reached.",
            **{**words, "observed": round(covered, 4), "expected": COVERED, "unit": "of the memory"},
            cause=Cause.not_visible,
            owner=Owner.renter,
            next_step="Find out what holds the rest of the memory (nvidia-smi), and run the stage again.",
        )
    return passed(f"{told}; {covered:.1%} of the memory.", **words)


@load_rule(
    "measurements.agreement",
    "Equal products give equal bits",
    reads="the same seeded products on every card, repeated under load: bit by bit against the card's own first "
    "result, and against its siblings'",
    passes="all are equal",
    fails="a card differs from itself or from its siblings",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="Silent data corruption: the card computes wrong numbers without an error. Training diverges, or goes on "
    "wrongly, and nothing else will tell.",
    next_step="Send this report to the provider, and ask for another card. Do not work on this one.",
    repeat="nodecheck measure agreement",
)
def agreement(look: Look) -> Iterator[Outcome]:
    any_card = False
    for cards, checks in _of_each_card(look, "agreement.self", "agreement.siblings"):
        any_card = True
        yield _agreement(look, cards, checks) if checks else _missing(look, "agreement", cards)
    if not any_card:
        yield skipped("There is no card whose results could be compared.")


def _agreement(look: Look, cards: tuple[str, ...], checks: list[Check]) -> Outcome:
    subject = look.subject(cards)
    wrong = [check for check in checks if check.wrong]
    words: dict[str, Any] = {
        "subject": subject,
        "observed": sum(check.wrong for check in wrong),
        "expected": 0,
        "unit": "differences",
    }
    if wrong:
        whom = {"agreement.self": "from itself", "agreement.siblings": "from its siblings"}
        told = " and ".join(dict.fromkeys(whom[check.check] for check in wrong))
        return fail(f"{subject.label} differs {told}.{''.join(_examples(check) for check in wrong)}", **words)
    compared = {check.check for check in checks if check.compared}
    siblings = len(look.node.known_cards) > 1
    for needed in ("agreement.self", *(("agreement.siblings",) if siblings else ())):
        if needed not in compared:
            return Outcome(Status.unknown, detail=f"{needed}: nothing was compared.", **words)
    beside = "agreement.siblings" in compared
    return passed(f"Equal with itself{' and with its siblings' if beside else ''}.", **words)


def _unchecked(look: Look, right: list[Check]) -> Iterator[Outcome]:
    """What should have been compared and was not: on every card, between every two, and by all together."""
    keys = tuple(card.key for card in look.node.known_cards)
    alone = {(check.stage, card) for check in right for card in check.cards}
    stages: tuple[StageName, ...] = ("context", "host", "pairs") if len(keys) > 1 else ("context", "host")
    for stage in stages:
        for key in keys:
            if (stage, key) not in alone:
                yield _missing(look, stage, (key,))
    if len(keys) > 1 and not any(check.stage == "collectives" for check in right):
        yield _missing(look, "collectives", keys)


@load_rule(
    "measurements.data",
    "Data arrives as it was sent",
    reads="what came out of the first kernels, of copies and of collectives, on every rank, every element against its "
    "exact value",
    passes="all were right",
    fails="an element was wrong",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="Cards hand each other wrong data without an error: gradients are corrupted on the way.",
    next_step="Send this report to the provider: a link, a switch, or PCIe with the IOMMU or ACS in its way.",
    repeat="nodecheck measure pairs collectives",
)
def data(look: Look) -> Iterator[Outcome]:
    others = ("memory.pattern", "agreement.self", "agreement.siblings")
    checks = [
        check for check in look.measured.checks if check.check not in others and check.stage != "operators"
    ]
    wrong = [check for check in checks if check.wrong]
    for check in wrong:
        yield fail(
            f"{check.check}: {check.wrong} of {check.compared} elements are wrong.{_examples(check)}",
            subject=look.subject(check.cards, check.name),
            observed=check.wrong,
            expected=0,
            unit="wrong elements",
        )
    for check in checks:
        if not check.wrong and not check.compared:
            yield Outcome(
                Status.unknown,
                look.subject(check.cards, check.name),
                detail=f"{check.check}: nothing was compared.",
            )
    right = [check for check in checks if not check.wrong and check.compared]
    yield from _unchecked(look, right)
    if not checks:
        yield Outcome(Status.unknown, detail="No data was compared.")
    elif right and not wrong:
        names = ", ".join(dict.fromkeys(check.check for check in right))
        elements = sum(check.compared for check in right)
        yield passed(f"{elements:,} elements, all right: {names}.", observed=0, unit="wrong elements")
