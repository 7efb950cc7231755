"""Health check of the container: the web service responds and reaches its database."""

import os
import sys
import urllib.request

port = os.environ.get("POSTROAD_HTTP__PORT", "8080")
try:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=4) as answer:
        sys.stdout.write(answer.read().decode())
except OSError as failure:
    sys.exit(f"not ready: {failure}")
