"""--suite smoke: every workload and model once: ratios, compile times, per-call overhead."""

from .common import measure_all, rows, suite


@suite("smoke")
def smoke(options, result):
    """Every workload and model once."""
    return measure_all(rows(options), options)
