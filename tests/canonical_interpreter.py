"""A concrete interpreter of the canonical operations: their meaning, in Python values.

In:   a code object.  Out: `stub(code)`, a code object with the same signature that hands its
      arguments to `interpret`.

    >>> f.__code__ = stub(f.__code__)           # from now on every instruction of f runs here

It is the reference for the symbolic evaluator, which has the same skeleton.  Left out: generators,
coroutines.
"""

import builtins
import operator
import sys
import types

from minidynamo.bytecode import assemble, canonical, disassemble, emit

NULL = type("Null", (), {"__repr__": lambda self: "NULL"})()
SYMBOLS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "&": "and_",
    "|": "or_",
    "^": "xor",
    "<<": "lshift",
    ">>": "rshift",
}
BINARY = {symbol: getattr(operator, name) for symbol, name in SYMBOLS.items()}
BINARY |= {
    symbol + "=": getattr(operator, "i" + name.rstrip("_")) for symbol, name in SYMBOLS.items()
}
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert, "not": operator.not_}
_operations = {}


class Frame:
    """One call.  Methods are named after the operations; each gets the operation's argument."""

    def __init__(self, code, namespace, arguments, cells):
        if id(code) not in _operations:
            _operations[id(code)] = code, canonical(disassemble(code))[0]
        self.code, self.operations = _operations[id(code)]
        self.globals, self.locals, self.cells = (
            namespace,
            dict(zip(code.co_varnames, arguments)),
            dict(zip(code.co_freevars, cells)),
        )
        found = namespace.get("__builtins__", builtins)
        self.builtins = found if isinstance(found, dict) else vars(found)
        self.stack, self.pc, self.handled = [], 0, []

    def run(self):
        while True:
            operation = self.operations[self.pc]
            self.pc += 1
            try:
                result = getattr(self, operation.op)(operation.arg)
                if operation.op == "RETURN_VALUE":
                    return result
            except BaseException as error:
                if operation.exc is None:
                    raise
                self.pc, depth, lasti = operation.exc
                del self.stack[depth:]
                self.stack += ["last instruction", error] if lasti else [error]

    def pop(self, count):
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    # ---- stack
    def POP_TOP(self, _):
        self.stack.pop()

    def COPY(self, n):
        self.stack.append(self.stack[-n])

    def SWAP(self, n):
        self.stack[-1], self.stack[-n] = self.stack[-n], self.stack[-1]

    def PUSH_NULL(self, _):
        self.stack.append(NULL)

    def LOAD_CONST(self, value):
        self.stack.append(value)

    # ---- variables
    def unbound(self, name):
        return UnboundLocalError(
            f"cannot access local variable '{name}' where it is not associated with a value"
        )

    def LOAD_FAST(self, name):
        if name in self.cells and name not in self.locals:  # 3.13: the cell itself
            self.stack.append(self.cells[name])
        elif name in self.locals:
            self.stack.append(self.locals[name])
        else:
            raise self.unbound(name)

    def STORE_FAST(self, name):
        value = self.stack.pop()
        if value is NULL:  # an inlined comprehension ends
            self.locals.pop(name, None)
            self.cells.pop(name, None)
        elif isinstance(value, types.CellType) and name in self.code.co_cellvars:
            self.locals.pop(name, None)
            self.cells[name] = value
        else:
            self.locals[name] = value

    def DELETE_FAST(self, name):
        if name not in self.locals:
            raise self.unbound(name)
        del self.locals[name]

    def LOAD_FAST_AND_CLEAR(self, name):
        self.stack.append(
            self.cells.pop(name) if name in self.cells else self.locals.pop(name, NULL)
        )

    def MAKE_CELL(self, name):
        self.cells[name] = (
            types.CellType(self.locals.pop(name)) if name in self.locals else types.CellType()
        )

    def LOAD_CLOSURE(self, name):
        self.stack.append(self.cells[name] if name in self.cells else self.locals[name])

    def LOAD_DEREF(self, name):
        try:
            self.stack.append(self.cells[name].cell_contents)
        except ValueError:
            if name in self.code.co_freevars:
                raise NameError(
                    f"cannot access free variable '{name}' where it is not associated "
                    "with a value in enclosing scope"
                ) from None
            raise self.unbound(name) from None

    def STORE_DEREF(self, name):
        self.cells[name].cell_contents = self.stack.pop()

    def DELETE_DEREF(self, name):
        self.LOAD_DEREF(name)
        self.stack.pop()
        del self.cells[name].cell_contents

    def LOAD_GLOBAL(self, name):
        if name in self.globals:
            self.stack.append(self.globals[name])
        elif name in self.builtins:
            self.stack.append(self.builtins[name])
        else:
            raise NameError(f"name '{name}' is not defined", name=name)

    def STORE_GLOBAL(self, name):
        self.globals[name] = self.stack.pop()

    def DELETE_GLOBAL(self, name):
        del self.globals[name]

    # ---- attributes and items
    def LOAD_ATTR(self, name):
        self.stack.append(getattr(self.stack.pop(), name))

    def LOAD_METHOD(self, name):
        self.stack += [
            getattr(self.stack.pop(), name),
            NULL,
        ]  # (bound method, NULL): CALL takes either order

    def STORE_ATTR(self, name):
        value, target = self.pop(2)
        setattr(target, name, value)

    def DELETE_ATTR(self, name):
        delattr(self.stack.pop(), name)

    def LOAD_SUPER_ATTR(self, arg):
        name, flags = arg
        super_class, cls, first = self.pop(3)
        self.stack.append(getattr(super_class(cls, first), name))
        if flags & 1:
            self.stack.append(NULL)

    def IMPORT_NAME(self, name):
        level, fromlist = self.pop(2)
        self.stack.append(self.builtins["__import__"](name, self.globals, None, fromlist, level))

    def IMPORT_FROM(self, name):
        module = self.stack[-1]
        if hasattr(module, name):
            self.stack.append(getattr(module, name))
        elif f"{module.__name__}.{name}" in sys.modules:
            self.stack.append(sys.modules[f"{module.__name__}.{name}"])
        else:
            raise ImportError(f"cannot import name {name!r} from {module.__name__!r}")

    def BINARY_SUBSCR(self, _):
        container, key = self.pop(2)
        self.stack.append(container[key])

    def STORE_SUBSCR(self, _):
        value, container, key = self.pop(3)
        container[key] = value

    def DELETE_SUBSCR(self, _):
        container, key = self.pop(2)
        del container[key]

    def BUILD_SLICE(self, n):
        self.stack.append(slice(*self.pop(n)))

    # ---- operators
    def UNARY_OP(self, symbol):
        self.stack.append(UNARY[symbol](self.stack.pop()))

    def BINARY_OP(self, symbol):
        self.stack.append(BINARY[symbol](*self.pop(2)))

    def COMPARE_OP(self, symbol):
        self.stack.append(COMPARE[symbol](*self.pop(2)))

    def IS_OP(self, invert):
        left, right = self.pop(2)
        self.stack.append((left is right) != bool(invert))

    def CONTAINS_OP(self, invert):
        left, right = self.pop(2)
        self.stack.append((left in right) != bool(invert))

    # ---- building
    def BUILD_TUPLE(self, n):
        self.stack.append(tuple(self.pop(n)))

    def BUILD_LIST(self, n):
        self.stack.append(self.pop(n))

    def BUILD_SET(self, n):
        self.stack.append(set(self.pop(n)))

    def BUILD_STRING(self, n):
        self.stack.append("".join(self.pop(n)))

    def BUILD_MAP(self, n):
        values = self.pop(2 * n)
        self.stack.append(dict(zip(values[::2], values[1::2])))

    def BUILD_CONST_KEY_MAP(self, n):
        *values, keys = self.pop(n + 1)
        self.stack.append(dict(zip(keys, values)))

    def LIST_APPEND(self, n):
        value = self.stack.pop()
        self.stack[-n].append(value)

    def SET_ADD(self, n):
        value = self.stack.pop()
        self.stack[-n].add(value)

    def MAP_ADD(self, n):
        key, value = self.pop(2)
        self.stack[-n][key] = value

    def LIST_EXTEND(self, n):
        value = self.stack.pop()
        self.stack[-n].extend(value)

    def SET_UPDATE(self, n):
        value = self.stack.pop()
        self.stack[-n].update(value)

    DICT_UPDATE = SET_UPDATE

    def DICT_MERGE(self, n):
        value, target = self.stack.pop(), self.stack[-n]
        for key in value.keys():
            if key in target:
                raise TypeError(f"got multiple values for keyword argument {key!r}")
            target[key] = value[key]

    def LIST_TO_TUPLE(self, _):
        self.stack.append(tuple(self.stack.pop()))

    def UNPACK_SEQUENCE(self, n):
        values = list(self.stack.pop())
        if len(values) != n:
            few = len(values) < n
            raise ValueError(
                f"{'not enough' if few else 'too many'} values to unpack (expected {n}"
                + (f", got {len(values)})" if few else ")")
            )
        self.stack += reversed(values)

    def UNPACK_EX(self, arg):
        before, after = arg & 255, arg >> 8
        values = list(self.stack.pop())
        if len(values) < before + after:
            raise ValueError(
                "not enough values to unpack "
                f"(expected at least {before + after}, got {len(values)})"
            )
        middle = len(values) - after
        self.stack += reversed(values[:before] + [values[before:middle]] + values[middle:])

    def CONVERT_VALUE(self, kind):
        self.stack.append([None, str, repr, ascii][kind](self.stack.pop()))

    def FORMAT_SIMPLE(self, _):
        self.stack.append(format(self.stack.pop(), ""))

    def FORMAT_WITH_SPEC(self, _):
        self.stack.append(format(*self.pop(2)))

    # ---- calls
    def callee(self, args):
        first, second = self.pop(2)  # NULL, fn | fn, NULL | method, self
        if first is NULL:
            return second, args
        return (first, args) if second is NULL else (first, [second, *args])

    def CALL(self, n, keywords={}):
        args = self.pop(n)
        function, args = self.callee(args)
        if function is super and not args:
            name = self.code.co_varnames[0]
            args = [
                self.cells["__class__"].cell_contents,
                self.locals[name] if name in self.locals else self.cells[name].cell_contents,
            ]
        self.stack.append(function(*args, **keywords))

    def CALL_KW(self, n):
        names = self.stack.pop()
        values = self.pop(len(names))
        self.CALL(n - len(names), dict(zip(names, values)))

    def CALL_FUNCTION_EX(self, flag):
        keywords = self.stack.pop() if flag & 1 else {}
        args = self.stack.pop()
        function, args = self.callee(args)
        self.stack.append(function(*args, **keywords))

    def MAKE_FUNCTION(self, _):
        code = self.stack.pop()
        # the cells are attached afterwards
        closure = tuple(types.CellType() for _ in code.co_freevars) or None
        self.stack.append(types.FunctionType(code, self.globals, closure=closure))

    def SET_FUNCTION_ATTRIBUTE(self, flag):
        value, function = self.pop(2)
        if flag == 1:
            function.__defaults__ = value
        elif flag == 2:
            function.__kwdefaults__ = value
        elif flag == 4:
            function.__annotations__ = dict(zip(value[::2], value[1::2]))
        else:
            function = types.FunctionType(
                function.__code__,
                function.__globals__,
                function.__name__,
                function.__defaults__,
                value,
            )
        self.stack.append(function)

    def LOAD_BUILD_CLASS(self, _):
        self.stack.append(self.builtins["__build_class__"])

    # ---- control flow
    def JUMP(self, target):
        self.pc = target

    def jump_if(test):
        def method(self, target):
            if test(self.stack.pop()):
                self.pc = target

        return method

    POP_JUMP_IF_FALSE, POP_JUMP_IF_TRUE = jump_if(operator.not_), jump_if(operator.truth)
    POP_JUMP_IF_NONE, POP_JUMP_IF_NOT_NONE = (
        jump_if(lambda v: v is None),
        jump_if(lambda v: v is not None),
    )

    def GET_ITER(self, _):
        self.stack.append(iter(self.stack.pop()))

    def FOR_ITER(self, target):
        try:
            self.stack.append(next(self.stack[-1]))
        except StopIteration:
            self.stack.pop()
            self.pc = target

    def RETURN_VALUE(self, _):
        return self.stack.pop()

    # ---- exceptions
    def RAISE_VARARGS(self, n):
        if n == 0:
            raise (
                self.handled[-1] if self.handled else RuntimeError("No active exception to reraise")
            )
        values = self.pop(n)
        error = values[0]() if isinstance(values[0], type) else values[0]
        if self.handled and error is not self.handled[-1]:
            error.__context__ = self.handled[-1]
        if n == 2:
            raise error from values[1]
        raise error

    def RERAISE(self, _):
        raise self.stack.pop()

    def PUSH_EXC_INFO(self, _):
        error = self.stack.pop()
        self.stack += [self.handled[-1] if self.handled else None, error]
        self.handled.append(error)

    def POP_EXCEPT(self, _):
        self.stack.pop()
        self.handled.pop()

    def CHECK_EXC_MATCH(self, _):
        kind = self.stack.pop()
        self.stack.append(isinstance(self.stack[-1], kind))

    def BEFORE_WITH(self, _):
        manager = self.stack.pop()
        self.stack.append(type(manager).__exit__.__get__(manager))
        self.stack.append(type(manager).__enter__(manager))

    def WITH_EXCEPT_START(self, _):
        error = self.stack[-1]
        self.stack.append(self.stack[-4](type(error), error, error.__traceback__))

    # ---- match statements
    def GET_LEN(self, _):
        self.stack.append(len(self.stack[-1]))

    def MATCH_SEQUENCE(self, _):
        self.stack.append(isinstance(self.stack[-1], (list, tuple)))

    def MATCH_MAPPING(self, _):
        self.stack.append(isinstance(self.stack[-1], dict))

    def MATCH_KEYS(self, _):
        subject, keys = self.stack[-2:]
        self.stack.append(
            tuple(subject[key] for key in keys) if all(key in subject for key in keys) else None
        )

    def MATCH_CLASS(self, positional):
        subject, cls, names = self.pop(3)
        if not isinstance(subject, cls) or not all(hasattr(subject, name) for name in names):
            return self.stack.append(None)
        own = (
            ()
            if not positional
            else (subject,)
            if cls in (int, str, float, list, tuple, dict)
            else tuple(getattr(subject, name) for name in cls.__match_args__[:positional])
        )
        self.stack.append(own + tuple(getattr(subject, name) for name in names))


def interpret(code, namespace, arguments, cells):
    return Frame(code, namespace, arguments, cells).run()


def stub(code):
    """A code object with the signature and free variables of `code` whose calls are interpreted."""
    count = (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & 4)
        + bool(code.co_flags & 8)
    )

    def pack(names, load):
        return [ins for name in names for ins in load(name)] + emit.build_tuple(len(names))

    body = (
        emit.prologue(len(code.co_freevars))
        + emit.call(
            emit.load_const(interpret),
            emit.load_const(code),
            emit.call(emit.load_const(globals_of_caller)),
            pack(code.co_varnames[:count], emit.load_fast),
            pack(code.co_freevars, emit.load_cell),
        )
        + emit.return_value()
    )
    for ins in body:
        ins.pos = code.co_firstlineno, code.co_firstlineno, 0, 0
    return assemble(code, body, co_cellvars=(), co_stacksize=count + len(code.co_freevars) + 12)


def globals_of_caller():
    return sys._getframe(1).f_globals
