"""`strandline doctor`: checks of a cluster, its disks and this machine."""
