"""From raw answers to facts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, Literal

from nodecheck import __version__
from nodecheck.facts import Absent, Level, Maybe, Node, Why
from nodecheck.probes import host, kernel_log, nvidia, stack, topology, visibility
from nodecheck.sources import Sources
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

    def __init__(self, sources: Sources, level: Level, notice: Notice | None = None) -> None:
        self._sources = sources
        self._notice = notice or (lambda stage, what: None)
        self._lock = threading.Lock()
        self._node = Node(taken_at=datetime.now(timezone.utc), tool_version=__version__, level=level)

    def run(self) -> Node:
        """Every stage to its end; a stage that breaks leaves `failed` with the reason, and the others go on."""
        s = self._sources
        with ThreadPoolExecutor(max_workers=3, thread_name_prefix="probe") as pool:
            pool.submit(self._stage, "host", lambda: host.probe(s.files, s.process, s.commands))
            pool.submit(self._stage, "kernel_log", lambda: kernel_log.probe(s.files, s.commands))
            survey: Maybe[Survey] = s.nvml.survey()
            cards = self._stage("cards", lambda: nvidia.probe(survey, s.files))
            pool.submit(self._stage, "topology", lambda: topology.probe(survey, s.files, cards))
            self._stage(
                "stack",
                lambda: stack.probe(survey, s.files, s.process, s.commands, s.interpreter, cards),
            )
        return self.node()

    def node(self) -> Node:
        """What is known by now, with the ledger of open and closed doors."""
        doors = visibility.probe(self._node, self._sources.files, self._sources.process)
        return self._node.model_copy(update={"doors": doors})

    def _stage(self, stage: Stage, probe: Callable[[], Any]) -> Any:
        self._notice(stage, "started")
        try:
            value = probe()
            self._notice(stage, "done")
        except Exception as error:
            value = Absent(why=Why.failed, detail=f"the {stage} probe broke: {type(error).__name__}: {error}")
            self._notice(stage, "failed")
        with self._lock:
            self._node = self._node.model_copy(update={stage: value})
        return value

