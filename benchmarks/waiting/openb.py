"""How long pods of the openb trace wait: whole GPUs first come first served, shared GPUs, and Aliquot, paired.

    python benchmarks/waiting/openb.py [--bootstraps 10] [--variants main,...] [--seconds 3600] [--plot FILE]

The pods of `default` that want GPUs, from second 9,964,972 on (6,167), on 4 and 8 nodes of 8 GPUs, 96 cores and
384 GiB, arrival times multiplied by k; each (nodes, k) is a cell. A bootstrap draws as many pods with replacement; all
policies are given the same. A cell's ratio is the mean over bootstraps of ours by that of the baseline, its interval
what 95 % of 10,000 draws of these pairs give. Each run is kept in build/waiting.json as soon as it is done, so that a
broken-off benchmark goes on where it was. One process; a run takes 1 s of CPU, of Aliquot's own policy 10 to 20 s.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from aliquot_cli.plots import Curve, Panel, sheet
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.simulating.timed.altering import bootstrapped, compressed, given_to_teams
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.job import Timetable
from aliquot_scheduler.simulating.timed.reading import read_timetable
from aliquot_scheduler.simulating.timed.told import InBacklog, TimedReport
from aliquot_scheduler.simulating.workload import Machine

HERE = Path(__file__).resolve().parent
PODS = HERE.parent / "placement" / "openb" / "openb_pod_list_default.csv"
KEPT = HERE.parents[1] / "build" / "waiting.json"
FIRST_SECOND = 9_964_972
CELLS = tuple((nodes, k) for nodes in (4, 8) for k in (1.0, 0.6, 0.4, 0.3, 0.25))
TEAMS, USERS, OWNERS_SEED = 8, 12, 0
# A team may hold three quarters of the GPUs, so that there is a quota to be violated.
MOST_OF_ALL = 0.75
# What Kubernetes gives pods that have to go, in seconds.
GRACE = 30.0
# Below this a cell's baseline does not wait: its ratio says nothing.
LEAST_WAIT = 60.0
BASELINE = TimedPolicy.WHOLE_GPU_FIFO
DRAWS = 10_000
WANTED = {"wait": -35.0, "completion": -30.0}
PERCENT = 95.0
_MAKESPAN = "makespan"
_TAILS = ("90", "99", _MAKESPAN)
_SHARES = ("allocated_pct", "of_bound_pct")

Reals = npt.NDArray[np.float64]


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """Other settings; `cells` are those that it is run on."""

    slowdown: float = 0.0
    settings: QueueSettings = QueueSettings(hold=0.0)
    gpus_only: bool = True
    # Whether each team is guaranteed an equal part of all, so that it takes back what it lent.
    owned: bool = False
    cells: tuple[tuple[int, float], ...] = CELLS


_FEW = ((4, 0.6), (4, 0.3), (8, 0.3))
_SLOWER = (*_FEW, (4, 0.4))
VARIANTS = {
    # Nobody is kept waiting for the head of a line, as in the baseline.
    "main": Variant(),
    "slower-5": Variant(slowdown=0.05, cells=_SLOWER),
    "slower-10": Variant(slowdown=0.10, cells=_SLOWER),
    "slower-20": Variant(slowdown=0.20, cells=_SLOWER),
    "hold": Variant(settings=QueueSettings(), cells=_FEW),
    "cpu-pods": Variant(gpus_only=False, cells=_FEW),
    "owned": Variant(owned=True, cells=_FEW),
    "moves": Variant(
        settings=QueueSettings(hold=0.0, moves_per_hour=60),
        cells=(*_FEW, *(cell for cell in CELLS[:5] if cell not in _FEW)),
    ),
}


def main() -> int:
    """Run what is not there yet, as far as time allows, and tell."""
    asked = _arguments()
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    until = time.monotonic() + asked.seconds
    for variant, cell, seed, policy in _runs(asked.variants.split(","), bootstraps=asked.bootstraps):
        key = _key(variant, cell, seed, policy)
        if key in kept:
            continue
        if time.monotonic() > until:
            print("time is over: run it again to go on", flush=True)
            break
        found = _run(VARIANTS[variant], cell, seed=seed, policy=policy)
        kept[key] = msgspec.to_builtins(msgspec.structs.replace(found, curve=[]))
        _keep(kept)
        print(f"{key}: wait {found.wait.mean / 60:.1f} min, {found.seconds:.0f} s", flush=True)
    reports = {key: msgspec.convert(value, TimedReport) for key, value in kept.items()}
    failed = [_tell(name, reports, bootstraps=asked.bootstraps) for name in asked.variants.split(",")]
    if asked.plot:
        Path(asked.plot).write_text(_picture(reports, bootstraps=asked.bootstraps), encoding="utf-8")
    return int(any(failed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstraps", type=int, default=10)
    parser.add_argument("--variants", default="main", help=",".join(VARIANTS))
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no run after so many")
    parser.add_argument("--plot", default="", help="picture of waits by cell")
    return parser.parse_args()


# --- runs ------------------------------------------------------------------------------------------------------------


def _runs(variants: Sequence[str], *, bootstraps: int) -> Iterator[tuple[str, tuple[int, float], int, TimedPolicy]]:
    """Bootstrap by bootstrap, so that what is broken off is a smaller sample of everything."""
    for variant in variants:
        for seed in range(bootstraps):
            for cell in VARIANTS[variant].cells:
                for policy in TimedPolicy:
                    yield variant, cell, seed, policy


def _key(variant: str, cell: tuple[int, float], seed: int, policy: TimedPolicy) -> str:
    return f"{variant}/{cell[0]}/{cell[1]}/{seed}/{policy}"


def _keep(kept: Mapping[str, Any]) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    beside = KEPT.with_suffix(".new")
    beside.write_text(json.dumps(kept))
    beside.replace(KEPT)


def timetable(*, nodes: int, k: float, seed: int | None, gpus_only: bool) -> Timetable:
    """The trace on so many nodes, compressed; drawn anew from a seed, or as it is."""
    machines = tuple(
        Machine(name=f"n{number}", cores=96_000, memory=393_216, gpus=8, model="G2") for number in range(nodes)
    )
    with PODS.open(encoding="utf-8", newline="") as lines:
        found = read_timetable(lines, name=PODS.name, machines=machines, after=FIRST_SECOND, gpus_only=gpus_only)
    found = given_to_teams(found, teams=TEAMS, users=USERS, seed=OWNERS_SEED)
    return compressed(found if seed is None else bootstrapped(found, seed=seed), factor=k)


def _run(variant: Variant, cell: tuple[int, float], *, seed: int, policy: TimedPolicy) -> TimedReport:
    nodes, k = cell
    asked = timetable(nodes=nodes, k=k, seed=seed, gpus_only=variant.gpus_only)
    guarantee = 800 * nodes // TEAMS if variant.owned else None
    quota = Quota(limit=int(MOST_OF_ALL * 800 * nodes), guarantee=guarantee)
    specs = {team: QueueSpec(namespaces=("*",), compute=quota) for team in asked.teams}
    run = TimedRun(
        asked, policy=policy, specs=specs, settings=variant.settings, slowdown=variant.slowdown, grace=GRACE, seed=seed
    )
    for _ in run.steps():
        pass
    return run.report()


# --- what is told ----------------------------------------------------------------------------------------------------


class Pairs:
    """Ours and the baseline of one cell, by bootstrap."""

    def __init__(
        self,
        variant: str,
        cell: tuple[int, float],
        reports: Mapping[str, TimedReport],
        *,
        policy: TimedPolicy,
        bootstraps: int,
    ) -> None:
        keys = [(_key(variant, cell, seed, BASELINE), _key(variant, cell, seed, policy)) for seed in range(bootstraps)]
        pairs = [(reports[base], reports[ours]) for base, ours in keys if base in reports and ours in reports]
        self.base = [base for base, _ in pairs]
        self.ours = [ours for _, ours in pairs]

    def of(self, what: str) -> tuple[Reals, Reals]:
        """Means of every bootstrap: the baseline's and ours."""
        base, ours = (np.array([getattr(one, what).mean for one in some]) for some in (self.base, self.ours))
        return base, ours

    def change(self, what: str) -> float:
        """Percent by which ours is more."""
        base, ours = self.of(what)
        return float(100.0 * (ours.mean() / base.mean() - 1.0))

    def drawn(self, what: str, random: np.random.Generator) -> Reals:
        """The same, of pairs drawn with replacement."""
        base, ours = self.of(what)
        some = random.integers(len(base), size=(DRAWS, len(base)))
        found: Reals = 100.0 * (ours[some].mean(axis=1) / np.maximum(base[some].mean(axis=1), 1e-9) - 1.0)
        return found


