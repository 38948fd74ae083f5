"""Of a namespace that is not Aliquot's alone, `daemonset/uninstall.sh` takes away what is Aliquot's."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.uninstalling import DEFINITIONS_GO, NAMESPACE_GOES, changes, whole

GONE = "stays, with what others have there (all of Aliquot's has gone):\n"
EMPTIED = "delete --timeout=1s --ignore-not-found"


@pytest.mark.parametrize(
    ("made_by", "theirs", "stays"),
    [
        ("us", "", ""),
        ("us", "Secret/database\nPersistentVolumeClaim/disk\n", "stays with 2 objects of others"),
        ("us", "Lease/operator\n", "stays with 1 object of others"),
        ("somebody", "", "stays, for it was not made by Aliquot"),
        ("somebody", "Secret/database\n", "stays with 1 object of others"),
    ],
    ids=["ours alone", "others' data", "another's Lease", "made by somebody", "both"],
)
def test_the_namespace_goes_only_if_it_is_ours_alone(tmp_path: Path, made_by: str, theirs: str, stays: str) -> None:
    """Else it goes with whatever others have put there. That it stays is told before anything is done, and what for."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("theirs", theirs)
    if made_by != "us":
        cluster.holds("labelled")
        cluster.holds("stands")
    said = f" (which {stays})" if stays else ""
    first = f"Aliquot (aliquot.dev) is to go from there (https://there): its namespace aliquot-system{said}, policies,"
    assert cluster.uninstall("--dry-run").stdout.startswith(first)
    assert changes(cluster) == []
    told = cluster.uninstall("--yes")
    assert (told.returncode, cluster.bearing()) == (0, set())
    assert DEFINITIONS_GO in cluster.asked
    assert (NAMESPACE_GOES in cluster.asked) is (not stays)
    own = [call.strip() for call in changes(cluster) if f"aliquot-system {EMPTIED}" in call]
    emptied = f"--namespace aliquot-system {EMPTIED}"
    assert own == [
        f"{emptied} --selector app.kubernetes.io/part-of=aliquot pods,secrets,leases.coordination.k8s.io",
        f"{emptied} lease.coordination.k8s.io/node-a lease.coordination.k8s.io/scheduler",
    ] * bool(stays)
    named = theirs or "nothing, but Aliquot has not made it\n"
    assert told.stdout.endswith(f"{GONE}{named}") is bool(stays)


def test_what_comes_meanwhile_stays_too(tmp_path: Path) -> None:
    """Nodes take minutes to withdraw: it is looked again right before the namespace would go."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("appears", "Secret/late\n")
    told = cluster.uninstall("--yes")
    assert told.returncode == 0
    assert told.stdout.endswith(f"{GONE}Secret/late\n")
    assert NAMESPACE_GOES not in cluster.asked
