"""Collect the C text of a library: the runtime and each function with all that it calls, once."""

from __future__ import annotations

import ast
from importlib.resources import files

from binlogtool.formats.layouts import Kernel
from binlogtool.schema import identity
from binlogtool.schema.c_emitter import Emitter
from binlogtool.schema.kernel_source import KernelTexts
from binlogtool.schema.signatures import KernelError


class Unit:
    """Collects functions; `write_text` returns what a C compiler takes."""

    def __init__(self) -> None:
        self._emitter = Emitter()
        self._texts = KernelTexts(identity.kernel_name)
        self._parts: list[str] = []
        self.symbols: set[str] = set()

    def kernel(self, function: Kernel) -> None:
        """Add a kernel and export it."""
        name = self._kernel(function)
        self._export(name, f"entry_{name}", len(self._texts.signatures[name].passed))

    def generated(self, symbol: str, text: str, kernels: identity.KernelNames) -> None:
        """Add a generated function and export it, after the constant tables and the functions that it calls.

        The names of those that it calls have the hash of their text, so each is emitted once.
        """
        if symbol in self.symbols:
            return
        for function in kernels.functions.values():
            self._kernel(function)
        tables: dict[str, str] = {}
        *before, last = ast.parse(text).body
        for node in before:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._table(node.targets[0].id, symbol, ast.literal_eval(node.value), tables)
            elif isinstance(node, ast.FunctionDef) and node.name not in self._emitter.known:
                self._parts.append(self._emitter.function(node, node.name, tables))
        assert isinstance(last, ast.FunctionDef)
        self._parts.append(self._emitter.function(last, f"own_{symbol}", tables))
        self._export(f"own_{symbol}", symbol, len(last.args.args))

    def _table(self, name: str, symbol: str, numbers: list[int], tables: dict[str, str]) -> None:
        if name in tables:  # two called functions share it
            return
        tables[name] = f"{name}_{symbol}"
        listed = ", ".join(map(str, numbers)) or "0"
        self._parts.append(f"static const int64_t {tables[name]}[] = {{{listed}}};\n")

    def text(self) -> str:
        """Return the whole C text."""
        runtime = files("binlogtool.schema").joinpath("runtime.c").read_text(encoding="utf-8")
        return "\n".join([runtime, *self._parts])

    def _kernel(self, function: Kernel) -> str:
        """Emit a kernel after those that it calls; return its name.

        Raises:
            KernelError: the kernel or one that it calls has no compiled form.
        """
        name = self._texts.add(function)
        native = function.__dict__.get("kernel_native")
        if name not in self._emitter.known and native:
            self._parts.append(self._emitter.given(name, native, len(self._texts.signatures[name].passed)))
        elif name not in self._emitter.known:
            for used in function.__dict__["kernel_uses"]:
                if used is not function:
                    self._kernel(used)
            self._parts.append(self._emitter.function(self._texts.trees[name], name))
            declared, returned = self._texts.signatures[name].results, self._emitter.known[name].arity
            if declared != returned:
                title = f"{function.__module__}.{function.__qualname__}"
                raise KernelError(f"{title} returns {returned} values and declares {declared}")
        return name

    def _export(self, name: str, symbol: str, parameters: int) -> None:
        if symbol not in self.symbols:
            self.symbols.add(symbol)
            self._parts.append(self._emitter.entry(name, symbol, parameters))
