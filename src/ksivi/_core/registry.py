"""The classes that files may hold."""

from typing import TypeVar

Class = TypeVar("Class", bound=type)

CLASSES: dict[str, type] = {}


def register(cls: Class) -> Class:
    """Allows a module class in archives. A class that is not registered is user code: not saved."""
    CLASSES[cls.__name__] = cls
    return cls
