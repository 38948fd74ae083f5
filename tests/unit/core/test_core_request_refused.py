"""What is asked wrongly is refused so that it can be mended: its place, the value, and what to write."""

from __future__ import annotations

import pytest

from aliquot_core.errors import UserError
from aliquot_core.objects import Container, Pod
from aliquot_core.request import (
    parse_request,
)
from aliquot_core.request_rules import RequestError
from support.asking import NAMES, app, pod

# container, annotations, labels, where, what is wrong, what to write
REFUSED: dict[str, tuple[Container, dict[str, str], dict[str, str], str, str, str]] = {
    "compute 0": (app(compute="0"), {}, {}, "container main, aliquot.dev/compute", "0 is less than 1", "leave it out"),
    "compute -5": (app(compute="-5"), {}, {}, "container main, aliquot.dev/compute", "-5 is less", "at least 1"),
    "compute 0 beside memory": (
        app(compute=0, memory=8_000),
        {},
        {},
        *("container main, aliquot.dev/compute", "0 is less than 1", "leave it out"),
    ),
    "half a percent": (app(compute="500m"), {}, {}, "container main, aliquot.dev/compute", "500m", "whole percent"),
    "a unit on memory": (app(memory="8Gi"), {}, {}, "container main, aliquot.dev/memory", "8Gi", "write 8192 for 8Gi"),
    "bytes for memory": (app(memory="8G"), {}, {}, "container main, aliquot.dev/memory", "8G", "write 7630"),
    "memory 0": (app(compute=1, memory=0), {}, {}, "container main, aliquot.dev/memory", "0 is less", "leave it out"),
    "more than 64 GPUs": (
        app(compute=6_401),
        {},
        {},
        *(
            "container main, aliquot.dev/compute",
            "6401 % is more than 64 GPUs",
            "write 1 to 6400: 100 is one whole GPU",
        ),
    ),
    "a request alone": (
        app(requests={"compute": "30"}),
        {},
        {},
        *("container main, aliquot.dev/compute", "is requested without a limit", "under limits"),
    ),
    "a request of memory alone": (
        app(compute=30, requests={"memory": "8k"}),
        {},
        {},
        *("container main, aliquot.dev/memory", "is requested without a limit", "under limits"),
    ),
    "a request that differs": (
        app(compute="30", requests={"compute": "20"}),
        {},
        {},
        *("container main, aliquot.dev/compute", "request 20 is not limit 30", "drop the request"),
    ),
    "best effort alone": (
        app(best_effort=1),
        {},
        {},
        *("container main", "asks for neither compute nor memory", "set aliquot.dev/memory, or aliquot.dev/compute"),
    ),
    "best effort beside compute": (
        app(compute=30, memory=9, best_effort=1),
        {},
        {},
        *("container main", "asks for aliquot.dev/best-effort beside aliquot.dev/compute", "drop one"),
    ),
    "two of best effort": (
        app(memory=9, best_effort=2),
        {},
        {},
        *("container main, aliquot.dev/best-effort", "2 is not 1", "write 1"),
    ),
    "best effort none": (
        app(memory=9, best_effort=0),
        {},
        {},
        *("container main, aliquot.dev/best-effort", "0 is less than 1", "leave it out"),
    ),
    "250 on two GPUs": (
        app(compute=250),
        {"gpus": "2"},
        {},
        *("container main", "250 % does not fit on 2 GPUs", "at most 200, or raise aliquot.dev/gpus to 3"),
    ),
    "compute for fewer GPUs": (
        app(compute=7, memory=9),
        {"gpus": "8"},
        {},
        *("container main", "7 % is less than 1 for each of 8 GPUs", "lower aliquot.dev/gpus"),
    ),
    "memory for fewer GPUs": (
        app(compute=8, memory=7),
        {"gpus": "8"},
        {},
        *("container main", "7 MiB is less than 1 for each of 8 GPUs", "lower aliquot.dev/gpus"),
    ),
    "GPUs without compute": (
        app(memory=9),
        {"gpus": "2"},
        {},
        *("annotation aliquot.dev/gpus", "no container asks for compute", "set aliquot.dev/compute"),
    ),
    "no GPUs": (app(compute=9), {"gpus": "0"}, {}, "annotation aliquot.dev/gpus", "0 is less than 1", "leave it out"),
    "GPUs in words": (app(compute=9), {"gpus": "two"}, {}, "annotation aliquot.dev/gpus", "'two'", "whole GPUs"),
    "65 GPUs": (app(compute=99), {"gpus": "65"}, {}, "annotation aliquot.dev/gpus", "65 GPUs", "write 1 to 64"),
    "a limit below": (
        app(compute=30),
        {"compute-limit": "20"},
        {},
        *("container main, annotation aliquot.dev/compute-limit", "20 is less than the 30 %", "write 30 to 100"),
    ),
    "a limit above one GPU": (
        app(compute=30),
        {"compute-limit": "101"},
        {},
        *("container main, annotation aliquot.dev/compute-limit", "101 is more than its GPUs", "at most 100"),
    ),
    "a limit above three GPUs": (
        app(compute=250),
        {"compute-limit": "301"},
        {},
        *("container main, annotation aliquot.dev/compute-limit", "301 is more than its GPUs", "at most 300"),
    ),
    "a limit above two GPUs": (
        app(compute=20),
        {"compute-limit": "201", "gpus": "2"},
        {},
        *("container main, annotation aliquot.dev/compute-limit", "201 is more than its GPUs", "at most 200"),
    ),
    "a limit of best effort above one GPU": (
        app(memory=9),
        {"compute-limit": "150"},
        {},
        *("container main, annotation aliquot.dev/compute-limit", "150 is more than its GPUs", "at most 100"),
    ),
    "a limit with a sign": (
        app(compute=30),
        {"compute-limit": "80%"},
        {},
        *("annotation aliquot.dev/compute-limit", "'80%' is not a number", "whole percent"),
    ),
    "an unknown placement": (
        app(compute=30),
        {"placement": "Pack"},
        {},
        *("annotation aliquot.dev/placement", "'Pack' is unknown", "write pack or spread"),
    ),
    "placement without a word": (
        app(compute=30),
        {"placement": ""},
        {},
        *("annotation aliquot.dev/placement", "'' is unknown", "write pack or spread"),
    ),
    "preemptible in another case": (
        app(compute=30),
        {"preemptible": "False"},
        {},
        *("annotation aliquot.dev/preemptible", "'False' is unknown", 'write "true" or "false"'),
    ),
    "preemptible without a word": (
        app(compute=30),
        {"preemptible": ""},
        {},
        *("annotation aliquot.dev/preemptible", "'' is unknown", 'write "true" or "false"'),
    ),
    "an isolation of two words": (
        app(compute=30),
        {"isolation": "very hard"},
        {},
        *("annotation aliquot.dev/isolation", "'very hard' is no mode", "one of observe, interposer, mps, mig"),
    ),
    "an isolation in capitals": (
        app(compute=30),
        {"isolation": "MPS"},
        {},
        *("annotation aliquot.dev/isolation", "'MPS' is no mode", "one of observe, interposer, mps, mig"),
    ),
    "models with a gap": (
        app(compute=30),
        {"gpu-model": "A100*,,H100*"},
        {},
        *("annotation aliquot.dev/gpu-model", "has an empty entry", "between the commas"),
    ),
    "a uuid forbidden twice": (
        app(compute=30),
        {"gpu-uuid": "!!GPU-1"},
        {},
        *("annotation aliquot.dev/gpu-uuid", "'!!GPU-1' forbids twice", "one !"),
    ),
    "an unknown use": (
        app(compute=30),
        {},
        {"use": "some"},
        "label aliquot.dev/use",
        "'some' is unknown",
        "write none",
    ),
    "a queue that can't be": (
        app(compute=30),
        {},
        {"queue": "Team_A"},
        *("label aliquot.dev/queue", "'Team_A' can't be the name of a queue", "the name of a Queue"),
    ),
    "a group without size": (
        app(compute=30),
        {},
        {"group": "train"},
        *("label aliquot.dev/group", "'train' does not say how many pods", "set the annotation aliquot.dev/group-size"),
    ),
}


