"""The exchange's clients: `Exchange` for blocking programs, `AsyncExchange` for asynchronous ones.

`standalone.py` is the whole of the first, in one file that needs the standard library only, so that
it can be copied into an ERP; `AsyncExchange` calls it in threads.
"""

from postroad.exchange.client import standalone
from postroad.exchange.client.async_client import AsyncExchange, AsyncProcess
from postroad.exchange.client.standalone import *  # noqa: F403 - its public names are the client's

__all__ = ["AsyncExchange", "AsyncProcess"]
__all__ += standalone.__all__
