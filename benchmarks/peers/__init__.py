"""Other queues on PostgreSQL, measured beside Postroad; installed apart, see `install.py`."""
