"""What the site shows from outside docs/: the page of results, and its figures."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds results/paper.md and what it links to, at the same paths: nothing is copied into docs/."""
    for path in [ROOT / "results" / "paper.md", *sorted((ROOT / "results" / "paper" / "figures").glob("*.png"))]:
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files
