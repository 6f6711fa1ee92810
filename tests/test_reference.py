"""Reference draws: kept on disk, recognised by the target's fingerprint, in its own coordinates."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.methods import _reference as reference
from ksivi.methods._chains import agreement
from test_mcmc import KEY, NUTS, funnel, gaussian, gaussian_at, normal

pytest.importorskip("blackjax")


def noncentred(u):
    return jnp.stack([3 * u[0], jnp.exp(1.5 * u[0]) * u[1]])


@pytest.mark.slow
def test_reference_draws_are_kept_and_read_back(tmp_path, monkeypatch):
    method = ksivi.NUTS(num_warmup=300, num_draws=500)
    draws = ksivi.reference_draws(KEY, gaussian(), method=method, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    assert draws.shape == (2_000, 3)

    def refuse(*_, **__):
        raise AssertionError("drawn again")

    with monkeypatch.context() as patched:
        patched.setattr(reference, "run", refuse)
        assert np.array_equal(
            draws, ksivi.reference_draws(KEY, gaussian(), method=method, cache=tmp_path)
        )
        for other in (
            {"target": normal(3)},
            {"key": jax.random.key(1)},
            {"method": ksivi.NUTS(num_draws=600)},
        ):
            call = {"key": KEY, "target": gaussian(), "method": method, **other}
            with pytest.raises(AssertionError, match="drawn again"):
                ksivi.reference_draws(
                    call["key"], call["target"], method=call["method"], cache=tmp_path
                )
    file.write_bytes(file.read_bytes()[:-7])
    assert np.array_equal(
        draws, ksivi.reference_draws(KEY, gaussian(), method=method, cache=tmp_path)
    )


def test_draws_of_another_target_are_not_taken_for_its_own(tmp_path, monkeypatch):
    """Even if two programs should read alike, the log density at the stored draws tells them apart."""
    monkeypatch.setattr(reference, "fingerprint", lambda *_: "same")
    for centre in (0.0, 5.0):
        draws = ksivi.reference_draws(KEY, gaussian_at(centre), method=NUTS, cache=tmp_path)
        np.testing.assert_allclose(draws.mean(0), centre, atol=0.2)


@pytest.mark.slow
def test_funnels_need_easier_coordinates(tmp_path):
    with pytest.raises(
        RuntimeError, match=r"NUTS gives no reference for this target: not trusted: .* divergent"
    ):
        ksivi.reference_draws(KEY, funnel(), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []
    draws = np.asarray(ksivi.reference_draws(KEY, funnel(), transform=noncentred, cache=tmp_path))
    # Exact in law: x₀ ~ N(0, 9), x₁ e^(−x₀/2) ~ N(0, 1).
    for part, sd in ((draws[:, 0], 3.0), (draws[:, 1] * np.exp(-draws[:, 0] / 2), 1.0)):
        assert abs(part.mean()) < 0.06 * sd
        np.testing.assert_allclose(part.std(), sd, rtol=0.05)


@pytest.mark.slow
def test_reference_draws_of_a_whitened_target_are_in_its_own_coordinates(tmp_path):
    far = ksivi.Target(lambda x: -0.5 * jnp.sum((x - 100.0) ** 2 / 25.0), dim=2)
    whitened = far.whitened(jnp.full(2, 100.0), jnp.full(2, 5.0))
    draws = np.asarray(ksivi.reference_draws(KEY, whitened, cache=tmp_path))
    np.testing.assert_allclose(draws.mean(0), 100, atol=0.5)
    np.testing.assert_allclose(draws.std(0), 5, rtol=0.06)


def test_the_fingerprint_sees_programs_data_and_nothing_else():
    def made_of(constant, power=2):
        array = jnp.asarray(constant)
        inner = jax.jit(lambda x: jnp.sum(jax.nn.softplus(x - array) ** power))
        return reference.fingerprint(lambda x: inner(x), 2, ())

    assert made_of([1.0, 2.0]) == made_of([1.0, 2.0])
    assert len({made_of([1.0, 2.0]), made_of([1.0, 2.1]), made_of([1.0, 2.0], power=4)}) == 3
    wrapped = lambda c: jax.checkpoint(jax.jit(lambda x: jnp.sum((x - jnp.asarray(c)) ** 2)))  # noqa: E731
    inside = [
        reference.fingerprint(wrapped(c), 2, ()) for c in ([0.0, 0.0], [0.0, 0.0], [50.0, 0.0])
    ]
    assert inside[0] == inside[1] != inside[2]
    assert reference.fingerprint(lambda x: x[0], 2, (KEY,)) != reference.fingerprint(
        lambda x: x[0], 2, ()
    )
    data = [ksivi.problems.waveform(seed=seed).target for seed in (0, 0, 1)]
    prints = [reference.fingerprint(target.log_density, 22, ()) for target in data]
    assert prints[0] == prints[1] != prints[2]


def test_the_fingerprint_is_the_same_in_another_process():
    code = (
        "import jax, jax.numpy as jnp; from ksivi.methods._reference import fingerprint;"
        "print(fingerprint(lambda x: jnp.sum(jax.nn.relu(x) ** 2), 2, (jnp.ones(2), 'a')))"
    )
    prints = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert prints[0] == prints[1]


def test_a_cache_that_cannot_be_written_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="reference draws could not be saved"):
        draws = ksivi.reference_draws(
            KEY, normal(), method=NUTS, cache=tmp_path / "file" / "folder"
        )
    assert draws.shape == (4_000, 2)


@pytest.mark.slow
def test_waveforms_reference_has_the_known_moments(data):
    """Anchors of an independent NUTS run, within 3 combined standard errors."""
    target = ksivi.problems.waveform(data / "waveform.mat").target
    draws = np.asarray(ksivi.reference_draws(KEY, target), float)
    ess = np.array(
        [agreement(draws[:, [i]].reshape(2_500, 4, 1)).effective_sample_size for i in range(22)]
    )
    errors = draws.std(0) / np.sqrt(ess)
    for index, mean, error in (
        (0, 5.764, 0.012),
        (8, -1.937, 0.005),
        (16, 1.593, 0.005),
        (18, 1.927, 0.005),
    ):
        ours = draws[:, index].mean()
        print(f"β{index}: {ours:.3f} ± {errors[index]:.3f}, anchor {mean} ± {error}")
        assert abs(ours - mean) < 3 * np.hypot(errors[index], error)
    for index, sd in ((0, 0.822), (1, 0.227)):
        assert abs(draws[:, index].std() / sd - 1) < 3 * np.sqrt(2 / (2 * ess[index]))
    stored = np.load(data / "reference" / "waveform.npz")["draws"]
    assert np.all(
        np.abs(draws.mean(0) - stored.mean(0))
        < 4 * np.sqrt(errors**2 + stored.var(0) / len(stored))
    )


@pytest.mark.slow
def test_diffusions_have_a_reference():
    problem = ksivi.problems.diffusion(20)
    draws = problem.reference(KEY, 1_000)
    scores = np.asarray(jax.vmap(problem.target.score)(draws))
    assert np.all(np.abs(scores.mean(0)) < 5 * scores.std(0) / np.sqrt(200))
