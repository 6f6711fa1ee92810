"""Models in NumPyro whose truth is NUTS, in coordinates that it can sample."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ksivi import from_numpyro

from .base import Case, by_nuts
from .gibbs import horseshoe_by_gibbs


def groups(y, group, num_groups, centred):
    """yᵢ ~ N(θ_g, 1), θ ~ N(μ, τ)."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", num_groups):
        if centred:
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
        else:
            theta = mu + tau * numpyro.sample("z", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(theta[group], 1.0), obs=y)


def _to_centred(sites):
    return {k: v for k, v in sites.items() if k != "z"} | {
        "theta": sites["mu"] + jnp.exp(sites["tau"]) * sites["z"]
    }


def hierarchy(centred: bool) -> Case:
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(10), 3)
    y = rng.normal(rng.normal(1.0, 0.7, size=10)[group], 1.0)
    easy = from_numpyro(groups, y, group, 10, False)
    if not centred:
        return by_nuts("hierarchy-noncentred", easy)
    return by_nuts("hierarchy-centred", from_numpyro(groups, y, group, 10, True), easy, _to_centred)


def schools(sigma, y, centred):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        if centred:
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
        else:
            theta = mu + tau * numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def centred_schools() -> Case:
    sigma, y = (
        np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
        np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
    )
    return by_nuts(
        "schools-centred",
        from_numpyro(schools, sigma, y, True),
        from_numpyro(schools, sigma, y, False),
        _to_centred,
    )


def horseshoe_regression(x, y):
    tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
    with numpyro.plate("coefficients", x.shape[1]):
        lam = numpyro.sample("lambda", dist.HalfCauchy(1))
        z = numpyro.sample("z", dist.Normal(0, 1))
    variance = numpyro.sample("variance", dist.InverseGamma(3, 2))
    numpyro.sample("y", dist.Normal(x @ (tau * lam * z), jnp.sqrt(variance)), obs=y)


def horseshoe() -> Case:
    """Its truth is Gibbs sampling: NUTS diverges in the tails of the scales."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 8))
    y = x @ np.array([2.0, -1.5, 0, 0, 0, 0, 0, 0]) + rng.normal(size=60)
    target = from_numpyro(horseshoe_regression, x, y)

    def truth() -> np.ndarray:
        sites = horseshoe_by_gibbs(x, y, tau_scale=0.5, variance_prior=(3.0, 2.0))
        return np.concatenate(
            [sites[name].reshape(len(sites["tau"]), -1) for name, _ in target.layout], axis=1
        )

    return Case("horseshoe", target, truth)


def gaussian_process(x, counts):
    """Poisson counts with a latent Matérn process, which single precision can factorise."""
    length = numpyro.sample("length", dist.InverseGamma(5, 2))
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(1))
    offset = numpyro.sample("offset", dist.Normal(0, 2))
    r = jnp.sqrt(3.0) * jnp.abs(x[:, None] - x[None]) / length
    covariance = amplitude**2 * ((1 + r) * jnp.exp(-r) + 1e-4 * jnp.eye(len(x)))
    with numpyro.plate("points", len(x)):
        z = numpyro.sample("z", dist.Normal(0, 1))
    f = jnp.linalg.cholesky(covariance) @ z
    numpyro.sample("counts", dist.Poisson(jnp.exp(offset + f)), obs=counts)


def latent_process() -> Case:
    rng = np.random.default_rng(2)
    x = np.linspace(0, 2, 25)
    counts = rng.poisson(np.exp(1 + np.sin(3 * x)))
    return by_nuts("gaussian-process", from_numpyro(gaussian_process, x, counts), careful=True)


def logistic(x, y, scale):
    beta = numpyro.sample("beta", dist.Normal(0, scale).expand([x.shape[1]]))
    numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def correlated_logistic(dim: int) -> Case:
    rng = np.random.default_rng(dim)
    shared = rng.normal(size=(300, 1))
    x = 0.95 * shared + np.sqrt(1 - 0.95**2) * rng.normal(size=(300, dim))
    y = rng.uniform(size=300) < 1 / (1 + np.exp(-x @ rng.normal(size=dim) * 0.7))
    return by_nuts(f"logistic-{dim}", from_numpyro(logistic, x, y.astype(int), 2.5))


def separated_logistic() -> Case:
    """Few rows, perfectly separated, a wide prior: long skewed tails."""
    rng = np.random.default_rng(3)
    x = np.concatenate([np.ones((12, 1)), rng.normal(size=(12, 3))], axis=1)
    return by_nuts("logistic-separated", from_numpyro(logistic, x, (x[:, 1] > 0).astype(int), 5.0))


def volatility(returns):
    sigma = numpyro.sample("sigma", dist.LogNormal(-1.5, 0.5))
    phi = numpyro.sample("phi", dist.Beta(20, 3))
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    with numpyro.plate("days", len(returns)):
        z = numpyro.sample("z", dist.Normal(0, 1))

    def step(h, z):
        h = phi * h + sigma * z
        return h, h

    h = jax.lax.scan(step, 0.0, z)[1]
    numpyro.sample("returns", dist.Normal(0, jnp.exp(0.5 * (mu + h))), obs=returns)


def stochastic_volatility() -> Case:
    rng = np.random.default_rng(4)
    h = np.zeros(60)
    for t in range(1, 60):
        h[t] = 0.95 * h[t - 1] + 0.3 * rng.normal()
    return by_nuts(
        "volatility", from_numpyro(volatility, rng.normal(size=60) * np.exp(0.5 * h)), careful=True
    )


def network(x, y):
    w1 = numpyro.sample("w1", dist.Normal(0, 1).expand([x.shape[1], 12]))
    b1 = numpyro.sample("b1", dist.Normal(0, 1).expand([12]))
    w2 = numpyro.sample("w2", dist.Normal(0, 12**-0.5).expand([12]))
    b2 = numpyro.sample("b2", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.LogNormal(-0.5, 0.3))
    numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1 + b1) @ w2 + b2, sigma), obs=y)


def small_network() -> Case:
    """98 weights and few, noisy rows, so that NUTS can still cross between its symmetric modes."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(25, 6))
    y = np.tanh(x[:, 0] - x[:, 1]) + 0.6 * rng.normal(size=25)
    return by_nuts("network-98", from_numpyro(network, x, y))


