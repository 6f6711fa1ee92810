"""`ksivi report`."""

from pathlib import Path
from typing import Annotated

import typer

from ._outputs import replacing
from ._shared import folder, notes


def report(
    run: Annotated[
        Path, typer.Argument(help="The folder of a finished `ksivi fit` or `ksivi compare`.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Output page. Default: report.html in the folder.")
    ] = None,
) -> None:
    """Write an HTML page about a run: verdict, curves, marginals, pairs, tables and cost.

    It works offline.

    \b
    Example: ksivi report run/
    """
    from ..report import comparison_page, run_page
    from ..results import read_record
    from ._compare import newest_comparison, read_comparison

    compared = newest_comparison(run)
    html = (
        run_page(read_record(run))
        if compared is None
        else comparison_page(*read_comparison(compared))
    )
    path = run / "report.html" if out is None else out
    folder(path.parent)
    with replacing(path) as beside:
        beside.write_text(html, encoding="utf-8", errors="backslashreplace")
    notes.print(f"report: {path}", highlight=False, markup=False)
