"""Each GPU offers the mode that its node was told for it, or says why it does not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import GpuFacts
from aliquot_agent.gpus.simulated import SimulatedDriver
from aliquot_agent.health.gpu_watch import LOOK_AFRESH
from aliquot_agent.isolation.accounts_room import FILLING
from aliquot_agent.isolation.offering import Offered, check_lines, told_of
from aliquot_agent.settings import AgentSettings
from aliquot_agent.starting.decision import Spec, Start
from aliquot_agent.starting.slice_notes import ready_note
from aliquot_cli.node_isolation import make_isolation, make_mps, offer_isolation, what_hinders
from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.inventory import Inventory, decode_inventory, encode_inventory
from aliquot_core.isolation import holds_memory
from aliquot_core.modes import MODES
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_core.settings import SettingsError, Sources, UnusableValueError
from aliquot_deviceplugin.cdi.driver_files import DriverFiles, DriverGpu, SimulatedDriverFiles
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.spec import ContainerEdits, Mount
from support.clocks import VirtualClock
from support.watched import Watched

HELD = "isolation mig: compute held, memory held"
TRIED = "isolation {}: compute best tried, memory only watched"
UNKNOWN = TRIED.format("unknown")
UUID = "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a001"


def gpu(*, uuid: str = UUID, index: int = 1, model: str = "NVIDIA L40S") -> GpuFacts:
    """A GPU as the driver tells of it."""
    return GpuFacts(
        uuid=uuid,
        index=index,
        minor=index,
        model=model,
        memory_total_mib=1000,
        memory_reserved_mib=0,
        compute_capability="8.9",
        architecture="ada",
        pci_bus_id="x",
    )


class Driver:
    """The driver's files: one library, or none, or an error."""

    source = "a test"

    def __init__(self, *libraries: str, error: str = "") -> None:
        self._libraries = libraries
        self._error = error

    def edits_for(self, gpu: DriverGpu) -> ContainerEdits:
        """The same for each GPU that has a minor."""
        if self._error or gpu.minor is None:
            raise DriverFilesError(self._error, where="a test", remedy="none")
        return ContainerEdits(mounts=tuple(Mount(host_path=path, container_path=path) for path in self._libraries))


CUDA = Driver("/usr/lib/libcuda.so.580")


def settings(tmp_path: Path, *lines: str, library: bool = True, **more: str | bool | int) -> AgentSettings:
    """A node's settings, with an interposer that is there or is not."""
    source = tmp_path / "libcuda.so.1"
    if library:
        source.write_bytes(b"interposer")
    folder = str(tmp_path / "isolation")
    # Tests' folders lie on the machine's disk.
    values: dict[str, Any] = {"interposer": str(source), "isolation_folder": folder, "accounts_mib": 0, **more}
    return AgentSettings(isolation_of=lines, **values)


def offer(told: AgentSettings, card: GpuFacts | None = None, *, driver: DriverFiles = CUDA) -> Offered:
    """What the node's agent offers of a GPU."""
    files = make_isolation(told)
    return offer_isolation(card or gpu(), settings=told, obstacle=lambda one: what_hinders(files, driver, one))


@pytest.mark.parametrize(
    ("lines", "mode"),
    [
        ((), "default"),
        (("1=interposer",), "interposer"),
        (("0=interposer",), "default"),
        (("*l40s=interposer",), "interposer"),
        (("NVIDIA-L40S=interposer",), "interposer"),
        (("L40=interposer",), "default"),
        (("gpu-a0a0*=observe", "*=interposer"), "observe"),
        (("*=interposer", "GPU-a0a0*=observe"), "interposer"),
    ],
)
def test_the_first_line_that_names_a_gpu_counts(lines: tuple[str, ...], mode: str) -> None:
    """By uuid, model as anybody writes it, or index; else what the node says of all."""
    assert told_of(gpu(), lines=lines, otherwise="default") == mode


