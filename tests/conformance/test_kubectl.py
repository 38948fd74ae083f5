"""kubectl works against the embedded server: what people type, and what they see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot_standalone.apiserver.embedded import kubeconfig
from aliquot_standalone.installed import as_installed
from cluster.harness import binaries
from conformance.contracts.space import Space
from support.http_api import LONG_S
from support.require import skip_or_fail

Kubectl = Callable[..., str]

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "schedulerName": "nobody",
        "containers": [
            {
                "name": "main",
                "image": "none:1",
                # As the server writes quantities: otherwise kubectl sees a difference each time, on any server.
                "resources": {"limits": {"aliquot.dev/compute": "30", "aliquot.dev/memory": "8k"}},
            }
        ],
    },
}
KUBECTL = "kubectl"


def _program() -> str:
    return str(binaries.find(KUBECTL) or shutil.which(KUBECTL) or "")


def runner(space: Space, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give a function that runs kubectl in the test's namespace, however it ends."""
    program = _program()
    if not program:
        skip_or_fail("cluster", "kubectl is neither built (make cluster) nor on the PATH")
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(space.api.url)))
    environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}

    def run(*arguments: str, given: object = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, "--namespace", space.name, *arguments],
            input=json.dumps(given) if given else None,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )

    return run


@pytest.fixture
def kubectl(space: Space, tmp_path: Path) -> Kubectl:
    """Give a function that runs kubectl and gives what it prints; it must succeed."""
    run = runner(space, tmp_path)

    def succeed(*arguments: str, given: object = None) -> str:
        done = run(*arguments, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return succeed


@pytest.fixture
def refused(space: Space, tmp_path: Path) -> Kubectl:
    """Give a function that runs kubectl and gives what it complains of; it must fail."""
    run = runner(space, tmp_path)

    def fail(*arguments: str, given: object = None) -> str:
        done = run(*arguments, given=given)
        assert done.returncode == 1, done.stdout
        return done.stderr

    return fail


def test_apply_creates_and_changes(kubectl: Kubectl, space: Space) -> None:
    """`apply` creates, does nothing the second time, and changes what changed."""
    assert "created" in kubectl("apply", "-f", "-", given=POD)
    assert "unchanged" in kubectl("apply", "-f", "-", given=POD)
    changed = json.loads(json.dumps(POD).replace("none:1", "none:2"))
    assert "configured" in kubectl("apply", "-f", "-", given=changed)
    assert space.api.get(f"{space.pods}/web").ok()["spec"]["containers"][0]["image"] == "none:2"


def test_get_shows_rows_and_objects(kubectl: Kubectl) -> None:
    """`get` draws the server's columns, and `-o yaml` gives the object."""
    kubectl("apply", "-f", "-", given=POD)
    header, row = kubectl("get", "pods", "-o", "wide").splitlines()
    assert header.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["web", "0/1", "Pending", "0"]
    assert "aliquot.dev/memory: 8k" in kubectl("get", "pod", "web", "-o", "yaml")
    assert kubectl("get", "po", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert kubectl("get", "ns", "default").split()[:3] == ["NAME", "STATUS", "AGE"]


def test_get_follows_changes(kubectl: Kubectl, space: Space) -> None:
    """`get -w` shows what is there, and ends with the server's watch."""
    kubectl("apply", "-f", "-", given=POD)
    shown = kubectl("get", "pods", "--watch", "--request-timeout=5s", "-o", "name")
    assert shown.splitlines()[0] == "pod/web"
    assert space.api.get(f"{space.pods}/web").code == 200


def test_labels_annotations_and_edits(kubectl: Kubectl, space: Space) -> None:
    """`label`, `annotate` and the three kinds of `patch` change what they say."""
    kubectl("apply", "-f", "-", given=POD)
    kubectl("label", "pod", "web", "team=a", "app-")
    kubectl("annotate", "pod", "web", "note=kept")
    for kind, patch in (
        ("json", '[{"op": "add", "path": "/metadata/labels/a", "value": "1"}]'),
        ("merge", '{"metadata": {"labels": {"b": "2"}}}'),
        ("strategic", '{"metadata": {"labels": {"c": "3"}}}'),
    ):
        kubectl("patch", "pod", "web", "--type", kind, "-p", patch)
    metadata = space.api.get(f"{space.pods}/web").ok()["metadata"]
    assert metadata["labels"] == {"team": "a", "a": "1", "b": "2", "c": "3"}
    assert metadata["annotations"]["note"] == "kept"


def test_describe_tells_events(kubectl: Kubectl, space: Space) -> None:
    """`describe` shows the pod with what happened to it."""
    kubectl("apply", "-f", "-", given=POD)
    uid = space.api.get(f"{space.pods}/web").ok()["metadata"]["uid"]
    about = {"kind": "Pod", "namespace": space.name, "name": "web", "uid": uid}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": about,
        "reason": "Granted",
        "message": "a slice",
        "type": "Normal",
    }
    space.api.post(f"{space.path}/events", event).ok()
    described = kubectl("describe", "pod", "web")
    assert "aliquot.dev/compute:  30" in described
    assert "Granted" in described


def test_describe_of_a_node(kubectl: Kubectl, space: Space) -> None:
    """`describe node` shows its capacity and the pods bound to it."""
    name = f"node-of-{space.name}"
    space.api.post(
        "/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": {"aliquot.dev/compute": "800"}}}
    ).ok()
    space.create_pod("web")
    space.bind("web", name)
    described = kubectl("describe", "node", name)
    space.api.delete(f"/api/v1/nodes/{name}")
    assert "aliquot.dev/compute:  800" in described
    assert "web" in described


