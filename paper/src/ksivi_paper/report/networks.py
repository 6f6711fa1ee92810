"""The section of the Bayesian neural networks."""

from typing import Any

from ksivi.problems import AUTHORS_HYPER

from .. import published
from ..experiments import NETWORK_RATES, NETWORK_WEIGHTS, TRAINED
from ..figures import style
from . import text
from .index import Entry, RecordIndex, Spread
from .page import Page

METHODS = (*TRAINED[:4], "sgld", "svgd")
VARIANTS = {
    ("released", "released"): "ksivi-as-released",
    ("released", "paper"): "ksivi-own-minibatches",
}
FORMS = {
    (
        "released",
        "released",
    ): "The released split, with the released code's posterior and minibatches",
    ("released", "paper"): "The released split, in the paper's form",
    ("random", "paper"): "Ten random splits, in the paper's form",
}
_PUBLISHED = {"rmse": published.BNN_RMSE, "nll": published.BNN_NLL}


def entry(data: str, splits: str, form: str, method: str, field: str) -> Entry:
    known = (
        _PUBLISHED.get(field, {})
        .get(data, {})
        .get("ksivi" if method in VARIANTS.values() else method)
    )
    return Entry("bnn", f"{data}-{splits}-{form}-{method}", field, known, 3)


def section(page: Page) -> None:
    page.say("## Bayesian neural networks")
    page.say(
        "Test scores of 100 draws: the RMSE of their mean prediction, and the NLL of their "
        "mixture. The paper's scores are in brackets. The paper's column for KSIVI with the "
        "u-statistic repeats its column for SGLD, number for number, so it is not shown. The "
        "paper does not have SVGD. On the released split, runs differ only in their seeds. Random "
        "splits also differ in their test rows, which makes standard deviations larger and ≈ "
        "easier to reach. We cannot compute a floor for test scores."
    )
    for (splits, form), title in FORMS.items():
        data = [
            one
            for one in _sets(page.index)
            if page.index.expects("bnn", f"{one}-{splits}-{form}-ksivi")
        ]
        if data:
            page.say(f"### {title}")
            for field in ("rmse", "nll"):
                _scores(page, data, splits, form, field)
    _choices(page)
    _hyper(page)


def _sets(index: RecordIndex) -> list[str]:
    """The data sets of the preset."""
    specs = [cell.spec for (name, _), cell in index.cells.items() if name == "bnn"]
    return list(dict.fromkeys(spec["setup"]["data"] for spec in specs))


def _scores(page: Page, data: list[str], splits: str, form: str, field: str) -> None:
    variant = VARIANTS.get((splits, form))
    methods = METHODS if variant is None else (*METHODS, variant)
    entries = {one: [entry(one, splits, form, method, field) for method in methods] for one in data}
    rows = [[one, *(_score(page, number) for number in row)] for one, row in entries.items()]
    page.say(
        f"Test {field.upper()}, over "
        f"{page.runs(number for row in entries.values() for number in row)}."
    )
    page.table(("set", *map(_label, methods)), rows)


def _score(page: Page, one: Entry) -> str:
    return page.ours(one) + ("" if one.paper is None else f" ({page.paper(one)})")


def _label(method: str) -> str:
    if method in VARIANTS.values():
        return "KSIVI, " + (
            "all as released" if method == "ksivi-as-released" else "a minibatch each"
        )
    return method.upper() if method in ("sgld", "svgd") else style.label(method)


def _choices(page: Page) -> None:
    page.say(
        "### Settings\n\nThe RMSE on the development rows of the released split chooses the "
        f"learning rate from {_listed(NETWORK_RATES)}, the weight w of log p in KSIVI's loss from "
        f"{_listed(NETWORK_WEIGHTS)}, and the step size of SGLD. The choice is made after 5,000 "
        "of the 20,000 steps for trained families, and at the end for SGLD and for SIVI-SM, "
        "whose draws may diverge late. Random splits use the choice for the paper's form. It was "
        "made on rows that include most of their test rows, which favours all methods equally. "
        "“All as released” chooses nothing: the rate is 0.001, w is 1 for yacht and wine and "
        "0.01 for the others, and pretraining is on the development rows."
    )
    rows = []
    for form in ("released", "paper"):
        for data in _sets(page.index):
            if page.index.expects("bnn", f"{data}-released-{form}-ksivi"):
                rows.append(
                    [
                        f"{data}, {form} form",
                        *(_chosen(page.index, data, form, one) for one in METHODS[:-1]),
                    ]
                )
    page.table(("set", *map(_label, METHODS[:-1])), rows)


def _chosen(index: RecordIndex, data: str, form: str, method: str) -> str:
    found = (
        index.get("bnn", f"{data}-{splits}-{form}-{method}") for splits in ("released", "random")
    )
    record = next((one for one in found if one), None)
    return text.NOTHING if record is None else _setting(record["notes"].get("chosen", {}))


def _setting(chosen: dict[str, Any]) -> str:
    value = chosen.get("learning_rate", chosen.get("step_size"))
    shown = text.NOTHING if value is None else f"{value:g}"
    weight = chosen.get("weight")
    return shown if weight is None else f"{shown}, w = {weight:g}"


def _hyper(page: Page) -> None:
    page.say(
        "Hyper-parameters: log γ for the precision of the noise in original units, and log λ for "
        "the precision of the prior of the weights. The authors stored theirs with their code. "
        "Ours come from SVGD on weights and hyper-parameters together, on the released split and "
        "on the random splits. With 2,000 steps of at most 0.001, log λ can move by at most 2, "
        "and it does: its value depends on where it started, and not on where it would end."
    )
    rows = [[data, *_hyper_row(page.index, data)] for data in _sets(page.index)]
    names = [
        f"{name}, {who}"
        for name in ("log γ", "log λ")
        for who in ("authors", "ours", "ours, random splits")
    ]
    page.table(("set", *names), rows)


def _hyper_row(index: RecordIndex, data: str) -> list[str]:
    row = []
    for field in ("log_gamma", "log_lambda"):
        stored = AUTHORS_HYPER.get(data)
        row.append(text.fixed(None if stored is None else float(getattr(stored, field)), 3))
        for splits in ("released", "random"):
            found = [
                index.spread(entry(data, splits, "paper", method, field)) for method in METHODS
            ]
            row.append(text.spread(_once(next((one for one in found if one), None)), 3))
    return row


def _once(found: Spread | None) -> Spread | None:
    """Runs on one split share their hyper-parameters, so there is no standard deviation."""
    return Spread(found.values[:1]) if found and len(set(found.values)) == 1 else found


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)
