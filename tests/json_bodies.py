"""Generated functions that become C, run as Python: a byte that is read or written outside of its array is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from binlogtool.format_api.schema_fields import BodySchema
from binlogtool.schema.backends import compile_generated_function
from binlogtool.schema.json_body_codegen import generate_json_body
from binlogtool.schema.schema_operations import U64


class Guarded(bytearray):
    """Bytes whose elements are not counted from the end."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and index < 0:
            raise IndexError(index)
        return super().__getitem__(index)


@cache
def json_writer(shown: BodySchema) -> Any:
    """The function of `schema.json_body_codegen`."""
    written = compile_generated_function(lambda kernels: _rename_function(*generate_json_body(shown, kernels)), "write")
    space = written.__globals__
    for table in [one for one in space if one.startswith("TABLE_")]:
        space[table] = b"".join((word & U64).to_bytes(8, "little") for word in space[table])
    return written


def _rename_function(name: str, text: str) -> str:
    return text.replace(name, "write")


def json_of(shown: BodySchema, body: bytes, *given: int, room: int = 1 << 14) -> bytes | int:
    """Return what it writes of a body into `room` bytes, or the negative reason why it does not."""
    out = Guarded(room)
    end: int = json_writer(shown)(Guarded(body), 0, len(body), *given, out, 0, room)
    return end if end < 0 else bytes(out[:end])
