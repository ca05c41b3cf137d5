"""Each fault of a server and what it becomes: one failure, in one sentence, without a secret."""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.tiers.store.conftest import FAST
from tests.tiers.store.s3_stub import BUCKET, Fault, Response, S3Stub

from strandline.runtime.runtime import Runtime
from strandline.tiers.store import object_store as stores
from strandline.tiers.store.interface import PART_BYTES
from strandline.tiers.store.object_store import (
    GuardedStore,
    ObjectStore,
    StoreDenied,
    StoreFailed,
    StoreUnavailable,
    StoreUnsure,
    open_store,
)

pytest.importorskip("obstore")

S = 20.0
NONCE = "nonce-of-this-writer"
BODY = f"manifest by {NONCE}".encode()


@pytest.fixture
def raw(stub: S3Stub, runtime: Runtime) -> ObjectStore:
    stub.bucket.objects["pre/there"] = b"0123456789"
    return open_store(f"s3://{BUCKET}/pre", stub.options, runtime=runtime)


@pytest.fixture
def guarded(raw: ObjectStore, runtime: Runtime) -> GuardedStore:
    return GuardedStore(raw, runtime, rules=FAST)


CALLS: dict[str, Callable[[ObjectStore], Awaitable[object]]] = {
    "put": lambda store: store.put("new", b"body", deadline_s=S),
    "create": lambda store: store.create("new", BODY, nonce=NONCE, deadline_s=S),
    "read": lambda store: store.read("there", 2, 4, deadline_s=S),
    "whole": lambda store: store.read_whole("there", deadline_s=S),
    "head": lambda store: store.head("there", deadline_s=S),
    "delete": lambda store: store.delete(["there"], deadline_s=S),
    "list": lambda store: listed(store),
}


async def listed(store: ObjectStore) -> list[str]:
    return [each.key async for each in store.list("")]


def answered(status: int, code: str) -> Fault:
    return Fault(status=status, code=code, times=1000)


DELETE_DENIED = (
    b"<DeleteResult><Error><Key>pre/there</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
)
FAILURES = [
    # fault, calls, failure, words, reason of a denial
    (answered(503, "SlowDown"), "put read whole head delete list", "StoreUnavailable", "503", ""),
    (answered(500, "InternalError"), "put read whole head delete list", "StoreUnavailable", "500", ""),
    (answered(429, "TooManyRequests"), "put read", "StoreUnavailable", "429", ""),
    (answered(503, "SlowDown"), "create", "StoreUnsure", "unknown", ""),
    (answered(409, "ConditionalRequestConflict"), "put", "StoreUnavailable", "409", ""),
    (Fault(loses="before", times=9), "put read whole head delete list", "StoreUnavailable", "lost", ""),
    (Fault(loses="before", times=9), "create", "StoreUnsure", "unknown", ""),
    (Fault("GET", cuts_body=1, times=9), "read whole", "StoreUnavailable", "ended early", ""),
    (answered(403, "AccessDenied"), "put create", "StoreDenied", "right for writing", "rights"),
    (answered(403, "AccessDenied"), "read whole head", "StoreDenied", "right for reading", "rights"),
    (answered(403, "AccessDenied"), "list", "StoreDenied", "right for listing", "rights"),
    (answered(403, "AccessDenied"), "delete", "StoreDenied", "right for deleting", "rights"),
    (Fault("POST", changes=lambda _: Response(200, DELETE_DENIED)), "delete", "StoreDenied", "deleting", "rights"),
    (answered(400, "ExpiredToken"), "put create read list delete", "StoreDenied", "expired", "expired"),
    (answered(403, "InvalidAccessKeyId"), "put create read list", "StoreDenied", "unknown or wrong", "credentials"),
    (answered(403, "SignatureDoesNotMatch"), "put read", "StoreDenied", "unknown or wrong", "credentials"),
    (answered(401, "Unauthorized"), "put read head", "StoreDenied", "unknown or wrong", "credentials"),
    (answered(403, "RequestTimeTooSkewed"), "put create read list delete", "StoreWrongClock", "clock", ""),
    (answered(404, "NoSuchBucket"), "put create read whole list delete", "BucketMissing", "bucket", ""),
    (answered(404, "NoSuchKey"), "read whole", "ObjectMissing", "there", ""),
    (answered(507, "XMinioStorageFull"), "put create", "StoreFull", "room", ""),
    (answered(403, "QuotaExceeded"), "put", "StoreFull", "quota", ""),
    (answered(501, "NotImplemented"), "put create", "StoreRefused", "support", ""),
    (answered(416, "InvalidRange"), "read", "ObjectDamaged", "shorter", ""),
    (answered(301, "PermanentRedirect"), "put read", "StoreMisconfigured", "region", ""),
    (answered(400, "InvalidRequest"), "put read", "StoreFailed", "400 InvalidRequest", ""),
]


