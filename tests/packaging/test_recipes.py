"""The recipes in packaging/ name commands, settings and paths that exist, and are hardened."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from postroad.cli.main import cli
from postroad.cli.parts import find_part
from postroad.settings import Settings
from postroad.settings_sources import load
from postroad.vault import open_vault

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
CONTAINERFILE = PACKAGING / "container" / "Containerfile"
COMPOSE = yaml.safe_load((PACKAGING / "container" / "compose.yaml").read_text(encoding="utf-8"))
KUBERNETES = yaml.safe_load((PACKAGING / "kubernetes" / "postroad.yaml").read_text("utf-8"))[
    "items"
]
Step = tuple[str, str]


def steps() -> list[Step]:
    """Return the instructions of the Containerfile."""
    lines = CONTAINERFILE.read_text(encoding="utf-8").splitlines()
    found = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(name, value) for name, value in found]


def values(name: str) -> list[str]:
    return [value for step, value in steps() if step == name]


def pods() -> list[dict[str, Any]]:
    found = [
        item["spec"]["template"]["spec"]
        for item in KUBERNETES
        if "template" in item.get("spec", ())
    ]
    assert len(found) == 4
    return found


def commands() -> Iterator[list[str]]:
    """Return the arguments of `postroad` in every recipe."""
    yield json.loads(values("CMD")[0])
    for service in COMPOSE["services"].values():
        if service["image"] == "postroad":
            yield service["command"]
    for pod in pods():
        for container in pod["containers"]:
            yield container["args"]


def environment() -> Iterator[str]:
    """Return the names of settings in every recipe."""
    yield from (value.partition("=")[0] for value in values("ENV"))
    for service in COMPOSE["services"].values():
        yield from service["environment"]
    for item in KUBERNETES:
        if item["kind"] == "ConfigMap":
            yield from item["data"]


def test_every_command_of_a_recipe_exists_and_takes_its_arguments() -> None:
    found = list(commands())
    assert len(found) == 7
    for arguments in found:
        command: click.Command = cli
        rest = [str(each) for each in arguments]
        with click.Context(cli) as context:
            while isinstance(command, click.Group):
                _, child, rest = command.resolve_command(context, rest)
                assert child is not None
                command = child
        # Raises for an option or an argument that the command does not have.
        parsed = command.make_context(command.name, rest)
        if command.name == "serve":
            assert find_part(parsed.params["name"]) is not None


def test_every_setting_of_a_recipe_exists() -> None:
    names = {name for name in environment() if name.startswith("POSTROAD_")}
    assert len(names) == 6
    for name in names:
        model: Any = Settings
        for part in name.removeprefix("POSTROAD_").lower().split("__"):
            assert part in model.model_fields, name
            model = model.model_fields[part].annotation


def test_the_pods_decrypt_with_the_key_that_the_header_creates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (PACKAGING / "kubernetes" / "postroad.yaml").read_text(encoding="utf-8")
    [command] = re.findall(r"--from-literal=vault-keys=(\"\$\(.+\)\")$", text, re.MULTILINE)
    done = subprocess.run(
        ["sh", "-c", f"printf %s {command}"], capture_output=True, text=True, check=True
    )
    file = tmp_path / "vault-keys"
    file.write_text(done.stdout, encoding="utf-8")
    [config] = [item["data"] for item in KUBERNETES if item["kind"] == "ConfigMap"]
    place = "file:/run/secrets/postroad/vault-keys"
    assert config["POSTROAD_VAULT__KEYS"] == place
    monkeypatch.setenv("POSTROAD_VAULT__KEYS", f"file:{file}")

    def no_folder() -> Path:
        raise AssertionError("the key is in the secret")

    one, other = (open_vault(load().settings.vault, no_folder) for _pod in range(2))
    assert other.open(one.seal("secret")) == "secret"


def test_the_files_that_the_image_copies_exist() -> None:
    copied = [shlex.split(value)[:-1] for value in values("COPY") if "--from" not in value]
    assert [name for names in copied for name in names if not (ROOT / name).exists()] == []


def test_the_image_runs_as_the_user_that_it_creates() -> None:
    [user] = values("USER")
    [created] = [value for value in values("RUN") if "useradd" in value]
    assert created.startswith("useradd --system --uid 10001")
    assert f" {user} " in created
    [volume] = values("VOLUME")
    assert f"POSTROAD_DATA_FOLDER={volume}" in values("ENV")
    for pod in pods():
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["runAsNonRoot"]


@pytest.mark.parametrize("service", ["install", "postroad"])
def test_a_service_of_compose_has_a_read_only_root_and_no_capabilities(service: str) -> None:
    found = COMPOSE["services"][service]
    assert found["read_only"]
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert set(found["secrets"]) <= set(COMPOSE["secrets"])


def test_a_pod_has_a_read_only_root_and_no_capabilities() -> None:
    for pod in pods():
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_probes_ask_paths_that_the_web_service_has() -> None:
    source = (ROOT / "src/postroad/console/application.py").read_text(encoding="utf-8")
    served = set(re.findall(r'@app\.get\("(/\w+)"', source))
    asked = {
        probe["httpGet"]["path"]
        for pod in pods()
        for container in pod["containers"]
        for name, probe in container.items()
        if name.endswith("Probe")
    }
    checked = (PACKAGING / "container" / "healthcheck.py").read_text(encoding="utf-8")
    assert asked == {"/healthz", "/readyz"} <= served
    assert "/readyz" in checked