@pytest.mark.parametrize("line", ["interposer", "=interposer", "0=MIG", "0=", "0 interposer", " =observe"])
def test_what_is_no_line_is_refused(line: str) -> None:
    """At start, with the place and what to write, and not when a GPU comes."""
    with pytest.raises(UnusableValueError, match="no line of the table"):
        check_lines([line])
    with pytest.raises(SettingsError, match=r"ALIQUOT_AGENT_ISOLATION_OF.*no line.*=interposer"):
        Sources(environment={"ALIQUOT_AGENT_ISOLATION_OF": line}).resolve("agent", AgentSettings)


def test_who_chooses_mig_is_told_that_it_is_not_chosen() -> None:
    """It is a mode, and its line well written: called no line of the table, it would be searched for a slip."""
    with pytest.raises(SettingsError, match=r"ISOLATION_OF.*'0=mig' chooses mig, which nobody chooses.*leave the line"):
        Sources(environment={"ALIQUOT_AGENT_ISOLATION_OF": "1=observe,0=mig"}).resolve("agent", AgentSettings)


@pytest.mark.parametrize(
    ("lines", "taken"), [((), 512), (("0=300",), 512), (("*l40s=300", "1=400"), 300), (("1=1", "*=300"), 1)]
)
def test_a_context_is_of_the_first_line_that_names_its_gpu(lines: tuple[str, ...], taken: int) -> None:
    """As for modes; else what the node says of all."""
    assert AgentSettings(context_mib_of=lines).contexts()(gpu()) == taken


@pytest.mark.parametrize("line", ["300", "=300", "0=", "0=-1", "0=1.5", "0=16385", "0 300", " =300", "0=300 MiB"])
def test_what_is_no_context_is_refused(line: str) -> None:
    """At start, with the place and what to write."""
    with pytest.raises(SettingsError, match=r"ALIQUOT_AGENT_CONTEXT_MIB_OF.*no line.*=300"):
        Sources(environment={"ALIQUOT_AGENT_CONTEXT_MIB_OF": line}).resolve("agent", AgentSettings)


@pytest.mark.parametrize(("name", "value"), [("", "0"), ("_OF", "*T4*=300,0=0"), ("_OF", "0=000")])
def test_a_context_that_takes_nothing_is_refused(name: str, value: str) -> None:
    """It would be charged to nobody, and as many processes start as a GPU has no room for."""
    with pytest.raises(
        SettingsError, match=rf"ALIQUOT_AGENT_CONTEXT_MIB{name}\b.*every CUDA context takes.*measure it"
    ):
        Sources(environment={f"ALIQUOT_AGENT_CONTEXT_MIB{name}": value}).resolve("agent", AgentSettings)


def test_gpus_of_one_node_offer_different_modes(tmp_path: Path) -> None:
    """The weaker mode is always on offer beside the stronger."""
    told = settings(tmp_path, "0=observe", isolation="interposer")
    assert offer(told, gpu(index=0)) == Offered(modes=("observe",))
    assert offer(told, gpu(index=1)) == Offered(modes=("observe", "interposer"))
    assert (tmp_path / "isolation" / "libcuda.so.1").read_bytes() == b"interposer"


def test_a_node_that_only_watches_makes_no_folder(tmp_path: Path) -> None:
    """Where no GPU is to be interposed, nothing is written."""
    assert offer(settings(tmp_path, "*=observe")) == Offered(modes=("observe",))
    assert make_isolation(settings(tmp_path, "*=observe")) is None
    assert not (tmp_path / "isolation").exists()


