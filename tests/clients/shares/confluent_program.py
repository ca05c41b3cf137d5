"""One share consumer of confluent-kafka, which is librdkafka, with the commands of `tests/java/Sharing.java`."""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import AcknowledgeType, IllegalStateException, KafkaException, ShareConsumer

_UNKNOWN_SERVER_ERROR = -1
_TYPES = {"a": AcknowledgeType.ACCEPT, "l": AcknowledgeType.RELEASE, "j": AcknowledgeType.REJECT}


class Program:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer: Any = None
        self._polled: list[Any] = []

    def share(self, request: dict[str, Any]) -> int:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": request["group"], "log_level": 0}
        self._consumer = ShareConsumer(settings | request["settings"])
        self._consumer.subscribe(request["topics"])
        return 1

    def share_poll(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        # A poll that is refused leaves the records of the one before.
        self._polled = list(self._consumer.poll(request["timeout_ms"] / 1000))
        for message in self._polled:
            if message.error() is not None:
                raise KafkaException(message.error())
        return [
            {
                "topic": each.topic(),
                "partition": each.partition(),
                "offset": each.offset(),
                "value": each.value().decode(),
                "count": each.delivery_count(),
            }
            for each in self._polled
        ]

    def share_acknowledge(self, request: dict[str, Any]) -> None:
        types = request["types"]
        for at, message in enumerate(self._polled):
            letter = types[min(at, len(types) - 1)]
            if letter != "-":
                self._consumer.acknowledge(message, _TYPES[letter])

    def share_commit(self, request: dict[str, Any]) -> dict[str, str | None]:
        outcome = self._consumer.commit_sync()
        return {
            f"{place.topic}-{place.partition}": None if error is None else error.args[0].name()
            for place, error in outcome.items()
        }

    def share_close(self, request: dict[str, Any]) -> None:
        self._consumer.close()
        self._consumer = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"value": getattr(self, request["do"])(request)}
        except KafkaException as failure:
            return {"code": failure.args[0].code(), "message": failure.args[0].str()}
        except IllegalStateException as failure:
            return {"code": _UNKNOWN_SERVER_ERROR, "message": repr(failure)}

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def main() -> None:
    program = Program(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(program.answer(json.loads(line))), flush=True)
    program.leave()


if __name__ == "__main__":
    main()
