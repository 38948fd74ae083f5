"""What values for nodes come to: how slices are held, by which workloads, and what each of those may do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot_agent import pulse_file
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.mps_settings import MpsSettings
from aliquot_agent.settings import AgentSettings
from aliquot_core.settings import Sources
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from cluster.charts import EVERYTHING, containers, environment, of_kind, template
from cluster.product_image import HOME

pytestmark = pytest.mark.usefixtures("helm_built")

DEVICE_LIST = "/var/run/nvidia-container-devices/all"


def test_the_agent_is_told_how_slices_are_held_and_where_containers_find_it() -> None:
    """Modes as the values say; and the folder that containers mount has the same path on the node."""
    objects = template(EVERYTHING)
    (told,) = (each for name, each in containers(objects) if name == "aliquot-agent")
    found = Sources(environment=environment(told)).resolve("agent", AgentSettings).value
    assert (found.isolation, found.isolation_of) == ("interposer", ("*T4*=observe", "0=interposer"))
    assert (found.context_mib, found.context_mib_of) == (300, ("*A100*=600", "1=450"))
    (mount,) = (each for each in told["volumeMounts"] if each["mountPath"] == found.isolation_folder)
    assert not mount.get("readOnly")
    volumes = of_kind(objects, "DaemonSet")["aliquot-agent"]["spec"]["template"]["spec"]["volumes"]
    (volume,) = (each for each in volumes if each["name"] == mount["name"])
    assert volume["hostPath"] == {"path": found.isolation_folder, "type": "DirectoryOrCreate"}


@pytest.mark.parametrize(
    ("node", "mib"),
    [
        ({}, 0),
        ({"isolation": "mps", "isolationOf": ["*interposer*=observe"]}, 0),
        ({"isolation": "interposer"}, 64),
        ({"isolationOf": ["0=interposer", "1=observe"]}, 64),
        ({"isolationOf": ["0=observe", "1=interposer"], "accountsMib": 96}, 96),
        ({"isolation": "interposer", "accountsMib": 0}, 0),
        ({"isolation": "interposer", "simulatedGpus": "2xA100-80GB"}, 0),
    ],
    ids=str,
)
def test_accounts_lie_on_a_file_system_of_their_own(node: dict[str, Any], mib: int) -> None:
    """Where a GPU is interposed: mounted on the node before the agent begins, and taken away by who withdraws."""
    objects = template({"node": node})
    agent = of_kind(objects, "DaemonSet")["aliquot-agent"]["spec"]["template"]["spec"]
    leaves = yaml.safe_load(of_kind(objects, "ConfigMap")["aliquot-withdraw"]["data"]["pod.yaml"])["spec"]
    flags = []
    for pod in (agent, leaves):
        for room in pod.get("initContainers", []):
            flags.append(room["args"][1])
            assert (room["securityContext"]["privileged"], room["securityContext"]["runAsUser"]) == (True, 0)
            found = Sources(environment=environment(room)).resolve("agent", AgentSettings).value
            assert (found.accounts_mib, found.wants("interposer")) == (mib, True)
            (mount,) = room["volumeMounts"]
            assert mount["mountPropagation"] == "Bidirectional"
            # The parent: what lies at the folder itself could not be unmounted from inside.
            assert mount["mountPath"] == str(Path(found.isolation_folder).parent)
            (volume,) = (each for each in pod["volumes"] if each["name"] == mount["name"])
            assert volume["hostPath"]["path"] == mount["mountPath"]
    assert flags == (["--make-room", "--take-room-away"] if mib else [])
    (told,) = (each for name, each in containers(objects) if name == "aliquot-agent" and each["name"] == "agent")
    assert told["resources"]["limits"]["memory"] == f"{256 + mib}Mi"
    found = Sources(environment=environment(told)).resolve("agent", AgentSettings).value
    assert found.accounts_mib == node.get("accountsMib", 64)


@pytest.mark.parametrize(
    ("node", "there"),
    [
        ({}, False),
        ({"isolation": "interposer", "isolationOf": ["*mps*=observe"]}, False),
        ({"isolation": "mps"}, True),
        ({"isolationOf": ["0=observe", "1=mps"]}, True),
        ({"isolationOf": ["1=mps", "0=observe"]}, True),
    ],
    ids=str,
)
def test_daemons_of_mps_are_kept_apart_from_the_agent(
    node: dict[str, Any],
    there: bool,
) -> None:
    """Where a GPU is to be shared so, one more workload is there, which nothing but a person replaces."""
    objects = template({"node": node})
    sets = of_kind(objects, "DaemonSet")
    assert ("aliquot-mps" in sets) is there
    agent = json.dumps(sets["aliquot-agent"])
    assert ("/run/aliquot/mps" in agent) is there
    if there:
        spec = sets["aliquot-mps"]["spec"]
        assert spec["updateStrategy"] == {"type": "OnDelete"}
        (told,) = (each for name, each in containers(objects) if name == "aliquot-mps")
        folder = Sources(environment=environment(told)).resolve("mps", MpsSettings).value.folder
        pod = spec["template"]["spec"]
        volumes = {each["name"]: each for each in pod["volumes"]}
        assert volumes["mps"]["hostPath"]["path"] == folder == AgentSettings().mps_folder
        for name, container in containers(objects):
            if name in {"aliquot-mps", "aliquot-agent"}:
                assert {"name": "mps", "mountPath": folder} in container["volumeMounts"]
        # What the daemons need of the node, and nothing of the API server; the node's own shared memory is not theirs.
        assert (pod["hostPID"], pod["automountServiceAccountToken"]) == (True, False)
        assert (told["securityContext"]["privileged"], told["securityContext"]["runAsUser"]) == (True, 0)
        assert "compute" in environment(told)["NVIDIA_DRIVER_CAPABILITIES"]
        assert volumes["shm"]["emptyDir"] == {"medium": "Memory"}


def test_who_opens_no_port_is_asked_by_what_it_touches_and_never_ended_for_it() -> None:
    """Its own file is looked at; a restart would fail pods that arrive, or end the work of all who use MPS."""
    told = dict(containers(template({"node": {"isolation": "mps"}})))
    keeper = Sources(environment=environment(told["aliquot-mps"])).resolve("mps", MpsSettings).value
    endpoint = Sources(environment=environment(told["aliquot-endpoint"])).resolve("endpoint", EndpointSettings).value
    asked = {"aliquot-mps": MpsFolder(Path(keeper.folder)).pulse(), "aliquot-endpoint": endpoint.pulse}
    for name, path in asked.items():
        assert "livenessProbe" not in told[name]
        python, *probe, file, allowed = told[name]["readinessProbe"]["exec"]["command"]
        assert (python, probe, file) == (f"{HOME}/bin/python", ["-P", "-m", pulse_file.__name__], str(path))
        assert float(allowed) > 5 * pulse_file.EVERY
        assert str(path.parent) in {mount["mountPath"] for mount in told[name]["volumeMounts"]}


@pytest.mark.parametrize(("value", "added"), [("report", None), ("stop", ["KILL"])])
def test_the_agent_may_end_processes_only_where_it_is_to(value: str, added: list[str] | None) -> None:
    """It is root without any capability, unless it is told to stop who uses a GPU without a grant."""
    (told,) = (each for name, each in containers(template({"node": {"ungranted": value}})) if name == "aliquot-agent")
    assert told["securityContext"]["capabilities"] == {"drop": ["ALL"]} | ({"add": added} if added else {})
    assert Sources(environment=environment(told)).resolve("agent", AgentSettings).value.ungranted == value


def test_simulated_gpus_want_no_runtime_of_nvidia_s() -> None:
    """So that anything can be tried on any cluster."""
    agent = of_kind(template({"node": {"simulatedGpus": "8xA100-80GB"}}), "DaemonSet")["aliquot-agent"]
    spec = agent["spec"]["template"]["spec"]
    assert "runtimeClassName" not in spec
    assert environment(spec["containers"][0])["ALIQUOT_AGENT_GPUS"] == "8xA100-80GB"
    assert DEVICE_LIST not in {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}


def test_the_agent_sees_gpus_also_where_the_runtime_heeds_no_variables() -> None:
    """As README has nodes set up: NVIDIA's runtime then believes what is mounted from /dev/null, and nothing else."""
    spec = of_kind(template({}), "DaemonSet")["aliquot-agent"]["spec"]["template"]["spec"]
    (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["mountPath"] == DEVICE_LIST]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert volume["hostPath"] == {"path": "/dev/null", "type": "CharDevice"}
