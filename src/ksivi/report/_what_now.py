"""The verdict of a run on its page: the status, what to do about each doubt, and all numbers."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from ..results import Code, NextStep, Record, Shown, Table, about, about_refined, next_steps
from ._html import Cell, note, section, table

_WORDS = {
    "trusted": "Trusted: the draws passed all checks.",
    "not trusted": "Not trusted: the draws failed a check.",
    "diverged": "Diverged: do not use these draws.",
    "not checked": "Not checked: the draws may be wrong.",
}


def verdict(record: Record) -> str:
    """The status, what was run and when, and what to do if the draws are not trusted."""
    facts = record.facts
    status, trusted = facts["status"], facts["trusted"]
    words = _WORDS[
        "trusted" if trusted else status["kind"] if status["kind"] in _WORDS else "not checked"
    ]
    kind = "good" if trusted else "bad"
    ran = [
        f"{name} {facts[name]}" for name in ("data", "seed", "date") if facts.get(name) is not None
    ]
    shown = f"{status['kind']}: {status['reason']}"
    box = f'<div class="verdict {kind}"><strong>{words}</strong>{escape(shown)}</div>\n'
    return note(", ".join(ran)) + "\n" + box + ("" if trusted else _what_now(record))


def _what_now(record: Record) -> str:
    """A box with the next step of each doubt; empty for records that have no codes."""
    steps = [one for one in next_steps(record.status, record.diagnostics) if one.text]
    if not steps:
        return ""
    refined, more = (
        about_refined(record.diagnostics),
        "docs/glossary.md has a section about each code.",
    )
    first = f"<p>{_formatted(refined)}</p>" if refined else ""
    items = "".join(_item(record, one) for one in steps)
    return f'<div class="now"><h2>What now</h2>{first}<dl>{items}</dl>{note(more)}</div>'


def _item(record: Record, step: NextStep) -> str:
    """The doubts of a next step, each code once, what all of them are about, and then the step."""
    codes = [code for code in map(Code.of, step.codes) if code]
    terms = "".join(f"<dt>{escape(code.title)} <code>{code.value}</code></dt>" for code in codes)
    touched = "".join(dict.fromkeys(_about(record, doubt) for doubt in step.doubts))
    return f"{terms}<dd>{touched}{_formatted(step.text)}</dd>"


def _about(record: Record, doubt: Any) -> str:
    names = about(record.posterior, doubt)
    return f'<p class="about">It is about <strong>{escape(names)}</strong>.</p>' if names else ""


def _formatted(text: str) -> str:
    """Text whose `code` becomes code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def parameters(found: Table) -> str:
    """The section with a row for each number that was checked."""
    heads = ["parameter", "mean", "sd", "5%", "50%", "95%", "mean off (sd)", "log width off"]
    heads += ["tails off", "trusted"]
    rows: list[Sequence[str | float | Cell]] = [
        [
            *(row.name, row.mean, row.sd, row.low, row.median, row.high),
            *(_cell(row.mean_off), _cell(row.width_off), _cell(row.tails_off, 0.01, "%")),
            row.verdict,
        ]
        for row in found
    ]
    words = (
        "Off: how far the checks could show a mean, in standard deviations (sd), a log width (0.1 is about 10%) "
        "and the share in both tails together to be off, as a lower bound with its standard error. Usually the "
        "true error is at least the bound minus two errors; 0 means that nothing was shown. Tail: one tail "
        "is off or both, which the sum of both can hide. Click a column's head to sort by it."
    )
    return section("Posterior", table(heads, rows), note(words))


def _cell(shown: Shown, unit: float = 1.0, name: str = "") -> Cell:
    return Cell(shown.in_words(unit, name), shown.bound)