@pytest.mark.parametrize(
    ("fault", "call", "failure", "words", "reason"),
    [
        pytest.param(fault, call, *rest, id=f"{fault.status or fault.loses or 'cut'}-{fault.code}-{call}")
        for fault, calls, *rest in FAILURES
        for call in calls.split()
    ],
)
async def test_each_fault_has_its_failure(
    fault: Fault, call: str, failure: str, words: str, reason: str, raw: ObjectStore, stub: S3Stub
) -> None:
    stub.plan(replace(fault))
    with pytest.raises(StoreFailed) as caught:
        await CALLS[call](raw)
    said = str(caught.value)
    assert type(caught.value).__name__ == failure, said
    assert words in said
    assert f"s3://{BUCKET}/pre" in said
    assert call == "list" or any(key in said for key in ("there", "new"))
    assert "tester" not in said
    assert "Debug" not in said
    assert "\n" not in said
    assert re.search(r"\.( |$)", said) is None, "one sentence"
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, StoreFailed)
    if reason:
        assert isinstance(caught.value, StoreDenied)
        assert caught.value.reason == reason
    if failure in ("StoreUnavailable", "StoreUnsure"):
        assert caught.value.is_retriable


@pytest.mark.parametrize("call", ["put", "read", "head", "list", "create"])
async def test_a_server_that_is_away_is_named(call: str, runtime: Runtime) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options = {"aws_endpoint": f"http://127.0.0.1:{port}", "allow_http": "true", "aws_region": "x"}
    options |= {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "tester-secret"}
    store = open_store("s3://lake/pre", options, runtime=runtime)
    with pytest.raises((StoreUnavailable, StoreUnsure), match="refused"):
        await CALLS[call](store)


