"""Records in a folder, for the tests of pages that are made from records alone."""

import json

from ksivi_paper import Folder


def keep(folder, records):
    """Writes the records as the runner does."""
    for one in records:
        path = folder / "records" / one["experiment"] / f"{one['cell']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(one))
    return Folder(folder)
