"""Small pieces of bytecode that are right on every CPython version.

In:   names, constants, pieces.  Out: lists of `Instruction`; pieces are joined with `+`.

    >>> piece = call(load_global("print"), load_fast("x")) + pop_top()

Mirrors torch/_dynamo/codegen.py's create_* helpers.
"""

from .assembler import Instruction, VERSION


def _simple(op):
    return lambda arg=None: [Instruction(op, arg)]


for _op in """LOAD_CONST LOAD_FAST STORE_FAST DELETE_FAST LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_GLOBAL STORE_GLOBAL DELETE_GLOBAL
              LOAD_ATTR STORE_ATTR DELETE_ATTR BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_SLICE
              UNPACK_SEQUENCE PUSH_NULL POP_TOP COPY SWAP JUMP_FORWARD RETURN_VALUE""".split():
    globals()[_op.lower()] = _simple(
        _op
    )  # load_const(1) is [Instruction("LOAD_CONST", 1)]; COPY and SWAP count from 1 at the top
load_cell = _simple("LOAD_CLOSURE" if VERSION < (3, 13) else "LOAD_FAST")  # the cell itself


def call(function, *arguments):
    """Call `function` with `arguments`, each a piece that pushes one value."""
    values = [ins for piece in arguments for ins in piece]
    before, after = (push_null() + function, []) if VERSION < (3, 13) else (function, push_null())
    return before + after + values + call_n(len(arguments))


def call_n(count):
    """Call what lies below `count` positional arguments (with its NULL, in this version's
    order)."""
    return ([Instruction("PRECALL", count)] if VERSION < (3, 12) else []) + [
        Instruction("CALL", count)
    ]


def make_function(code, cells):
    """Push a function of `code` that closes over the cells of the variables named in `cells`."""
    closure = (
        [ins for name in cells for ins in load_cell(name)] + build_tuple(len(cells))
        if cells
        else []
    )
    if VERSION >= (3, 13):
        return (
            closure
            + load_const(code)
            + [Instruction("MAKE_FUNCTION")]
            + ([Instruction("SET_FUNCTION_ATTRIBUTE", 8)] if cells else [])
        )
    return closure + load_const(code) + [Instruction("MAKE_FUNCTION", 8 if cells else 0)]


def prologue(free_count):
    """What must stand first in a function with `free_count` free variables."""
    return ([Instruction("COPY_FREE_VARS", free_count)] if free_count else []) + [
        Instruction("RESUME", 0)
    ]
