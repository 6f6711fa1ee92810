"""What the site shows from outside docs/: the page of results, and its figures."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds results/paper.md and the figures that it links to, at the same paths. Nothing is copied into docs/."""
    for path in [
        ROOT / "results" / "paper.md",
        *sorted((ROOT / "results" / "paper" / "figures").glob("*.png")),
    ]:
        files.append(
            File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to ../results work in the repository; on the site the results lie beside the pages."""
    return (
        markdown.replace("](../results/", "](results/")
        if "/" not in page.file.src_uri
        else markdown
    )
