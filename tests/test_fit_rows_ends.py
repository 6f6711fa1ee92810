"""How fits to some rows end: with modes that were not examined, out of time, by Ctrl-C, or after a crash."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.auto import _fit, _many_rows
from ksivi.auto._subsample import FEWEST_ROWS, Sampler
from ksivi.targets import OutOfTime
from regressions import regression, target_of

KEY = jax.random.key(0)


def two_modes(x, rows):
    """At about 1 and −1, with equal mass."""
    return -0.5 * jnp.sum((rows["y"] - x[0] ** 2) ** 2)


def fit_of(target, **options):
    return ksivi.fit(KEY, target, progress=False, **options)


def error_at_draws(monkeypatch, *errors):
    """Passes over all rows give these errors, one after another, and then the last one always."""
    left = list(errors)
    monkeypatch.setattr(
        Sampler, "offset", lambda *_: (0.0, left.pop(0) if len(left) > 1 else left[0])
    )


def at_fit(monkeypatch, number, change):
    """Changes the arguments of one of the fits to some rows, or to all. Returns what each one cost."""
    as_it_is, costs = _fit._fit_as_it_is, []

    def fit_once(*arguments):
        fit = as_it_is(*(change(*arguments) if len(costs) + 1 == number else arguments))
        costs.append(fit.cost)
        return fit

    monkeypatch.setattr(_fit, "_fit_as_it_is", fit_once)
    return costs


def stop(*_):
    raise KeyboardInterrupt


def out_of_time(*_):
    raise OutOfTime


def began_long_ago(rng, target, plan, began):
    return rng, target, plan, began - 1e6


def few_steps(**options):
    sizes = {"num_samples": 8, "num_mixing": 4, "hidden": (4,), "num_pretraining": 0}
    return ksivi.Recipe(**sizes, max_steps=6, chunk=2, **options)


def test_modes_that_were_not_examined_stay_a_doubt(monkeypatch):
    """A fit from this one makes no search, so it cannot know of them."""
    monkeypatch.setattr(_many_rows, "_LOADED_BYTES", 0)  # as if there were too many to load
    data = {"y": 1 + np.random.default_rng(0).normal(size=20_000).astype(np.float32)}
    target = target_of(ksivi.Rows(data), two_modes, 1)
    first = fit_of(target)
    assert first.status.codes == ("rows-modes",)
    again = fit_of(target, init=first)
    assert again.status.codes == ("rows-modes",)
    assert not again.trusted
    assert "rows-modes" in again.explain()


def test_an_error_that_was_not_measured_is_a_doubt_that_a_new_fit_removes(monkeypatch):
    target = target_of(regression(40_000))
    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "offset", out_of_time)
        first = fit_of(target)
    assert first.status.codes == ("rows-not-measured",)
    assert np.isnan(first.diagnostics.rows_error)
    shown = dict(first.diagnostics.rows())["rows"]
    assert shown == "4,096 of 40,000; the error of the log density was not measured"
    again = fit_of(target, init=first)
    assert again.trusted, again.status
    assert again.diagnostics.rows_error < 0.05


@pytest.mark.parametrize("num_fits", [2, 1], ids=["more rows", "all rows"])
@pytest.mark.parametrize(
    ("change", "code"), [(began_long_ago, "budget"), (stop, "interrupted")], ids=["time", "ctrl-c"]
)
def test_what_ends_a_second_fit_leaves_the_first(num_fits, change, code, monkeypatch):
    """The second is to more rows, or, if there were enough of those, to all."""
    error_at_draws(monkeypatch, 0.2)
    monkeypatch.setattr(_many_rows, "_MOST_FITS", num_fits)
    costs = at_fit(monkeypatch, 2, change)
    fit = fit_of(target_of(regression(40_000)), budget_s=1e5)
    assert len(costs) == 1
    assert fit.status.codes == ("rows-error", code)
    assert fit.status.kind == ("interrupted" if code == "interrupted" else "not trusted")
    assert not fit.trusted
    assert fit.diagnostics.num_rows == FEWEST_ROWS
    assert fit.diagnostics.parameters is not None  # it was checked
    assert "of 40,000 rows, and the log density is then off by 0.2 nats" in str(fit.status)


@pytest.mark.parametrize(
    ("end", "code"), [(out_of_time, "budget"), (stop, "interrupted")], ids=["time", "ctrl-c"]
)
def test_what_ends_the_choice_of_more_rows_begins_no_other_fit(end, code, monkeypatch):
    error_at_draws(monkeypatch, 0.2)
    monkeypatch.setattr(_many_rows, "_recentred", end)
    costs = at_fit(monkeypatch, 0, stop)
    fit = fit_of(target_of(regression(40_000)))
    assert len(costs) == 1
    assert fit.status.codes == ("rows-error", code)


def test_a_good_answer_stays_trusted_when_a_better_one_is_stopped(monkeypatch):
    error_at_draws(monkeypatch, 0.07)
    monkeypatch.setattr(_many_rows, "_recentred", stop)
    fit = fit_of(target_of(regression(40_000)))
    assert fit.trusted, fit.status
    assert "off by 0.07 nats" in str(fit.status)


def test_the_cost_is_that_of_all_fits(monkeypatch):
    error_at_draws(monkeypatch, 0.2, 0.2, 0.01)
    costs = at_fit(monkeypatch, 0, stop)
    fit = fit_of(target_of(regression(40_000)))
    assert fit.trusted, fit.status
    assert len(costs) == 3
    assert fit.cost.score_evals == sum(one.score_evals for one in costs)


def test_after_a_crash_the_second_training_goes_on_where_it_was(tmp_path, monkeypatch):
    """Each training has snapshots of its own: it is to other rows, so it is another run."""
    target = target_of(regression(40_000))

    def fit_once(callback, **options):
        with monkeypatch.context() as patch:
            error_at_draws(patch, 0.2, 0.01)
            return fit_of(target, recipe=few_steps(), callbacks=[callback], **options)

    def crash(chunk):
        before.append(chunk.step)
        if before.count(4) == 2:
            raise RuntimeError("crash")

    before, after, unbroken = [], [], []
    with pytest.raises(RuntimeError, match="crash"):
        fit_once(crash, checkpoint=tmp_path, every=2)
    again = fit_once(lambda chunk: after.append(chunk.step), checkpoint=tmp_path, every=2)
    whole = fit_once(lambda chunk: unbroken.append(chunk.step))
    assert unbroken == [2, 4, 6, 2, 4, 6]
    assert before == unbroken[:5]
    assert after == [6]  # nothing else is trained again
    assert again.cost.steps == whole.cost.steps == 12
    np.testing.assert_array_equal(*(fit.posterior.sample(KEY, 100) for fit in (again, whole)))
