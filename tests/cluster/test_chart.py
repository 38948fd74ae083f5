"""The chart: which values it takes, what is refused, and that the plain manifests are what it renders."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from aliquot_cli.sections import SECTIONS
from aliquot_core.names import LEADER_LEASE, LONGEST_NAME, PACE_LEASE, Names
from aliquot_core.settings import Sources
from cluster.charts import (
    CHART,
    EVERYTHING,
    WORKLOADS,
    containers,
    environment,
    helm,
    of_kind,
    stale_manifests,
    template,
)
from cluster.installed import SYSTEM
from cluster.product_image import ROOT

pytestmark = pytest.mark.usefixtures("helm_built")


def test_the_plain_manifests_are_what_the_chart_renders() -> None:
    """One source: whoever edits one and forgets the other is told which files to render anew."""
    assert stale_manifests() == []


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_the_chart_is_clean(values: dict[str, Any]) -> None:
    """By Helm's own lint, warnings included."""
    told = helm("lint", str(CHART), "--strict", values=values)
    assert told.returncode == 0, told.stdout
    assert "[WARNING]" not in told.stdout + told.stderr


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replica": 3}, "'replica' not allowed"),
        ({"domain": "aliquot"}, "/domain"),
        ({"centre": {"replicas": 0}}, "/centre/replicas"),
        ({"centre": {"replicas": "two"}}, "/centre/replicas"),
        ({"centre": {"callers": ["anybody"]}}, "/centre/callers/0"),
        ({"images": {"node": "aliquot"}}, "/images/node"),
        ({"images": {"nodes": "aliquot:1"}}, "'nodes' not allowed"),
        ({"waysRound": "deny"}, "/waysRound"),
        ({"evictionByPriority": "Allow"}, "/evictionByPriority"),
        ({"criticalClasses": "Allow"}, "/criticalClasses"),
        ({"kubeSchedulerUsers": []}, "/kubeSchedulerUsers"),
        ({"kubeSchedulerUsers": ["o'hara"]}, "/kubeSchedulerUsers/0"),
        ({"certificates": "mine"}, "/certificates"),
        ({"node": {"simulatedGpus": "A100"}}, "/node/simulatedGpus"),
        ({"node": {"isolation": "mig"}}, "/node/isolation"),
        ({"node": {"isolationOf": ["0=mig"]}}, "/node/isolationOf/0"),
        ({"node": {"contextMib": 0}}, "/node/contextMib"),
        ({"node": {"contextMibOf": ["0=0"]}}, "/node/contextMibOf/0"),
        ({"node": {"contextMibOf": ["0=16385"]}}, "/node/contextMibOf/0"),
        ({"node": {"settings": {"agent": 3}}}, "/node/settings/agent"),
        ({"monitoring": {"interval": "often"}}, "/monitoring/interval"),
        ({"centre": {"callers": ["10.0.0.0/33"]}}, "/centre/callers/0"),
        ({"centre": {"callers": ["10.0.0.256/32"]}}, "/centre/callers/0"),
        ({"centre": {"callers": ["fd00::/129"]}}, "/centre/callers/0"),
        ({"centre": {"settings": {"nope": {"x": 1}}}}, "'nope' not allowed"),
        ({"centre": {"settings": {"agent": {"drain": 20}}}}, "'agent' not allowed"),
        ({"centre": {"settings": {"election": {"request": 61}}}}, "/centre/settings/election/request"),
        ({"centre": {"settings": {"web": {"port": 8443}}}}, "'port' not allowed"),
        ({"centre": {"settings": {"web": {"drain": 61}}}}, "/centre/settings/web/drain"),
        ({"centre": {"settings": {"web": {"status_port": 99999}}}}, "'status_port' not allowed"),
        ({"centre": {"settings": {"queues": {"half_life": -1}}}}, "/centre/settings/queues/half_life"),
        ({"centre": {"settings": {"queues": {"half_live": 1}}}}, "'half_live' not allowed"),
        ({"centre": {"settings": {"rules": {"expressions": [{"cost": "0.1"}]}}}}, "/rules/expressions/0"),
        (
            {"centre": {"settings": {"admission": {"scheduler_name": "default-scheduler"}}}},
            "our kube-scheduler would take every pod",
        ),
        ({"node": {"settings": {"agent": {"http_port": 10950}}}}, "'http_port' not allowed"),
        ({"node": {"settings": {"names": {"domain": "a.b"}}}}, "'names' not allowed"),
    ],
    ids=str,
)
def test_a_bad_value_is_named(values: dict[str, Any], told: str) -> None:
    """Before anything is applied, with the place where it stands."""
    done = helm("template", "aliquot", str(CHART), f"--namespace={SYSTEM}", values=values)
    assert done.returncode != 0
    assert told in done.stderr


