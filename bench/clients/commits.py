"""`groups` groups with one member each, on a connection of its own: one partition per OffsetCommit, one in flight.

Bare sockets and a prebuilt request, of which only the offset changes: the client costs little, so that the latencies
are the broker's. The members joined in earnest: the commit of a member is checked, and refreshes its session.
"""

from __future__ import annotations

import select
import struct
import time

from bench.asking import Question, answer_in, request_bytes
from bench.clients.turn import finish, task, wait_for_sign
from bench.group_members import find_coordinator, join_together
from bench.measure import percentile
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

VERSION = 8
OFFSET_MARK = 0x0123456789ABCDEF


class CommitRequest:
    def __init__(self, group: str, member_id: str, generation: int, topic: str, partition: int) -> None:
        at = OffsetCommitRequestPartition(partition_index=partition, committed_offset=OFFSET_MARK)
        message = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[at])],
        )
        self.request = bytearray(request_bytes(message, VERSION))
        self._offset_at = self.request.index(struct.pack(">q", OFFSET_MARK))
        self.offset = 0
        self.advance()

    def advance(self) -> None:
        self.offset += 1
        struct.pack_into(">q", self.request, self._offset_at, self.offset)


def main() -> None:
    options = task()
    host, _, port = options["bootstrap"].partition(":")
    groups = [f"{options['prefix']}-{number}" for number in range(options["groups"])]
    peers = [Question(host, int(port), timeout_s=60.0) for _ in groups]
    for peer, group in zip(peers, groups, strict=True):
        find_coordinator(peer, group)
    members = join_together(peers, groups, options["topic"])
    requests = {}
    for number, (peer, group, (member_id, generation)) in enumerate(zip(peers, groups, members, strict=True)):
        partition = number % options["partitions"]
        requests[peer.socket.fileno()] = CommitRequest(group, member_id, generation, options["topic"], partition)
    sockets = {peer.socket.fileno(): peer for peer in peers}
    for descriptor, request in requests.items():
        sockets[descriptor].socket.sendall(request.request)
        # One outside the measured span: a connection's first touches what its later ones find warm.
        _check(_whole_answer(sockets[descriptor])[4:])
        request.advance()
        sockets[descriptor].socket.setblocking(False)
    wait_for_sign()

    start = time.perf_counter()
    latencies = _drive(sockets, requests, options["count"])
    seconds = time.perf_counter() - start
    finish(
        seconds=seconds,
        requests=len(latencies),
        p50_ms=percentile(latencies, 50) * 1e3,
        p99_ms=percentile(latencies, 99) * 1e3,
    )


def _whole_answer(peer: Question) -> bytes:
    answer = peer.socket.recv(4096)
    while len(answer) < 4 or len(answer) < 4 + int(struct.unpack_from(">i", answer)[0]):
        answer += peer.socket.recv(4096)
    return answer


def _check(content: bytes) -> None:
    error = answer_in(OffsetCommitRequest, VERSION, content).topics[0].partitions[0].error_code
    if error:
        raise SystemExit(f"OffsetCommit was refused: error code {error}")


def _drive(sockets: dict[int, Question], requests: dict[int, CommitRequest], count: int) -> list[float]:
    poll = select.epoll()
    sent_at: dict[int, float] = {}
    clock = time.perf_counter
    for descriptor, peer in sockets.items():
        poll.register(descriptor, select.EPOLLIN)
        sent_at[descriptor] = clock()
        peer.socket.send(requests[descriptor].request)
    latencies: list[float] = []
    partial: dict[int, bytes] = {}
    to_send = count - len(sockets)
    while len(latencies) < count:
        for descriptor, _ in poll.poll():
            piece = sockets[descriptor].socket.recv(4096)
            if not piece:
                raise SystemExit("the server closed the connection")
            answer = partial.pop(descriptor, b"") + piece
            if len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                partial[descriptor] = answer
                continue
            now = clock()
            latencies.append(now - sent_at[descriptor])
            # The error code stands before the tags of the partition, of the topic and of the answer, none of them set.
            if answer[-5:-3] != b"\0\0":
                _check(answer[4:])
            if to_send > 0:
                to_send -= 1
                requests[descriptor].advance()
                sent_at[descriptor] = clock()
                sockets[descriptor].socket.send(requests[descriptor].request)
    return latencies


if __name__ == "__main__":
    main()
