"""Names of parameters and of arrays, as files and pages can hold them."""

from collections.abc import Iterable

from .._core.checks import describe

_LONGEST = 1_000
"""Maximum number of characters in a name. A zip file has no room for very long ones."""


def require_names(names: Iterable[str], where: str) -> None:
    """Raises `ValueError` with the first name that is too long or cannot be written as UTF-8."""
    for name in names:
        if not isinstance(name, str) or len(name) > _LONGEST or not _is_text(name):
            raise ValueError(
                f"a name in {where} must be UTF-8 text of at most {_LONGEST:,} characters, "
                f"got {describe(name)}"
            )


def element_name(name: str, place: tuple[int, ...]) -> str:
    """The name of one number of a parameter, such as `tau` or `theta[2]`."""
    return f"{name}[{','.join(map(str, place))}]" if place else name


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
