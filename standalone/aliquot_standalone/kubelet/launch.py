"""From a container's spec to a process: command, arguments and environment, put together as the kubelet does. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aliquot_core.objects import Container, Pod
from aliquot_standalone.kubelet.errors import NoCommandError

_REFERENCE = re.compile(r"\$\$|\$\(([-._A-Za-z][-._A-Za-z0-9]*)\)")


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` → its value; unknown names stay as written, `$$` is one dollar."""

    def one(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else values.get(name, found.group(0))

    return _REFERENCE.sub(one, text)


def environment(
    pod: Pod, container: Container, *, base: Mapping[str, str], plugins: Sequence[Mapping[str, str]]
) -> dict[str, str]:
    """The variables before CDI's: the node's, then the plugins', then the pod's own, which win so far."""
    values = {**base, "HOSTNAME": pod.metadata.name}
    for given in plugins:
        for name, value in given.items():
            values.setdefault(name, value)
    for variable in container.env:
        values[variable.name] = expand(variable.value, values)
    return values


def argv(pod: Pod, container: Container, values: Mapping[str, str]) -> list[str]:
    """The command line; a container that relies on its image has none here."""
    if not container.command:
        raise NoCommandError(
            f"container {container.name} names no command, and its image {container.image!r} is not pulled",
            where=pod.key,
            remedy="give `command`: it runs on this machine, without a container",
        )
    return [expand(part, values) for part in [*container.command, *container.args]]
