"""The compiler that the student keeps: pieces, stubs, and who stands in for what is missing.

In:   the name of a piece, such as "graph".
Out:  `begin` writes the piece's file into the student's own package, `my_compiler/` beside the
      notebooks (the variable MY_COMPILER names another folder): whole, but for the functions that
      are the student's part.
      `own()` imports that package.  What is not written yet is taken from the reference, and
      which functions those are is said aloud.

    >>> from exercises.own_compiler import begin, own
    >>> begin("graph")                      # my_compiler/graph.py, to be opened and filled in
    >>> compiler = own()                    # the package as it is now
    graph.py: the reference stands in for without_repetition
    >>> compiler.compile(f)(x)

The reference is one text, `reference/my_compiler/`: stubs and solutions are both made of it.  In
the students' tree it is one packed file (`pack`), so that nobody reads it by accident.
"""

import ast
import base64
import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parent.parent
REFERENCE = NOTEBOOKS / "reference" / "my_compiler"
PACKED = NOTEBOOKS / "reference" / "my_compiler.packed"
STUDENT = Path(os.environ.get("MY_COMPILER") or NOTEBOOKS / "my_compiler")
EMPTY = 'raise NotImplementedError("your turn")'
EMPTY_CURIOUS = 'raise NotImplementedError("your turn, if you are curious")'
RAN: set[tuple[str, str]] = set()  # (piece, part) of the reference that ran: a check empties it


@dataclass(frozen=True)
class Piece:
    """A file of the compiler.  chapter: the notebook it belongs to.  The student writes functions,
    "function" or "Class.method": everyone those of `everyone`, the curious those of `curious`, too.
    """

    chapter: str
    everyone: tuple[str, ...]
    curious: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.everyone, *self.curious)


# piece: (its chapter, what everyone writes, what the curious add).  What everyone writes captures,
# differentiates, fuses and trains the GPT of the capstone, and calls nothing of the curious.
PARTS = {
    "graph": (
        "02",
        """
        Node.mean Node.reshape Node.transpose Node.dims broadcast _matmul Graph.run
        without_dead_code without_repetition softmax layer_norm gelu linear cross_entropy
        """,
        "",
    ),
    "hook": ("03", "Compiler.frame compile", ""),
    "machine": (
        "04",
        """
        Machine.step Machine.LOAD_FAST Machine.STORE_FAST Machine.COPY Machine.SWAP
        Machine.LOAD_GLOBAL Machine.attribute Machine.BINARY_SUBSCR Machine.BUILD_TUPLE
        Machine.UNPACK_SEQUENCE Machine.BINARY_OP Machine.COMPARE_OP Machine.truth
        Machine.POP_JUMP_IF_FALSE Machine.POP_JUMP_IF_TRUE Machine.GET_ITER Machine.FOR_ITER
        Machine.call Machine.inline
        """,
        "",
    ),
    "guards": (
        "05",
        """
        same tensor_fits Guards.equals Guards.tensor Guards.build Capture.wrap
        Capture.object Capture.tensor Capture.items Capture.attribute
        """,
        "Capture.symbol",
    ),
    "breaks": (
        "06",
        "evaluate split Entry.prefix",
        """
        Entry._guard_names Entry._guard_facts Entry._rest Entry._resume end_of_statement
        resume_code
        """,
    ),
    "effects": (
        "07",
        "",
        """
        Journal.append Journal.set_item Journal.set_attribute Journal.note Journal.items_of
        Journal.back_to replay
        """,
    ),
    "autograd": (
        "08",
        """
        fit _mul _div _maximum _sum _amax _spread _matmul _permute differentiate computed_of
        cut part
        """,
        "",
    ),
    "loops": (
        "09",
        """
        at loads operations Lowering.lower Lowering.is_dear Lowering.element
        Lowering.pointwise Lowering.permute Lowering.reshape Lowering.store
        Lowering.reduction Lowering.extern Lowering.operand
        """,
        "",
    ),
    "fusion": (
        "10",
        """
        shared_bytes may_be_fused Plan.before Plan.leads_around Plan.candidates
        Plan.fuse_best Plan.replace Plan.in_order fuse
        """,
        "",
    ),
    "cpp": (
        "11",
        """
        offset takes passes stored_buffers Writer.row_loops Writer.walk Writer.step Writer.end
        Writer.text Writer.number
        """,
        "",
    ),
    "gpu": (
        "12",
        "",
        """
        TritonWriter.source TritonWriter.step TritonWriter.place TritonWriter.number
        TritonWriter.build
        """,
    ),
    "program": (
        "13",
        """
        Program.wrapper Program.call_of Memory.read_elsewhere Memory.take Memory.dead_after
        Differentiable.__init__ Boundary.backward compile_graph
        """,
        "",
    ),
    "sizes": ("14", "plain text_of product", "_computed _compared changed"),
}
PIECES = {
    name: Piece(chapter, tuple(everyone.split()), tuple(curious.split()))
    for name, (chapter, everyone, curious) in PARTS.items()
}


