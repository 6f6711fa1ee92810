"""Where tasks run: in this process, or on a Dask cluster."""

from .base import Executor, Local, Lost
from .cluster import Dask, send_modules_of

__all__ = ["Dask", "Executor", "Local", "Lost", "send_modules_of"]
