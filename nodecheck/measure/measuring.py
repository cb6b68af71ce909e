"""One run of the measurements: the plan carried out, and what came of it as facts at any time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from nodecheck.facts import Absent, Level, Node, Why
from nodecheck.facts.measurements import (
    MOST_TRIES,
    Check,
    Figure,
    Measurements,
    StageName,
    StageRun,
    Transport,
)
from nodecheck.measure import reading, starting
from nodecheck.measure.plan import (
    STAGES,
    START_SECONDS,
    Step,
    among,
    applies,
    fit,
    gives,
    only,
    plan,
    without,
)
from nodecheck.measure.targets import environment, targets
from nodecheck.measure.transport import transport
from nodecheck.sources.channel import Json
from nodecheck.sources.deadline import beside
from nodecheck.sources.workers import Workers

FRESH_WORKERS = 2
"""How many more a worker that ends at one pair of cards is replaced by, for the pairs that are left."""

NO_TRANSPORT = "how the data went could not be read from the library's log"
MOST_NOTES = 40
"""What one stage left out, in lines."""

START = "start"
"""What the display hears before the first stage: workers import torch."""

Event = Literal["planned", "started", "done", "failed"]


class Notice(Protocol):
    """Told how the measurements go; `seconds` is what a planned stage takes where all is well."""

    def __call__(self, stage: str, event: Event, *, seconds: float = 0.0) -> None: ...


def _silent(stage: str, event: Event, *, seconds: float = 0.0) -> None:
    pass


class Measuring:
    """One run over `workers`, of the node whose facts are `node`.

    `measurements()` may be asked at any time, also after an interrupted run: every stage that did not come to its
    end is there with the reason.
    """

    def __init__(
        self,
        workers: Workers,
        node: Node,
        level: Level,
        *,
        budget_seconds: float | None = None,
        force: bool = False,
        stages: Collection[StageName] | None = None,
        notice: Notice | None = None,
    ) -> None:
        """`budget_seconds` leaves out stages (`plan.DROPS`), `force` loads cards that somebody else uses."""
        self._workers = workers
        self._stages = tuple(stage for stage in STAGES if stages is None or stage in stages)
        self._budget_seconds = budget_seconds
        self._notice: Notice = notice or _silent
        self._targets = targets(node, force=force)
        self._loaded = tuple(target for target in self._targets if not target.obstacle)
        self._python = _python(node)
        self._environment = environment(node, self._loaded)
        self._steps = plan(node, self._loaded, level, self._stages)
        self._waiting = list(self._steps)
        self._started = False
        self._lost: dict[str, str] = {}
        """Cards that are not asked any more, and why."""
        self._seconds = 0.0
        """As the answers tell it, so that a recording is dealt with as the node was."""
        self._runs: list[StageRun] = []
        self._figures: list[Figure] = []
        self._checks: list[Check] = []
        self._transports: list[Transport] = []
        self._accesses: list[tuple[str, str, bool]] = []
        self._digests: dict[str, Mapping[str, Json]] = {}
        """Of the agreement's products, by card."""
        self._bindings: dict[str, str] = {}
        self._dropped: list[str] = []
        self._skip_what_cannot_run()

    def run(self) -> Measurements:
        """Every stage to its end or its deadline. Raises only what interrupts it."""
        if self._steps:
            self._fit()
            self._notice(START, "planned", seconds=START_SECONDS)
            for stage in dict.fromkeys(step.stage for step in self._waiting):
                seconds = sum(step.typical_seconds for step in self._waiting if step.stage == stage)
                self._notice(stage, "planned", seconds=seconds)
            self._start()
        while self._waiting:
            self._stage(self._waiting[0].stage)
            self._fit()
        return self.measurements()

    def measurements(self) -> Measurements:
        """What is known by now."""
        unasked = [
            StageRun(stage=step.stage, cards=step.subject, status="skipped", detail="the run was interrupted")
            for step in self._waiting
        ]
        return Measurements(
            stages=reading.joined([*self._runs, *unasked]),
            figures=tuple(self._figures),
            checks=tuple(self._checks),
            transports=tuple(self._transports),
            accesses=tuple(dict.fromkeys(self._accesses)),
            bindings=tuple(self._bindings.items()),
            dropped=tuple(self._dropped),
            seconds=round(self._seconds, 3),
        )

    def again(self, figures: Collection[Figure]) -> Measurements:
        """Measure `figures` once more: their medians join `tries`, and the last counts.

        What a check finds wrong on the way counts as well. A figure that was measured `MOST_TRIES` times stays as
        it is, and so does one that cannot be had again.
        """
        wanted = {_identity(figure): figure for figure in figures if len(figure.tries) < MOST_TRIES}
        for step in self._steps:
            sought = [figure for figure in wanted.values() if gives(step, figure)]
            if not sought:
                continue
            attempt = max(len(figure.tries) or 1 for figure in sought) + 1
            kept, runs = self._figures, self._runs
            self._figures, self._runs = [], []
            self._notice(step.stage, "started")
            narrowed = only(step, sought)
            arguments = {**narrowed.arguments, "attempt": attempt}
            try:
                done = self._step(replace(narrowed, arguments=arguments))
            finally:
                new = {_identity(figure): figure for figure in self._figures}
                self._figures = [
                    _once_more(figure, new[identity])
                    if (identity := _identity(figure)) in wanted and identity in new
                    else figure
                    for figure in kept
                ]
                self._runs = runs + [run for run in self._runs if run.status != "skipped"]
            self._notice(step.stage, "done" if done else "failed")
        return self.measurements()

    # Before anything is loaded.

    def _skip_what_cannot_run(self) -> None:
        for stage in self._stages:
            if stage == "storage" and not self._loaded:
                why = dict.fromkeys(target.obstacle for target in self._targets)
                self._skip(stage, (), "; ".join(why))
            for target in self._targets if stage != "storage" else ():
                if target.obstacle and applies(stage, self._targets):
                    self._skip(stage, (target.key,), target.obstacle)

    def _skip(self, stage: StageName, cards: tuple[str, ...], why: str) -> None:
        self._runs.append(StageRun(stage=stage, cards=cards, status="skipped", detail=why))

    def _fit(self) -> None:
        """Leave out what the budget has no room for; asked again after each stage, since the node may be slow."""
        if self._budget_seconds is None:
            return
        left = self._budget_seconds - self._seconds - (0.0 if self._started else START_SECONDS)
        kept, dropped = fit(self._waiting, left)
        gone = [step for step in self._waiting if step.part in dropped]
        self._waiting = list(kept)
        self._dropped += [part for part in dropped if part not in self._dropped]
        ran = {run.stage for run in self._runs if run.status != "skipped"} | {step.stage for step in kept}
        for step in gone:
            if step.stage not in ran:
                why = f"left out for the time budget of {self._budget_seconds:g} s"
                self._skip(step.stage, step.subject, why)

    # The workers.

    def _start(self) -> None:
        arguments = starting.request(self._python, self._loaded, self._environment)
        keys = tuple(target.key for target in self._loaded)
        # What follows needs every worker, whether or not the stage itself was asked for.
        step = Step("context", "context", keys, typical_seconds=START_SECONDS)
        self._notice(START, "started")
        said = self._ask("start", keys, arguments)
        self._seconds += said.seconds
        self._started = True
        for key in keys:
            if key in said.answers:
                self._bindings[key] = reading.text(said.answers[key].get("binding"), 200) or "as found"
            else:
                run = self._failed(step, (key,), said.errors.get(key), said.seconds)
                self._lost[key] = f"its worker did not start: {run.detail.partition(chr(10))[0]}"
        self._notice(START, "failed" if self._lost else "done")

    def _ask(self, stage: str, cards: Iterable[str], arguments: Mapping[str, Json]) -> _Said:
        try:
            said = self._workers.run(stage, tuple(cards), arguments)
        except Exception as broken:
            # What was measured before is worth more than a traceback.
            said = Absent(why=Why.failed, detail=f"asking broke: {type(broken).__name__}: {broken}")
        if isinstance(said, Absent):
            error: Json = {
                "type": _NOT_ASKED if said.why is Why.not_asked else "",
                "message": said.detail or str(said),
                "timed_out": said.why is Why.timed_out,
            }
            return _Said({}, dict.fromkeys(cards, error), {}, 0.0)
        seconds = max(reading.number(said.get("seconds")) or 0.0, 0.0)
        answers = {
            card: answer
            for card, answer in reading.mapping(said.get("answers")).items()
            if isinstance(answer, dict)
        }
        return _Said(
            answers, reading.mapping(said.get("errors")), reading.mapping(said.get("samples")), seconds
        )

    # Stages.

    def _stage(self, stage: StageName) -> None:
        """The steps of one stage, which is the next, and what runs beside it."""
        aside = [(step, self._aside(step)) for step in self._waiting if step.beside == stage]
        self._notice(stage, "started")
        began, done = self._seconds, True
        while self._waiting and self._waiting[0].stage == stage:
            done = self._step(self._waiting[0]) and done
            self._waiting.pop(0)
        if stage == "agreement":
            done = self._siblings() and done
        self._notice(stage, "done" if done else "failed")
        for step, (asked, said) in aside:
            done = asked is not None and said is not None and self._take(asked, said.result())
            if said is not None:
                # What it took longer than the stage that it ran beside.
                self._seconds = max(self._seconds, began + said.result().seconds)
            self._waiting.remove(step)
            self._notice(step.stage, "done" if done else "failed")

    def _aside(self, step: Step) -> tuple[Step | None, Future[_Said] | None]:
        """Begin a step, and go on."""
        self._notice(step.stage, "started")
        asked = self._prepared(step)
        return asked, None if asked is None else beside(lambda: self._put(asked))

    def _step(self, step: Step) -> bool:
        """Ask, and take down what is answered; whether everything went well."""
        asked = self._prepared(step)
        if asked is None:
            return False
        done = not any(card in self._lost for card in step.subject)
        for _ in range(1 + FRESH_WORKERS):
            said = self._put(asked)
            self._seconds += said.seconds
            done = self._take(asked, said) and done
            fatal = _fatal(asked, said)
            left = tuple(pair for pair in asked.pairs if pair != fatal)
            if fatal is None or not left:
                break
            asked = among(asked, left)
        else:
            self._skip(
                asked.stage, asked.subject, f"the worker ended at {1 + FRESH_WORKERS} pairs before them"
            )
        return done

    def _prepared(self, step: Step) -> Step | None:
        """The step for the cards that there still are; None where it cannot be made."""
        lost = tuple(card for card in step.subject if card in self._lost)
        for card in () if step.group else lost:
            self._skip(step.stage, (card,), self._lost[card])
        if lost and step.group:
            why = dict.fromkeys(self._lost[card] for card in lost)
            self._skip(step.stage, step.subject, f"{', '.join(lost)}: {'; '.join(why)}")
            return None
        return without(step, tuple(self._lost), [target.key for target in self._loaded])

    def _put(self, step: Step) -> _Said:
        return self._ask(
            step.request, step.cards, {**step.arguments, "deadline_seconds": step.deadline_seconds}
        )

    def _take(self, step: Step, said: _Said) -> bool:
        """Take down what was answered; whether everything went well."""
        if step.group:
            return self._group(step, said).status == "done"
        runs = [self._card(step, card, said) for card in step.cards]
        return all(run.status == "done" for run in runs)

    def _card(self, step: Step, card: str, said: _Said) -> StageRun:
        subject = step.subject if step.stage == "storage" or step.pairs else (card,)
        if card not in said.answers:
            run = self._failed(step, _fatal(step, said) or subject, said.errors.get(card), said.seconds)
            # A disk that hangs says nothing of the card, and a pair nothing of the card whose worker measured it.
            if run.status == "timed_out" and subject == (card,):
                self._lost[card] = f"its worker hung in stage {step.stage}"
            return run
        answer = said.answers[card]
        load = reading.load(reading.items(said.samples.get(card)))
        taken = _Taken(step, card, answer)
        self._figures += [reading.figure(step, card, row, load) for row in taken.rows]
        self._checks += taken.checks
        if step.pairs:
            self._accesses += reading.accesses(step, card, answer)
        if step.stage == "agreement":
            self._digests[card] = reading.mapping(answer.get("digests"))
        return self._ran(step, subject, said.seconds, taken.strange, note=_note(answer))

    def _group(self, step: Step, said: _Said) -> StageRun:
        """A group's run is done only where every rank came to its end."""
        taken = [_Taken(step, card, said.answers[card]) for card in step.cards if card in said.answers]
        self._checks += reading.together(check for rank in taken for check in rank.checks)
        missing = [card for card in step.cards if card not in said.answers]
        if missing:
            # What the others measured without a rank is no figure of this group.
            runs = [_failed(step, (card,), said.errors.get(card), said.seconds) for card in missing]
            detail = "\n".join(f"{run.cards[0]}: {run.detail}" for run in runs)
            if step.part == "transport":
                # The group's figures are none the worse for it; that nobody knows its transport shows by itself.
                return self._ran(step, step.cards, said.seconds, "", f"{NO_TRANSPORT}: {detail}")
            worst = reading.worst(runs).model_copy(
                update={
                    "cards": step.cards,
                    "detail": detail,
                    "stacks": tuple(stack for run in runs for stack in run.stacks),
                }
            )
            self._runs.append(worst)
            return worst
        pooled = [sample for card in step.cards for sample in reading.items(said.samples.get(card))]
        load = reading.load(pooled)
        shared = [[row for row in rank.rows if not row.own] for rank in taken]
        self._figures += [reading.figure(step, step.cards[0], row, load) for row in reading.averaged(shared)]
        for card, rank in zip(step.cards, taken, strict=True):
            self._figures += [reading.figure(step, card, row, load) for row in rank.rows if row.own]
        if step.part == "transport":
            told = [said.answers[card] for card in step.cards]
            self._transports.append(transport(step.cards, step.group, told))
        strange = next((rank.strange for rank in taken if rank.strange), "")
        return self._ran(step, step.cards, said.seconds, strange, _note(said.answers[step.cards[0]]))

    def _siblings(self) -> bool:
        found = tuple(reading.siblings(self._digests, {target.key: target.model for target in self._loaded}))
        self._checks += found
        return not any(check.wrong for check in found)

    def _ran(
        self, step: Step, cards: tuple[str, ...], seconds: float, strange: str, note: str = ""
    ) -> StageRun:
        run = StageRun(
            stage=step.stage,
            cards=cards,
            status="failed" if strange else "done",
            detail=strange or note,
            seconds=round(seconds, 3),
        )
        self._runs.append(run)
        return run

    def _failed(self, step: Step, cards: tuple[str, ...], error: Json, seconds: float) -> StageRun:
        run = _failed(step, cards, error, seconds)
        self._runs.append(run)
        return run


