"""The mathematics once more, in plain NumPy float64 loops, to test against.

A new kernel enters `spread` and `profile` under its name in `KERNELS` of test_kernels.py.
"""

import math

import numpy as np


def spread(name: str, x: np.ndarray, y: np.ndarray) -> float:
    """The quantity that h divides."""
    if name in ("gaussian", "imq"):
        return float(np.sum((x - y) ** 2))
    if name == "laplace":
        return float(np.sum(np.abs(x - y)))
    if name == "riesz":
        return float(np.sum(np.abs(x)) + np.sum(np.abs(y)) - np.sum(np.abs(x - y)))
    if name in ("matern12", "matern32", "matern52"):
        return float(np.sqrt(np.sum((x - y) ** 2)))
    raise KeyError(name)


def profile(name: str, u: float) -> float:
    if name in ("gaussian", "laplace", "matern12"):
        return math.exp(-u)
    if name == "imq":
        return (1 + u) ** -0.5
    if name == "riesz":
        return u
    if name == "matern32":
        return (1 + math.sqrt(3) * u) * math.exp(-math.sqrt(3) * u)
    if name == "matern52":
        return (1 + math.sqrt(5) * u + 5 * u**2 / 3) * math.exp(-math.sqrt(5) * u)
    raise KeyError(name)


def spreads(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.array([[spread(name, a, b) for b in y] for a in x])


def median_bandwidth(values: np.ndarray, n: int) -> float:
    ordered = np.sort(values.ravel())
    median = ordered[(ordered.size - 1) // 2]
    return median / math.log(n + 1) if median > 0 else 1.0


def gram(name: str, x: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
    return np.vectorize(lambda u: profile(name, u))(spreads(name, x, y) / h)


def vanilla(name: str, x1, f1, x2, f2, h: float) -> float:
    """1/N² Σᵢⱼ k(x₁ᵢ, x₂ⱼ) ⟨f₁ᵢ, f₂ⱼ⟩."""
    k = gram(name, x1, x2, h)
    return (
        sum(k[i, j] * float(np.dot(f1[i], f2[j])) for i in range(len(x1)) for j in range(len(x2)))
        / k.size
    )


def u_statistic(name: str, x, f, h: float, noise_per_z: int = 1) -> float:
    """Mean of k(xᵢ, xⱼ) ⟨fᵢ, fⱼ⟩ over the pairs i ≠ j that do not share z."""
    k = gram(name, x, x, h)
    pairs = [
        (i, j) for i in range(len(x)) for j in range(len(x)) if i // noise_per_z != j // noise_per_z
    ]
    return sum(k[i, j] * float(np.dot(f[i], f[j])) for i, j in pairs) / len(pairs)


def slopes(name: str, r2: float, h: float) -> tuple[float, float, float]:
    """k of a smooth kernel, and its first two derivatives with respect to r²."""
    if name == "gaussian":
        k = math.exp(-r2 / h)
        return k, -k / h, k / h**2
    if name == "imq":
        base = 1 + r2 / h
        return base**-0.5, -0.5 / h * base**-1.5, 0.75 / h**2 * base**-2.5
    if name == "matern52":
        a = math.sqrt(5 * r2) / h
        decay = math.exp(-a)
        slope, curvature = -5 / (6 * h**2) * (1 + a) * decay, 25 / (12 * h**4) * decay
        return (1 + a + a**2 / 3) * decay, slope, curvature
    raise KeyError(name)


def stein(name: str, x1, s1, u1, x2, s2, u2, h: float) -> float:
    """1/N² Σᵢⱼ ⟨s₁ᵢ + u₁ᵢ ∇, s₂ⱼ + u₂ⱼ ∇′⟩ k(x₁ᵢ, x₂ⱼ), coordinate by coordinate."""
    total = 0.0
    for x, s, u in zip(x1, s1, u1, strict=True):
        for y, t, v in zip(x2, s2, u2, strict=True):
            k, slope, curvature = slopes(name, float(np.sum((x - y) ** 2)), h)
            for a, b, r in zip(s, t, x - y, strict=True):
                of_x, of_y = 2 * slope * r, -2 * slope * r
                of_both = -2 * slope - 4 * curvature * r**2
                total += a * b * k + a * v * of_y + b * u * of_x + u * v * of_both
    return total / (len(x1) * len(x2))
