"""What `fit` says if its time ends in many dimensions, where the answer with its checks is the last."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import ksivi
from ksivi.auto import _fit
from ksivi.auto._doubts import Findings
from ksivi.auto._verdict import Answer
from ksivi.results import Code, FitDiagnostics

ENDED = "budget_s = 100 s ended before a better answer was tried"


@pytest.mark.parametrize("is_checked", [True, False])
def test_only_a_large_answer_without_checks_could_be_better(monkeypatch, is_checked):
    """The time ends during the last check, or before."""
    answer_of = _fit.large_answer

    def late(rng, evaluate, found):
        answer = answer_of(rng, evaluate, found)
        evaluate.deadline = 0.0
        unchecked = Findings(
            FitDiagnostics(), [Code.NOT_CHECKED.doubt("the draws were not checked")]
        )
        good = dataclasses.replace(answer.findings, is_close=False)
        findings = good if is_checked else unchecked
        return Answer(answer.posterior, answer.name, findings)

    monkeypatch.setattr(_fit, "large_answer", late)
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2 * jnp.linspace(0.1, 10, 160)), dim=160)
    fit = ksivi.fit(jax.random.key(0), target, budget_s=100, progress=False)
    assert (ENDED in str(fit.status)) != is_checked
    assert fit.trusted == is_checked
