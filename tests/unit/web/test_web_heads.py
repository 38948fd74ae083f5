"""Heads of requests that are read the short way, and those that are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.web.heads import HOP, Head, UnusualHeadError, read_head

GO = (
    b"POST /extender/filter HTTP/1.1\r\nHost: 10.0.0.5:10943\r\nUser-Agent: Go-http-client/1.1\r\n"
    b"Content-Length: 12\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)


def test_kube_scheduler_s_head_is_read() -> None:
    """As Go's client writes it; what follows is the body."""
    assert read_head(GO + b"{}") == Head(path="/extender/filter", size=12, ends=len(GO), hop="")


def test_a_replica_s_head_is_read_with_who_it_is() -> None:
    """Whatever case the names are in, and with no blank behind the colon."""
    head = f"POST /x HTTP/1.1\r\nhost:y\r\n{HOP.upper()}: one\r\nCONTENT-LENGTH:0\r\n\r\n".encode()
    assert read_head(head) == Head(path="/x", size=0, ends=len(head), hop="one")


@given(cut=st.integers(min_value=0, max_value=len(GO) - 1))
def test_a_head_that_is_not_whole_is_waited_for(cut: int) -> None:
    """However far it has come."""
    assert read_head(GO[:cut]) is None


@pytest.mark.parametrize(
    ("was", "instead"),
    [
        (b"POST", b"GET"),
        (b"POST", b"post"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"HTTP/1.1", b"HTTP/1.1 "),
        (b"Content-Length: 12", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 12", b"Content-Length: 12\r\nTransfer-Encoding: chunked"),
        (b"Content-Length: 12", b"Content-Length: 12\r\nContent-Length: 12"),
        (b"Content-Length: 12", b"Content-Length: 12\r\n folded: yes"),
        (b"Content-Length: 12", b"Content-Length : 12"),
        (b"Content-Length: 12", b"Content-Length: +12"),
        (b"Content-Length: 12", b"Content-Length: 1_2"),
        (b"Content-Length: 12", b"Content-Length: -1"),
        (b"Content-Length: 12", b"Content-Length: 0x1f"),
        (b"Content-Length: 12", b"Content-Length: 12, 12"),
        (b"Content-Length: 12", b"Content-Length: \xb2"),
        (b"Content-Length: 12", b"Content-Length: 1234567890"),
        (b"Content-Length: 12", b"Content-Length:"),
        (b"Content-Length: 12\r\n", b""),
        (b"Content-Length: 12", b"Content-Length: 12\nTransfer-Encoding: chunked"),
        (b"gzip", b"gzip\nTransfer-Encoding: chunked"),
        (b"gzip", b"gzip\rTransfer-Encoding: chunked"),
        (b"Accept-Encoding: gzip", b"Connection: close"),
        (b"Accept-Encoding: gzip", b"Connection: upgrade\r\nUpgrade: websocket"),
        (b"Accept-Encoding: gzip", b"Expect: 100-continue"),
        (b"Accept-Encoding: gzip", b"Content-Encoding: gzip"),
        (b"Accept-Encoding: gzip", b"no colon"),
    ],
)
def test_a_head_that_might_mean_anything_else_is_left_to_others(was: bytes, instead: bytes) -> None:
    """Lengths that are told twice or otherwise, and whatever is to be done with the connection."""
    assert was in GO
    with pytest.raises(UnusualHeadError):
        read_head(GO.replace(was, instead))


def test_a_head_without_an_end_is_not_waited_for_for_ever() -> None:
    """Beyond 8 KiB none of ours goes."""
    assert read_head(GO[:-2] + b"X-" + b"x" * (8 * 1024 - len(GO) - 1)) is None
    with pytest.raises(UnusualHeadError):
        read_head(GO[:-2] + b"X-" + b"x" * 8 * 1024)


@given(data=st.binary(max_size=300) | st.binary(max_size=60).map(lambda noise: GO[:-4] + noise + b"\r\n\r\n"))
def test_whatever_comes_is_read_or_left_to_others(data: bytes) -> None:
    """And nothing else is raised."""
    try:
        head = read_head(data)
    except UnusualHeadError:
        return
    assert head is None or (0 < head.ends <= len(data) and head.size >= 0)
