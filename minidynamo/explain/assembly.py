"""The machine code of kernels: the innermost loops of those in C++, PTX of those in Triton.

In:   the records of a compiled half's kernels.   Out: for each the text of its machine code, ""
      where nobody can tell it.  A line of it begins with the number of the kernel's line.

    >>> e = minidynamo.explain(f, assembly=True)(torch.randn(64, 1000))
    >>> print(e.to_json()["frames"][0]["entries"][0]["kernels"][0]["assembly"])
    a loop of ... instructions
        ...

The compiler writes all kernels of a half as assembly, with the flags with which it has built them
and with line numbers: `#line 1 "kernel3"` stands before the third.  PTX is written by the process
that compiles Triton's kernels, on a machine with a GPU.
"""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from miniinductor.errors import CompilerError
from miniinductor.toolchain import compiler_command, prelude

MOST_LINES = 400  # of one kernel


def of_kernels(kernels: Sequence[Any]) -> list[str]:
    """The texts of these `KernelRecord`s."""
    in_cpp = {kernel.name: kernel for kernel in kernels if kernel.language == "cpp"}
    found = of_cpp([*in_cpp.values()]) if in_cpp else {}
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        found |= {one.name: ptx(one, device) for one in kernels if one.language == "triton"}
    return [cut(found.get(kernel.name, "")) for kernel in kernels]


def cut(text: str) -> str:
    lines = text.split("\n")
    if len(lines) <= MOST_LINES:
        return text
    return "\n".join([*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} more lines"])


# --- C++ ------------------------------------------------------------------------------------------
def of_cpp(kernels: Sequence[Any]) -> dict[str, str]:
    """{name: its innermost loops}; empty where there is no compiler that writes assembly."""
    numbered = [f'#line 1 "kernel{n}"\n{kernel.source}' for n, kernel in enumerate(kernels)]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "kernels.cpp"), Path(folder, "kernels.s")
        source.write_text("\n".join([prelude(), *numbered]))
        try:
            command = [*compiler_command(), "-S", "-g1", str(source), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, check=False)
            text = target.read_text() if done.returncode == 0 else ""
        except (OSError, CompilerError):
            return {}
    functions = [*functions_of(text)]
    found = {}
    for number, kernel in enumerate(kernels):
        loops = [
            loop
            for function in functions
            if function.name == kernel.name or function.name.startswith(kernel.name + ".")
            for loop in function.innermost_loops(f"kernel{number}")
        ]
        found[kernel.name] = "\n\n".join(loops) or (text and "no loop is left in the machine code")
    return found


@dataclass
class Function:
    """One function of an assembly file: (instruction, its file and line in the source)."""

    name: str
    lines: list[tuple[str, str, int]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # label -> the instruction behind it

    def innermost_loops(self, file: str) -> Iterator[str]:
        """Instructions from a label to the jump back to it, where no such loop lies within."""
        loops = []
        for at, (text, _, _) in enumerate(self.lines):
            start = self.labels.get(text.split()[-1].rpartition(",")[2], at + 1)
            if start <= at:
                loops.append((start, at))
        for start, end in loops:
            if not any(start <= a and b <= end and (a, b) != (start, end) for a, b in loops):
                yield self.loop(self.lines[start : end + 1], file)

    def loop(self, lines: Sequence[tuple[str, str, int]], file: str) -> str:
        texts = [f"{line if path == file else '':>5}  {text}" for text, path, line in lines]
        return "\n".join([f"a loop of {len(lines)} instructions", *texts])


def functions_of(text: str) -> Iterator[Function]:
    """The functions of an assembly file, as GCC and Clang write them for GNU's assembler."""
    files: dict[str, str] = {}
    function, place = Function(""), ("", 0)
    for row in text.splitlines():
        words = row.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == ".file" and len(words) > 2:
            named = [word.strip('"') for word in words[2:]]
            files[words[1]] = next((name for name in named if name.startswith("kernel")), "")
        elif words[0] == ".loc":
            place = files.get(words[1], ""), int(words[2])
        elif words[0].endswith(":"):
            label = words[0][:-1]
            if label.startswith("."):
                function.labels[label] = len(function.lines)
            else:
                yield function
                function = Function(label)
        elif not words[0].startswith("."):
            function.lines.append((" ".join(words), *place))
    yield function


# --- Triton ---------------------------------------------------------------------------------------
def ptx(record: Any, device: torch.device) -> str:
    """The instructions of a kernel as it was compiled for this GPU."""
    from miniinductor.codegen.triton import build

    kernel = record.kernel
    code = build.CudaCode(kernel, build.named_source(kernel), device, is_tuned=False)
    job = code.job(code.configs[0], code.here)
    answer = build.compile_all([{**job, "kinds": ["ptx"]}])[job["kept"]]
    return numbered(answer["ptx"], Path(job["path"]).name) if "ptx" in answer else ""


def numbered(text: str, file: str) -> str:
    """PTX without directives, each instruction with its line of the kernel, which lies in `file`;
    of what Triton's own functions do, no line."""
    found, line = [], ""
    rows = [row.split() for row in text.splitlines()]
    named = [words for words in rows if words[:1] == [".file"]]
    numbers = {words[1] for words in named if words[2].strip('"').endswith(file)}
    for words in rows:
        if words and words[0] == ".loc":
            line = words[2] if words[1] in numbers else ""
        elif words and not words[0].startswith((".", "//", "{", "}", ")")):
            found.append(f"{line:>5}  {' '.join(words)}")
    return "\n".join(found)
