"""Templates of kernels: one text for several sinks, as Python and compiled, without a call by address."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pytest

from binlogtool.format_api.schema_fields import MutableUInt8s, UInt8s, bind_sink, kernel, kernel_template
from binlogtool.schema.c_codegen import CLibrarySource, KernelError
from tests.compiling import CompilingBackend


class DigitSink(Protocol):
    """Takes one digit at a time."""

    def write(self, digit: int, at: int) -> int: ...


class TextOfDigits(NamedTuple):
    """Writes each digit as a character."""

    out: MutableUInt8s

    @kernel()
    def write(self, digit: int, at: int) -> int:
        self.out[at] = 48 + digit
        return at + 1


class MarkedText(TextOfDigits):
    """The same, each after a character; calls the method of its base."""

    @kernel(TextOfDigits.write)
    def write(self, digit: int, at: int) -> int:
        self.out[at] = 35
        return TextOfDigits.write(self, digit, at + 1)


class WeightedSum(NamedTuple):
    """Sums up the digits."""

    weight: int

    @kernel()
    def write(self, digit: int, at: int) -> int:
        return at + digit * self.weight


class PlainMethod(NamedTuple):
    """Its method is no kernel."""

    weight: int

    def write(self, digit: int, at: int) -> int:
        return digit + at


@kernel_template()
def write_pair(number: int, sink: DigitSink, at: int) -> int:
    """Write two digits."""
    return sink.write(number % 10, sink.write(number // 10, at))


@kernel_template(write_pair)
def write_pairs(buf: UInt8s, size: int, sink: DigitSink, at: int) -> int:
    """Write two digits of each byte."""
    for i in range(size):
        at = write_pair(buf[i], sink, at)
    return at


@kernel_template()
def write_unlisted(number: int, sink: DigitSink, at: int) -> int:
    """Calls a template that it does not list."""
    return write_pair(number, sink, at)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_template_does_what_each_sink_does(compiled: bool) -> None:
    kernels = [bind_sink(write_pairs, one) for one in (TextOfDigits, MarkedText, WeightedSum)]
    text, marked, total = map(CompilingBackend().compile_kernel, kernels) if compiled else kernels
    plain, hashes = bytearray(4), bytearray(8)
    assert text(b"\x0c\x22", 2, TextOfDigits(plain), 0) == 4
    assert marked(b"\x0c\x22", 2, MarkedText(hashes), 0) == 8
    assert (plain, hashes) == (b"1234", b"#1#2#3#4")
    assert total(b"\x0c\x22", 2, WeightedSum(2), 100) == 120


def test_a_kernel_of_a_template_is_made_once_and_names_its_sink() -> None:
    made = bind_sink(write_pair, WeightedSum)
    assert made is bind_sink(write_pair, WeightedSum)
    assert made.__name__ == "write_pair_WeightedSum"
    assert made(12, WeightedSum(1), 0) == write_pair(12, WeightedSum(1), 0) == 3


def test_the_compiled_text_calls_methods_by_name() -> None:
    unit = CLibrarySource()
    unit.add_kernel(bind_sink(write_pairs, WeightedSum))
    text = unit.write_text()[len(CLibrarySource().write_text()) :]
    assert "write_pair_WeightedSum" in text
    assert "(*" not in text


@pytest.mark.parametrize("kernel_", [bind_sink(write_pair, PlainMethod), bind_sink(write_unlisted, WeightedSum)])
def test_what_a_template_may_not_call_is_an_error_of_the_build(kernel_: object) -> None:
    with pytest.raises(KernelError):
        CLibrarySource().add_kernel(kernel_)  # type: ignore[arg-type]
