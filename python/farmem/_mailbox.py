"""The mailbox in which a program leaves word for its pager (docs/formats/mailbox.md in Farmem's sources).

Words are written one by one by single stores, which x86-64 lets others see in that order. All threads of Python take turns by locks of Python's, so nothing here
needs an atomic exchange.
"""

import ctypes
import errno
import os
import platform
import sys
import threading

_MAGIC = int.from_bytes(b"farmembx", "little")
_VERSION = 1
_PAGER, _BEAT, _HEAD, _TAIL = 2, 3, 8, 16
_PINS_VERSION, _ASKED, _KIND, _START, _LENGTH, _ANSWER = 25, 26, 27, 28, 29, 32
_AT_PINS, _PINS = 512, 1024
_AT_HINTS, _HINTS = _AT_PINS + 2 * _PINS, 1024
_WORDS = _AT_HINTS + 3 * _HINTS + 2 * 4096

_ALL = (1 << 64) - 1
_USER_END = 1 << 47
_COLD = 1 << 63
_NAP_S = 0.1
# Naps in which the pager gives no sign of life.
_PATIENCE = 100

_FUTEX = 202


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def _wait(address, value):
    """Sleeps while the four bytes there hold that, for a nap at most."""
    nap = _Time(0, int(_NAP_S * 1e9))
    _system(_FUTEX, address, 0, value & 0xFFFFFFFF, ctypes.byref(nap), 0, 0)


def _wake(address):
    _system(_FUTEX, address, 1, 0x7FFFFFFF, 0, 0, 0)


def _make():
    """A segment that goes with its last mapping, that no child gets, and that has no name; None where there is none."""
    length = 8 * _WORDS
    segment = _library.shmget(0, length, 0o1600)
    if segment == -1:
        return None
    address = _library.shmat(segment, None, 0)
    _library.shmctl(segment, 0, None)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    # MADV_DONTFORK, MADV_DONTDUMP.
    if _library.madvise(address, length, 10) == -1:
        _library.shmdt(address)
        return None
    _library.madvise(address, length, 16)
    words = (ctypes.c_uint64 * _WORDS).from_address(address)
    words[1] = _VERSION
    words[0] = _MAGIC
    return words


class _Mailbox:
    """This process's."""

    def __init__(self):
        self.forget()

    def forget(self):
        """In a forked child: it has none."""
        self.lock = threading.Lock()
        # Held while a pager is waited for.
        self.pin_lock = threading.Lock()
        self.words = None
        self.is_refused = _library is None

    def get(self):
        """Its words, made when they are asked for first; None where there are none."""
        if self.words is None and not self.is_refused:
            with self.lock:
                if self.words is None and not self.is_refused:
                    words = _make()
                    self.is_refused = words is None
                    self.words = words
        return self.words


def _open_library():
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 1 << 32:
        return None
    try:
        library = ctypes.CDLL(None)
        library.shmget.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_int)
        library.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
        library.shmat.restype = ctypes.c_void_p
        library.shmctl.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
        library.shmdt.argtypes = (ctypes.c_void_p,)
        library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        library.syscall.restype = ctypes.c_long
    except (AttributeError, OSError):
        return None
    return library


def _system(number, address, operation, value, timeout, other, third):
    _library.syscall(
        ctypes.c_long(number),
        ctypes.c_void_p(address),
        ctypes.c_long(operation),
        ctypes.c_ulong(value),
        timeout if timeout else None,
        ctypes.c_long(other),
        ctypes.c_long(third),
    )


_library = _open_library()
_mailbox = _Mailbox()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mailbox.forget)


def _is_valid(address, length):
    return address + length <= _USER_END


def is_present():
    """1 if this process has a pager now."""
    words = _mailbox.get()
    return words[_PAGER] & 1 if words else 0


def _push(words, address, length_and_kind):
    """False when there is no room. Whose a cell is, its turn says."""
    # A handler of a signal may have come in the midst of this very function.
    if not _mailbox.lock.acquire(timeout=0.01):
        return False
    try:
        position = words[_HEAD]
        index = position % _HINTS
        cell = _AT_HINTS + 3 * index
        if words[cell] + index & _ALL != position:
            return False
        words[_HEAD] = position + 1
        words[cell + 1] = address
        words[cell + 2] = length_and_kind
        words[cell] = position + 1 - index & _ALL
        return True
    finally:
        _mailbox.lock.release()


