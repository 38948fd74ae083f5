"""The extender over real sockets and real TLS: who may ask, what is answered, whatever is sent."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.errors import ClusterError
from aliquot_scheduler.certificates.issuing import DAY, Use
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.extender.calling import LARGEST_AT_ONCE, LARGEST_BODY
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.extender.verbs import Outcome, Verb
from aliquot_scheduler.web.bodies import BodyRoom
from support.centre_http import BINDING, POD, SCHEDULER, Authority, Caller, Json, Replica, args, caller, replica

BODIES: dict[Verb, Json] = {
    Verb.FILTER: args("n1", "n2"),
    Verb.PRIORITIZE: args("n1", "n2"),
    Verb.PRIORITIZE_COARSE: args("n1", "n2"),
    Verb.PRIORITIZE_PLAIN: args("n1", "n2"),
    Verb.PREEMPT: {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}},
    Verb.BIND: BINDING,
}
NOTHING_DECIDED: dict[Verb, Any] = {
    Verb.PRIORITIZE: [],
    Verb.PRIORITIZE_COARSE: [],
    Verb.PRIORITIZE_PLAIN: [],
    Verb.PREEMPT: {"NodeNameToMetaVictims": {}},
}
EVERY_VERB = pytest.mark.parametrize("verb", list(Verb))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom everybody trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def centre(authority: Authority) -> AsyncIterator[Replica]:
    """A replica that leads."""
    async with replica(authority.server_files()) as one:
        yield one


@pytest.fixture
async def scheduler(authority: Authority) -> AsyncIterator[Caller]:
    """kube-scheduler."""
    async with caller(authority.caller(authority.signs(SCHEDULER))) as one:
        yield one


def error_of(verb: Verb, answer: Any) -> str:
    """The error that an answer tells, or where it has no room for one, that nothing was decided."""
    if verb in NOTHING_DECIDED:
        assert answer == NOTHING_DECIDED[verb]
        return ""
    if verb is Verb.FILTER:
        assert answer["NodeNames"] == []
    return str(answer["Error"])


# --- what is answered ------------------------------------------------------------------------------------------------
async def test_each_verb_asks_its_decision_and_answers_on_its_form(centre: Replica, scheduler: Caller) -> None:
    """The decisions are the desk's."""
    desk = centre.desk
    desk.filtered = Filtered(nodes=["n1"], failed={"n2": "full"})
    desk.grades = [450, 0]
    desk.victims = {"n1": ["v"]}
    answers = {verb: await scheduler.post(centre.url(f"/extender/{verb}"), BODIES[verb]) for verb in Verb}
    assert answers == {
        Verb.FILTER: (
            200,
            {"NodeNames": ["n1"], "FailedNodes": {"n2": "full"}, "FailedAndUnresolvableNodes": {}, "Error": ""},
        ),
        Verb.PRIORITIZE: (200, [{"Host": "n1", "Score": 450}, {"Host": "n2", "Score": 0}]),
        Verb.PRIORITIZE_COARSE: (200, [{"Host": "n1", "Score": 5}, {"Host": "n2", "Score": 0}]),
        Verb.PRIORITIZE_PLAIN: (200, [{"Host": "n1", "Score": 450}, {"Host": "n2", "Score": 0}]),
        Verb.PREEMPT: (200, {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}}),
        Verb.BIND: (200, {"Error": ""}),
    }
    assert [verb for verb, _ in desk.asked] == [
        "filter",
        "prioritize",
        "prioritize",
        "prioritize-plain",
        "preempt",
        "bind",
    ]
    assert desk.asked[4][1][1] == {"n1": ["v"]}
    assert desk.asked[5][1] == ("team", "p", "u-1", "n1")
    assert all(centre.calls(verb, "decided") == 1 for verb in Verb)


async def test_a_decision_against_it_is_told_as_it_is(centre: Replica, scheduler: Caller) -> None:
    """The desk's own words, and counted apart."""
    centre.desk.filtered = Filtered(error="the picture is old")
    centre.desk.bound = "another pod has the slice"
    for verb, why in ((Verb.FILTER, "the picture is old"), (Verb.BIND, "another pod has the slice")):
        _, answer = await scheduler.post(centre.url(f"/extender/{verb}"), BODIES[verb])
        assert error_of(verb, answer) == why
        assert centre.calls(verb, "refused") == 1


@EVERY_VERB
async def test_an_error_raised_on_purpose_becomes_the_wire_s(centre: Replica, scheduler: Caller, verb: Verb) -> None:
    """What, where and remedy, and never a 500."""
    centre.desk.raises = ClusterError("the picture is old", where="watch of nodes", remedy="wait")
    status, answer = await scheduler.post(centre.url(f"/extender/{verb}"), BODIES[verb])
    assert status == 200
    assert error_of(verb, answer) in ("", "watch of nodes: the picture is old; wait")
    assert centre.calls(verb, "refused") == 1


