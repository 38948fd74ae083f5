"""The container a process lives in, by every form of path that runtimes and kubelets make."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.pods.dwellings import Dwelling, dwellings
from aliquot_agent.pods.residents import ProcResidents

UID = "3f0c8a11-5c1e-4f6f-9f4e-0a8b3c1d2e4f"
OTHER = "7a1b2c3d-0000-4f6f-9f4e-0a8b3c1d2e4f"
FLAT = UID.replace("-", "_")
ID = "0123456789abcdef" * 4
OUTER = "fedcba9876543210" * 4
STATIC = "d41d8cd98f00b204e9800998ecf8427e"
BURST = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice"

IN_THE_CONTAINER = {
    "v2, systemd, containerd": f"0::{BURST}/cri-containerd-{ID}.scope",
    "v2, systemd, CRI-O": f"0::{BURST}/crio-{ID}.scope",
    "v2, systemd, CRI-O, a level below": f"0::{BURST}/crio-{ID}.scope/container",
    "v2, systemd, docker": f"0::{BURST}/docker-{ID}.scope",
    "v2, systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope",
    "v2, cgroupfs, burstable": f"0::/kubepods/burstable/pod{UID}/{ID}",
    "v2, cgroupfs, guaranteed": f"0::/kubepods/pod{UID}/{ID}",
    "v2, cgroupfs, CRI-O": f"0::/kubepods/besteffort/pod{UID}/crio-{ID}",
    "v1, systemd": f"12:pids:{BURST}/cri-containerd-{ID}.scope\n1:name=systemd:{BURST}/cri-containerd-{ID}.scope",
    "v1, cgroupfs": f"11:devices:/kubepods/besteffort/pod{UID}/{ID}\n3:cpu,cpuacct:/kubepods/besteffort/pod{UID}/{ID}",
    "v1, one controller stays at the pod": f"2:rdma:/kubepods/pod{UID}\n1:cpu:/kubepods/pod{UID}/{ID}",
    "hybrid": f"1:name=systemd:/kubepods/pod{UID}/{ID}\n0::/",
    "the kubelet's driver is not the runtime's": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{FLAT}.slice:cri-containerd:{ID}"
    ),
    "kind": (
        f"0::/docker/{OUTER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
        f"kubelet-kubepods-besteffort-pod{FLAT}.slice/cri-containerd-{ID}.scope"
    ),
    "kind, cgroupfs": f"0::/docker/{OUTER}/kubelet/kubepods/besteffort/pod{UID}/{ID}",
    "from another cgroup namespace": f"0::/../../kubepods-besteffort-pod{FLAT}.slice/cri-containerd-{ID}.scope",
    "from another one, cgroupfs": f"0::/../../pod{UID}/{ID}",
    "a root of the kubelet's own": f"0::/company.slice/kubepods/burstable/pod{UID}/{ID}",
    "docker inside the container": f"0::/kubepods/pod{UID}/{ID}/docker/{OUTER}",
    "systemd inside the container": f"0::{BURST}/cri-containerd-{ID}.scope/system.slice/x.service",
}
OF_THE_POD = {
    "no container yet": f"0::{BURST}",
    "CRI-O's monitor": f"0::{BURST}/crio-conmon-{ID}.scope",
    "a container of its own making": f"0::{BURST}/init/docker/{ID}",
    "a short id": f"0::{BURST}/cri-containerd-0f3a.scope",
}
OF_NOBODY = {
    "a service": "0::/system.slice/sshd.service",
    "a user": "0::/user.slice/user-0.slice/session-1.scope",
    "podman": f"0::/machine.slice/libpod-{ID}.scope",
    "podman, cgroupfs": f"0::/libpod_parent/libpod-{ID}",
    "podman with an id like a uid": f"0::/machine.slice/libpod{UID}",
    "an id where a uid stands": f"0::/kubepods/pod{ID}/{ID}",
    "docker": f"0::/docker/{ID}",
    "all pods": "0::/kubepods.slice/kubepods-burstable.slice",
    "a uid cut short": f"0::/kubepods/pod{UID[:-1]}/{ID}",
    "dashes and underscores": f"0::/kubepods/pod{UID.replace('-', '_', 1)}/{ID}",
    "nothing": "",
    "garbage": "\x00:::::/\n/\n::",
}


@pytest.mark.parametrize("row", IN_THE_CONTAINER)
def test_pod_and_container_are_read(row: str) -> None:
    """Exactly these and no others."""
    assert dwellings(cgroup=IN_THE_CONTAINER[row]) == (Dwelling(pod=UID, container_id=ID),)


@pytest.mark.parametrize("row", OF_THE_POD)
def test_without_a_container_the_pod_is_read(row: str) -> None:
    """Its overhead is its own, and no container's."""
    assert dwellings(cgroup=OF_THE_POD[row]) == (Dwelling(pod=UID),)


