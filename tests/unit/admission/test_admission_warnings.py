"""What a pod says in vain, or may wait for without an end, is told its author; it comes in."""

from __future__ import annotations

import pytest

from aliquot_core.counting import NAMED
from aliquot_scheduler.picture.there import there_in
from support.admitting import NAMES, container, mutated, written
from support.centre import gpus, make_node, picture_with
from support.judging import warnings

A100 = ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "A100-SXM4-80GB")
L4 = ("NVIDIA L4", "NVIDIA-L4", "L4")


def test_a_model_that_nobody_has_is_told_with_those_there_are() -> None:
    """A node with it may come, so the pod may wait; any name of a model will do."""
    pod = written(container(compute="30"), notes={"gpu-model": "H100*"})
    assert warnings(pod, models=[A100, L4]) == [
        "annotation aliquot.dev/gpu-model: no GPU of this cluster will do; there are A100-SXM4-80GB, L4"
    ]
    assert warnings(pod) == []
    hint = "for a part of a name write *A100*, *SXM4*"
    part = written(container(compute="30"), notes={"gpu-model": "a100,sxm4,H100"})
    assert warnings(part, models=[A100, L4]) == [
        f"annotation {NAMES.gpu_model}: no GPU of this cluster will do; there are A100-SXM4-80GB, L4; {hint}"
    ]
    for pattern in ("a100*", "NVIDIA-L4", "!A100*"):
        assert warnings(written(container(compute="30"), notes={"gpu-model": pattern}), models=[A100, L4]) == []


def test_a_uuid_and_a_node_that_are_not_there_are_told() -> None:
    """Both may come, so the pod may wait; where nothing is known nothing is said."""
    there = there_in(picture_with(make_node("n1", gpus("n1", 2))))
    asks = container(compute="30")
    assert warnings(written(asks, notes={"gpu-uuid": "GPU-n2-*"}), there=there) == [
        "annotation aliquot.dev/gpu-uuid: no GPU of this cluster will do, so the pod may wait for ever"
    ]
    assert warnings(mutated(written(asks, nodeName="zzz")), there=there) == [
        "there is no node zzz, so the pod may wait for ever"
    ]
    for fine in (written(asks, notes={"gpu-uuid": "!GPU-n1-0"}), mutated(written(asks, nodeName="n1")), written(asks)):
        assert warnings(fine, there=there) == []
    assert warnings(mutated(written(asks, notes={"gpu-uuid": "x"}, nodeName="zzz"))) == []


def test_a_long_list_of_models_is_cut() -> None:
    """A warning may have 256 characters."""
    models = [(f"M{number:02}",) for number in range(NAMED + 3)]
    (warning,) = warnings(written(container(compute="30"), notes={"gpu-model": "X"}), models=models)
    assert warning.endswith("M06, M07 and 3 more")


def test_variables_that_are_set_in_vain_are_told() -> None:
    """The slice's own win."""
    pod = written({**container(compute="30"), "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
    assert warnings(pod) == ["container main: NVIDIA_VISIBLE_DEVICES is set in vain: what the slice says wins"]


def test_what_is_said_without_asking_is_told() -> None:
    """Annotations and a group do nothing for a pod without a slice."""
    pod = written(container(), notes={"gpus": "2", "group-size": "2"}, labels={"group": "g", "queue": "q"})
    asks = "does nothing: no container asks for aliquot.dev/compute or aliquot.dev/memory"
    assert warnings(pod) == [
        f"label aliquot.dev/group {asks}",
        f"annotation aliquot.dev/gpus {asks}",
        f"annotation aliquot.dev/group-size {asks}",
    ]


STRANGE = [
    ("labels", "que", "label aliquot.dev/que does nothing: did you mean aliquot.dev/queue?"),
    ("labels", "gpus", "label aliquot.dev/gpus does nothing: write it as annotation"),
    ("labels", "zone", "label aliquot.dev/zone does nothing: no label of that name is read"),
    ("annotations", "gpumodel", "annotation aliquot.dev/gpumodel does nothing: did you mean aliquot.dev/gpu-model?"),
    ("annotations", "queue", "annotation aliquot.dev/queue does nothing: write it as label"),
]


@pytest.mark.parametrize(("section", "key", "told"), STRANGE)
def test_what_nobody_reads_is_told(section: str, key: str, told: str) -> None:
    """Whether the pod asks for a slice or not: most often it is a slip of the pen."""
    for pod in (written(container(compute="30")), written(container())):
        pod["metadata"][section] = {NAMES.of(key): "1"}
        assert warnings(pod) == [told]


def test_what_others_and_aliquot_itself_write_is_not_told_as_strange() -> None:
    """Other domains, whose a pod is, and what the centre counts."""
    pod = written(container(compute="30"), notes={"turn": "1", "room": "{}"}, labels={"user": "ann"})
    pod["metadata"]["annotations"] |= {"example.com/gpus": "1", "x.aliquot.dev/gpus": "1"}
    assert warnings(pod) == []
