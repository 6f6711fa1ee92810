"""Supports that ksivi does not have, and how to write each with those that it has."""

_INSTEAD = {
    "cholesky": "write the covariance as standard deviations times a correlation matrix, which is "
    "pymc.LKJCorr for two variables and numpyro's LKJCholesky for more",
    "zerosum": "write it as scipy.linalg.helmert(n).T @ z, where z are n - 1 independent normals: the "
    "n numbers sum to 0",
    "circular": "write the angle as arctan2(b, a) of two standard normals a and b, which makes it "
    "uniform, and add its log density with pymc.Potential or numpyro.factor",
    "chain": "give the variable one of the transforms, and apply the others in the model",
    "sumto1": "use the transform simplex, as pymc.Dirichlet does",
}
_ANY = "write it as a function of parameters that are real, positive, in an interval or a simplex"


def unsupported(what: str, kind: str) -> ValueError:
    """The error for a parameter with this kind of support, which says what to write instead.

    **Arguments:**

    - `what`: the parameter and the support, as the model calls them.
    """
    instead = next((text for word, text in _INSTEAD.items() if word in kind.lower()), _ANY)
    return ValueError(
        f"{what}, which ksivi does not support. Instead, {instead}. Or write the log density "
        "yourself, with ksivi.Target.from_pytree(log_density, example, supports=...)"
    )
