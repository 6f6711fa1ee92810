"""How far samples are from a target: samples in, numbers out."""

from .neighbours import kl_knn
from .stein import ksd, mmd
from .transport import sliced_wasserstein, wasserstein

__all__ = ["kl_knn", "ksd", "mmd", "sliced_wasserstein", "wasserstein"]
