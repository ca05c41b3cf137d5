"""One segment and the files beside it: indexes, counts and digests, and how its batches are read and checked."""
