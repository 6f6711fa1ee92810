"""Whether `fit` notices improper posteriors: `python -m benchmarks.improper --seeds 2`.

Fits every improper posterior, and its proper twin if `--twins` is given. A line for each: trusted or not, and why.
"""

import argparse
import time

import jax

import ksivi

from .development.improper import cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cases", nargs="+", default=[])
    parser.add_argument("--twins", action="store_true", help="fit the proper posteriors instead")
    options = parser.parse_args()
    verdicts = []
    for case in cases():
        if options.cases and case.name not in options.cases:
            continue
        for seed in range(options.seeds):
            jax.clear_caches()
            began = time.perf_counter()
            trusted, reason = _fit(case.twin if options.twins else case.target, seed)
            verdicts.append((trusted, "improper" in reason))
            seconds = time.perf_counter() - began
            print(f"{case.name:<24} seed {seed}  {seconds:4.0f} s  {reason}", flush=True)
    trusted, named = (sum(part) for part in zip(*verdicts, strict=True))
    print(f"{len(verdicts)} fits: {trusted} trusted, {named} called improper")


def _fit(target: ksivi.Target, seed: int) -> tuple[bool, str]:
    try:
        fit = ksivi.fit(jax.random.key(seed), target, progress=False)
    except RuntimeError as error:
        return False, f"refused: {error}"
    return bool(fit.trusted), str(fit.status)


if __name__ == "__main__":
    main()
