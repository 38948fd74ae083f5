"""Uninstalling while pods arrive, and cut off at any step, over a kubectl that is played."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from support.uninstalling import DEFINITIONS_GO, GUARDS_GO, NAMESPACE_GOES, SCRIPT, changes, whole

CHART = SCRIPT.parent / "chart" / "templates"
WEBHOOKS_GO = "mutatingwebhookconfigurations"


def calls_of_a_whole_run(folder: Path) -> list[str]:
    """What is asked where nobody comes and nothing fails."""
    cluster = whole(folder)
    assert cluster.uninstall("--yes").returncode == 0
    return cluster.asked.splitlines()


def first_change(calls: list[str]) -> int:
    """The number of the call by which webhooks go; those before only look."""
    return next(number for number, call in enumerate(calls, start=1) if WEBHOOKS_GO in call)


def test_whoever_comes_meanwhile_keeps_no_gate(tmp_path: Path) -> None:
    """At whichever step, up to the last look but one; nobody can look any more when the definitions have gone."""
    calls = calls_of_a_whole_run(tmp_path / "alone")
    looks = [number for number, call in enumerate(calls, start=1) if "schedulingGates" in call and "patch" not in call]
    assert DEFINITIONS_GO in calls[-1]
    assert looks[-2:] == [len(calls) - 2, len(calls) - 1]
    # Some seconds apart: API servers forget a webhook within them.
    assert (tmp_path / "alone" / "slept").read_text().count("5\n") == 2
    for number in range(first_change(calls), len(calls) - 1):
        cluster = whole(tmp_path / str(number))
        cluster.holds("comes", str(number))
        told = cluster.uninstall("--yes")
        assert (told.returncode, cluster.waiting()) == (0, ""), calls[number - 1]


def test_cut_off_at_any_step_the_next_run_does_the_rest(tmp_path: Path) -> None:
    """Also of who came at that instant; only when all is done there is nothing more to run for."""
    calls = calls_of_a_whole_run(tmp_path / "alone")
    for number, call in list(enumerate(calls, start=1))[first_change(calls) - 1 : -1]:
        cluster = whole(tmp_path / str(number))
        cluster.holds("cut", str(number))
        cluster.holds("comes", str(number))
        assert cluster.uninstall("--yes").returncode == -signal.SIGKILL, call
        (tmp_path / str(number) / "cut").unlink()
        (tmp_path / str(number) / "comes").unlink()
        told = cluster.uninstall("--yes")
        assert (told.returncode, cluster.waiting(), cluster.bearing()) == (0, "", set()), (call, told.stderr)
        assert DEFINITIONS_GO in cluster.asked


def test_slices_that_were_got_meanwhile_are_ended_first(tmp_path: Path) -> None:
    """The centre grants until it goes: who has looked before has not seen them. Once they have ended it goes on."""
    calls = calls_of_a_whole_run(tmp_path / "alone")
    cluster = whole(tmp_path / "cluster")
    cluster.holds("granted")
    cluster.holds("comes", str(first_change(calls)))
    told = cluster.uninstall("--yes")
    assert told.returncode == 1
    assert told.stderr.startswith("1 pod has got slices meanwhile: end them and run this again")
    assert GUARDS_GO not in cluster.asked
    assert NAMESPACE_GOES not in cluster.asked
    (tmp_path / "cluster" / "comes").unlink()
    assert cluster.uninstall("--yes").returncode == 1
    cluster.holds("held")
    assert (cluster.uninstall("--yes").returncode, cluster.bearing()) == (0, set())


def test_slices_that_were_got_meanwhile_run_on_where_it_is_forced(tmp_path: Path) -> None:
    """As those do that were there before."""
    calls = calls_of_a_whole_run(tmp_path / "alone")
    cluster = whole(tmp_path / "cluster")
    cluster.holds("granted")
    cluster.holds("comes", str(first_change(calls)))
    assert (cluster.uninstall("--yes", "--force").returncode, cluster.bearing()) == (0, set())


@pytest.mark.parametrize("serves", [True, False])
def test_policies_that_stamp_go_with_the_webhooks(
    tmp_path: Path,
    serves: bool,
) -> None:
    """Where the API server knows their kind: others would refuse to delete what they have no name for."""
    cluster = whole(tmp_path / "cluster")
    if not serves:
        cluster.holds("serves", '{"resources": [{"name": "validatingadmissionpolicies"}]}')
    assert cluster.uninstall("--yes").returncode == 0
    first = changes(cluster)[0]
    assert WEBHOOKS_GO in first
    assert ("mutatingadmissionpolicies" in first) is serves
    assert ("mutatingadmissionpolicybindings" in cluster.asked) is serves


def test_all_that_the_chart_can_make_is_deleted(tmp_path: Path) -> None:
    """By its kind, whatever the values: what has no namespace, or lies in another than that which goes."""
    asked = "\n".join(calls_of_a_whole_run(tmp_path / "alone"))
    texts = [text for template in CHART.glob("*.yaml") for text in template.read_text().split("\n---\n")]
    made = {(first(r"^kind: (.+)", text).lower(), first(r"^  namespace: (.+)", text)) for text in texts}
    outside = {(kind, namespace) for kind, namespace in made if kind and ".Release.Namespace" not in namespace}
    assert {("mutatingadmissionpolicy", ""), ("namespace", ""), ("role", "kube-system")} <= outside
    for kind, namespace in outside:
        plural = f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
        scope = f"--namespace {namespace} " if namespace else ""
        goes = rf"^{scope}delete .*\b({kind}|{plural})\b"
        assert re.search(goes, asked, re.MULTILINE), (kind, namespace)


def first(pattern: str, text: str) -> str:
    """What stands on the first such line; nothing where there is none."""
    return next(iter(re.findall(pattern, text, re.MULTILINE)), "")
