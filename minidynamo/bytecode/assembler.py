"""Read, write and make CPython bytecode: code object <-> list of `Instruction`.

In:   a code object (3.11-3.13); names and constants, of which pieces are made.
Out:  instructions whose arguments are resolved (names, constants, variable names, jump targets), so
      that a list may be edited freely; `assemble` recomputes indices, jumps, EXTENDED_ARGs, the
      exception table and the line table.  Pieces are right on every version, and are joined with
      `+`.

    >>> body = disassemble(f.__code__)
    >>> body.insert(0, Instruction("NOP", pos=body[0].pos))
    >>> g = types.FunctionType(assemble(f.__code__, body), globals())
    >>> piece = call(load_global("print"), load_fast("x")) + pop_top()

Mirrors torch/_dynamo/bytecode_transformation.py and the create_* helpers of codegen.py.  Formats:
CPython's Objects/exception_handling_notes.txt and Objects/locations.md.  Left out: 3.14, and
optimising (jumps are never threaded).
"""

import dis
import inspect
import opcode
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

VERSION = sys.version_info[:2]
OPCODE = dis.opmap
Position = tuple[int | None, int | None, int | None, int | None]
ExceptionEntry = tuple[Any, int, int]  # (handler Instruction, stack depth, lasti)
LONG_FORM, NO_LOCATION = 14, 15  # kinds of entries in the line table


def _cache_counts() -> list[int]:
    """Inline cache entries behind each opcode."""
    entries = getattr(opcode, "_inline_cache_entries")
    if VERSION < (3, 13):
        return entries
    return [entries.get(name, 0) for name in dis.opname]


CACHES = _cache_counts()
HAS_CONST = set(dis.hasconst)
HAS_NAME = set(dis.hasname)
HAS_JUMP = set(dis.hasjrel)
JUMPS_BACK = {op for op in HAS_JUMP if "BACKWARD" in dis.opname[op]}
ACCESSES = ("LOAD_FAST", "STORE_FAST")
PAIRS = {  # 3.13: two variable accesses in one instruction; we always read them as two
    OPCODE[f"{a}_{b}"]: (a, b) for a in ACCESSES for b in ACCESSES if f"{a}_{b}" in OPCODE
}
HAS_VARIABLE = (set(dis.haslocal) | set(dis.hasfree)) - set(PAIRS)
# opcode -> how many low bits of the argument are not part of the name index
FLAG_BITS = {OPCODE["LOAD_GLOBAL"]: 1}
if VERSION >= (3, 12):
    FLAG_BITS |= {OPCODE["LOAD_ATTR"]: 1, OPCODE["LOAD_SUPER_ATTR"]: 2}


@dataclass(slots=True, eq=False, repr=False)
class Instruction:
    """One native instruction.

    op:    its name.
    arg:   resolved: a constant, a name, a variable name, the target `Instruction` of a jump, else
           an int or None.
    flags: the low bits of LOAD_GLOBAL (push NULL), LOAD_ATTR (method) and LOAD_SUPER_ATTR.
    exc:   None or (handler Instruction, stack depth, push the last instruction's offset).
    pos:   (line, end line, column, end column); None: that of the instruction before it.
    end:   the offset behind its bytes, in the code that it was read from.
    """

    op: str
    arg: Any = None
    flags: int = 0
    exc: ExceptionEntry | None = None
    pos: Position | None = None
    end: int = 0

    def __repr__(self) -> str:
        text = self.op
        if isinstance(self.arg, Instruction):
            text += f" -> {self.arg.op}"
        elif self.arg is not None:
            text += f" {self.arg!r}"
        return f"{text} |{self.flags}" if self.flags else text


def slots(code: types.CodeType) -> tuple[str, ...]:
    """Names of all variable slots (CPython's localsplus) in frame order."""
    return tuple(dict.fromkeys(code.co_varnames + code.co_cellvars)) + code.co_freevars


def parameter_count(code: types.CodeType) -> int:
    """How many of its variables are bound before it runs: `*args` and `**kwargs` are, too."""
    stars = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
    return code.co_argcount + code.co_kwonlyargcount + len([star for star in stars if star])


def stack_effect(native: Instruction, jump: bool = False) -> int:
    """How many slots of the stack an instruction adds."""
    op, arg = OPCODE[native.op], native.flags  # of those with flags these alone matter
    if isinstance(native.arg, int) and op not in HAS_CONST:
        arg = native.arg
    return dis.stack_effect(op, arg if op >= dis.HAVE_ARGUMENT else None, jump=jump)


