"""Benchmarks fail where a figure falls short of what is asked."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def bench(path: str) -> ModuleType:
    """A benchmark's own code; nothing is measured by that."""
    name = f"bench_{path.replace('/', '_').removesuffix('.py')}"
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("calls", "short"), [(3.0, ""), (3.5, "the three calls, median, shapes: 20")])
def test_the_calls_fail_where_a_pod_costs_too_much(
    calls: float, short: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the watch tells is not of the calls; all that is asked is printed beside what was measured."""
    module = bench("centre/calls.py")
    took = {"filter": [0.005] * 3, "bind": [9.0]}
    figures = module.tell_of("20", took, cpu=[calls + 0.5] * 2, told=[0.5] * 3)
    if short:
        with pytest.raises(SystemExit, match=f"short of what is asked: ms of CPU a pod, {short}$"):
            module.judge(figures)
    else:
        module.judge(figures)
    assert capsys.readouterr().out.count("measured") == 3


@pytest.mark.parametrize(
    ("took", "short"),
    [([0.001] * 2 + [0.0051] * 3, "p50"), ([0.001] * 60 + [0.0201] * 2, "p99"), ([0.006, 0.021, 0.022], "p50.*p99")],
)
def test_the_calls_fail_where_a_filter_takes_too_long(took: list[float], short: str) -> None:
    """By the median, or by the slowest of a hundred."""
    module = bench("centre/calls.py")
    figures = module.tell_of("20", {"filter": took}, cpu=[1.0], told=[0.5])
    with pytest.raises(SystemExit, match=f"short of what is asked: ms of a filter call, {short}, shapes: 20$"):
        module.judge(figures)


def test_pods_are_of_as_many_shapes_as_are_said() -> None:
    """Twenty of them count; one is the best case."""
    module = bench("centre/calls.py")
    chance = random.Random(5)
    assert {mix: len({*module.shapes_of(count or 300, chance=chance)}) for mix, count in module.SHAPES.items()} == {
        "1": 1,
        "20": 20,
        "each": 300,
    }
    assert module.COUNTS == "20"


@pytest.mark.parametrize(
    ("bound", "seconds", "refused", "good"),
    [(30, 3.0, 0, True), (30, 3.1, 0, False), (29, 1.0, 0, False), (30, 1.0, 1, False)],
)
def test_shapes_are_all_bound_and_fast_enough(bound: int, seconds: float, refused: int, *, good: bool) -> None:
    """Ten pods a second, none of them refused."""
    module = bench("cluster/centre.py")
    outcome = module.Outcome(bound=bound, seconds=seconds, created=1.0, cpu={})
    assert module.shape_holds(outcome, pods=30, refused=refused) is good


def test_all_benchmarks_are_run_and_one_that_fails_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The centre's calls are judged; whatever falls short, those that follow are measured too."""
    module, run = bench("run.py"), list[list[str]]()

    class Done:
        def __init__(self, argv: list[str], **_: object) -> None:
            run.append([Path(argv[1]).name, *argv[2:]])
            self.returncode = int(argv[-1] == "--asked")

    monkeypatch.setattr(module.subprocess, "run", Done)
    assert module.main() == 1
    assert ["calls.py", "--asked"] in run
    assert len(run) == len([*BENCHMARKS.glob("*.py"), *(BENCHMARKS / "centre").glob("*.py")]) - 1
    assert "failed: calls" in capsys.readouterr().out
    monkeypatch.setattr(module, "CENTRE", "none")
    assert module.main() == 0


@pytest.mark.parametrize("path", ["centre/calls.py", "queues/edits.py", "queues/events.py", "queues/groups.py"])
def test_benchmarks_of_one_cluster_are_asked_alike_how_large_it_is(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And each says what it measures."""
    module = bench(path)
    monkeypatch.setattr(sys, "argv", [path, "--help"])
    with pytest.raises(SystemExit):
        module.main()
    told = capsys.readouterr().out
    assert all(f"{option} {option[2:].upper()}" in told for option in ("--nodes", "--pods", "--queues"))
    assert (module.__doc__ or "?").splitlines()[0] in told


@pytest.mark.parametrize("path", ["queues/events.py", "queues/groups.py"])
def test_of_one_event_there_is_no_percentile(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said before anything is measured."""
    monkeypatch.setattr(sys, "argv", [path, "--events", "1"])
    with pytest.raises(SystemExit):
        bench(path).main()
    assert "--events: 1: a percentile needs 2 events at least" in capsys.readouterr().err
