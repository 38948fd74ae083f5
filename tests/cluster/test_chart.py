"""The chart: what its values do, what is refused, and that the plain manifests are what it renders."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot_agent import pulse_file
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.mps_settings import MpsSettings
from aliquot_agent.settings import AgentSettings
from aliquot_cli.sections import SECTIONS
from aliquot_core.names import LEADER_LEASE, LONGEST_NAME, PACE_LEASE, Names
from aliquot_core.settings import Sources
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_scheduler.admission.profile import at_odds
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.sparing import SPARE
from aliquot_scheduler.certificates.settings import CENTRE, KUBE_SCHEDULER
from aliquot_scheduler.rules.expressions import RuleSettings
from cluster.charts import CHART, helm, stale_manifests, template
from cluster.harness import binaries
from cluster.harness.api import Json
from cluster.installed import SYSTEM
from cluster.product_image import HOME, ROOT
from support.require import skip_or_fail

WORKLOADS = ("DaemonSet", "Deployment")
DEVICE_LIST = "/var/run/nvidia-container-devices/all"
EXPRESSIONS = [
    {"name": "a", "cost": "size([1, 2]) == 2 ? 0.1 : 0.0", "why": 'it\'s "far"'},
    {"name": "b", "refuse": "false"},
]
RULES = {"expressions": EXPRESSIONS}
EVERYTHING: dict[str, Any] = {
    "domain": "gpus.example.org",
    "makeNamespace": True,
    "images": {"node": "registry.example:5000/aliquot:1", "pullPolicy": "Always", "pullSecrets": ["mine"]},
    "node": {
        "simulatedGpus": "4xH100-80GB",
        "isolation": "interposer",
        "isolationOf": ["*T4*=observe", "0=interposer"],
        "contextMib": 300,
        "contextMibOf": ["*A100*=600", "1=450"],
        "ungranted": "stop",
        "settings": {"health": {"xids": ["31=degraded", "other=ignored"]}},
    },
    "centre": {
        "replicas": 3,
        "callers": ["10.0.0.0/28"],
        "settings": {"scheduler": {"promise": 60}, "admission": {"least_memory": 0}, "rules": RULES},
    },
    "certificates": "cert-manager",
    "waysRound": "Deny",
    "evictionByPriority": "Deny",
    "kubeSchedulerUsers": ["system:kube-scheduler", "gke:scheduler"],
    "monitoring": {"enabled": True, "labels": {"release": "prometheus"}},
}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Skip, or fail where the cluster is required, unless helm is there."""
    if binaries.find("helm") is None:
        skip_or_fail("cluster", "helm is not built: run tests/cluster/binaries/build helm")


def of_kind(objects: list[Json], *kinds: str) -> dict[str, Json]:
    """Those objects by their names."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] in kinds}


def containers(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """The container of each workload, and the workload's name."""
    for name, each in of_kind(objects, *WORKLOADS).items():
        (container,) = each["spec"]["template"]["spec"]["containers"]
        yield name, container


def environment(container: Json) -> dict[str, str]:
    """Its variables; of those that the kubelet fills in, nothing but that they are there."""
    return {each["name"]: each.get("value", "filled-in") for each in container.get("env", [])}


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


def test_rules_in_cel_reach_the_centre_whole() -> None:
    """With their commas and quotes: a list of objects is JSON in a variable."""
    (told,) = (each for name, each in containers(template(EVERYTHING)) if name == "aliquot-scheduler")
    found = Sources(environment=environment(told)).resolve("rules", RuleSettings).value
    assert found == msgspec.convert(RULES, RuleSettings)


def test_large_numbers_are_written_out() -> None:
    """Helm reads numbers of a file as fractions, and would write a million as 1e+06, which is no whole number."""
    settings = {"admission": {"least_memory": 1_000_000}, "scheduler": {"promise": 60.5}}
    objects = template({"centre": {"settings": settings}})
    (told,) = (each for name, each in containers(objects) if name == "aliquot-scheduler")
    found = environment(told)
    assert found["ALIQUOT_ADMISSION_LEAST_MEMORY"] == "1000000"
    assert found["ALIQUOT_SCHEDULER_PROMISE"] == "60.5"


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


