"""Matrices of a few hundred rows on one thread."""

import contextlib
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

_MOST_DIM = 256
"""Larger matrices gain more from several threads than they can lose."""


@contextlib.contextmanager
def few_threads(dim: int) -> Iterator[None]:
    """NumPy's linear algebra on one thread, if matrices are small.

    Threads wait for each other in a loop. Where other work shares the cores, a product of small
    matrices then takes up to a hundred times as long. One thread loses nothing on an idle machine,
    and its rounding does not depend on the number of cores.
    """
    if dim > _MOST_DIM:
        yield
        return
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        yield
