"""The dashboard and the alert rules ask for metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml

import postroad.console.metrics

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docs/operate/alert-rules.yml"
# In two minutes a third of the attempts begins to fail, and later the first message waits for too
# long: the budget is used up long before that is an alert as well.
FIRING = """
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'postroad_handling_seconds_count{queue="q", consumer="c", outcome="done"}'
        values: '0+60x120'
      - series: 'postroad_handling_seconds_count{queue="q", consumer="c", outcome="failed"}'
        values: '0x60 0+30x60'
      - series: 'postroad_queue_oldest_age_seconds{queue="q", consumer="c"}'
        values: '0x60 0+60x60'
    alert_rule_test:
      - {eval_time: 59m, alertname: PostroadErrorBudgetBurn, exp_alerts: []}
      - eval_time: 110m
        alertname: PostroadErrorBudgetBurn
        exp_alerts:
          - exp_labels: {queue: q, consumer: c, severity: critical}
            exp_annotations: {summary: "q: 28.99%% of the attempts of c fail"}
      - {eval_time: 68m, alertname: PostroadBacklogAge, exp_alerts: []}
      - eval_time: 75m
        alertname: PostroadBacklogAge
        exp_alerts:
          - exp_labels: {queue: q, consumer: c, severity: warning}
            exp_annotations: {summary: "q: the oldest message has waited 14m 0s for c"}
"""


def absent(expressions: list[str]) -> set[str]:
    """Return the names in expressions that the exporter does not have."""
    told = Path(postroad.console.metrics.__file__).read_text(encoding="utf-8")
    asked = {name for each in expressions for name in re.findall(r"postroad_\w+", each)}
    assert asked
    return {name for name in asked if re.sub("_(bucket|sum|count)$", "", name) not in told}


def test_the_dashboard_asks_only_for_metrics_that_are_told() -> None:
    text = (ROOT / "docs/operate/grafana-dashboard.json").read_text(encoding="utf-8")
    panels = json.loads(text)["panels"]
    assert absent([target["expr"] for panel in panels for target in panel["targets"]]) == set()


def test_the_alert_rules_ask_only_for_metrics_that_are_told() -> None:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    assert absent([rule["expr"] for rule in group["rules"]]) == set()


def test_the_alert_rules_fire_when_the_objective_is_missed(tmp_path: Path) -> None:
    cases = tmp_path / "cases.yml"
    cases.write_text(FIRING % RULES)
    for command in (("check", "rules", RULES), ("test", "rules", cases)):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
