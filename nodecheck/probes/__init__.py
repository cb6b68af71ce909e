"""From raw answers to facts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from datetime import datetime, timezone
from typing import Any, Literal

from nodecheck import __version__
from nodecheck.facts import NOT_ASKED, OWN_FAULT, Absent, Card, Level, Maybe, Node, Stack, Topology, Why
from nodecheck.probes import amd, host, kernel_log, nvidia, stack, topology, visibility
from nodecheck.sources import Commands, Sources
from nodecheck.sources.deadline import beside
from nodecheck.sources.nvml import Survey

Stage = Literal["host", "cards", "topology", "kernel_log", "stack"]
STAGES: tuple[Stage, ...] = ("host", "cards", "topology", "kernel_log", "stack")

Notice = Callable[[Stage, Literal["started", "done", "failed"]], None]
"""Told when a stage begins and ends; called from the thread that runs the stage."""


class Probing:
    """One run of the probes over `sources`.

    The stages that wait for other programs run side by side. `node()` may be asked at any time, also after an
    interrupted run: what is not there yet is `not_asked`.
    """

    def __init__(
        self, sources: Sources, level: Level, notice: Notice | None = None, taken_at: datetime | None = None
    ) -> None:
        """`taken_at` is when a recording was made; this machine is seen now."""
        self._sources = sources
        self._notice = notice or (lambda _stage, _what: None)
        self._lock = threading.Lock()
        self._glancing: Callable[[], Maybe[Survey]] = sources.nvml.glance
        self._node = Node(
            taken_at=taken_at or datetime.now(timezone.utc), tool_version=__version__, level=level
        )

    def run(self, stages: Collection[Stage] = STAGES, start: stack.Start | None = None) -> Node:
        """The stages to their ends; one that breaks leaves `failed` with the reason, and the others go on.

        With `start` workers are started as soon as the cards are known; without, nothing stays on a card.
        """
        s = self._sources

        def whole(survey: Maybe[Survey], seen: Maybe[tuple[Card, ...]]) -> Stack:
            return stack.probe(survey, s.files, s.process, s.commands, s.interpreter, seen, start)

        return self._run(stages, s.nvml.survey, s.amdsmi.survey, s.commands, whole)

    def begin_glance(self) -> None:
        """Ask the driver now what `glance` is going to ask, and do not wait for it."""
        self._glancing = beside(self._sources.nvml.glance).result

    def glance(self, accepted: Maybe[Stack]) -> Node:
        """Every stage as far as it disturbs nobody: no context, no interpreter, no program but what prints the log.

        `accepted` is the stack as it was seen before; of torch and the libraries only that is looked for.
        """
        s = self._sources
        commands = s.commands.only("dmesg", "journal")

        def in_passing(survey: Maybe[Survey], _seen: Maybe[tuple[Card, ...]]) -> Stack:
            return stack.glance(survey, s.files, s.process, commands, accepted)

        return self._run(STAGES, self._glancing, lambda: NOT_ASKED, commands, in_passing)

    def _run(
        self,
        stages: Collection[Stage],
        ask: Callable[[], Maybe[Survey]],
        binding: amd.Binding,
        commands: Commands,
        software: Callable[[Maybe[Survey], Maybe[tuple[Card, ...]]], Stack],
    ) -> Node:
        s = self._sources
        beside: list[threading.Thread | None] = []
        if "host" in stages:
            beside.append(self._start("host", lambda: host.probe(s.files, s.process, commands)))
        if "kernel_log" in stages:
            beside.append(self._start("kernel_log", lambda: kernel_log.probe(s.files, commands)))
        survey: Maybe[Survey] = NOT_ASKED
        of_amd: amd.Seen | None = None

        def cards() -> Maybe[tuple[Card, ...]]:
            nonlocal survey, of_amd
            survey = ask()
            found = nvidia.probe(survey, s.files)
            if amd.is_here(s.files):
                of_amd = amd.probe(s.files, commands, binding, topology.pci_devices(s.files))
                found = amd.join_cards(found, of_amd)
            return found

        def links() -> Topology:
            found = topology.probe(survey, s.files, seen)
            return found if of_amd is None else amd.join_topology(found, of_amd, s.files)

        def whole() -> Stack:
            found = software(survey, seen)
            return found if of_amd is None else amd.join_stack(found, of_amd)

        if "cards" in stages:
            self._stage("cards", cards)
        seen = self._node.cards
        if "topology" in stages:
            beside.append(self._start("topology", links))
        if "stack" in stages:
            self._stage("stack", whole)
        for thread in beside:
            if thread is not None:
                thread.join()
        return self.node()

    def _start(self, stage: Stage, probe: Callable[[], Any]) -> threading.Thread | None:
        """The stage in a thread of its own; at once, and None, where this user may have no more threads."""
        # A daemon: a read that is stuck in the kernel must not hold up the end of the program.
        thread = threading.Thread(target=self._stage, args=(stage, probe), name=f"probe {stage}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._stage(stage, probe)
            return None
        return thread

    def node(self) -> Node:
        """What is known by now, with the ledger of open and closed doors."""
        doors = visibility.probe(self._node, self._sources.files, self._sources.process)
        return self._node.model_copy(update={"doors": doors})

    def _stage(self, stage: Stage, probe: Callable[[], Any]) -> None:
        self._notice(stage, "started")
        try:
            value = probe()
        except Exception as error:
            told = f"{OWN_FAULT}the {stage} probe broke: {type(error).__name__}: {error}"
            value = Absent(why=Why.failed, detail=told)
        with self._lock:
            self._node = self._node.model_copy(update={stage: value})
        self._notice(stage, "failed" if isinstance(value, Absent) else "done")
