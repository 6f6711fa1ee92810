"""How far samples are from a target: samples in, numbers out."""

from .neighbours import kl_knn
from .prediction import nll, rmse
from .stein import ksd, mmd
from .transport import boxed_wasserstein, sliced_wasserstein, wasserstein

__all__ = ["boxed_wasserstein", "kl_knn", "ksd", "mmd", "nll", "rmse", "sliced_wasserstein", "wasserstein"]
