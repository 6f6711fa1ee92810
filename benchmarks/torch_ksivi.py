"""Algorithm 1 of the paper, translated directly to eager PyTorch: the yardstick of `benchmarks.step`.

Broadcast N × N × d differences, `torch.median` with its gradient, the score by autograd, one Python loop.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch


def diffusion_log_density(
    observations: np.ndarray, dim: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The conditioned diffusion of `ksivi.problems.diffusion`, for a batch of paths."""
    y, dt = torch.tensor(observations, dtype=torch.float32), 1 / dim

    def log_density(x: torch.Tensor) -> torch.Tensor:
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        steps = x - before - 10 * before * (1 - before**2) * dt
        return -(steps**2).sum(1) / (2 * dt) - ((y - x[:, 4::5]) ** 2).sum(1) / (2 * 0.1**2)

    return log_density


class Sampler(torch.nn.Module):
    """x = μ(z) + σ ξ with μ an MLP."""

    def __init__(self, widths: list[int], log_var: float):
        super().__init__()
        layers: list[torch.nn.Module] = []
        for fan_in, fan_out in itertools.pairwise(widths):
            layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
        self.mean = torch.nn.Sequential(*layers[:-1])
        self.log_var = torch.nn.Parameter(torch.full((widths[-1],), log_var))
        self.mixing_dim = widths[0]

    def forward(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        mean = self.mean(torch.randn(n, self.mixing_dim))
        noise, sd = torch.randn_like(mean), torch.exp(self.log_var / 2)
        return mean + sd * noise, -noise / sd


def ksivi_loss(sampler: Sampler, log_density: Callable, n: int) -> torch.Tensor:
    """The vanilla estimate of KSD² with the Gaussian kernel and the median bandwidth."""
    (x1, q1), (x2, q2) = sampler(n), sampler(n)
    f1, f2 = _score(log_density, x1) - q1, _score(log_density, x2) - q2
    squares = ((x1[:, None, :] - x2[None, :, :]) ** 2).sum(-1)
    kernel = torch.exp(-squares * math.log(n + 1) / squares.median())
    return (kernel * (f1 @ f2.T)).mean()


def _score(log_density: Callable, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(log_density(x).sum(), x, create_graph=True)[0]


class Translation:
    """The diffusion's sampler, its optimiser, and one step of both."""

    def __init__(self, observations: np.ndarray, dim: int, n: int, hidden: tuple[int, ...]):
        self.log_density, self.n = diffusion_log_density(observations, dim), n
        self.sampler = Sampler([100, *hidden, dim], log_var=-2.0)
        self.optimizer = torch.optim.Adam(self.sampler.parameters(), lr=2e-4)

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = ksivi_loss(self.sampler, self.log_density, self.n)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def draw(self, n: int) -> np.ndarray:
        with torch.no_grad():
            return self.sampler(n)[0].cpu().numpy()
