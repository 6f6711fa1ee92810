"""Shared by figures: one width, one grey, and files that are identical every time."""

import os
from typing import Any

from ._figures import new_figure, own_style

WIDTH = 9.6
"""In inches; 1,250 pixels."""

FAINT = "#9a9a9a"


@own_style()
def panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure of full width with a grid of panels."""
    figure = new_figure(figsize=(WIDTH, height))
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


@own_style()
def save(figure: Any, path: str | os.PathLike) -> None:
    """Writes a PNG without the name and version of the plotting software."""
    figure.savefig(path, dpi=130, metadata={"Software": None})
