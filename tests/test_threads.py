"""Small matrices on one thread, large ones on all, and afterwards as before."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from ksivi._core.threads import few_threads


def number_of_threads() -> set[int]:
    found = ThreadpoolController().select(user_api="blas").info()
    return {library["num_threads"] for library in found if "numpy" in library["filepath"]}


@pytest.fixture(autouse=True)
def two_threads():
    np.linalg.cholesky(np.eye(2))
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        if number_of_threads() != {2}:
            pytest.skip("this NumPy's linear algebra has one thread, or cannot be told")
        yield


def test_small_matrices_have_one_thread():
    with few_threads(100):
        assert number_of_threads() == {1}
    assert number_of_threads() == {2}


def test_large_matrices_have_all_threads():
    with few_threads(1_000):
        assert number_of_threads() == {2}


def test_an_error_leaves_the_threads_as_they_were():
    with pytest.raises(KeyError), few_threads(100):
        raise KeyError
    assert number_of_threads() == {2}
