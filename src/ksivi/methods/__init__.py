"""Particle methods and Markov chains, and `run`, which runs them."""

from ._ksdd import KSDD
from ._mala import MALA
from ._method import AbstractMethod, Verdict
from ._method import as_start as as_start
from ._method import equal_except as equal_except
from ._method import require_values as require_values
from ._method import state_records as state_records
from ._mied import MIED
from ._nuts import NUTS
from ._reference import reference_draws
from ._run import run
from ._sgld import SGLD
from ._svgd import SVGD

__all__ = [
    "KSDD",
    "MALA",
    "MIED",
    "NUTS",
    "SGLD",
    "SVGD",
    "AbstractMethod",
    "Verdict",
    "reference_draws",
    "run",
]
