"""Where files are kept between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$KSIVI_CACHE`, or `~/.cache/ksivi`."""
    return Path(os.environ.get("KSIVI_CACHE") or Path.home() / ".cache" / "ksivi")
