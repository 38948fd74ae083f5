"""What values for the centre come to: its rights, its webhooks, its replicas, and who may call it."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from aliquot_core.names import Names
from aliquot_core.settings import Sources
from aliquot_scheduler.admission.profile import at_odds
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.sparing import SPARE
from aliquot_scheduler.certificates.settings import CENTRE, KUBE_SCHEDULER
from aliquot_scheduler.extender.preempting import LABELLED
from aliquot_scheduler.rules.expressions import RuleSettings
from cluster.charts import EVERYTHING, RULES, containers, environment, of_kind, template
from cluster.harness.api import Json

pytestmark = pytest.mark.usefixtures("helm_built")


def test_rules_in_cel_reach_the_centre_whole() -> None:
    """With their commas and quotes: a list of objects is JSON in a variable."""
    (told,) = (each for name, each in containers(template(EVERYTHING)) if name == "aliquot-scheduler")
    found = Sources(environment=environment(told)).resolve("rules", RuleSettings).value
    assert found == msgspec.convert(RULES, RuleSettings)


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


@pytest.mark.parametrize(("value", "actions"), [("Warn", ["Warn", "Audit"]), ("Deny", ["Deny"])])
def test_critical_classes_are_warned_of_or_refused(value: str, actions: list[str]) -> None:
    """Never where an operator says that a namespace runs the cluster, by the one label for that."""
    objects = template({"criticalClasses": value})
    spec = of_kind(objects, "ValidatingAdmissionPolicyBinding")["aliquot-critical-classes"]["spec"]
    (chosen,) = spec["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert (chosen["key"], chosen["operator"], chosen["values"]) == (Names().runs_the_cluster, "NotIn", [LABELLED])
    assert spec["validationActions"] == actions
    policy = of_kind(objects, "ValidatingAdmissionPolicy")["aliquot-critical-classes"]["spec"]
    (chosen,) = policy["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert (chosen["operator"], chosen["values"]) == ("NotIn", ["kube-system", Names().namespace])


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