def test_delete_waits_until_it_is_gone(kubectl: Kubectl, space: Space) -> None:
    """`delete` returns when the pod is gone."""
    kubectl("apply", "-f", "-", given=POD)
    assert 'pod "web"' in kubectl("delete", "pod", "web")
    assert space.api.get(f"{space.pods}/web").code == 404


def test_what_there_is(kubectl: Kubectl) -> None:
    """`api-resources` and `version` tell what the server has."""
    listed = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "nodes", "leases.coordination.k8s.io"} <= set(listed)
    assert "v1.36" in kubectl("version")


QUEUE = {
    "apiVersion": "aliquot.dev/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"compute": {"guarantee": 400, "limit": 800}},
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "once"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none:1"}]}}},
}
CRON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "often"},
    "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": JOB["spec"]}},
}


@pytest.fixture
def queues(kubectl: Kubectl) -> Iterator[Kubectl]:
    """The kind Queue as it is installed, without the webhooks that nobody answers here."""
    definition = next(one for one in as_installed() if one["kind"] == "CustomResourceDefinition")
    kubectl("apply", "-f", "-", given=definition)
    kubectl("wait", "--for=condition=Established", "crd/queues.aliquot.dev", "--timeout=60s")
    yield kubectl
    kubectl("delete", "crd", "queues.aliquot.dev")


def test_queues_are_shown_and_explained(queues: Kubectl) -> None:
    """Our own kind has its columns, its short name, its description and its explanation."""
    queues("apply", "-f", "-", given=QUEUE)
    header, row = queues("get", "aq").splitlines()
    assert header.split()[:4] == ["NAME", "PARENT", "GUARANTEE", "LIMIT"]
    assert row.split()[:3] == ["team", "400", "800"]
    assert "Guarantee:  400" in queues("describe", "queue", "team")
    assert "The queue above this one" in queues("explain", "queue.spec.parent")
    assert 'queue.aliquot.dev "team" deleted' in queues("delete", "queue", "team")


def test_what_is_read_of_many_is_applied_again(queues: Kubectl, refused: Kubectl) -> None:
    """As people keep their queues: `get -o json` gives a List, and a mistake in it is refused as in any object."""
    other = {**QUEUE, "metadata": {"name": "other"}}
    for each in (QUEUE, other):
        queues("apply", "-f", "-", given=each)
    kept = json.loads(queues("get", "queues", "-o", "json"))
    assert kept["kind"] == "List"
    queues("delete", "queue", "other")
    for each in kept["items"]:
        del each["metadata"]["resourceVersion"], each["metadata"]["uid"]
    told = queues("apply", "-f", "-", given=kept)
    assert "queue.aliquot.dev/other created" in told
    assert "queue.aliquot.dev/team" in told
    kept["items"][0]["spec"] = {"compute": {"guarante": 400}}
    assert 'unknown field "spec.compute.guarante"' in refused("apply", "-f", "-", given=kept)


def test_a_queue_that_is_none_is_refused(queues: Kubectl, refused: Kubectl) -> None:
    """By the schema of its definition, naming the field."""
    bad = {**QUEUE, "spec": {"compute": {"limit": -1}, "stop": "soon"}}
    told = refused("apply", "-f", "-", given=bad)
    assert "spec.compute.limit" in told
    assert "spec.stop" in told
    assert "No resources found" in queues("get", "queues") or queues("get", "queues") == ""


def test_a_field_that_a_queue_does_not_have_is_refused(queues: Kubectl, refused: Kubectl) -> None:
    """A misspelt guarantee would be none: new, changed, or applied by the server; unless it is only warned of."""
    misspelt = {**QUEUE, "spec": {"compute": {"guarante": 400}}}
    said = 'unknown field "spec.compute.guarante"'
    assert said in refused("apply", "-f", "-", given=misspelt)
    queues("apply", "-f", "-", given=QUEUE)
    assert said in refused("apply", "-f", "-", given=misspelt)
    assert "spec.compute.guarante: field not declared" in refused("apply", "--server-side", "-f", "-", given=misspelt)
    assert "Guarantee:  400" in queues("describe", "queue", "team")
    queues("apply", "--validate=warn", "-f", "-", given=misspelt)
    assert "Guarantee" not in queues("describe", "queue", "team")


