"""--suite smoke: every workload and model once: ratios, compile times, per-call overhead."""

from collections.abc import Iterator

from .common import Options, Row, measure_all, rows, suite


@suite("smoke")
def smoke(options: Options, result: Row) -> Iterator[Row]:
    """Every workload and model once: ratios, compile times, overhead of a call."""
    return measure_all(rows(options), options)
