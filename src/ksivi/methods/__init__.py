"""Methods that carry their own draws: particles and Markov chains."""

from ._ksdd import KSDD
from ._mala import MALA
from ._method import AbstractMethod
from ._mied import MIED
from ._nuts import NUTS
from ._reference import reference_draws
from ._run import run
from ._sgld import SGLD
from ._svgd import SVGD

__all__ = ["KSDD", "MALA", "MIED", "NUTS", "SGLD", "SVGD", "AbstractMethod", "reference_draws", "run"]
