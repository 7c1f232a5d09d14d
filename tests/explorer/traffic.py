"""Bytes of kernels against the interpreter of the loop IR, which writes down every element."""

import collections

import miniinductor
from minidynamo.explain.flow import buffers
from minidynamo.explain.traffic import traffic_of
from miniinductor.runtime import interpreter
from tests.front_helpers import clone_input
from tests.sweeps import graphs


class Watching(interpreter.InterpreterHandler):
    """touched: (buffer that is computed, "load" or "store", buffer) -> its elements."""

    touched = collections.defaultdict(set)

    def load(self, name, index):
        where = self.grid(interpreter.evaluate(index, self.values)).expand(self.shape)
        where = where if self.mask is None else where[self.mask.expand(self.shape)]
        self.touched[id(self), "load", name].update(where.reshape(-1).tolist())
        return super().load(name, index)

    def store(self, name, index, value, mode=None):
        where = self.grid(interpreter.evaluate(index, self.values))
        rest = [1] * (where.dim() - len(self.written))
        self.touched[name, "store", name].update(
            where.expand([*self.written, *rest]).flatten().tolist()
        )
        for maker, op, read in [key for key in self.touched if key[0] == id(self)]:
            self.touched[name, op, read] |= self.touched.pop((maker, op, read))
        return super().store(name, index, value, mode)


def wrong_kernels(seeds):
    """(kernels whose bytes are false, how many are exact, how many an upper bound)"""
    gm, inputs, *_ = graphs.batch(seeds)
    record = miniinductor.compile_fx(gm, [clone_input(t) for t in inputs]).record
    Watching.touched.clear()
    before, interpreter.InterpreterHandler = interpreter.InterpreterHandler, Watching
    try:
        interpreter.run_graph(record.lowered, [clone_input(t) for t in inputs])
    finally:
        interpreter.InterpreterHandler = before
    wrong, bounds = [], 0
    for name, told, is_sure in buffers(
        record, {}
    ):  # each alone; a library's kernel was not watched
        keys = [key for key in Watching.touched if key[0] == name]
        size = {key: record.schedule.buffers[key[2]].layout.dtype.itemsize for key in keys}
        seen = sum(size[key] * len(Watching.touched[key]) for key in keys)
        if keys and (seen > told if not is_sure else seen != told):
            wrong.append((name, told, seen))
    for kernel in record.kernels:
        told = traffic_of(kernel, record)
        read, written = (
            sum(
                record.schedule.buffers[name].layout.dtype.itemsize
                * len(set().union(*(Watching.touched[made, op, name] for made in kernel.nodes)))
                for name in names
            )
            for op, names in (("load", kernel.kernel.read), ("store", kernel.kernel.stored))
        )
        is_right = (read, written) == (told.read, told.written)
        if told.is_bound:
            is_right = read <= told.read <= kernel.bytes_read and written <= told.written
            bounds += 1
        if not is_right:
            wrong.append((kernel.name, kernel.nodes, told, read, written, kernel.bytes_read))
    return wrong, len(record.kernels) - bounds, bounds


def test_bytes_of_200_programs_are_those_that_the_interpreter_touches():
    found = [wrong_kernels(range(first, first + 10)) for first in range(0, 200, 10)]
    assert [wrong for wrong, _, _ in found if wrong] == []
    assert sum(exact for _, exact, _ in found) > sum(bounds for *_, bounds in found) > 20
