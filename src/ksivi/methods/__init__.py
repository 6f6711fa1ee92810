"""Particle methods and Markov chains, and `run`, which runs them."""

from ._ksdd import KSDD as KSDD
from ._mala import MALA as MALA
from ._method import AbstractMethod, Verdict
from ._method import as_start as as_start
from ._method import equal_except as equal_except
from ._method import require_values as require_values
from ._method import state_records as state_records
from ._mied import MIED as MIED
from ._nuts import NUTS as NUTS
from ._reference import reference_draws as reference_draws
from ._run import run as run
from ._sgld import SGLD as SGLD
from ._svgd import SVGD as SVGD

__all__ = ["AbstractMethod", "Verdict"]
