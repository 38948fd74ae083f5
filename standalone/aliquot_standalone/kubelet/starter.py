"""Starting one container: ask its plugins, put its environment together, start the process."""

from __future__ import annotations

from collections.abc import Mapping

from aliquot_core.objects import Container, Pod
from aliquot_proto import deviceplugin_v1beta1_pb2 as api
from aliquot_standalone.kubelet import cdi, launch
from aliquot_standalone.kubelet.admission import Admission
from aliquot_standalone.kubelet.bounds import bounds_of
from aliquot_standalone.kubelet.containers import Launch, Runtime
from aliquot_standalone.kubelet.devices import DeviceTable
from aliquot_standalone.kubelet.errors import AdmissionError, CdiError, PluginError, ProcessError, StartError
from aliquot_standalone.kubelet.holdings import HoldingKey
from aliquot_standalone.kubelet.lifecycle import Process
from aliquot_standalone.kubelet.memory import Memories
from aliquot_standalone.kubelet.nodestatus import needs_of
from aliquot_standalone.kubelet.plugins import Plugins
from aliquot_standalone.kubelet.settings import Folders


class Starter:
    """Starts containers; every failure names the reason that the pod's status shows."""

    def __init__(
        self,
        *,
        folders: Folders,
        table: DeviceTable,
        plugins: Plugins,
        admission: Admission,
        runtime: Runtime,
        memories: Memories,
        base_env: Mapping[str, str],
    ) -> None:
        self._folders = folders
        self._table = table
        self._plugins = plugins
        self._admission = admission
        self._runtime = runtime
        self._memories = memories
        self._base_env = base_env
        self._specs = cdi.SpecFolder(folders.cdi)

    def process_id(self, pod: Pod, container: str, start: int) -> str:
        """What the process of a container's n-th start is called, on this node and no other."""
        return f"{self._folders.place}.{pod.metadata.uid}.{container}.{start}"

    async def start(self, pod: Pod, name: str, start: int) -> Process:
        """Start a container for the n-th time."""
        container = next(one for one in [*pod.spec.init_containers, *pod.spec.containers] if one.name == name)
        try:
            await self._pre_start(pod, container)
        except (PluginError, AdmissionError) as error:
            raise StartError(str(error), reason="CreateContainerConfigError") from error
        try:
            edited = self._edits(pod, container)
        except CdiError as error:
            raise StartError(str(error), reason="CreateContainerError") from error
        try:
            return self._runtime.start(self._launch(pod, container, edited, start))
        except ProcessError as error:
            raise StartError(str(error), reason="RunContainerError") from error

    async def _pre_start(self, pod: Pod, container: Container) -> None:
        """Announce the start; a container admitted before its plugin was known gets its devices now."""
        need = next(need for need in needs_of(pod) if need.container == container.name)
        lacking = False
        for resource in [name for name, count in need.resources.items() if count and self._table.knows(name)]:
            held = self._table.holdings.get(HoldingKey(pod.metadata.uid, container.name, resource))
            if self._table.wants_pre_start(resource):
                if held is None:
                    raise PluginError(f"{container.name} holds no {resource}", where=pod.key)
                await self._plugins.pre_start(resource, sorted(held.ids))
            lacking |= held is None
        if lacking:
            await self._admission.give_devices(pod)

    def _edits(self, pod: Pod, container: Container) -> dict[str, str]:
        """The whole environment: CDI's variables win over all others."""
        held = self._table.holdings.of(pod.metadata.uid, container.name)
        answers = [api.ContainerAllocateResponse.FromString(one.answer) for one in held.values()]
        values = launch.environment(pod, container, base=self._base_env, plugins=[answer.envs for answer in answers])
        names = [device.name for answer in answers for device in answer.cdi_devices]
        if not names:
            return values
        edits = cdi.resolve(self._specs.read(), names)
        cdi.say_what_is_left_out(edits, container=f"{pod.key}/{container.name}")
        return edits.environment(values)

    def _launch(self, pod: Pod, container: Container, values: Mapping[str, str], start: int) -> Launch:
        uid = pod.metadata.uid
        folder = container.working_dir or str(self._memories.folder(uid) / "work")
        return Launch(
            id=self.process_id(pod, container.name, start),
            argv=launch.argv(pod, container, values),
            env=values,
            folder=self._folders.root / folder,
            log_file=self._folders.log_file(pod, container.name, start),
            exit_file=self._memories.exit_file(uid, container.name, start),
            bounds=bounds_of(container),
        )
