"""Mutants that `c_objects` and `endless` must notice."""

from minidynamo.evaluate import operations
from minidynamo.graph.output_graph import OutputGraph
from minidynamo.variables import dicts, functions, iterators, sequences
from minidynamo.variables import dicts as containers

from .mutants import mutant

CONSUME = "c_objects --count 0 --only consume"
METHODS = "c_objects --count 300 --only methods"


@mutant("bound-descriptors-are-methods", "c_objects --only names.*builtins.ValueError")
def all_are_methods() -> None:
    functions.BOUND.clear()


@mutant("update-takes-all-first", f"{CONSUME}.*t.update.{{p}}")
def greedy_update() -> None:
    real = containers.dict_pairs
    containers.dict_pairs = lambda tx, other: list(real(tx, other))


@mutant("sort-leaves-the-list", f"{CONSUME}.*t.sort")
def sort_in_place() -> None:
    def sort(self, tx, /, *, key=None, reverse=containers.ConstantVar(False)):
        self.items[:] = tx.sorted(list(self.iterate(tx)), key, reverse)
        self._changed()

    sequences.ListVar.method_sort = sort


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

    dicts.SetVar.method_add = method_add


@mutant("sets-are-made-again", "c_objects --count 600 --only sets")
def forgetful_sets() -> None:
    real = dicts.SetVar.iterate

    def iterate(self, tx):
        self.table = sets.added(self.items)
        return real(self, tx)

    dicts.SetVar.iterate = iterate


@mutant("walks-count-no-steps", "endless --limit 20")
def no_counting() -> None:
    OutputGraph.count_step = lambda output: None
