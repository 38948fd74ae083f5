"""Pods that reach for what only a grant gives."""

from __future__ import annotations

import pytest

from aliquot_core.impostors import names_our_device, sets_our_variables
from aliquot_core.names import Names
from aliquot_core.objects import Container, EnvVar, ObjectMeta, Pod, PodSpec, ResourceRequirements

NAMES = Names()


def annotated(**annotations: str) -> Pod:
    """A pod with one annotation for each keyword, `__` standing for a slash."""
    return Pod(metadata=ObjectMeta(annotations={key.replace("__", "/"): text for key, text in annotations.items()}))


@pytest.mark.parametrize(
    ("annotations", "devices"),
    [
        ({"cdi.k8s.io/x": "aliquot.dev/slice=t0"}, ["aliquot.dev/slice=t0"]),
        (
            {"cdi.k8s.io/x": "vendor.com/a=b,aliquot.dev/slice=t0,aliquot.dev/slice=t1"},
            ["aliquot.dev/slice=t0", "aliquot.dev/slice=t1"],
        ),
        ({"cdi-devices.nri.io/container.main": "- aliquot.dev/slice=t0\n"}, ["aliquot.dev/slice=t0"]),
        ({"cdi-devices.nri.io/pod": '["aliquot.dev/slice=t0"]'}, ["aliquot.dev/slice=t0"]),
        ({"cdi-devices.noderesource.dev/pod": "aliquot.dev/slice=t0"}, ["aliquot.dev/slice=t0"]),
        ({"cdi.k8s.io/x": "nvidia.com/gpu=all"}, []),
        ({"cdi.k8s.io/x": "evilaliquot.dev/slice=t0"}, []),
        ({"example.com/note": "aliquot.dev/slice=t0"}, []),
        ({"aliquot.dev/grant": '{"v":1}'}, []),
        ({}, []),
    ],
)
def test_annotations_that_name_our_devices_are_found(annotations: dict[str, str], devices: list[str]) -> None:
    """On the keys that runtimes and their plugins read, in any of the ways they are written."""
    pod = Pod(metadata=ObjectMeta(annotations=annotations))
    assert [found.split(": ")[1] for found in names_our_device(pod, names=NAMES)] == devices


def test_the_annotation_is_named_to_the_user() -> None:
    """The message for the Event says which annotation it was."""
    assert names_our_device(annotated(cdi_x="", cdi__x="aliquot.dev/slice=t0"), names=NAMES) == [
        "cdi/x: aliquot.dev/slice=t0"
    ]


def test_the_kind_follows_the_domain() -> None:
    """Another installation's devices are not ours."""
    pod = Pod(metadata=ObjectMeta(annotations={"cdi.k8s.io/x": "aliquot.dev/slice=t0"}))
    assert names_our_device(pod, names=Names(domain="gpu.example.com")) == []


def test_variables_of_ours_are_found_in_every_container() -> None:
    """Init containers too; what merely looks like one, and a container whose slice can't win, is left alone."""
    held = ResourceRequirements(limits={NAMES.compute: "30"})
    all_of_them = [EnvVar(name="NVIDIA_VISIBLE_DEVICES", value="all")]
    pod = Pod(
        spec=PodSpec(
            init_containers=[Container(name="init", env=all_of_them, resources=held)],
            containers=[
                Container(
                    name="main",
                    env=[EnvVar(name="ALIQUOT_MEMORY", value="1"), EnvVar(name="MY_ALIQUOT_MEMORY", value="1")],
                    resources=held,
                ),
                Container(name="side", env=[EnvVar(name="ALIQUOT_WHATEVER")], resources=held),
                Container(name="without", env=all_of_them),
            ],
        )
    )
    assert sets_our_variables(pod, names=NAMES) == [
        "init: NVIDIA_VISIBLE_DEVICES",
        "main: ALIQUOT_MEMORY",
        "side: ALIQUOT_WHATEVER",
    ]
