"""The schema registry of `strandline.schemas` as a process behind the guard.

`registry_settings` reads where it listens and how it is called, `subject_rights` says which ACL of the cluster a right
on a subject is, and `registry_service` runs it until a signal ends it.
"""
