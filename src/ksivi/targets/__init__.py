"""What is approximated: log densities, their scores, and views of them."""

from . import supports
from ._affine import Affine
from ._callback import from_callback
from ._data import at_step, feed_of, require_all_rows, with_data
from ._layout import Layout, split
from ._numpyro import from_numpyro
from ._pymc import from_pymc
from ._rows import Rows
from ._stein import stein_ratio
from ._target import Target
from ._torch import from_torch
from .supports import Support

__all__ = [
    "Affine",
    "Layout",
    "Rows",
    "Support",
    "Target",
    "at_step",
    "feed_of",
    "from_callback",
    "from_numpyro",
    "from_pymc",
    "from_torch",
    "require_all_rows",
    "split",
    "stein_ratio",
    "supports",
    "with_data",
]
