"""Bayesian neural network regression."""

import os
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_choice, as_count, as_samples, as_single_key
from .._core.compile import jit
from ..metrics import nll, rmse
from ..targets import Target
from ._hyper import draw_joint, joint_log_likelihood, joint_log_prior
from ._network import Batch, Likelihood, Predictor, Prior, draw_weights, num_weights
from ._problem import AbstractProblem
from ._regression import Split, Units, read_rows, split_rows

Noise = Literal["paper", "released"]
Inputs = Float[Array, "n p"]
Outputs = Float[Array, " n"]
Samples = Float[Array, "s d"] | Float[np.ndarray, "s d"]


class Hyper(NamedTuple):
    """log γ and log λ: the precision γ of the noise, in original units of y, and λ of the prior of
    the weights."""

    log_gamma: Float[Array, ""] | float
    log_lambda: Float[Array, ""] | float


AUTHORS_HYPER = {
    "boston": Hyper(-2.556, -1.004),
    "concrete": Hyper(-3.450, -0.814),
    "power": Hyper(-2.880, -0.902),
    "wine": Hyper(1.056, -0.858),
    "protein": Hyper(-3.162, -0.789),
    "yacht": Hyper(0.330, -0.769),
}
"""The hyper-parameters that the authors stored with their code."""


class BNN(AbstractProblem):
    r"""w ~ N(0, I/λ), y ~ N(f(x; w), 1/γ), f with one hidden layer of 50 ReLU units.

    A draw is a vector with W₁ (p, 50), b₁ (50), W₂ (50) and b₂ (1).

    **Attributes:**

    - `predict`: (w, inputs) ↦ outputs, for one draw w. Inputs and outputs are in original units.
    - `x_train`, `y_train`, `x_dev`, `y_dev`, `x_test`, `y_test`: the rows, in original units.
    - `hyper`: γ, in original units, and λ.
    """

    name: str = eqx.field(static=True)
    target: Target
    predict: Predictor
    hyper: Hyper
    x_train: Inputs
    y_train: Outputs
    x_dev: Inputs
    y_dev: Outputs
    x_test: Inputs
    y_test: Outputs

    def reference(self, key, n):
        raise ValueError(
            "a Bayesian neural network has no reference draws: "
            "its posterior has more modes than NUTS can sample; "
            "compare dev_scores and test_scores instead"
        )

    def start(self, key, n):
        keys = jax.random.split(as_single_key(key), as_count(n, "n"))
        return jax.vmap(lambda k: draw_weights(k, self.x_train.shape[1]))(keys)

    def dev_scores(self, draws: Samples) -> dict[str, float]:
        """`rmse` and `nll` of posterior draws on the development rows, in original units."""
        return self._scores(draws, self.x_dev, self.y_dev)

    def test_scores(self, draws: Samples) -> dict[str, float]:
        """`rmse` and `nll` of posterior draws on the test rows, in original units."""
        return self._scores(draws, self.x_test, self.y_test)

    def hyper_target(self, batch_size: int | None = 100) -> Target:
        """The posterior of θ = (w, log γ, log λ) with Gamma(1, 0.1) priors of γ and λ. γ refers to
        normalised y."""
        rows, dim = self._rows(), self.target.dim + 2
        size = _as_batch_size(batch_size, len(self.y_train))
        return Target.from_data(joint_log_prior, joint_log_likelihood, rows, dim, batch_size=size)

    def hyper_start(self, key: PRNGKeyArray, n: int) -> Float[Array, "n e"]:
        """n starting points of particles for `hyper_target`."""
        weights_key, hyper_key = jax.random.split(as_single_key(key))
        return draw_joint(hyper_key, self.start(weights_key, n), self._rows())

    def hyper_from_particles(self, particles: Samples) -> Hyper:
        r"""Hyper-parameters from particles of `hyper_target`, as in the paper, which uses SVGD.

            log γ = mean over particles of −log(mean squared error on the development rows),   log λ
            = mean of log λ

        ```python
        import optax

        rows = np.random.default_rng(0).normal(size=(60, 3))
        problem = ksivi.problems.bnn(rows, hyper=ksivi.problems.Hyper(0.0, 0.0))
        start = problem.hyper_start(jax.random.key(0), 20)
        optimizer = optax.rmsprop(1e-3, decay=0.9, eps=1e-6, eps_in_sqrt=False, bias_correction=True)
        svgd = ksivi.SVGD(num_particles=20, num_steps=10, optimizer=optimizer, start=start)  # the paper: 2,000
        fit = ksivi.run(jax.random.key(1), problem.hyper_target(), svgd)
        hyper = problem.hyper_from_particles(fit.posterior.sample(jax.random.key(2), 20))
        ```
        """
        particles = as_samples(particles, "particles", self.target.dim + 2)
        errors = self.y_dev[None] - _predictions(self.predict, particles[:, :-2], self.x_dev)
        log_gammas = -jnp.log(jnp.mean(errors**2, axis=1))
        return Hyper(jnp.mean(log_gammas), jnp.mean(particles[:, -1]))

    def _scores(self, draws: Samples, inputs: Inputs, y: Outputs) -> dict[str, float]:
        predictions = _predictions(
            self.predict, as_samples(draws, "draws", self.target.dim), inputs
        )
        return {
            "rmse": rmse(predictions, y),
            "nll": nll(predictions, y, jnp.exp(self.hyper.log_gamma)),
        }

    def _rows(self) -> Batch:
        return _normalised(self.predict.units, self.x_train, self.y_train)


