"""The suites of `python -m benchmarks --suite NAME`, one per file; importing a file registers
its suite."""

import importlib
import pkgutil

from .common import SUITES, format_row, machine, measure  # noqa: F401

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
