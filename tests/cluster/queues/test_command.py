"""`aliquot queue`, `explain`, `run` and `stop` before the real centre: what people are told is what happens."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from aliquot_core.grant import decode_grant
from cluster.guarded import asking
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.errors import ApiError
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import QUEUES, queue
from cluster.refusals import expect_refused

NOT_FOUND, NO_SUCH = 3, "no-such"


def namespace(name: str, home: str) -> Json:
    """A namespace that is at home in a queue."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {NAMES.queue: home}}}


def asked(centre: PlayedCentre, *arguments: str, token: str = "", code: int = 0, program: Sequence[str] = ()) -> str:
    """What the command prints; a program that it is to run comes last."""
    argv = [*centre.command(*arguments, token=token), *(["--", *program] if program else [])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout or done.stderr


def told(centre: PlayedCentre, *arguments: str, token: str = "") -> Any:
    """What it says in JSON."""
    return json.loads(asked(centre, *arguments, "-o", "json", token=token))


TREE = [
    queue("org", compute={"limit": 300}),
    queue("red", parent="org", compute={"guarantee": 100}),
    queue("blue", parent="org"),
]


def used_by(found: Json) -> int | None:
    """What a queue's status says of compute."""
    used: int | None = found.get("status", {}).get("used", {}).get("compute")
    return used


def condition_of(cluster: ClusterHarness, namespace: str, name: str) -> str | None:
    """What the leader has written on a pod."""
    found = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"].get("conditions", [])
    return next((str(one["message"]) for one in found if one["type"] == NAMES.admitted), None)


def test_people_are_told_what_happens(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Used, borrowed and due as the grants have it; who waits, at which place, and why with numbers."""
    with centre.applied([*TREE, namespace("red-1", "red"), namespace("blue-1", "blue")]):
        cluster.create_pod(asking("r0", "red-1", {"compute": "100", "memory": "1001"}))
        centre.settled({"red-1": 100})
        for number in range(4):
            cluster.create_pod(asking(f"b{number}", "blue-1", {"compute": "80", "memory": "1001"}))
        centre.settled({"red-1": 100, "blue-1": 160})
        rows = {row["name"]: row for row in told(centre, "queue")}
        org, red, blue = (rows[name]["compute"] for name in ("org", "red", "blue"))
        assert (org["used"], org["limit"], red["used"], red["borrowed"]) == (260, 300, 100, 0)
        assert (blue["used"], blue["borrowed"], blue["fairShare"], rows["blue"]["waiting"]) == (160, 160, 200, 2)
        one = told(centre, "queue", "blue")
        assert [(pod["pod"], pod["place"]) for pod in one["pods"]] == [("blue-1/b2", 1), ("blue-1/b3", 2)]
        why = "it asks 80 % of compute; queue org uses 260 % of the 300 % that it may have"
        assert {pod["why"] for pod in one["pods"]} == {why}
        assert [row["name"] for row in told(centre, "queue", "-n", "red-1")] == ["org", "red"]
        assert [row["name"] for row in told(centre, "queue", "-n", "default")] == []
        assert told(centre, "queue", "blue", "-n", "blue-1")["pods"] == one["pods"]
        assert told(centre, "queue", "blue", "-n", "red-1")["pods"] == []
        explained = told(centre, "explain", "-n", "blue-1", "b3")
        assert (explained["summary"], explained["queue"]["place"]) == (why, 2)
        text = asked(centre, "explain", "-n", "blue-1", "b3")
        assert "just before it: blue-1/b2" in text
        assert "org / blue" in asked(centre, "queue", "blue")


def test_a_program_runs_from_an_image(centre: PlayedCentre) -> None:
    """Its pod waits for its turn, gets its slice, and has nothing of this machine but what was named."""
    program = ["/bin/train", "--price", "$5"]
    image = "registry.example/train:2"
    with centre.applied([*TREE, namespace("red-1", "red")]):
        options = ["-n", "red-1", "--compute", "70", "--memory", "2000", "--name", "train", "-e", "SEED=7"]
        assert asked(centre, "run", *options, "--detach", "--image", image, program=program) == "train\n"
        centre.settled({"red-1": 70})
        (made,) = centre.pods("red-1")
        (container,) = made["spec"]["containers"]
        assert (container["image"], container["command"]) == (image, [*program[:2], "$$5"])
        assert (container["env"], "workingDir" in container) == ([{"name": "SEED", "value": "7"}], False)
        assert made["spec"]["restartPolicy"] == "Never"
        (slice_,) = (part for _, part in decode_grant(made["metadata"]["annotations"][NAMES.grant]).slices())
        assert (slice_.compute.value, slice_.memory.value) == (70, 2000)
        (row,) = told(centre, "ps", "-n", "red-1")
        assert (row["name"], row["queue"], row["compute"], row["memory"]) == ("train", "red", 70, 2000)
        assert "needs an image" in asked(centre, "run", "-n", "red-1", code=NOT_FOUND, program=program)
        no_such = asked(centre, "run", "-n", "nowhere", "--image", image, code=NOT_FOUND, program=program)
        assert 'namespaces "nowhere" not found' in no_such
        assert [pod["metadata"]["name"] for pod in centre.pods("red-1")] == ["train"]


def test_scripts_can_use_it(centre: PlayedCentre) -> None:
    """Names one a line, and exit codes that say whose fault it is."""
    with centre.applied(TREE):
        names = asked(centre, "queue", "-o", "name").split()
        assert names == [f"queue.{NAMES.domain}/{name}" for name in ("default", "org", "blue", "red")]
        assert "did you mean blue?" in asked(centre, "queue", "blu", code=NOT_FOUND)
        assert "no such queue" in asked(centre, "queue", NO_SUCH, code=NOT_FOUND)
        assert "there is no such namespace" in asked(centre, "queue", "-n", "nope", code=NOT_FOUND)


def test_a_tenant_sees_what_the_role_allows(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Without it nothing, and is told what to ask for; with it the queues, by what the leader wrote."""
    with centre.applied([*TREE, namespace("red-2", "red")]):
        token = cluster.service_account_token("red-2", "default")
        refusal = asked(centre, "queue", token=token, code=NOT_FOUND)
        assert "ask an operator for the ClusterRole aliquot-queue-viewer" in refusal
        group = "rbac.authorization.k8s.io"
        cluster.apply(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "tenants-see-queues"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "aliquot-queue-viewer"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "red-2"}],
            }
        )
        cluster.create_pod(asking("r0", "red-2", {"compute": "70", "memory": "1001"}))
        path = f"{QUEUES}/red"
        cluster.wait_for("the leader to tell", lambda: used_by(cluster.api.get(path)) == 70)
        rows = {row["name"]: row for row in told(centre, "queue", token=token)}
        assert rows["org"]["compute"]["used"] == 70
        assert {row["toldBy"] for row in rows.values()} == {"status"}
        assert rows["red"]["compute"]["guarantee"] == 100
        refusal = asked(centre, "explain", "-n", "red-2", "x", token=token, code=4)
        assert "forbidden" in refusal
        cluster.apply(
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "tenants-view", "namespace": "red-2"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "red-2"}],
            }
        )
        cluster.create_pod(asking("r1", "red-2", {"compute": "400", "memory": "4004"}))
        said = cluster.wait_for("the leader to say why", lambda: condition_of(cluster, "red-2", "r1"))
        assert told(centre, "explain", "-n", "red-2", "r1", token=token)["summary"].startswith(said)


