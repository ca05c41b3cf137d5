"""The app's name for Django."""

from __future__ import annotations

from django.apps import AppConfig  # type: ignore[import-untyped]


class StrandlineOutbox(AppConfig):  # type: ignore[misc]
    """Outbox and inbox."""

    name = "strandline.outbox.django"
    label = "strandline_outbox"
    verbose_name = "Strandline outbox and inbox"
