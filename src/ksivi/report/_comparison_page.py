"""The page of a comparison of methods."""

import base64
from collections.abc import Mapping
from typing import Any

from ._html import note, page, section, table


def comparison_page(record: Mapping[str, Any], figure: bytes | None) -> str:
    """One HTML document about a `ksivi compare`: a table of methods and a figure, as PNG."""
    floor, rows = record["floor"], []
    for name, found in record["methods"].items():
        distance = (
            float("nan") if found["sliced_wasserstein"] is None else found["sliced_wasserstein"]
        )
        numbers = [
            distance,
            distance / floor if floor else float("nan"),
            found["seconds"],
            found["steps"],
            found["score_evals"],
        ]
        rows.append([name, *(float(number) for number in numbers), found["status"]])
    heads = ["method", "sliced W₂", "in floors", "seconds", "steps", "score evaluations", "status"]
    words = note(
        f"The floor (two true samples) is {floor:.3g}. Click a column's head to sort by it."
    )
    parts = [section("Methods", table(heads, rows), words)]
    if figure is not None:
        shown = base64.b64encode(figure).decode()
        source = f"data:image/png;base64,{shown}"
        image = f'<figure><img alt="draws of every method, and the truth" src="{source}"></figure>'
        parts.append(section("Draws", image))
    return page(f"{record['problem']}: a comparison", "\n".join(parts))
