"""What the handlers of the group APIs need of a request's context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from strandline.coordinators.events import (
        CommitOffsets,
        FetchOffsets,
        Heartbeat,
        JoinGroup,
        LeaveGroup,
        SyncGroup,
    )
    from strandline.quorum.cluster_image import Topic


class Groups(Protocol):
    def submit(
        self, group_id: str, event: JoinGroup | SyncGroup | Heartbeat | LeaveGroup | CommitOffsets | FetchOffsets
    ) -> None: ...


class Image(Protocol):
    def topic_by_name(self, name: str) -> Topic | None: ...

    def topic_by_id(self, topic_id: UUID) -> Topic | None: ...


class GroupNode(Protocol):
    @property
    def groups(self) -> Groups: ...

    @property
    def image(self) -> Image: ...


class GroupContext(Protocol):
    @property
    def node(self) -> GroupNode: ...

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...

    def reply(self, response: Any) -> object: ...
