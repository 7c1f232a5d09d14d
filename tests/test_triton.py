"""Triton kernels, in Triton's interpreter, on the workloads of the C++ kernels (`test_cpp`) and a few of their own."""
import os
import types

import pytest

pytest.importorskip("triton", reason="triton is not installed (it has wheels for Linux only)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1 (tests/conftest.py sets it)", allow_module_level=True)

import miniinductor.config as config
import test_cpp
from test_cpp import fixed_seed  # noqa: F401

NOT_HERE = {"test_the_writer_defines_every_op", "test_integer_division_by_zero_raises", "test_constants_keep_their_value",
            "test_lowest_integer_by_minus_one_does_not_trap", "test_accuracy_in_ulp_against_float64"}


@pytest.fixture(autouse=True)
def through_triton(request):
    # one test counts the kernels of a softmax over few, long rows
    with config.patch(cpu_backend="triton", split_reductions="test_softmax[" not in request.node.name):
        yield


for _name, _function in vars(test_cpp).items():
    if _name.startswith("test_") and isinstance(_function, types.FunctionType) and _name not in NOT_HERE:
        globals()[_name] = _function