def _interval(drawn: Reals) -> str:
    low, high = _ends(drawn)
    return f"{low:+.0f} … {high:+.0f}"


def _ends(drawn: Reals) -> tuple[float, float]:
    low, high = np.percentile(drawn, [(100.0 - PERCENT) / 2, (100.0 + PERCENT) / 2])
    return float(low), float(high)


def _tell(variant: str, reports: Mapping[str, TimedReport], *, bootstraps: int) -> bool:
    """One table for each policy beside the baseline; whether Aliquot misses a target."""
    missed = False
    for policy in (TimedPolicy.FIFO, TimedPolicy.ALIQUOT):
        cells = {
            cell: pairs
            for cell in VARIANTS[variant].cells
            if (pairs := Pairs(variant, cell, reports, policy=policy, bootstraps=bootstraps)).ours
        }
        if cells:
            print(f"\n{variant}: {policy} beside {BASELINE}")
            missed = _table(cells) and policy is TimedPolicy.ALIQUOT
            _tails(cells)
    return missed


def _tails(cells: Mapping[tuple[int, float], Pairs]) -> None:
    """Of each cell what nine in ten and 99 in 100 pods waited at most, and when the last had ended: means over runs."""
    print("\n| nodes, k | wait P90, h: baseline; ours | P99, h: baseline; ours | the last ends, h: baseline; ours |")
    print("|---|--:|--:|--:|")
    for (nodes, k), pairs in cells.items():
        told = [_beside([_hours(one, what) for one in some] for some in (pairs.base, pairs.ours)) for what in _TAILS]
        print(f"| {nodes}, {k:g} | {' | '.join(told)} |")


