from __future__ import annotations

import json
from pathlib import Path

from nodecheck.sources.channel import Live
from nodecheck.sources.here import Here
from nodecheck.sources.workers import Workers


def test_the_report_folder_is_filled_in_where_the_question_is_asked(tmp_path: Path) -> None:
    asked: list[str] = []
    here = Workers(Here(Live(lambda question: asked.append(question) or {}), tmp_path / "reports" / "today"))
    here.run("storage", ["cpu0"], {"level": "full", "folders": ["report", "/data"]})
    here.run("hbm", ["cpu0"], {"deadline_seconds": 5})
    stage, _, text = asked[0].partition(" ")
    assert stage == "storage"
    assert json.loads(text)["folders"] == [str(tmp_path), "/data"]
    assert asked[1] == 'hbm {"cards": ["cpu0"], "deadline_seconds": 5}'
    (tmp_path / "reports").mkdir()
    here.run("storage", ["cpu0"], {"folders": ["report"]})
    assert json.loads(asked[2].partition(" ")[2])["folders"] == [str(tmp_path / "reports")]
