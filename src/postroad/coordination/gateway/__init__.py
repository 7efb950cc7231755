"""The Gateway: commands to the Writer, queries to the Reader, events from the Coordinator.

Routes are generated from the entities that the Writer tracks, under `/coordination/v1`. A command
answers with the id of its event; a query with `?after=<that id>` sees what the command did.
"""

from postroad.coordination.gateway.service import Gateway

__all__ = ["Gateway"]
