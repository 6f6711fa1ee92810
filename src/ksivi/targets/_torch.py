"""Targets from PyTorch code."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Float

from .._core.checks import as_flag, require_callable
from ._callback import Points, from_callback
from ._target import Target


def from_torch(
    log_density: Callable,
    dim: int,
    *,
    batched: bool = False,
    device: str = "cpu",
    names: Sequence[str] | None = None,
    test_point: Float[Array, " d"] | None = None,
) -> Target:
    r"""A target whose log density is PyTorch code, as are its gradient and Hessian-vector products.

    **Arguments:**

    - `log_density`: (dim,) ↦ scalar, for tensors in double precision. `torch.vmap` applies it to a
        batch of points.
    - `batched`: `log_density` takes points as rows instead, (n, dim) ↦ (n,). Each value must depend
        on its own row only.
    - `device`: the PyTorch device that it runs on.

    ```python
    target = ksivi.from_torch(lambda x: -0.5 * (x**2).sum(), dim=2)
    ```
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError("from_torch needs PyTorch: pip install 'ksivi[torch]'") from error
    require_callable(log_density, "log_density")
    batched = as_flag(batched, "batched")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(
            f"device must be a device that PyTorch has here, got {device!r}: {error}"
        ) from error
    return from_callback(
        _ValueAndGradient(log_density, batched, device),
        dim,
        hessian_product=_HessianProduct(log_density, batched, device),
        batched=True,
        names=names,
        test_point=test_point,
    )


@dataclasses.dataclass(frozen=True)
class _Derivative:
    """A derivative of a log density, for points as rows.

    Two of them with the same function are equal, so that nothing is compiled again.
    """

    log_density: Callable
    batched: bool
    device: str

    def _tensor(self, x: Points) -> Any:
        import torch

        return torch.from_numpy(x).to(self.device)

    def _values(self, points: Any) -> Any:
        import torch

        values = (self.log_density if self.batched else torch.vmap(self.log_density))(points)
        if values.shape == points.shape[:1]:
            return values
        if self.batched:
            expected, shape = f"shape ({len(points)},) for {len(points)} points", values.shape
        else:
            expected, shape = "a scalar for one point", values.shape[1:]
        raise ValueError(f"log_density must return {expected}, got shape {tuple(shape)}")


class _ValueAndGradient(_Derivative):
    given_as: ClassVar[str] = "log_density"

    def __call__(self, x: Points) -> tuple[np.ndarray, np.ndarray]:
        import torch

        points = self._tensor(x).requires_grad_()
        values = self._values(points)
        (gradient,) = torch.autograd.grad(values.sum(), points)
        return _array(values), _array(gradient)


class _HessianProduct(_Derivative):
    given_as: ClassVar[str] = "the second derivative of log_density"

    def __call__(self, x: Points, v: Points) -> np.ndarray:
        import torch

        points = self._tensor(x).requires_grad_()
        (gradient,) = torch.autograd.grad(self._values(points).sum(), points, create_graph=True)
        if not gradient.requires_grad:  # a linear log density has no curvature
            return np.zeros_like(x)
        (product,) = torch.autograd.grad(gradient, points, self._tensor(v), allow_unused=True)
        return np.zeros_like(x) if product is None else _array(product)


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().numpy()
