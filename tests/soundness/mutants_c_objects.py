"""Mutants that `c_objects` and `endless` must notice."""

from minidynamo.graph_capture import OutputGraph
from minidynamo.rules import c_methods, classes
from minidynamo.symbolic_eval import operations
from minidynamo.variables import containers, iterators
from minidynamo.variables.more import container_methods, deques, functions, partials, sets

from .mutants import mutant

CONSUME = "c_objects --count 0 --only consume"
METHODS = "c_objects --count 300 --only methods"


@mutant("attributes-of-c-types-do-not-exist", "c_objects --only names.*functools.partial")
def no_inheritance() -> None:
    def getattr_(self, tx, name):
        tx.raise_(AttributeError, f"'functools.partial' object has no attribute {name!r}")

    partials.PartialVar.getattr = getattr_


@mutant("bound-descriptors-are-methods", "c_objects --only names.*builtins.ValueError")
def all_are_methods() -> None:
    functions.BOUND.clear()


@mutant("extendleft-takes-all-first", f"{CONSUME}.*extendleft")
def greedy_extendleft() -> None:
    def extendleft(self, tx, values, /):
        for value in list(values.iterate(tx)):
            self.method_appendleft(tx, value)

    deques.DequeVar.method_extendleft = extendleft


@mutant("update-takes-all-first", f"{CONSUME}.*t.update.{{p}}")
def greedy_update() -> None:
    real = container_methods.dict_pairs
    container_methods.dict_pairs = lambda tx, other, live=False: list(real(tx, other, live))


@mutant("sort-leaves-the-list", f"{CONSUME}.*t.sort")
def sort_in_place() -> None:
    def sort(self, tx, /, *, key=None, reverse=containers.ConstantVar(False)):
        self.items[:] = tx.sorted(list(self.iterate(tx)), key, reverse)
        self._changed()

    container_methods.ListVar.method_sort = sort


@mutant("no-length-hint", f"{CONSUME}.*Hinted")
def no_hint() -> None:
    operations.Operations.length_hint = lambda self, values: None


@mutant("generators-are-dropped", f"{CONSUME}.*next.*generated")
def never_closed() -> None:
    iterators.GeneratorVar.must_be_closed = lambda self: False


@mutant("sets-keep-the-last-key", f"{CONSUME}.*True")
def last_key() -> None:
    def method_add(self, tx, value, /):
        self.items[value.hash_key(tx)] = value
        self.table.add(value.hash_key(tx))

    sets.SetVar.method_add = method_add


@mutant("sets-are-made-again", "c_objects --count 600 --only sets")
def forgetful_sets() -> None:
    def ordered(self, tx):
        return sets.added(self.items)

    sets.SetVar.ordered = ordered


@mutant("any-number-of-arguments", METHODS)
def unasked_signatures() -> None:
    c_methods.takes = lambda descriptor, args, kwargs: True


@mutant("protocols-are-classes", "c_objects --only operations.*builtins.float")
def protocols_by_type() -> None:
    classes.fulfils = lambda tx, value, protocol: protocol in value.python_type().__mro__


@mutant("walks-count-no-steps", "endless --limit 20")
def no_counting() -> None:
    OutputGraph.count_step = lambda output: None
