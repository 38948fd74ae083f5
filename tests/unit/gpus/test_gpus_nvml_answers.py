"""What is made of NVML's answers, without NVML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import Fault, GpuProblem, ProcessKind
from aliquot_agent.gpus.nvml_discovery import gone, name_problems
from aliquot_agent.gpus.nvml_facts import Reach, join_links
from aliquot_agent.gpus.nvml_usage import merge_processes, sm_by_pid
from aliquot_agent.gpus.simulated import SimulatedDriver
from support.clocks import VirtualClock

MIB = 1024 * 1024


def _sample(pid: int, at: int, sm: int) -> Any:
    return SimpleNamespace(pid=pid, timeStamp=at, smUtil=sm)


def _listed(pid: int, memory: int | None) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


def test_compute_is_the_mean_since_the_last_look() -> None:
    """Samples since then are averaged; at the first look only the newest counts, the buffer may be minutes old."""
    samples = [_sample(1, 10, 90), _sample(1, 20, 30), _sample(1, 30, 41), _sample(2, 30, 7)]
    assert sm_by_pid(samples, 10) == {1: 36, 2: 7}
    assert sm_by_pid(samples, 0) == {1: 41, 2: 7}


def test_samples_that_can_t_be_are_dropped() -> None:
    """Old samples, pid 0 and more than 100 percent are the driver's slips, not use."""
    assert sm_by_pid([_sample(1, 5, 50), _sample(0, 20, 50), _sample(3, 20, 1000), _sample(4, 20, 100)], 5) == {4: 100}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99), st.integers(0, 300)), max_size=30), st.integers(0, 99))
def test_compute_is_a_percentage(samples: list[tuple[int, int, int]], since: int) -> None:
    """Whatever the driver says, a process has 0 to 100 percent."""
    found = sm_by_pid([_sample(*sample) for sample in samples], since)
    assert all(pid > 0 and 0 <= percent <= 100 for pid, percent in found.items())


def test_lists_are_merged_by_pid() -> None:
    """One entry a process: the last list names the kind, known memory beats hidden, unsampled is 0, unasked None."""
    lists = [
        (ProcessKind.GRAPHICS, [_listed(7, 10 * MIB), _listed(8, None)]),
        (ProcessKind.COMPUTE, [_listed(8, 3 * MIB + 1), _listed(7, None)]),
    ]
    merged = merge_processes(lists, sm={7: 12})
    assert [(p.pid, p.memory_mib, p.sm_percent, p.kind) for p in merged] == [
        (7, 10, 12, ProcessKind.COMPUTE),
        (8, 4, 0, ProcessKind.COMPUTE),
    ]
    assert {p.sm_percent for p in merge_processes(lists, sm=None)} == {None}


def test_a_switch_joins_as_far_as_both_reach() -> None:
    """Through a switch the lesser number of links counts; who has none, or did not tell, is reached by PCIe or not."""
    reaches = {
        "a": Reach(nvlinks={"switch": 12}, distances={"b": "SYS", "c": "NODE", "d": "SYS"}),
        "b": Reach(nvlinks={"switch": 18, "BUS:D": 2}, distances={"a": "SYS", "c": "SYS", "d": "SYS"}),
        "c": Reach(nvlinks={}, distances={"a": "NODE", "b": "SYS", "d": "SYS"}),
    }
    links = join_links(reaches, bus_ids={key: f"bus:{key}" for key in "abcd"})
    assert links["a"] == {"b": "NV12", "c": "NODE"}
    assert links["b"] == {"a": "NV12", "c": "SYS"}


async def test_problems_are_named_by_who_had_the_index() -> None:
    """A problem at an index is the GPU's that had it last, unless that one was found elsewhere; the rest is gone."""
    model = KNOWN_MODELS["T4"]
    found = (await SimulatedDriver(node="n", models=[model] * 2, clock=VirtualClock()).discover()).gpus
    known = {found[0].uuid: 0, "second": 1, found[1].uuid: 2, "fourth": 3}
    at_one, at_two = (GpuProblem(fault=Fault.FAILED, uuid=None, index=index, what="") for index in (1, 2))
    named = name_problems([at_one, at_two], found=found, known=known)
    assert [problem.uuid for problem in named] == ["second", None]
    assert [(problem.uuid, problem.fault) for problem in gone(found=found, problems=named, known=known)] == [
        ("fourth", Fault.LOST)
    ]
