"""`__main__.py` of `binlogtool.pyz`: everything is imported out of this one file, extension modules included.

`zipimport` cannot load an extension module, and of compiled code it takes only what stands in a module's place. Here
compiled code lies in `__pycache__`, for each version of Python its own; an extension module is handed to the system as
a file in memory (memfd_create(2)). So nothing is unpacked to a disk, and nothing stays behind.
"""

import importlib.machinery
import importlib.util
import marshal
import os
import sys
import tempfile
import zipimport

ARCHIVE = os.path.dirname(os.path.abspath(__file__)) if __file__.endswith("__main__.py") else os.path.abspath(__file__)
_SUFFIXES = importlib.machinery.EXTENSION_SUFFIXES
_HEAD = 16
"""Bytes before the code in a .pyc file."""


class Importer(zipimport.zipimporter):
    """What imports from this archive, and from it only."""

    def __init__(self, path):
        if not (path + os.sep).startswith(ARCHIVE + os.sep):
            raise zipimport.ZipImportError("another archive")
        super().__init__(path)

    def _at(self, fullname):
        """The place of a module in the archive, without an ending."""
        return self.prefix + fullname.rpartition(".")[2]

    def _data(self, name):
        try:
            return self.get_data(name)
        except OSError:
            return None

    def find_spec(self, fullname, target=None):
        """Extension modules too."""
        for suffix in _SUFFIXES:
            data = self._data(self._at(fullname) + suffix)
            if data is not None:
                path = in_memory(fullname, data)
                loader = importlib.machinery.ExtensionFileLoader(fullname, path)
                return importlib.util.spec_from_loader(fullname, loader, origin=path)
        return super().find_spec(fullname, target)

    def get_filename(self, fullname):
        """Its source, which need not be compiled for that."""
        at = self._at(fullname) + ("/__init__.py" if self.is_package(fullname) else ".py")
        return os.path.join(self.archive, at)

    def get_code(self, fullname):
        """That of this version of Python, where there is some."""
        source = self.get_filename(fullname)
        compiled = importlib.util.cache_from_source(source)
        data = self._data(os.path.relpath(compiled, self.archive)) if sys.pycache_prefix is None else None
        if data is not None and data[:4] == importlib.util.MAGIC_NUMBER:
            return marshal.loads(data[_HEAD:])
        return super().get_code(fullname)


def in_memory(name, data):
    """A path that these bytes can be loaded by; the descriptor stays open, so that no other file gets its number."""
    try:
        descriptor = os.memfd_create(name)
        path = f"/proc/self/fd/{descriptor}"
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.stat(path)
    except (AttributeError, OSError):  # another system, or no /proc: a file that goes with the process's directory
        with tempfile.NamedTemporaryFile(prefix="binlogtool-", suffix=".so", delete=False) as file:
            file.write(data)
        path = file.name
        import atexit

        atexit.register(os.unlink, path)
    return path


sys.path_hooks.insert(0, Importer)
sys.path_importer_cache.clear()

if __name__ == "__main__":
    __file__, __spec__ = ARCHIVE, None  # processes that share the work start with this archive too
    from binlogtool.cli import main

    sys.exit(main())
