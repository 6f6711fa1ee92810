"""KPG: the kernelized path gradient of KL(q‖p)."""

import equinox as eqx

from .._core.checks import as_count
from ..kernels import AbstractKernel, Gaussian, as_kernel, kernel_mean
from ._schedules import Schedule, as_schedule
from ._smoothed import AbstractSmoothed


class KPG(AbstractSmoothed):
    r"""Minimises KL(q‖p) along f(x) = E′[k(x, x′) (∇ log q(x′|z′) − s_p(x′))], the smoothed force.

    The loss is E⟨f(x), x⟩ with f held constant. f is estimated with a second batch:

        1/N² Σⱼ ⟨Σᵢ k(xⱼ, x′ᵢ) [−ξ′ᵢ/σ(z′ᵢ) − s_p(x′ᵢ)], xⱼ⟩.

    Under E′ the conditional score stands for ∇ log q(x′). Its mean is 0 at q = p, and the loss is
    not a bound. The expected gradient is that of KL(q‖p) with the force smoothed by the kernel: a
    wide kernel has little noise, and sees less of the shape. The target's scores are needed for one
    batch only, and enter linearly, so one minibatch of data is enough.

    **Arguments:**

    - `num_samples`: N, the number of samples of x in each of the two batches.
    - `kernel`: the kernel k. Default: Gaussian with the median bandwidth.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    objective = ksivi.objectives.KPG(num_samples=100)
    ```

    Reference: Pielok, Bischl and Rügamer, Semi-Implicit Variational Inference via Kernelized Path
    Gradient Descent, AISTATS 2026.
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
        self.kernel = as_kernel(kernel, Gaussian())
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def force(self, kernel, x, others, score, conditional_score):
        return kernel_mean(kernel.gram, x, others, conditional_score - score)
