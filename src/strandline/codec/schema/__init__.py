"""From field facts to code: the schema texts and the compiler of messages.

The four `.txt` files hold every message and record of Kafka, one line per field; `parse` reads them, and
`tools/generate_messages.py` writes the classes in `codec/messages` that `selection.txt` names. None of that happens in
a running broker: there `encoder` and `decoder` turn the facts that a class carries into one Python function per class
and version, by way of `source` (lines of code) and `layout` (sizes and struct codes).
"""
