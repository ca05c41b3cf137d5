"""Debezium's embedded engine, the peer that change data capture is measured and compared with."""