def two_groups(y):
    """A mixture of two normals with ordered means."""
    low = numpyro.sample("low", dist.Normal(0, 3))
    gap = numpyro.sample("gap", dist.HalfNormal(3))
    share = numpyro.sample("share", dist.Beta(2, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2).expand([2]))
    parts = [jnp.log(share) + dist.Normal(low, sigma[0]).log_prob(y)]
    parts += [jnp.log1p(-share) + dist.Normal(low + gap, sigma[1]).log_prob(y)]
    numpyro.factor("likelihood", jnp.sum(jnp.logaddexp(*parts)))


def clustering() -> Case:
    rng = np.random.default_rng(6)
    y = np.concatenate([rng.normal(-1, 0.8, size=25), rng.normal(2, 1.0, size=15)])
    return by_nuts("clustering", from_numpyro(two_groups, y))


def student_regression(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 5).expand([x.shape[1]]))
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    numpyro.sample("y", dist.StudentT(nu, x @ beta, sigma), obs=y)


def robust_regression() -> Case:
    rng = np.random.default_rng(7)
    x = np.concatenate(
        [np.ones((80, 1)), rng.normal(size=(80, 4)) @ rng.normal(size=(4, 4))], axis=1
    )
    y = x @ np.array([1.0, 2, -1, 0, 0.5]) + rng.standard_t(3, size=80)
    return by_nuts("robust-regression", from_numpyro(student_regression, x, y))


def shares(counts):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.full(counts.shape[-1], 0.7)))
    concentration = numpyro.sample("concentration", dist.LogNormal(2, 1))
    numpyro.sample(
        "counts", dist.DirichletMultinomial(concentration * weights, counts.sum(-1)), obs=counts
    )


def category_shares() -> Case:
    rng = np.random.default_rng(8)
    counts = np.stack([rng.multinomial(12, rng.dirichlet([6.0, 3, 1, 0.5])) for _ in range(15)])
    return by_nuts("category-shares", from_numpyro(shares, counts))


def varying_slopes(x, y, group, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([2]))
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]))
    with numpyro.plate("groups", num_groups):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    b = mu + tau * z
    numpyro.sample("y", dist.Normal(b[group, 0] + b[group, 1] * x, sigma), obs=y)


def slopes() -> Case:
    rng = np.random.default_rng(9)
    group = np.repeat(np.arange(12), 6)
    x = rng.normal(size=72)
    b = np.array([1.0, -0.5]) + np.array([0.8, 0.4]) * rng.normal(size=(12, 2))
    y = b[group, 0] + b[group, 1] * x + 0.5 * rng.normal(size=72)
    return by_nuts("varying-slopes", from_numpyro(varying_slopes, x, y, group, 12))


def ordinal(x, grade, num_grades):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]))
    ordered = dist.TransformedDistribution(
        dist.Normal(0, 3).expand([num_grades - 1]).to_event(1), dist.transforms.OrderedTransform()
    )
    numpyro.sample(
        "grade", dist.OrderedLogistic(x @ beta, numpyro.sample("cuts", ordered)), obs=grade
    )


def ordered_grades() -> Case:
    rng = np.random.default_rng(25)
    x = rng.normal(size=(45, 3))
    grade = np.digitize(x @ np.array([1.0, -0.7, 0]) + rng.logistic(size=45), [-1.5, 0, 1.0, 3.0])
    return by_nuts("ordered-grades", from_numpyro(ordinal, x, grade, 5))


def cases() -> list[Case]:
    return [
        hierarchy(centred=True),
        hierarchy(centred=False),
        centred_schools(),
        horseshoe(),
        latent_process(),
        correlated_logistic(20),
        correlated_logistic(100),
        separated_logistic(),
        stochastic_volatility(),
        small_network(),
        clustering(),
        robust_regression(),
        category_shares(),
        slopes(),
        ordered_grades(),
    ]
