"""Every folder of examples/, applied to the real centre: what its README says must happen."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot_core.grant import decode_grant
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.product_image import ROOT
from support.examples import EXAMPLES, USES, Stage

# Where pods lie is shown on nodes that run them, by centre/test_example.py; a rule by unit/rules/test_rules.py.
ELSEWHERE = {"placing", "own-rule", *USES}
FOLDERS = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir() and folder.name not in ELSEWHERE)
CARDS = 4
# In production five minutes.
PATIENCE = 3.0
# In production a minute.
OWED = 5.0
# In production ten; so long that what a pod is told of it can be seen.
BUDGET_GRACE = 15
# Within so many seconds whoever has to go is gone, by the setting as it comes.
MAX_GRACE = 300
# Who ends is followed within a tenth of that, on a quiet machine.
FOLLOWED = 2.0
# Instants of pods are whole seconds, and the younger of two waits behind the older.
MADE_LATER = 1.0
# Of the small ones before which a large one waits, so many are left for when patience is over.
_LAST_SMALL = 8
Told = Callable[[PlayedCentre], None]
SHOWN: dict[str, Told] = {}


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A control plane whose nodes are played."""
    with ClusterHarness(Options(nodes=())) as running:
        yield running


@pytest.fixture(scope="module")
def centre(cluster: ClusterHarness) -> Iterator[PlayedCentre]:
    """One node of four cards, as the examples say; whose a pod is says a label."""
    settings = {
        "ALIQUOT_QUEUES_PATIENCE": str(PATIENCE),
        "ALIQUOT_QUEUES_OWED": str(OWED),
        "ALIQUOT_QUEUES_BUDGET_GRACE": str(BUDGET_GRACE),
        "ALIQUOT_QUEUES_USER_LABEL": NAMES.of("user"),
    }
    played = PlayedCentre(cluster, gpus=[CARDS], **settings)
    played.start()
    yield played
    played.stop()


def manifests_of(folder: str, *files: str) -> list[Json]:
    """The objects of an example's files."""
    return [
        obj for file in files for obj in yaml.safe_load_all((EXAMPLES / folder / f"{file}.yaml").read_text()) if obj
    ]


def comes_in_as_others_end(centre: PlayedCentre, namespace: str, percent: int, *, others: str) -> None:
    """Until patience is over who ends is followed by another; a gap that lasts is held for the one that waits."""
    gap = time.monotonic()

    def has_its_cards() -> bool:
        nonlocal gap
        if centre.held(others) == 100 * CARDS:
            end(centre, others, 1)
            gap = time.monotonic()
        elif time.monotonic() > gap + FOLLOWED:
            end(centre, others, 8)
            gap = time.monotonic()
        return centre.held(namespace) == percent

    centre.cluster.wait_for("the large one to have its cards", has_its_cards, timeout=90)


def example(folder: str) -> Callable[[Told], Told]:
    """Say which folder a function shows."""

    def shown(function: Told) -> Told:
        SHOWN[folder] = function
        return function

    return shown


def end(centre: PlayedCentre, namespace: str, count: int) -> None:
    """Let so many of those end that hold slices."""
    for pod in centre.holding(namespace)[:count]:
        centre.end(pod)


def cards(centre: PlayedCentre, namespace: str) -> int:
    """On how many GPUs the pods of a namespace lie."""
    grants = [decode_grant(pod["metadata"]["annotations"][NAMES.grant]) for pod in centre.holding(namespace)]
    return len({part.gpu for grant in grants for _, part in grant.slices()})


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_example_shows_what_its_readme_says(centre: PlayedCentre, folder: str) -> None:
    """On real cards' numbers, with the real Job controller, webhook, queues and kube-scheduler."""
    readme = (EXAMPLES / folder / "README.md").read_text()
    assert "**The hog.**" in readme
    assert "**What stops it.**" in readme
    assert folder in (EXAMPLES / "README.md").read_text()
    with centre.applied(manifests_of(folder, "queues")):
        SHOWN[folder](centre)


@example("bulk-submission")
def _bulk(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("bulk-submission", "ann")):
        centre.settled({"lab-ann": 400})
        centre.lined_up({"lab-ann": 36})
        with centre.applied(manifests_of("bulk-submission", "bob")):
            centre.lined_up({"lab-bob": 1})
            end(centre, "lab-ann", 1)
            centre.settled({"lab-ann": 300, "lab-bob": 100})


