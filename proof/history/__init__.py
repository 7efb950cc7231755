"""What clients asked for and were answered, recorded in files, and checkers that judge it.

A recorder writes one JSON line before each call and one after it, so that the record of a killed
client is complete up to its last call. The checkers import nothing of Postroad: they decide from
the record and from the rows that handlers left in the database.
"""
