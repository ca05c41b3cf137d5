"""Every replica of a compacted topic is cleaned by its own broker, and whoever leads gives the same state."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.scenarios.compaction_ground import AT_ONCE, QUICK, TOPIC, folded, put, read, rounds, until
from tests.scenarios.test_compaction import checkpoint

import strandline

REPLICATED = AT_ONCE | {"min.insync.replicas": "2"}


@pytest.mark.slow
def test_each_replica_is_cleaned_and_each_leader_gives_the_same_state() -> None:
    written = rounds(20)
    with strandline.embedded(nodes=3, properties=QUICK) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (made,) = admin.create_topics([NewTopic(TOPIC, 1, 3, config=REPLICATED)]).values()
        made.result(30)
        put(cluster.bootstrap, written)
        directories = [node.data for node in cluster.nodes.values()]
        until(lambda: all(checkpoint(data).get(f"{TOPIC}-0", 0) > 150 for data in directories), "all are clean")
        expected = dict(written)
        assert folded(read(cluster.bootstrap)) == expected
        for node_id in cluster.nodes:
            cluster.kill(node_id)
            found = read(cluster.bootstrap)
            assert folded(found) == expected
            assert [(key, value) for _, key, value in found] == [written[offset] for offset, _, _ in found]
            cluster.start(node_id)
            put(cluster.bootstrap, [(b"key 0", b"again")])
            expected[b"key 0"] = b"again"
            written.append((b"key 0", b"again"))
    del admin


@pytest.mark.slow
def test_a_reader_from_the_beginning_sees_each_keys_last_state_while_it_is_cleaned() -> None:
    """Readers begin anew, again and again, while segments give way under them."""
    written = rounds(60)
    expected = dict(written)
    wrong: list[object] = []
    with strandline.embedded(properties=QUICK) as log:
        admin = AdminClient({"bootstrap.servers": log.bootstrap})
        (made,) = admin.create_topics([NewTopic(TOPIC, 1, 1, config=AT_ONCE)]).values()
        made.result(30)
        ended = threading.Event()

        def keep_reading() -> None:
            while not ended.is_set():
                found = read(log.bootstrap)
                offsets = [offset for offset, _, _ in found]
                if offsets != sorted(set(offsets)):
                    wrong.append(offsets)
                if any((key, value) != written[offset] for offset, key, value in found):
                    wrong.append(found)
                # What a reader has seen last of a key is never older than what was there when it began.
                last = {key: offset for offset, key, _ in found}
                if found and len(last) < 10 and found[-1][0] > 20:
                    wrong.append(last)

        reader = threading.Thread(target=keep_reading)
        reader.start()
        try:
            for first in range(0, len(written), 60):
                put(log.bootstrap, written[first : first + 60])
        finally:
            ended.set()
            reader.join()
        assert wrong == []
        assert folded(read(log.bootstrap)) == expected
    del admin
