"""Finding what a test has just compiled among the records of all frames."""

from minidynamo import records


def last_compiled() -> records.FrameRecord:
    """The last frame that got a graph.

    Not simply `records.frames[-1]`: the garbage collector may run while a compiled function does,
    and a `__del__` or a callback that it calls is a frame, too, with a record and without a graph.
    """
    return next(record for record in reversed(records.frames) if record.graph is not None)
