"""Plans the measurements, has the workers in the renter's interpreter make them, and reads what comes back."""

from nodecheck.measure.measuring import Measuring, Notice
from nodecheck.measure.plan import DROPS, STAGES
from nodecheck.measure.starting import start

__all__ = ["DROPS", "STAGES", "Measuring", "Notice", "start"]
