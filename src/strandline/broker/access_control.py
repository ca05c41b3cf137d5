"""The authorizer of a node: made from its settings, and kept equal to the access rules of the metadata image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.broker.kraft.metadata_quorum import MetadataQuorum
from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from strandline.config.security.authorizer_settings import REPORT, AuthorizerSettings
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.quorum.image.kept_records import KeptRecords
from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.logged_denials import LoggedDenials
from strandline.security.principal import parse_principal

ACCESS: Final = "access"


def loaded_authorizer(
    settings: AuthorizerSettings, metadata: MetadataQuorum, monotonic: Callable[[], float]
) -> Authorizer:
    """Return the authorizer of these settings, which decides by the rules of the image from now on."""
    authorizer = Authorizer(
        super_users=frozenset(map(parse_principal, settings.super_user_names())),
        allows_everyone=settings.allow_everyone_if_no_acl_found,
    )
    authorizer.reports_only = settings.authorizer_mode == REPORT
    authorizer.on_denied = LoggedDenials(authorizer, monotonic).on_denied
    metadata.subscribe(AccessRulesLoader(authorizer, lambda: metadata.image).on_metadata)
    return authorizer


class AccessRulesLoader:
    """Takes changes of access rules from the image into the authorizer."""

    def __init__(self, authorizer: Authorizer, image: Callable[[], ClusterImage]) -> None:
        self._authorizer = authorizer
        self._image = image
        self._kept: KeptRecords | None = None
        self._version = 0

    def on_metadata(self, records: list[Any]) -> None:
        """Take over what `records`, which are in the image now, changed; all rules where the image is another one."""
        kept = self._image().kept
        version = kept.versions.get(ACCESS, 0)
        if kept is self._kept and version == self._version:
            return
        changes = [
            each for each in records if isinstance(each, AccessControlEntryRecord | RemoveAccessControlEntryRecord)
        ]
        # Records of a metadata transaction come into the image when it ends, later than they come by here.
        if kept is self._kept and version - self._version == len(changes):
            self._authorizer.update(changes)
        else:
            self._authorizer.load(kept.of_kind(ACCESS))
        self._kept, self._version = kept, version
