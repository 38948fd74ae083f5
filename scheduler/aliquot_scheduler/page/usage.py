"""What GPUs and slices really use: a narrow door, since the centre itself does not know.

Only agents see what processes do, and nothing of it is written to the API server: that would be thousands of writes a
minute. So the page is given addresses of metrics, an agent's own or a Prometheus' federation of all agents', and says
"use unknown" where it has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec

_MIB = 1024 * 1024
_WHOLE = 100
_LINE = re.compile(r'^(aliquot_[a-z_]+)\{((?:[^"\\}]|"(?:[^"\\]|\\.)*")*)\} (\S+)', re.MULTILINE)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
# What a sample is of, and how much of its unit is one of ours.
_FIELDS = {
    "aliquot_gpu_compute_used_ratio": ("compute", _WHOLE),
    "aliquot_gpu_memory_used_bytes": ("memory", 1 / _MIB),
    "aliquot_slice_compute_used_ratio": ("compute", _WHOLE),
    "aliquot_slice_memory_used_bytes": ("memory", 1 / _MIB),
    "aliquot_slice_unpaid_launches_total": ("unpaid", 1),
}
_BUILD = "aliquot_build_info"
_OVER_USE = "aliquot_slice_over_use"
# How far an agent has gone with who uses more than granted, the least first.
RUNGS = ("note", "warn", "throttle", "evict")
# What no GPU has: a number that large is no figure of ours.
_MOST = 2**40

# Node, GPU; and of a slice the pod. A real GPU's uuid is of one node, so a page that does not say which is good too.
GpuKey = tuple[str, str]
SliceKey = tuple[str, str, str]


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Percent of one GPU, and MiB; None is what is not known."""

    compute: int | None = None
    memory: int | None = None
    # Of a slice: how far its agent has gone, for it uses more than granted; empty if it does not.
    over_use: str = ""
    # Of a slice: how many launches passed before they were paid for, since its agent began.
    unpaid: int | None = None
    # Of a slice, since when it is known here, the most memory since then, and what compute mostly kept within.
    since: float | None = None
    most_memory: int | None = None
    high_compute: int | None = None


_UNKNOWN = Use()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What was used when it was looked at last."""

    at: float | None = None
    gpus: Mapping[GpuKey, Use] = {}
    slices: Mapping[SliceKey, Use] = {}

    def of_gpu(self, node: str, uuid: str) -> Use:
        """What all processes on a GPU use."""
        return self.gpus.get((node, uuid)) or self.gpus.get(("", uuid), _UNKNOWN)

    def of_slice(self, node: str, uuid: str, pod: str) -> Use:
        """What a pod uses of a GPU."""
        return self.slices.get((node, uuid, pod)) or self.slices.get(("", uuid, pod), _UNKNOWN)


class UsageSource(Protocol):
    """Where it is known from."""

    def latest(self) -> Usage:
        """What is known now; empty where nothing is."""
        ...


class NoUsage:
    """Nobody tells."""

    def latest(self) -> Usage:
        """Nothing."""
        return Usage()


def read_usage(texts: Mapping[str, str], *, at: float) -> Usage:
    """Read pages of metrics, by their addresses; lines that are not ours, or not understood, are passed over."""
    gpus: dict[GpuKey, dict[str, int]] = {}
    slices: dict[SliceKey, dict[str, int]] = {}
    rungs: dict[SliceKey, str] = {}
    for text in texts.values():
        node = node_of(text)
        for name, labels, value in _samples(text):
            key = labels.get("node", node), labels.get("UUID", "")
            of_pod = (*key, f"{labels.get('namespace', '')}/{labels.get('pod', '')}")
            if name == _OVER_USE:
                rungs[of_pod] = _higher(labels.get("rung", ""), rungs.get(of_pod, ""))
                continue
            field, scale = _FIELDS[name]
            amount = round(value * scale)
            if name.startswith("aliquot_gpu_"):
                gpus.setdefault(key, {})[field] = amount
            else:
                # Containers of a pod on the same GPU: what they use together.
                of = slices.setdefault(of_pod, {})
                of[field] = of.get(field, 0) + amount
    return Usage(
        at=at,
        gpus={key: _use(fields) for key, fields in gpus.items()},
        slices={key: _use(slices.get(key, {}), over_use=rungs.get(key, "")) for key in {*slices, *rungs}},
    )


def _use(fields: Mapping[str, int], *, over_use: str = "") -> Use:
    return Use(
        compute=fields.get("compute"), memory=fields.get("memory"), unpaid=fields.get("unpaid"), over_use=over_use
    )


def _higher(rung: str, other: str) -> str:
    """Of two containers of a pod, the one with which it has gone further."""
    return max((one for one in (rung, other) if one in RUNGS), key=RUNGS.index, default="")


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for match in _LINE.finditer(text):
        name, labels, number = match.groups()
        if name not in _FIELDS and name != _OVER_USE:
            continue
        try:
            value = float(number)
        except ValueError:
            continue
        if 0 <= value < _MOST:
            yield name, _labels(labels), value


def _labels(text: str) -> dict[str, str]:
    return {name: _ESCAPED.sub(_unescaped, value) if "\\" in value else value for name, value in _LABEL.findall(text)}


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def node_of(text: str) -> str:
    """Whose page it is, where an agent's own page says so once for all."""
    nodes = {labels.get("node", "") for name, labels in _builds(text)}
    return nodes.pop() if len(nodes) == 1 else ""


def _builds(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for match in _LINE.finditer(text):
        if match[1] == _BUILD:
            yield match[1], _labels(match[2])
