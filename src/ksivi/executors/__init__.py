"""Where tasks run: in this process, or on a Dask cluster."""

from ._cluster import Dask
from ._cluster import send_modules_of as send_modules_of
from ._executor import Executor, Local
from ._executor import Lost as Lost
from ._worker import environment as environment

__all__ = ["Dask", "Executor", "Local"]
