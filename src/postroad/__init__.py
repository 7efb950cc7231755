"""Postroad: an integration server on PostgreSQL.

It carries messages, files and records between databases, services and partners, so that nothing
is lost, nothing is processed twice and nothing gets stuck, whatever crashes. Each component is a
package; `postroad.bus` is the message bus that the others use.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
