"""Only a list of fixture plugins."""

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.smtp", "tests.fixtures.webhook"]
