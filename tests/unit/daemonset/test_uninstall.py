"""Uninstalling where something does not answer, over a kubectl that is played: `tests/cluster` has the real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support.uninstalling import DEFINITIONS_GO, GUARDS_GO, NAMESPACE_GOES, Cluster, changes, whole


def test_a_dead_node_keeps_no_other_from_withdrawing_and_is_not_left_behind(tmp_path: Path) -> None:
    """It is named, and what guards what it bears stays; once it is back it withdraws as the others did."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears", "b": "agent bears", "c": "alive agent bears"})
    told = cluster.uninstall("--yes")
    assert (told.returncode, cluster.bearing()) == (1, {"b"})
    assert told.stderr.startswith(
        "node b does not answer, and agent-b may run there: bring it back, or delete it (kubectl delete node b)"
    )
    assert len(told.stderr.splitlines()) == 1
    # Nobody withdraws where an agent may live: it would write all of it anew.
    assert cluster.asked.count("create --filename -") == 2
    assert GUARDS_GO not in cluster.asked
    assert NAMESPACE_GOES not in cluster.asked
    assert cluster.uninstall("--yes").returncode == 1
    cluster.has("b", "alive")
    assert (cluster.uninstall("--yes").returncode, cluster.bearing()) == (0, set())
    assert GUARDS_GO in cluster.asked
    assert NAMESPACE_GOES in cluster.asked


@pytest.mark.parametrize("states", ["agent bears", "bears"], ids=["its pods are there", "its pods were removed"])
def test_a_dead_node_that_is_deleted_holds_up_nothing(tmp_path: Path, states: str) -> None:
    """And until then it does, also where its pods were deleted by force: nobody has withdrawn."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears", "b": states})
    assert (cluster.uninstall("--yes").returncode, cluster.bearing()) == (1, {"b"})
    cluster.lost("b")
    assert cluster.uninstall("--yes").returncode == 0


@pytest.mark.parametrize(("more", "how"), [((), "--withdraw"), (("--no-wait",), "--withdraw-no-wait")])
def test_kubelets_are_waited_for_unless_told_not_to(tmp_path: Path, more: tuple[str, ...], how: str) -> None:
    """Each node waits for its own; who runs it is told what takes so long."""
    told = Cluster(tmp_path, {"a": "alive agent bears"}).uninstall("--yes", *more)
    assert told.returncode == 0
    assert (tmp_path / "how").read_text() == f"{how}\n"
    assert ("waiting for that" in told.stdout) is (not more)


def test_whichever_call_fails_nothing_is_left_behind_unseen(tmp_path: Path) -> None:
    """A list that can't be had is not an empty one: it stops there, and the next run does the rest."""
    sound = whole(tmp_path / "sound")
    assert sound.uninstall("--yes").returncode == 0
    calls = sound.asked.splitlines()
    for number, call in enumerate(calls, start=1):
        cluster = whole(tmp_path / str(number))
        cluster.holds("fails", str(number))
        told = cluster.uninstall("--yes")
        # The name of the cluster is for the reader alone, and a pod that can't be freed is looked for again.
        spared = call.startswith("config view") or "patch --filename" in call
        assert (told.returncode != 0) == (not spared), call
        if spared:
            continue
        assert "no answer" in told.stderr
        assert len(cluster.asked.splitlines()) == number or "gates" in call, call
        (tmp_path / str(number) / "fails").unlink()
        assert (cluster.uninstall("--yes").returncode, cluster.bearing()) == (0, set()), call


