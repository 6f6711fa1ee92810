"""Distances from samples to a target: samples in, numbers out."""

from ._density import log_kde
from ._neighbours import kl_knn
from ._prediction import nll, rmse
from ._stein import ksd, mmd
from ._transport import boxed_wasserstein as boxed_wasserstein
from ._transport import sliced_wasserstein, wasserstein

__all__ = ["kl_knn", "ksd", "log_kde", "mmd", "nll", "rmse", "sliced_wasserstein", "wasserstein"]
