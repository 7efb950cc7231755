"""The settings of the Django project of the tests; the database is named by the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from psycopg.conninfo import conninfo_to_dict


def database_of(dsn: str) -> dict[str, Any]:
    part = conninfo_to_dict(dsn)
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    values = {name: part[key] for name, key in names.items()}
    return {"ENGINE": "django.db.backends.postgresql", **values}


def configure(dsn: str, setenv: Callable[[str, str], None] = os.environ.__setitem__) -> None:
    """Let Django use this database; a process has one set of settings and many tests.

    Tests set the variables for their own time only: Celery looks for Django by them.
    """
    setenv("DJANGO_SETTINGS_MODULE", __name__)
    setenv("DJANGO_TEST_DSN", dsn)
    import django
    from django.db import connection

    django.setup()
    connection.close()
    connection.settings_dict.update(database_of(dsn))


DSN = os.environ.get("DJANGO_TEST_DSN", "dbname=none user=none host=none port=1")
DATABASES = {"default": database_of(DSN)}
INSTALLED_APPS = ["postroad.integrations.django"]
TASKS = {
    "default": {
        "BACKEND": "postroad.integrations.django.tasks.PostroadBackend",
        "QUEUES": ["default", "mail"],
    }
}
USE_TZ = True