def test_apply_on_the_server_side(kubectl: Kubectl, refused: Kubectl) -> None:
    """It applies, merges with what others apply, and tells of conflicts; what was applied before is taken over."""
    kubectl("apply", "-f", "-", given=POD)
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", given=POD)
    changed = json.loads(json.dumps(POD).replace("none:1", "none:2"))
    told = refused("apply", "--server-side", "--field-manager=other", "-f", "-", given=changed)
    assert '.spec.containers[name="main"].image' in told
    kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", given=changed)
    owners = kubectl(
        "get", "pod", "web", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"
    )
    assert "other" in owners.split()


def test_jobs_are_kept_and_shown(kubectl: Kubectl) -> None:
    """Jobs and cron jobs have their columns."""
    kubectl("apply", "-f", "-", given=JOB)
    kubectl("apply", "-f", "-", given=CRON_JOB)
    header, row = kubectl("get", "jobs").splitlines()
    assert header.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row.split()[:3] == ["once", "Running", "0/1"]
    header, row = kubectl("get", "cj").splitlines()
    assert header.split()[:3] == ["NAME", "SCHEDULE", "TIMEZONE"]
    assert row.split()[:6] == ["often", "*/5", "*", "*", "*", "*"]
    assert "often" in kubectl("get", "all")


def test_what_needs_a_cluster_says_so(refused: Kubectl) -> None:
    """A Deployment is refused in these words, and not as a kind that nobody knows."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "none:1"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    assert "needs a cluster" in refused("create", "-f", "-", given=deployment)
    assert "needs a cluster" in refused("apply", "-f", "-", given=deployment)
    assert "needs a cluster" in refused("create", "deployment", "web", "--image=none:1")


def test_nobody_is_led_into_a_pod(kubectl: Kubectl, refused: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kubectl asks in its older way it shows our words; what it can't explain it says so of."""
    for asked in ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"):
        monkeypatch.setenv(asked, "false")
    kubectl("apply", "-f", "-", given=POD)
    assert "exec needs a cluster" in refused("exec", "web", "--", "true")
    assert "not found in OpenAPI schema" in refused("explain", "pod")


def test_quotas_are_shown_with_what_is_used(kubectl: Kubectl, space: Space) -> None:
    """`get` and `describe` tell how much of a quota is taken."""
    hard = {"requests.aliquot.dev/compute": "100"}
    space.api.post(f"{space.path}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}).ok()
    kubectl("apply", "-f", "-", given=POD)
    assert "requests.aliquot.dev/compute: 30/100" in kubectl("get", "quota", "q")
    assert "requests.aliquot.dev/compute  30    100" in kubectl("describe", "quota", "q")


def test_logs_are_read_where_they_lie(kubectl: Kubectl, refused: Kubectl, space: Space, log_folder: Path) -> None:
    """`logs` prints what the container's file holds, all or its end; of a pod that runs nowhere it says so."""
    kubectl("apply", "-f", "-", given=POD)
    assert "does not have a host assigned" in refused("logs", "web")
    space.bind("web", "node-1")
    uid = space.api.get(f"{space.pods}/web").ok()["metadata"]["uid"]
    place = log_folder / f"{space.name}_web_{uid}" / "main"
    place.mkdir(parents=True)
    (place / "0.log").write_text("one\ntwo\n")
    assert kubectl("logs", "web") == "one\ntwo\n"
    assert kubectl("logs", "web", "-c", "main", "--tail=1") == "two\n"
    assert "is not valid for pod" in refused("logs", "web", "-c", "other")


def test_what_is_created_by_flags(kubectl: Kubectl, space: Space) -> None:
    """As protobuf: kubectl knows no other way to say these."""
    other = f"{space.name}-by-flags"
    assert kubectl("create", "namespace", other) == f"namespace/{other} created\n"
    assert kubectl("create", "quota", "most", "--hard=requests.aliquot.dev/memory=64k,pods=5") == (
        "resourcequota/most created\n"
    )
    assert json.loads(kubectl("get", "quota", "most", "-o", "json"))["spec"]["hard"]["pods"] == "5"
    assert "created" in kubectl("create", "priorityclass", other, "--value=-7")
    assert json.loads(kubectl("get", "priorityclass", other, "-o", "json"))["value"] == -7
    kubectl("create", "configmap", "words", "--from-literal=greeting=hello")
    assert json.loads(kubectl("get", "configmap", "words", "-o", "json"))["data"] == {"greeting": "hello"}
    kubectl("create", "cronjob", "nightly", "--image=none:1", "--schedule=0 3 * * *", "--", "true")
    kubectl("create", "job", "once", "--image=none:1", "--", "sh", "-c", "echo $HOME")
    kubectl("create", "job", "now", "--from=cronjob/nightly")
    once, now = (json.loads(kubectl("get", "job", name, "-o", "json")) for name in ("once", "now"))
    assert once["spec"]["template"]["spec"]["containers"][0]["command"] == ["sh", "-c", "echo $HOME"]
    assert now["metadata"]["ownerReferences"][0]["name"] == "nightly"