@pytest.mark.parametrize("row", REFUSED)
def test_a_bad_value_is_refused_with_place_value_and_remedy(row: str) -> None:
    """An author must be able to mend it from the sentence alone."""
    container, notes, labels, where, wrong, advice = REFUSED[row]
    with pytest.raises(UserError) as caught:
        parse_request(pod(container, notes=notes, labels=labels), names=NAMES)
    assert caught.value.where == where
    assert wrong in caught.value.what
    assert advice in caught.value.remedy
    assert str(caught.value) == f"{where}: {caught.value.what}; {caught.value.remedy}"


LONG = "x" * 5_000


@pytest.mark.parametrize(
    "asking",
    [
        pod(app(compute=LONG)),
        pod(app(compute="1", requests={"compute": LONG})),
        *(
            pod(app(compute="1"), notes={note: LONG + " "})
            for note in ("gpus", "compute-limit", "placement", "preemptible", "isolation", "gpu-model", "gpu-uuid")
        ),
        pod(app(compute="1"), labels={"use": LONG}),
        pod(app(compute="1"), labels={"queue": LONG}),
    ],
)
def test_an_error_stays_short_however_long_the_value(asking: Pod) -> None:
    """It becomes an Event, a condition and a log line."""
    with pytest.raises(UserError) as caught:
        parse_request(asking, names=NAMES)
    assert len(str(caught.value)) < 300


def test_a_limit_below_one_of_several_containers_names_that_container() -> None:
    """The annotation is the pod's, but the sentence must say which container contradicts it."""
    with pytest.raises(RequestError, match=r"container b, annotation .*: 40 is less than the 50 % asked for"):
        parse_request(pod(app("a", compute=30), app("b", compute=50), notes={"compute-limit": "40"}), names=NAMES)
