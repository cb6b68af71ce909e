"""Plans the measurements, has the workers in the renter's interpreter make them, and reads what comes back."""

from nodecheck.measure.measuring import MOST_TRIES, Measuring, Notice
from nodecheck.measure.plan import DROPS, STAGES

__all__ = ["DROPS", "MOST_TRIES", "STAGES", "Measuring", "Notice"]
