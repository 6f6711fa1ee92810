"""`docs/benchmarks.md` and its figures, from the records alone: `python -m benchmarks.page`."""

import json
from pathlib import Path
from typing import Any

from ksivi.report._figures import dress
from ksivi.report._style import FAINT, panels, save

from .big_page import large_posteriors

RECORDS, DOCS = Path("benchmarks/records"), Path("docs")
DEVICES = {"two-cores": "two CPU cores", "h200": "one H200"}
TITLES = {
    "waveform": "waveform",
    "diffusion": "diffusion, d = 100",
    "hierarchy": "hierarchical",
    "network": "network, d = 351",
}
STYLES = {
    "ksivi.fit": ("#d55e00", "D-"),
    "KSIVI": ("#0072b2", "-"),
    "KSIVI in PyTorch": ("#56b4e9", "--"),
    "NumPyro mean-field": ("#009e73", ":"),
    "NumPyro full rank": ("#009e73", "-"),
    "NumPyro IAF": ("#009e73", "--"),
    "NumPyro SteinVI": ("#cc79a7", "-"),
    "NumPyro NUTS": ("#e69f00", "-"),
    "BlackJAX NUTS": ("#000000", "-"),
    "BlackJAX SVGD": ("#999999", "-"),
}
RACED = {
    "two-cores": "On two cores of an x86 server, `--seconds 30`",
    "h200": "On one H200 with 14 to 16 cores, `--seconds 6`",
}
OF_THE_RACE = """## Seconds to good draws

`python -m benchmarks.race` runs methods of several libraries on four posteriors until 1,000 draws are good. Draws are
good when their distance to the truth (sliced W₂, in normal scores) is at most twice the distance of exact draws. On the
network they are good when held-out predictions are within 0.02 nats per row of NUTS's (four chains, 250 draws each
after 300).

The tables have seconds of running, and seconds of compilation in brackets. A method that was not good in time has its
last distance instead, as a multiple of the distance of exact draws (on the network, in hundredths of nats). NUTS that
was still warming up has no draws. KSIVI is `train` at the paper's settings; their schedules are for 20,000 to 100,000
steps, which is mostly longer than these runs. The PyTorch translation can run the diffusion only.

**The row of `ksivi.fit` is old.** It is of a version that always trained a sampler. From the start of a fresh process
on two x86 cores, the present one needs 5.7 s for the waveform and 4.6 s for the diffusion, import and compilation
included (`python -m benchmarks.accuracy`, one run; see [below](#from-a-fresh-process)).
"""
AFTER_THE_RACE = """\
When gradients cost microseconds and the posterior is near a Gaussian, NUTS and a full-rank Gaussian run for a few
seconds at most, and most of their time is compilation. On the network no method was good in time, and KSIVI at the
paper's settings for the diffusion moves away.

## From a fresh process

`python -m benchmarks.accuracy` measures what a user waits for, and whether the draws are right. Each fit has a fresh
process and two cores. Seconds count from the start of the process to 1,000 draws, import and compilation included. The
draws are compared with the truth by the conditions in `benchmarks/criterion.py`.
[The study](fit-study.md#how-quick-it-is) has the results: in one run with five seeds, a cold `ksivi.fit` takes 5.3 s
(median), and NumPyro's NUTS 9.8 s.

| kind of fit | meaning |
| --- | --- |
| cold | the first fit of a fresh process, no programs on disk |
| second | another key, in the same process (seed 0 only, as are the next three) |
| update | in the same process, with `init=` the first fit |
| again | a fresh process, the programs of the cold fit on disk |
| other | a fresh process, the programs of a fit to a Gaussian of the same dimension on disk |

Options:

- `--set`: `development` (50 posteriors), `mixtures` (20, with separate modes) or `expensive` (2; each score is a loop
  over time). `--cases` names some of them.
- `--methods`: by default `ksivi.fit` and both forms of NumPyro's NUTS, with chains one after another and vectorized.
  Also `Laplace`, `Pathfinder`, `mean-field`, `full rank` and `IAF`.
- `--seeds`: the number of seeds of `ksivi.fit`. Other methods have one.
- `--kinds`: `cold`, `again` and `other`; by default all. `second` and `update` follow a cold fit.
- `--workers`: fits at a time, by default one for every two cores. Nothing new begins after `--limit-s` seconds, and one
  process ends after `--most-s` seconds.
- `--truths`: a folder for true draws. `--out`: a file of results. What is in them is not made again.
- `--figure` and `--times`: where to draw the accuracies, and the times beside those of NUTS.

`python -m benchmarks.programs` lists what a first fit of three models compiles, and how long tracing, lowering and XLA
take. [The study](fit-study.md#what-is-compiled) has its table.

"""
SWEEPS = {
    "samples": "samples N, d = 100",
    "dim": "dimension d, N = 128",
    "rows": "rows of data, N = 128, d = 20",
}


