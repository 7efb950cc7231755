"""`make release` writes packages, a bill of materials and a list of licences that are complete."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import postroad

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
DEVELOPMENT = {"dev"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    done = subprocess.run(
        [ROOT / "tools" / "release.sh", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required() -> set[str]:
    """Return the packages that some extra for users needs on this interpreter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lists = [each for name, each in extras.items() if name not in DEVELOPMENT]
    wanted = [Requirement(one) for each in [project["dependencies"], *lists] for one in each]
    return {normalized(one.name) for one in wanted if one.marker is None or one.marker.evaluate()}


def components(release: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((release / "postroad.cdx.json").read_text(encoding="utf-8"))
    assert document["bomFormat"] == "CycloneDX"
    return {normalized(each["name"]): each for each in document["components"]}


def licences(release: Path) -> dict[str, tuple[str, str]]:
    """Return version and licence of each package of the list."""
    lines = (release / "licences.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["Name", "Version", "License", "URL"]
    return {normalized(name): (version, licence) for name, version, licence, _url in rows[2:]}


def test_a_release_consists_of_packages_bill_of_materials_and_licences(release: Path) -> None:
    version = postroad.__version__
    assert {file.name for file in release.iterdir()} == {
        f"postroad-{version}-py3-none-any.whl",
        f"postroad-{version}.tar.gz",
        "postroad.cdx.json",
        "licences.md",
    }


def test_the_bill_of_materials_has_every_package_of_every_extra(release: Path) -> None:
    found = components(release)
    assert required() - set(found) == set()
    assert found["postroad"]["version"] == postroad.__version__
    assert {"pytest", "ruff", "mypy"} & set(found) == set()
    # Nothing that differs from one build to the next, such as the folder of the environment.
    assert str(ROOT) not in json.dumps(found)


def test_each_package_has_a_licence_and_the_version_of_the_bill_of_materials(release: Path) -> None:
    found = licences(release)
    bill = {name: each["version"] for name, each in components(release).items()}
    assert {name: version for name, (version, _) in found.items()} == bill
    assert [name for name, (_, licence) in found.items() if licence in ("", "UNKNOWN")] == []
    assert found["postroad"][1].startswith("Apache")
