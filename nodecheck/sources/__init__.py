"""Raw access to a node, live or recorded. Probes turn what comes from here into facts."""

from __future__ import annotations

from dataclasses import dataclass

from nodecheck.sources.amdsmi import Amdsmi
from nodecheck.sources.channel import Channel, Json, Recorded, Recorder
from nodecheck.sources.commands import Commands
from nodecheck.sources.files import Files
from nodecheck.sources.interpreter import Interpreter
from nodecheck.sources.nvml import Nvml
from nodecheck.sources.process import Process
from nodecheck.sources.workers import OnProgress, Replayed, Workers

__all__ = [
    "NAMES",
    "Amdsmi",
    "Commands",
    "Files",
    "Interpreter",
    "Nvml",
    "Process",
    "Sources",
    "Workers",
    "live_channels",
    "recorders",
]

NAMES = ("files", "process", "commands", "nvml", "amdsmi", "interpreter", "workers")


@dataclass(frozen=True)
class Sources:
    """Everything the probes and the measurements may ask."""

    files: Files
    process: Process
    commands: Commands
    nvml: Nvml
    amdsmi: Amdsmi
    interpreter: Interpreter
    workers: Workers

    @classmethod
    def over(cls, channels: dict[str, Channel]) -> Sources:
        """Sources that speak over the given channels, one for each of `NAMES`."""
        return cls(
            files=Files(channels["files"]),
            process=Process(channels["process"]),
            commands=Commands(channels["commands"]),
            nvml=Nvml(channels["nvml"]),
            amdsmi=Amdsmi(channels["amdsmi"]),
            interpreter=Interpreter(channels["interpreter"]),
            workers=Workers(channels["workers"]),
        )

    @classmethod
    def recorded(cls, recording: dict[str, dict[str, Json]]) -> Sources:
        """Sources that answer from a recording: question → encoded answer, for each source's name."""
        channels: dict[str, Channel] = {name: Recorded(recording.get(name, {})) for name in NAMES}
        return cls.over({**channels, "workers": Replayed(recording.get("workers", {}))})


def live_channels(python: str | None = None, on_progress: OnProgress | None = None) -> dict[str, Channel]:
    """Channels to this machine.

    `python` is the renter's interpreter, if it was named; `on_progress` hears how the workers get on.
    """
    from nodecheck.sources import amdsmi, commands, files, interpreter, nvml, process, workers

    return {
        "files": files.live(),
        "process": process.live(),
        "commands": commands.live(),
        "nvml": nvml.live(),
        "amdsmi": amdsmi.live(),
        "interpreter": interpreter.live(python),
        "workers": workers.live(on_progress),
    }


def recorders(channels: dict[str, Channel]) -> dict[str, Recorder]:
    """The same channels, each writing down what it is asked."""
    return {name: Recorder(channel) for name, channel in channels.items()}
