"""What nodecheck imports is what it asks pip for: a fresh environment has nothing else."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "torch",  # the renter's, under test
    "amdsmi",  # ROCm's own
    "pydantic_core",  # pydantic asks for exactly one version of it
}


def _imported() -> Iterator[tuple[str, Path]]:
    for path in (ROOT / "nodecheck").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name.partition(".")[0], path) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                yield node.module.partition(".")[0], path


def test_every_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {_named(re.split(r"[^\w.-]", line)[0]) for line in project["dependencies"]}
    distributions = packages_distributions()
    missing = [
        f"{path.relative_to(ROOT)}: {module}"
        for module, path in _imported()
        if module not in sys.stdlib_module_names and module not in {"nodecheck", *ELSEWHERE}
        if not declared & {_named(name) for name in distributions.get(module, [module])}
    ]
    assert missing == []


def _named(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
