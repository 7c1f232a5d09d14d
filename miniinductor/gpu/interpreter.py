"""What Triton's interpreter lacks: libdevice, rounding to bfloat16, reductions with functions of
one's own in reasonable time.

In:   the file of a kernel.  Out: its function, to be called as `function[grid](...)` with CPU
      tensors.

    TRITON_INTERPRET=1 python ...

The interpreter runs a kernel's Python with numpy arrays as tiles.  torch's own functions stand in
for libdevice's, a division for PTX's reciprocal; float32 is rounded to bfloat16 instead of cut off;
a tile is reduced by folding it in halves, as a GPU does, instead of element by element; indices are
checked, and every address.
"""

import contextlib
import dataclasses
import importlib.util
import os
import threading

import numpy as np
import torch

from ..runtime.build import CompilerError


class Libdevice:
    """`libdevice.tanh(tile)`: torch.tanh on the numpy array behind the tile."""

    functions = {
        "rint": torch.round,
        "pow": torch.pow,
        "fmod": lambda a, b: torch.from_numpy(np.fmod(a.numpy(), b.numpy())),
        **{
            name: getattr(torch, name)
            for name in (
                "exp",
                "expm1",
                "log10",
                "log1p",
                "tan",
                "asin",
                "acos",
                "atan",
                "sinh",
                "cosh",
                "tanh",
                "asinh",
                "acosh",
                "atanh",
                "erfc",
                "erfinv",
                "lgamma",
                "trunc",
                "atan2",
                "copysign",
                "nextafter",
                "hypot",
            )
        },
    }

    def __getattr__(self, name):
        function = self.functions[name]

        def call(*tiles):
            import triton.language as tl
            from triton.runtime.interpreter import TensorHandle

            arrays = np.broadcast_arrays(*[t.handle.data for t in tiles])
            result = function(*[torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]).numpy()
            kind = tiles[0].dtype.scalar
            result = result.reshape(arrays[0].shape)  # a scalar is an array of one element
            is_tile = any(t.type.is_block() for t in tiles)
            return tl.core.tensor(
                TensorHandle(result, kind),
                tl.block_type(kind, list(result.shape)) if is_tile else kind,
            )

        return call


class CheckedMemory:
    """Triton's module of reads and writes; they must stay within the tensors that a kernel was
    given (memcheck for kernels that see no GPU)."""

    def __init__(self, own):
        self.own, self.running = own, threading.local()

    def __getattr__(self, name):
        return getattr(self.own, name)

    @contextlib.contextmanager
    def only(self, tensors):
        """A `with` block in which a kernel of this thread runs on these."""
        spans = sorted(
            (
                t.data_ptr(),
                t.data_ptr()
                + t.element_size() * (1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))),
            )
            for t in tensors
            if isinstance(t, torch.Tensor) and t.numel()
        )
        starts, ends = np.array(spans, np.uint64).reshape(-1, 2).T
        self.running.spans = starts, np.maximum.accumulate(ends)  # tensors may overlap
        try:
            yield
        finally:
            del self.running.spans

    def check(self, addresses, mask, size):
        used = addresses[mask.astype(bool)]
        if used.size and hasattr(self.running, "spans"):  # else a kernel that Triton alone runs
            starts, ends = self.running.spans
            span = np.searchsorted(starts, used, side="right") - 1
            if span.min() < 0 or (used + np.uint64(size) > ends[span]).any():
                raise IndexError("memory outside of the kernel's tensors")

    def load(self, addresses, mask, other, dtype):
        self.check(addresses, mask, np.dtype(dtype).itemsize)
        return self.own.load(addresses, mask, other, dtype)

    def store(self, addresses, values, mask):
        self.check(addresses, mask, values.itemsize)
        return self.own.store(addresses, values, mask)

    def atomic_rmw(self, operation, addresses, values, mask, order):
        self.check(addresses, mask, values.itemsize)
        return self.own.atomic_rmw(operation, addresses, values, mask, order)


def fold_in_halves(self, input):
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


def mend(interpreter):
    """Put our own in the place of what is slow or wrong there (once per process)."""
    import triton.language as tl

    builder = interpreter.InterpreterBuilder
    if interpreter.ReduceOps.generic_reduce is fold_in_halves:
        return
    interpreter.ReduceOps.generic_reduce = fold_in_halves
    interpreter._interpreter = CheckedMemory(interpreter._interpreter)
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, debug=True, sanitize_overflow=False
    )
    cast = builder.cast_impl

    def widened(source):  # bfloat16 tiles hold bits, not numbers
        return interpreter.TensorHandle(
            (source.data.astype(np.uint32) << 16).view(np.float32), tl.float32
        )

    def cast_and_round(self, source, target):
        if (
            source.get_element_ty() == tl.bfloat16 and target.scalar == tl.float32
        ):  # Triton's own gets denormal numbers wrong
            return widened(source)
        if source.get_element_ty() == tl.float32 and target.scalar == tl.bfloat16:
            rounded = (
                torch.from_numpy(np.ascontiguousarray(source.data))
                .bfloat16()
                .view(torch.int16)
                .numpy()
            )
            return interpreter.TensorHandle(
                rounded.view(np.uint16).reshape(source.data.shape), tl.bfloat16
            )
        return cast(self, source, target)

    builder.cast_impl = cast_and_round
    dot = builder.create_dot

    def dot_of_values(self, a, b, *rest):
        return dot(
            self, *[widened(t) if t.dtype.scalar == tl.bfloat16 else t for t in (a, b)], *rest
        )

    builder.create_dot = dot_of_values
    splat = builder.create_splat

    def splat_of_truth(
        self, shape, scalar
    ):  # the handle of a comparison says the dtype of what was compared
        truth = scalar.data.dtype == bool
        return splat(
            self, shape, interpreter.TensorHandle(scalar.data, tl.int1) if truth else scalar
        )

    builder.create_splat = splat_of_truth
    patch = interpreter._patch_lang_tensor

    def patch_and_index(
        tensor, scope
    ):  # Triton 3.6: numpy 2.4 makes no int of an array of one element
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_and_index
    np.seterr(all="ignore")  # tiles compute on elements that a mask hides


def load_interpreted(path, name):
    """The interpreted function `name` of the file.  Raises CompilerError if triton was imported
    without the interpreter."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise CompilerError("set TRITON_INTERPRET=1 before triton is imported")
    from triton.runtime import interpreter

    mend(interpreter)
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "libdevice"):
        module.libdevice = Libdevice()
    if hasattr(module, "reciprocal"):
        module.reciprocal = lambda x: 1 / x
    function = getattr(module, name)
    if not isinstance(function, interpreter.InterpretedFunction) or not isinstance(
        module.tl.sum, interpreter.InterpretedFunction
    ):
        raise CompilerError("triton was imported before TRITON_INTERPRET=1 was set")
    return CheckedKernel(function, interpreter._interpreter)


class CheckedKernel:
    """`kernel[grid](tensors, sizes, block sizes)`.  Raises InterpreterError where an address lies
    outside of the tensors."""

    def __init__(self, function, memory):
        self.function, self.memory = function, memory

    def __getitem__(self, grid):
        def run(*arguments, **named):
            with self.memory.only([*arguments, *named.values()]):
                self.function[grid](*arguments, **named)

        return run
