"""Simulation-based calibration: do posterior intervals contain the truth as often as they say?"""

from ._calibrate import Calibration, calibrate
from ._record import Replication
from ._simulate import Simulate as Simulate
from ._simulate import simulate_numpyro

__all__ = ["Calibration", "Replication", "calibrate", "simulate_numpyro"]
