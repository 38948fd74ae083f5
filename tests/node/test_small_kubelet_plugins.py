"""The small kubelet and device plugins over real gRPC: it must be no kinder than the real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc import aio

from aliquot_proto import deviceplugin_v1beta1_pb2 as api
from aliquot_proto import pluginregistration_v1_pb2 as registration_api
from aliquot_standalone.kubelet.choosing import Allocate, Device, Options, Prefer
from aliquot_standalone.kubelet.errors import PluginError
from aliquot_standalone.kubelet.plugins import Plugins
from aliquot_standalone.kubelet.registry import Registry
from aliquot_standalone.kubelet.settings import Folders, Settings
from support.clocks import VirtualClock
from support.http_api import LONG_S
from support.kubelets import RESOURCE
from support.tiny_plugin import Refusal, RegistrySocket, TinyPlugin, device

SETTINGS = Settings(dial_timeout=LONG_S, prestart_timeout=0.1)


class Events:
    """Keeps what plugins do, and lets tests wait for it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []
        self._more = asyncio.Event()

    def plugin_connected(self, resource: str, options: Options) -> None:
        """A plugin has registered."""
        self._add("connected", (resource, options))

    def plugin_listed(self, resource: str, devices: list[Device]) -> None:
        """A plugin tells its devices."""
        self._add("listed", (resource, devices))

    def plugin_gone(self, resource: str) -> None:
        """A plugin's stream has ended."""
        self._add("gone", resource)

    @property
    def names(self) -> list[str]:
        """What happened, in order."""
        return [name for name, _ in self.seen]

    async def until(self, *names: str) -> None:
        """Wait until exactly this has happened."""
        while self.names != list(names):
            assert len(self.names) <= len(names), self.names
            self._more.clear()
            await self._more.wait()

    def _add(self, name: str, what: object) -> None:
        self.seen.append((name, what))
        self._more.set()


@pytest.fixture
def events() -> Events:
    """What plugins do."""
    return Events()


@contextlib.asynccontextmanager
async def registering(folders: Folders, events: Events, settings: Settings = SETTINGS) -> AsyncIterator[Plugins]:
    """The registration service, serving."""
    made = Plugins(folders=folders, settings=settings, events=events)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture
async def plugins(folders: Folders, events: Events) -> AsyncIterator[Plugins]:
    """One with the settings of most tests."""
    async with registering(folders, events) as made:
        yield made


@contextlib.asynccontextmanager
async def serving(folders: Folders, *ids: str, socket: str = "tiny.sock") -> AsyncIterator[TinyPlugin]:
    """A plugin that serves but has not registered."""
    devices = [device(one) for one in ids]
    plugin = TinyPlugin(resource=RESOURCE, devices=devices, folder=folders.device_plugins, socket=socket)
    await plugin.serve()
    try:
        yield plugin
    finally:
        await plugin.stop()


async def test_registration_calls_back_before_it_answers(plugins: Plugins, events: Events, folders: Folders) -> None:
    """When Register returns, the options have been asked; the list and its changes follow."""
    async with serving(folders, "a") as plugin:
        plugin.options.pre_start_required = True
        await plugin.register()
        assert events.seen[0] == ("connected", (RESOURCE, Options(pre_start=True)))
        await events.until("connected", "listed")
        await plugin.change([device("a", healthy=False, numa=1)])
        await events.until("connected", "listed", "listed")
    assert events.seen[2] == ("listed", (RESOURCE, [Device(id="a", healthy=False, numa=(1,))]))
    await events.until("connected", "listed", "listed", "gone")
    with pytest.raises(PluginError, match="is gone"):
        await plugins.pre_start(RESOURCE, ["a"])


async def test_plugin_that_does_not_serve_is_refused(folders: Folders, events: Events) -> None:
    """A registration for a socket where nobody answers fails, and leaves nothing behind."""
    plugin = TinyPlugin(resource=RESOURCE, devices=[], folder=folders.device_plugins)
    async with registering(folders, events, Settings(dial_timeout=0.2)) as plugins:
        with pytest.raises(aio.AioRpcError, match="can't be reached") as refused:
            await plugin.register()
        assert refused.value.code() is grpc.StatusCode.UNKNOWN
        with pytest.raises(PluginError, match="is gone"):
            await plugins.ask(Allocate(resource=RESOURCE, ids=["a"]))


@pytest.mark.parametrize(
    ("version", "resource"),
    [("v1alpha", None), ("v1beta1", "plain"), ("v1beta1", "kubernetes.io/x"), ("v1beta1", "requests.a.b/x")],
)
async def test_wrong_version_or_name_is_refused(
    plugins: Plugins, folders: Folders, version: str, resource: str | None
) -> None:
    """Another protocol, or a name that is no extended resource's, is refused before any call back."""
    async with serving(folders, "a") as plugin:
        with pytest.raises(aio.AioRpcError):
            await plugin.register(version=version, resource=resource)
        assert plugin.calls == []
        assert plugins is not None