def _hint(kind, address, length):
    words = _mailbox.get()
    if not words:
        return 0
    is_present_now = words[_PAGER] & 1
    if not _is_valid(address, length):
        return errno.EINVAL if is_present_now else 0
    # Without a pager those that were kept are enough for one that comes later.
    if length == 0 or _push(words, address, length | kind) or not is_present_now:
        return 0
    return errno.EAGAIN


def prefetch(address, length):
    """See farmem.h."""
    return _hint(0, address, length)


def cold(address, length):
    """See farmem.h."""
    return _hint(_COLD, address, length)


def _changed(pins, is_unpin, start, end):
    """The pins that there are after that."""
    if is_unpin:
        cut = [(low, min(high, start)) for low, high in pins] + [(max(low, end), high) for low, high in pins]
        return sorted({(low, high) for low, high in cut if low < high})
    others = [(low, high) for low, high in pins if high < start or end < low]
    joined = [(low, high) for low, high in pins if not (high < start or end < low)] + [(start, end)]
    return [*others, (min(low for low, _ in joined), max(high for _, high in joined))]


def _note(words, is_unpin, address, length):
    """Notes for a pager that comes later what is pinned, or no longer. False, and nothing noted, when there is no room."""
    start, end = address & ~4095, address + length + 4095 & ~4095
    flat = words[_AT_PINS : _AT_PINS + 2 * _PINS]
    pins = [(low, high) for low, high in zip(flat[::2], flat[1::2]) if high]
    changed = _changed(pins, is_unpin, start, end)
    if len(changed) > _PINS:
        return False
    version = words[_PINS_VERSION] | 1
    words[_PINS_VERSION] = version
    for index in range(max(len(pins), len(changed))):
        low, high = changed[index] if index < len(changed) else (0, 0)
        words[_AT_PINS + 2 * index] = low
        words[_AT_PINS + 2 * index + 1] = high
    _order_stores(words)
    words[_PINS_VERSION] = version + 1
    _order_stores(words)
    return True


def _order_stores(words):
    """What was stored before is seen by others before anything is read after this: a system call, which the kernel makes such an order of."""
    _wake(ctypes.addressof(words) + 8 * _PINS_VERSION)


def _wait_for_answer(words, pager, number):
    """0, ENOMEM, EAGAIN when the pager gives no sign of life; None when it is there no more."""
    place = ctypes.addressof(words) + 8 * _ANSWER
    last, still = words[_BEAT], 0
    while still < _PATIENCE:
        answer = words[_ANSWER]
        if answer >> 2 == number & _ALL >> 2:
            return errno.ENOMEM if answer & 1 else 0
        if words[_PAGER] != pager:
            return None
        _wait(place, answer)
        beat = words[_BEAT]
        still = still + 1 if beat == last else 0
        last = beat
    return errno.EAGAIN


def _order(is_unpin, address, length):
    words = _mailbox.get()
    if not words:
        return 0
    if not _is_valid(address, length):
        return errno.EINVAL if words[_PAGER] & 1 else 0
    if length == 0:
        return 0
    with _mailbox.pin_lock:
        # Pagers may come and go meanwhile.
        for _ in range(16):
            pager = words[_PAGER]
            if not pager & 1:
                if not _note(words, is_unpin, address, length):
                    return errno.EAGAIN
                # One that has come meanwhile may have looked before.
                if not words[_PAGER] & 1:
                    return 0
                continue
            number = words[_ASKED] + 1 & _ALL
            words[_KIND] = 2 if is_unpin else 1
            words[_START] = address
            words[_LENGTH] = length
            words[_ASKED] = number
            _wake(ctypes.addressof(words) + 8 * _ASKED)
            answer = _wait_for_answer(words, pager, number)
            if answer == 0:
                # For the next pager. Where there is no room for it, only this one knows of it.
                _note(words, is_unpin, address, length)
            if answer is not None:
                return answer
    return errno.EAGAIN


def pin(address, length):
    """See farmem.h."""
    return _order(False, address, length)


def unpin(address, length):
    """See farmem.h."""
    return _order(True, address, length)
