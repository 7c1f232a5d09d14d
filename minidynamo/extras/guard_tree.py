"""A faster text for guard functions: every prefix is read once.

In:   the tree of sources that every printer gets.   Out: its text, registered in `PRINTERS`.

    v1 = x.__dict__
    v2 = v1['config']
    if not (type(v2) is P_Config and v2.size == 3): return False

Without this file each guard reads the whole way from its argument: `x.__dict__['config'].size`.
"""

from collections.abc import Iterable

from ..graph_capture import OutputGraph
from ..guards import PRINTERS, Guard, GuardPrinter
from ..sources import Source, SourceTree
from .extending import extends

plain_symbols = OutputGraph.add_symbols


class TreePrinter(GuardPrinter):
    """The tree of sources as lines of Python, every prefix evaluated once.

    The printer of memo.py prints the tree in two sections, of which the first is skipped in most
    calls; here there is one section."""

    def __init__(self, tree: SourceTree, called: dict[str, str]) -> None:
        super().__init__(tree, called)
        self.indent = " " * 8
        self.count = 0
        # source -> the local or global of the check function that holds its value
        self.names = {pin: pin.key for pin in tree.pins.values()}
        self.names.update({node: called[name] for name, node in tree.locals.items()})
        self.needs: dict[Source, bool] = {}  # what `needed` has answered in this section
        self.pair_nodes: set[Source] = set()  # sources of its guards on several sources

    def print(self, state_guards: list[Guard], pair_guards: list[Guard]) -> None:
        tree = self.tree
        for node in tree.locals.values():
            self.argument(node, self.names[node])
        self.conditions(state_guards, "")
        for node in tree.frees.values():
            if node.guards or node.children or any(node in pair.source for pair in pair_guards):
                self.assign(node, None)
                self.conditions(node.guards.values(), self.names[node])
        for pin in tree.pins.values():
            pin.guards.pop("TYPE", None)  # the entry itself holds the object: it stays what it is
        roots = [*tree.locals.values(), *tree.frees.values(), *tree.pins.values()]
        self.sections(roots, pair_guards)

    # ---- what the printer of memo.py does in its own way
    def argument(self, node: Source, name: str) -> None:
        """The guards of an argument, or of a local behind a graph break."""
        self.conditions(node.guards.values(), name)

    def sections(self, roots: list[Source], pair_guards: list[Guard]) -> None:
        """Everything below the roots."""
        self.section(roots, pair_guards)

    def wanted(self, node: Source) -> list[Guard]:
        """The guards of `node` that belong to this section."""
        return list(node.guards.values())

    def is_read_on(self, node: Source) -> bool:
        """Does the value of `node` need a name?"""
        return bool(node.children) or node in self.pair_nodes

    def named(self, node: Source, name: str) -> None:
        """Called when the value of `node` was given a name in the text."""

    # ---- printing
    def section(self, roots: list[Source], pair_guards: list[Guard]) -> None:
        self.needs = {}
        self.pair_nodes = {node for guard in pair_guards for node in guard.source}
        for root in filter(self.needed, roots):
            name = self.names[root]
            self.named(root, name)
            if root.kind == "pinned":
                self.conditions(self.wanted(root), name)
            self.below(root, name)
        for guard in pair_guards:  # identity between sources, last: both sides have names by now
            self.conditions([guard], *[self.names[node] for node in guard.source])

    def needed(self, node: Source) -> bool:
        """Is there anything to look at in this section, at `node` or below?"""
        if not node.children and not node.guards:
            return node in self.pair_nodes
        found = self.needs.get(node)
        if found is None:
            below = [self.needed(child) for child in node.children.values()]
            own = node in self.pair_nodes or bool(self.wanted(node))
            found = self.needs[node] = own or any(below)
        return found

    def below(self, node: Source, name: str) -> None:
        """The guards of everything below `node`, whose value is called `name`.

        A child that has children gets a name, and so a line, of its own.  The others, most of them,
        are leaves, of which eight share a line: `if not (x.a is P_a and ...): return False`.
        """
        leaves: list[str] = []
        inner = []
        for child in filter(self.needed, node.children.values()):
            if self.is_read_on(child):
                inner.append(child)
            else:
                leaves += self.leaf_conditions(child, child.expr(name))
        for start in range(0, len(leaves), 8):
            self.line(leaves[start : start + 8])
        for child in inner:
            below = self.assign(child, name)
            self.named(child, below)
            self.conditions(self.wanted(child), below)
            self.below(child, below)

    def leaf_conditions(self, node: Source, value: str) -> list[str]:
        """Conditions on `value`, an expression like `v1.scale`."""
        return [self.render(guard, value) for guard in self.wanted(node)]

    def conditions(self, guards: Iterable[Guard], *names: str) -> None:
        self.line([self.render(guard, *names) for guard in guards])

    def line(self, conditions: list[str]) -> None:
        if conditions:
            self.lines.append(f"{self.indent}if not ({' and '.join(conditions)}): return False")

    def render(self, guard: Guard, *names: str) -> str:
        self.note(guard)
        return guard.check.format(*names)

    def assign(self, node: Source, parent: str | None) -> str:
        self.count += 1
        labels = vars(self.tree).get("labels", {})
        name = self.names[node] = labels.get(node) or f"v{self.count}"
        self.lines.append(f"{self.indent}{name} = {node.expr(parent)}")
        return name


@extends(OutputGraph)
def add_symbols(output: OutputGraph) -> None:
    """The local that holds the value of a symbolic size is called as the symbol is: `s0`."""
    plain_symbols(output)
    labels = vars(output.tree).setdefault("labels", {})
    for symbol, row in output.shape_env.table.items():
        if row.sources and symbol.is_integer and row.sources[0].kind != "local":
            labels[row.sources[0]] = symbol.name


PRINTERS.append(TreePrinter)