async def test_only_sockets_directly_in_the_folder_are_removed(folders: Folders, events: Events) -> None:
    """A start deletes plugins' sockets, but no other file and nothing in sub-folders."""
    (folders.device_plugins / "kubelet_internal_checkpoint").write_text("{}")
    async with (
        serving(folders, "a") as near,
        serving(folders, "a", socket="sub/far.sock") as far,
        registering(folders, events),
    ):
        assert (near.path.exists(), far.path.exists(), folders.checkpoint.exists()) == (False, True, True)
        await far.register()
        await events.until("connected", "listed")


async def test_old_stream_takes_the_new_registration_with_it(
    plugins: Plugins, events: Events, folders: Folders
) -> None:
    """The race of the real one: when an old stream ends, whoever is registered then is disconnected."""
    async with serving(folders, "a", socket="old.sock") as old, serving(folders, "b", socket="new.sock") as new:
        await old.register()
        await events.until("connected", "listed")
        await new.register()
        await events.until("connected", "listed", "connected", "listed")
        await old.end_streams()
        await events.until("connected", "listed", "connected", "listed", "gone")
        with pytest.raises(PluginError, match="is gone"):
            await plugins.ask(Allocate(resource=RESOURCE, ids=["b"]))
        await new.register()
        await plugins.ask(Allocate(resource=RESOURCE, ids=["b"]))
        assert new.asked("allocate") == [["b"]]


async def test_old_stream_takes_a_registration_that_is_dialling_with_it(
    plugins: Plugins, events: Events, folders: Folders
) -> None:
    """Who is being reached when the old stream ends is told so, and may register again."""
    silent = TinyPlugin(resource=RESOURCE, devices=[device("b")], folder=folders.device_plugins, socket="new.sock")
    async with serving(folders, "a", socket="old.sock") as old:
        await old.register()
        await events.until("connected", "listed")
        dialling = asyncio.create_task(plugins.connect(RESOURCE, silent.path))
        await asyncio.sleep(0)  # Its first step: it is the one registered now.
        await old.end_streams()
        with pytest.raises(PluginError, match="stream of the same name ended meanwhile"):
            await dialling
    await events.until("connected", "listed", "gone")


async def test_dropped_plugin_takes_no_third_one_with_it(plugins: Plugins, events: Events, folders: Folders) -> None:
    """The stream of one that was dropped for another ends too, and whoever has registered by then stays."""
    async with serving(folders, "a", socket="old.sock") as old, serving(folders, "b", socket="new.sock") as new:
        await old.register()
        await events.until("connected", "listed")
        await new.register()
        await events.until("connected", "listed", "connected", "listed")
        await plugins.disconnect(RESOURCE)
        await plugins.connect(RESOURCE, new.path)
        await old.change([device("c")])
        await events.until("connected", "listed", "connected", "listed", "gone", "connected", "listed", "listed")
        await plugins.ask(Allocate(resource=RESOURCE, ids=["b"]))


async def test_list_beyond_the_receive_limit_ends_the_plugin(folders: Folders, events: Events) -> None:
    """Each id of 8 characters takes 21 bytes: what passes the limit by one id turns all devices unhealthy."""
    async with registering(folders, events, Settings(receive_limit=4096)), serving(folders) as plugin:
        plugin.devices = [device(f"{number:08}") for number in range(196)]
        await plugin.register()
        await events.until("connected", "gone")
        plugin.devices = plugin.devices[:195]
        await plugin.register()
        await events.until("connected", "gone", "connected", "listed")
    assert Settings().receive_limit == 4 * 1024 * 1024


async def test_questions_reach_the_plugin(plugins: Plugins, folders: Folders) -> None:
    """What the device table asks arrives as the kubelet words it, and the answer comes back whole."""
    async with serving(folders, "a", "b") as plugin:
        plugin.prefer = lambda asked: [*asked.must_include_deviceIDs, "b"]
        plugin.answer = lambda ids: api.ContainerAllocateResponse(envs={"IDS": ",".join(ids)})
        await plugin.register()
        preferred = await plugins.ask(Prefer(resource=RESOURCE, available=["a", "b"], must_include=["a"], size=2))
        allocated = await plugins.ask(Allocate(resource=RESOURCE, ids=["a", "b"]))
    asked = plugin.asked("prefer")[0]
    assert (list(asked.available_deviceIDs), asked.allocation_size) == (["a", "b"], 2)
    assert preferred.ids == ("a", "b")
    assert dict(api.ContainerAllocateResponse.FromString(allocated.response).envs) == {"IDS": "a,b"}


