"""The base of the Markov chain methods, and convergence diagnostics."""

import importlib
from types import ModuleType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._core.checks import as_count, as_floats, describe
from ..results import ChainDiagnostics, Code, Doubt, Status
from ._method import AbstractMethod, as_start, equal_except

MAX_R_HAT = 1.01
MIN_ESS = 400
_MIN_DRAWS = 4

Points = Float[Array, "n d"]


class AbstractChains(AbstractMethod):
    """Markov chains. Every `thin`-th state after the warm-up is a draw."""

    num_chains: eqx.AbstractVar[int]
    num_warmup: eqx.AbstractVar[int]
    num_draws: eqx.AbstractVar[int]
    thin: eqx.AbstractVar[int]

    @property  # type: ignore[misc]
    def num_points(self) -> int:  # type: ignore[override]
        return self.num_chains

    @property  # type: ignore[misc]
    def num_steps(self) -> int:  # type: ignore[override]
        return self.num_warmup + self.num_draws * self.thin

    def same_but_longer(self, shorter):
        return equal_except(self, shorter, "num_draws")

    def keeps(self, steps):
        sampling = steps - self.num_warmup
        return (sampling >= 0) & ((sampling + 1) % self.thin == 0)


def as_chains(
    start: Points | None, num_chains: int, num_warmup: int, num_draws: int, thin: int
) -> tuple[Points | None, int, int, int, int]:
    """Checks the arguments that all chains have."""
    num_chains = as_count(num_chains, "num_chains")
    return (
        as_start(start, num_chains),
        num_chains,
        as_count(num_warmup, "num_warmup", minimum=0),
        as_count(num_draws, "num_draws"),
        as_count(thin, "thin"),
    )


def as_acceptance(value: float | Array | None) -> Array | None:
    if value is None:
        return None
    expected = "a probability between 0 and 1"
    found = as_floats(value, "target_acceptance", expected)
    if found.shape != () or not (isinstance(value, jax.core.Tracer) or 0 < np.asarray(value) < 1):
        raise ValueError(f"target_acceptance must be {expected}, got {describe(value)}")
    return found


def mean_acceptance(history: dict[str, np.ndarray], num_warmup: int) -> float | None:
    """The mean acceptance rate after the warm-up, or None if there are no such steps."""
    acceptance = history.get("acceptance", np.zeros(0))[num_warmup:]
    return float(acceptance.mean()) if acceptance.size else None


def agreement(kept: Float[np.ndarray, "t n d"]) -> ChainDiagnostics:
    """The largest rank-normalised split R-hat and the smallest effective sample size.

    The effective sample size is the smaller of bulk and tail. Both numbers are None for fewer than
    two chains or fewer than four draws per chain.
    """
    num_draws, num_chains, _ = kept.shape
    if num_chains < 2 or num_draws < _MIN_DRAWS:
        return ChainDiagnostics()
    r_hat, ess = _r_hat_and_ess(jnp.asarray(np.swapaxes(kept, 0, 1)))
    return ChainDiagnostics(float(jnp.max(r_hat)), float(jnp.min(ess)))


@jax.jit
def _r_hat_and_ess(chains: Float[Array, "n t d"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    diagnostics = blackjax("diagnostics")
    # BlackJAX promotes ranks here, and the user may have forbidden that.
    with jax.numpy_rank_promotion("allow"):
        ess = jnp.minimum(diagnostics.ess_bulk(chains), diagnostics.ess_tail(chains))
        return diagnostics.rhat(chains), ess


def chain_status(found: ChainDiagnostics) -> tuple[Status, bool]:
    """The status that the diagnostics imply, and whether the draws passed the checks."""
    faults = _faults(found)
    if faults:
        return Status.of_doubts("not trusted", faults), False
    r_hat, ess = found.r_hat, found.effective_sample_size
    return Status("converged", f"R-hat {r_hat:.4f}, effective sample size {ess:,.0f}"), True


def _faults(found: ChainDiagnostics) -> list[Doubt]:
    divergences, r_hat, ess = found.divergences, found.r_hat, found.effective_sample_size
    faults = []
    if divergences:
        faults.append(Code.DIVERGENCES.doubt(f"{divergences:,} divergent transitions"))
    if r_hat is None or ess is None:
        needs = f"R-hat needs at least two chains with {_MIN_DRAWS} draws each"
        return [*faults, Code.TOO_FEW_CHAINS.doubt(needs)]
    if not r_hat < MAX_R_HAT:
        faults.append(Code.R_HAT.doubt(f"R-hat {r_hat:.3f}, not below {MAX_R_HAT}"))
    if not ess >= MIN_ESS:
        few = f"an effective sample size of {ess:,.0f}, less than {MIN_ESS}"
        faults.append(Code.FEW_EFFECTIVE.doubt(few))
    return faults


def blackjax(name: str = "") -> ModuleType:
    """BlackJAX, which is an optional dependency, or a module of it."""
    try:
        return importlib.import_module(f"blackjax.{name}" if name else "blackjax")
    except ImportError as error:
        raise ImportError("MCMC needs BlackJAX: pip install 'ksivi[mcmc]'") from error


def select_state(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    """The new state if the condition holds, else the old one; in the dtypes of the old one."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b).astype(b.dtype), new, old)


def without_weak_type(a: Array) -> Array:
    """The array without a weak type, which would cause the second chunk to be traced again."""
    return lax.convert_element_type(a, jnp.asarray(a).dtype)
