"""Tells Farmem what a program knows of its memory. Without Farmem every call does nothing; what is called for is kept, in case a pager is
attached later.

Every function takes an object with the buffer protocol, such as a numpy array, a view of one, an array.array, or a memoryview. A view of an
array stands for all memory between its first and its last element.

    import farmem

    farmem.prefetch(table[wanted])        # no: this copies what it reads
    for row in wanted:
        farmem.prefetch(table[row])       # yes: a view, of which nothing is read

    with farmem.pin(index):               # stays local inside
        ...

The functions may be called by several threads, and let other threads of Python run meanwhile.
"""

import ctypes
import errno
import os

from . import _mailbox

__all__ = ["Pin", "cold", "is_present", "pin", "prefetch", "unpin"]

# Strides, and no need to write (PyBUF_STRIDED_RO of the C interface).
_STRIDED = 0x0018


class _View(ctypes.Structure):
    """Py_buffer of the C interface."""

    _fields_ = [
        ("address", ctypes.c_void_p),
        ("owner", ctypes.py_object),
        ("length", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]

    def span(self):
        """Address and length of what lies between the first and the last element."""
        first = last = self.address or 0
        if self.length == 0:
            return first, 0
        if self.dimensions == 0 or not self.strides:
            return first, self.length
        for dimension in range(self.dimensions):
            step = (self.shape[dimension] - 1) * self.strides[dimension]
            if step < 0:
                first += step
            else:
                last += step
        return first, last - first + self.itemsize


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = (ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int)
_get.restype = ctypes.c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = (ctypes.POINTER(_View),)
_release.restype = None


def _span(array):
    view = _View()
    _get(array, ctypes.byref(view), _STRIDED)
    try:
        return view.span()
    finally:
        _release(ctypes.byref(view))


def _call(function, array):
    """The answer of the function for the memory of `array`, which stays where it is meanwhile."""
    view = _View()
    _get(array, ctypes.byref(view), _STRIDED)
    try:
        return function(*view.span())
    finally:
        _release(ctypes.byref(view))


def _hint(function, array):
    answer = _call(function, array)
    if answer not in (0, errno.EAGAIN):
        raise OSError(answer, os.strerror(answer))
    return answer == 0


def is_present():
    """Whether this process has a pager now. One may be attached later, or leave."""
    return bool(_mailbox.is_present())


def prefetch(array):
    """This memory will be wanted soon. Returns at once; False when too much has been asked for, and this was dropped."""
    return _hint(_mailbox.prefetch, array)


def cold(array):
    """This memory won't be wanted for long: it leaves first. Returns at once; False when it was dropped."""
    return _hint(_mailbox.cold, array)


class Pin:
    """Memory that stays local, until `unpin`, or until the end of a `with` that it is used in."""

    def __init__(self, array):
        self._array = array

    def __enter__(self):
        return self._array

    def __exit__(self, *_):
        self.unpin()

    def unpin(self):
        """The memory may leave again."""
        array, self._array = self._array, None
        if array is not None:
            unpin(array)


def pin(array):
    """This memory stays local, with what shares its pages. Returns a `Pin` when it is local.

    Raises MemoryError when the application would have more than three quarters of its local memory pinned.
    """
    answer = _call(_mailbox.pin, array)
    if answer == errno.ENOMEM:
        raise MemoryError("no more memory can be pinned: Farmem keeps a quarter of the application's local memory free")
    if answer:
        raise OSError(answer, os.strerror(answer))
    return Pin(array)


def unpin(array):
    """This memory, and what shares its pages, may leave again."""
    answer = _call(_mailbox.unpin, array)
    if answer:
        raise OSError(answer, os.strerror(answer))
