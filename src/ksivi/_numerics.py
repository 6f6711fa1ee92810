"""Matmul precision is chosen here, not inherited from the accelerator."""

import contextlib

import jax


def full_precision() -> contextlib.AbstractContextManager:
    """Traces matrix products in full precision unless the user has set `jax_default_matmul_precision`.

    Accelerators multiply float32 matrices in TF32 by default, which is a relative error of 1e-3 in a score.
    """
    chosen = jax.config.values["jax_default_matmul_precision"]
    return contextlib.nullcontext() if chosen is not None else jax.default_matmul_precision("highest")
