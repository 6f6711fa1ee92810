"""The gallery: `python -m benchmarks.gallery [NAMES] [--short] [--write]`.

Runs the program of every page of `docs/gallery/`, or of the named ones, each in a fresh process in an empty folder, and
compares what it prints with what the page shows. `--write` puts figures, thumbnails, printed texts and measurements in
place; the record is `benchmarks/records/gallery.json`. `--short` leaves the section "Comparison with NUTS" out.

How a page is written is described in `benchmarks/gallery_pages.py` and `benchmarks/gallery_child.py`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .gallery_pages import FOLDER, Page, agree, pages, with_measured

RECORD = Path(__file__).parent / "records" / "gallery.json"
_ROOT = Path(__file__).resolve().parents[1]
_THUMBNAIL = (240, 120)


def run(page: Page, folder: Path, short: bool, cold: bool = False) -> dict[str, Any]:
    """Runs a page in a process of its own, with the folder as its working directory.

    **Arguments:**

    - `page`: the page.
    - `folder`: an empty folder. The figures are there afterwards.
    - `short`: leaves the section "Comparison with NUTS" out.
    - `cold`: uses no program that was compiled before, for measurements.

    **Returns:** what each block printed, the measurements, and the error, or "".
    """
    with tempfile.TemporaryDirectory(prefix="gallery-") as other:
        out, env = Path(other) / "out.json", dict(os.environ)
        env["PYTHONPATH"] = os.pathsep.join([str(_ROOT), env.get("PYTHONPATH", "")])
        if cold:
            env["KSIVI_CACHE"] = str(Path(other) / "cache")
            env.pop("JAX_COMPILATION_CACHE_DIR", None)
        command = [sys.executable, "-m", "benchmarks.gallery_child", str(page.path), str(out)]
        command += ["--short"] * short
        done = subprocess.run(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
        if done.returncode or not out.is_file():
            return {"printed": [], "measured": {}, "error": done.stderr[-4_000:] or "it was killed"}
        return json.loads(out.read_text()) | {"error": ""}


def faults(page: Page, found: dict[str, Any], folder: Path, short: bool) -> list[str]:
    """What is wrong between a page and a run of it."""
    if found["error"]:
        return [found["error"]]
    wrong = []
    for block, printed in zip(page.blocks(short), found["printed"], strict=True):
        if not agree(printed, block.output):
            wrong.append(f"line {block.line} prints\n{printed}\nand the page shows\n{block.output}")
    saved, shown = {path.name for path in folder.glob("*")}, set(page.figures)
    wrong += [f"{name} is saved and not shown" for name in sorted(saved - shown)]
    return wrong + [f"{name} is shown and not saved" for name in sorted(shown - saved) if not short]


def write(page: Page, found: dict[str, Any], folder: Path) -> None:
    """Puts the figures, a thumbnail, the printed texts and the measurements in place."""
    for figure in folder.glob("*.png"):
        shutil.copy(figure, FOLDER / figure.name)
    _write_thumbnail(page)
    text, measured = page.with_printed(found["printed"]), found["measured"]
    if "nuts_seconds" in measured:
        text = with_measured(text, sentences(measured))
        record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
        record = dict(sorted((record | {page.name: _rounded(measured)}).items()))
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    page.path.write_text(text)


def _write_thumbnail(page: Page) -> None:
    from PIL import Image  # comes with matplotlib

    (FOLDER / "thumbnails").mkdir(exist_ok=True)
    with Image.open(FOLDER / page.thumbnail) as image:
        small = image.convert("RGB")
        small.thumbnail(_THUMBNAIL, Image.Resampling.LANCZOS)
        small.save(FOLDER / "thumbnails" / f"{page.name}.png", optimize=True)


def sentences(measured: dict[str, Any]) -> str:
    """The measurements as the page has them: a table, and the agreement in words."""
    said = [f"{measured['divergences']:,} divergences"] if measured["divergences"] else []
    said += [f"R-hat up to {measured['r_hat']:.2f}"]
    verdict = "trusted" if measured["trusted"] else "not trusted"
    return (
        "| | seconds | what it says |\n|---|---|---|\n"
        f"| `ksivi.fit` | {_seconds(measured['fit_seconds'])} | {verdict} |\n"
        f"| NUTS, {measured['nuts']} | {_seconds(measured['nuts_seconds'])} | {', '.join(said)} |\n"
        f"\nOver {measured['numbers']} numbers, the two means differ by at most {measured['means']:.2f} "
        f"standard deviations, and the two\nstandard deviations by at most {measured['widths']:.0%}."
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 20 else f"{seconds:.0f}"


def _rounded(measured: dict[str, Any]) -> dict[str, Any]:
    return {k: round(x, 3) if isinstance(x, float) else x for k, x in measured.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="pages, by name; all if there are none")
    parser.add_argument(
        "--short", action="store_true", help='without the section "Comparison with NUTS"'
    )
    parser.add_argument("--write", action="store_true", help="put the results in place")
    options = parser.parse_args()
    known = {page.name: page for page in pages()}
    if missing := sorted(set(options.names) - set(known)):
        parser.error(f"there are no pages {missing}; there are {sorted(known)}")
    failed = 0
    for name in options.names or known:
        failed += _report(known[name], options.short, options.write)
    return int(failed > 0)


def _report(page: Page, short: bool, is_written: bool) -> bool:
    """Runs a page and says what came out; whether anything is wrong."""
    with tempfile.TemporaryDirectory(prefix=f"gallery-{page.name}-") as folder:
        found = run(page, Path(folder), short, cold=is_written)
        wrong = faults(page, found, Path(folder), short)
        print(page.name, json.dumps(_rounded(found["measured"]), ensure_ascii=False), flush=True)
        print(*wrong, sep="\n", flush=True)
        if is_written and not found["error"]:
            write(page, found, Path(folder))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
