"""The web API of the intake: servers and files, behind a bearer token."""

from postroad.intake.api.application import create_api

__all__ = ["create_api"]
