"""docs/tutorial.ipynb from docs/tutorial.md, which is the only source of both: `python scripts/notebook.py`."""

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
SOURCE, NOTEBOOK = DOCS / "tutorial.md", DOCS / "tutorial.ipynb"

# A python block, and what it printed where the page has that right below.
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def notebook(page: str) -> dict:
    """The page as a notebook: words between blocks, blocks as cells, printed lines as their output."""
    cells, end = [], 0
    for block in CODE.finditer(page):
        cells += [_words(page[end : block.start()]), _code(block[1], block[2])]
        end = block.end()
    cells = [cell for cell in [*cells, _words(page[end:])] if cell["source"]]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _words(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(text)}


def _code(code: str, printed: str | None) -> dict:
    outputs = (
        []
        if printed is None
        else [{"name": "stdout", "output_type": "stream", "text": _lines(printed)}]
    )
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs}
    return cell | {"source": _lines(code)}


def _lines(text: str) -> list[str]:
    return text.strip("\n").splitlines(keepends=True)


if __name__ == "__main__":
    made = notebook(SOURCE.read_text(encoding="utf-8"))
    NOTEBOOK.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
