"""`Calibration`: the ranks of the true parameters, and how often intervals contain them."""

import dataclasses
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from ._record import RANKED, Replication

_BINS = 20
"""Bins of the test."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The results of all replications, trusted or not.

    **Attributes:**

    - `replications`: the finished fits.
    - `interrupted`: whether Ctrl-C ended the calibration before the last fit.
    - `levels`: the levels of the central intervals whose coverage is shown.
    """

    levels: ClassVar = (0.5, 0.8, 0.95)
    replications: tuple[Replication, ...]
    interrupted: bool = False

    @property
    def names(self) -> list[str]:
        return list(self.replications[0].ranks)

    @property
    def ranks(self) -> Int[np.ndarray, "r q"]:
        return np.array([[one.ranks[name] for name in self.names] for one in self.replications])

    def inside(self, level: float) -> Bool[np.ndarray, "r q"]:
        """Whether the central interval of this level contains the true value."""
        shares = np.array([[one.shares[name] for name in self.names] for one in self.replications])
        return np.abs(shares - 0.5) <= level / 2

    def coverage(self, level: float) -> tuple[float, float]:
        """The share of intervals that contain the true value, and its standard error."""
        by_replication = self.inside(level).mean(axis=1)
        return float(by_replication.mean()), float(
            by_replication.std(ddof=1) / np.sqrt(len(by_replication))
        )

    @property
    def counts(self) -> Int[np.ndarray, "q b"]:
        """Histograms of the ranks. They are flat if the posteriors are calibrated."""
        return np.array(
            [
                np.bincount(column * _BINS // (RANKED + 1), minlength=_BINS)
                for column in self.ranks.T
            ]
        )

    @property
    def p_values(self) -> Float[np.ndarray, " q"]:
        """p-values of a χ² test of uniform ranks, one per parameter, with Holm's correction."""
        from scipy.stats import chisquare

        p = np.array([chisquare(row).pvalue for row in self.counts])
        order = np.argsort(p)
        corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
        return np.minimum(corrected, 1)[np.argsort(order)]

    def rejected(self, level: float = 0.01) -> list[str]:
        """The parameters whose ranks are not uniform."""
        return [name for name, p in zip(self.names, self.p_values, strict=True) if p < level]

    @property
    def facts(self) -> dict[str, Any]:
        """The results as JSON values."""
        return {
            "replications": len(self.replications),
            "interrupted": self.interrupted,
            "trusted": sum(one.trusted for one in self.replications),
            "p_values": dict(zip(self.names, self.p_values.tolist(), strict=True)),
            "coverage": {str(level): self.coverage(level) for level in self.levels},
            "rejected": self.rejected(),
        }

    def __str__(self) -> str:
        wide = max(len(name) for name in [*self.names, "all"])
        lines = [
            f"{'':{wide}}   p of ranks   "
            + "   ".join(f"{level:.0%} holds" for level in self.levels)
        ]
        for i, (name, p) in enumerate(zip(self.names, self.p_values, strict=True)):
            held = "   ".join(f"{self.inside(level)[:, i].mean():9.1%}" for level in self.levels)
            lines.append(f"{name:{wide}}   {p:10.3f}   {held}")
        pooled = "   ".join(f"{self.coverage(level)[0]:9.1%}" for level in self.levels)
        trusted = sum(one.trusted for one in self.replications)
        interrupted = ", then interrupted" if self.interrupted else ""
        lines += [
            f"{'all':{wide}}   {'':10}   {pooled}",
            f"{len(self.replications)} fits{interrupted}, {trusted} of them trusted",
        ]
        return "\n".join(lines)
