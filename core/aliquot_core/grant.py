"""The grant: which slices of which GPUs each container of one pod holds, written once, with the binding.

It travels as a pod annotation: compact JSON with a version. The decoder is strict: what it does not understand it
refuses, because a slice that is half understood would be enforced half. The pod's UID inside keeps a grant from being
carried over to another pod of the same name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.quantities import LARGEST, WHOLE, MiB, Percent

VERSION = 1
# 64 containers of 8 GPUs take 50 kB; Kubernetes allows 256 KiB for all annotations of a pod.
LARGEST_TEXT = 64 * 1024
MOST_CONTAINERS = 128
MOST_SLICES = 64

_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,79}")
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MODE = re.compile(r"([a-z][a-z0-9-]{0,39})?")
_CONTAINER = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_REMEDY = "only the scheduler writes grants: look for a version of it that differs from the agent's, or a forged grant"


# Of grants after a downgrade, and what is to be done about them: their pods may run.
NOT_READ = "a later version of Aliquot wrote and this one can't read"
UPGRADE = "install that version again"


class GrantError(ClusterError):
    """A grant that can't be honoured."""

    def __init__(self, what: str, *, where: str = "grant", remedy: str = _REMEDY) -> None:
        super().__init__(what, where=where, remedy=remedy)


class LaterGrantError(GrantError):
    """One that a later version of Aliquot wrote: no forgery, and its pod may run by it."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"a later version of Aliquot wrote it: its format is {version}, and {VERSION} is all that is read here",
            remedy="bring centre and agents to that version again; the pod may run on meanwhile",
        )


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of one GPU; `limit` is how far the container may burst while others leave compute idle."""

    gpu: str
    compute: Percent
    limit: Percent
    memory: MiB

    @property
    def whole(self) -> bool:
        """Whether the GPU is closed to everybody else."""
        return self.compute == WHOLE


class ContainerGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What one container holds, and how it is kept inside."""

    slices: tuple[Slice, ...]
    isolation: str = ""

    @property
    def compute(self) -> Percent:
        """Percent over all its GPUs."""
        return Percent(sum(part.compute.value for part in self.slices))

    @property
    def memory(self) -> MiB:
        """MiB over all its GPUs."""
        return MiB(sum(part.memory.value for part in self.slices))

    @property
    def limit(self) -> Percent:
        """How far it may burst, over all its GPUs."""
        return Percent(sum(part.limit.value for part in self.slices))


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod holds on its node."""

    node: str
    pod: str
    containers: dict[str, ContainerGrant]

    def slices(self) -> Iterator[tuple[str, Slice]]:
        """Every slice with its container's name."""
        for name, container in self.containers.items():
            for part in container.slices:
                yield name, part


# --- on the wire -----------------------------------------------------------------------------------------------------
# The structs above are what the code speaks; these are the JSON, kept apart so that either can change alone.


# Bounded at once, so that a number of thousands of digits is not even quoted.
_Int = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]


class _SliceText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    gpu: str
    compute: _Int
    memory: _Int
    limit: _Int | None = None


class _ContainerText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    slices: list[_SliceText]
    isolation: str = ""


class _GrantText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    v: _Int
    node: str
    pod: str
    containers: dict[str, _ContainerText]


class _Version(msgspec.Struct, frozen=True):
    v: _Int


_version = msgspec.json.Decoder(_Version)
_grant = msgspec.json.Decoder(_GrantText)


def encode_grant(grant: Grant) -> str:
    """The annotation's value."""
    containers = {
        name: _ContainerText(
            slices=[
                _SliceText(
                    gpu=part.gpu,
                    compute=part.compute.value,
                    memory=part.memory.value,
                    limit=None if part.limit == part.compute else part.limit.value,
                )
                for part in container.slices
            ],
            isolation=container.isolation,
        )
        for name, container in grant.containers.items()
    }
    text = _GrantText(v=VERSION, node=grant.node, pod=grant.pod, containers=containers)
    return msgspec.json.encode(text).decode()


def decode_grant(text: str) -> Grant:
    """Read an annotation's value, refusing whatever is not exactly a grant."""
    if len(text) > LARGEST_TEXT:
        raise GrantError(f"{len(text)} characters are more than {LARGEST_TEXT}")
    try:
        raw = _read(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise GrantError(f"not readable: {error}") from None
    if not _NODE.fullmatch(raw.node):
        raise GrantError(f"{raw.node[:80]!r} is no name of a node")
    if not _UID.fullmatch(raw.pod):
        raise GrantError(f"{raw.pod[:80]!r} is no UID of a pod")
    if not 1 <= len(raw.containers) <= MOST_CONTAINERS:
        raise GrantError(f"{len(raw.containers)} containers are not 1 to {MOST_CONTAINERS}")
    containers = {name: _container(name, container) for name, container in raw.containers.items()}
    return Grant(node=raw.node, pod=raw.pod, containers=containers)


def readable_grant(text: str | None) -> Grant | None:
    """The grant, or None: for whoever shows what pods hold, and leaves it to others to say what is wrong with one."""
    try:
        return decode_grant(text) if text else None
    except GrantError:
        return None


def _read(text: str) -> _GrantText:
    version = _version.decode(text).v
    if version > VERSION:
        raise LaterGrantError(version)
    if version != VERSION:
        raise GrantError(f"version {version} is not understood, only {VERSION}")
    raw = _grant.decode(text)
    # msgspec takes the last of two equal keys; another reader might take the first, and see another grant.
    json.loads(text, object_pairs_hook=_refuse_doubles)
    return raw


def _refuse_doubles(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise GrantError("says something twice")


def _container(name: str, raw: _ContainerText) -> ContainerGrant:
    where = f"grant of container {name[:80]}"
    if not _CONTAINER.fullmatch(name):
        raise GrantError("is no name of a container", where=where)
    if not 1 <= len(raw.slices) <= MOST_SLICES:
        raise GrantError(f"{len(raw.slices)} slices are not 1 to {MOST_SLICES}", where=where)
    if len({part.gpu for part in raw.slices}) != len(raw.slices):
        raise GrantError("names a GPU twice", where=where)
    if not _MODE.fullmatch(raw.isolation):
        raise GrantError(f"{raw.isolation[:80]!r} is no mode of isolation", where=where)
    return ContainerGrant(slices=tuple(_slice(part, where=where) for part in raw.slices), isolation=raw.isolation)


def _slice(raw: _SliceText, *, where: str) -> Slice:
    if not _GPU.fullmatch(raw.gpu):
        raise GrantError(f"{raw.gpu[:80]!r} is no GPU's uuid", where=where)
    limit = raw.compute if raw.limit is None else raw.limit
    if not 0 <= raw.compute <= limit <= WHOLE.value or limit < 1:
        raise GrantError(f"compute {raw.compute} with limit {limit} is not within 0 to {WHOLE.value}", where=where)
    if raw.memory < 1:
        raise GrantError(f"memory {raw.memory} is less than 1 MiB", where=where)
    return Slice(gpu=raw.gpu, compute=Percent(raw.compute), limit=Percent(limit), memory=MiB(raw.memory))
