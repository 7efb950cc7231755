"""The image, built from the Containerfile by Buildah and run: `make container`.

Without a registry the base is a Debian that debootstrap makes, in the user's cache folder. The
processes run in a chroot, as the image's user; a read-only root is checked by what has changed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from postroad.testing import wait_until
from tests.fixtures.holding_proxy import holding_proxy

pytestmark = [
    pytest.mark.skipif(not os.environ.get("POSTROAD_CONTAINER"), reason="minutes: make container"),
    pytest.mark.timeout(1800),
]
ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "postroad" / "container"
BASE = "localhost/postroad-base"
IMAGE = "localhost/postroad-tested"
# What an image that is built elsewhere finds in its own base: where pip finds packages.
BUILD_FILES = ("/etc/pip.conf", "/etc/ssl/certs")


def run(*command: object) -> str:
    done = subprocess.run(
        [str(each) for each in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.strip()


def buildah(*arguments: object) -> str:
    return run("buildah", "--root", CACHE / "storage", "--storage-driver", "vfs", *arguments)


@pytest.fixture(scope="module")
def image() -> str:
    if shutil.which("buildah") is None or shutil.which("debootstrap") is None:
        pytest.fail("needs buildah and debootstrap; install them from the system's packages")
    if BASE not in buildah("images"):
        base = CACHE / "base"
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", base)
        container = buildah("from", "scratch")
        buildah("add", "--quiet", container, base, "/")
        buildah("commit", "--quiet", container, BASE)
        buildah("rm", container)
        shutil.rmtree(base)
    volumes = [f"--volume={name}:{name}:ro" for name in BUILD_FILES if Path(name).exists()]
    options = ["--isolation=chroot", "--format=docker", f"--build-arg=BASE={BASE}", *volumes]
    buildah("build", *options, "-f", "packaging/container/Containerfile", "-t", IMAGE, ".")
    return IMAGE


@pytest.fixture
def container(image: str) -> Iterator[str]:
    name = buildah("from", image)
    yield name
    buildah("rm", name)


@pytest.fixture
def url(empty_database: str) -> Iterator[str]:
    """Return the address of a database over TCP; the container has no access to its socket."""
    part = conninfo_to_dict(empty_database)
    with holding_proxy(f"{part['host']}/.s.PGSQL.{part['port']}") as proxy:
        yield f"postgresql://{part['user']}@127.0.0.1:{proxy.port}/{part['dbname']}"


def started(container: str, *command: str, **environment: str) -> subprocess.Popen[str]:
    """Start a command in the container, as its user and with its environment."""
    more = [f"--env={name}={value}" for name, value in environment.items()]
    options = ["--root", str(CACHE / "storage"), "--storage-driver", "vfs", "run"]
    return subprocess.Popen(
        ["buildah", *options, "--isolation=chroot", *more, container, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def configuration(container: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(buildah("inspect", container))["Docker"]["config"]
    return found


def test_the_image_installs_serves_and_stops(container: str, url: str) -> None:
    config = configuration(container)
    entry, command = config["Entrypoint"], config["Cmd"]
    settings = {"POSTROAD_DATABASE_URL": url, "POSTROAD_HTTP__PORT": "18080"}
    root = Path(buildah("mount", container))
    begin = time.time()

    def complete(*arguments: str) -> str:
        process = started(container, *arguments, **settings)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        return output

    assert complete("id", "-u").strip() == "10001"
    complete(*entry, "db", "install")
    assert "schema mbus" in complete(*entry, "doctor")

    server = started(container, *entry, *command, **settings)
    check = config["Healthcheck"]["Test"][1:]
    try:

        def is_ready() -> bool:
            assert server.poll() is None, server.communicate()[0][-3000:]
            process = started(container, *check, **settings)
            output, _ = process.communicate(timeout=60)
            return process.returncode == 0 and output.strip() == "ready"

        wait_until(is_ready, what="the health check of the image", timeout_seconds=120)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)
    written = [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= begin
    ]
    outside = ("var/lib/postroad/", "tmp/", "etc/hosts", "etc/resolv.conf", "run/")
    assert [name for name in written if not name.startswith(outside)] == []
