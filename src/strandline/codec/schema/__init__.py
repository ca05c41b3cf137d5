"""The schema texts, and the compiler from field facts to code.

The `.txt` files hold every message and record of Kafka, one line per field. `parse` reads them, and
`tools/generate_messages.py` writes the classes in `codec/messages` that `selection.txt` names. A running broker does
none of that: there `encoder` and `decoder` turn the facts that a class carries into one Python function per class and
version, using `source` (lines of code) and `layout` (sizes and struct codes).
"""
