"""The op vocabulary is closed, and every handler speaks all of it."""

import pytest
import sympy
import torch
from backend_helpers import missing_ops
from front_helpers import lower

from miniinductor.ir.handlers import BadGraph, DtypeHandler, PrintHandler
from miniinductor.ir.ops import (
    BINARY,
    COMPARISON,
    OP_NAMES,
    REDUCTIONS,
    UNARY,
    OpsHandler,
    ops,
    set_handler,
)
from miniinductor.runtime.interpreter import InterpreterHandler


@pytest.mark.parametrize(
    "handler", [PrintHandler, DtypeHandler, InterpreterHandler], ids=lambda h: h.__name__
)
def test_each_handler_has_each_op(handler):
    assert missing_ops(handler) == []


def test_a_handler_that_forgets_an_op_is_found():
    class Forgetful(PrintHandler):
        pass

    assert missing_ops(Forgetful) == []

    class Empty(OpsHandler):
        pass

    assert missing_ops(Empty) == list(OP_NAMES)


def test_an_unknown_op_is_no_plausible_call():
    with set_handler(PrintHandler()), pytest.raises(AttributeError):
        ops.softmax("x")


def test_the_families_name_real_ops():
    assert set(UNARY + BINARY + COMPARISON) <= set(OP_NAMES)
    assert len(set(REDUCTIONS)) == len(REDUCTIONS)


def test_handlers_nest():
    outer, inner = PrintHandler(), PrintHandler()
    with set_handler(outer):
        with set_handler(inner):
            ops.constant(1, torch.int64)
        ops.constant(2, torch.int64)
    assert (inner.lines, outer.lines) == (
        ["tmp0 = constant(1, int64)"],
        ["tmp0 = constant(2, int64)"],
    )


def test_the_printer_names_equal_subexpressions_once():
    handler = PrintHandler()
    with set_handler(handler):
        i = sympy.Symbol("i")
        ops.add(ops.load("x", i), ops.load("x", i))
    assert handler.lines == ["tmp0 = load(x, i)", "tmp1 = add(tmp0, tmp0)"]


def test_the_text_of_a_buffer():
    graph, _ = lower(lambda x: torch.exp(x) + 1, [torch.randn(4, 8)])
    text = repr(graph.operations[0]).splitlines()
    assert text[0].startswith("buf0: float32[4, 8] = pointwise i0 < 4, i1 < 8")
    assert [line.strip() for line in text[1:]] == [
        "tmp0 = load(arg0, 8*i0 + i1)",
        "tmp1 = exp(tmp0)",
        "tmp2 = constant(1, float32)",
        "tmp3 = add(tmp1, tmp2)",
        "store(buf0, 8*i0 + i1, tmp3)",
    ]


def test_dtypes_must_agree():
    with set_handler(DtypeHandler(lambda name: torch.float32)):
        x = ops.load("x", 0)
        assert ops.lt(x, x) == torch.bool and ops.exp(x) == torch.float32
        with pytest.raises(BadGraph):
            ops.add(x, ops.constant(1, torch.int64))
        with pytest.raises(BadGraph):
            ops.where(x, x, x)
        with pytest.raises(BadGraph):
            ops.to_dtype(x, torch.int64, torch.float16)
