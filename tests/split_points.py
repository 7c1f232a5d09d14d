"""Where a function can be split, found by static analysis; and a function split there, as a graph
break would do it.

In:   a code object.  Out: `split_points(code)`: [(instruction, stack kinds, live names)] where all
      of that is known;
`split(code, point)`: code that runs up to there and calls the resume function.
"""

import dis

from minidynamo.bytecode import Instruction, assemble, disassemble
from minidynamo.bytecode import assembler as emit
from minidynamo.bytecode.assembler import HANDLED, LASTI, NULL, VALUE, VERSION
from minidynamo.rebuild.resume import (
    GENERATOR_LIKE,
    CannotSplit,
    check_splittable,
    closure_names,
    resume_code,
)

ENDS = set(
    (
        "RETURN_VALUE RETURN_CONST RAISE_VARARGS RERAISE JUMP_FORWARD JUMP_BACKWARD "
        "JUMP_BACKWARD_NO_INTERRUPT"
    ).split()
)
UNKNOWN = "?"  # a kind besides those of `resume`


class Undecided(Exception):
    """The analysis does not know this operation."""


def effect(ins, jump):
    opcode = dis.opmap[ins.op]
    if isinstance(ins.arg, Instruction):
        arg = 0
    elif ins.op in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR"):
        arg = ins.flags
    elif opcode >= dis.HAVE_ARGUMENT:
        arg = ins.arg if isinstance(ins.arg, int) and opcode not in dis.hasconst else 0
    else:
        arg = None
    return dis.stack_effect(opcode, arg, jump=jump)


def step(ins, stack, bound, jump):
    """The stack after `ins`; `bound` is updated."""
    stack, op, arg = list(stack), ins.op, ins.arg
    if op == "PUSH_NULL":
        stack.append(NULL)
    elif op == "LOAD_GLOBAL" and ins.flags:
        stack += [NULL, VALUE] if VERSION < (3, 13) else [VALUE, NULL]
    elif op == "LOAD_METHOD" or op == "LOAD_ATTR" and ins.flags:
        stack[-1:] = [UNKNOWN, UNKNOWN]
    elif op == "LOAD_SUPER_ATTR" and ins.flags & 1:
        stack[-3:] = [UNKNOWN, UNKNOWN]
    elif op == "COPY":
        stack.append(stack[-arg])
        if (
            stack[-1] == HANDLED
        ):  # in front of POP_EXCEPT and RERAISE: the one below is not read again
            stack[-1 - arg] = VALUE
    elif op == "SWAP":
        stack[-1], stack[-arg] = stack[-arg], stack[-1]
    elif op == "LOAD_FAST_AND_CLEAR":
        stack.append(bound.get(arg, UNKNOWN))
        bound[arg] = NULL
    elif op == "STORE_FAST":
        bound[arg] = stack.pop()
    elif op == "DELETE_FAST":
        bound[arg] = NULL
    elif op == "PUSH_EXC_INFO":
        stack.insert(-1, HANDLED)
    elif op == "CALL":
        stack[-arg - 2 :] = [VALUE]
    elif op in ("CALL_KW", "CALL_FUNCTION_EX"):
        stack[effect(ins, jump) - 1 :] = [VALUE]
    elif op in ("SEND", "YIELD_VALUE", "RETURN_GENERATOR"):
        raise Undecided(op)
    elif op not in ("PRECALL", "KW_NAMES"):
        change = effect(ins, jump)
        stack = stack[:change] if change < 0 else stack + [VALUE] * change
    return stack


def states(code):
    """Per instruction: (stack kinds, {local: kind}) or None where nothing arrives."""
    body = disassemble(code)
    index = {id(ins): n for n, ins in enumerate(body)}
    count = (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & 4)
        + bool(code.co_flags & 8)
    )
    result = [None] * len(body)
    todo = [(0, [], {v: VALUE if n < count else NULL for n, v in enumerate(code.co_varnames)})]
    while todo:
        n, stack, bound = todo.pop()
        if result[n] is not None:
            old_stack, old_bound = result[n]
            if len(old_stack) != len(stack):
                raise Undecided("stack depths differ")
            stack = [a if a == b else UNKNOWN for a, b in zip(old_stack, stack)]
            bound = {v: a if a == bound.get(v) else UNKNOWN for v, a in old_bound.items()}
            if (stack, bound) == result[n]:
                continue
        result[n] = stack, bound
        ins = body[n]
        if ins.exc:
            handler, depth, lasti = ins.exc
            entry = stack[:depth] + [LASTI] * lasti + [VALUE]
            todo.append((index[id(handler)], entry, dict(bound)))
            if ins.op in ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
                after = dict(bound)
                step(ins, stack, after, False)
                todo.append((index[id(handler)], entry, after))
        if isinstance(ins.arg, Instruction):
            after = dict(bound)
            todo.append((index[id(ins.arg)], step(ins, stack, after, True), after))
        if ins.op not in ENDS:
            after = dict(bound)
            todo.append((n + 1, step(ins, stack, after, False), after))
    return body, result


def split_points(code):
    if code.co_flags & GENERATOR_LIKE or not code.co_flags & 2:
        return []
    try:
        body, found = states(code)
    except Undecided:
        return []
    free, points = closure_names(code), []
    for k, state in enumerate(found):
        if (
            state is None
            or UNKNOWN in state[0]
            or HANDLED in state[0]
            or any(kind == UNKNOWN for v, kind in state[1].items() if v not in free)
        ):
            continue
        try:
            check_splittable(code, body, k)
        except CannotSplit:
            continue
        points.append(
            (k, tuple(state[0]), frozenset(v for v, kind in state[1].items() if kind == VALUE))
        )
    return points


def split(code, point):
    """Code like `code` that at `point` returns what the resume function returns."""
    k, stack, live = point
    rest, body, free = resume_code(code, k, stack, live), disassemble(code), closure_names(code)
    target, temporaries = body[k], [f".split{i}" for i in range(len(stack))]
    stash = [ins for name in reversed(temporaries) for ins in emit.store_fast(name)]
    names = [t for t, kind in zip(temporaries, stack) if kind == VALUE]
    arguments = [emit.load_fast(v) for v in rest.co_varnames[: rest.co_argcount - len(names)]] + [
        emit.load_fast(t) + emit.delete_fast(t) for t in names
    ]
    piece = stash + emit.call(emit.make_function(rest, free), *arguments) + emit.return_value()
    for ins in piece:
        ins.pos = target.pos
    for ins in body:
        if ins.arg is target:
            ins.arg = piece[0]
    return assemble(
        code,
        body[:k] + piece + body[k:],
        co_varnames=code.co_varnames + tuple(temporaries),
        co_stacksize=code.co_stacksize + len(arguments) + len(free) + 4,
    )
