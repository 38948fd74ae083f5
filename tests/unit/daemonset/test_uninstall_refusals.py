"""Uninstalling by other names than the usual, and what is refused before anything is done; kubectl is played."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.uninstalling import NAMESPACE_GOES, Cluster, changes, whole


def expect_refused(told: subprocess.CompletedProcess[str], cluster: Cluster, said: str, *, code: int = 1) -> None:
    """With this sentence, before anything was written or deleted."""
    assert (told.returncode, told.stdout, changes(cluster)) == (code, "", [])
    assert told.stderr == f"{said}: nothing was done\n"


@pytest.mark.parametrize("domain", ["aliquot.dev", "acme.example"])
@pytest.mark.parametrize("namespace", ["aliquot-system", "gpus"])
@pytest.mark.parametrize("said", ["nothing", "both"])
def test_domain_and_namespace_are_those_that_are_installed(
    tmp_path: Path, domain: str, namespace: str, said: str
) -> None:
    """Whoever runs it need not know them; whoever does may say so."""
    cluster = whole(tmp_path / "cluster")
    cluster.is_installed(domain=domain, namespace=namespace)
    variables = {"domain": domain, "namespace": namespace} if said == "both" else {}
    cluster.holds("held", "Running\n")
    told = cluster.uninstall("--yes", **variables)
    assert told.stderr == "1 pod holds slices: end them, or run this with --force\n"
    assert changes(cluster) == []
    cluster.holds("held")
    told = cluster.uninstall("--yes", **variables)
    assert (told.returncode, cluster.bearing()) == (0, set())
    assert told.stdout.startswith(f"Aliquot ({domain}) is to go from there (https://there): its namespace {namespace},")
    assert f"{NAMESPACE_GOES} --ignore-not-found {namespace} \n" in cluster.asked
    assert not (tmp_path / "cluster" / "waiting").exists()


@pytest.mark.parametrize("more", ["--yes", "--dry-run", "--force"])
@pytest.mark.parametrize(
    ("installed", "variable", "given"),
    [
        ("aliquot.dev", "domain", "acme.example"),
        ("acme.example", "domain", "aliquot.dev"),
        ("aliquot.dev", "domain", "aliquotXdev"),
        ("aliquot.dev", "domain", "dev"),
        ("aliquot-system", "namespace", "nonsense"),
        ("gpus", "namespace", "aliquot-system"),
    ],
)
def test_another_domain_or_namespace_than_the_installed_one_is_refused(
    tmp_path: Path, installed: str, variable: str, given: str, more: str
) -> None:
    """It would count nothing, and take the guards from pods that hold slices."""
    cluster = whole(tmp_path / "cluster")
    cluster.is_installed(**{variable: installed})
    said = f"ALIQUOT_{variable.upper()} is {given}, and installed in there (https://there) is {installed}"
    expect_refused(cluster.uninstall("--yes", more, **{variable: given}), cluster, said)


def test_of_two_domains_one_is_to_be_said(tmp_path: Path) -> None:
    """Nobody guesses."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("domains", "aliquot.dev\nacme.example\n")
    said = "ALIQUOT_DOMAIN is not set, and installed in there (https://there) is acme.example aliquot.dev"
    expect_refused(cluster.uninstall("--yes"), cluster, said)
    assert cluster.uninstall("--yes", domain="aliquot.dev").returncode == 0
    assert cluster.bearing() == set()


def test_where_nothing_is_installed_nothing_is_done(tmp_path: Path) -> None:
    """As after `helm uninstall` alone: nobody is there who may take back what nodes bear."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("domains")
    said = (
        "Aliquot is not installed in there (https://there) (no definition bears app.kubernetes.io/part-of=aliquot); "
        "where something of it is left on nodes or pods, install it again as it was and run this"
    )
    expect_refused(cluster.uninstall("--yes", "--force"), cluster, said)


def test_who_can_not_let_nodes_withdraw_does_not_begin(tmp_path: Path) -> None:
    """Without the pod's description, the namespace deleted by hand say, what nodes bear would be left, and guarded."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("withdraws")
    said = (
        "the ConfigMap aliquot-withdraw, by which 2 nodes withdraw, is not in aliquot-system of there (https://there): "
        "install Aliquot again as it was and run this"
    )
    expect_refused(cluster.uninstall("--yes", "--force"), cluster, said)
    for node in "ab":
        cluster.lost(node)
    assert cluster.uninstall("--yes").returncode == 0


def test_agents_that_seem_to_write_nothing_are_looked_at_first(tmp_path: Path) -> None:
    """They may write by another domain; one that never became ready has written nothing, and does not matter."""
    cluster = Cluster(tmp_path, {"a": "alive agent", "b": "agent"})
    said = (
        "agents are ready on 1 node, and no node bears what they write for aliquot.dev: see what domain theirs is "
        "(kubectl --namespace aliquot-system logs ds/aliquot-agent), or say --force"
    )
    expect_refused(cluster.uninstall("--yes"), cluster, said)
    assert cluster.uninstall("--yes", "--force").stderr.startswith("node b does not answer")
    assert "label nodes" in cluster.asked
    cluster.lost("b")
    assert cluster.uninstall("--yes").returncode == 0


@pytest.mark.parametrize(("rights", "labelled"), [("", "gpus\n"), ("", "")], ids=["before its rights", "after them"])
def test_without_rights_the_labelled_namespace_goes_if_there_is_one(tmp_path: Path, rights: str, labelled: str) -> None:
    """An installation stopped half-way has no rights yet; one that is all but gone has none any more."""
    cluster = Cluster(tmp_path, {})
    cluster.holds("rights", rights)
    cluster.holds("labelled", labelled)
    assert cluster.uninstall("--yes").returncode == 0
    goes = [call for call in changes(cluster) if call.startswith(NAMESPACE_GOES)]
    assert goes == ([f"{NAMESPACE_GOES} --ignore-not-found gpus "] if labelled else [])


@pytest.mark.parametrize("more", ["--yes", "--dry-run", "--force"])
@pytest.mark.parametrize("patience", ["10m", "ten", "-1", "1.5", "010", " 5", "0x10", "1000000000"])
def test_patience_that_is_no_number_is_refused_before_anything(tmp_path: Path, patience: str, more: str) -> None:
    """It was noticed once nothing but nodes was left; and nobody is asked meanwhile."""
    cluster = whole(tmp_path / "cluster")
    said = f"ALIQUOT_PATIENCE is {patience}, which is no number of seconds"
    expect_refused(cluster.uninstall("--yes", more, patience=patience), cluster, said, code=2)
    assert cluster.asked == ""


@pytest.mark.parametrize("variable", ["domain", "namespace"])
def test_a_variable_that_is_empty_is_as_one_that_is_not_set(tmp_path: Path, variable: str) -> None:
    """As shells have it."""
    assert whole(tmp_path / "cluster").uninstall("--yes", **{variable: ""}).returncode == 0
