"""Tiered topics of a broker: copies sealed segments to the object store, reads them back, and deletes old ones.

Loaded where `remote.log.storage.system.enable` is set. `tiered_storage` joins the parts. What is decided without the
world is in `tiers`.
"""
