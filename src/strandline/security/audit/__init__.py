"""What the audit topic holds: changes by clients, logins and denials, as lines of JSON.

`audit_event` has the fields of an event and makes its line. `repeats` counts events that come again, so that a client
that tries a thousand times makes a few lines. All of it is pure. `broker/audit` takes the lines to the topic.
"""
