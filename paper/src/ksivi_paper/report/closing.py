"""The end of the page: where the paper and its code differ, and which cells did not run or
failed."""

from . import text
from .page import Page

_DIFFERENCES = (
    (
        "bandwidth",
        "the median of the draws' spacing",
        "Gaussian: median of squared distances over log(N + 1), gradients flow; IMQ and Riesz: "
        "detached",
        "the released code's",
    ),
    ("kernel of multimodal", "Gaussian", "IMQ", "both, a row each"),
    ("banana", "opens upwards", "opens downwards", "the paper's"),
    ("drift of the diffusion", "10x(1 − x²)", "10x(1 − x²)/(1 + x²)", "both, a table each"),
    (
        "u-statistic",
        "mean over pairs i ≠ j",
        "divides by N², its median counts the zeros of the diagonal",
        "the paper's",
    ),
    (
        "steps on waveform",
        "40,000 in the text, 20,000 in the appendix",
        "20,000; u-statistic 40,000 from log σ² = −2",
        "the released code's, and KSIVI at 40,000 as an extra row",
    ),
    (
        "Student-t",
        "a regularisation, unspecified",
        "a weight of 0.05 on log p until step 20,000, and C⁻¹ between the pairs, C the draws' "
        "covariance",
        "the released code's, and rows without",
    ),
    (
        "weight on log p for networks",
        "a regularisation, unspecified",
        "1 for yacht and wine, 0.01 for others in a comment",
        "out of 0.01, 1 and 10, chosen on development rows; and the released code's",
    ),
    (
        "splits for networks",
        "random partitions, ten runs",
        "one fixed split, ten seeds",
        "both, tables of their own",
    ),
    (
        "minibatches for networks",
        "not said",
        "both batches of draws share one, which biases KSD²",
        "shared; and one each, with which most runs run away where the likelihood is not tempered",
    ),
    (
        "noise of networks",
        "y ~ N(f, 1/γ)",
        "γ in original units is applied to normalised y, which tempers the likelihood",
        "released form: the same; paper's form: the right units",
    ),
    (
        "pretraining of networks",
        "not said",
        "on the development rows",
        "on training rows, since settings are chosen on development rows; and the released code's",
    ),
    ("minibatches, order", "not said", "cyclic", "drawn at random"),
    (
        "UIVI",
        "rates not said",
        "0.01 for μ, 0.002 for σ, ×0.9 every 3,000 steps",
        "the released code's, on every problem",
    ),
    ("truth", "SGLD", "SGLD", "exact draws, or NUTS where there are none"),
    ("MALA", "not said", "–", "adapts its step size, 40,000 steps"),
    (
        "measures",
        "p and projections of sliced W, MMD's kernel, and direction and k of KL not said",
        "–",
        "sliced W₂ with 500 projections; Gaussian MMD; KL(q‖p) with k = 10",
    ),
    (
        "SIVI-SM on waveform",
        "one learning rate for μ and σ",
        "an extra term in the critic, σ ≥ 0.05",
        "the released code's, with σ learning five times as fast; in the table of step sizes at "
        "one rate",
    ),
)


def differences(page: Page) -> None:
    page.say("## Where the paper and its released code differ, and what we did")
    page.table(("topic", "paper", "released code", "here"), _DIFFERENCES, words=4)


def leftovers(page: Page) -> None:
    """Cells that did not run, are outdated or diverged, and worse numbers without a remark."""
    page.say("## What is missing, and what went wrong")
    index = page.index
    missing = [(cell.experiment, cell.name) for cell in index.missing()]
    _list(page, "Cells that have not run yet, by experiment", _grouped(missing))
    old = [(record["experiment"], record["cell"]) for record in index.outdated]
    _list(page, "Records with outdated settings, which are left out, by experiment", _grouped(old))
    _list(page, "Cells with runs that diverged", _diverged(page))
    _list(page, "Numbers of KSIVI marked ✗ without a remark", page.notes.unexplained)


def _grouped(found: list[tuple[str, str]]) -> list[str]:
    names: dict[str, list[str]] = {}
    for experiment, cell in found:
        names.setdefault(experiment, []).append(cell)
    return [
        f"{experiment} ({len(cells)}): {', '.join(cells)}" for experiment, cells in names.items()
    ]


def _diverged(page: Page) -> list[str]:
    found = []
    for (experiment, cell), record in page.index.records.items():
        status = [one for one in record["status"] if one.startswith("diverged")]
        if status:
            found.append(
                f"{experiment}/{cell}: {len(status)} of "
                f"{text.count(len(record['status']), 'run')} ({status[0]})"
            )
    return found


def _list(page: Page, title: str, lines: list[str]) -> None:
    if not lines:
        page.say(f"**{title}:** none.")
        return
    page.say(f"**{title}:**", "\n".join(f"- {line}" for line in lines))