@example("everything-urgent")
def _urgent(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("everything-urgent", "red")):
        centre.settled({"team-red": 400})
        centre.lined_up({"team-red": 4})
        with centre.applied(manifests_of("everything-urgent", "blue")):
            centre.lined_up({"team-blue": 8})
            end(centre, "team-red", 2)
            centre.settled({"team-red": 200, "team-blue": 200})
            assert {pod["spec"]["priority"] for pod in centre.pods("team-red")} == {1_000_000}


@example("being-there-first")
def _first(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("being-there-first", "red")):
        centre.settled({"first-red": 400})
        with centre.applied(manifests_of("being-there-first", "blue")):
            centre.cluster.wait_for(
                "two of red's to be asked to go", lambda: len(centre.leaving("first-red")) == 2 or None
            )
            assert centre.waiting("first-blue") == 2
            waiting = next(pod for pod in centre.pods("first-red") if pod["spec"].get("schedulingGates"))
            name = waiting["metadata"]["name"]
            command = centre.command("explain", "-n", "first-red", name)
            told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
            assert "is held back for guarantees (blue 200 %)" in told
            centre.let_go("first-red")
            centre.settled({"first-red": 200, "first-blue": 200})
            # Job makes again what was sent away.
            centre.lined_up({"first-red": 6})
            assert centre.leaving("first-red") == []


@example("slivers-everywhere")
def _slivers(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("slivers-everywhere", "red")):
        centre.settled({"slivers-red": 40})
        assert cards(centre, "slivers-red") == CARDS
        with centre.applied(manifests_of("slivers-everywhere", "blue")):
            centre.cluster.wait_for(
                "three probes to be asked to go", lambda: len(centre.leaving("slivers-red")) == 3 or None
            )
            centre.let_go("slivers-red")
            # The Job controller lets 40 s pass before it makes the third pod again.
            centre.settled({"slivers-red": 40, "whole-blue": 300}, timeout=90)
            assert cards(centre, "slivers-red") == 1


@example("hard-reservation")
def _reserved(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("hard-reservation", "research")):
        centre.settled({"research": 300})
        centre.lined_up({"research": 5})
        with centre.applied(manifests_of("hard-reservation", "ward")):
            centre.cluster.wait_for("one of research's to be asked to go", lambda: centre.leaving("research") or None)
            assert centre.waiting("ward") == 1
            centre.let_go("research")
            centre.settled({"ward": 100, "research": 200})
            with centre.applied(manifests_of("hard-reservation", "clinic")):
                centre.settled({"clinic": 100, "ward": 100, "research": 200})


@example("never-to-be-evicted")
def _firm(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("never-to-be-evicted", "firm")):
        centre.settled({"firm-red": 200})
        centre.lined_up({"firm-red": 2})
        with centre.applied(manifests_of("never-to-be-evicted", "loose")):
            centre.settled({"firm-red": 400})


@example("borrowing-without-end")
def _borrowing(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("borrowing-without-end", "night")):
        centre.settled({"night": 200})
        centre.lined_up({"night": 2})
        with centre.applied(manifests_of("borrowing-without-end", "day")):
            centre.settled({"night": 200, "day": 100})
            centre.lined_up({"day": 3})


@example("hogging-memory")
def _memory(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("hogging-memory", "red")):
        centre.settled({"memory-red": 4})
        centre.lined_up({"memory-red": 4})
        with centre.applied(manifests_of("hogging-memory", "blue")):
            centre.settled({"memory-red": 4, "memory-blue": 180})


@example("small-before-large")
def _small(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("small-before-large", "swarm")):
        centre.settled({"pool-swarm": 400})
        with centre.applied(manifests_of("small-before-large", "whale")):
            centre.lined_up({"pool-whale": 1})

            comes_in_as_others_end(centre, "pool-whale", 400, others="pool-swarm")
            assert centre.waiting("pool-swarm") > 0


@example("large-before-small")
def _large(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("large-before-small", "small")):
        centre.settled({"many-small": 400})
        with centre.applied(manifests_of("large-before-small", "large")):
            centre.lined_up({"few-large": 4})
            comes_in_as_others_end(centre, "few-large", 200, others="many-small")
            until = time.monotonic() + 3 * PATIENCE
            while time.monotonic() < until:
                centre.settled({"few-large": 200, "many-small": 200})
                # On a quick machine all of them would have ended before patience is over.
                if centre.waiting("many-small") > _LAST_SMALL:
                    end(centre, "many-small", 1)
            end(centre, "many-small", 1)
            centre.settled({"few-large": 200, "many-small": 200})
            centre.lined_up({"few-large": 3})


