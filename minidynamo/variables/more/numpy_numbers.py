"""Numbers of NumPy's types: constants, as Python's are.

In:   `numpy.float32(0.5)` from outside, or of a call.
Out:  a constant; an argument of torch's functions as Python's number.

    >>> argument_of(numpy.int64(3))
    3

Without NumPy, which torch does not need, there are none.
"""

from typing import Any

from ...exceptions import Break
from ...symbolic_eval.calls import CONSTANT_CLASSES
from ..constant import ARGUMENTS, CONSTANT_TYPES, wrap_constant
from ..registry import BY_VALUE

try:
    import numpy

    kinds = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
    NUMBERS = {getattr(numpy, name) for name in kinds.split()}
    NUMPY = NUMBERS | {numpy.bool_}
except ImportError:  # torch works without it
    NUMBERS = NUMPY = set()


def refused(value: Any) -> Any:
    """A bool of NumPy's is no bool to torch."""
    raise Break("argument", f"NumPy's {type(value).__name__} as an argument of torch")


CONSTANT_TYPES.update(NUMPY)
CONSTANT_CLASSES.update(NUMPY)
BY_VALUE.rule(*NUMPY)(wrap_constant)
ARGUMENTS.update(dict.fromkeys(NUMPY, refused))
ARGUMENTS.update(dict.fromkeys(NUMBERS, lambda value: value.item()))
