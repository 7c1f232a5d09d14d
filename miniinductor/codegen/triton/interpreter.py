"""What Triton's interpreter lacks: libdevice, rounding to bfloat16, reductions with functions of
one's own in reasonable time.

In:   the file of a kernel.  Out: its function, to be called as `function[grid](...)` with CPU
      tensors.

    TRITON_INTERPRET=1 python ...

The interpreter runs a kernel's Python with numpy arrays as tiles.  torch's own functions stand in
for libdevice's; float32 is rounded to bfloat16 instead of cut off; a tile is reduced by folding it
in halves, as a GPU does, instead of element by element; indices are checked.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...toolchain.cpp import CompilerError
from .block_sizes import is_interpreting

# functions of libdevice that torch has not, or calls otherwise
OTHERWISE: dict[str, Callable[..., torch.Tensor]] = {
    "rint": torch.round,
    "fmod": lambda a, b: torch.from_numpy(np.fmod(a.numpy(), b.numpy())),
}


class Libdevice:
    """`libdevice.tanh(tile)`: torch.tanh on the numpy array behind the tile."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = OTHERWISE[name] if name in OTHERWISE else getattr(torch, name)

        def call(*tiles: Any) -> Any:
            import triton.language as tl
            from triton.runtime.interpreter import TensorHandle

            arrays = np.broadcast_arrays(*[t.handle.data for t in tiles])
            result = function(*[torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]).numpy()
            result = result.reshape(arrays[0].shape)  # a scalar is an array of one element
            kind = element = tiles[0].dtype.scalar
            if any(t.type.is_block() for t in tiles):
                kind = tl.block_type(element, list(result.shape))
            return tl.core.tensor(TensorHandle(result, element), kind)

        return call


# --- what is slow or wrong in Triton's own --------------------------------------------------------
def mend(interpreter: Any) -> None:
    """Put our own in the place of what is slow or wrong there (once per process)."""
    if interpreter.ReduceOps.generic_reduce is fold_in_halves:
        return
    interpreter.ReduceOps.generic_reduce = fold_in_halves
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, debug=True, sanitize_overflow=False
    )
    mend_bfloat16(interpreter)
    mend_scalars(interpreter)
    np.seterr(all="ignore")  # tiles compute on elements that a mask hides


def fold_in_halves(self: Any, input: Any) -> Any:
    """ReduceOps.generic_reduce for tiles whose reduced side is a power of two: log2(n) calls on
    arrays."""
    axis = self.axis
    arrays = [t.handle.data for t in input]
    while arrays[0].shape[axis] > 1:
        half = arrays[0].shape[axis] // 2
        parts = [np.split(a, [half], axis) for a in arrays]
        sides = [
            [self.to_tensor(p[side], t.dtype) for p, t in zip(parts, input)] for side in (0, 1)
        ]
        combined = self.combine_fn.fn(*sides[0], *sides[1])
        arrays = [t.handle.data for t in (combined if isinstance(combined, tuple) else (combined,))]
    if not self.keep_dims:
        arrays = [a.squeeze(axis) for a in arrays]
    return [self.to_tensor(a, t.dtype) for a, t in zip(arrays, input)]


def mend_bfloat16(interpreter: Any) -> None:
    """Tiles of bfloat16 hold bits, not numbers.  Triton's own conversions cut off instead of
    rounding, and get denormal numbers wrong."""
    import triton.language as tl

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast, dot = builder.cast_impl, builder.create_dot

    def widened(source: Any) -> Any:
        return handle((source.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def rounded(source: Any) -> Any:
        bits = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16().view(torch.int16)
        return handle(bits.numpy().view(np.uint16).reshape(source.data.shape), tl.bfloat16)

    def cast_and_round(self: Any, source: Any, target: Any) -> Any:
        kinds = source.get_element_ty(), target.scalar
        if kinds == (tl.bfloat16, tl.float32):
            return widened(source)
        return rounded(source) if kinds == (tl.float32, tl.bfloat16) else cast(self, source, target)

    def dot_of_values(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        wide = [widened(t) if t.dtype.scalar == tl.bfloat16 else t for t in (a, b)]
        return dot(self, *wide, *rest)

    builder.cast_impl, builder.create_dot = cast_and_round, dot_of_values


def mend_scalars(interpreter: Any) -> None:
    import triton.language as tl

    splat, patch = interpreter.InterpreterBuilder.create_splat, interpreter._patch_lang_tensor

    def splat_of_truth(self: Any, shape: Any, scalar: Any) -> Any:
        """The handle of a comparison says the dtype of what was compared."""
        if scalar.data.dtype == bool:
            scalar = interpreter.TensorHandle(scalar.data, tl.int1)
        return splat(self, shape, scalar)

    def patch_and_index(tensor: Any, scope: Any) -> None:
        """Triton 3.6: numpy 2.4 makes no int of an array of one element."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter.InterpreterBuilder.create_splat = splat_of_truth
    interpreter._patch_lang_tensor = patch_and_index


# --- kernels --------------------------------------------------------------------------------------
def load_interpreted(path: str, name: str) -> Any:
    """The interpreted function `name` of the file.  Raises CompilerError if triton was imported
    without the interpreter."""
    if not is_interpreting():
        raise CompilerError("set TRITON_INTERPRET=1 before triton is imported")
    from triton.runtime import interpreter

    mend(interpreter)
    names: dict[str, Any] = {"__name__": name}
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), names)
    function, tl = names[name], names["tl"]
    if not all(isinstance(f, interpreter.InterpretedFunction) for f in (function, tl.sum)):
        raise CompilerError("triton was imported before TRITON_INTERPRET=1 was set")
    names["libdevice"] = Libdevice()
    return function
