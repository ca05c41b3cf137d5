"""Lag as a figure that one can act on, pure: how far a group is behind, where that goes, and when records are lost.

`samples` keeps what was seen of one position over a window of time; `figures` makes lag, rates and the time until
retention deletes unread records out of it; `verdict` says in a word, and in a sentence, how a position is. The node's
sampler and `strandline group lag` feed it, each with what it can see.
"""
