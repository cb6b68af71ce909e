"""What only the machine under test can fill into a request to the workers, at the moment it is made."""

from __future__ import annotations

import json
from pathlib import Path

from nodecheck.sources.channel import Answer, Channel, Json


class Here:
    """Passes requests on to the live workers. A recording made in front of it holds them as they were planned.

    The folder `report` of stage `storage` becomes the folder that the report is to lie in, or the nearest one above
    it that exists.
    """

    def __init__(self, inner: Channel, report_folder: Path) -> None:
        self._inner = inner
        self._report_folder = report_folder

    def ask(self, question: str) -> Answer:
        stage, _, text = question.partition(" ")
        if stage != "storage":
            return self._inner.ask(question)
        arguments: dict[str, Json] = json.loads(text)
        arguments["folders"] = [
            str(_existing(self._report_folder)) if folder == "report" else folder
            for folder in arguments["folders"]
        ]
        return self._inner.ask(f"{stage} {json.dumps(arguments)}")


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next((place for place in (folder, *folder.parents) if place.is_dir()), folder)
