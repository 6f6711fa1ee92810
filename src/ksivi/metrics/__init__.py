"""How far samples are from a target: samples in, numbers out."""

from ._neighbours import kl_knn
from ._prediction import nll, rmse
from ._stein import ksd, mmd
from ._transport import boxed_wasserstein, sliced_wasserstein, wasserstein

__all__ = ["boxed_wasserstein", "kl_knn", "ksd", "mmd", "nll", "rmse", "sliced_wasserstein", "wasserstein"]
