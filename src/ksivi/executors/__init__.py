"""Where tasks run: in this process, or on a Dask cluster."""

from ._cluster import Dask, send_modules_of
from ._executor import Executor, Local, Lost
from ._worker import environment as environment

__all__ = ["Dask", "Executor", "Local", "Lost", "send_modules_of"]
