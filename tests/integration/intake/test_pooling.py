"""The journal of the intake works behind PgBouncer in transaction mode."""

from __future__ import annotations

from pathlib import Path

from postroad.intake.context import IntakeContext
from postroad.settings.intake import IntakeSettings
from postroad.vault import Vault


def test_steps_pass_the_pooler(
    pooled: str, vault: Vault, intake_settings: IntakeSettings, tmp_path: Path
) -> None:
    context = IntakeContext(pooled, intake_settings, vault, tmp_path, is_pooled=True)

    async def steps(engine):
        # Often enough for a driver that prepares statements to have begun with it.
        return [await engine.journal.select("due_servers") for _ in range(20)]

    try:
        assert context.run(steps) == [[]] * 20
    finally:
        context.close()