@pytest.mark.parametrize("row", OF_NOBODY)
def test_what_is_no_pod_s_is_nobody_s(row: str) -> None:
    """A process of the node must not be put to a pod's account."""
    assert dwellings(cgroup=OF_NOBODY[row]) == ()


def test_a_static_pod_is_known_by_its_hash() -> None:
    """The API server knows it by another UID, and its mirror by this hash."""
    path = f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope"
    assert dwellings(cgroup=path) == (Dwelling(pod=STATIC, container_id=ID),)


def test_a_node_inside_a_pod_gives_both() -> None:
    """Which of them is known here, only the reader knows."""
    path = f"0::/kubepods/pod{OTHER}/{OUTER}/kubelet/kubepods/besteffort/pod{UID}/{ID}"
    assert dwellings(cgroup=path) == (
        Dwelling(pod=OTHER, container_id=OUTER),
        Dwelling(pod=UID, container_id=ID),
    )


MOUNTS = f"""21 1 8:1 / / rw - ext4 /dev/a rw
70 60 8:1 /var/lib/kubelet/pods/{UID}/etc-hosts /etc/hosts rw - ext4 /dev/a rw
71 60 8:1 /var/lib/kubelet/pods/{UID}/containers/main/0f3a /dev/termination-log rw - ext4 /dev/a rw
89 21 8:1 /var/lib/kubelet/pods/{OTHER}/x/containers/a/b /host/var/lib/kubelet/pods/{OTHER}/x rw - ext4 /dev/a rw
90 21 0:51 / /var/lib/kubelet/pods/{OTHER}/volumes/x rw - tmpfs tmpfs rw
"""


def test_mounts_name_the_container_where_there_are_no_cgroups() -> None:
    """The kubelet gives each container a file for its last words."""
    assert dwellings(cgroup="0::/k8s.io/0f3a", mounts=MOUNTS) == (Dwelling(pod=UID, container="main"),)


def test_cgroups_go_before_mounts() -> None:
    """A pod may mount the folder of all pods; its cgroup it can't choose."""
    assert dwellings(cgroup=f"0::/kubepods/pod{OTHER}/{ID}", mounts=MOUNTS) == (Dwelling(pod=OTHER, container_id=ID),)


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_breaks_the_reader(cgroup: str, mounts: str) -> None:
    """A process chooses its own names."""
    assert all(one.pod for one in dwellings(cgroup=cgroup, mounts=mounts))


def test_processes_are_looked_up_and_those_that_ended_left_out(tmp_path: Path) -> None:
    """By cgroup first, by mounts where that says nothing."""
    for pid, cgroup in ((17, f"0::/kubepods/pod{OTHER}/{ID}"), (18, "0::/k8s.io/x"), (19, "0::/init.scope")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(cgroup)
        (tmp_path / str(pid) / "mountinfo").write_text(MOUNTS if pid == 18 else "")
    assert ProcResidents(tmp_path).dwellings([17, 18, 19, 20]) == {
        17: (Dwelling(pod=OTHER, container_id=ID),),
        18: (Dwelling(pod=UID, container="main"),),
        19: (),
    }
