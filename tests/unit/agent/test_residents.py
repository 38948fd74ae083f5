"""Who lives on a node: by cgroups, by a container's mounts, and never by what the node's own processes see."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot_agent.pods.residents import ProcResidents

UID = "3f0c8a11-5c1e-4f6f-9f4e-0a8b3c1d2e4f"
PODS = "/var/lib/kubelet/pods"
VOLUME = f"volumes/kubernetes.io~projected/kube-api-access-x {PODS}/{UID}/volumes/kubernetes.io~projected/x"

ALIVE = {
    "cgroup v1, by the kubelet": ("5:memory:/kubepods/burstable/pod" + UID + "/0f3a", ""),
    "cgroup v2, by systemd": (
        "0::/kubepods.slice/kubepods-pod" + UID.replace("-", "_") + ".slice/cri-containerd-0f3a.scope",
        "",
    ),
    "a container's hosts file": ("0::/k8s.io/0f3a", f"71 60 8:1 {PODS}/{UID}/etc-hosts /etc/hosts rw - ext4 /dev/a rw"),
    "/var on a disk of its own": (
        "0::/",
        f"71 60 8:2 /lib/kubelet/pods/{UID}/containers/m/1 /dev/termination-log rw -",
    ),
}
NOT = {
    "nothing of it": ("0::/system.slice/sshd.service", "21 1 8:1 / / rw - ext4 /dev/a rw"),
    "a volume as the node sees it": ("0::/", f"90 21 0:51 / {PODS}/{UID}/volumes/kubernetes.io~projected/x rw - tmpfs"),
    "a subpath as the node sees it": ("0::/", f"90 21 8:1 {PODS}/{UID}/{VOLUME} rw - ext4 /dev/a rw"),
    "the same from within a container": ("0::/", f"90 21 8:1 {PODS}/{UID}/a /host{PODS}/{UID}/volume-subpaths/a rw -"),
    "garbled": ("0::/", f"/pods/{UID}/"),
}


def proc(folder: Path, *, cgroup: str, mountinfo: str) -> ProcResidents:
    """A /proc with one process, one that ended between two looks, and what is no process."""
    (folder / "17").mkdir()
    (folder / "17" / "cgroup").write_text(f"{cgroup}\n")
    (folder / "17" / "mountinfo").write_text(f"21 1 8:1 / / rw - ext4 /dev/a rw\n{mountinfo}\n")
    (folder / "18").mkdir()
    (folder / "meminfo").touch()
    return ProcResidents(folder)


@pytest.mark.parametrize("row", ALIVE)
def test_a_process_of_the_pod_is_found(tmp_path: Path, row: str) -> None:
    """However the node's runtime is set up."""
    cgroup, mountinfo = ALIVE[row]
    assert proc(tmp_path, cgroup=cgroup, mountinfo=mountinfo).alive({UID, "another"}) == {UID}


@pytest.mark.parametrize("row", NOT)
def test_what_the_node_s_own_processes_see_is_no_life(tmp_path: Path, row: str) -> None:
    """A volume that can't be unmounted must not hold a slice for ever."""
    cgroup, mountinfo = NOT[row]
    assert proc(tmp_path, cgroup=cgroup, mountinfo=mountinfo).alive({UID}) == set()