# --- stubs ----------------------------------------------------------------------------------------
def functions(source: str) -> dict[str, ast.FunctionDef]:
    """{"function" or "Class.method": its definition} of a file."""
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        if isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            found |= {f"{node.name}.{method.name}": method for method in methods}
    return found


def body_lines(function: ast.FunctionDef) -> range:
    """The lines behind its docstring, counted from 0."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    statements = function.body[1:] if is_docstring else function.body
    return range(statements[0].lineno - 1, (function.end_lineno or 0))


def with_bodies(source: str, bodies: dict[str, list[str]]) -> str:
    """The file with other bodies for these functions."""
    lines = source.splitlines()
    defined = functions(source)
    for name in sorted(bodies, key=lambda name: -defined[name].lineno):
        place = body_lines(defined[name])
        lines[place.start : place.stop] = bodies[name]
    return "\n".join(lines) + "\n"


def pack() -> bytes:
    """The reference's files as one text that cannot be read at a glance."""
    texts = {path.stem: path.read_text() for path in sorted(REFERENCE.glob("*.py"))}
    return base64.b85encode(zlib.compress(json.dumps(texts).encode(), 9))


@functools.cache
def packed() -> dict[str, str]:
    """{piece: its text} of the packed file, {} where there is none."""
    return (
        json.loads(zlib.decompress(base64.b85decode(PACKED.read_bytes())))
        if PACKED.exists()
        else {}
    )


def has_reference(piece: str) -> bool:
    return (REFERENCE / f"{piece}.py").exists() or piece in packed()


def reference(piece: str) -> str:
    path = REFERENCE / f"{piece}.py"
    return path.read_text() if path.exists() else packed()[piece]


def stub(piece: str) -> str:
    """The file as the student gets it."""
    source = reference(piece)
    defined = functions(source)
    bodies = dict.fromkeys(PIECES[piece].everyone, EMPTY)
    bodies |= dict.fromkeys(PIECES[piece].curious, EMPTY_CURIOUS)
    indents = {name: " " * (defined[name].col_offset + 4) for name in bodies}
    return with_bodies(source, {name: [indents[name] + body] for name, body in bodies.items()})


def begin(piece: str, folder: Path = STUDENT) -> Path:
    """Write the piece's file into the student's package, unless it is there.  Its path.

    Raises KeyError, which names the pieces, for one that there is not."""
    if piece not in PIECES:
        raise KeyError(f"there is no piece {piece!r}; there are {', '.join(PIECES)}")
    folder.mkdir(exist_ok=True)
    for name in ("__init__", piece):
        path = folder / f"{name}.py"
        if not path.exists():
            path.write_text(reference(name) if name == "__init__" else stub(piece))
    path = folder / f"{piece}.py"
    everyone, curious = PIECES[piece].everyone, PIECES[piece].curious
    wanted = [f"everyone writes {', '.join(everyone)}"] if everyone else []
    wanted += [f"the curious add {', '.join(curious)}"] if curious else []
    print(f"{path.relative_to(folder.parent)}: {'; '.join(wanted)}")
    return path


def lines_to_write(piece: str, curious: bool = False) -> int:
    """How many lines of the piece everyone writes; curious: how many the curious add."""
    source = reference(piece)
    lines, defined = source.splitlines(), functions(source)
    parts = PIECES[piece].curious if curious else PIECES[piece].everyone
    places = [n for name in parts for n in body_lines(defined[name])]
    return sum(bool(lines[n].strip()) for n in places)


