"""What lies on the stack in an `except` block, and how a graph break carries it on.

In:   the kinds of slots that `resume` has.   Out: two more.

    except KeyError:
        print("hello")          # a graph break: KeyError is still handled behind it
        raise

An exception that is being handled belongs to the thread, as does what it displaced: the caller ends
the handling, the resume function begins it again (PUSH_EXC_INFO), so that `raise`,
`sys.exc_info()` and the context of a new exception find it.
"""

import sys

from ..bytecode import Instruction, emit
from ..resume import CARRIED, RESTORES, SAVES

# LASTI: the place where a handler's exception was raised, from which its traceback was made.
# HANDLED: what PUSH_EXC_INFO has put below the exception that is being handled, and POP_EXCEPT will
# restore.  The parameter for it is that exception.
LASTI, HANDLED = "l", "h"


def end_handling(name: str) -> list[Instruction]:
    handled = emit.call(emit.load_const(sys.exception))
    return handled + emit.store_fast(name) + [Instruction("POP_EXCEPT")]


def begin_handling(name: str) -> list[Instruction]:
    return emit.load_fast(name) + [Instruction("PUSH_EXC_INFO"), Instruction("POP_TOP")]


CARRIED.add(HANDLED)
SAVES[LASTI], SAVES[HANDLED] = emit.store_fast, end_handling
# LASTI: any number will do, the traceback is made already
RESTORES[LASTI], RESTORES[HANDLED] = lambda name: emit.load_const(0), begin_handling
