"""The public API as text: signature and first line of the docstring of each public name, and of its public members."""

from __future__ import annotations

import inspect
from collections.abc import Iterator


def api_text() -> str:
    """Describe every name of `binlogtool.__all__`."""
    import binlogtool

    return "\n".join(line for name in sorted(binlogtool.__all__) for line in _describe(name, getattr(binlogtool, name)))


def _describe(name: str, value: object) -> Iterator[str]:
    yield f"{name}{_signature(value)}: {_first_line(value)}"
    if inspect.isclass(value):
        for member, inner in sorted(vars(value).items()):
            if not member.startswith("_"):
                yield f"  {name}.{member}{_signature(inner)}: {_first_line(inner)}"


def _signature(value: object) -> str:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    try:
        return str(inspect.signature(value)) if callable(value) else ""
    except (TypeError, ValueError):
        return ""


def _first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0] if callable(value) or isinstance(value, property) else ""


if __name__ == "__main__":
    print(api_text())
