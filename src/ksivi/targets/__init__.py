"""Targets: log densities, their scores, and how to make them from data and from models.

Users import them from the top, as `ksivi.Target`.
"""

from . import supports as supports
from ._affine import Affine as Affine
from ._callback import from_callback as from_callback
from ._evaluator import Evaluator as Evaluator
from ._evaluator import OutOfTime as OutOfTime
from ._evaluator import at_points as at_points
from ._feed import at_step as at_step
from ._feed import require_all_rows as require_all_rows
from ._feed import with_data as with_data
from ._given_both import given_both as given_both
from ._line import LineDensity as LineDensity
from ._model import Coordinates as Coordinates
from ._model import require_model as require_model
from ._model import require_proper as require_proper
from ._model import warn_of_factors as warn_of_factors
from ._numpyro import from_numpyro as from_numpyro
from ._numpyro_data import like_data as like_data
from ._numpyro_data import with_observed as with_observed
from ._numpyro_data import with_values as with_values
from ._passes import Passes as Passes
from ._passes import hessian_of as hessian_of
from ._plates import on_all_rows as on_all_rows
from ._pymc import from_pymc as from_pymc
from ._pytree import Layout as Layout
from ._pytree import split as split
from ._rows import Rows as Rows
from ._stein import stein_ratio
from ._surrogate import CHUNK as CHUNK
from ._surrogate import Surrogate as Surrogate
from ._surrogate import needs_scores as needs_scores
from ._surrogate import surrogate as surrogate
from ._target import Target as Target
from ._temperature import Temperature as Temperature
from ._temperature import as_base as as_base
from ._torch import from_torch as from_torch
from .supports import Support as Support

__all__ = ["stein_ratio"]