VIEWS = "/apis/{}/v1alpha1/namespaces/{}/queueviews"


def views(api: Api, namespace: str) -> dict[str, Json]:
    """What a namespace is shown, by queue."""
    found = api.items(VIEWS.format(NAMES.domain, namespace))
    return {one["metadata"]["name"]: one.get("status", {}) for one in found}


def with_token(cluster: ClusterHarness, token: str) -> Api:
    """Whoever shows this token."""
    plane = cluster.control_plane
    return Api(host=LOOPBACK, port=plane.port, token=token, certificate=plane.credentials.certificate)


def sees(api: Api, namespace: str) -> bool:
    """Whether somebody is let see anything there."""
    try:
        views(api, namespace)
    except ApiError:
        return False
    return True


def test_rights_in_a_namespace_show_where_it_stands(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """With `view` there, and a real token; and nothing of others, nor of queues themselves. Nobody else writes it."""
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "view"}
    meta = {"name": "looks", "namespace": "red-3"}
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role}
    subjects = [{"kind": "ServiceAccount", "name": "default", "namespace": "red-3"}]
    with ExitStack() as scene:
        scene.enter_context(centre.applied([*TREE, namespace("red-3", "red"), namespace("blue-3", "blue")]))
        token = cluster.service_account_token("red-3", "default")
        tenant = with_token(cluster, token)
        scene.callback(tenant.close)
        assert not sees(tenant, "red-3")
        cluster.apply({**binding, "subjects": subjects})
        cluster.wait_for("the right to be given", lambda: sees(tenant, "red-3") or None)
        for where, compute in (("red-3", 70), ("blue-3", 200), ("blue-3", 100), ("red-3", 400)):
            cluster.create_pod(asking(f"p{compute}", where, {"compute": str(compute), "memory": "4004"}))
        # Of the queue as a whole too: pods of a test before that are on their way out count in a queue of its name.
        red = cluster.wait_for(
            "its share to be shown", lambda: standing(views(tenant, "red-3"), own=(70, 1, 1), used=70)
        )
        assert (red["path"], red["guarantee"]["compute"]) == (["org", "red"], 100)
        assert set(views(tenant, "red-3")) == {"red"}
        (row,) = told(centre, "queue", "-n", "red-3", token=token)
        assert (row["toldBy"], row["parent"], row["compute"]["used"], row["own"]["waiting"]) == ("view", "org", 70, 1)
        assert told(centre, "queue", "red", "-n", "red-3", token=token)["path"] == ["org", "red"]
        assert "As namespace red-3 is shown it" in asked(centre, "queue", "-n", "red-3", token=token)
        asked(centre, "queue", "blue", "-n", "red-3", token=token, code=NOT_FOUND)
        asked(centre, "queue", "-n", "blue-3", token=token, code=NOT_FOUND)
        assert not sees(tenant, "blue-3")
        expect_refused(lambda: tenant.items(QUEUES), by="forbidden")
        path = VIEWS.format(NAMES.domain, "red-3") + "/red"
        expect_refused(lambda: tenant.patch(path, {"status": {"stop": "x"}}), by="forbidden")
        expect_refused(lambda: cluster.api.patch(path, {"status": {"stop": "x"}}), by="aliquot-guard-views")
        cluster.api.patch("/api/v1/namespaces/red-3", {"metadata": {"labels": {NAMES.queue: "blue"}}})
        cluster.wait_for("the new home to be shown", lambda: set(views(tenant, "red-3")) == {"red", "blue"} or None)


def standing(found: dict[str, Json], *, own: tuple[int, int, int], used: int) -> Json | None:
    """The view of the red queue once it says so of the namespace's part, and of all."""
    red = found.get("red", {})
    return red if part_of(found) == own and red["used"]["compute"] == used else None


def part_of(found: dict[str, Json]) -> tuple[int, int, int] | None:
    """The namespace's part of the red queue: percent held, pods that hold, pods that wait."""
    part = found.get("red", {}).get("own")
    return part and (part["used"]["compute"], part["running"], part["waiting"])