def two_sizes() -> str:
    """A table of the pieces: the lines that everyone writes, and those that the curious add."""
    rows = [(name, lines_to_write(name), lines_to_write(name, curious=True)) for name in PIECES]
    rows.append(("in all", *(sum(row[place] for row in rows) for place in (1, 2))))
    lines = [f"{'chapter':8} {'piece':9} {'everyone':>9} {'the curious':>12}"]
    for name, *counts in rows:
        chapter = PIECES[name].chapter if name in PIECES else ""
        everyone, curious = (f"{count} lines" if count else "" for count in counts)
        lines.append(f"{chapter:8} {name:9} {everyone:>9} {curious:>12}".rstrip())
    return "\n".join(lines)


# --- the package ----------------------------------------------------------------------------------
def missing(source: str, parts: tuple[str, ...]) -> list[str]:
    """The parts that are not there, or still say "your turn"."""
    defined = functions(source)
    lines = source.splitlines()
    return [
        name
        for name in parts
        if name not in defined
        or any(
            empty in lines[n] for n in body_lines(defined[name]) for empty in (EMPTY, EMPTY_CURIOUS)
        )
    ]


def completed(piece: str, source: str) -> tuple[str, list[str]]:
    """The student's file with the reference's bodies where the student's are missing, and the
    names of those."""
    names = missing(source, PIECES[piece].parts)
    theirs = reference(piece)
    defined, lines = functions(theirs), theirs.splitlines()
    absent = [name for name in names if name not in functions(source)]
    if absent:
        raise SyntaxError(f"{piece}.py: {', '.join(absent)} cannot be found any more")
    bodies = {name: [lines[n] for n in body_lines(defined[name])] for name in names}
    return with_bodies(source, bodies), names


def noted(piece: str, source: str, parts: list[str]) -> str:
    """The file, in which these parts, which are the reference's, write down that they ran."""
    defined, lines = functions(source), source.splitlines()
    bodies = {}
    for part in parts:
        indent = " " * (defined[part].col_offset + 4)
        body = [lines[n] for n in body_lines(defined[part])]
        bodies[part] = [f"{indent}_reference_ran(({piece!r}, {part!r}))", *body]
    return with_bodies(source, bodies)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `my_compiler` from the student's folder, and what is not there from the reference."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole: list[str] = []  # pieces that are the reference's, not told yet
        self.is_first_import = True

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "my_compiler":
            return None
        piece = name.partition(".")[2]
        is_package = not piece
        if piece and not has_reference(piece):
            return None
        spec = importlib.util.spec_from_loader(name, self, is_package=is_package)
        own_file = self.folder / f"{piece or '__init__'}.py"
        spec.origin = str(own_file if own_file.exists() else REFERENCE / own_file.name)
        spec.has_location = True
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        path = Path(module.__spec__.origin)
        piece = path.stem
        source = path.read_text() if path.exists() else reference(piece)
        names: list[str] = []
        if path.parent == self.folder and piece in PIECES:
            source, names = completed(piece, source)
            source = noted(piece, source, names)
        elif piece in PIECES:
            source = noted(piece, source, [*PIECES[piece].parts])
        module.__dict__["_reference_ran"] = RAN.add
        if piece in PIECES and (path.parent != self.folder or names == [*PIECES[piece].parts]):
            names = []  # told in one line with others that were not begun
            module.__dict__["_is_begun"] = False
            self.whole.append(piece)
        if not self.is_first_import:
            self.tell()
        if names:
            print(f"{piece}.py: the reference stands in for {', '.join(names)}")
        exec(compile(source, str(path), "exec"), module.__dict__)

    def tell(self) -> None:
        """One line for the pieces that were not begun: a dozen of them would hide the table."""
        if self.whole:
            print(f"not begun, the reference stands in: {', '.join(sorted(self.whole))}")
        self.whole.clear()
        self.is_first_import = False


def own(folder: Path = STUDENT):
    """The student's package as its files are now; the module `my_compiler`.

    Raises SyntaxError for a file that Python cannot read, with its line."""
    forget()
    finder = Finder(folder)
    sys.meta_path.insert(0, finder)
    package = importlib.import_module("my_compiler")
    finder.tell()
    return package


def forget() -> None:
    """As if it had never been imported."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    for name in [name for name in sys.modules if name.split(".")[0] == "my_compiler"]:
        del sys.modules[name]
