"""Amortized SVGD: a sampler that follows Stein's variational gradient."""

import equinox as eqx

from .._core.checks import as_count
from ..kernels import AbstractKernel, Gaussian, as_smooth_kernel, stein_direction
from ._schedules import Schedule, as_schedule
from ._smoothed import AbstractSmoothed


class AmortizedSVGD(AbstractSmoothed):
    r"""Minimises KL(q‖p) along f(x) = −E′[k(x, x′) s_p(x′) + ∇′k(x, x′)], against SVGD's direction.

    The loss is E⟨f(x), x⟩ with f held constant and estimated with a second batch. Integration by
    parts shows that f is the smoothed force of `KPG`. The estimate does not use ∇ log q(x|z): its
    noise does not grow as σ falls, and where σ is wider than the kernel it is the noisier one.

    **Arguments:**

    - `num_samples`: the number of samples of x in each of the two batches.
    - `kernel`: a smooth function of ‖x − y‖. Default: Gaussian with the median bandwidth.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    objective = ksivi.objectives.AmortizedSVGD(num_samples=100)
    ```

    Reference: Feng, Wang and Liu, Learning to Draw Samples with Amortized Stein Variational
    Gradient Descent, UAI 2017.
    """

    kernel: AbstractKernel
    annealing: Schedule | None
    num_samples: int = eqx.field(static=True)

    def __init__(
        self,
        num_samples: int = 100,
        *,
        kernel: AbstractKernel | None = None,
        annealing: Schedule | None = None,
    ):
        self.num_samples = as_count(num_samples, "num_samples")
        self.kernel = as_smooth_kernel(kernel, Gaussian())
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def force(self, kernel, x, others, score, conditional_score):
        return -stein_direction(kernel, others, score, at=x)
