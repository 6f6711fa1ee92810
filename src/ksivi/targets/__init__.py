"""What is approximated: log densities, their scores, and views of them."""

from . import supports
from .affine import Affine
from .callback import from_callback
from .data import at_step, feed_of, require_all_rows, with_data
from .layout import Layout, split
from .numpyro import from_numpyro
from .pymc import from_pymc
from .stein import stein_ratio
from .supports import Support
from .target import Target
from .torch import from_torch

__all__ = [
    "Affine",
    "Layout",
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
