"""Mutants: each kind of guard removed, layouts not compared, absences not asked.

The kinds are read from the packages' source: whatever is given as the kind of a `guard(...)` call
or of a `Guard(...)`, and the names of the thread's state.  A kind that is neither in KILLERS nor in
ELSEWHERE fails a test, so a new kind of guard needs a generator that sees it missing.
"""

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import minidynamo
from minidynamo.guards import checks, guards
from minidynamo.variables import classes, functions

from .mutants import mutant
from .tables import named

STATES = {name for name, _ in checks.STATE} | {"AUTOCAST_DTYPES", "DEFAULT_DEVICE", "DISPATCH_KEYS"}


def kinds_in(node: ast.AST) -> Iterator[str]:
    """The constants that an expression for a kind can give: of both branches of a condition."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from kinds_in(node.body)
        yield from kinds_in(node.orelse)
    elif isinstance(node, ast.Tuple):
        yield from kinds_in(node.elts[0])


def all_kinds() -> set[str]:
    """Every kind of guard that minidynamo makes."""
    found = set(STATES)
    for file in Path(minidynamo.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name == "guard" and len(node.args) > 1:
                found |= {*kinds_in(node.args[1])}
            elif name == "Guard":
                found |= {*kinds_in(node.args[0])}
            elif name == "guard_key":  # of a dictionary
                found |= {*kinds_in(node.args[1])}
    return {kind for kind in found if kind.isupper()}


SECONDS = 55  # in which cases are drawn for one mutant

# kind -> generators that see it missing
KILLERS = named("""
    ABSENT: change --only ^.'(object|module)'; ALIAS: change --only ^.'aliases';
    AUTOCAST: change_state --only autocast; AUTOCAST_DTYPES: change_state --only instead;
    BUILTIN: change --only ^.'python_module'; CODE: functions;
    DEFAULT_DEVICE: change_state --only instead; DETERMINISTIC: change_state --only deterministic;
    DISTINCT: change --only ^.'aliases'; DTYPE: change_state --only default_dtype;
    EMPTY: change --only ^.'cells'; EQUALS: change --only ^.'dict';
    FUNCTION_MODES: change_state --only torch.device; GRAD_MODE: change_state --only no_grad;
    EQ: change --only ^.'builtin_function'.*builtin'; HANDLING: change_state --only handled;
    ID: change --only ^.'(object|class)'; INFERENCE: change_state --only instead;
    KEYS: change --only ^.'dict'; LENGTH: change --only ^.'list'; LOGGER: change --only ^.'logger';
    METHOD: change --only ^.'builtin_method'.*bound;
    MODULE: change --only ^.'sequential'.*this_world; MRO: change --only ^.'class'.*__bases__;
    NO_ATTRIBUTES: change --only ^.'ordered'; NO_HOOKS: change_state --only forward_hook;
    ORDER: change --only ^.'colliding'; PRESENT: change --only ^.'dict';
    STATE: change_state --only float32_matmul; TYPE: change --only ^.'(object|dict|slots)'
""")

# kind -> why none of these generators can see it missing
ELSEWHERE = {
    **dict.fromkeys("EQUAL RANGE SIZES".split(), "sizes that are symbols: `make fuzz-shapes`"),
    **dict.fromkeys(
        "FLAG TENSOR GRAD LAYOUT SHAPE STRIDE VIEW_BITS".split(),
        "tensors and their metadata are the subject of another generator",
    ),
    "TABLE": "what dict's own methods write to an OrderedDict: tests/test_ordered_tables.py",
    "FLOAT": "floats that are symbols: tests/test_dynamic.py",
    "SAME": "a parameter that is a key of an optimizer's state and an attribute, too",
    "DUAL_LEVEL": "tests/test_dispatch_state.py",
    "DISPATCH_KEYS": "where the frame hook cannot look itself: tests/test_dispatch_state.py",
    "DEFAULTS": "defaults of functions: mutants_names.py",
    **dict.fromkeys(("ELEMENTS", "NO_SLOT"), "sets, and slots: tests/test_layouts.py"),
    "SUBCLASS": "what a class is registered with: mutants_c_objects.py",
    "OFFSET": "tensors and their metadata: mutants_layouts.py",
    "DEVICE": "needs a second device",
}


def without(kind: str) -> Callable[[], None]:
    """The packages with guards of this kind that are always true: what they read is still read."""

    def change() -> None:
        plain = guards.GuardFunction.__init__

        @functools.wraps(plain)
        def weakened(self, tree, parameters, state_guards, pair_guards):
            roots = [*tree.locals.values(), *tree.frees.values(), *tree.pins.values()]
            found = [*state_guards, *pair_guards]
            while roots:
                node = roots.pop()
                found += node.guards.values()
                roots += node.children.values()
            for guard in found:
                if guard.kind == kind:
                    guard.check = f"(({guard.check}), True)[1]"
            plain(self, tree, parameters, state_guards, pair_guards)

        guards.GuardFunction.__init__ = weakened

    return change


for kind, killer in KILLERS.items():
    killer += "" if "--modes" in killer else " --modes eager"
    mutant(f"no {kind} guards", f"{killer} --seconds {SECONDS}")(without(kind))


@mutant(
    "what functions lack may come", f"absence --only function --modes eager --seconds {SECONDS}"
)
def functions_keep_lacking() -> None:
    plain = functions.real_attribute

    def real_attribute(self, tx, name):
        if not hasattr(self.fn, name):
            tx.raise_(AttributeError, name)
        return plain(self, tx, name)

    functions.real_attribute = real_attribute


@mutant("what modules of the library lack may come", "absence --only library --modes eager")
def modules_keep_lacking() -> None:
    classes.trusted = lambda name: False


@mutant(
    "the layout of an argument is not compared",
    "tensors --count 2000 --only 'argument' --modes aot_eager",
)
def layouts_are_alike() -> None:
    """A check of a tensor's layout that is always true."""
    plain = guards.GuardPrinter.check

    def check(self, node, value):
        if node.layout:
            node.layout = "layout({0}) is not None"
        plain(self, node, value)

    guards.GuardPrinter.check = check
