"""What uninstalling takes off pods that wait, over a kubectl that is played."""

from __future__ import annotations

from pathlib import Path

from aliquot_core.names import Names
from support.uninstalling import GUARDS_GO, Cluster, whole

NAMES = Names()
NOTES = {NAMES.turn, NAMES.promised, NAMES.shown, NAMES.room, NAMES.charged, NAMES.over_use, NAMES.group_run}
MANY = 2_500


def patches(cluster: Cluster) -> list[str]:
    """The calls by which pods are changed."""
    return [call for call in cluster.asked.splitlines() if "patch --filename" in call]


def test_thousands_are_freed_by_few_calls(tmp_path: Path) -> None:
    """A kubectl for each takes an hour for ten thousand; and what one of them failed to free the next look finds."""
    cluster = whole(tmp_path / "cluster")
    everybody = "".join(f"team-{number % 7} pod-{number}\n" for number in range(MANY))
    cluster.holds("waiting", everybody)
    assert cluster.uninstall("--yes").returncode == 0
    assert (cluster.waiting(), len(patches(cluster))) == ("", 4)
    first = next(number for number, call in enumerate(cluster.asked.splitlines(), start=1) if "patch" in call)
    again = whole(tmp_path / "again")
    again.holds("waiting", everybody)
    again.holds("fails", str(first))
    told = again.uninstall("--yes")
    assert (told.returncode, again.waiting(), told.stderr) == (0, "", "")
    assert 4 < len(patches(again)) <= 8


def test_who_was_let_in_and_waits_for_a_node_keeps_no_word_of_the_centre(tmp_path: Path) -> None:
    """Once the policies have gone that keep some of it: it would be read as true, and by the next installation too."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("noted", "team let-in\n")
    assert cluster.uninstall("--yes").returncode == 0
    assert not (tmp_path / "cluster" / "noted").exists()
    gates, notes, status = patches(cluster)
    calls = cluster.asked.splitlines()
    assert next(at for at, call in enumerate(calls) if GUARDS_GO in call) < calls.index(notes)
    assert {name for name in NAMES.known() if f'"{name}": null' in notes} == NOTES
    # A patch that the policies refuse in part does nothing of it.
    assert "annotations" not in gates
    assert f'"type": "{NAMES.admitted}", "$patch": "delete"' in status
    assert '"nominatedNodeName": null' in status


def test_who_can_not_be_freed_is_named_in_the_end(tmp_path: Path) -> None:
    """Somebody's webhook refuses every change of pods, say: what it said is told once that lasts."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("waiting", "team one\nteam two\n")
    cluster.holds("keeps", "denied by theirs\n")
    told = cluster.uninstall("--yes")
    assert (told.returncode, cluster.waiting()) == (1, "team one\nteam two\n")
    said = told.stderr.splitlines()
    assert (set(said[:-1]), len(said)) == ({"denied by theirs"}, 41)
    assert said[-1] == (
        "2 pods bear still what is ours, team/one first; see above what was said to that, mend it, and run this again"
    )
