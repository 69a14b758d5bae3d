"""Collect the C text of a library: the runtime and each function with all that it calls, once."""

from __future__ import annotations

import ast
from importlib.resources import files

from binlogtool.formats.layouts import Kernel
from binlogtool.schema import identity
from binlogtool.schema.c_emitter import CEmitter
from binlogtool.schema.kernel_source import KernelSources
from binlogtool.schema.signatures import KernelError


class CLibrarySource:
    """Collects functions; `write_text` returns what a C compiler takes."""

    def __init__(self) -> None:
        self._emitter = CEmitter()
        self._texts = KernelSources(identity.make_kernel_name)
        self._parts: list[str] = []
        self.symbols: set[str] = set()

    def add_kernel(self, function: Kernel) -> None:
        """Add a kernel and export it."""
        name = self._emit_kernel(function)
        self._emit_export(name, f"entry_{name}", len(self._texts.signatures[name].passed))

    def add_generated(self, symbol: str, text: str, kernels: identity.KernelNames) -> None:
        """Add a generated function and export it, after the constant tables and the functions that it calls.

        The names of those that it calls have the hash of their text, so each is emitted once.
        """
        if symbol in self.symbols:
            return
        for function in kernels.functions.values():
            self._emit_kernel(function)
        tables: dict[str, str] = {}
        *prelude, main_function = ast.parse(text).body
        for node in prelude:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._add_table(node.targets[0].id, symbol, ast.literal_eval(node.value), tables)
            elif isinstance(node, ast.FunctionDef) and node.name not in self._emitter.emitted:
                self._parts.append(self._emitter.emit_function(node, node.name, tables))
        assert isinstance(main_function, ast.FunctionDef)
        self._parts.append(self._emitter.emit_function(main_function, f"own_{symbol}", tables))
        self._emit_export(f"own_{symbol}", symbol, len(main_function.args.args))

    def _add_table(self, name: str, symbol: str, numbers: list[int], tables: dict[str, str]) -> None:
        if name in tables:  # two called functions share it
            return
        tables[name] = f"{name}_{symbol}"
        elements = ", ".join(map(str, numbers)) or "0"
        self._parts.append(f"static const int64_t {tables[name]}[] = {{{elements}}};\n")

    def write_text(self) -> str:
        """Return the whole C text."""
        runtime = files("binlogtool.schema").joinpath("runtime.c").read_text(encoding="utf-8")
        return "\n".join([runtime, *self._parts])

    def _emit_kernel(self, function: Kernel) -> str:
        """Emit a kernel after those that it calls; return its name.

        Raises:
            KernelError: the kernel or one that it calls has no compiled form.
        """
        name = self._texts.add(function)
        native = function.__dict__.get("kernel_native")
        if name not in self._emitter.emitted and native:
            self._parts.append(self._emitter.emit_runtime_alias(name, native, len(self._texts.signatures[name].passed)))
        elif name not in self._emitter.emitted:
            for used in function.__dict__["kernel_uses"]:
                if used is not function:
                    self._emit_kernel(used)
            self._parts.append(self._emitter.emit_function(self._texts.trees[name], name))
            declared, returned = self._texts.signatures[name].results, self._emitter.emitted[name].arity
            if declared != returned:
                title = f"{function.__module__}.{function.__qualname__}"
                raise KernelError(f"{title} returns {returned} values and declares {declared}")
        return name

    def _emit_export(self, name: str, symbol: str, parameters: int) -> None:
        if symbol not in self.symbols:
            self.symbols.add(symbol)
            self._parts.append(self._emitter.emit_export(name, symbol, parameters))