@example("endless-line")
def _endless(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("endless-line", "loop")):
        centre.settled({"endless": 400})
        # Kubernetes' own count of a quota and its admission are no one step: on a busy machine one more may come in.
        centre.cluster.wait_for("six or seven to wait", lambda: centre.waiting("endless") in {6, 7})
        assert len(centre.pods("endless")) == 4 + centre.waiting("endless")
        centre.cluster.wait_for("the quota to be told of", lambda: "exceeded quota: line" in _events(centre, "endless"))


def _events(centre: PlayedCentre, namespace: str) -> str:
    """What Events of a namespace say."""
    return "\n".join(event["message"] for event in centre.api.items(f"/api/v1/namespaces/{namespace}/events"))


@example("growing-without-end")
def _growing(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("growing-without-end", "six")):
        centre.settled({"growing": 400})
        centre.cluster.wait_for("two to be shown", lambda: _unschedulable(centre, "growing") == 2)
        centre.cluster.wait_for("them to say so", lambda: _shown(centre, "growing") == 2)
        with centre.applied(manifests_of("growing-without-end", "four")):
            centre.lined_up({"growing": 4})
            # As an autoscaler would bring it.
            with centre.one_more_node("grown", gpus=4):
                centre.settled({"growing": 600}, timeout=60)
                centre.lined_up({"growing": 4})
                end(centre, "growing", 1)
                centre.lined_up({"growing": 3})
                centre.settled({"growing": 600})


def _unschedulable(centre: PlayedCentre, namespace: str) -> int:
    """Of how many pods kube-scheduler says so: by this an autoscaler knows that a node is wanted."""
    return _say(centre, namespace, "PodScheduled", reason="Unschedulable")


def _shown(centre: PlayedCentre, namespace: str) -> int:
    """How many pods say that they are shown."""
    return _say(centre, namespace, NAMES.admitted, reason="NoRoom", begins="it is shown to a cluster autoscaler: ")


def _say(centre: PlayedCentre, namespace: str, kind: str, *, reason: str, begins: str = "") -> int:
    """How many pods have such a condition."""
    said = [one for pod in centre.pods(namespace) for one in pod["status"].get("conditions", ())]
    return sum(
        (one["type"], one["status"], one.get("reason")) == (kind, "False", reason)
        and one.get("message", "").startswith(begins)
        for one in said
    )


@example("leaving-slowly")
def _slowly(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("leaving-slowly", "red")):
        centre.settled({"slow-red": 400})
        with centre.applied(manifests_of("leaving-slowly", "blue")):
            centre.cluster.wait_for("two of red's to be asked to go", lambda: len(centre.leaving("slow-red")) == 2)
            graces = {pod["metadata"]["deletionGracePeriodSeconds"] for pod in centre.leaving("slow-red")}
            assert graces == {MAX_GRACE}
            centre.let_go("slow-red")
            centre.settled({"slow-red": 200, "slow-blue": 200})


@example("budget-of-ones-own")
def _budget(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("budget-of-ones-own", "red")):
        centre.settled({"kept-red": 400})
        centre.runs("kept-red")
        with centre.applied(manifests_of("budget-of-ones-own", "blue")):
            kept = "4 pods are kept by a PodDisruptionBudget of queue red"
            centre.cluster.wait_for("blue to be told of the budget", lambda: kept in _events(centre, "kept-blue"))
            centre.cluster.wait_for("two of red's to go", lambda: len(centre.leaving("kept-red")) == 2, timeout=60)
            centre.let_go("kept-red")
            centre.settled({"kept-red": 200, "kept-blue": 200})
            assert centre.leaving("kept-red") == []


@example("never-bound")
def _never_bound(centre: PlayedCentre) -> None:
    with centre.applied(manifests_of("never-bound", "red")):
        # Four have their turns.
        centre.lined_up({"stuck-red": 4})
        with centre.applied(manifests_of("never-bound", "blue")):
            centre.lined_up({"stuck-blue": 4})
            centre.settled({"stuck-red": 0, "stuck-blue": 400}, timeout=90)
            lost = "its turn led to no binding"
            centre.cluster.wait_for("red to be told of its turns", lambda: lost in _events(centre, "stuck-red"))


