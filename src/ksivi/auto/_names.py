"""The coordinates of a target, by name, for messages."""

import numpy as np

from ..targets import Target


def coordinate_names(target: Target) -> list[str]:
    """One name per coordinate: `tau`, or `theta[3]` for a part of a vector."""
    return [
        name if shape == () else f"{name}[{', '.join(map(str, index))}]"
        for name, shape in target.layout
        for index in np.ndindex(*shape)
    ]
