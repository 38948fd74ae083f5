"""What the webhook answers of a pod: the patch that makes it what it must be, and what is told of it."""

from __future__ import annotations

import pytest

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.admission.review import LONGEST_WARNING, MOST_PROBLEMS
from support.admitting import NAMES, Json, answered, container, mutated, review, written
from support.reviews_asked import ASKS, admission, validated

BAD = written(container(compute="0", memory="8Gi"))


def test_the_patch_makes_the_pod_what_it_must_be() -> None:
    """Gate, profile, and nothing that the answer does not need."""
    answer = answered(admission().mutating(review(ASKS)))
    assert answer == {
        "allowed": True,
        "patch": [
            {"op": "add", "path": "/spec/schedulerName", "value": "aliquot"},
            {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "aliquot.dev/queue"}]},
        ],
    }


def test_a_pod_that_asks_for_nothing_passes_unchanged() -> None:
    """Both endpoints let it be, whatever else is in it."""
    for ask in (admission().mutating, validated):
        assert answered(ask(review(written(container(), nodeName="n1")))) == {"allowed": True}


def test_all_problems_are_told_one_a_line_by_both_endpoints() -> None:
    """Kubernetes looks at a pod between the two, and would say less: so the first says it too."""
    for ask in (admission().mutating, validated):
        status = answered(ask(review(BAD)))["status"]
        assert status["code"] == 422
        lines = status["message"].splitlines()
        assert [line.partition(":")[0] for line in lines] == [
            "",
            "- container main, aliquot.dev/compute",
            "- container main, aliquot.dev/memory",
            *(["- scheduling gate aliquot.dev/queue"] if ask is validated else []),
        ]


def test_one_problem_is_one_sentence() -> None:
    """No list of one."""
    message = answered(admission().mutating(review(written(container(compute="0")))))["status"]["message"]
    assert message.startswith("container main, aliquot.dev/compute: 0 is less than 1;")


def test_of_many_problems_the_first_are_told_and_the_rest_counted() -> None:
    """A pod with thousands of containers may have thousands."""
    containers = [{**container(compute="0"), "name": f"c{index}"} for index in range(MOST_PROBLEMS + 5)]
    message = answered(admission().mutating(review(written(*containers))))["status"]["message"]
    lines = message.splitlines()[1:]
    assert len(lines) == MOST_PROBLEMS + 1
    assert lines[MOST_PROBLEMS - 1].startswith(f"- container c{MOST_PROBLEMS - 1}, ")
    assert lines[-1] == "- and 5 more"
    exactly = answered(admission().mutating(review(written(*containers[:MOST_PROBLEMS]))))["status"]["message"]
    assert " more" not in exactly


def test_a_good_pod_comes_in_behind_its_gate_only() -> None:
    """As the mutating endpoint leaves it; without the gate it is refused."""
    assert answered(validated(review(mutated(ASKS)))) == {"allowed": True}
    assert answered(validated(review(ASKS)))["allowed"] is False


def test_a_pod_that_declines_needs_no_gate() -> None:
    """Even if what a LimitRange put on it is still there."""
    declines = {**ASKS, "metadata": {"labels": {"aliquot.dev/use": "none"}}}
    assert answered(validated(review(declines))) == {"allowed": True}


def test_what_an_author_wrote_is_not_taken_off_without_a_word() -> None:
    """What a LimitRange put there is: on which containers Kubernetes notes, by kind and name."""
    ranged = (
        "LimitRanger plugin set: cpu, aliquot.dev/compute request for container main; "
        "cpu, aliquot.dev/compute limit for container main; aliquot.dev/memory limit for container early"
    )
    pod = written(container(compute="30", memory="8000"), labels={"use": "none"})
    pod["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": ranged}
    pod["spec"]["initContainers"] = [container("early", memory="8000")]
    answer = answered(admission().mutating(review(pod)))
    assert answer["patch"]
    assert answer["warnings"] == [
        f"{where}: aliquot.dev/memory is taken off, since label aliquot.dev/use: none declines slices"
        for where in ("init container early", "container main")
    ]


def test_what_a_limit_range_wrote_is_taken_off_silently() -> None:
    """Its pod's author knows of none of it."""
    pod = written(container(compute="30"), labels={"use": "none"})
    wrote = "LimitRanger plugin set: aliquot.dev/compute limit for container main"
    pod["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": wrote}
    answer = answered(admission().mutating(review(pod)))
    assert answer["patch"]
    assert "warnings" not in answer


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        (written(container(compute="30"), nodeName="n1"), True),
        (written(container(compute="30")), False),
        (written(container(), nodeName="n1"), False),
        (written(container(compute="30"), labels={"use": "none"}, nodeName="n1"), False),
    ],
)
def test_whoever_copies_a_pod_that_runs_is_told_that_it_waits_for_its_node(pod: Json, *, told: bool) -> None:
    """It is held there, as its author has written, and by an affinity that nobody has written."""
    warnings = answered(admission().mutating(review(pod))).get("warnings", [])
    said = "spec.nodeName: the pod waits for node n1 and starts on no other; leave it out of a copy"
    assert (said in warnings) is told


def test_warnings_come_with_the_answer_and_are_cut() -> None:
    """The API server complains about longer ones."""
    pod = mutated(written(container(compute="30"), notes={"gpu-model": "H100"}))
    (warning,) = answered(validated(review(pod), models=("A" * 300,)))["warnings"]
    assert len(warning) == LONGEST_WARNING
    assert warning.startswith("annotation aliquot.dev/gpu-model: no GPU of this cluster will do; there are A")


def test_a_kubelet_s_mirror_pods_are_left_alone() -> None:
    """They stand for static pods, which run already; to hold them would only hide what the agent says of them."""
    mirror = written(container(compute="30"), nodeName="n1")
    for ask in (admission().mutating, validated):
        asked = review(mirror, user="system:node:n1", groups=["system:nodes", "system:authenticated"])
        assert answered(ask(asked)) == {"allowed": True}


def change(old: Json, **notes: str) -> bytes:
    """Somebody changes a pod's annotations."""
    notes = {NAMES.of(short.replace("_", "-")): text for short, text in notes.items()}
    return review({**old, "metadata": {**old["metadata"], "annotations": notes}}, old=old)


def test_a_waiting_pod_may_be_mended_but_not_broken() -> None:
    """A change is judged as a new pod is, and never patched."""
    waiting = mutated(ASKS)
    assert answered(validated(change(waiting, placement="pack"))) == {"allowed": True}
    assert answered(validated(change(waiting, placement="near")))["allowed"] is False
    assert answered(admission().mutating(change(waiting, placement="near"))) == {"allowed": True}


def test_a_bound_pod_keeps_what_its_grant_was_made_from() -> None:
    """What else is in it was judged when it came, perhaps by other settings."""
    bound = written(container(compute="30", memory="1"), nodeName="n1")
    assert answered(validated(change(bound, note="x"))) == {"allowed": True}
    part = Slice(gpu="GPU-1", compute=Percent(30), limit=Percent(30), memory=MiB(900))
    grant = Grant(node="n1", pod="u", containers={"main": ContainerGrant(slices=(part,), isolation="interposer")})
    (told,) = answered(validated(change(bound, memory_now="901", grant=encode_grant(grant))))["warnings"]
    assert "901 MiB are more than the 900 that it was granted" in told
    status = answered(validated(change(bound, gpus="2", placement="pack")))["status"]
    assert status["message"].count("can't change any more") == 2


# --- what no API server sends ----------------------------------------------------------------------------------------
