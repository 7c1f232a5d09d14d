"""The suites of `python -m minidynamo.bench --suite NAME`, one per file; importing a file registers its suite."""
<<<<<<< HEAD
import importlib
import pkgutil

=======
from . import capture, compile_time, cpu_models, overhead, smoke, training  # noqa: F401
>>>>>>> 92c164f (Bench: --suite training (the public list, one step), training-curves, training-speed)
from .common import SUITES, format_row, machine, measure  # noqa: F401

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
