"""The exchange's clients: `Exchange` for programs that block, `AsyncExchange` for the others.

`standalone.py` is the whole of the first, in one file that needs the standard library only, so that
it can be copied into an ERP; `AsyncExchange` carries out the same steps.
"""

from postroad.exchange.client.async_client import AsyncExchange, AsyncProcess
from postroad.exchange.client.standalone import (
    ChecksumMismatch,
    ConnectionBusy,
    ConnectionUnsupported,
    DatabaseRestored,
    Exchange,
    ExchangeClientError,
    File,
    NotAnswered,
    OutcomeUnknown,
    Process,
    ProcessCancelled,
    Refused,
    Reply,
    Settled,
    TransactionEnded,
    Work,
)

__all__ = [
    "AsyncExchange",
    "AsyncProcess",
    "ChecksumMismatch",
    "ConnectionBusy",
    "ConnectionUnsupported",
    "DatabaseRestored",
    "Exchange",
    "ExchangeClientError",
    "File",
    "NotAnswered",
    "OutcomeUnknown",
    "Process",
    "ProcessCancelled",
    "Refused",
    "Reply",
    "Settled",
    "TransactionEnded",
    "Work",
]