def test_cert_manager_makes_what_the_centre_and_its_callers_show() -> None:
    """Under the names that the code asks for; the centre then needs no right to any Secret or webhook."""
    objects = template({"certificates": "cert-manager"})
    made = {each["spec"]["secretName"]: each["spec"] for each in of_kind(objects, "Certificate").values()}
    assert made["aliquot-tls"]["commonName"] == CENTRE
    assert {CENTRE, "aliquot-scheduler.aliquot-system.svc"} <= set(made["aliquot-tls"]["dnsNames"])
    assert {"server auth", "client auth"} <= set(made["aliquot-tls"]["usages"])
    assert made["aliquot-kube-scheduler-tls"]["commonName"] == KUBE_SCHEDULER
    for deployment, secret in (
        ("aliquot-scheduler", "aliquot-tls"),
        ("aliquot-kube-scheduler", "aliquot-kube-scheduler-tls"),
    ):
        volumes = of_kind(objects, "Deployment")[deployment]["spec"]["template"]["spec"]["volumes"]
        assert secret in [each.get("secret", {}).get("secretName") for each in volumes]
    for each in of_kind(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration").values():
        assert each["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "aliquot-system/aliquot-tls"}
    assert of_kind(objects, "Secret") == {}
    roles = json.dumps([each["rules"] for each in of_kind(objects, "Role", "ClusterRole").values()])
    assert "secrets" not in roles
    assert "webhookconfigurations" not in roles


@pytest.mark.parametrize(("seconds", "may"), [(None, False), (0, False), (0.5, True), (600, True)])
def test_the_centre_may_delete_pods_only_where_budgets_are_set_aside(seconds: float | None, *, may: bool) -> None:
    """It evicts all others, as budgets allow."""
    queues = {} if seconds is None else {"queues": {"budget_grace": seconds}}
    objects = template({"centre": {"settings": queues}})
    roles = of_kind(objects, "ClusterRole", "Role")
    found = {name for name, role in roles.items() for rule in role["rules"] if _deletes_pods(rule)}
    assert found == ({"aliquot-scheduler-budgets"} if may else set())
    if may:
        binding = of_kind(objects, "ClusterRoleBinding")["aliquot-scheduler-budgets"]
        assert binding["roleRef"]["name"] == "aliquot-scheduler-budgets"
        assert [one["name"] for one in binding["subjects"]] == ["aliquot-scheduler"]


def _deletes_pods(rule: Json) -> bool:
    return "pods" in rule.get("resources", ()) and not {"delete", "deletecollection", "*"}.isdisjoint(rule["verbs"])


@pytest.mark.parametrize(
    ("value", "kubernetes", "asked"),
    [
        ("Warn", "1.36.3", False),
        ("Deny", "1.36.3", True),
        ("Deny", "1.30.0", True),
        ("Auto", "1.36.3", True),
        ("Auto", "1.35.0-gke.1", True),
        ("Auto", "1.34.9", False),
    ],
)
def test_evictions_by_priority_are_told_and_refused_where_that_is_wanted(
    value: str, kubernetes: str, *, asked: bool
) -> None:
    """Of all whom the values name as kube-schedulers; and by the centre alone, which says what ends their tries."""
    values = {"evictionByPriority": value, "kubeSchedulerUsers": ["system:kube-scheduler", "mine"]}
    objects, name = template(values, kubernetes=kubernetes), "aliquot-evictions"
    actions = of_kind(objects, "ValidatingAdmissionPolicyBinding")[name]["spec"]["validationActions"]
    assert actions == ["Warn", "Audit"]
    told = of_kind(objects, "ValidatingAdmissionPolicy")[name]["spec"]["matchConditions"]
    assert told[0]["expression"] == "request.userInfo.username in ['system:kube-scheduler','mine']"
    webhooks = of_kind(objects, "ValidatingWebhookConfiguration")["aliquot"]["webhooks"]
    found = [one for one in webhooks if one["name"] == "evictions.aliquot.dev"]
    assert [(one["clientConfig"]["service"]["path"], one["failurePolicy"]) for one in found] == (
        [(SPARE, "Ignore")] if asked else []
    )
    assert all(one["matchConditions"][:2] == told for one in found)
    (container,) = of_kind(objects, "Deployment")["aliquot-scheduler"]["spec"]["template"]["spec"]["containers"]
    knows = {one["name"]: one.get("value") for one in container["env"]}.get("ALIQUOT_SCHEDULER_EVICTIONS_DENIED")
    assert knows == ("true" if asked else None)


@pytest.mark.parametrize(
    ("value", "denied", "warned"),
    [
        ("Warn", ("In", ["deny"]), ("NotIn", ["allow", "deny"])),
        ("Deny", ("NotIn", ["allow", "warn"]), ("In", ["warn"])),
    ],
)
def test_ways_round_are_warned_of_or_refused(
    value: str, denied: tuple[str, list[str]], warned: tuple[str, list[str]]
) -> None:
    """Each namespace is under just one of the two, and a label chooses otherwise."""
    bindings = of_kind(template({"waysRound": value}), "ValidatingAdmissionPolicyBinding")
    for name, actions, chosen in (
        ("aliquot-ways-round-deny", ["Deny"], denied),
        ("aliquot-ways-round-warn", ["Warn", "Audit"], warned),
    ):
        spec = bindings[name]["spec"]
        (expression,) = spec["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert (spec["validationActions"], (expression["operator"], expression["values"])) == (actions, chosen)


def test_without_our_kube_scheduler_nothing_of_it_is_left() -> None:
    """Where the cluster's own has the profile."""
    assert "aliquot-kube-scheduler" not in json.dumps(template({"kubeScheduler": {"enabled": False}}))


@pytest.mark.parametrize(
    ("values", "profile", "told"),
    [
        ({}, "aliquot", None),
        ({"centre": {"settings": {"admission": {"scheduler_name": "gpus"}}}}, "gpus", "gpus"),
        ({"kubeScheduler": {"enabled": False}}, None, ""),
        (
            {
                "kubeScheduler": {"enabled": False},
                "centre": {"settings": {"admission": {"scheduler_name": "default-scheduler"}}},
            },
            None,
            "",
        ),
    ],
)
def test_pods_are_given_to_the_profile_that_is_installed(values: Json, profile: str | None, told: str | None) -> None:
    """Whatever it is called; where none is, the centre knows that the cluster's own has to have it."""
    objects = template(values)
    configs = of_kind(objects, "ConfigMap").values()
    texts = [one["data"]["kube-scheduler.yaml"] for one in configs if "kube-scheduler.yaml" in one.get("data", {})]
    assert [yaml.safe_load(text)["profiles"][0]["schedulerName"] for text in texts] == ([profile] if profile else [])
    sources = Sources(environment=environment(dict(containers(objects))["aliquot-scheduler"]))
    settings = sources.resolve("admission", AdmissionSettings).value
    assert settings.profile == ("aliquot" if told is None else told)
    assert at_odds(settings) == ""


def test_of_several_replicas_one_always_stays() -> None:
    """Whoever drains nodes waits: without a kube-scheduler nothing is placed, without the centre nothing is let in."""
    budgets = of_kind(template(), "PodDisruptionBudget")
    for name, deployment in of_kind(template(), "Deployment").items():
        spec = budgets.pop(name)["spec"]
        assert spec["minAvailable"] == 1 < deployment["spec"]["replicas"]
        assert spec["selector"] == deployment["spec"]["selector"]
    assert not budgets


LEAVES: dict[str, tuple[Json, int]] = {
    "as installed": ({}, 20),
    "it drains for longer": ({"web": {"drain": 7.5}}, 25),
    "as long as may be": ({"web": {"drain": 60, "leave": 60}}, 187),
    "the Lease takes longer than that": ({"web": {"drain": 2}, "election": {"request": 4.2, "duration": 30}}, 26),
    "the Lease takes no longer": ({"web": {"drain": 8.5}, "election": {"request": 4.5, "duration": 30}}, 26),
}


@pytest.mark.parametrize("row", LEAVES)
def test_a_replica_has_as_long_to_leave_as_its_settings_say(row: str) -> None:
    """Killed before, it would lose calls and hold its Lease."""
    settings, seconds = LEAVES[row]
    objects = template({"centre": {"settings": settings}})
    spec = of_kind(objects, "Deployment")["aliquot-scheduler"]["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ({"centre": {"replicas": 1}}, "aliquot-kube-scheduler"),
        ({"kubeScheduler": {"replicas": 1}}, "aliquot-scheduler"),
    ],
)
def test_one_replica_alone_may_be_evicted(values: Json, left: str) -> None:
    """A budget over a single one would keep its node from ever being drained."""
    assert set(of_kind(template(values), "PodDisruptionBudget")) == {left}


def test_only_those_who_have_to_call_the_centre_may_where_they_are_named() -> None:
    """Its own pods always; metrics and probes stay open. Nobody is kept out where nobody knows who has to come in."""
    assert not of_kind(template(), "NetworkPolicy")
    (policy,) = of_kind(template({"centre": {"callers": ["10.0.0.1/32", "fd00::/64"]}}), "NetworkPolicy").values()
    status, calls = policy["spec"]["ingress"]
    assert status == {"ports": [{"port": "http"}]}
    assert calls["ports"] == [{"port": "https"}]
    pods, *addresses = calls["from"]
    names = {"aliquot-scheduler", "aliquot-kube-scheduler"}
    assert set(pods["podSelector"]["matchExpressions"][0]["values"]) == names
    assert addresses == [{"ipBlock": {"cidr": "10.0.0.1/32"}}, {"ipBlock": {"cidr": "fd00::/64"}}]
    objects = of_kind(template(), "Deployment").values()
    labels = {each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] for each in objects}
    assert names <= labels
    assert policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"] in names


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


def test_the_chart_is_of_this_version() -> None:
    """And so are the images that it names."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    images = yaml.safe_load((CHART / "values.yaml").read_text())["images"]
    assert (about["version"], about["appVersion"]) == (version, version)
    assert (images["node"], images["centre"]) == (f"aliquot:{version}", f"aliquot-scheduler:{version}")
