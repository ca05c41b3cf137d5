"""The kinds of groups that a shard serves. They share one set of names."""

from __future__ import annotations

from strandline.coordinators.groups.classic.classic_group import ClassicGroup
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup
from strandline.coordinators.groups.share.share_group import ShareGroup

Group = ClassicGroup | ConsumerGroup | ShareGroup
