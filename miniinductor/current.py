"""A value that a `with` block sets for the thread it runs in: the handler, the graph under
construction, what is known of sizes.

>>> handler = Current("none")
>>> with handler.set("a handler"):
...     handler.value
'a handler'
>>> handler.value
'none'
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


class Current(threading.local):
    def __init__(self, value: Any = None) -> None:
        self.value = value  # what every thread begins with

    @contextlib.contextmanager
    def set(self, value: Any) -> Iterator[Any]:
        before, self.value = self.value, value
        try:
            yield value
        finally:
            self.value = before
