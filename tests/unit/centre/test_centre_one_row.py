"""A node that is asked by itself, in plain numbers, says what it says among all."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.claims import Claim
from aliquot_core.inventory import Health
from aliquot_core.objects import Pod
from aliquot_core.patterns import Patterns
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.appraisal import Appraisal, distinct, room_of
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.modes import kinds_together
from aliquot_scheduler.fit.one_row import ask_row
from aliquot_scheduler.fit.plain_rows import PlainRows
from aliquot_scheduler.fit.survey import survey
from aliquot_scheduler.worth.mix import Mix, Shape
from aliquot_scheduler.worth.scarcity import scarcity
from aliquot_scheduler.worth.tables import tables
from support.centre import NAMES, asks, gpus, make_node, picture_with

MODELS = {"NVIDIA A100-SXM4-80GB": 80_000, "Tesla T4": 15_109}
# What a CUDA context takes there; the T4 gives 30 % 4,532.
CONTEXTS = {"NVIDIA A100-SXM4-80GB": None, "Tesla T4": 1_001}
# As an agent shares them; of two GPUs of one model each may differ.
MODES = (["observe"], ["observe", "interposer"], ["mps"])
SEEN = Mix.of(
    {
        Shape(cores=8.0, compute=100, memory=100, gpus=1): 50,
        Shape(cores=4.0, compute=46, memory=46, gpus=1): 30,
        Shape(cores=2.0, compute=20, memory=40, gpus=1): 30,
        Shape(cores=6.0, compute=100, memory=100, gpus=2): 10,
        Shape(cores=1.0, compute=100, memory=100, gpus=1, models=Patterns(allowed=("*t4*",))): 20,
        Shape(cores=16.0): 10,
    }
)
CARDS = 3
TABLES = tables(SEEN, kinds=[(model,) for model in MODELS for _ in MODES], gpus=CARDS, cores=64.0)
PODS = (
    asks("even", 25, None),
    asks("uneven", 30, 3_333),
    asks("memory", None, 1_000),
    asks("whole", 100, None),
    asks("two", 200, None),
    asks("two and a half", 250, 20_000),
    asks("divided", 75, 9_000, annotations={NAMES.gpus: "2"}),
    asks("picky", 30, 5_000, annotations={NAMES.gpu_model: "*T4*"}),
)
# Compute and MiB that others hold of a GPU, by how many, and how it is.
cards = st.one_of(
    st.tuples(st.just(0), st.just(0), st.just(Health.HEALTHY)),
    st.tuples(st.sampled_from([0, 0, 30, 70, 100]), st.integers(0, 15_109), st.sampled_from(Health)),
    # 3,400 MiB are free of it: room for 3,333, which is a begun percent more.
    st.tuples(st.just(30), st.just(11_709), st.just(Health.HEALTHY)),
)
towns = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([*MODELS]), st.sampled_from(MODES)), min_size=CARDS, max_size=CARDS),
        st.lists(cards, min_size=CARDS, max_size=CARDS),
        st.sampled_from([0.0, 2.5, 8.0, 64.0]),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
)


@given(towns, st.sampled_from(PODS), st.sampled_from([0.0, 2.0, 6.0]))
@settings(max_examples=300, deadline=None)
def test_a_row_by_itself_is_what_it_is_among_all(town: list[tuple[Any, ...]], pod: Pod, cores: float) -> None:
    """Whatever its GPUs are, and whatever others hold there: the same fit, and the same loss to the last bit."""
    picture = picture_with()
    free = np.zeros(picture.grid.rows)
    rows: list[int] = []
    for number, (kinds, held, idle, cordoned) in enumerate(town):
        name = f"n{number}"
        its = [
            msgspec.structs.replace(
                gpus(name, CARDS, model=model, memory=MODELS[model])[index],
                health=how,
                context=CONTEXTS[model],
                isolation=modes,
            )
            for index, ((model, modes), (*_, how)) in enumerate(zip(kinds, held, strict=True))
        ]
        picture.node_seen(make_node(name, its))
        rows.append(row := picture.nodes[name].row)
        picture.grid.allow(row, bindable=not cordoned)
        free[row] = idle
        for gpu, (compute, memory, _) in zip(its, held, strict=True):
            claim = Claim(compute=Percent(compute), memory=MiB(memory), closes=compute == 100)
            picture.hold(f"on-{gpu.uuid}", {(name, gpu.uuid): claim} if compute or memory else {})
    grid, demand = picture.grid, demand_of(parse_request(pod, names=NAMES))
    prices = scarcity(room_of(grid, cores=free), TABLES)
    look = Appraisal(cells=grid, free=free, tables=TABLES, scarcity=prices, cores=cores)
    among = survey(demand, grid=grid, trial=lambda _: None, appraisal=look)
    suitable = list(kinds_together(grid.kinds, demand.request).values())
    plain = PlainRows(grid=grid)
    for row in rows:
        fits, lost = ask_row(row, distinct(demand), rows=plain, suitable=suitable, appraisal=look)
        assert fits == among.fits[row]
        assert not fits or lost == among.cost[row]
