"""From a model in another framework to an ArviZ summary in fewer than ten lines, with the right numbers."""

import inspect

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special

import ksivi

arviz = pytest.importorskip("arviz", reason="ArviZ is not installed")
pytestmark = pytest.mark.slow

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
X = np.random.default_rng(0).normal(size=(30, 2))
Y = 0.5 + X @ np.array([2.0, -1.0]) + 0.7 * np.random.default_rng(1).normal(size=30)
DESIGN, NOISE, PRIOR = np.column_stack([np.ones(30), X]), 0.7, 2.0
EVENTS, HOURS = np.array([2.0, 5.0, 11.0]), np.array([4.0, 3.0, 2.0])
NAMES, NUM_DRAWS = ["intercept", "left", "right"], 4_000


# The body of each of these four functions is what a user writes, from the model to the table.


def eight_schools():
    def model():
        mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", 8):
            offset = numpyro.sample("offset", dist.Normal(0, 1))
            theta = numpyro.deterministic("theta", mu + tau * offset)
            numpyro.sample("effect", dist.Normal(theta, ERRORS), obs=EFFECTS)

    fit = ksivi.fit(jax.random.key(0), ksivi.from_numpyro(model), refine="hmc")
    data = fit.posterior.to_arviz(jax.random.key(1), NUM_DRAWS)
    return model, fit, data, arviz.summary(data, kind="stats")


def pymc_regression():
    pymc = pytest.importorskip("pymc", reason="PyMC is not installed")
    with pymc.Model() as model:
        intercept, slope = pymc.Normal("intercept", 0, 2), pymc.Normal("slope", 0, 2, shape=2)
        pymc.Normal("y", intercept + X @ slope, pymc.HalfNormal("noise", 1), observed=Y)
    fit = ksivi.fit(jax.random.key(0), ksivi.from_pymc(model))
    data = fit.posterior.to_arviz(jax.random.key(1), NUM_DRAWS)
    return model, fit, data, arviz.summary(data, kind="stats")


def torch_regression():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, y = torch.from_numpy(DESIGN), torch.from_numpy(Y)

    def log_density(beta):
        return -0.5 * ((y - x @ beta) ** 2).sum() / NOISE**2 - 0.5 * (beta**2).sum() / PRIOR**2

    fit = ksivi.fit(jax.random.key(0), ksivi.from_torch(log_density, 3, names=NAMES))
    data = fit.posterior.to_arviz(jax.random.key(1), NUM_DRAWS)
    return log_density, fit, data, arviz.summary(data, kind="stats")


def callback_rates():
    def log_rates(u):
        return np.sum((EVENTS + 1) * u - (HOURS + 1) * np.exp(u)), (EVENTS + 1) - (
            HOURS + 1
        ) * np.exp(u)

    fit = ksivi.fit(jax.random.key(0), ksivi.from_callback(log_rates, 3))
    data = fit.posterior.to_arviz(jax.random.key(1), NUM_DRAWS)
    return log_rates, fit, data, arviz.summary(data, kind="stats")


# Means and standard deviations by the names in the table, and the Monte Carlo standard errors of the means.


def of_chains(chains):
    table = arviz.summary(chains, round_to="none")
    assert table["r_hat"].max() < 1.01
    return table[["mean", "sd", "mcse_mean"]].T.to_dict("list")


def by_numpyro(model):
    kernel = numpyro.infer.NUTS(model, target_accept_prob=0.95)
    chains = numpyro.infer.MCMC(
        kernel,
        num_warmup=1_000,
        num_samples=5_000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.key(2))
    return of_chains(arviz.from_dict(chains.get_samples(group_by_chain=True)))


def by_pymc(model):
    import pymc

    with model:
        return of_chains(
            pymc.sample(2_500, tune=1_000, chains=4, cores=1, random_seed=0, progressbar=False)
        )


def by_conjugacy():
    precision = DESIGN.T @ DESIGN / NOISE**2 + np.eye(3) / PRIOR**2
    means = np.linalg.solve(precision, DESIGN.T @ Y / NOISE**2)
    widths = np.sqrt(np.diag(np.linalg.inv(precision)))
    return dict(zip(NAMES, zip(means, widths, np.zeros(3), strict=True), strict=True))


def by_digamma():
    """The logarithm of a gamma variable of shape a and rate b has mean ψ(a) − log b and variance ψ′(a)."""
    means, widths = (
        special.digamma(EVENTS + 1) - np.log(HOURS + 1),
        np.sqrt(special.polygamma(1, EVENTS + 1)),
    )
    return {f"x[{i}]": (means[i], widths[i], 0.0) for i in range(3)}


def require_means(fit, summary, truth):
    """Within 0.1 sd and three standard errors of the compared means."""
    assert fit.trusted, fit.status
    assert set(summary.index) == set(truth)
    for name, (mean, sd, error) in truth.items():
        off = abs(summary.loc[name, "mean"] - mean)
        assert off < 0.1 * sd + 3 * np.hypot(error, sd / np.sqrt(NUM_DRAWS)), (name, off / sd)


# Exact draws have Pareto k up to 0.65 ± 0.1 here. Some may exceed 0.7, and then ArviZ warns.
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
def test_a_hierarchical_model_of_numpyro_and_its_loo():
    model, fit, _, summary = eight_schools()
    require_means(fit, summary, by_numpyro(model))
    # A few draws of a mixture of Gaussians are far out where tau is large. Chains bring them back.
    corrected = fit.refined.posterior.to_arviz(jax.random.key(1), NUM_DRAWS)
    loo = arviz.loo(corrected, pointwise=True)
    assert np.isfinite(loo.elpd_loo)
    assert np.mean(np.asarray(loo.pareto_k) < 0.7) > 0.5


def test_a_regression_of_pymc():
    model, fit, _, summary = pymc_regression()
    require_means(fit, summary, by_pymc(model))


def test_a_regression_in_pytorch():
    _, fit, _, summary = torch_regression()
    require_means(fit, summary, by_conjugacy())


# Divergent chains evaluate the density far out, where it does not exist.
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_rates_in_numpy():
    _, fit, _, summary = callback_rates()
    require_means(fit, summary, by_digamma())


@pytest.mark.parametrize(
    "user_code", [eight_schools, pymc_regression, torch_regression, callback_rates]
)
def test_it_takes_fewer_than_ten_lines(user_code):
    body = [line for line in inspect.getsource(user_code).splitlines()[1:] if line.strip()]
    assert len(body) < 10