@pytest.mark.parametrize("mounts", [True, False])
def test_a_node_that_interposed_once_gives_back_what_filled_its_accounts(tmp_path: Path, *, mounts: bool) -> None:
    """All else stays, for containers run on with it; and where nobody was interposed it is not ours to touch."""
    folder = tmp_path / "isolation"
    (folder / "one").mkdir(parents=True)
    for name in (FILLING, "one/limits"):
        (folder / name).write_bytes(bytes(64))
    assert make_isolation(settings(tmp_path, "*=mps", mounts=mounts)) is None
    assert (folder / FILLING).exists() is not mounts
    assert (folder / "one" / "limits").exists()


@pytest.mark.parametrize(
    ("driver", "library", "more", "lack"),
    [
        (CUDA, False, {}, "can't be mounted into containers"),
        (Driver("/usr/lib/libnvidia-ml.so.1"), True, {}, "libcuda is not among the files"),
        (Driver(error="no driver was found"), True, {}, "no driver was found"),
        (SimulatedDriverFiles(), True, {"gpus": "2xA100-80GB"}, "simulated"),
        (CUDA, True, {"driver_files": "simulated"}, "simulated"),
    ],
)
def test_a_mode_that_can_not_be_had_is_not_offered_and_said(
    tmp_path: Path,
    driver: DriverFiles,
    library: bool,
    more: dict[str, str],
    lack: str,
) -> None:
    """The node says why, where the modes are."""
    found = offer(settings(tmp_path, "*=interposer", library=library, **more), driver=driver)
    assert found.modes == ("observe",)
    assert found.lack.startswith("interposer is not offered: ")
    assert lack in found.lack


@pytest.mark.parametrize(
    ("card", "kept", "lack"),
    [
        (gpu(), True, ""),
        (gpu(), False, "no process keeps MPS daemons on this node: start `aliquot mps`"),
        (
            msgspec.structs.replace(gpu(), compute_capability="6.1"),
            True,
            "would share one address space: choose another mode",
        ),
        (msgspec.structs.replace(gpu(), compute_capability="7.0"), True, ""),
        (msgspec.structs.replace(gpu(), compute_capability="10.0"), True, ""),
        (
            msgspec.structs.replace(gpu(), mig_enabled=True),
            True,
            "MIG is enabled: switch it off (nvidia-smi -mig 0), or choose another mode",
        ),
    ],
)
def test_a_gpu_of_mps_offers_nothing_else(
    tmp_path: Path,
    card: GpuFacts,
    kept: bool,
    lack: str,
) -> None:
    """For it is open to the daemon alone; one that MPS can't share is only watched, and says why."""
    told = msgspec.structs.replace(settings(tmp_path, "1=mps"), mps_folder=str(tmp_path / "mps"))
    mps = make_mps(told)
    assert mps is not None
    if kept:
        os.close(mps.hold())
    found = offer_isolation(card, settings=told, obstacle=lambda _: "never asked", mps=mps)
    assert found.modes == (("observe",) if lack else ("mps",))
    assert lack in found.lack


def test_what_is_mounted_for_nobody_is_not_offered(tmp_path: Path) -> None:
    """Under `aliquot up` a process has the driver's own library, and is not said to be held by ours; but MPS works."""
    told = settings(tmp_path, "0=interposer", "1=mps", mounts=False, mps_folder=str(tmp_path / "mps"))
    found = offer(told, gpu(index=0))
    assert found.modes == ("observe",)
    assert "see the driver's own library: choose mps or observe" in found.lack
    assert not (tmp_path / "isolation").exists()
    mps = make_mps(told)
    assert mps is not None
    os.close(mps.hold())
    assert offer_isolation(gpu(index=1), settings=told, obstacle=lambda _: "never asked", mps=mps).modes == ("mps",)


def test_a_node_without_mps_has_no_folder_of_daemons(tmp_path: Path) -> None:
    """Where no GPU is told so, nobody is asked for anything."""
    assert make_mps(settings(tmp_path, "0=interposer")) is None