def bnn(
    dataset: str | Float[Array, "n c"],
    *,
    split: Split = "released",
    hyper: Hyper | None = None,
    noise: Noise = "paper",
    batch_size: int | None = 100,
    data: str | os.PathLike | None = None,
) -> BNN:
    """The paper's Bayesian neural network for regression, on a UCI data set or on your own data.

    Inputs and y are normalised by the training rows. All splits of a data set share one compiled
    program.

    **Arguments:**

    - `dataset`: "boston", "concrete", "power", "wine", "protein" or "yacht", from `$KSIVI_DATA` or
        downloaded; "friedman" for 500 simulated rows; or an array of your own rows, with y in the
        last column.
    - `split`: "released" for the 90/10 split of the released code, or the seed of a random split. A
        tenth of the training rows, at most 500, become development rows.
    - `hyper`: log γ, in original units of y, and log λ. Default: the values that the authors stored
        for the data set.
    - `noise`: "paper" gives normalised y the precision γ sd(y)², which is γ in original units.
        "released" gives it the precision γ, as in the released code, which tempers the likelihood.
    - `batch_size`: training rows for each estimate of the score; None for all rows.
    - `data`: a file to read the data set from: columns separated by whitespace, y last.

    ```python
    rows = np.random.default_rng(0).normal(size=(60, 3))
    problem = ksivi.problems.bnn(rows, split=0, hyper=ksivi.problems.Hyper(log_gamma=0.0, log_lambda=0.0))
    problem.test_scores(problem.start(jax.random.key(0), 100))
    ```
    """
    as_choice(noise, "noise", ("paper", "released"))
    if isinstance(dataset, str) and data is None:
        as_choice(dataset, "dataset", (*AUTHORS_HYPER, "friedman"))
    log_gamma, log_lambda = _as_hyper(hyper, dataset)
    train, dev, test = split_rows(read_rows(dataset, data), split)
    units = Units(train)
    columns = [
        jnp.asarray(column, jnp.result_type(float))
        for part in (train, dev, test)
        for column in part
    ]
    target = Target.from_data(
        Prior(log_lambda),
        Likelihood(log_gamma + 2 * jnp.log(units.y_sd) if noise == "paper" else log_gamma),
        _normalised(units, columns[0], columns[1]),
        num_weights(train.x.shape[1]),
        batch_size=_as_batch_size(batch_size, len(train.y)),
    )
    name = f"bnn-{dataset}" if isinstance(dataset, str) else "bnn"
    return BNN(name, target, Predictor(units), Hyper(log_gamma, log_lambda), *columns)


@jit
def _predictions(
    predict: Predictor, draws: Float[Array, "s d"], inputs: Inputs
) -> Float[Array, "s n"]:
    return lax.map(lambda weights: predict(weights, inputs), draws, batch_size=10)


def _normalised(units: Units, x: Inputs, y: Outputs) -> Batch:
    return {"x": units.inputs(x), "y": units.outputs(y)}


def _as_batch_size(batch_size: int | None, num_rows: int) -> int | None:
    return None if batch_size is None else min(as_count(batch_size, "batch_size"), num_rows)


def _as_hyper(hyper: Hyper | None, dataset: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
    hyper = AUTHORS_HYPER.get(dataset) if hyper is None and isinstance(dataset, str) else hyper
    if not isinstance(hyper, Hyper):
        expected = "a ksivi.problems.Hyper(log_gamma, log_lambda), which your own data need"
        raise ValueError(f"hyper must be {expected}, got {hyper!r}")
    log_gamma, log_lambda = (jnp.asarray(value, jnp.result_type(float)) for value in hyper)
    if log_gamma.shape or log_lambda.shape or not np.all(np.isfinite([log_gamma, log_lambda])):
        raise ValueError(f"hyper must hold two finite numbers, got {hyper}")
    return log_gamma, log_lambda
