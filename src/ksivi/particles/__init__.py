"""Particle methods: finitely many points, moved together."""

from .ksdd import KSDD
from .mied import MIED
from .svgd import SVGD

__all__ = ["KSDD", "MIED", "SVGD"]