@dataclass(frozen=True)
class _Said:
    """What the workers answered to one request, by card."""

    answers: Mapping[str, Mapping[str, Json]]
    errors: Mapping[str, Json]
    samples: Mapping[str, Json]
    seconds: float


_NOT_ASKED = "not asked"


def _fatal(step: Step, said: _Said) -> tuple[str, str] | None:
    """The pair of cards that a worker was at when it ended, if it did; what it had measured by then went with it."""
    if not step.pairs or step.cards[0] in said.answers:
        return None
    at = reading.text(reading.mapping(said.errors.get(step.cards[0])).get("step"), 200)
    return next((pair for pair in step.pairs if at == " to ".join(pair)), None)


class _Taken:
    """The rows and checks of one worker's answer, and the first thing that was strange in it."""

    def __init__(self, step: Step, card: str, answer: Mapping[str, Json]) -> None:
        self.rows: list[reading.Row] = []
        self.checks: list[Check] = []
        self.strange = ""
        for row in reading.rows(step, card, answer):
            if isinstance(row, reading.Strange):
                self.strange = self.strange or f"the answer of {card} {row}"
            else:
                self.rows.append(row)
        for check in reading.checks(step, card, answer):
            if isinstance(check, reading.Strange):
                self.strange = self.strange or f"the answer of {card} {check}"
            else:
                self.checks.append(check)


