"""Only a list of fixture plugins."""

pytest_plugins = [
    "tests.fixtures.postgres",
    "tests.fixtures.exchange_server",
    "tests.fixtures.firebird",
    "tests.fixtures.smtp",
    "tests.fixtures.webhook",
]
