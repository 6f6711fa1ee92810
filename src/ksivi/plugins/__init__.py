"""ksivi inside other tools: a method for PyMC and bambi, a guide for NumPyro, and for BlackJAX.

Each function needs the tool that it is for. Importing this package imports none of them.
"""

from ._blackjax import BlackJAXInfo as BlackJAXInfo
from ._blackjax import BlackJAXState as BlackJAXState
from ._blackjax import blackjax
from ._numpyro import numpyro_guide
from ._pymc import pymc

__all__ = ["blackjax", "numpyro_guide", "pymc"]
