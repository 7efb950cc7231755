"""The graph of a saga, drawn as text for a terminal and as Mermaid for a page. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from postroad.bus.saga_calls import SagaStep

SYMBOLS = {
    "waiting": "·",
    "ready": "○",
    "done": "✔",
    "failed": "✘",
    "skipped": "-",
    "compensating": "↺",
    "compensated": "↩",
    "parked": "!",
}
_COLOURS = {
    "ready": "fill:#fff3bf,stroke:#b08800",
    "done": "fill:#d3f9d8,stroke:#2b8a3e",
    "failed": "fill:#ffe3e3,stroke:#c92a2a",
    "parked": "fill:#ffc9c9,stroke:#c92a2a,stroke-width:3px",
    "compensating": "fill:#d0ebff,stroke:#1864ab",
    "compensated": "fill:#e7f5ff,stroke:#1864ab,stroke-dasharray:4",
    "skipped": "fill:#f1f3f5,stroke:#868e96,stroke-dasharray:4",
}


def text(steps: Sequence[SagaStep]) -> list[str]:
    """Draw one saga as a tree: each step is below the last of its predecessors."""
    lines: list[str] = []
    parents: dict[str, str | None] = {}
    for step in steps:
        before = [each for each in steps if each.step in step.after]
        last = max(before, key=lambda each: each.position, default=None)
        parents[step.step] = last.step if last is not None else None

    def draw(step: SagaStep, stem: str, branch: str, below: str) -> None:
        lines.append(f"{stem}{branch}{_described(step)}")
        children = [each for each in steps if parents[each.step] == step.step]
        for child in children:
            is_last = child is children[-1]
            draw(child, stem + below, "└─ " if is_last else "├─ ", "   " if is_last else "│  ")

    for step in steps:
        if parents[step.step] is None:
            draw(step, "", "", "")
    return lines


def mermaid(steps: Sequence[SagaStep]) -> str:
    """Draw one saga as a Mermaid flowchart, with its compensations as dotted arrows back."""
    # Numbered, because the name of a step may be a keyword of Mermaid or equal a compensation's.
    nodes = {step.step: f"step{number}" for number, step in enumerate(steps)}
    lines = ["flowchart LR"]
    for step in steps:
        left, right = ("{{", "}}") if step.is_pivot else ("[", "]")
        label = f"{step.step}<br/>{step.step_state}"
        lines.append(f'  {nodes[step.step]}{left}"{label}"{right}:::{step.step_state}')
    for step in steps:
        node = nodes[step.step]
        lines += [f"  {nodes[before]} --> {node}" for before in step.after]
        if step.undo_queue is not None:
            lines.append(f'  {node} -. undo .-> undo{node}["{step.undo_queue}"]')
    used = {step.step_state for step in steps}
    lines += [f"  classDef {state} {style}" for state, style in _COLOURS.items() if state in used]
    return "\n".join(lines)


def _described(step: SagaStep) -> str:
    parts = [f"{SYMBOLS[step.step_state]} {step.step} {step.step_state}"]
    if step.is_pivot:
        parts.append("pivot")
    if len(step.after) > 1:
        parts.append(f"after {', '.join(step.after)}")
    for kind, attempts in (("", step.attempts), ("undo ", step.undo_attempts)):
        if attempts > 1:
            parts.append(f"{attempts} {kind}attempts")
    error = step.undo_error or step.step_error
    return "  ".join(parts) + (f"  ({error})" if error else "")
