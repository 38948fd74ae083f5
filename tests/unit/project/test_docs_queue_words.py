"""The tables of docs/queues.md on what it says, and what to do, have each word that the code says, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from aliquot_scheduler.centre.pod_patches import LET_IN
from aliquot_scheduler.queues.said.contradictions import problems_of
from aliquot_scheduler.queues.said.hanging import Kind
from aliquot_scheduler.queues.said.overkept import kept_beyond_all
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import plant
from aliquot_scheduler.queues.telling import why
from aliquot_scheduler.queues.waiting.gathering import Lack

ROOT = Path(__file__).parents[3]
SECTION = (
    (ROOT / "docs/queues.md").read_text().partition("\n## What it says, and what to do\n")[2].partition("\n## ")[0]
)
_ONE_WORD = re.compile(r"([A-Z][a-z]+)+")
# Trees that are wrong, each in one way.
WRONG = [
    {"a": QueueSpec(parent="nobody")},
    {"a": QueueSpec(parent="b"), "b": QueueSpec(parent="a")},
    {"a": QueueSpec(compute=Quota(guarantee=200, limit=100))},
    {"a": QueueSpec(compute=Quota(guarantee=100, lending_limit=200))},
    {"a": QueueSpec(compute=Quota(guarantee=100)), "b": QueueSpec(parent="a", compute=Quota(guarantee=200))},
    {"a": QueueSpec(compute=Quota(limit=100), models={"X": ModelQuota(compute=Quota(guarantee=200))})},
    {
        "a": QueueSpec(compute=Quota(limit=100)),
        "b": QueueSpec(parent="a", models={"X": ModelQuota(compute=Quota(guarantee=200))}),
    },
    {"a": QueueSpec(memory=Quota(guarantee=100, weight=0), models={"X": ModelQuota(memory=Quota(guarantee=200))})},
    {
        "a": QueueSpec(compute=Quota(guarantee=100, borrowing_limit=50)),
        "b": QueueSpec(parent="a", models={"X": ModelQuota(compute=Quota(guarantee=200))}),
    },
]
KEEPS = Quota(guarantee=900, lending_limit=0)


def first_cells(heading: str) -> list[str]:
    """The first cell of each line of a table."""
    table = SECTION.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].strip("| ") for line in table.splitlines()[2:]]


def in_code(cells: Iterable[str]) -> set[str]:
    """Those that are words of the code."""
    return {cell.strip("`") for cell in cells if cell.startswith("`")}


def said_by(path: Path) -> set[str]:
    """Texts of one word in a module that begin large: the words of conditions."""
    texts = (one.value for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Constant))
    return {text for text in texts if isinstance(text, str) and _ONE_WORD.fullmatch(text)}


def events() -> set[str]:
    """The reasons of all that the centre tells of pods."""
    found = set()
    for path in (ROOT / "scheduler/aliquot_scheduler/centre").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Notice":
                found |= {one.value.value for one in call.keywords if isinstance(one.value, ast.Constant)}
    return {str(text) for text in found if _ONE_WORD.fullmatch(str(text))}


def test_every_condition_has_its_line() -> None:
    """What a pod may be told is what an operator can look up."""
    words = said_by(Path(why.__file__)) | {lack.value for lack in Lack} | {LET_IN.reason}
    assert {"NoRoom", "TurnLost", "GangSplit"} <= words
    assert in_code(first_cells("a pod's condition")) == words


def test_every_event_has_its_line() -> None:
    """What the centre tells of pods that have to go, and of nodes that no pod may go to."""
    assert in_code(first_cells("an Event")) == events() - {LET_IN.reason}


def problems() -> list[str]:
    """Each thing that may be wrong with a queue, in the words of its status."""
    kept = {"a": QueueSpec(compute=KEEPS)}
    of_no_model = {"a": QueueSpec(models={"X": ModelQuota(compute=KEEPS)})}
    return [
        *(str(problem) for tree in WRONG for problem in problems_of(tree)),
        *kept_beyond_all(plant(kept), capacity=(800, 10**6))["a"],
        *kept_beyond_all(plant(of_no_model), capacity=(800, 10**6, 0, 0))["a"],
    ]


def test_every_kind_of_contradiction_is_tried() -> None:
    """A new kind has to be told too."""
    assert {problem.kind for tree in WRONG for problem in problems_of(tree)} == set(Kind)


@pytest.mark.parametrize("said", problems(), ids=range(len(problems())))
def test_every_problem_of_a_queue_has_its_line(said: str) -> None:
    """By the words that its status shows."""
    cells = first_cells("a queue's `status.problems` says")
    patterns = [re.escape(cell.strip("*")).replace("…", ".*") for cell in cells]
    assert any(re.search(pattern, said) for pattern in patterns), said


def test_no_line_tells_of_a_problem_that_is_never_said() -> None:
    """What nobody says any more is taken out."""
    for cell in first_cells("a queue's `status.problems` says"):
        assert any(re.search(re.escape(cell.strip("*")).replace("…", ".*"), said) for said in problems()), cell