def test_what_was_in_the_way_may_go(tmp_path: Path) -> None:
    """The library is looked for at each look: it may come late, and it is put back where somebody removed it."""
    told = settings(tmp_path, isolation="interposer", library=False)
    files = make_isolation(told)
    assert files is not None
    assert what_hinders(files, CUDA, gpu()) != ""
    (tmp_path / "libcuda.so.1").write_bytes(b"interposer")
    assert what_hinders(files, CUDA, gpu()) == ""
    files.library.unlink()
    assert what_hinders(files, CUDA, gpu()) == ""
    assert files.library.read_bytes() == b"interposer"


async def test_the_inventory_says_what_each_gpu_offers() -> None:
    """With the reason, through the annotation and back; a change is published like any other."""
    clock = VirtualClock()
    models = [KNOWN_MODELS["L4"]] * 2
    offers = {0: Offered(lack="no library"), 1: Offered(modes=("observe", "interposer"))}
    watched = Watched(
        driver=SimulatedDriver(node="n1", models=models, clock=clock), clock=clock, offer=lambda one: offers[one.index]
    )

    def published() -> list[tuple[list[str], str]]:
        seen: Inventory = decode_inventory(encode_inventory(watched.watch.inventory))
        return [(one.isolation, one.isolation_lack) for one in seen.gpus]

    async with watched.running():
        await clock.advance(1)
        assert published() == [(["observe"], "no library"), (["observe", "interposer"], "")]
        offers[0] = offers[1]
        await clock.advance(LOOK_AFRESH)
        assert published() == [(["observe", "interposer"], "")] * 2


def spec(*parts: tuple[int, int, int], isolation: str, name: str = "main") -> Spec:
    """A container's slices: compute, limit, memory."""
    slices = tuple(
        Slice(gpu=f"GPU-{at}", compute=Percent(compute), limit=Percent(limit), memory=MiB(memory))
        for at, (compute, limit, memory) in enumerate(parts)
    )
    return Spec(cdi_name=name, container=name, grant=ContainerGrant(slices=slices, isolation=isolation))


@pytest.mark.parametrize(
    ("specs", "note"),
    [
        (
            (spec((30, 30, 500), isolation="interposer"),),
            "main: 30 % and 500 MiB of GPU-0; isolation interposer: compute held, memory held",
        ),
        (
            (spec((100, 100, 9), (50, 80, 7), isolation="observe"),),
            "main: 100 % and 9 MiB of GPU-0, 50 % up to 80 % and 7 MiB of GPU-1; " + TRIED.format("observe"),
        ),
        (
            (spec((0, 100, 5), isolation="", name="a"), spec((9, 9, 5), isolation="mig", name="b")),
            f"a: idle compute up to 100 % and 5 MiB of GPU-0; {UNKNOWN}; b: 9 % and 5 MiB of GPU-0; {HELD}",
        ),
    ],
)
def test_a_pod_is_told_what_it_holds_and_how_hard(specs: tuple[Spec, ...], note: str) -> None:
    """The Event of its start has each container's slices and mode."""
    assert ready_note(Start(pod=Pod(), specs=specs, claims={})) == note


def test_memory_is_held_by_the_interposer_and_by_hardware() -> None:
    """What only watches, and MPS with its limit for each process alone, hold no container's sum."""
    assert [mode for mode in MODES if holds_memory(mode)] == ["interposer", "mig"]


@pytest.mark.parametrize(("mib", "lack"), [(64, "is on the node's disk"), (0, "")])
def test_a_folder_on_the_nodes_disk_is_said_where_it_was_to_be_bounded(tmp_path: Path, mib: int, lack: str) -> None:
    """The mode is on offer all the same; who watches only has no account."""
    found = offer(settings(tmp_path, "0=interposer", accounts_mib=mib), gpu(index=0))
    assert found.modes == ("observe", "interposer")
    assert (lack in found.lack) if lack else not found.lack
    assert offer(settings(tmp_path, "0=observe", accounts_mib=mib), gpu(index=0)) == Offered(modes=("observe",))
