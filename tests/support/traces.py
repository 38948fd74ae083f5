"""Small workloads, and parts of the published one."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import strategies as st

from aliquot_scheduler.simulating.reading import read_line, read_nodes, read_order, read_pods
from aliquot_scheduler.simulating.workload import Longs, Machine, Need, Workload

OPENB = Path(__file__).resolve().parents[2] / "benchmarks" / "placement" / "openb"
NODES = "openb_node_list_gpu_node.csv"

machines = st.lists(
    st.builds(
        Machine,
        name=st.just(""),
        cores=st.sampled_from([4_000, 16_000, 96_000]),
        memory=st.sampled_from([8_192, 65_536]),
        gpus=st.sampled_from([0, 1, 2, 4]),
        model=st.sampled_from(["T4", "G2"]),
        card=st.sampled_from([0, 16_384]),
    ),
    min_size=1,
    max_size=5,
).map(lambda made: [msgspec.structs.replace(one, name=f"n{number}") for number, one in enumerate(made)])

_whole = st.builds(
    Need,
    cores=st.sampled_from([0, 1_000, 8_000]),
    memory=st.sampled_from([0, 4_096]),
    gpus=st.sampled_from([1, 2]),
    milli=st.just(1000),
    card=st.sampled_from([0, 0, 5_000, 20_000]),
    models=st.sampled_from([(), ("T4",), ("T4", "G2")]),
)
_share = st.builds(
    Need,
    cores=st.sampled_from([0, 1_000, 8_000]),
    memory=st.sampled_from([0, 4_096]),
    gpus=st.just(1),
    milli=st.sampled_from([50, 200, 460, 500, 810]),
    card=st.sampled_from([0, 0, 5_000]),
    models=st.sampled_from([(), ("G2",)]),
)
_plain = st.builds(Need, cores=st.sampled_from([500, 4_000]), memory=st.sampled_from([0, 4_096]))
needs = st.lists(st.one_of(_whole, _share, _plain), min_size=1, max_size=40)


def workload(some: Sequence[Machine], pods: Sequence[Need]) -> Workload:
    """These pods in their order."""
    distinct = tuple(dict.fromkeys(pods))
    numbers = np.array([distinct.index(need) for need in pods], dtype=np.int64)
    return Workload(machines=tuple(some), needs=distinct, pods=numbers, arrivals=np.arange(len(pods)))


def openb(variant: str, *, seed: int, arrivals: int) -> tuple[Workload, Longs]:
    """The first arrivals of a published run, and its line of equals."""
    with (OPENB / NODES).open(newline="") as lines:
        nodes = read_nodes(lines, name=NODES)
    with (OPENB / f"openb_pod_list_{variant}.csv").open(newline="") as lines:
        pods = read_pods(lines, name=variant, machines=nodes)
    with (OPENB / f"order_{variant}.csv").open(newline="") as lines:
        order = read_order(lines, name=variant, seed=seed, pods=len(pods.pods))
    with (OPENB / f"noderank_{variant}.csv").open(newline="") as lines:
        line = read_line(lines, name=variant, seed=seed, nodes=len(nodes))
    return Workload(machines=nodes, needs=pods.needs, pods=pods.pods, arrivals=order[:arrivals]), line


def published(variant: str, policy: str, *, seed: int, kind: str) -> dict[int, float]:
    """A curve of the paper's runs."""
    with (OPENB / f"published_{kind}.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            if (row["variant"], row["policy"], row["seed"]) == (variant, policy, str(seed)):
                return {int(x): float(value) for x, value in row.items() if x.isdigit() and value}
    raise KeyError(policy)
