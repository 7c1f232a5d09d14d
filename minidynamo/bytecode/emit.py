"""Small pieces of bytecode that are right on every CPython version.

In:   names, constants, pieces.  Out: lists of `Instruction`; pieces are joined with `+`.

    >>> piece = call(load_global("print"), load_fast("x")) + pop_top()

Mirrors torch/_dynamo/codegen.py's create_* helpers.
"""

import types
from collections.abc import Callable, Sequence

from .assembler import VERSION, Instruction

Piece = list[Instruction]
CLOSURE = 8  # the part of a function that is made from a tuple of cells: a bit of MAKE_FUNCTION


def _simple(op: str) -> Callable[..., Piece]:
    return lambda arg=None: [Instruction(op, arg)]


# load_const(1) is [Instruction("LOAD_CONST", 1)]; COPY counts from 1 at the top
load_const = _simple("LOAD_CONST")
load_fast = _simple("LOAD_FAST")
store_fast = _simple("STORE_FAST")
delete_fast = _simple("DELETE_FAST")
load_global = _simple("LOAD_GLOBAL")
build_tuple = _simple("BUILD_TUPLE")
push_null = _simple("PUSH_NULL")
pop_top = _simple("POP_TOP")
copy = _simple("COPY")
jump_forward = _simple("JUMP_FORWARD")
return_value = _simple("RETURN_VALUE")
load_cell = _simple("LOAD_CLOSURE" if VERSION < (3, 13) else "LOAD_FAST")  # the cell itself


def callee(function: Piece) -> Piece:
    """Push what is to be called, and the NULL that belongs to it."""
    return push_null() + function if VERSION < (3, 13) else function + push_null()


def call(function: Piece, *arguments: Piece) -> Piece:
    """Call `function` with `arguments`, each a piece that pushes one value."""
    values = [ins for piece in arguments for ins in piece]
    return callee(function) + values + call_n(len(arguments))


def call_n(count: int) -> Piece:
    """Call what lies below `count` positional arguments (with its NULL, in this version's
    order)."""
    if VERSION < (3, 12):
        return [Instruction("PRECALL", count), Instruction("CALL", count)]
    return [Instruction("CALL", count)]


def make_function(code: types.CodeType, cells: Sequence[str]) -> Piece:
    """Push a function of `code` that closes over the cells of the variables named in `cells`."""
    closure = [ins for name in cells for ins in load_cell(name)]
    if cells:
        closure += build_tuple(len(cells))
    if VERSION < (3, 13):
        return closure + load_const(code) + [Instruction("MAKE_FUNCTION", CLOSURE if cells else 0)]
    attribute = [Instruction("SET_FUNCTION_ATTRIBUTE", CLOSURE)] if cells else []
    return closure + load_const(code) + [Instruction("MAKE_FUNCTION")] + attribute


def prologue(free_count: int) -> Piece:
    """What must stand first in a function with `free_count` free variables."""
    cells = [Instruction("COPY_FREE_VARS", free_count)] if free_count else []
    return cells + [Instruction("RESUME", 0)]
