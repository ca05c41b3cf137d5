"""Addresses and options: what opens, and what is refused without a word of a secret."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.object_store import BucketMissing, StoreDenied, StoreMisconfigured, open_store

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket", {}),
        ("s3://bucket/a/b", {"AWS_REGION": "eu-west-1", "aws_access_key_id": "x", "aws_secret_access_key": SECRET}),
        ("s3://bucket/a", {"aws_endpoint": "http://127.0.0.1:1", "allow_http": "true", "aws_session_token": SECRET}),
        ("s3://bucket/a", {"AWS_ALLOW_HTTP": "1", "connect_timeout": "3s", "user_agent": "x"}),
        ("az://container/a", {"azure_storage_account_name": "x", "azure_storage_account_key": "aGk="}),
        ("gs://bucket/a", {}),
        ("memory://", {}),
    ],
)
async def test_addresses_that_open(url: str, options: dict[str, str], runtime: Runtime) -> None:
    pytest.importorskip("obstore")
    store = open_store(url, options, runtime=runtime)
    assert store.name == url
    assert SECRET not in repr(store)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("", {}, "begins with"),
        ("bucket/prefix", {}, "begins with"),
        ("http://host/x", {}, "begins with"),
        ("s3://", {}, "does not name a bucket"),
        ("s3:///prefix", {}, "does not name a bucket"),
        ("s3://bucket/../x", {}, "prefix that is not allowed"),
        ("s3://bucket/a//b", {}, "prefix that is not allowed"),
        ("s3://bucket/a b", {}, "prefix that is not allowed"),
        ("s3://[", {}, "malformed"),
        (f"s3://key:{SECRET}@bucket/x", {}, "give the rest as options"),
        (f"s3://{SECRET}@bucket/x", {}, "give the rest as options"),
        (f"s3://bucket/x?secret={SECRET}", {}, "give the rest as options"),
        (f"https://bucket/x?sig={SECRET}", {}, "give the rest as options"),
        ("s3://bucket", {"region": SECRET}, "region does not begin with aws_"),
        ("s3://bucket", {"google_service_account": SECRET}, "does not begin with aws_"),
        ("s3://bucket", {"aws_nonsense": SECRET}, "aws_nonsense is unknown"),
        ("s3://bucket", {"aws_allow_http": SECRET}, "must be true or false"),
        ("s3://bucket", {"connect_timeout": SECRET}, "connect_timeout"),
        ("s3://bucket", {"aws_virtual_hosted_style_request": SECRET}, "aws_virtual_hosted_style_request"),
        ("s3://bucket", {"proxy_url": f"::{SECRET}"}, "proxy_url"),
        ("gs://bucket", {"google_service_account_key": SECRET}, "google_service_account_key"),
        ("az://container", {"azure_storage_account_key": SECRET}, "azure_storage_account_key"),
        ("file://host/directory", {}, "does not name a directory"),
        ("file:///", {}, "does not name a directory"),
    ],
)
async def test_addresses_and_options_that_are_refused(
    url: str, options: dict[str, str], words: str, runtime: Runtime, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("obstore")
    with pytest.raises(StoreMisconfigured, match=words) as caught:
        open_store(url, options, runtime=runtime)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_directory_is_made_but_not_its_parents(tmp_path: Path, runtime: Runtime) -> None:
    open_store((tmp_path / "new").as_uri(), {}, runtime=runtime).close()  # type: ignore[attr-defined]
    with pytest.raises(BucketMissing, match="parent directory"):
        open_store((tmp_path / "not" / "mounted").as_uri(), {}, runtime=runtime)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreMisconfigured, match="no directory"):
        open_store((tmp_path / "file").as_uri(), {}, runtime=runtime)


async def test_missing_credentials_are_named(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = open_store(
        "s3://bucket", {"aws_region": "x", "aws_metadata_endpoint": "http://127.0.0.1:9"}, runtime=runtime
    )
    with pytest.raises(StoreDenied, match="no credentials") as caught:
        await store.read_whole("k", deadline_s=10.0)
    assert caught.value.reason == "credentials"


def test_the_door_does_not_import_obstore() -> None:
    code = "import sys, strandline.tiers.store.object_store; assert 'obstore' not in sys.modules; print('ok')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr
