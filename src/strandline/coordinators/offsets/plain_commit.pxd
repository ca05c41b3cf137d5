# C types for plain_commit.py: Cython reads this file when it compiles the plain Python text beside it.

cdef class PlainCommit:
    cdef public object request, response, group_hash, group_id, member_id, topic, topic_id, session_key
    cdef public int api_version, partition
    cdef bytes _key, _value_end
