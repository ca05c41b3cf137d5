"""Files that people write for Strandline, in YAML: workloads to judge and contracts to apply.

`yaml_text` reads text into plain values, and remembers the line of each. `fields` takes these values apart, and says
what is wrong with one in a sentence. `units` reads amounts such as `10 MB/s` and `7d`. No module here opens a file.
"""
