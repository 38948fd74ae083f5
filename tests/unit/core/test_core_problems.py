"""All that is wrong with a pod is said at once, and nothing is said of what could not be read."""

from __future__ import annotations

import pytest

from aliquot_core.errors import UserError
from aliquot_core.problems import Problems
from aliquot_core.request import parse_request, read_request
from support.asking import NAMES, app, pod


def wrong_with(problems: Problems) -> list[str]:
    """Where each problem is, and what is wrong there."""
    return [f"{problem.where}: {problem.what}" for problem in problems.found]


def test_every_part_is_read_though_others_are_wrong() -> None:
    """Two values of one container, another container, three annotations and two labels: eight problems, in order."""
    problems = Problems()
    bad = pod(
        app("a", compute="0", memory="8Gi"),
        app("b", compute="1.5"),
        app("c", compute=50, memory=1000),
        notes={"compute-limit": "x", "placement": "close", "preemptible": "no"},
        labels={"queue": "A_B", "group": "g"},
    )
    request = read_request(bad, names=NAMES, problems=problems)
    assert wrong_with(problems) == [
        "annotation aliquot.dev/compute-limit: 'x' is not a number",
        "container a, aliquot.dev/compute: 0 is less than 1",
        "container a, aliquot.dev/memory: 8Gi has a unit of its own, but the number counts MiB already",
        "container b, aliquot.dev/compute: 1.5 is not a whole number",
        "annotation aliquot.dev/placement: 'close' is unknown",
        "annotation aliquot.dev/preemptible: 'no' is unknown",
        "label aliquot.dev/queue: 'A_B' can't be the name of a queue",
        "label aliquot.dev/group: group 'g' does not say how many pods it has",
    ]
    assert [asked.name for asked in request.containers] == ["c"]
    with pytest.raises(UserError) as first:
        parse_request(bad, names=NAMES)
    assert first.value.args == problems.found[0].args


def test_nothing_is_concluded_from_what_could_not_be_read() -> None:
    """`gpus` beside one best-effort container is a problem of its own, but not while another can't be read."""
    problems = Problems()
    read_request(pod(app("a", compute="x"), app("b", memory=9), notes={"gpus": "2"}), names=NAMES, problems=problems)
    assert wrong_with(problems) == ["container a, aliquot.dev/compute: 'x' is not a number"]
    problems = Problems()
    read_request(pod(app("b", memory=9), notes={"gpus": "2"}), names=NAMES, problems=problems)
    assert wrong_with(problems) == [
        "annotation aliquot.dev/gpus: divides compute over GPUs, but no container asks for compute"
    ]


def test_a_gpus_that_can_t_be_read_is_not_held_against_the_compute() -> None:
    """Whether 250 fits on so many GPUs is not known then."""
    problems = Problems()
    request = read_request(pod(app(compute=250), notes={"gpus": "0"}), names=NAMES, problems=problems)
    assert wrong_with(problems) == ["annotation aliquot.dev/gpus: 0 is less than 1"]
    assert [asked.gpus for asked in request.containers] == [None]
