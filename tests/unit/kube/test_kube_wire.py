"""Bytes that are no JSON of an API server: text that is not UTF-8, nesting without end, nothing at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aliquot_core.objects import Pod
from aliquot_kube.errors import GarbledError, ServerTroubleError, error_from_response
from aliquot_kube.wire import Decoder, UnreadableEvent
from aliquot_standalone.kubelet.cdi import SpecFolder
from aliquot_standalone.kubelet.memory import Memories

POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u1", "resourceVersion": "7"}, "spec": {}}
NOT_UTF_8 = json.dumps(POD | {"spec": {"nodeName": "n_de"}}).encode().replace(b"_", b"\xff")
GARBAGE = {
    "not UTF-8": b'{"metadata": {"name": "\xff"}, "message": "\xff", "uid": "\xff", "kind": "\xff"}',
    "nested without end": b'{"metadata": ' + b"[" * 100_000,
    "cut": b'{"metadata": {"name": "p',
    "empty": b"",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_garbled_wherever_it_comes(what: str) -> None:
    """An object, a page and a line of a watch: each is our own error, which the callers retry."""
    decoder = Decoder(Pod)
    for read in (decoder.object, decoder.page, decoder.line):
        with pytest.raises(GarbledError):
            read(GARBAGE[what])


def test_one_object_that_is_not_utf_8_hides_no_other() -> None:
    """Its metadata is read, so that whoever looks knows which object it is."""
    body = b'{"metadata": {"resourceVersion": "9"}, "items": [' + NOT_UTF_8 + b"," + json.dumps(POD).encode() + b"]}"
    page = Decoder(Pod).page(body)
    assert ([pod.metadata.name for pod in page.items], [one.metadata.uid for one in page.unreadable]) == (["p"], ["u1"])
    line = Decoder(Pod).line(b'{"type": "MODIFIED", "object": ' + NOT_UTF_8 + b"}")
    assert isinstance(line, UnreadableEvent)
    assert line.object.metadata.uid == "u1"


@pytest.mark.parametrize("what", GARBAGE)
def test_a_failure_keeps_its_name_whatever_its_body_is(what: str) -> None:
    """A 503 of a proxy is trouble of the server, in any encoding."""
    error = error_from_response(code=503, headers={}, body=GARBAGE[what], where="GET /")
    assert type(error) is ServerTroubleError


@pytest.mark.parametrize("what", GARBAGE)
def test_the_small_kubelet_goes_on_without_files_that_it_can_t_read(tmp_path: Path, what: str) -> None:
    """A garbled memory is left out, a garbled spec is broken and named; neither ends the kubelet."""
    (tmp_path / "u1").mkdir()
    (tmp_path / "u1" / "pod.json").write_bytes(GARBAGE[what])
    assert Memories(tmp_path).read_all() == {}
    (tmp_path / "a.json").write_bytes(GARBAGE[what])
    assert set(SpecFolder(tmp_path).read().broken) == {"a.json"}
