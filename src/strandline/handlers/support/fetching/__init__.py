"""Fetches: attempts of a pending fetch, those of followers and of the quorum, tiers, and the choice of a replica."""
