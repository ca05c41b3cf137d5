"""`strandline.Log` as its users see it: on their own loop, without a broker."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.log.sync_ways import SYNC_WAYS, break_sync, choose_sync_way

import strandline
from strandline.codec.columns import Record, columns_of
from strandline.errors import Closed, CorruptLog, DirectoryLocked, DiskFailed, OffsetOutOfRange
from strandline.runtime import runtime


async def values(log: strandline.Log, start: int | None = None) -> list[bytes | None]:
    return [record.value async for record in log.scan(start)]


async def test_what_was_appended_is_read_at_its_offset(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders") as log:
        offsets = [await log.append(b"v%d" % n, key=b"k", headers=[("h", b"x")], timestamp_ms=n) for n in range(100)]
        assert offsets == list(range(100))
        assert await log.read(42) == Record(42, 42, b"k", b"v42", (("h", b"x"),))
        assert await values(log) == [b"v%d" % n for n in range(100)]
        assert await values(log, 90) == [b"v%d" % n for n in range(90, 100)]
        assert (log.start_offset, log.end_offset) == (0, 100)


async def test_null_values_and_batches_of_many(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders") as log:
        first = await log.append_many(
            [Record(value=b"a"), Record(value=None, key=b"gone"), Record(value=b"c" * 100_000)]
        )
        assert first == 0
        assert (await log.read(1)).value is None
        assert (await log.read(2)).value == b"c" * 100_000
        assert await log.append(b"after") == 3
        with pytest.raises(ValueError, match="at least one"):
            await log.append_many([])


async def test_every_offset_over_many_segments(tmp_path: Path) -> None:
    settings = {"internal.segment.bytes": "4096"}
    async with strandline.Log(tmp_path / "orders", settings=settings, open_files_max=8) as log:
        for n in range(0, 500, 10):
            await log.append_many([Record(value=b"%04d" % each + b"x" * 96) for each in range(n, n + 10)])
        segments = len(list((tmp_path / "orders").glob("*.log")))
        assert segments > 15
        for offset in (*range(500), *range(499, -1, -1)):
            assert (await log.read(offset)).value == b"%04d" % offset + b"x" * 96
        assert len(await values(log)) == 500


async def test_it_is_all_there_after_reopening(tmp_path: Path) -> None:
    for turn in range(3):
        async with strandline.Log(tmp_path / "orders") as log:
            assert log.end_offset == turn * 10
            for n in range(10):
                assert await log.append(b"%d" % (turn * 10 + n)) == turn * 10 + n
    async with strandline.Log(tmp_path / "orders") as log:
        assert await values(log) == [b"%d" % n for n in range(30)]


async def test_acknowledged_appends_survive_a_kill(tmp_path: Path) -> None:
    """A copy of the directory taken while the log is open is what a kill leaves."""
    async with strandline.Log(tmp_path / "orders", settings={"internal.segment.bytes": "2048"}) as log:
        for n in range(50):
            await log.append(b"%d" % n)
        shutil.copytree(tmp_path / "orders", tmp_path / "killed", ignore=shutil.ignore_patterns(".lock"))
    last = max((tmp_path / "killed").glob("*.log"))
    with last.open("ab") as torn:
        torn.write(b"\0" * 7 + b"half a batch")
    async with strandline.Log(tmp_path / "killed") as log:
        assert await values(log) == [b"%d" % n for n in range(50)]
        assert await log.append(b"goes on") == 50


async def test_waiting_appends_share_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0
    real = os.fdatasync

    def counted(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        real(fd)

    monkeypatch.setattr(runtime, "SyncThreads", None)
    async with strandline.Log(tmp_path / "orders") as log:
        monkeypatch.setattr(os, "fdatasync", counted)
        offsets = await asyncio.gather(*(log.append(b"x") for _ in range(200)))
    assert sorted(offsets) == list(range(200))
    assert 1 <= syncs < 50


async def test_nothing_is_readable_before_it_is_flushed(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders") as log:
        waiting = asyncio.ensure_future(log.append(b"x"))
        await asyncio.sleep(0)  # The append is written now; its flush has not returned.
        assert log.end_offset == 0
        with pytest.raises(OffsetOutOfRange):
            log.read_nowait(0)
        assert await waiting == 0
        assert log.read_nowait(0).value == b"x"


async def test_async_mode_does_not_wait(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders", settings={"flush.mode": "async"}) as log:
        waiting = asyncio.ensure_future(log.append(b"x"))
        await asyncio.sleep(0)
        assert waiting.done()
        assert log.read_nowait(0).value == b"x"


async def test_a_cancelled_append_disturbs_nobody(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders") as log:
        first = asyncio.ensure_future(log.append(b"first"))  # Written at once; those behind it share the next batch.
        cancelled = asyncio.ensure_future(log.append(b"cancelled"))
        others = [asyncio.ensure_future(log.append(b"kept")) for _ in range(5)]
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await asyncio.gather(first, *others) == [0, 1, 2, 3, 4, 5]
        assert await values(log) == [b"first"] + [b"kept"] * 5
        late = asyncio.ensure_future(log.append(b"written already"))
        for _ in range(3):
            await asyncio.sleep(0)
        late.cancel()
        # What was written is there, whether anybody waits for it or not, and its offset is not given again.
        assert await log.append(b"next") == 7


async def test_appends_of_one_turn_share_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    real = os.pwrite

    def counted(fd: int, data: bytes, position: int) -> int:
        writes.append(len(data))
        return real(fd, data, position)

    async with strandline.Log(tmp_path / "orders") as log:
        monkeypatch.setattr(os, "pwrite", counted)
        large = asyncio.gather(*(log.append(b"%d" % n + b"x" * 100_000) for n in range(10)))
        many = log.append_many([Record(value=b"a"), Record(value=b"b")])
        assert await large == list(range(10))
        assert await many == 10
        # The first writer finds itself alone and does not wait; the others share writes of a moderate size.
        assert [size // 100_000 for size in writes] == [1, 3, 3, 3, 0]
        monkeypatch.undo()
    data = (tmp_path / "orders" / "00000000000000000000.log").read_bytes()
    assert [columns.count for columns in columns_of(data)] == [1] * 10 + [2]
    async with strandline.Log(tmp_path / "orders") as log:
        assert [(await log.read(offset)).value for offset in range(10)] == [
            b"%d" % n + b"x" * 100_000 for n in range(10)
        ]


async def test_a_follower_sees_what_comes(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders") as log:
        await log.append(b"before")
        seen: list[bytes | None] = []

        async def follow() -> None:
            async for record in log.scan(follow=True):
                seen.append(record.value)
                if len(seen) == 3:
                    return

        follower = asyncio.ensure_future(follow())
        await log.append(b"one")
        await log.append(b"two")
        await asyncio.wait_for(follower, 10)
        assert seen == [b"before", b"one", b"two"]


async def test_a_follower_learns_that_the_log_was_closed(tmp_path: Path) -> None:
    log = strandline.Log(tmp_path / "orders")
    await log.open()
    follower = asyncio.ensure_future(anext(log.scan(follow=True)))
    await asyncio.sleep(0)
    await log.close()
    with pytest.raises(Closed):
        await asyncio.wait_for(follower, 10)


async def test_time_leads_to_an_offset(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders") as log:
        for n in range(100):
            await log.append(b"x", timestamp_ms=1000 + n * 10)
        assert log.offset_at(0) == 0
        assert log.offset_at(1500) == 50
        assert log.offset_at(1501) == 51
        assert log.offset_at(5000) == 100


async def test_trimmed_records_are_gone_for_good(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders", settings={"internal.segment.bytes": "1024"}) as log:
        for n in range(100):
            await log.append(b"%d" % n)
        before = len(list((tmp_path / "orders").glob("*.log")))
        log.trim(60)
        assert len(list((tmp_path / "orders").glob("*.log"))) < before
        with pytest.raises(OffsetOutOfRange, match="60"):
            await log.read(59)
        assert (await log.read(60)).value == b"60"
    async with strandline.Log(tmp_path / "orders") as log:
        assert log.start_offset == 60
        assert await values(log) == [b"%d" % n for n in range(60, 100)]


async def test_the_directory_is_locked(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders"):
        with pytest.raises(DirectoryLocked, match="in use"):
            await strandline.Log(tmp_path / "orders").open()
        script = f"import asyncio, strandline\nasyncio.run(strandline.Log({str(tmp_path / 'orders')!r}).open())"
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)  # noqa: ASYNC221
        assert other.returncode != 0
        assert "DirectoryLocked" in other.stderr
    async with strandline.Log(tmp_path / "orders"):
        pass


async def test_damage_in_the_middle_is_refused_with_its_place(tmp_path: Path) -> None:
    async with strandline.Log(tmp_path / "orders") as log:
        for n in range(10):
            await log.append(b"value %d" % n)
    (tmp_path / "orders" / ".kafka_cleanshutdown").unlink()
    path = tmp_path / "orders" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="position"):
        await strandline.Log(tmp_path / "orders").open()
    assert path.read_bytes() == data


@pytest.mark.parametrize("way", SYNC_WAYS)
async def test_a_failed_flush_fails_every_waiting_append_and_all_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    choose_sync_way(monkeypatch, way)
    async with strandline.Log(tmp_path / "orders") as log:
        await log.append(b"safe")
        break_sync(log._log)
        outcomes = await asyncio.gather(*(log.append(b"x") for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [DiskFailed] * 3
        with pytest.raises(DiskFailed):
            await log.append(b"later")
    async with strandline.Log(tmp_path / "orders") as log:
        assert (await log.read(0)).value == b"safe"


async def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = strandline.Log(tmp_path / "orders")
    with pytest.raises(Closed):
        await log.append(b"x")
    await log.open()
    await log.append(b"x")
    await log.close()
    await log.close()
    with pytest.raises(Closed):
        await log.append(b"x")
    with pytest.raises(Closed):
        await log.read(0)
