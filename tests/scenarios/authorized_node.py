"""A node with an authorizer. All its clients are User:ANONYMOUS, who may do everything only as a super user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import strandline
from strandline.config.security.authorizer_settings import STANDARD_AUTHORIZER
from strandline.local.embedded_broker import EmbeddedBroker

ANONYMOUS = "User:ANONYMOUS"


@contextmanager
def authorized_broker(data: Path, *, super_users: str = "", **settings: str) -> Iterator[EmbeddedBroker]:
    """Run the node."""
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": super_users}
    properties |= {name.replace("_", "."): value for name, value in settings.items()}
    with strandline.embedded(data=data, properties=properties) as log:
        yield log


@contextmanager
def authorized_node(data: Path, *, super_users: str = ANONYMOUS) -> Iterator[str]:
    """Run the node for an administrator; its bootstrap address."""
    with authorized_broker(data, super_users=super_users) as log:
        yield log.bootstrap
