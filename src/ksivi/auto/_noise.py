"""ELBOs with noise: whether a step towards a better Gaussian raised or lowered it."""

from typing import Protocol

_NUM_ERRORS, _NATS = 2.0, 0.1
"""An ELBO is higher or lower beyond this many standard errors and nats. Else it is about as high."""


class Estimate(Protocol):
    """An ELBO from few points, and its standard error."""

    @property
    def elbo(self) -> float: ...

    @property
    def error(self) -> float: ...


def is_lower(new: Estimate | None, old: Estimate) -> bool:
    """Whether the new ELBO is lower than the old one, or there is none."""
    return new is None or not new.elbo >= old.elbo - _noise(old)


def is_higher(new: Estimate, old: Estimate) -> bool:
    return new.elbo >= old.elbo + _noise(old)


def _noise(estimate: Estimate) -> float:
    return _NUM_ERRORS * estimate.error + _NATS