def _hours(report: TimedReport, what: str) -> float:
    seconds = report.makespan if what == _MAKESPAN else report.wait.percentiles[what]
    return seconds / 3600


def _beside(both: Iterable[Sequence[float]]) -> str:
    base, ours = (float(np.mean(some)) for some in both)
    change = f" ({100.0 * (ours / base - 1.0):+.0f} %)" if base else ""
    return f"{base:.1f}; {ours:.1f}{change}"


def _table(cells: Mapping[tuple[int, float], Pairs]) -> bool:
    use = "allocated, % (of bound); single"
    print(f"| nodes, k | n | baseline wait, completion | wait, % | completion, % | {use} | baseline's | by then, % |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    drawn: dict[str, list[Reals]] = {what: [] for what in WANTED}
    changes: dict[str, list[float]] = {what: [] for what in WANTED}
    above = False
    for cell, pairs in cells.items():
        random = np.random.default_rng(0)
        counts = pairs.of("wait")[0].mean() >= LEAST_WAIT
        told = []
        for what in WANTED:
            draws = pairs.drawn(what, random)
            told.append(f"{pairs.change(what):+.0f} ({_interval(draws)})" if counts else "-")
            if counts:
                drawn[what].append(draws)
                changes[what].append(pairs.change(what))
                above |= _ends(draws)[0] > 0.0
        base = f"{pairs.of('wait')[0].mean() / 60:.1f} min, {pairs.of('completion')[0].mean() / 3600:.1f} h"
        told += [_use(pairs.ours), _use(pairs.base), f"{_by_then(pairs.ours)}; {_by_then(pairs.base)}"]
        print(f"| {cell[0]}, {cell[1]:g} | {len(pairs.ours)} | {base} | {' | '.join(told)} |")
    missed = above
    for what, wanted in WANTED.items():
        mean = float(np.mean(changes[what]))
        missed |= mean > wanted
        print(f"{what}: {mean:+.1f} % ({_interval(np.mean(drawn[what], axis=0))}), wanted {wanted:+.0f} %", end="; ")
    runs = [one for pairs in cells.values() for one in pairs.ours]
    jain = [np.mean([one.jain_served or 1.0 for one in some]) for some in (runs, _bases(cells))]
    print(
        f"sent away {sum(one.evictions for one in runs)}, lost {sum(one.lost_hours for one in runs):.0f} GPU hours; ",
        end="",
    )
    print(f"violations {sum(one.quota_violations for one in runs)}; Jain {jain[0]:.3f}, baseline's {jain[1]:.3f}")
    parts = [float(np.mean([_weighed(some, what) for some in _fulls(cells)])) for what in _SHARES]
    print(f"mean over cells, in a full backlog: allocated {parts[0]:.1f} %, of bound {parts[1]:.1f} %")
    return missed


def _fulls(cells: Mapping[tuple[int, float], Pairs]) -> list[list[InBacklog]]:
    """Our own, of each cell that has any."""
    found = [[one.full_backlog for one in pairs.ours] for pairs in cells.values()]
    return [some for some in found if any(one.hours for one in some)]


def _by_then(some: Sequence[TimedReport]) -> str:
    """GPU time given by then, of what anybody could have given: the mean over runs, and the least."""
    told = [one.by_then for one in some if one.by_then]
    return f"{np.mean([one.mean_pct for one in told]):.1f} ({min(one.least_pct for one in told):.1f})" if told else "-"


def _bases(cells: Mapping[tuple[int, float], Pairs]) -> list[TimedReport]:
    return [one for pairs in cells.values() for one in pairs.base]


def _use(some: Sequence[TimedReport]) -> str:
    """GPUs given away (of the bound) in a full backlog; and in a line for one GPU; over all bootstraps' hours."""
    return f"{_given([one.full_backlog for one in some])}; {_given([one.single_backlog for one in some])}"


def _given(some: Sequence[InBacklog]) -> str:
    if not any(one.hours for one in some):
        return "-"
    allocated, bound = (_weighed(some, what) for what in _SHARES)
    return f"{allocated:.1f} ({bound:.1f})"


def _weighed(some: Sequence[InBacklog], what: str) -> float:
    """Over the hours of all of them."""
    hours = np.array([one.hours for one in some])
    return float((np.array([getattr(one, what) or 0.0 for one in some]) * hours).sum() / hours.sum())


def _picture(reports: Mapping[str, TimedReport], *, bootstraps: int) -> str:
    """Mean wait in hours by k, for each policy; a panel for each number of nodes, since their waits are far apart."""
    curves: dict[int, dict[str, dict[float, float]]] = {}
    for policy in TimedPolicy:
        for nodes, k in CELLS:
            keys = [_key("main", (nodes, k), seed, policy) for seed in range(bootstraps)]
            waits = [reports[key].wait.mean / 3600 for key in keys if key in reports]
            if waits:
                curves.setdefault(nodes, {}).setdefault(policy, {})[k] = float(np.mean(waits))
    return panels_of(curves)


def panels_of(curves: Mapping[int, Mapping[str, Curve]]) -> str:
    """The picture, by number of nodes."""
    across = "k: arrival times are multiplied by it, so less is more load"
    return sheet(
        [
            Panel(curves=of_nodes, title=f"Mean wait on {nodes} nodes", across=across, up="hours")
            for nodes, of_nodes in curves.items()
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
