"""A class statement in a compiled frame, where its body does nothing but define.

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): ...

In, out: see `symbolic_eval.registry`.  The class is made once while tracing, and stands for the one
that each call makes: where that leaves the frame, it is made anew.  A body that may do more than
define functions and constants, a metaclass or a base that wants to be told, and methods that read
variables of the frame which are no constants are graph breaks.
Mirrors torch/_dynamo/variables/builtin.py (`__build_class__`).
"""

import builtins
import dis
import functools
import types
from typing import Any

import torch

from ..exceptions import Break
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.functions import CallableVar, CellVar, FunctionVar
from ..variables.modules import PyModuleVar

DEFINES = frozenset(
    """
    RESUME NOP CACHE PRECALL PUSH_NULL CALL LOAD_NAME STORE_NAME LOAD_CONST MAKE_FUNCTION
    LOAD_CLOSURE LOAD_FAST BUILD_TUPLE RETURN_VALUE RETURN_CONST MAKE_CELL COPY_FREE_VARS COPY
    STORE_FAST LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF LOAD_LOCALS SET_FUNCTION_ATTRIBUTE
    STORE_DEREF LOAD_ATTR BUILD_MAP BUILD_LIST BUILD_CONST_KEY_MAP POP_TOP
    """.split()
)
DECORATORS = {"staticmethod", "classmethod", "property"}
METACLASSES = (type, type(torch.autograd.Function))
FIXED = (ConstantVar, ClassVar, CallableVar, PyModuleVar)
HINT = "define the class outside"


@rule(builtins.__build_class__)
def _build_class(tx: Frame, body: Any, name: Any, /, *bases: Any, **options: Any) -> Variable:
    if options or not all(isinstance(base, ClassVar) for base in bases):
        raise Break("class", "a class statement with a metaclass or unusual bases", HINT)
    kinds = [base.value for base in bases]
    for kind in kinds:
        if type(kind) not in METACLASSES or told_of_subclasses(kind):
            raise Break(
                "class", f"a class statement whose base {kind.__name__} is told of it", HINT
            )
    if not isinstance(body, FunctionVar) or not only_defines(tx, body):
        raise Break("class", "a class statement whose body does more than define", HINT)
    cells = tuple(types.CellType(content_of(tx, cell)) for cell in body.closure)
    run = types.FunctionType(body.code, body.globals, body.name, None, cells)
    make = functools.partial(builtins.__build_class__, run, name.as_constant(), *kinds)
    made = tx.run_now(make)
    tx.output.makers[id(made)] = make
    return tx.output.wrap_pinned(made)


def only_defines(tx: Frame, body: FunctionVar) -> bool:
    """Does the body of a class define functions and constants, and call nothing but decorators?
    Other names must be those of classes and modules, as annotations are."""
    instructions = list(dis.get_instructions(body.code))
    stored = {step.argval for step in instructions if step.opname == "STORE_NAME"}
    loaded = [step.argval for step in instructions if step.opname == "LOAD_NAME"]
    calls = sum(step.opname == "CALL" for step in instructions)
    if calls > sum(name in DECORATORS for name in loaded):
        return False
    table = tx.output.globals_of(body.globals)
    others = {*loaded} - DECORATORS - stored - {"__name__"}
    known = all(isinstance(table.load(tx, name), FIXED[1:]) for name in others)
    return known and all(step.opname in DEFINES for step in instructions)


def told_of_subclasses(kind: type) -> bool:
    """Does it have an `__init_subclass__` of Python?"""
    return hasattr(kind.__init_subclass__, "__func__")


def content_of(tx: Frame, cell: CellVar) -> Any:
    """The real object in a variable of the frame that a method of the class reads."""
    return fixed(tx, cell.load(tx))


def fixed(tx: Frame, value: Variable | None) -> Any:
    """A real object that is the same in each call.  (None: of a variable that has no value yet.)"""
    found = None if value is None else value.realize(tx)
    if isinstance(found, FIXED) or isinstance(found, FunctionVar) and found.fn is not None:
        return found.real()
    raise Break("class", "a class statement whose methods read the frame's variables", HINT)
