from __future__ import annotations

from pathlib import Path

from postroad.intake import tasks
from postroad.intake.celery_worker import create_app
from postroad.intake.context import IntakeContext
from postroad.settings.intake import IntakeSettings
from postroad.vault import Vault, new_key


def test_tasks_are_registered_by_the_names_of_the_original_design(tmp_path: Path) -> None:
    context = IntakeContext("dbname=unused", IntakeSettings(), Vault([new_key()]), tmp_path)
    app = create_app(context)
    for name in tasks.__all__:
        assert app.tasks[name].name == f"postroad.intake.tasks.{name}"
