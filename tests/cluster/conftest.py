"""The cluster that the tests in this folder share, and a namespace for each of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.harness import binaries, requirements
from cluster.harness.cluster import ClusterHarness
from cluster.node_half import NodeHalf
from support.require import skip_or_fail
from support.sharing import CLUSTER, is_last

HERE = Path(__file__).parent
INSTALLED = HERE / "test_installed.py"
_ENDS = pytest.StashKey[ExitStack]()
TEST_SECONDS = 300  # the first test also starts the cluster, in 4 s on a quiet machine of 2 cores


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder; the hook is given all tests, already shuffled."""
    # What is installed once for all tests of a file goes last: another of its tests would have to install it again.
    items.sort(key=lambda item: (item.path == INSTALLED) + (item.path == INSTALLED and "uninstalled" in item.name))
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test what went on in the cluster."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, ClusterHarness):
        report.sections.append(("the cluster", cluster.explain()))
    return report


@pytest.fixture(scope="session")
def able_machine() -> None:
    """Skip, or fail where the cluster is required, unless this machine can run one."""
    reason = requirements.why_not()
    if reason:
        skip_or_fail("cluster", reason)


@pytest.fixture(scope="session")
def helm_built() -> None:
    """Skip, or fail where the cluster is required, unless helm is there."""
    if binaries.find("helm") is None:
        skip_or_fail("cluster", "helm is not built: run tests/cluster/binaries/build helm")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """End what tests of this folder share with the last of them; by its scope it lives until the folders below end."""
    yield
    following = file_of(nextitem) if nextitem else None
    if (ends := item.session.stash.get(_ENDS, None)) and is_last(file_of(item), following, of=CLUSTER):
        ends.close()


def file_of(item: pytest.Item) -> str:
    """Its path from the project's root."""
    return item.path.relative_to(item.config.rootpath).as_posix()


@pytest.fixture(scope="package")
def ends(request: pytest.FixtureRequest) -> Iterator[ExitStack]:
    """What is to end with the last test of this folder."""
    with ExitStack() as ends:
        request.session.stash[_ENDS] = ends
        yield ends


@pytest.fixture(scope="package")
def cluster(able_machine: None, ends: ExitStack) -> ClusterHarness:  # noqa: ARG001 - it may skip
    """Two nodes and a control plane, for all tests of this folder that have no other."""
    return ends.enter_context(ClusterHarness())


@pytest.fixture
def namespace(cluster: ClusterHarness) -> Iterator[str]:
    """Give the test a namespace of its own; its pods are gone before the next test begins."""
    with cluster.namespace() as name:
        yield name


@pytest.fixture(scope="package")
def half(cluster: ClusterHarness, ends: ExitStack) -> NodeHalf:
    """Endpoint and agent on node1, for all tests; whoever stops one of them starts it again."""
    running = NodeHalf(cluster, cluster.node("node1"))
    running.start()
    ends.callback(running.stop)
    return running
