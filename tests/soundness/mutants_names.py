"""Mutants of what the generators `names` and `functions` look at.

What classes do not have is guarded, too.  `no ABSENT guards` of mutants_change.py takes that away,
and `change` notices; no case of `functions` does, so there is no second mutant of it here.
"""

from .mutants import mutant


@mutant("names: parameters keep their names", "names --count 40 --modes eager")
def parameters_keep_their_names() -> None:
    import re

    from minidynamo.guards import sources

    sources.TAKEN = re.compile("[LP]_.*")
    sources.builtins = None


@mutant("names: attributes of graphs may mean something", "names --count 60 --modes eager")
def nothing_is_reserved() -> None:
    from minidynamo.graph import output_graph as graph_capture

    graph_capture.reserved_names = lambda: set()


@mutant("names: sizes share their names", "names --count 80 --modes eager-dynamic,inductor-dynamic")
def sizes_share_their_names() -> None:
    import re

    from minidynamo.graph import output_graph as graph_capture

    graph_capture.SIZE = re.compile(r"(?!)")


@mutant(
    "names: constants are called what the program calls them", "names --count 80 --modes inductor"
)
def constants_keep_their_names() -> None:
    from miniinductor.autograd import tracer

    plain = tracer.Tracer.constant

    def constant(self, tensor, path=None):
        node = plain(self, tensor, path)
        if path in (None, node.target) or path in self.constants:
            return node
        self.constants[path] = self.constants.pop(node.target)
        node.target = path
        return node

    tracer.Tracer.constant = constant


def without(kind: str) -> None:
    """No guard of this kind is made."""
    from minidynamo.graph.output_graph import OutputGraph

    plain = OutputGraph.guard

    def guard(self, source, found, check, value=None):
        name = found if isinstance(found, str) else found[0]
        if name != kind:
            plain(self, source, found, check, value)

    OutputGraph.guard = guard


@mutant("functions: no guard of the code", "functions --modes eager")
def no_code() -> None:
    without("CODE")


@mutant("functions: no guard of the defaults", "functions --modes eager")
def no_defaults() -> None:
    without("DEFAULTS")


@mutant("functions: nothing of modules is guarded", "functions --modes eager")
def nothing_fixed() -> None:
    from minidynamo.graph.output_graph import OutputGraph

    OutputGraph.guard_fixed = lambda self, source, value: None


@mutant(
    "functions: replaced methods of tensors are taken for torch's",
    "functions --modes eager,inductor",
)
def replaced_methods() -> None:
    from minidynamo.graph import output_graph as graph_capture
    from minidynamo.variables import tensor

    graph_capture.replaced_in_tensor = lambda owner, name, found: False
    tensor.replaced_in_tensor = graph_capture.replaced_in_tensor


@mutant("functions: graphs call by name", "functions --modes eager")
def by_name() -> None:
    from minidynamo.graph import graph_module

    graph_module.check_names = lambda output, gm: None


@mutant("functions: attributes of functions are fixed", "functions --modes eager")
def fixed_attributes() -> None:
    from minidynamo.variables import functions

    functions.WRITABLE = frozenset()


@mutant("functions: the program's builtins are taken for Python's", "functions --modes eager")
def any_builtins() -> None:
    from minidynamo.convert import convert_frame

    convert_frame.replaced_needed = lambda: ""