async def test_refusals_and_silence_are_errors(plugins: Plugins, folders: Folders) -> None:
    """An error or no answer within the limit is a PluginError with the plugin's own words."""
    async with serving(folders, "a") as plugin:
        never = asyncio.Event()

        async def hang(_ids: list[str]) -> None:
            await never.wait()

        def refuse(_ids: list[str]) -> api.ContainerAllocateResponse:
            raise Refusal("not today")

        plugin.answer, plugin.pre_start = refuse, hang
        await plugin.register()
        with pytest.raises(PluginError, match=r"Allocate of .* UNAVAILABLE: not today"):
            await plugins.ask(Allocate(resource=RESOURCE, ids=["a"]))
        with pytest.raises(PluginError, match=r"PreStartContainer of .* DEADLINE_EXCEEDED"):
            await plugins.pre_start(RESOURCE, ["a"])


# --- plugins_registry
def registry_on(folders: Folders, plugins: Plugins, clock: VirtualClock) -> Registry:
    """What looks at the folder."""
    return Registry(folder=folders.plugins_registry, connector=plugins, clock=clock, settings=SETTINGS)


@contextlib.asynccontextmanager
async def left_in_registry(
    folders: Folders, *, kind: str = "DevicePlugin", endpoint: str = "", versions: tuple[str, ...] = ("v1beta1",)
) -> AsyncIterator[RegistrySocket]:
    """A plugin's socket in plugins_registry."""
    info = registration_api.PluginInfo(type=kind, name=RESOURCE, endpoint=endpoint, supported_versions=versions)
    socket = RegistrySocket(path=folders.plugins_registry / "tiny-reg.sock", info=info)
    await socket.serve()
    try:
        yield socket
    finally:
        await socket.stop()


async def test_plugin_in_the_registry_is_found_and_dropped_with_its_socket(
    plugins: Plugins, events: Events, folders: Folders
) -> None:
    """The kubelet comes by itself, tells the outcome, does not come twice, and drops the plugin with its socket."""
    registry = registry_on(folders, plugins, VirtualClock())
    async with serving(folders, "a", socket="sub/tiny.sock") as plugin:
        async with left_in_registry(folders, endpoint=str(plugin.path)) as socket:
            await registry.look()
            await events.until("connected", "listed")
            assert (await socket.statuses.get()).plugin_registered
            await registry.look()
            assert events.names == ["connected", "listed"]
        await registry.look()
        await events.until("connected", "listed", "gone")


async def test_socket_made_anew_in_the_registry_registers_anew(
    plugins: Plugins, events: Events, folders: Folders
) -> None:
    """A plugin that was restarted between two looks is recognised by its new socket."""
    registry = registry_on(folders, plugins, VirtualClock())
    async with serving(folders, "a", socket="sub/tiny.sock") as plugin:
        for round_number in (1, 2):
            async with left_in_registry(folders, endpoint=str(plugin.path)):
                await registry.look()
                await events.until(*["connected", "listed"] * round_number)
    assert plugins is not None


@pytest.mark.parametrize(("kind", "versions"), [("CSIPlugin", ("v1beta1",)), ("DevicePlugin", ("v2",))])
async def test_refused_plugin_in_the_registry_is_told_and_tried_again(
    plugins: Plugins, events: Events, folders: Folders, kind: str, versions: tuple[str, ...]
) -> None:
    """It hears why, and the kubelet comes back after half a second, then after one."""
    clock = VirtualClock()
    registry = registry_on(folders, plugins, clock)
    async with left_in_registry(folders, kind=kind, versions=versions) as socket:
        for wait in (0.0, 0.5, 1.0):
            await clock.advance(wait * 0.9)
            await registry.look()
            assert socket.statuses.empty() == (wait > 0)
            await clock.advance(wait * 0.1)
            await registry.look()
            refusal = await socket.statuses.get()
            assert not refusal.plugin_registered
            assert refusal.error
    assert events.names == []


async def test_registry_looks_again_and_again(plugins: Plugins, events: Events, folders: Folders) -> None:
    """A socket that appears later is found at the next look, a tenth of a second on."""
    clock = VirtualClock()
    looking = asyncio.create_task(registry_on(folders, plugins, clock).run())
    async with serving(folders, "a", socket="sub/tiny.sock") as plugin:
        await clock.advance(0.05)
        async with left_in_registry(folders, endpoint=str(plugin.path)) as socket:
            await clock.advance(0.05)
            assert (await socket.statuses.get()).plugin_registered
            await events.until("connected", "listed")
    looking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking
