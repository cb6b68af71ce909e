"""The page of drift, `docs/drift.md`: `python -m nodecheck.rental.drift.docs > docs/drift.md`."""

from __future__ import annotations

from nodecheck.judge import REGISTRY as ORDINARY
from nodecheck.judge.docs import page
from nodecheck.rental import active, keeping
from nodecheck.rental.drift import PASSIVE, REGISTRY

INTRODUCTION = """\
# Drift

This page is generated from the rules themselves (`make docs`). `nodecheck check` looks at a node in passing:
NVML, sysfs, procfs and the kernel's log, in one child process, without a GPU context, an interpreter or
PyTorch, at a low priority. It asks two kinds of rules.

**Drift**, below: is the node what it was when it was accepted, and what has happened since the last look?

- States (a driver, a power limit, a link) are held against the acceptance: what is no longer as it was stays a
  finding until it is set back or the node is accepted anew. Where nothing was accepted they are held against
  the last look.
- Counters are counted from the last look on, and rates over the whole time since acceptance as well. A counter
  that fell was set back and has counted from zero; so has one of the driver's after a reboot or a reset of the
  card.
- Lines of the kernel's log count once: an event is new where its last line came later than the same event's did
  at the last look, or where the machine was started in between. A failure (an Xid of broken hardware) stands
  until the machine is started or the node accepted anew; a warning is told by the look that first sees it.
- What is stated and never judged: programs on the cards and the memory that they use (in a rental they are
  yours), CRC errors of NVLink data, which healthy links count, and time at the power limit, which every full
  load reaches.

**The ordinary rules** ([findings.md](findings.md)) as far as a look in passing can ask them: {passive}. What
the accepted report says already, as grave as it is now, is set aside with that reason and does not fail the
check again.

The check's status is the gravest of: fail · unknown of a required finding · warn · pass, over what is not set
aside. Without an accepted report it is `unknown` at best: see `drift.baseline`.
"""


def drift_page() -> str:
    """The whole page in Markdown."""
    ordinary = ", ".join(f"`{id}`" for id in ORDINARY if id in PASSIVE)
    rules = [*REGISTRY.values(), *active.RULES.values(), active.DATA, *keeping.RULES]
    return page(INTRODUCTION.format(passive=ordinary), rules, prefix="drift.")


if __name__ == "__main__":
    print(drift_page(), end="")
