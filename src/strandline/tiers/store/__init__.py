"""One interface to object stores: S3 and what speaks it, Google Cloud Storage, Azure, a directory, and memory.

`object_store` is the door: `open_store`, `GuardedStore`, the interface and its failures. A raw store makes one attempt
a call. Around it stand retries, a request budget and counters, each a store itself. Randomness, clock and timers come
from the `Runtime`, so the same layers run in the simulator. `obstore` is imported when a store needs it.
"""
