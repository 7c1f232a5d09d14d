"""The suites of `python -m minidynamo.bench --suite NAME`, one per file; importing a file registers its suite."""
from . import capture, compile_time, cpu_models, overhead, smoke  # noqa: F401
from .common import SUITES, format_row, machine, measure  # noqa: F401