def read(name: str) -> dict[str, Any] | None:
    path = RECORDS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def steps() -> str:
    """Milliseconds per step; on a CPU beside the PyTorch translation, in the same run."""
    parts = [
        beside_torch(record) for cores in ("two", "16") if (record := read(f"step-{cores}-cores"))
    ]
    if gpu := read("step-h200"):
        seeds = next(name for name in gpu["steps"]["100"] if name.endswith("_seeds"))
        rows = [
            [dim, f"{row['ksivi_ms']:.3f}", f"{row[seeds]:.3f}"]
            for dim, row in gpu["steps"].items()
        ]
        heads = ["d", "ksivi", f"{seeds.split('_')[2]} seeds in one call, all"]
        parts.append(f"One {gpu['device']} (jax {gpu['jax']}):\n\n" + table(heads, rows))
    return "\n".join(parts)


def beside_torch(cpu: dict) -> str:
    heads = ["d", "PyTorch", "ksivi", "ratio", "8 seeds in one call, per seed", "ratio"]
    rows = [
        [dim, f"{row['torch_ms']:.1f}"]
        + [
            cell
            for name in ("ksivi", "8_seeds")
            for cell in (f"{row[f'{name}_ms']:.2f}", f"**{row[f'{name}_ratio']:.1f}**")
        ]
        for dim, row in cpu["steps"].items()
    ]
    return f"{cpu['cores']} CPU cores ({cpu['machine']}, jax {cpu['jax']}):\n\n" + table(
        heads, rows
    )


def methods() -> str:
    """Each method's step relative to KSIVI's."""
    found = {DEVICES[name]: record for name in DEVICES if (record := read(f"methods-{name}"))}
    names = list(next(iter(found.values()))["methods"]["100"])
    rows = []
    for name in names:
        ratios = [record["methods"]["100"][name] for record in found.values()]
        paper = ratios[0]["paper_ratio"]
        rows.append(
            [
                name,
                *(f"{one['ratio']:.2f}" for one in ratios),
                "" if paper is None else f"{paper:.2f}",
            ]
        )
    return table(["method", *found, "the paper"], rows)


def growth(device: str) -> str:
    """A figure of the three sweeps, with the floor drawn in."""
    record = read(f"growth-{device}")
    if record is None or not all(record[sweep] for sweep in SWEEPS):
        return ""
    figure, axes = panels(1, 3, 3.2)
    for axis, (sweep, title) in zip(axes[0], SWEEPS.items(), strict=True):
        rows = record[sweep]
        at = [row[sweep] for row in rows]
        axis.loglog(
            at, [row["median_ms"] for row in rows], "o-", color="#0072b2", label="median bandwidth"
        )
        if "fixed_ms" in rows[0]:
            axis.loglog(
                at,
                [row["fixed_ms"] for row in rows],
                "s-",
                color="#56b4e9",
                label="fixed bandwidth",
            )
        axis.loglog(
            at, [row["floor_ms"] for row in rows], "--", color=FAINT, label="matrix products alone"
        )
        dress(axis, title)
    axes[0][0].set_ylabel("milliseconds a step")
    axes[0][0].legend(frameon=False, fontsize=8)
    path = DOCS / f"growth-{device}.png"
    save(figure, path)
    return f"""### On {DEVICES[device]}

![Milliseconds per step against samples, dimension and rows, above the floor of matrix products]({path.name})

The floor is the time of the matrix products alone, at the rate of a large product in float32:
{record["flops"] / 1e9:,.0f} GFLOP/s in the same run (jax {record["jax"]}).
"""


def devices() -> str:
    """A table by the number of devices, each of one core."""
    record = read("devices-two-cores")
    if record is None:
        return ""
    first = record["devices"][0]["fixed_ms"]
    rows = [
        [str(row["devices"]), f"{row['fixed_ms']:,.0f}", f"{first / row['fixed_ms']:.2f}"]
        for row in record["devices"]
    ]
    return f"""### With devices

`python -m benchmarks.devices`: virtual devices of one processor, with one core each, divide the samples of a step
(N = {record["samples"]:,}, d = {record["dim"]}, fixed bandwidth).

""" + table(["devices", "milliseconds per step", "times as fast"], rows)


def all_growth() -> str:
    parts = [part for part in (*map(growth, DEVICES), devices()) if part]
    return (
        "\n".join(["## How it grows\n\n`python -m benchmarks.growth`\n", *parts, ""])
        if parts
        else ""
    )


def large() -> str:
    record = read("large-h200")
    if record is None:
        return ""
    one = record["training"]
    return f"""## Many samples

`python -m benchmarks.large`, one {record["device"]}: a step of KSIVI at N = {one["samples"]:,} and d = {one["dim"]}
takes **{one["fixed_ms"]:.0f} ms** with a fixed bandwidth, and at most {one["peak_gib"]:.1f} GiB of memory.
Every tile of pairs is computed once, for the loss and its gradient together. The step takes
**{one["fixed_ms"] / one["square_floor_ms"]:.2f} times** as long as its matrix products alone would, at the rate of
a large square product ({record["flops"] / 1e12:.0f} TFLOP/s in single precision, same run). The exact median of all
{one["samples"] ** 2:,} distances takes {one["median_ms"] - one["fixed_ms"]:.0f} ms more.
{_large_metrics(record["metrics"])}
"""


