"""The file source on real files: every line once, whatever happens to the file or to the source."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.connect.file_reading import Stored, batches_of, following, read_all, source, values_of

from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig
from strandline.connect.paths import PathRules
from strandline.connect.records import ValueBatch
from strandline.connect.schema import STRING
from strandline.connect.sources.file_formats import followed_files, lines
from strandline.connect.sources.files import FileSource


def rotate(file: Path) -> None:
    """Rename a file to `.1`, and those that were rotated before it to the next number."""
    numbers = sorted((int(each.suffix[1:]) for each in file.parent.glob(f"{file.name}.*")), reverse=True)
    for number in numbers:
        Path(f"{file}.{number}").rename(f"{file}.{number + 1}")
    file.rename(f"{file}.1")


async def test_lines_are_those_of_kafka(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"eins\n\nzwei\r\ndrei\rvier\n")
    (batch,) = await batches_of(file)
    assert isinstance(batch, ValueBatch)
    assert batch.values == ["eins", "", "zwei", "drei", "vier"]
    assert (batch.topic, batch.value_schema, batch.partition) == ("lines", STRING, {"filename": str(file)})
    assert batch.offset is not None
    assert batch.offset["position"] == file.stat().st_size


async def test_a_last_line_waits_for_its_newline(tmp_path: Path) -> None:
    file, stored = tmp_path / "a.txt", Stored()
    file.write_text("one\ntw")
    async with following(file, stored) as wait:
        assert await wait(1) == ["one"]
        with file.open("a") as out:
            out.write("o\nthr")
        assert await wait(2) == ["one", "two"]
    assert stored.all()[0][1]["position"] == len("one\ntwo\n")


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("batch_size", ["1", "2", "2000"])
async def test_every_line_comes_once_wherever_the_source_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, batch_size: str
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    monkeypatch.setattr(lines.LineBlocks.read, "__kwdefaults__", {"length": block})
    file = tmp_path / "a.txt"
    expected = ["ä€🎉", "", "two", "x" * 9, "\u2028 is no end", "last"]
    file.write_bytes("ä€🎉\n\ntwo\r\nxxxxxxxxx\r\u2028 is no end\nlast\n".encode())
    whole = await batches_of(file, batch_size=batch_size)
    assert [value for batch in whole for value in values_of(batch)] == expected
    for killed_after in range(len(whole) + 1):
        stored = Stored()
        before: list[Any] = []
        reading = source(file, batch_size=batch_size).read(stored)
        for _ in range(killed_after):
            batch = await anext(reading)
            stored.keep(batch)
            before += values_of(batch)
        await reading.aclose()  # type: ignore[attr-defined]
        assert before + await read_all(file, stored, batch_size=batch_size) == expected


async def test_a_file_that_grows_at_any_byte_gives_each_line_once(tmp_path: Path) -> None:
    content = "ä€🎉\n\ntwo\r\nthree\n".encode()
    for cut in range(len(content) + 1):
        file, stored = tmp_path / f"{cut}.txt", Stored()
        file.write_bytes(content[:cut])
        async with following(file, stored) as wait:
            begun = await wait(content[:cut].count(b"\n"))
            with file.open("ab") as out:
                out.write(content[cut:])
            assert await wait(4) == ["ä€🎉", "", "two", "three"]
            assert begun == ["ä€🎉", "", "two", "three"][: len(begun)]


async def test_kafkas_plain_offset_is_taken(tmp_path: Path) -> None:
    file, stored = tmp_path / "a.txt", Stored()
    file.write_text("one\ntwo\n")
    stored.offsets = {(("filename", str(file)),): {"position": 4}}
    assert await read_all(file, stored) == ["two"]


async def test_a_missing_file_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "later.txt"
    async with following(file, Stored()) as wait:
        file.write_text("here\n")
        assert await wait(1) == ["here"]
    file.unlink()
    with pytest.raises(ConnectFailed, match="does not exist"):
        await read_all(file)


async def test_a_truncated_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    file, stored = tmp_path / "a.txt", Stored()
    file.write_text("one\ntwo\nthree\n")
    async with following(file, stored) as wait:
        assert len(await wait(3)) == 3
        os.truncate(file, 0)
        with file.open("a") as out:
            out.write("four\n")
        assert (await wait(4))[3:] == ["four"]
        # Longer than before: only the bytes before the position show that it was written again.
        file.write_text("five has more bytes than everything before it\n")
        assert (await wait(5))[4:] == ["five has more bytes than everything before it"]
    file.write_text("written while stopped, and longer than before as well as other bytes\n")
    assert await read_all(file, stored) == ["written while stopped, and longer than before as well as other bytes"]


@pytest.mark.parametrize("pause", [0, 0.001, 0.004])
async def test_rotation_under_writing_loses_nothing(tmp_path: Path, pause: float) -> None:
    file, stored = tmp_path / "app.log", Stored()
    out = file.open("a")
    async with following(file, stored) as wait:
        for index in range(300):
            if index == 1:
                await wait(1)
            if index % 50 == 30:
                rotate(file)
                out.write(f"line {index}\n")  # The writer still has the old file.
                out.close()
                out = file.open("a")
            else:
                out.write(f"line {index}\n")
                out.flush()
            if index % 7 == 0:
                await asyncio.sleep(pause)
        out.close()
        assert await wait(300) == [f"line {index}" for index in range(300)]


@pytest.mark.parametrize("read_before", [0, 1, 2, 3])
async def test_rotation_while_the_source_is_stopped_loses_nothing(tmp_path: Path, read_before: int) -> None:
    file, stored = tmp_path / "app.log", Stored()
    file.write_text("1\n2\n3\n")
    reading = source(file, batch_size="1").read(stored)
    for _ in range(read_before):
        stored.keep(await anext(reading))
    await reading.aclose()  # type: ignore[attr-defined]
    if not read_before:
        return
    # Two rotations: the file in the middle was never seen.
    file.rename(tmp_path / "app.log.2")
    (tmp_path / "app.log.1").write_text("4\n5")
    file.write_text("6\n")
    assert await read_all(file, stored) == [str(each) for each in range(read_before + 1, 7)]
    assert await read_all(file, stored) == []


async def test_a_rotated_file_is_resumed_at_each_position(tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    for killed_after in range(6):
        stored = Stored()
        file.write_text("1\n2\n3\n")
        first = source(file, batch_size="1").read(stored)
        stored.keep(await anext(first))
        await first.aclose()  # type: ignore[attr-defined]
        file.rename(tmp_path / "app.log.1")
        file.write_text("4\n5\n6\n")
        found = []
        reading = source(file, batch_size="1", follow="false").read(stored)
        for _ in range(killed_after):
            batch = await anext(reading, None)
            if batch is not None:
                stored.keep(batch)
                found += values_of(batch)
        await reading.aclose()  # type: ignore[attr-defined]
        assert found + await read_all(file, stored) == ["2", "3", "4", "5", "6"], killed_after


async def test_a_renamed_file_that_matches_the_pattern_is_not_read_twice(tmp_path: Path) -> None:
    file, stored = tmp_path / "app.log", Stored()
    file.write_text("1\n2\n")
    async with following(tmp_path / "app.log*", stored) as wait:
        await wait(2)
        for number in range(3, 6):
            rotate(file)
            file.write_text(f"{number}\n")
            await wait(number)
        found = await wait(5)
    assert found == ["1", "2", "3", "4", "5"]
    assert await read_all(tmp_path / "app.log*", stored) == []
    file.rename(tmp_path / "app.log.0")
    assert await read_all(tmp_path / "app.log*", stored) == []


async def test_a_copied_file_is_not_read_twice(tmp_path: Path) -> None:
    file, stored = tmp_path / "a.txt", Stored()
    file.write_text("one\ntwo\n")
    await read_all(file, stored)
    content = file.read_text()
    (tmp_path / "new").write_text(content + "three\n")
    (tmp_path / "new").replace(file)
    assert await read_all(file, stored) == ["three"]


async def test_directories_are_shared_by_tasks_and_new_files_are_found(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / f"part{index}.txt").write_text(f"{index}\n")
    (tmp_path / ".hidden").write_text("no\n")
    config = FileSource.Config({"file": str(tmp_path), "topic": "t"})
    shares = FileSource.tasks(config, 3)
    assert len(shares) == 3
    found = [await read_all(tmp_path, **{"task.share": each["task.share"]}) for each in shares]
    assert all(found)
    assert sorted(int(value) for each in found for value in each) == list(range(20))
    assert len(FileSource.tasks(FileSource.Config({"file": str(tmp_path / "part1.txt"), "topic": "t"}), 3)) == 1
    stored = Stored()
    async with following(tmp_path, stored) as wait:
        await wait(20)
        (tmp_path / "new.txt").write_text("new\n")
        assert (await wait(21))[20:] == ["new"]


async def test_more_files_than_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "OPEN_FILES_MAX", 3)
    for index in range(10):
        (tmp_path / f"{index}.txt").write_text("first\n")
    async with following(tmp_path, Stored()) as wait:
        await wait(10)
        for index in range(10):
            with (tmp_path / f"{index}.txt").open("a") as out:
                out.write(f"second {index}\n")
        assert sorted((await wait(20))[10:]) == [f"second {index}" for index in range(10)]


async def test_a_deleted_file_is_forgotten(tmp_path: Path) -> None:
    stored = Stored()
    (tmp_path / "a.txt").write_text("one\ntorn")
    async with following(tmp_path, stored) as wait:
        await wait(1)
        (tmp_path / "a.txt").unlink()
        assert await wait(2) == ["one", "torn"]
        (tmp_path / "b.txt").write_text("b\n")
        await wait(3)
        while len(stored.offsets) > 1:  # noqa: ASYNC110  # the source runs on
            await asyncio.sleep(0.005)
    assert [partition for partition, _ in stored.all()] == [{"filename": str(tmp_path / "b.txt")}]


async def test_files_outside_of_the_allowed_paths_are_refused(tmp_path: Path) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret.txt"
    allowed.mkdir()
    secret.write_text("secret\n")
    (allowed / "link.txt").symlink_to(secret)
    for each in (secret, allowed / ".." / "secret.txt", allowed / "link.txt", tmp_path / "*.txt"):
        made = FileSource(FileSource.Config({"file": str(each), "topic": "t"}))
        made.paths = PathRules([allowed])
        with pytest.raises(InvalidConnectorConfig, match=r"allowed\.paths"):
            made.open()
    made = FileSource(FileSource.Config({"file": str(allowed), "topic": "t", "follow": "false"}))
    made.paths = PathRules([allowed])
    made.open()
    with pytest.raises(InvalidConnectorConfig, match="may not use"):
        [each async for each in made.read(Stored())]


def test_settings_are_checked() -> None:
    assert set(FileSource.Config.errors_of({})) == {"file", "topic"}
    assert set(FileSource.Config.errors_of({"file": "a", "topic": "t", "key.field": "id"})) == {"key.field"}
    assert FileSource.Config.errors_of({"file": "a", "topic": "t"}) == {}


@pytest.mark.parametrize(
    ("partition", "offset", "message"),
    [
        ({"file": "a"}, {"position": 1}, "filename"),
        ({"filename": "a", "x": 1}, {"position": 1}, "filename"),
        ({"filename": "a"}, {"pos": 1}, "contain the key 'position'"),
        ({"filename": "a"}, {"position": "1"}, "Long value"),
        ({"filename": "a"}, {"position": -1}, "non-negative"),
    ],
)
def test_offsets_are_checked_as_kafka_does(partition: Any, offset: Any, message: str) -> None:
    with pytest.raises(InvalidConnectorConfig, match=message):
        FileSource.check_offsets(None, [(partition, offset)])
    FileSource.check_offsets(None, [({"anything": 1}, None), ({"filename": "a"}, {"position": 0})])
