"""`strandline security`: make what a secured cluster needs, and look at one."""
