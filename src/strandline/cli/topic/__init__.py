"""`strandline topic`: create, list, describe, alter, compact, scrub, trim and delete topics."""