@EVERY_VERB
async def test_a_defect_is_logged_once_and_told_without_its_insides(
    centre: Replica, scheduler: Caller, verb: Verb, caplog: pytest.LogCaptureFixture
) -> None:
    """kube-scheduler learns that there is one; the log says where."""
    centre.desk.raises = ZeroDivisionError("secret of the insides")
    with caplog.at_level(logging.ERROR):
        status, answer = await scheduler.post(centre.url(f"/extender/{verb}"), BODIES[verb])
    assert status == 200
    assert "secret" not in json.dumps(answer)
    assert error_of(verb, answer) in ("", "a defect of Aliquot (ZeroDivisionError); the centre's log says where")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert centre.calls(verb, "defect") == 1
    centre.desk.raises = None
    assert (await scheduler.post(centre.url(f"/extender/{verb}"), BODIES[verb]))[0] == 200


async def test_an_answer_that_can_t_be_written_is_a_defect(centre: Replica, scheduler: Caller) -> None:
    """Half a surrogate in a reason is ours."""
    centre.desk.filtered = Filtered(failed={"n1": "\ud800"})
    _, answer = await scheduler.post(centre.url("/extender/filter"), args("n1"))
    assert error_of(Verb.FILTER, answer).startswith("a defect of Aliquot")


@pytest.mark.parametrize("verb", [Verb.FILTER, Verb.PRIORITIZE, Verb.PRIORITIZE_COARSE])
async def test_whole_nodes_are_answered_with_the_missing_setting(
    centre: Replica, scheduler: Caller, verb: Verb, caplog: pytest.LogCaptureFixture
) -> None:
    """On the wire where it has room, and in our log."""
    whole: Json = {"Pod": POD, "Nodes": {"items": []}, "NodeNames": None}
    status, answer = await scheduler.post(centre.url(f"/extender/{verb}"), whole)
    assert status == 200
    if verb is Verb.FILTER:
        assert "set nodeCacheCapable: true" in error_of(verb, answer)
    assert "set nodeCacheCapable: true" in caplog.text
    assert centre.desk.asked == []


# --- what no kube-scheduler sends ------------------------------------------------------------------------------------
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"Pod":NaN,"PodName":NaN}', b"null"])
async def test_a_malformed_body_is_a_400_with_a_sentence(centre: Replica, scheduler: Caller, body: bytes) -> None:
    """Nothing is decided."""
    for verb in Verb:
        status, answer = await scheduler.post(centre.url(f"/extender/{verb}"), body)
        assert status == 400
        assert answer["error"].startswith("extender call: ")
        assert centre.calls(verb, "malformed") == 1
    assert centre.desk.asked == []


async def test_a_compressed_body_is_not_blown_up(centre: Replica, scheduler: Caller) -> None:
    """It is taken as it came, and that is no JSON."""
    packed = zlib.compress(json.dumps(args("n1")).encode())
    status, _ = await scheduler.post(centre.url("/extender/filter"), packed, **{"Content-Encoding": "deflate"})
    assert (status, centre.desk.asked) == (400, [])


@pytest.mark.parametrize("pieces", [False, True])
async def test_the_largest_body_is_read_and_a_larger_one_is_not(
    centre: Replica, scheduler: Caller, *, pieces: bool
) -> None:
    """Whether it says its length or comes in pieces."""

    async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), 1024 * 1024):
            yield body[start : start + 1024 * 1024]

    largest = json.dumps(args("n1")).encode().ljust(LARGEST_BODY)
    for body, expected in ((largest, 200), (largest + b" ", 413)):
        data: Any = in_pieces(body) if pieces else io.BytesIO(body)
        async with scheduler.session.post(centre.url("/extender/filter"), data=data) as response:
            assert response.status == expected
    assert len(centre.desk.asked) == 1
    assert centre.calls("filter", "too-large") == 1


async def test_what_is_too_large_to_be_read_at_once_shares_one_room(authority: Authority, scheduler: Caller) -> None:
    """Small calls need none of it, and a binding is answered on a connection whose call found none."""
    async with replica(authority.server_files(), room=BodyRoom(0)) as centre:
        large = json.dumps(args("n1")).encode().ljust(LARGEST_AT_ONCE + 1)
        status, answer = await scheduler.post(centre.url("/extender/filter"), large)
        assert (status, answer["error"].split(";")[0]) == (503, "too many large bodies are coming at once")
        assert (await scheduler.post(centre.url("/extender/bind"), BINDING))[0] == 200
        assert centre.calls("filter", "crowded") == 1


