/* What frame_hook.c says of CPython 3.11's frames, for those of 3.12 and 3.13.
 *
 * A part of frame_hook.c.  Without this file it is built for 3.11 alone.
 */
#define frame_func(f)    ((f)->f_funcobj)
#define frame_slots(co)  ((co)->co_framesize)
#define get_extra        PyUnstable_Code_GetExtra
#define set_extra        PyUnstable_Code_SetExtra
#define new_extra_index  PyUnstable_Eval_RequestCodeExtraIndex
#define recursion_left   py_recursion_remaining
#if PY_VERSION_HEX >= 0x030D0000
#  define frame_code(f)    ((PyCodeObject *)(f)->f_executable)
#  define swap_code(f, co) ((f)->f_executable = (PyObject *)(co), (f)->instr_ptr = _PyCode_CODE(co))
#else
#  define frame_code(f)    ((f)->f_code)
#  define swap_code(f, co) ((f)->f_code = (co), (f)->prev_instr = _PyCode_CODE(co) - 1)
#endif
