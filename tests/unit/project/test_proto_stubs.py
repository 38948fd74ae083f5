"""The committed stubs are what the .proto files say, and these say what the kubelet says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from support.require import skip_or_fail

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "proto"
KUBELET_MODULE = "k8s.io/kubelet@v0.36.3"
INTERFACES = {
    "deviceplugin_v1beta1": "deviceplugin/v1beta1",
    "pluginregistration_v1": "pluginregistration/v1",
    "podresources_v1": "podresources/v1",
}


def test_stubs_are_fresh(tmp_path: Path) -> None:
    """Generating again gives the committed stubs, byte for byte."""
    subprocess.run([PROTO / "generate", tmp_path], check=True, env={**os.environ, "PYTHON": sys.executable})

    committed = {path.name: path.read_text() for path in PROTO.glob("aliquot_proto/*_pb2*")}
    generated = {path.name: path.read_text() for path in tmp_path.glob("aliquot_proto/*_pb2*")}
    assert len(generated) == 4 * len(INTERFACES)
    assert generated == committed, "run proto/generate"


@pytest.mark.parametrize("interface", INTERFACES)
def test_interface_is_the_kubelets(interface: str, tmp_path: Path) -> None:
    """Messages, fields, numbers, types and calls are those of the kubelet that we test against."""
    theirs = _kubelet_apis() / INTERFACES[interface] / "api.proto"

    assert set(_shape(PROTO / "aliquot_proto" / f"{interface}.proto", scratch=tmp_path)) == set(
        _shape(theirs, scratch=tmp_path)
    )


def _kubelet_apis() -> Path:
    caches = [os.environ.get("GOMODCACHE", ""), f"{os.environ.get('GOPATH', Path.home() / 'go')}/pkg/mod"]
    found = [apis for cache in caches if cache and (apis := Path(cache) / KUBELET_MODULE / "pkg/apis").is_dir()]
    if not found:
        skip_or_fail("cluster", f"no Go module cache holds {KUBELET_MODULE} (the build of tests/cluster fetches it)")
    return found[0]


def _shape(proto: Path, *, scratch: Path) -> Iterator[tuple[object, ...]]:
    """Everything about an interface that travels on the wire, one tuple for each fact."""
    described = scratch / "described"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto.parent}", f"--descriptor_set_out={described}"]
    subprocess.run([*command, proto.name], check=True)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file
    yield ("package", file.package)
    for message in file.message_type:
        yield from _fields(message, prefix="")
    for service in file.service:
        for call in service.method:
            streams = (call.client_streaming, call.server_streaming)
            yield ("call", service.name, call.name, call.input_type, call.output_type, streams)


def _fields(message: descriptor_pb2.DescriptorProto, *, prefix: str) -> Iterator[tuple[object, ...]]:
    name = f"{prefix}{message.name}"
    yield ("message", name)
    for field in message.field:
        yield ("field", name, field.name, field.number, field.type, field.label, field.type_name, field.proto3_optional)
    for nested in message.nested_type:
        yield from _fields(nested, prefix=f"{name}.")