def _failed(step: Step, cards: tuple[str, ...], error: Json, seconds: float) -> StageRun:
    told = error if isinstance(error, dict) else {"message": "it gave no answer"}
    status, detail, stacks = reading.failure(told)
    return StageRun(
        stage=step.stage,
        cards=cards,
        # Nothing was asked of the workers: the recording does not hold it.
        status="skipped" if told.get("type") == _NOT_ASKED else status,
        detail=detail,
        stacks=stacks,
        seconds=round(seconds, 3),
    )


def _note(answer: Mapping[str, Json]) -> str:
    """What a stage says besides its figures: who holds the card's memory, and what it left out."""
    notes = [reading.text(reading.mapping(answer.get("memory")).get("explained"), 500)]
    notes += [reading.text(answer.get(key), 500) for key in ("stopped", "spent")]
    for key in ("absent", "skipped"):
        told = answer.get(key)
        notes.append(reading.text(told, 500))
        notes += map(reading.left_out, reading.items(told)[:MOST_NOTES])
    return "\n".join(dict.fromkeys(note for note in notes if note))


def _python(node: Node) -> str:
    if isinstance(node.stack, Absent) or isinstance(node.stack.interpreter, Absent):
        return ""
    return node.stack.interpreter.path


def _identity(figure: Figure) -> tuple[object, ...]:
    """What makes two figures the same one, measured twice."""
    return (figure.measure, figure.stage, figure.subject, figure.cards, figure.name, figure.at)


def _once_more(before: Figure, now: Figure) -> Figure:
    return now.model_copy(update={"tries": (*(before.tries or (before.median,)), now.median)})
