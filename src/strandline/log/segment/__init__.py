"""One segment and its files: indexes, counts and digests, and how its batches are read and checked."""