@pytest.mark.parametrize(
    "question",
    [
        "get customresourcedefinitions",
        "get clusterrolebindings",
        "grant",
        "schedulingGates",
        "get queues",
        "get nodes",
        "get configmap",
    ],
)
def test_who_can_not_look_does_nothing_and_names_the_cluster(tmp_path: Path, question: str) -> None:
    """The count of slices would else be none."""
    cluster = whole(tmp_path / "cluster")
    assert cluster.uninstall("--dry-run").returncode == 0
    number = next(at for at, call in enumerate(cluster.asked.splitlines(), start=1) if question in call)
    cluster.holds("fails", str(number))
    told = cluster.uninstall("--yes", "--force")
    assert (told.returncode, changes(cluster)) == (1, [])
    assert "there (https://there) can't be listed: nothing was done" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, ""),
        (["--forse"], 2, "--forse is no option: nothing was done"),
        (["--yes", "now"], 2, "now is no option: nothing was done"),
        (["--dry-run", "--yes"], 0, ""),
        ([], 1, "2 pods hold slices: end them, or run this with --force"),
        (["--yes"], 1, "2 pods hold slices: end them, or run this with --force"),
        (["--force"], 2, "nothing was done: say --yes"),
    ],
)
def test_nothing_goes_unless_it_was_said(tmp_path: Path, arguments: Sequence[str], code: int, said: str) -> None:
    """Neither by a slip of the hand nor where somebody only wants to know."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("held", "Running\nPending\n")
    told = cluster.uninstall(*arguments)
    assert (told.returncode, changes(cluster)) == (code, [])
    assert said in told.stderr


def test_what_is_to_go_is_told_in_numbers(tmp_path: Path) -> None:
    """Before it goes, and by whose name."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("held", "Running\n")
    assert cluster.uninstall("--dry-run").stdout == (
        "Aliquot (aliquot.dev) is to go from there (https://there): its namespace aliquot-system, policies, webhooks "
        "and rights,\n2 queues, and what it wrote on 2 nodes. 1 pod holds slices;\n1 waits, and loses its gate.\n"
    )


def test_a_node_that_is_ready_is_not_to_be_deleted(tmp_path: Path) -> None:
    """It serves others; where its pods do not end is told, and only of a dead one that it may be deleted."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears stuck", "b": "agent bears"})
    told = cluster.uninstall("--yes")
    assert told.returncode == 1
    assert told.stderr == (
        "node a is ready, and there agent-a will not end (kubectl --namespace aliquot-system describe pods "
        "--field-selector spec.nodeName=a): mend that; then run this again\n"
        "node b does not answer, and agent-b may run there: bring it back, or delete it (kubectl delete node b); then "
        "run this again\n"
    )
    assert GUARDS_GO not in cluster.asked


def test_while_a_centre_may_live_nothing_more_goes(tmp_path: Path) -> None:
    """Where its node does not answer it may still grant: its pod and node are named, instead of waiting for ever."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears centre", "b": "bears centre"})
    cluster.holds("waiting", "team one\n")
    for _ in range(2):
        told = cluster.uninstall("--yes")
        assert (told.returncode, cluster.waiting(), cluster.bearing()) == (1, "team one\n", {"a", "b"})
        assert told.stderr == (
            "node b does not answer, and centre-b may run there: bring it back, or delete it (kubectl delete node b); "
            "then run this again\n"
        )
        assert "label nodes" not in cluster.asked
        assert "aliquot-guard-gates" not in cluster.asked
    cluster.lost("b")
    assert (cluster.uninstall("--yes").returncode, cluster.waiting(), cluster.bearing()) == (0, "", set())


def test_a_namespace_that_does_not_end_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """Whose pod is in its way, where, and what Kubernetes says of it is told; the next run does the rest."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("lingers", "somebody's c\n")
    told = cluster.uninstall("--yes")
    assert told.returncode == 1
    assert told.stderr == (
        "node c does not answer, and somebody's may run there: bring it back, or delete it (kubectl delete node c); "
        "then run this again\nSome resources are remaining: pods. has 1 resource instances\n"
        "the namespace aliquot-system does not end: see there what is in its way, mend that, and run this again\n"
    )
    assert DEFINITIONS_GO not in cluster.asked
    (tmp_path / "cluster" / "lingers").unlink()
    assert cluster.uninstall("--yes").returncode == 0
    assert DEFINITIONS_GO in cluster.asked


def test_no_call_waits_without_a_bound(tmp_path: Path) -> None:
    """Finalizers of others, and pods of dead nodes, keep what is deleted for ever; kubectl's 0 s are a week."""
    cluster = whole(tmp_path / "cluster")
    assert cluster.uninstall("--yes", patience="30").returncode == 0
    deletes = [call for call in changes(cluster) if "delete " in call and "patch" not in call]
    assert len(deletes) > 8
    assert [call for call in deletes if "--wait=false" not in call and "--timeout=31s" not in call] == []
