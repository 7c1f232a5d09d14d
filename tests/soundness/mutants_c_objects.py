"""Mutants that `c_objects` and `endless` must notice."""

from minidynamo.graph_capture import OutputGraph
from minidynamo.symbolic_eval import class_checks, operations
from minidynamo.variables import bounds, containers, functions, iterators

from .mutants import mutant

CONSUME = "c_objects --count 0"
NAMES = "c_objects --count 0"
OPERATIONS = "c_objects --count 0"


@mutant("attributes-of-c-types-do-not-exist", NAMES)
def no_inheritance() -> None:
    def getattr_(self, tx, name):
        tx.raise_(AttributeError, f"'functools.partial' object has no attribute {name!r}")

    functions.PartialVar.getattr = getattr_


@mutant("bound-descriptors-are-methods", NAMES)
def all_are_methods() -> None:
    functions.BOUND.clear()


@mutant("extendleft-takes-all-first", CONSUME)
def greedy_extendleft() -> None:
    def extendleft(self, tx, values, /):
        for value in list(values.iterate(tx)):
            self.method_appendleft(tx, value)

    containers.ListVar.method_extendleft = extendleft


@mutant("update-takes-all-first", CONSUME)
def greedy_update() -> None:
    real = containers.dict_pairs
    containers.dict_pairs = lambda tx, other, live=False: list(real(tx, other, live))


@mutant("sort-leaves-the-list", CONSUME)
def sort_in_place() -> None:
    def sort(self, tx, /, *, key=None, reverse=containers.ConstantVar(False)):
        self.items[:] = tx.sorted(list(self.iterate(tx)), key, reverse)
        self._changed()

    containers.ListVar.method_sort = sort


@mutant("no-length-hint", CONSUME)
def no_hint() -> None:
    operations.Operations.length_hint = lambda self, values: None


@mutant("generators-are-dropped", CONSUME)
def never_closed() -> None:
    iterators.GeneratorVar.must_be_closed = lambda self: False


@mutant("sets-keep-the-last-key", CONSUME)
def last_key() -> None:
    def of(cls, tx, values, kind=set):
        return cls({value.hash_key(tx): value for value in values}, kind)

    containers.SetVar.of = classmethod(of)


@mutant("protocols-are-classes", OPERATIONS)
def protocols_by_type() -> None:
    class_checks.fulfils = lambda tx, value, protocol: protocol in value.python_type().__mro__


@mutant("walks-count-no-steps", "endless --limit 20")
def no_counting() -> None:
    OutputGraph.count_step = lambda output: None


@mutant("constants-of-any-size", "endless --limit 20")
def no_bounds() -> None:
    bounds.ESTIMATES.clear()