def _large_metrics(found: dict) -> str:
    """Both metrics of exact samples and of wide ones."""
    return f"""
Both metrics over all pairs of {found["samples"]:,} samples of a standard Gaussian in {found["dim"]} dimensions; seconds
include compilation:

""" + table(
        ["", "KSD² to the target", "seconds", "MMD to as many exact samples", "seconds"],
        [
            [
                title,
                f"{found[f'ksd2_{name}']:.1e}",
                f"{found[f'ksd2_{name}_s']:.0f}",
                f"{found[f'mmd_{name}']:.1e}",
                f"{found[f'mmd_{name}_s']:.0f}",
            ]
            for name, title in {"exact": "exact", "wide": "a tenth too wide"}.items()
        ],
    )


def race() -> str:
    """Seconds to good draws on each machine, and the way there."""
    parts = [
        _race_on(name, title)
        for name, title in RACED.items()
        if (RECORDS / f"race-{name}.jsonl").exists()
    ]
    return "\n".join([OF_THE_RACE, *parts, AFTER_THE_RACE]) if parts else ""


def _race_on(name: str, title: str) -> str:
    rows = [json.loads(line) for line in (RECORDS / f"race-{name}.jsonl").read_text().splitlines()]
    found = {(row["race"], row["contestant"]): row for row in rows}
    cells = [
        [contestant, *(_outcome(found.get((one, contestant))) for one in TITLES)]
        for contestant in STYLES
    ]
    path = DOCS / f"race-{name}.png"
    _draw_race(found, path)
    return f"""### {title} (jax {rows[0]["jax"]})

{table(["", *TITLES.values()], cells)}
![Distance to the truth against seconds, compilation included]({path.name})
"""


def _outcome(row: dict | None) -> str:
    if row is None or "failed" in row or not row["path"]:
        return "not run" if row is None else "failed" if "failed" in row else "no draws"
    compiled = f" ({row['compile_s']:.0f})" if row["compile_s"] >= 0.5 else ""
    if row["good_s"] is not None:
        return f"**{row['good_s']:.1f} s**{compiled}"
    return f"{row['path'][-1][1]:.0f} ×{compiled}"


def _draw_race(found: dict, path: Path) -> None:
    figure, axes = panels(1, len(TITLES) + 1, 3.2)
    for axis, (one, title) in zip(axes[0], TITLES.items(), strict=False):
        for name, (color, style) in STYLES.items():
            row = found.get((one, name))
            if row and row.get("path"):
                at, errors = zip(*row["path"], strict=True)
                axis.loglog(
                    [row["compile_s"] + t for t in at],
                    errors,
                    style,
                    color=color,
                    label=name,
                    markersize=4,
                )
        axis.axhline(2, color=FAINT, linestyle="--")
        axis.set_xticks([5, 10, 20, 50, *([100, 300] if one == "network" else [])])
        axis.xaxis.set_major_formatter("{x:.0f}")
        axis.xaxis.set_minor_formatter("")
        axis.set_xlabel("seconds")
        dress(axis, title)
    axes[0][0].set_ylabel("distance, that of exact draws = 1")
    axes[0][-1].axis("off")
    axes[0][-1].legend(
        *axes[0][1].get_legend_handles_labels(), frameon=False, fontsize=9, loc="center"
    )
    save(figure, path)


def rows_on_disk() -> str:
    record = read("rows-two-cores")
    if record is None:
        return ""
    low, _, high = record["widths"]
    return f"""`python -m benchmarks.rows` trains on {record["rows"]:,} rows of a regression with 20 coefficients:
{record["bytes"] / 1e9:.1f} GB in a memory map, two CPU cores. It takes {record["seconds"]:.0f} s to read all rows
four times for the control variate and to train, and at most **{record["peak_anonymous_gib"]:.2f} GiB** of memory
besides the map. Means are within **{record["worst_mean_in_sd"]:.3f}** standard deviations of the closed form;
widths are {low:.2f} to {high:.2f} of its widths.
"""


def page() -> str:
    return f"""# Speed

`python -m benchmarks.page` makes this page from the records in `benchmarks/records`. Each section names the
command that makes its record. `make bench` runs the first one on your machine.

## A step

`python -m benchmarks.step` measures milliseconds per step of vanilla KSIVI on the conditioned diffusion, with
N = 128 and network [100, 128, 128, d]. PyTorch is a direct translation of the paper's Algorithm 1; its steps and
ours run in turns. On a CPU each core takes one seed of a batch; on a GPU a batch is one program.

{steps()}
## Methods

`python -m benchmarks.step --methods all` measures a step of each method at the paper's settings for d = 100,
relative to a step of KSIVI.

{methods()}
{race()}{large_posteriors(RECORDS / "big.jsonl", table)}
{large()}{all_growth()}## More rows than memory

{rows_on_disk()}"""


if __name__ == "__main__":
    (DOCS / "benchmarks.md").write_text(page())
