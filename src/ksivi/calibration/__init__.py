"""Simulation-based calibration: do posteriors of simulated data hold the truth as often as they say?"""

from .calibrate import Calibration, Replication, calibrate
from .simulate import Simulate, simulate_numpyro

__all__ = ["Calibration", "Replication", "Simulate", "calibrate", "simulate_numpyro"]
