"""The names of large posteriors, and what a table says of them. This module imports no library."""

import re
from typing import NamedTuple

_SIZES = {
    **{"logistic": 2, "disk": 2, "covertype": 1, "horseshoe": 2},
    **{"negative-binomial": 2, "negative-binomial-centred": 2, "poisson": 1, "poisson-centred": 1},
    **{"volatility": 1, "volatility-centred": 1},
}
"""How many sizes a name of each kind ends with."""

NETWORKS = ("boston", "concrete", "power", "wine", "protein", "yacht")
ON_DISK = "disk-47600000x20"
DEFAULT = (
    *("logistic-100000x20", "logistic-1000000x20", "covertype-581012"),
    *("negative-binomial-100000x300", "negative-binomial-centred-100000x300"),
    *("poisson-300", "poisson-1000", "poisson-10000"),
    *("poisson-centred-300", "poisson-centred-1000", "poisson-centred-10000"),
    *("volatility-1000", "volatility-centred-1000", "horseshoe-200x400"),
    *(f"network-{name}" for name in NETWORKS),
)
"""Without the 4 GB on disk, which are asked for with `--disk`."""


class Name(NamedTuple):
    """A name in parts: what kind of posterior, its sizes, or the data set of a network."""

    text: str
    kind: str
    sizes: tuple[int, ...] = ()
    of: str = ""


def parse(text: str) -> Name:
    """The parts of a name such as "poisson-300", "logistic-100000x20" or "network-yacht"."""
    kind, _, rest = text.rpartition("-")
    if kind == "network" and rest in NETWORKS:
        return Name(text, kind, of=rest)
    if kind in _SIZES and re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", rest):
        sizes = tuple(int(size) for size in rest.split("x"))
        if len(sizes) == _SIZES[kind]:
            return Name(text, kind, sizes)
    kinds = ", ".join(f"{kind}-{'x'.join('N' * count)}" for kind, count in _SIZES.items())
    raise ValueError(
        f"a problem must be one of {kinds}, with numbers for N, or network-NAME with one of "
        f"{', '.join(NETWORKS)}, got {text!r}"
    )
