"""Which leader epoch began at which offset, and the `leader-epoch-checkpoint` file that remembers it.

The file, in Kafka's words: a line `0` (version), a line with the number of entries, then `epoch start_offset` lines.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from strandline.errors import CorruptLog

FILE_NAME: Final = "leader-epoch-checkpoint"


class LeaderEpochs:
    __slots__ = ("epochs", "start_offsets")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.start_offsets: list[int] = []

    @classmethod
    def parse(cls, text: str) -> LeaderEpochs:
        epochs = cls()
        lines = text.split("\n")
        try:
            if lines[0] != "0":
                raise ValueError(lines[0])
            count = int(lines[1])
            if len(lines) != count + 3 or lines[-1]:
                # Torn: without its end, "5 144" may read "5 1", and records of epoch 4 would count as diverged.
                raise ValueError(f"{count} entries in {len(lines)} lines")
            for line in lines[2:-1]:
                epoch, start = line.split(" ")
                if not epochs.note(int(epoch), int(start)) or epochs.start_offsets[-2:] != sorted(
                    epochs.start_offsets[-2:]
                ):
                    raise ValueError(f"{line!r} goes back")
        except (ValueError, IndexError) as error:
            raise CorruptLog(f"leader epoch checkpoint cannot be read: {error}") from error
        return epochs

    def format(self) -> str:
        lines = [f"{epoch} {start}" for epoch, start in zip(self.epochs, self.start_offsets, strict=True)]
        return "\n".join(["0", str(len(lines)), *lines]) + "\n"

    @property
    def latest(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def note(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`. Return whether that is new."""
        if self.epochs and epoch <= self.epochs[-1]:
            return False
        self.epochs.append(epoch)
        self.start_offsets.append(start_offset)
        return True

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 if unknown."""
        at = bisect_right(self.start_offsets, offset)
        return self.epochs[at - 1] if at else -1

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (the largest epoch up to `epoch`, where it ends), or (-1, -1), as OffsetForLeaderEpoch does."""
        if not self.epochs or epoch > self.epochs[-1]:
            return -1, -1
        at = bisect_right(self.epochs, epoch)
        if at == 0:
            return epoch, self.start_offsets[0]
        end = log_end_offset if at == len(self.epochs) else self.start_offsets[at]
        return self.epochs[at - 1], end

    def truncate_end(self, end_offset: int) -> bool:
        """Forget epochs that began at or after `end_offset`."""
        count = len(self.epochs)
        while self.epochs and self.start_offsets[-1] >= end_offset:
            self.epochs.pop()
            self.start_offsets.pop()
        return len(self.epochs) != count

    def below(self, end_offset: int) -> LeaderEpochs:
        """Return the epochs that began before `end_offset`, as a copy."""
        epochs = LeaderEpochs()
        at = bisect_left(self.start_offsets, end_offset)
        epochs.epochs, epochs.start_offsets = self.epochs[:at], self.start_offsets[:at]
        return epochs

    def truncate_start(self, start_offset: int) -> bool:
        """Forget epochs that ended before `start_offset`; the one that holds it begins there."""
        at = bisect_right(self.start_offsets, start_offset)
        if at == 0 or (at == 1 and self.start_offsets[0] == start_offset):
            return False
        del self.epochs[: at - 1]
        del self.start_offsets[: at - 1]
        self.start_offsets[0] = start_offset
        return True