@pytest.mark.parametrize("namespace", ["kube-system", "kube-node-lease", "kube-public", "default"])
def test_a_namespace_of_kubernetes_own_is_refused(namespace: str) -> None:
    """There our guards would be in everybody's way, and uninstalling would take everybody's things."""
    done = helm("template", "aliquot", str(CHART), f"--namespace={namespace}", values={})
    assert done.returncode != 0
    assert f"the namespace {namespace} is Kubernetes' own" in done.stderr


@pytest.mark.parametrize("domain", ["nvidia.com", "mig.nvidia.com", "kubernetes.io", "node.k8s.io", "amd.com"])
def test_a_domain_of_others_is_refused(domain: str) -> None:
    """Their device plugins and Kubernetes itself write names of it, which the guards would refuse them."""
    done = helm("template", "aliquot", str(CHART), f"--namespace={SYSTEM}", values={"domain": domain})
    assert done.returncode != 0
    assert f"domain is {domain}, and names of" in done.stderr
    assert template({"domain": f"{domain.partition('.')[0]}.example.org"})


def test_of_leases_those_that_aliquot_writes_are_guarded() -> None:
    """By their names, as the code makes them; whoever else lives in the namespace has Leases of their own."""
    policy = of_kind(template(namespace="gpus"), "ValidatingAdmissionPolicy")["aliquot-guard-leases"]
    (ours, _) = policy["spec"]["matchConditions"]
    names = Names(namespace="gpus")
    marked = LONGEST_NAME - len("node-")
    assert f"name in ['{LEADER_LEASE}', '{PACE_LEASE}']" in ours["expression"]
    assert f"name.startsWith('{names.lease('n').removesuffix('n')}')" in ours["expression"]
    assert f"name.size() > {marked}" in ours["expression"]
    assert names.lease("n" * marked).startswith("node-")
    assert names.lease("n" * (marked + 1)) == "n" * (marked + 1)


def test_all_names_follow_domain_and_namespace() -> None:
    """Nothing of the usual names is left over, and every process of ours is told."""
    objects = template(EVERYTHING, namespace="elsewhere")
    text = json.dumps(objects)
    assert "aliquot.dev" not in text
    assert "aliquot-system" not in text
    for name, container in containers(objects):
        if name != "aliquot-kube-scheduler":
            told = environment(container)
            names = told["ALIQUOT_NAMES_DOMAIN"], told["ALIQUOT_NAMES_NAMESPACE"]
            assert names == ("gpus.example.org", "elsewhere")


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_the_processes_take_what_they_are_told(values: dict[str, Any]) -> None:
    """Each variable is a setting, of a value that it may have."""
    for _, container in containers(template(values)):
        sources = Sources(environment=environment(container) | {"ALIQUOT_WEB_STATUS_ADDRESS": "::1"})
        sources.check_names(SECTIONS)
        resolved = {section: sources.resolve(section, kind).value for section, kind in SECTIONS.items()}
        assert resolved["names"] is not None


def test_large_numbers_are_written_out() -> None:
    """Helm reads numbers of a file as fractions, and would write a million as 1e+06, which is no whole number."""
    settings = {"admission": {"least_memory": 1_000_000}, "scheduler": {"promise": 60.5}}
    objects = template({"centre": {"settings": settings}})
    (told,) = (each for name, each in containers(objects) if name == "aliquot-scheduler")
    found = environment(told)
    assert found["ALIQUOT_ADMISSION_LEAST_MEMORY"] == "1000000"
    assert found["ALIQUOT_SCHEDULER_PROMISE"] == "60.5"


def test_images_are_pulled_as_said() -> None:
    """Each workload's own, by the policy and with the Secrets that were named; so is the pod by which a node leaves."""
    objects = template(EVERYTHING)
    asked = {name: (container["image"], container["imagePullPolicy"]) for name, container in containers(objects)}
    node = ("registry.example:5000/aliquot:1", "Always")
    assert asked["aliquot-endpoint"] == asked["aliquot-agent"] == node
    assert asked["aliquot-scheduler"][0].startswith("aliquot-scheduler:")
    assert asked["aliquot-kube-scheduler"][0].startswith("kube-scheduler:")
    specs = [each["spec"]["template"]["spec"] for each in of_kind(objects, *WORKLOADS).values()]
    leaves = yaml.safe_load(of_kind(objects, "ConfigMap")["aliquot-withdraw"]["data"]["pod.yaml"])["spec"]
    assert all(spec["imagePullSecrets"] == [{"name": "mine"}] for spec in (*specs, leaves))
    assert (leaves["containers"][0]["image"], leaves["containers"][0]["imagePullPolicy"]) == node


def test_every_object_says_whose_it_is() -> None:
    """By this label all of them are found again, to be taken away."""
    for each in template({"monitoring": {"enabled": True}}):
        assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "aliquot", each["metadata"]["name"]


def test_the_chart_is_of_this_version() -> None:
    """And so are the images that it names."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    images = yaml.safe_load((CHART / "values.yaml").read_text())["images"]
    assert (about["version"], about["appVersion"]) == (version, version)
    assert (images["node"], images["centre"]) == (f"aliquot:{version}", f"aliquot-scheduler:{version}")
