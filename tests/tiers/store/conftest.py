"""The stores of the contract: one suite for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.tiers.store.s3_stub import BUCKET, S3Stub, serving
from tests.tiers.store.versitygw import gateway, options_of

from strandline.runtime.runtime import LoopRuntime, Runtime
from strandline.tiers.store.directory_store import DirectoryStore
from strandline.tiers.store.object_store import GuardedStore, ObjectStore, RetryRules, open_store

KINDS = (
    "memory",
    "directory",
    "obstore-local",
    "s3",
    "guarded-s3",
    pytest.param("versitygw", marks=pytest.mark.slow),
)
FAST = RetryRules(pause_s=0.002, pause_s_max=0.02)


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    made = LoopRuntime(asyncio.get_running_loop())
    yield made
    made.close()


@pytest.fixture(scope="session")
def server() -> Iterator[S3Stub]:
    with serving() as stub:
        yield stub


@pytest.fixture
def stub(server: S3Stub) -> Iterator[S3Stub]:
    """An empty bucket without faults."""
    yield server
    server.forget()


@pytest.fixture(params=KINDS)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ObjectStore]:
    match request.param:
        case "memory":
            yield open_store("memory://", {}, runtime=runtime)
        case "directory":
            made = open_store((tmp_path / "objects").as_uri(), {}, runtime=runtime)
            assert isinstance(made, DirectoryStore)
            yield made
            made.close()
        case "obstore-local":
            local = pytest.importorskip("obstore.store").LocalStore(str(tmp_path))
            from strandline.tiers.store.obstore_store import ObstoreStore

            yield ObstoreStore(local, "local", runtime)
        case "s3" | "guarded-s3":
            pytest.importorskip("obstore")
            stub = request.getfixturevalue("stub")
            raw = open_store(f"s3://{BUCKET}/pre/fix", stub.options, runtime=runtime)
            yield raw if request.param == "s3" else GuardedStore(raw, runtime, rules=FAST)
        case "versitygw":
            pytest.importorskip("obstore")
            served = gateway(tmp_path / "gateway", monkeypatch)
            yield open_store(f"s3://{BUCKET}/pre/fix", options_of(served.port), runtime=runtime)
            served.kill()
