"""Checks of a posterior: what was measured, and the doubts that remain."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .._core.mixtures import Mixture
from .._core.numerics import new_key, resampled
from ..diagnostics import (
    Difference,
    Importance,
    Movement,
    chains,
    difference,
    discrepancy,
    khat_threshold,
    pareto_khat,
    truncated_weights,
)
from ..families import GaussianMixture
from ..results import FitDiagnostics, Posterior
from ..targets import Evaluator
from ._doubts import (
    FORGOTTEN,
    Findings,
    cannot_tell,
    memory_of_modes,
    moves,
    runs_differ,
    weights_move,
)
from ._em import fit_mixture
from ._modes import misses_modes
from ._start import Start
from ._tails import improper_around, is_improper
from ._weights import NUM_MIXING, NUM_WEIGHED, WIDENING, weigh

Draws = Float[np.ndarray, "n d"]

_NUM_DRAWS, _FEW_CHAINS, _FEW_TRANSITIONS = 10_000, 200, 20
_BATCHES, _MOST_TIMES = 4, 4
"""Chains come in batches. Four of them have one chain per draw that is wanted, if chains are so
slow that only their ends count. At most four times as many draws decide about tails."""
_QUICK_LAG, _LONGER, _MOST_TRANSITIONS = 4, 10, 160
"""Chains that forget their states within 4 transitions are long enough. Others go on for 10 times
as many transitions as they need to forget: a narrow region that draws miss fills slowly."""
_CHAINS_PER_DIM = 3
"""Chains move in coordinates that their first states whiten."""
_SURE_KHAT, _SURE_SHARE = 0.5, 0.7
"""Weights with lighter tails, most of which count, can show alone that the draws are good."""
_FEWEST_MOVED = 3_000
"""The number of states of chains that a mixture is fitted to."""
_MOST_PRODUCTS = 2_000_000
"""More states are used in few dimensions, up to this number of products xᵢ xⱼ in all."""
_MOST_POLISHED = 3
_TINY = 1e-30


def examine(
    rng: np.random.Generator,
    evaluate: Evaluator,
    posterior: Posterior,
    start: Start,
    others: Sequence[Posterior] = (),
) -> Findings:
    """Checks a posterior.

    **Arguments:**

    - `start`: what the search found: modes, which the draws must not miss.
    - `others`: the posteriors of independent runs, which should agree with it.
    """
    draws = posterior.host_draws(rng, _NUM_DRAWS)
    try:
        # The wider weights decide the verdict and give the log evidence. The plain ones raise no
        # doubt: they give the ELBO, and the k-hat and the effective share that a fit prints.
        plain = weigh(rng, evaluate, posterior, 1.0)
        weighed = weigh(rng, evaluate, posterior, WIDENING)
        khats = [pareto_khat(one.log_weights) for one in (plain, weighed)]
        corrected = difference(draws, weighed.draws, truncated_weights(weighed.log_weights))
        is_sure = _is_reliable(plain, max(khats)) and _is_tiny(plain)
        moved = _moved(rng, evaluate, posterior, draws, is_sure)
        # One half of the chains gives the axes, and the other half is compared along them.
        axes = _principal_axes(moved.settled[::2])
    except (ValueError, np.linalg.LinAlgError) as error:
        return _unexamined(evaluate, draws, start, error)
    limit = khat_threshold(NUM_WEIGHED)
    is_light = khats[1] < limit
    memory = max(float(np.max(moved.memory)), memory_of_modes(moved, start.gaussians))
    change = difference(draws, moved.settled)
    apart, disagreements = _compare_runs(rng, evaluate, draws, others)
    noise = (2 / len(moved.settled)) ** 0.5 if is_sure else 0.0  # of the few chains in one half
    is_close = is_sure or (
        change.is_tiny(len(moved.settled)) and (khats[0] >= limit or _is_tiny(plain))
    )
    is_refitted = posterior.on_host() is not None and not is_close
    # The tails are measured from draws that are near the target: others mislead.
    improper = start.improper or (None if is_refitted else is_improper(evaluate, draws, axes))
    doubts = [
        improper,
        moves("chains of HMC", change, difference(draws @ axes, moved.settled[1::2] @ axes), noise),
        weights_move(draws, weighed, corrected, axes) if is_light else None,
        *disagreements,
        misses_modes(draws, start.modes, evaluate.target),
        cannot_tell(weighed, is_light, memory),
    ]
    diagnostics = FitDiagnostics(
        elbo=plain.elbo,
        elbo_error=plain.elbo_error,
        log_evidence=weighed.log_evidence,
        log_evidence_error=weighed.log_evidence_error,
        pareto_khat=khats[0],
        pareto_khat_limit=limit,
        wide_pareto_khat=khats[1],
        effective_share=_share(plain),
        weights_difference=corrected.summary(),
        hmc_difference=change.summary(),
        hmc_memory=memory,
        run_differences=tuple(one.summary() for one in apart),
        ksd=None if is_refitted else discrepancy(new_key(rng), evaluate.target, posterior),
        num_weights=NUM_WEIGHED,
        num_mixing=NUM_MIXING if posterior.on_host() is None else 0,  # a mixture has no z
        widening=WIDENING,
    )
    found = [doubt for doubt in doubts if doubt]
    return Findings(diagnostics, found, weighed, moved, is_light, is_close, improper)


def better_draws(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior, findings: Findings
) -> Draws | None:
    """Draws nearer to the target, by weights or by chains; None if the draws were not checked.

    Weights also correct the shares of separate modes, but reach no further than the draws do.
    """
    weighed, moved = findings.weighed, findings.moved
    if weighed is None or moved is None:
        return None
    if findings.is_light and _weights_know_more(findings, weighed, moved):
        return weighed.draws[resampled(rng, truncated_weights(weighed.log_weights))]
    states = list(moved.states)  # a mixture may be fitted to states that depend on each other
    while len(states) * len(states[0]) < _FEWEST_MOVED:
        states += list(chains(rng, evaluate, states[-1]).states)
    num_kept = max(_FEWEST_MOVED, _MOST_PRODUCTS // evaluate.dim**2) // len(states[0])
    return np.concatenate(states[-num_kept:])


def _weights_know_more(findings: Findings, weighed: Importance, moved: Movement) -> bool:
    """Whether weights correct the draws better: chains are slow, or have nothing to correct."""
    if findings.diagnostics.hmc_memory > FORGOTTEN:
        return True
    is_unmoved = difference(moved.before, moved.settled).is_tiny(len(moved.settled))
    return is_unmoved and weighed.effective_sample_size > _FEWEST_MOVED


def polished(rng: np.random.Generator, evaluate: Evaluator, mixture: Mixture) -> Mixture:
    """The mixture, fitted again to its own draws with their weights while these change them.

    This costs far less than chains, where weights can be relied on.
    """
    for _ in range(_MOST_POLISHED):
        try:
            of = Posterior.of(GaussianMixture.of(mixture), evaluate.target)
            plain = weigh(rng, evaluate, of, 1.0)
        except ValueError:  # NaN or zero everywhere: the checks report it
            return mixture
        if not _is_reliable(plain, pareto_khat(plain.log_weights)) or _is_tiny(plain):
            return mixture
        chosen = resampled(rng, truncated_weights(plain.log_weights))
        mixture = fit_mixture(rng, plain.draws[chosen])
    return mixture


def _is_reliable(plain: Importance, khat: float) -> bool:
    return khat < _SURE_KHAT and _share(plain) > _SURE_SHARE


def _unexamined(evaluate: Evaluator, draws: Draws, start: Start, error: Exception) -> Findings:
    """Draws that run to infinity cannot be examined. Perhaps because the posterior is improper."""
    finite = draws[np.isfinite(draws).all(axis=1)]
    why = start.improper or (improper_around(evaluate, finite) if len(finite) else None)
    doubts = [f"the draws cannot be examined: {error}"]
    return Findings(FitDiagnostics(), [why, *doubts] if why else doubts, improper=why)


def _share(weighed: Importance) -> float:
    return weighed.effective_sample_size / len(weighed.log_weights)


def _is_tiny(plain: Importance) -> bool:
    """Whether the weights change the same draws by hardly more than noise."""
    return plain.difference.is_tiny(1 / max(plain.difference_error, _TINY) ** 2)


def _moved(
    rng: np.random.Generator,
    evaluate: Evaluator,
    posterior: Posterior,
    draws: Draws,
    is_sure: bool,
) -> Movement:
    """Chains from the draws, and more of them while the tails are undecided.

    **Arguments:**

    - `is_sure`: whether the weights have shown that the draws are good. Then a few short chains are
        enough to see whether they lead somewhere else.
    """
    if is_sure:
        return chains(rng, evaluate, posterior.host_draws(rng, _FEW_CHAINS), _FEW_TRANSITIONS)
    wanted, moved = _num_moved(evaluate.dim), _batch(rng, evaluate, posterior)
    while len(moved.settled) < wanted:
        moved = moved.with_more(_batch(rng, evaluate, posterior))
    is_mixture = posterior.on_host() is not None
    if is_mixture and not difference(draws, moved.settled).is_tiny(len(moved.settled)):
        return moved  # it will be fitted again
    if moved.lag > _QUICK_LAG:
        num_transitions = min(_LONGER * moved.lag, _MOST_TRANSITIONS)
        moved = moved.continued(chains(rng, evaluate, moved.after, num_transitions))
    while (n := len(moved.settled)) < _MOST_TIMES * wanted and difference(
        draws, moved.settled
    ).is_undecided(n if is_mixture else None):
        moved = moved.continued(chains(rng, evaluate, moved.after), keep=True)
    return moved


def _batch(rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior) -> Movement:
    num_chains = max(_num_moved(evaluate.dim) // _BATCHES, _CHAINS_PER_DIM * evaluate.dim)
    return chains(rng, evaluate, posterior.host_draws(rng, num_chains))


def _num_moved(dim: int) -> int:
    """The number of states of HMC chains that the draws are compared with.

    Tails are averaged over coordinates, so few coordinates need more.
    """
    return int(np.clip(8_000 // dim, 1_000, 4_000))


def _principal_axes(draws: Draws) -> Float[np.ndarray, "d d"]:
    """The principal axes of the draws, one per column, in standard deviations.

    Wrong dependence shows along them.
    """
    sd = np.maximum(draws.std(axis=0), _TINY)
    return np.linalg.eigh(np.atleast_2d(np.corrcoef(draws, rowvar=False)))[1] / sd[:, None]


def _compare_runs(
    rng: np.random.Generator, evaluate: Evaluator, draws: Draws, others: Sequence[Posterior]
) -> tuple[list[Difference], list[str | None]]:
    """The differences to the other runs, and doubts about runs that HMC does not unite."""
    apart: list[Difference] = []
    doubts: list[str | None] = []
    for other in others:
        apart.append(difference(draws, other.host_draws(rng, _NUM_DRAWS)))
        if not apart[-1].is_small():
            try:
                settled = _batch(rng, evaluate, other).settled
                doubts.append(runs_differ(draws, settled))
            except (ValueError, np.linalg.LinAlgError) as error:
                doubts.append(f"an independent run cannot be examined: {error}")
    return apart, doubts
