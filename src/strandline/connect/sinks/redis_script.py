"""What RedisSink has the server run: one script that writes records and the offsets behind them, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from strandline.connect.records import SinkRecord, TopicPosition

OFFSETS: Final = "strandline:offsets:"
OWNERS: Final = "strandline:owners:"
"""Hashes by topic and partition: the offset behind what is written, and the task that may write."""
REPLACED: Final = "strandline:replaced"
"""Marks a database whose data a rebuild has replaced."""
CHUNK_BYTES_MAX: Final = 8 * 1024 * 1024
CHUNK_COMMANDS_MAX: Final = 5_000
"""Size of one script call, because the server serves no other client while it runs."""

CLAIM: Final = """
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return redis.call('HGET', KEYS[1], ARGV[1])
"""

# The first pass changes nothing, so a call that is refused has no effect: an error in the middle of a script would
# leave what was written before it.
WRITE: Final = """
local at, stored, behind = 2, {}, {}
for p = 1, tonumber(ARGV[1]) do
  local name, owner, known = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local found = redis.call('HGET', KEYS[2], name)
  if found ~= owner then return {found and 'fenced' or 'lost', name, -1} end
  stored[p] = tonumber(redis.call('HGET', KEYS[1], name) or -1)
  if stored[p] < known then return {'lost', name, stored[p]} end
  behind[p] = {name, ARGV[at + 3]}
  at = at + 4
end
local first, is_gone = at, {}
while at <= #ARGV do
  local needed, key = ARGV[at + 3], ARGV[at + 6]
  if tonumber(ARGV[at + 1]) >= stored[tonumber(ARGV[at])] then
    if ARGV[at + 5] == 'DEL' then
      is_gone[key] = true
    elseif needed ~= '' and not is_gone[key] then
      local found = redis.call('TYPE', key)['ok']
      if found ~= 'none' and found ~= needed then return {'type', ARGV[at + 2], found} end
    end
  end
  at = at + 5 + tonumber(ARGV[at + 4])
end
at = first
while at <= #ARGV do
  local count = tonumber(ARGV[at + 4])
  if tonumber(ARGV[at + 1]) >= stored[tonumber(ARGV[at])] then
    redis.call(unpack(ARGV, at + 5, at + 4 + count))
  end
  at = at + 5 + count
end
for p, each in ipairs(behind) do
  if tonumber(each[2]) > stored[p] then redis.call('HSET', KEYS[1], each[1], each[2]) end
end
return {'written'}
"""

Command = tuple[bytes | str | int, ...]


@dataclass
class RedisChunk:
    """Records of one script call."""

    records: list[SinkRecord] = field(default_factory=list)
    arguments: list[bytes | str | int] = field(default_factory=list)
    commands: int = 0
    size_bytes: int = 0
    partitions: dict[TopicPosition, int] = field(default_factory=dict)
    """The offset behind the last record of each, in the order of their first ones."""
    numbers: dict[TopicPosition, int] = field(default_factory=dict)

    def add(self, record: SinkRecord, needed_type: str, commands: Sequence[Command]) -> None:
        partition = TopicPosition(record.original_topic, record.original_partition)
        self.partitions[partition] = record.offset + 1
        # A dict keeps the place of a key that is set again, so the number is that of the partition in the script.
        number = self.numbers.setdefault(partition, len(self.partitions))
        for command in commands:
            self.arguments += (number, record.offset, len(self.records), needed_type, len(command), *command)
            self.size_bytes += sum(len(each) for each in command if not isinstance(each, int))
        self.commands += len(commands)
        self.records.append(record)

    @property
    def is_full(self) -> bool:
        return self.commands >= CHUNK_COMMANDS_MAX or self.size_bytes >= CHUNK_BYTES_MAX
