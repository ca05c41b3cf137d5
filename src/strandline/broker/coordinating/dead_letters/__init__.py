"""Dead letters of share groups on a broker: reads the source, writes the copies, commits them with what they cover.

Loaded with the first record of a share partition that becomes a dead letter.
"""
