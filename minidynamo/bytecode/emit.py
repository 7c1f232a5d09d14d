"""Small pieces of bytecode that are right on every CPython version.

In:   names, constants, pieces.  Out: lists of `Instruction`; pieces are joined with `+`.

    >>> piece = call(load_global("print"), load_fast("x")) + pop_top()

Mirrors torch/_dynamo/codegen.py's create_* helpers.
"""
from .assembler import Instruction, VERSION


def _simple(op):
    return lambda arg=None: [Instruction(op, arg)]


load_const, load_fast, store_fast, delete_fast = (_simple(op) for op in ("LOAD_CONST", "LOAD_FAST", "STORE_FAST", "DELETE_FAST"))
load_deref, store_deref, delete_deref = (_simple(op) for op in ("LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF"))
load_cell = _simple("LOAD_CLOSURE" if VERSION < (3, 13) else "LOAD_FAST")       # the cell itself
load_global, load_attr, store_attr, delete_attr = (
    _simple(op) for op in ("LOAD_GLOBAL", "LOAD_ATTR", "STORE_ATTR", "DELETE_ATTR"))
store_global, delete_global = _simple("STORE_GLOBAL"), _simple("DELETE_GLOBAL")
push_null, pop_top, return_value = _simple("PUSH_NULL"), _simple("POP_TOP"), _simple("RETURN_VALUE")
copy, swap = _simple("COPY"), _simple("SWAP")                                   # 1-based from the top
build_tuple, build_list, build_set, build_map = (_simple("BUILD_" + kind) for kind in ("TUPLE", "LIST", "SET", "MAP"))
build_slice, unpack_sequence = _simple("BUILD_SLICE"), _simple("UNPACK_SEQUENCE")
subscr, store_subscr, delete_subscr = _simple("BINARY_SUBSCR"), _simple("STORE_SUBSCR"), _simple("DELETE_SUBSCR")
jump_forward = _simple("JUMP_FORWARD")


def jump_if_false(target):
    """Pop a value of any type; if it is false, jump forward."""
    if VERSION < (3, 12):
        return [Instruction("POP_JUMP_FORWARD_IF_FALSE", target)]
    return ([Instruction("TO_BOOL")] if VERSION >= (3, 13) else []) + [Instruction("POP_JUMP_IF_FALSE", target)]


def call(function, *arguments):
    """Call `function` with `arguments`, each a piece that pushes one value."""
    values = [ins for piece in arguments for ins in piece]
    before, after = (push_null() + function, []) if VERSION < (3, 13) else (function, push_null())
    return before + after + values + call_n(len(arguments))


def call_n(count):
    """Call what lies below `count` positional arguments (with its NULL, in this version's order)."""
    return ([Instruction("PRECALL", count)] if VERSION < (3, 12) else []) + [Instruction("CALL", count)]


def call_kw(function, arguments, keywords):
    """Call with keyword arguments: `keywords` maps a name to a piece."""
    values = [ins for piece in (*arguments, *keywords.values()) for ins in piece]
    names, count = tuple(keywords), len(arguments) + len(keywords)
    if VERSION < (3, 13):
        return push_null() + function + values + [Instruction("KW_NAMES", names)] + call_n(count)
    return function + push_null() + values + load_const(names) + [Instruction("CALL_KW", count)]


def make_function(code, cells):
    """Push a function of `code` that closes over the cells of the variables named in `cells`."""
    closure = [ins for name in cells for ins in load_cell(name)] + build_tuple(len(cells)) if cells else []
    if VERSION >= (3, 13):
        return closure + load_const(code) + [Instruction("MAKE_FUNCTION")] + (
            [Instruction("SET_FUNCTION_ATTRIBUTE", 8)] if cells else [])
    return closure + load_const(code) + [Instruction("MAKE_FUNCTION", 8 if cells else 0)]


def prologue(free_count):
    """What must stand first in a function with `free_count` free variables."""
    return ([Instruction("COPY_FREE_VARS", free_count)] if free_count else []) + [Instruction("RESUME", 0)]
