"""One canonical operation set for all CPython versions.

In:   native instructions.  Out: `CanonicalOp`s, named as in CPython 3.13, with jump arguments as
      indices into the
canonical list.  Each is linked to the native instruction it came from, where a resume function may
start.

    >>> ops, first = canonical(disassemble((lambda a, b: a or b).__code__))
    >>> [op.op for op in ops]
    ['LOAD_FAST', 'COPY', 'POP_JUMP_IF_TRUE', 'POP_TOP', 'LOAD_FAST', 'RETURN_VALUE']

Mirrors the version checks spread through torch/_dynamo/symbolic_convert.py; here the evaluator
never asks for a version. Generators' operations are CPython's own: an exhausted SEND leaves the
result on the stack (3.12+: above the receiver, which END_SEND removes) and jumps.  Left out:
coroutines and exception groups (such frames run as plain Python).
"""

import dis

from .assembler import Instruction, VERSION


class CanonicalOp:
    """op, arg: the operation.  instruction: the native one it belongs to.  exc: None or (handler
    index, depth, lasti)."""

    __slots__ = ("op", "arg", "instruction", "exc")

    def __init__(self, op, arg, instruction):
        self.op, self.arg, self.instruction, self.exc = op, arg, instruction, instruction.exc

    def __repr__(self):
        return self.op if self.arg is None else f"{self.op} {self.arg!r}"


DROPPED = {"RESUME", "NOP", "PRECALL", "COPY_FREE_VARS", "TO_BOOL", "CACHE"}
KEPT = set(
    """
    POP_TOP COPY SWAP PUSH_NULL END_FOR
    LOAD_CONST LOAD_FAST STORE_FAST DELETE_FAST LOAD_FAST_AND_CLEAR LOAD_CLOSURE MAKE_CELL
    LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_CLASSDEREF LOAD_NAME STORE_NAME
    LOAD_GLOBAL STORE_GLOBAL DELETE_GLOBAL
    LOAD_ATTR LOAD_METHOD STORE_ATTR DELETE_ATTR LOAD_SUPER_ATTR IMPORT_NAME IMPORT_FROM
    BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR BUILD_SLICE IS_OP CONTAINS_OP
    BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP BUILD_STRING
    LIST_APPEND LIST_EXTEND SET_ADD SET_UPDATE MAP_ADD DICT_UPDATE DICT_MERGE LIST_TO_TUPLE UNPACK_SEQUENCE UNPACK_EX
    CONVERT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC
    CALL CALL_KW CALL_FUNCTION_EX MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE LOAD_BUILD_CLASS
    POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE GET_ITER FOR_ITER RETURN_VALUE
    RAISE_VARARGS RERAISE PUSH_EXC_INFO POP_EXCEPT CHECK_EXC_MATCH BEFORE_WITH WITH_EXCEPT_START
    MATCH_CLASS MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS GET_LEN
    RETURN_GENERATOR YIELD_VALUE GET_YIELD_FROM_ITER SEND END_SEND
""".split()
)
RENAMED = {
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
}
UNARY = {"UNARY_NEGATIVE": "-", "UNARY_INVERT": "~", "UNARY_NOT": "not", "UNARY_POSITIVE": "+"}
INTRINSICS = {
    3: ("STOPITERATION_ERROR", None),
    5: ("UNARY_OP", "+"),
    6: ("LIST_TO_TUPLE", None),
}  # CALL_INTRINSIC_1 of 3.12+
BINARY_SYMBOLS = [symbol for _, symbol in dis._nb_ops]
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4}.get(VERSION, 5)
END_FOR_OPS = {(3, 11): 0, (3, 12): 1}.get(VERSION, 2)  # what FOR_ITER's exit skips


def translate(ins):
    """Canonical (op, arg) pairs of one native instruction; an unknown one becomes UNSUPPORTED, an
    error if reached."""
    op, arg = ins.op, ins.arg
    if op in DROPPED:
        return []
    op = RENAMED.get(op, op)
    if op == "JUMP":
        return [(op, arg)]
    if op.startswith("POP_JUMP_"):  # 3.11 has the direction in the name
        return [(op.replace("_FORWARD", "").replace("_BACKWARD", ""), arg)]
    match op:
        case "LOAD_GLOBAL" if ins.flags:
            pair = [("PUSH_NULL", None), ("LOAD_GLOBAL", arg)]
            return pair if VERSION < (3, 13) else pair[::-1]
        case "LOAD_ATTR" if ins.flags:
            return [("LOAD_METHOD", arg)]
        case "LOAD_SUPER_ATTR":
            return [(op, (arg, ins.flags))]
        case "LOAD_ASSERTION_ERROR":
            return [("LOAD_CONST", AssertionError)]
        case "RETURN_CONST":
            return [("LOAD_CONST", arg), ("RETURN_VALUE", None)]
        case "JUMP_IF_TRUE_OR_POP" | "JUMP_IF_FALSE_OR_POP":
            return [("COPY", 1), ("POP_" + op[: -len("_OR_POP")], arg), ("POP_TOP", None)]
        case "BINARY_OP":
            return [(op, BINARY_SYMBOLS[arg])]
        case "COMPARE_OP":
            return [(op, dis.cmp_op[arg >> COMPARE_SHIFT])]
        case "BINARY_SLICE":
            return [("BUILD_SLICE", 2), ("BINARY_SUBSCR", None)]
        case "STORE_SLICE":
            return [("BUILD_SLICE", 2), ("STORE_SUBSCR", None)]
        case "FORMAT_VALUE":
            convert = [("CONVERT_VALUE", arg & 3)] if arg & 3 else []
            if arg & 4 and convert:  # value, spec: convert the value below the spec
                convert = [("SWAP", 2), *convert, ("SWAP", 2)]
            return convert + [("FORMAT_WITH_SPEC" if arg & 4 else "FORMAT_SIMPLE", None)]
        case "CALL_INTRINSIC_1" if arg in INTRINSICS:
            return [INTRINSICS[arg]]
        case _ if op in UNARY:
            return [("UNARY_OP", UNARY[op])]
        case _ if op in KEPT:
            return [(op, arg)]
    return [("UNSUPPORTED", op)]


def canonical(instructions):
    """(canonical operations, {id(native instruction): index of its first canonical operation})."""
    result, first, keyword_names = [], {}, None
    for ins in instructions:
        first[id(ins)] = len(result)
        if ins.op == "KW_NAMES":  # 3.11, 3.12: a prefix of CALL
            keyword_names = ins.arg
        elif ins.op == "CALL" and keyword_names is not None:
            result += [
                CanonicalOp("LOAD_CONST", keyword_names, ins),
                CanonicalOp("CALL_KW", ins.arg, ins),
            ]
            keyword_names = None
        else:
            result += [CanonicalOp(op, arg, ins) for op, arg in translate(ins)]
    index = {id(ins): n for n, ins in enumerate(instructions)}
    for op in result:
        if isinstance(op.arg, Instruction):
            target = index[id(op.arg)] + (END_FOR_OPS if op.op == "FOR_ITER" else 0)
            op.arg = first[id(instructions[target])]
        if op.exc:
            op.exc = first[id(op.exc[0])], *op.exc[1:]
    return result, first
