/* A frame whose replacement needs more room than there is in its chunk of the data stack.
 *
 * In:   the frame, and the replacement code.   Out: what the frame returns.
 *
 * A part of frame_hook.c.  Without this file such a frame runs as it is.
 */
static PyObject *return_code;               /* the single instruction RETURN_VALUE, see call_instead */

static int
start_full_stacks(void)
{
    unsigned char ret[] = {RETURN_VALUE, 0};
    PyCodeObject *empty = PyCode_NewEmpty("<frame hook>", "return", 1);
    PyObject *replace = empty ? PyObject_GetAttrString((PyObject *)empty, "replace") : NULL;
    PyObject *kw = Py_BuildValue("{s:y#,s:y,s:i}", "co_code", ret, (Py_ssize_t)2, "co_exceptiontable", "",
                                 "co_stacksize", 1);
    return_code = replace && kw ? PyObject_VectorcallDict(replace, NULL, 0, kw) : NULL;
    Py_XDECREF(empty); Py_XDECREF(replace); Py_XDECREF(kw);
    return return_code ? 0 : -1;
}

/* Rare: the frame cannot grow in place, its data stack chunk being full.  Call the replacement as a function of the
 * bound parameters, then let the old frame return (or raise) the outcome: its code becomes the single instruction
 * RETURN_VALUE and its stack holds the result. */
static PyObject *
call_instead(PyThreadState *ts, Frame *frame, PyCodeObject *co, int n)
{
    PyFunctionObject *old = (PyFunctionObject *)frame_func(frame);
    PyObject *result = NULL, *func = PyFunction_New((PyObject *)co, old->func_globals);
    if (func && (!old->func_closure || PyFunction_SetClosure(func, old->func_closure) == 0))
        result = PyObject_Vectorcall(func, frame->localsplus, n, NULL);
    Py_XDECREF(func);
    Py_DECREF(co);
#if PY_VERSION_HEX >= 0x030C0000            /* 3.11: the caller clears the frame */
    PyCodeObject *code = frame_code(frame);
    for (int i = 0; i < frame->stacktop; i++)
        Py_CLEAR(frame->localsplus[i]);
    frame->stacktop = result != NULL;
    frame->localsplus[0] = result;
    swap_code(frame, (PyCodeObject *)Py_NewRef(return_code));
    ts->datastack_top = (PyObject **)frame + frame_slots(frame_code(frame));
    Py_DECREF(code);
    return run_frame(ts, frame, result == NULL);
#endif
    return result;
}
