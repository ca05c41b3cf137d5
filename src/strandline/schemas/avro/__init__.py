"""Avro schemas: parsed with all of the specification's checks, printed in one form, compared by its resolution rules.

Begin with `engine`. The work on a schema is bounded by the size of its text: a name stands for one node however often
it is used, and two nodes are compared once.
"""