def disassemble(code: types.CodeType) -> list[Instruction]:
    """The instructions of `code`; EXTENDED_ARG and CACHE units are folded away."""
    raw = code.co_code
    variables = slots(code)
    positions: list[Position | None] = list(code.co_positions())
    # a tool that adds instructions (line_profiler) gives them no place
    positions += [None] * (len(raw) // 2 - len(positions))
    result: list[Instruction] = []
    at_offset: dict[int, Instruction] = {}
    offset = begin = extended = 0
    while offset < len(raw):
        op = raw[offset]
        arg = raw[offset + 1] | extended
        extended = 0
        if op == OPCODE["EXTENDED_ARG"]:
            extended = arg << 8
            offset += 2
            continue
        end = offset + 2 + 2 * CACHES[op]
        pos = positions[offset // 2]
        read = [
            Instruction(name, known, flags, None, pos, end)
            for name, known, flags in _decoded(code, variables, op, arg)
        ]
        for unit in range(begin, offset + 2, 2):  # a jump may aim at the EXTENDED_ARG
            at_offset[unit] = read[0]
        result += read
        offset = begin = end
    for ins in result:
        if OPCODE[ins.op] in HAS_JUMP:
            ins.arg = at_offset[ins.end + ins.arg]
    for start, stop, target, depth, lasti in read_exception_table(code):
        for ins in result:
            if start < ins.end <= stop:  # by its end: an EXTENDED_ARG may stand in front of it
                ins.exc = at_offset[target], depth, lasti
    return result


def _decoded(
    code: types.CodeType, variables: Sequence[str], op: int, arg: int
) -> list[tuple[str, Any, int]]:
    """(name, resolved argument, flags) of a native instruction.  The argument of a jump is its
    distance in bytes still; 3.13's pairs (LOAD_FAST_LOAD_FAST) give two, of four bits each."""
    if op in PAIRS:
        first, second = PAIRS[op]
        return [(first, variables[arg >> 4], 0), (second, variables[arg & 15], 0)]
    known: Any = arg if op >= dis.HAVE_ARGUMENT else None
    flags = arg & ((1 << FLAG_BITS.get(op, 0)) - 1)
    arg >>= FLAG_BITS.get(op, 0)
    if op in HAS_CONST:
        known = code.co_consts[arg]
    elif op in HAS_NAME:
        known = code.co_names[arg]
    elif op in HAS_VARIABLE:
        known = variables[arg]
    elif op in HAS_JUMP:
        known = -2 * arg if op in JUMPS_BACK else 2 * arg
    return [(dis.opname[op], known, flags)]


def assemble(
    code: types.CodeType,
    instructions: Iterable[Instruction],
    *,
    parameters: int | None = None,
    **replace: Any,
) -> types.CodeType:
    """A code object like `code` that executes `instructions`.

    parameters: the number of them, all positional (default: as `code` has them).  The others are
    those of `code.replace`: co_varnames, co_cellvars, co_stacksize...
    Raises ValueError for a jump whose direction its opcode cannot express.
    """
    if parameters is not None:
        stars = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
        replace.update(co_argcount=parameters, co_posonlyargcount=0, co_kwonlyargcount=0)
        replace["co_flags"] = code.co_flags & ~stars
    variables = replace.get("co_varnames", code.co_varnames)
    new = code.replace(co_nlocals=len(variables), **replace)
    tables = _Tables(code, slots(new))
    units = [_Unit(ins, OPCODE[ins.op], tables.argument(ins)) for ins in instructions]
    _resolve_jumps(units)
    return new.replace(
        co_code=_written(units),
        co_consts=tuple(tables.constants),
        co_names=tuple(tables.names),
        co_exceptiontable=write_exception_table(_exception_entries(units)),
        co_linetable=_line_table(units, code.co_firstlineno),
    )


@dataclass
class _Unit:
    """An instruction on its way to bytes: its opcode, its argument as a number (of a jump: its
    distance), and where it lies, in code units."""

    ins: Instruction
    op: int
    arg: int
    width: int = 1  # without its inline caches: 1, and 1 for each EXTENDED_ARG
    start: int = 0
    end: int = 0


class _Tables:
    """The tables of a code object, in which an argument is an index: constants, names, variables.
    Those of the original keep their places."""

    def __init__(self, code: types.CodeType, variables: Sequence[str]) -> None:
        self.constants: list[Any] = list(code.co_consts)
        self.names = {name: i for i, name in enumerate(code.co_names)}
        self.slot = {name: i for i, name in enumerate(variables)}
        # by identity: 1, True and 1.0 are different constants
        self.constant_index = {id(c): i for i, c in enumerate(self.constants)}

    def argument(self, ins: Instruction) -> int:
        """The argument as a number; 0 for a jump, which is resolved later."""
        op = OPCODE[ins.op]
        arg = ins.arg
        if op in HAS_CONST:
            return self._constant(arg)
        if op in HAS_NAME:
            return self.names.setdefault(arg, len(self.names)) << FLAG_BITS.get(op, 0) | ins.flags
        if op in HAS_VARIABLE:
            return self.slot[arg]
        if op in HAS_JUMP:
            return 0
        return arg or 0

    def _constant(self, value: Any) -> int:
        if id(value) not in self.constant_index:
            self.constant_index[id(value)] = len(self.constants)
            self.constants.append(value)
        return self.constant_index[id(value)]


def _written(units: list[_Unit]) -> bytes:
    """The code itself, with EXTENDED_ARGs and room for inline caches."""
    raw = bytearray()
    for unit in units:
        for k in range(unit.width - 1, 0, -1):
            raw += bytes((OPCODE["EXTENDED_ARG"], unit.arg >> 8 * k & 255))
        raw += bytes((unit.op, unit.arg & 255)) + bytes(2 * CACHES[unit.op])
    return bytes(raw)


def _line_table(units: list[_Unit], line: int) -> bytes:
    lines = bytearray()
    pos: Position = (line, line, None, None)
    for unit in units:
        pos = unit.ins.pos or pos
        line = write_position(lines, pos, unit.end - unit.start, line)
    return bytes(lines)


def _exception_entries(units: list[_Unit]) -> list[list[int]]:
    """Entries (start, stop, target, depth, lasti) in code units; neighbours with one handler are
    one entry."""
    where = {id(unit.ins): unit.start for unit in units}
    table: list[list[int]] = []
    for unit in units:
        if not unit.ins.exc:
            continue
        handler, depth, lasti = unit.ins.exc
        entry = [unit.start, unit.end, where[id(handler)], depth, lasti]
        if table and table[-1][1] == unit.start and table[-1][2:] == entry[2:]:
            table[-1][1] = unit.end
        else:
            table.append(entry)
    return table


def _resolve_jumps(units: list[_Unit]) -> None:
    """Fill in jump distances, and where each unit lies.

    A longer distance may need an EXTENDED_ARG, which moves what lies behind it: widths grow until
    nothing changes.
    """
    unit_of = {id(unit.ins): unit for unit in units}
    while _lay_out(units):
        for unit in units:
            if unit.op in HAS_JUMP:
                distance = unit_of[id(unit.ins.arg)].start - unit.end
                unit.arg = -distance if unit.op in JUMPS_BACK else distance
                if unit.arg < 0:
                    raise ValueError(f"{unit.ins} jumps the wrong way")


def _lay_out(units: list[_Unit]) -> bool:
    """Set `start` and `end` of each unit; has one of them moved?"""
    moved = False
    position = 0
    for unit in units:
        unit.width = max(unit.width, (unit.arg.bit_length() + 7) // 8)
        start, position = position, position + unit.width + CACHES[unit.op]
        moved |= (unit.start, unit.end) != (start, position)
        unit.start, unit.end = start, position
    return moved


# --- tables ---------------------------------------------------------------------------------------
def read_exception_table(code: types.CodeType) -> Iterable[tuple[int, int, int, int, bool]]:
    """(start, stop, target, depth, lasti) of each entry, offsets in bytes."""
    return getattr(dis, "_parse_exception_table")(code)


def write_exception_table(entries: Iterable[Sequence[int]]) -> bytes:
    """Entries (start, stop, target, depth, lasti) in code units, big-endian varints, bit 7 marking
    an entry's start."""
    out = bytearray()
    for start, stop, target, depth, lasti in entries:
        written = bytearray()
        for value in (start, stop - start, target, depth << 1 | lasti):
            written += _big_endian_varint(value)
        written[0] |= 128
        out += written
    return bytes(out)


def _big_endian_varint(value: int) -> bytes:
    parts = [value & 63]
    while value := value >> 6:
        parts.append(value & 63 | 64)
    return bytes(reversed(parts))


def write_position(out: bytearray, pos: Position, units: int, line: int) -> int:
    """Append location entries for `units` code units; returns the line the next entry counts from.

    An entry's first byte: bit 7, four bits for its kind, three for the number of units less 1."""
    number, end, column, end_column = pos
    while units > 0:
        length = min(units, 8) - 1
        units -= 8
        if number is None:
            out.append(0x80 | NO_LOCATION << 3 | length)
            continue
        delta = number - line
        line = number
        step = -delta << 1 | 1 if delta < 0 else delta << 1  # the sign in the lowest bit
        out.append(0x80 | LONG_FORM << 3 | length)
        columns = [0 if place is None else place + 1 for place in (column, end_column)]
        for value in (step, (end or number) - number, *columns):
            _append_varint(out, value)
    return line


def _append_varint(out: bytearray, value: int) -> None:
    """The lowest six bits first; bit 6: more follow."""
    while value >= 64:
        out.append(value & 63 | 64)
        value >>= 6
    out.append(value)


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


# The kinds of what lies on the stack: values, and CPython's mark NULL beside what is to be called.
# LASTI: the place where a handler's exception was raised, from which its traceback was made.
# HANDLED: what PUSH_EXC_INFO has put below the exception that is being handled, which cannot be
# handed on.
VALUE, NULL, LASTI, HANDLED = "v", "n", "l", "h"
