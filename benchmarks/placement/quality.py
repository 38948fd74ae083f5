"""How much of the openb cluster each policy can give away: ten paired seeds of three variants.

    python benchmarks/placement/quality.py [--variants default,...] [--seeds 42,...] [--runs aliquot,...] [--plots docs]

Each run is kept in build/placement.json as soon as it is done, so that a broken-off benchmark goes on where it was;
`--fresh` begins anew. Published policies run with the line of equals, as they were published; Aliquot's own with fresh
random ties.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from aliquot_cli.plots import svg
from aliquot_scheduler.simulating.reading import read_line, read_nodes, read_order, read_pods
from aliquot_scheduler.simulating.runs import MixSource, PolicyName, Report, begin, report
from aliquot_scheduler.simulating.workload import Longs, Workload

HERE = Path(__file__).resolve().parent
DATA = HERE / "openb"
KEPT = HERE.parent.parent / "build" / "placement.json"
VARIANTS = ("default", "gpushare60", "gpuspec33")
SEEDS = tuple(range(42, 52))
# Name, policy, mix, whether ties follow the given line, and the published name.
RUNS = {
    "aliquot": (PolicyName.ALIQUOT, MixSource.GIVEN, False, ""),
    "aliquot, learnt": (PolicyName.ALIQUOT, MixSource.LEARNT, False, ""),
    "bestfit": (PolicyName.BESTFIT, MixSource.GIVEN, True, "BestFit"),
    "gpupacking": (PolicyName.GPUPACKING, MixSource.GIVEN, True, "GpuPacking"),
    "fgd": (PolicyName.FGD, MixSource.GIVEN, True, "FGD"),
}
TARGETS = {"default": 96.2, "gpushare60": 92.3, "gpuspec33": 95.2}
BOUNDS = {"default": 96.90, "gpushare60": 93.39, "gpuspec33": 96.46}
LOST_BY_LEARNING = 0.2
EXACT = 0.05
_AT = "100"

_Read = TypeVar("_Read")


def main() -> int:
    """Run what is not there yet, and tell."""
    asked = _arguments()
    kept = {} if asked.fresh or not KEPT.exists() else json.loads(KEPT.read_text())
    for variant in asked.variants.split(","):
        for name in asked.runs.split(";"):
            for seed in map(int, asked.seeds.split(",")):
                key = f"{variant}/{name}/{seed}"
                if key not in kept:
                    kept[key] = msgspec.to_builtins(_run(variant, name, seed))
                    KEPT.parent.mkdir(exist_ok=True)
                    KEPT.write_text(json.dumps(kept))
                    print(f"{key}: {kept[key]['allocated_pct_at'][_AT]:.2f} ({kept[key]['seconds']:.0f} s)", flush=True)
    reports = {key: msgspec.convert(value, Report) for key, value in kept.items()}
    failed = [_tell(variant, reports) for variant in VARIANTS]
    if asked.plots:
        for variant in VARIANTS:
            _plot(variant, reports, folder=Path(asked.plots))
    return int(any(failed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--runs", default=";".join(RUNS), help="separated by semicolons")
    parser.add_argument("--plots", default="", help="folder for the curves")
    parser.add_argument("--fresh", action="store_true")
    return parser.parse_args()


def load(variant: str, seed: int) -> tuple[Workload, Longs]:
    """A workload of the trace, and its line of equals."""
    machines = _read("openb_node_list_gpu_node.csv", lambda lines, name: read_nodes(lines, name=name))
    pods = _read(f"openb_pod_list_{variant}.csv", lambda lines, name: read_pods(lines, name=name, machines=machines))
    count = len(pods.pods)
    order = _read(f"order_{variant}.csv", lambda lines, name: read_order(lines, name=name, seed=seed, pods=count))
    size = len(machines)
    line = _read(f"noderank_{variant}.csv", lambda lines, name: read_line(lines, name=name, seed=seed, nodes=size))
    return Workload(machines=machines, needs=pods.needs, pods=pods.pods, arrivals=order), line


def _read(name: str, reader: Callable[[Iterable[str], str], _Read]) -> _Read:
    with (DATA / name).open(encoding="utf-8", newline="") as lines:
        return reader(lines, name)


def _run(variant: str, name: str, seed: int) -> Report:
    policy, mix, lined, _ = RUNS[name]
    workload, line = load(variant, seed)
    start = time.perf_counter()
    replay = begin(workload, policy=policy, mix=mix, seed=seed, line=line if lined else None)
    for _ in replay.steps():
        pass
    seconds = time.perf_counter() - start
    return report(replay.outcome(), workload=workload, policy=policy, mix=mix, seed=seed, line=lined, seconds=seconds)


def _published(variant: str, policy: str, kind: str) -> dict[int, dict[str, float]]:
    """By seed: the curve."""
    heading, *rows = [line.split(",") for line in (DATA / f"published_{kind}.csv").read_text().splitlines()]
    return {
        int(row[2]): {x: float(value) for x, value in zip(heading[3:], row[3:], strict=True) if value}
        for row in rows
        if row[0] == variant and row[1] == policy
    }


def _tell(variant: str, reports: Mapping[str, Report]) -> bool:
    """One table; whether something that was asked for is missed."""
    print(f"\n### {variant} (FGD as published {_mean(_at(variant, 'FGD')):.2f}, bound {BOUNDS[variant]})\n")
    print(
        "| policy | ties | seeds | x = 90 | 95 | **100** (sd) | least, most | 110 | 130 | beats FGD | off published |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    missed = False
    for name, (_, _, lined, published) in RUNS.items():
        runs = {seed: reports[key] for seed in SEEDS if (key := f"{variant}/{name}/{seed}") in reports}
        if not runs:
            continue
        at = [one.allocated_pct_at[_AT] for one in runs.values()]
        fgd = _at(variant, "FGD")
        better = sum(one.allocated_pct_at[_AT] > fgd[seed] for seed, one in runs.items())
        off = (
            max((_off(variant, published, seed, one) for seed, one in runs.items()), default=0.0) if published else None
        )
        cells = [_mean([one.allocated_pct_at[x] for one in runs.values()]) for x in ("90", "95", "110", "130")]
        print(
            f"| {name} | {'line' if lined else 'fresh'} | {len(runs)} | {cells[0]:.2f} | {cells[1]:.2f} | "
            f"**{_mean(at):.2f}** ({statistics.pstdev(at):.2f}) | {min(at):.2f}, {max(at):.2f} | {cells[2]:.2f} | "
            f"{cells[3]:.2f} | {better} of {len(runs)} | {'-' if off is None else f'{off:.3f}'} |"
        )
        slack = LOST_BY_LEARNING if "learnt" in name else 0.0
        missed |= off is not None and off > EXACT
        missed |= off is None and (_mean(at) < TARGETS[variant] - slack or better < len(runs))
    return missed


def _off(variant: str, published: str, seed: int, one: Report) -> float:
    """The largest distance from the published curves, allocation and fragments."""
    distances = [0.0]
    for kind, curve in (("alloc", one.allocated_pct_at), ("frag", one.frag_pct_at)):
        known = _published(variant, published, kind)[seed]
        distances += [abs(round(curve[x], 2) - value) for x, value in known.items()]
    return max(distances)


def _at(variant: str, policy: str) -> dict[int, float]:
    return {seed: curve[_AT] for seed, curve in _published(variant, policy, "alloc").items()}


def _mean(values: Sequence[float] | Mapping[int, float]) -> float:
    return statistics.fmean(values.values() if isinstance(values, Mapping) else values)


def _plot(variant: str, reports: Mapping[str, Report], *, folder: Path) -> None:
    """Means over the seeds, from where the curves part."""
    curves = {}
    for name in RUNS:
        runs = [reports[key] for seed in SEEDS if (key := f"{variant}/{name}/{seed}") in reports]
        if runs:
            xs = [
                x
                for x in runs[0].allocated_pct_at
                if 75 <= int(x) <= 130 and all(x in r.allocated_pct_at for r in runs)
            ]
            curves[name] = {float(x): _mean([one.allocated_pct_at[x] for one in runs]) for x in xs}
    if curves:
        title = f"openb {variant}: GPUs given away (mean of ten seeds)"
        text = svg(curves, title=title, across="GPUs asked for, % of all", up="GPUs given away, % of all")
        (folder / f"placement-{variant}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
