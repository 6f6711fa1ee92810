"""Simulation-based calibration: do posteriors of simulated data hold the truth as often as they say?"""

from .calibrate import Calibration, Replication, calibrate
from .simulate import simulate_numpyro

__all__ = ["Calibration", "Replication", "calibrate", "simulate_numpyro"]
