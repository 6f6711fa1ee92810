"""Simulation-based calibration: do posterior intervals contain the truth as often as they say?"""

from ._calibrate import calibrate
from ._calibration import Calibration
from ._record import Replication
from ._simulate import Simulate as Simulate
from ._simulate import simulate_around, simulate_numpyro

__all__ = ["Calibration", "Replication", "calibrate", "simulate_around", "simulate_numpyro"]
