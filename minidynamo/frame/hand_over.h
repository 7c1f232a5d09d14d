/* hand_over(function, list) -> function(*list), where the list is emptied once the callee has begun: with a hook
 * installed, CALL keeps its arguments on the caller's stack until the callee returns, and what the callee deletes would
 * live on.
 *
 * In:   a function and its arguments.   Out: what it gives.
 *
 * A part of frame_hook.c.
 */
static PyObject *tail_call;      /* marks what a callee wants to be called next */
OF_THREAD PyObject *moved;       /* list of arguments that the next frame takes over */

/* A frame begins: it holds its arguments now, and the caller's list is emptied. */
static inline void
take_over(void)
{
    if (moved) {
        PyObject *list = moved;
        moved = NULL;
        PyList_SetSlice(list, 0, PyList_GET_SIZE(list), NULL);
    }
}

/* A callee that returns (tail_call, function, list) wants that to be called next: a loop that breaks a graph in each
 * turn goes on without nesting deeper. */
static PyObject *
hand_over(PyObject *m, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected a function and a list");
    PyObject *function = Py_NewRef(args[0]), *list = Py_NewRef(args[1]);
    for (;;) {
        moved = list;
        PyObject *result = PyObject_Vectorcall(function, PySequence_Fast_ITEMS(list), PyList_GET_SIZE(list), NULL);
        moved = NULL;
        Py_DECREF(function);
        Py_DECREF(list);
        if (!result || !PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != 3 || PyTuple_GET_ITEM(result, 0) != tail_call)
            return result;
        function = Py_NewRef(PyTuple_GET_ITEM(result, 1));
        list = Py_NewRef(PyTuple_GET_ITEM(result, 2));
        Py_DECREF(result);
    }
}

#define HAND_OVER_METHODS \
    {"hand_over", (PyCFunction)(void (*)(void))hand_over, METH_FASTCALL, \
     "hand_over(function, list) -> function(*list), which alone keeps the items; it may return " \
     "(tail_call, function, list)"},

static int
add_hand_over(PyObject *module)
{
    tail_call = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    return tail_call ? PyModule_AddObjectRef(module, "tail_call", tail_call) : -1;
}
