"""Shared by every HTTP service: errors as problem+json, tokens, pages, limits, the server.

A component builds its routes with FastAPI and calls `application.prepare(app)` once; from then on
each error of Postroad, each invalid body and each unavailable database is answered as
`application/problem+json` with the status of its kind.

Names are imported from the modules: a command that needs a token does not load FastAPI.
"""
