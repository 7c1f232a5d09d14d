"""Read and write CPython bytecode: code object <-> list of `Instruction`.

In:   a code object (3.11-3.13).  Out: instructions whose arguments are resolved (names, constants,
      variable names, jump
targets), so that a list may be edited freely; `assemble` recomputes indices, jumps, EXTENDED_ARGs,
the exception table and the line table.

    >>> body = disassemble(f.__code__)
    >>> body.insert(0, Instruction("NOP", pos=body[0].pos))
    >>> g = types.FunctionType(assemble(f.__code__, body), globals())

Mirrors torch/_dynamo/bytecode_transformation.py.  Formats: CPython's
Objects/exception_handling_notes.txt and Objects/locations.md.  Left out: 3.14, and optimising
(jumps are never threaded).
"""

import dis
import opcode
import sys

VERSION = sys.version_info[:2]
OPCODE = dis.opmap


def _cache_counts():
    """Inline cache entries behind each opcode."""
    counts = [0] * 256
    if VERSION >= (3, 13):
        for name, count in opcode._inline_cache_entries.items():
            counts[OPCODE[name]] = count
    else:
        counts[: len(opcode._inline_cache_entries)] = opcode._inline_cache_entries
    return counts


CACHES = _cache_counts()
HAS_CONST, HAS_NAME, HAS_JUMP = set(dis.hasconst), set(dis.hasname), set(dis.hasjrel)
JUMPS_BACK = {op for op in HAS_JUMP if "BACKWARD" in dis.opname[op]}
PAIRS = {  # 3.13: two variable accesses in one instruction; we always read them as two
    OPCODE[a + "_" + b]: (a, b)
    for a, b in (
        ("LOAD_FAST", "LOAD_FAST"),
        ("STORE_FAST", "LOAD_FAST"),
        ("STORE_FAST", "STORE_FAST"),
    )
    if a + "_" + b in OPCODE
}
HAS_VARIABLE = (set(dis.haslocal) | set(dis.hasfree)) - set(PAIRS)
FLAG_BITS = {  # low bits of the argument that are not part of the name index
    OPCODE[name]: bits
    for name, bits in {
        "LOAD_GLOBAL": 1,
        **({"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2} if VERSION >= (3, 12) else {}),
    }.items()
}


class Instruction:
    """One native instruction.

    op:    its name.
    arg:   resolved: a constant, a name, a variable name, the target `Instruction` of a jump, else
           an int or None.
    flags: the low bits of LOAD_GLOBAL (push NULL), LOAD_ATTR (method) and LOAD_SUPER_ATTR.
    exc:   None or (handler Instruction, stack depth, push the last instruction's offset).
    pos:   (line, end line, column, end column); None: that of the instruction before it.
    """

    __slots__ = ("op", "arg", "flags", "exc", "pos", "end")

    def __init__(self, op, arg=None, flags=0, exc=None, pos=None):
        self.op, self.arg, self.flags, self.exc, self.pos, self.end = op, arg, flags, exc, pos, 0

    def copy(self):
        return Instruction(self.op, self.arg, self.flags, self.exc, self.pos)

    def __repr__(self):
        argument = (
            ""
            if self.arg is None
            else f" -> {self.arg.op}"
            if isinstance(self.arg, Instruction)
            else f" {self.arg!r}"
        )
        return self.op + argument + (f" |{self.flags}" if self.flags else "")


def slots(code):
    """Names of all variable slots (CPython's localsplus) in frame order."""
    return (
        code.co_varnames
        + tuple(c for c in code.co_cellvars if c not in code.co_varnames)
        + code.co_freevars
    )


def disassemble(code):
    """The instructions of `code`; EXTENDED_ARG and CACHE units are folded away."""
    raw, variables, positions = code.co_code, slots(code), list(code.co_positions())
    result, at_offset = [], {}
    offset = begin = extended = 0
    while offset < len(raw):
        op, arg = raw[offset], raw[offset + 1] | extended
        extended = 0
        if op == OPCODE["EXTENDED_ARG"]:
            extended = arg << 8
            offset += 2
            continue
        ins = Instruction(
            dis.opname[op], arg if op >= dis.HAVE_ARGUMENT else None, pos=positions[offset // 2]
        )
        for unit in range(begin, offset + 2, 2):  # a jump may aim at the EXTENDED_ARG
            at_offset[unit] = ins
        offset = begin = offset + 2 + 2 * CACHES[op]
        ins.end = offset
        if op in FLAG_BITS:
            ins.flags, arg = arg & ((1 << FLAG_BITS[op]) - 1), arg >> FLAG_BITS[op]
        if op in HAS_CONST:
            ins.arg = code.co_consts[arg]
        elif op in HAS_NAME:
            ins.arg = code.co_names[arg]
        elif op in HAS_VARIABLE:
            ins.arg = variables[arg]
        elif op in PAIRS:
            ins.op, ins.arg = PAIRS[op][0], variables[arg >> 4]
            result.append(ins)
            ins = Instruction(PAIRS[op][1], variables[arg & 15], pos=ins.pos)
            ins.end = offset
        elif op in HAS_JUMP:
            ins.arg = offset + 2 * arg * (-1 if op in JUMPS_BACK else 1)
        result.append(ins)
    for ins in result:
        if OPCODE[ins.op] in HAS_JUMP:
            ins.arg = at_offset[ins.arg]
    for start, stop, target, depth, lasti in read_exception_table(code.co_exceptiontable):
        handler = at_offset[target], depth, lasti
        for ins in result:
            if start < ins.end <= stop:
                ins.exc = handler
    return result


def assemble(
    code, instructions, *, varnames=None, cellvars=None, freevars=None, stacksize=None, **replace
):
    """A code object like `code` that executes `instructions`.

    varnames, cellvars, freevars: new variable lists (default: those of `code`).  `replace` goes to
    `code.replace`. Raises ValueError for a jump whose direction its opcode cannot express.
    """
    varnames = tuple(code.co_varnames if varnames is None else varnames)
    cellvars = tuple(code.co_cellvars if cellvars is None else cellvars)
    freevars = tuple(code.co_freevars if freevars is None else freevars)
    new = code.replace(
        co_varnames=varnames,
        co_nlocals=len(varnames),
        co_cellvars=cellvars,
        co_freevars=freevars,
        **replace,
    )
    slot = {name: i for i, name in enumerate(slots(new))}
    constants, names = (
        list(code.co_consts),
        {name: i for i, name in enumerate(code.co_names)},
    )  # same numbers as before
    constant_index = {id(c): i for i, c in enumerate(constants)}
    todo = []
    for ins in instructions:  # resolve everything but jumps
        op, arg = OPCODE[ins.op], ins.arg
        if op in HAS_CONST:
            if (
                id(arg) not in constant_index
            ):  # by identity: 1, True and 1.0 are different constants
                constant_index[id(arg)] = len(constants)
                constants.append(arg)
            arg = constant_index[id(arg)]
        elif op in HAS_NAME:
            arg = names.setdefault(arg, len(names)) << FLAG_BITS.get(op, 0) | ins.flags
        elif op in HAS_VARIABLE:
            arg = slot[arg]
        todo.append([ins, op, arg or 0])
    begin = _resolve_jumps(todo)
    raw, table, lines, line = bytearray(), [], bytearray(), code.co_firstlineno
    pos = (line, line, None, None)
    where = {id(ins): start for start, (ins, _, _) in zip(begin, todo)}
    for start, (ins, op, arg) in zip(begin, todo):
        units = (ins.end - start) - 1 - CACHES[op]  # EXTENDED_ARGs
        for k in range(units, 0, -1):
            raw += bytes((OPCODE["EXTENDED_ARG"], arg >> 8 * k & 255))
        raw += bytes((op, arg & 255)) + bytes(2 * CACHES[op])
        pos = ins.pos or pos
        line = write_position(lines, pos, ins.end - start, line)
        if ins.exc:
            handler, depth, lasti = ins.exc
            entry = [start, ins.end, where[id(handler)], depth, lasti]
            if table and table[-1][1] == start and table[-1][2:] == entry[2:]:
                table[-1][1] = ins.end
            else:
                table.append(entry)
    return new.replace(
        co_code=bytes(raw),
        co_consts=tuple(constants),
        co_names=tuple(names),
        co_exceptiontable=write_exception_table(table),
        co_linetable=bytes(lines),
        co_stacksize=code.co_stacksize if stacksize is None else stacksize,
    )


def _resolve_jumps(todo):
    """Fill in jump distances; returns the start of each instruction and sets `.end` (both in code
    units).

    A longer distance may need an EXTENDED_ARG, which moves what lies behind it: widths grow until
    nothing changes.
    """
    width = [1 if op in HAS_JUMP else max(1, (arg.bit_length() + 7) // 8) for _, op, arg in todo]
    while True:
        position, begin = 0, []
        for units, (ins, op, _) in zip(width, todo):
            begin.append(position)
            position += units + CACHES[op]
            ins.end = position
        where = {id(item[0]): start for start, item in zip(begin, todo)}
        stable = True
        for i, item in enumerate(todo):
            ins, op, _ = item
            if op not in HAS_JUMP:
                continue
            distance = (where[id(ins.arg)] - ins.end) * (-1 if op in JUMPS_BACK else 1)
            if distance < 0:
                raise ValueError(f"{ins} jumps the wrong way")
            item[2] = distance
            units = max(1, (distance.bit_length() + 7) // 8)
            if units > width[i]:
                width[i], stable = units, False
        if stable:
            return begin


# --- tables ---------------------------------------------------------------------------------------
def read_exception_table(data):
    """Yields (start, stop, target, depth, lasti), offsets in bytes."""
    stream = iter(data)

    def varint():
        byte = next(stream)
        value = byte & 63
        while byte & 64:
            byte = next(stream)
            value = value << 6 | byte & 63
        return value

    while True:
        try:
            start = varint() * 2
        except StopIteration:
            return
        length, target, depth_lasti = varint() * 2, varint() * 2, varint()
        yield start, start + length, target, depth_lasti >> 1, depth_lasti & 1


def write_exception_table(entries):
    """Entries (start, stop, target, depth, lasti) in code units, big-endian varints, bit 7 marking
    an entry's start."""
    out = bytearray()
    for start, stop, target, depth, lasti in entries:
        for position, value in enumerate((start, stop - start, target, depth << 1 | lasti)):
            parts = [value & 63]
            while value := value >> 6:
                parts.append(value & 63 | 64)
            parts[-1] |= 128 * (position == 0)
            out += bytes(reversed(parts))
    return bytes(out)


def write_position(out, pos, units, line):
    """Append location entries for `units` code units; returns the line the next entry counts
    from."""

    def varint(value):
        while value >= 64:
            out.append(value & 63 | 64)
            value >>= 6
        out.append(value)

    while units > 0:
        length = min(units, 8) - 1
        units -= 8
        if pos[0] is None:
            out.append(0x80 | 15 << 3 | length)  # no location
            continue
        number, end, column, end_column = pos
        delta, line = number - line, number
        full = None not in (end, column, end_column)
        out.append(0x80 | (14 if full else 13) << 3 | length)  # with or without columns
        varint(-delta << 1 | 1 if delta < 0 else delta << 1)
        if full:
            varint(end - number)
            varint(column + 1)
            varint(end_column + 1)
    return line