@pytest.mark.parametrize("call", CALLS)
async def test_a_silent_server_costs_no_more_than_the_deadline(
    call: str, raw: ObjectStore, stub: S3Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strandline.tiers.store import obstore_store

    monkeypatch.setattr(obstore_store, "LIST_PAGE_S", 0.1)
    monkeypatch.setitem(globals(), "S", 0.1)
    stub.plan(Fault(delay_s=2.0, times=9))
    with pytest.raises((StoreUnavailable, StoreUnsure), match="in time"):
        await CALLS[call](raw)


# The lost answer


async def test_a_create_whose_answer_is_lost_is_ours(raw: ObjectStore, stub: S3Stub) -> None:
    stub.plan(Fault("PUT", loses="after"))
    assert await raw.create("k", BODY, nonce=NONCE, deadline_s=S)
    assert [method for method, _ in stub.seen] == ["PUT", "GET"]
    assert stub.bucket.objects["pre/k"] == BODY


async def test_a_create_whose_answer_and_read_are_lost_is_unsure_and_found_out(
    raw: ObjectStore, guarded: GuardedStore, stub: S3Stub
) -> None:
    stub.plan(Fault("PUT", loses="after"), Fault("GET", loses="before"))
    with pytest.raises(StoreUnsure, match="same nonce"):
        await raw.create("k", BODY, nonce=NONCE, deadline_s=S)
    assert await raw.create("k", BODY, nonce=NONCE, deadline_s=S)
    stub.plan(Fault("PUT", loses="after"), Fault("GET", loses="before"))
    other = b"of another-writer"
    assert not await guarded.create("k", other, nonce="another-writer", deadline_s=S)
    assert stub.bucket.objects["pre/k"] == BODY


async def test_a_lost_answer_before_the_work_is_no_defeat(guarded: GuardedStore, stub: S3Stub) -> None:
    stub.plan(Fault("PUT", loses="before"))
    assert await guarded.create("k", BODY, nonce=NONCE, deadline_s=S)
    assert stub.bucket.objects["pre/k"] == BODY
    assert guarded.counters.retries == 1


async def test_a_conflict_that_wrote_nothing_is_no_defeat(guarded: GuardedStore, stub: S3Stub) -> None:
    stub.plan(Fault("PUT", status=409, code="ConditionalRequestConflict", times=2))
    assert await guarded.create("k", BODY, nonce=NONCE, deadline_s=S)


async def test_credentials_that_expire_leave_an_unsure_create_unsure(guarded: GuardedStore, stub: S3Stub) -> None:
    stub.plan(Fault("PUT", loses="before"), Fault("PUT", status=400, code="ExpiredToken"))
    with pytest.raises(StoreUnsure) as caught:
        await guarded.create("k", BODY, nonce=NONCE, deadline_s=S)
    assert isinstance(caught.value.__cause__, StoreDenied)


async def test_own_bytes_that_came_out_wrong_are_damage(raw: ObjectStore, stub: S3Stub) -> None:
    stub.plan(Fault("GET", changes=lambda answer: Response(200, answer.body[:-1] + f"x{NONCE}".encode())))
    with pytest.raises(stores.ObjectDamaged, match="other bytes"):
        await raw.create("k", BODY, nonce=NONCE, deadline_s=S)


# With retries


async def test_overload_and_lost_answers_are_outlived(guarded: GuardedStore, stub: S3Stub) -> None:
    stub.plan(answered(503, "SlowDown"), Fault(loses="after"), Fault("PUT", status=500, code="InternalError", times=2))
    stub.faults[0].times = 3
    await guarded.put("k", b"body", deadline_s=S)
    assert await guarded.read_whole("k", deadline_s=S) == b"body"
    assert guarded.counters.retries == 6
    assert guarded.counters.failures == {"StoreUnavailable": 6}


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: Response(206, answer.body[:-1], {"Content-Range": "bytes 2-4/10"}),
        lambda answer: Response(206, answer.body, {"Content-Range": "bytes 3-6/10"}),
        lambda answer: Response(200, b"0123456789"),
    ],
    ids=["shorter", "another place", "the whole"],
)
async def test_a_wrong_range_is_asked_for_again_and_never_returned(
    change: Callable[[Response], Response], guarded: GuardedStore, stub: S3Stub
) -> None:
    stub.plan(Fault("GET", changes=change, times=1))
    assert await guarded.read("there", 2, 4, deadline_s=S) == b"2345"
    stub.plan(Fault("GET", changes=change, times=99))
    with pytest.raises(stores.ObjectDamaged):
        await guarded.read("there", 2, 4, deadline_s=S)
    assert len(stub.seen) == 5


async def test_an_upload_in_parts_that_is_cut_is_made_again(guarded: GuardedStore, stub: S3Stub) -> None:
    body = bytes(PART_BYTES + 1)
    stub.plan(Fault("PUT", loses="before"), Fault("POST", status=500, code="InternalError"))
    await guarded.put("large", body, deadline_s=60.0)
    assert stub.bucket.objects["pre/large"] == body