@example("half-started-groups")
def _groups(centre: PlayedCentre) -> None:
    def of(run: str) -> list[Any]:
        return [pod for pod in centre.holding("runs") if pod["metadata"]["labels"][NAMES.group] == run]

    with centre.applied(manifests_of("half-started-groups", "one", "two")):
        centre.settled({"runs": 300})
        centre.lined_up({"runs": 3})
        first, second = sorted(("one", "two"), key=lambda run: -len(of(run)))
        assert (len(of(first)), len(of(second))) == (3, 0)
        end(centre, "runs", 3)
        centre.cluster.wait_for("the other run to start as a whole", lambda: len(of(second)) == 3)
        with centre.applied(manifests_of("half-started-groups", "nightly", "launcher")):
            _names_used_again(centre)


def _ages(centre: PlayedCentre, namespace: str) -> float:
    """How long ago the youngest pod was made, by this machine's clock."""
    youngest = max(pod["metadata"]["creationTimestamp"] for pod in centre.pods(namespace))
    return time.time() - datetime.fromisoformat(youngest).timestamp()


def _names_used_again(centre: PlayedCentre) -> None:
    """They come while another has the cards; then one after the other starts with its own pods."""

    def makers() -> list[str]:
        return sorted(pod["metadata"]["ownerReferences"][0]["name"] for pod in centre.holding("runs"))

    centre.lined_up({"runs": 9})
    # Its Job makes another, which is younger than all of the other Job's.
    centre.cluster.wait_for("the next second", lambda: _ages(centre, "runs") >= MADE_LATER)
    first = next(pod for pod in centre.pods("runs") if pod["metadata"]["name"].startswith("nightly-1"))
    centre.cluster.api.delete(centre.cluster.api.path_of(first))
    started: list[list[str]] = []
    wanted = [["launcher", "workers", "workers"], ["nightly-1"] * 3, ["nightly-2"] * 3]
    for left in (9, 6, 3, 0):
        centre.lined_up({"runs": left})
        centre.settled({"runs": 300})
        started.append(makers())
        end(centre, "runs", 3)
    assert sorted(started[1:]) == wanted


@example("many-namespaces")
def _names(centre: PlayedCentre) -> None:
    policies = list(yaml.safe_load_all((ROOT / "daemonset" / "users.yaml").read_text()))

    def hers() -> int:
        return sum(centre.held(f"ann-{number}") for number in (1, 2, 3))

    with centre.applied(policies), _by(centre, "ann@example.com", "ann"):
        centre.cluster.wait_for("Ann's pods to run", lambda: hers() == 400)
        with _by(centre, "bob@example.com", "bob"):
            centre.lined_up({"bob-1": 4})
            for _ in range(2):
                end(centre, next(name for name in ("ann-1", "ann-2", "ann-3") if centre.held(name)), 1)
            centre.settled({"bob-1": 200})
            centre.cluster.wait_for("Ann to keep the others", lambda: hers() == 200)


@contextmanager
def _by(centre: PlayedCentre, user: str, file: str) -> Iterator[None]:
    """Applied by somebody, once the policies stamp what they make."""
    api = centre.cluster.api_as(user)
    objects = manifests_of("many-namespaces", file)
    label = NAMES.of("user")

    def stamps() -> bool:
        made = api.request("POST", api.collection_of(objects[0]), body=objects[0], query={"dryRun": "All"})
        return label in made["spec"]["template"]["metadata"]["labels"]

    centre.cluster.wait_for("the label to be stamped", stamps)
    with centre.applied(objects, by=api):
        yield


@pytest.mark.parametrize("folder", sorted(USES))
def test_an_example_of_use_shows_in_a_cluster_what_it_shows_on_one_machine(centre: PlayedCentre, folder: str) -> None:
    """The same files, and stage by stage the same pods hold and wait."""
    with ExitStack() as stack:
        for stage in USES[folder]:
            stack.enter_context(centre.applied(manifests_of(folder, *stage.files)))
            _expect(centre, stage)


def _expect(centre: PlayedCentre, stage: Stage) -> None:
    centre.settled(stage.held)
    for namespace, count in stage.cards.items():
        assert cards(centre, namespace) == count
    centre.lined_up(stage.waiting)
    for namespace, count in stage.done.items():

        def is_done(namespace: str = namespace, count: int = count) -> bool:
            end(centre, namespace, count)
            return len([pod for pod in centre.pods(namespace) if pod["status"]["phase"] == "Succeeded"]) == count

        centre.cluster.wait_for(f"{count} pods of {namespace} to be done", is_done)


def test_every_example_is_shown() -> None:
    """No folder without a function, no function without a folder, nothing in a folder that is not used."""
    assert sorted(SHOWN) == FOLDERS
    text = Path(__file__).read_text()
    for folder in FOLDERS:
        for file in (EXAMPLES / folder).glob("*.yaml"):
            assert f'"{file.stem}"' in text, file