async def test_other_methods_and_addresses_are_none(centre: Replica, scheduler: Caller) -> None:
    """Nothing is decided by a GET."""
    async with scheduler.session.get(centre.url("/extender/filter")) as response:
        assert response.status == 405
    async with scheduler.session.post(centre.url("/extender/other"), data=b"{}") as response:
        assert response.status == 404
    assert centre.desk.asked == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODY = st.dictionaries(st.sampled_from(["Pod", "NodeNames", "Nodes", *BINDING]), JSON | st.just(POD)).map(
    lambda body: json.dumps(body).encode()
) | st.binary(max_size=100)


@settings(max_examples=60)
@given(calls=st.lists(st.tuples(st.sampled_from(Verb), BODY), min_size=1, max_size=5))
def test_whatever_is_sent_is_answered(fuzzed: Callable[[Verb, bytes], int], calls: list[tuple[Verb, bytes]]) -> None:
    """With a 200 or a 400, in JSON, and the server lives on."""
    assert {fuzzed(verb, body) for verb, body in calls} <= {200, 400}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Verb, bytes], int]]:
    """A server and a caller for all examples of a test, which is not asynchronous itself."""
    authority = Authority(tmp_path_factory.mktemp("fuzzed"))
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def begin() -> tuple[Replica, Caller]:
            centre = await stack.enter_async_context(replica(authority.server_files()))
            return centre, await stack.enter_async_context(caller(authority.caller(authority.signs(SCHEDULER))))

        centre, scheduler = runner.run(begin())

        def post(verb: Verb, body: bytes) -> int:
            return runner.run(scheduler.post(centre.url(f"/extender/{verb}"), body))[0]

        yield post
        runner.run(stack.aclose())


# --- who may ask -----------------------------------------------------------------------------------------------------
@EVERY_VERB
async def test_nobody_without_a_certificate_is_answered(centre: Replica, authority: Authority, verb: Verb) -> None:
    """And the body is not even read."""
    async with caller(authority.caller()) as nobody:
        status, answer = await nobody.post(centre.url(f"/extender/{verb}"), BODIES[verb])
    assert (status, answer) == (403, {"error": "no client certificate"})
    assert (centre.desk.asked, centre.calls(verb, "stranger")) == ([], 1)


@EVERY_VERB
async def test_a_certificate_of_somebody_else_is_refused(centre: Replica, authority: Authority, verb: Verb) -> None:
    """A good certificate of the same authority is not enough."""
    other = authority.signs("system:kube-scheduler.", hosts=["system", "x"])
    async with caller(authority.caller(other)) as stranger:
        status, answer = await stranger.post(centre.url(f"/extender/{verb}"), BODIES[verb])
    assert status == 403
    assert "system:kube-scheduler., system, x, which is not let in" in answer["error"]
    assert centre.desk.asked == []


async def test_a_name_among_the_alternative_ones_will_do(centre: Replica, authority: Authority) -> None:
    """Some issuers write no common name of one's choice."""
    async with caller(authority.caller(authority.signs("whoever", hosts=[CENTRE]))) as other:
        assert (await other.post(centre.url("/extender/filter"), BODIES[Verb.FILTER]))[0] == 200


@pytest.mark.parametrize("kind", ["of another authority", "out of date", "not yet", "a server's"])
async def test_a_bad_certificate_gets_no_connection(
    centre: Replica, authority: Authority, tmp_path: Path, kind: str
) -> None:
    """The right name in it is worth nothing; TLS refuses it before there is a request."""
    client = {
        "of another authority": lambda: Authority(tmp_path / "other").signs(SCHEDULER),
        "out of date": lambda: authority.signs(SCHEDULER, since=2 * DAY),
        "not yet": lambda: authority.signs(SCHEDULER, since=-2 * DAY),
        "a server's": lambda: authority.signs(SCHEDULER, uses=[Use.SERVER]),
    }[kind]()
    async with caller(authority.caller(client)) as stranger:
        for verb in Verb:
            with pytest.raises(aiohttp.ClientError):
                await stranger.post(centre.url(f"/extender/{verb}"), BODIES[verb])
            assert sum(centre.calls(verb, outcome) for outcome in Outcome) == 0
    assert centre.desk.asked == []


async def test_plain_http_gets_nothing(centre: Replica) -> None:
    """There is TLS or nothing."""
    async with caller(None) as plain:
        with pytest.raises(aiohttp.ClientError):
            await plain.post(centre.url("/extender/filter").replace("https", "http"), BODIES[Verb.FILTER])
    assert centre.desk.asked == []