async def test_a_list_goes_on_where_it_was_cut(guarded: GuardedStore, stub: S3Stub) -> None:
    names = [f"{each:04}" for each in range(2500)]
    stub.bucket.objects.clear()
    stub.bucket.objects.update({f"pre/{name}": b"" for name in names})
    stub.plan(
        Fault("GET", status=503, code="SlowDown"),
        Fault("GET", changes=lambda answer: answer),
        Fault("GET", status=503, code="SlowDown", times=2),
    )
    assert await listed(guarded) == names


async def test_expired_credentials_are_not_tried_again_and_can_be_replaced(
    guarded: GuardedStore, stub: S3Stub, runtime: Runtime
) -> None:
    stub.plan(Fault("GET", status=400, code="ExpiredToken"))
    with pytest.raises(StoreDenied, match="expired"):
        await guarded.read_whole("there", deadline_s=S)
    assert len(stub.seen) == 1
    guarded.replace(open_store(f"s3://{BUCKET}/pre", stub.options, runtime=runtime))
    assert await guarded.read_whole("there", deadline_s=S) == b"0123456789"


# What other clouds say


def status(code: int, body: str) -> str:
    said = "Error performing PUT https://host/expired-certificate/InvalidRange in 1ms - Server returned non-2xx "
    return f"Generic X error: {said}status code: {code} Somehow: {body}\n\nDebug source: hunter2"


@pytest.mark.parametrize(
    ("text", "action", "failure", "words"),
    [
        (
            status(409, "<Error><Code>BlobAlreadyExists</Code></Error>"),
            "create",
            "StoreUnavailable",
            "BlobAlreadyExists",
        ),
        (status(412, "<Error><Code>ConditionNotMet</Code></Error>"), "create", "StoreUnavailable", "412"),
        (status(409, "<Error><Code>BlobImmutable</Code></Error>"), "write", "StoreFailed", "409 BlobImmutable"),
        (status(404, "<Error><Code>XAdminUserNotFound</Code></Error>"), "describe", "StoreDenied", "unknown or wrong"),
        (status(404, "<Error><Code>NoSuchThing</Code></Error>"), "read", "StoreFailed", "404 NoSuchThing"),
        (status(403, "<Error><Code>AuthorizationFailure</Code></Error>"), "read", "StoreDenied", "right for reading"),
        (status(403, "<Error><Code>AuthenticationFailed</Code></Error>"), "read", "StoreDenied", "unknown or wrong"),
        (status(404, "<Error><Code>ContainerNotFound</Code></Error>"), "write", "BucketMissing", "ContainerNotFound"),
        (status(404, '{"error": {"message": "The specified bucket does not exist."}}'), "list", "BucketMissing", "404"),
        (status(401, '{"error": "invalid", "description": "Token has expired"}'), "read", "StoreDenied", "expired"),
        (status(403, '{"error": {"errors": [{"reason": "forbidden"}]}}'), "list", "StoreDenied", "listing is missing"),
        (status(429, '{"error": {"errors": [{"reason": "rateLimitExceeded"}]}}'), "read", "StoreUnavailable", "429"),
        (status(503, "<Error><Code>ServerBusy</Code></Error>"), "read", "StoreUnavailable", "ServerBusy"),
        (
            "Error performing POST https://oauth2.googleapis.com/token in 1s - HTTP error",
            "read",
            "StoreDenied",
            "no cred",
        ),
        ("Error performing GET https://host/oauth2/latest/api/token - HTTP error", "read", "StoreUnavailable", "way"),
    ],
)
def test_other_clouds_say_it_in_other_words(text: str, action: str, failure: str, words: str) -> None:
    from strandline.tiers.store.obstore_errors import failure_of

    found = failure_of(Exception(text), "gs://bucket", action, "a/key")
    assert type(found).__name__ == failure, found
    assert words in str(found)
    assert "hunter2" not in str(found)
