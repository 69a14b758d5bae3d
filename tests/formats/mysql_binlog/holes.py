"""What a walk of a body left unnamed."""

from __future__ import annotations

from binlogtool.schema.annotated_parse import TraceResult


def holes(traced: TraceResult) -> list[str]:
    """What is not tiled, or has no name of its own."""
    wrong = [str(error) for error in traced.errors]
    for space in traced.spaces:
        reached = space.base
        for row in traced.rows:
            if row.leaf and row.space == space.name:
                if row.start != reached or "unmapped" in row.path:
                    wrong.append(f"{row.path} at {row.start}, expected {reached}")
                reached = row.end
        if reached != space.base + len(space.data):
            wrong.append(f"space {space.name!r} ends at {reached}")
    return wrong
