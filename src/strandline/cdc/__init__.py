"""Change data capture: the changes of databases as records of topics, in Debezium's envelope, without a JVM.

`model` is what all databases share: tables, columns and changes of rows. `postgres` and `mariadb` read their logs and
make these, as sources of Connect. `events` turns changes into records. `transforms` are those that people use on them.
"""
