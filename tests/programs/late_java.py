"""Loads a Java VM into a process that has run for a while, and runs a class in it: late_java.py LIBRARY OPTION... -- CLASS WORD..."""

import ctypes
import sys
import time

VERSION = 0x000A0000
# Places in the VM's tables of functions (jni.h).
DESTROY_VM, FIND_CLASS, GET_STATIC_METHOD, CALL_STATIC_VOID, NEW_STRING, NEW_ARRAY, SET_ELEMENT = 3, 6, 113, 143, 167, 172, 174


class Option(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("extra", ctypes.c_void_p)]


class Arguments(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("count", ctypes.c_int),
        ("options", ctypes.POINTER(Option)),
        ("ignores_unknown", ctypes.c_ubyte),
    ]


def function(interface, place, result, *arguments):
    """The function at that place in the table of an interface of the VM's."""
    table = ctypes.cast(interface, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    called = ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)(table[place])
    return lambda *words: called(interface, *words)


def main():
    library, *words = sys.argv[1:]
    end = words.index("--")
    texts, (name, *words) = words[:end], words[end + 1 :]

    # Enough for a pager to come, before there is a VM.
    filled = bytearray(b"x" * (24 << 20))
    time.sleep(0.3)

    options = (Option * len(texts))(*(Option(text.encode(), None) for text in texts))
    arguments = Arguments(VERSION, len(texts), options, 0)
    machine, environment = ctypes.c_void_p(), ctypes.c_void_p()
    create = ctypes.CDLL(library).JNI_CreateJavaVM
    if create(ctypes.byref(machine), ctypes.byref(environment), ctypes.byref(arguments)) != 0:
        sys.exit("no VM begins")
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    find_class = function(environment, FIND_CLASS, pointer, text)
    main_class, string_class = find_class(name.encode()), find_class(b"java/lang/String")
    if not main_class:
        sys.exit(f"there is no class {name}")
    method = function(environment, GET_STATIC_METHOD, pointer, pointer, text, text)(
        main_class, b"main", b"([Ljava/lang/String;)V"
    )
    array = function(environment, NEW_ARRAY, pointer, ctypes.c_int, pointer, pointer)(len(words), string_class, None)
    for place, word in enumerate(words):
        string = function(environment, NEW_STRING, pointer, text)(word.encode())
        function(environment, SET_ELEMENT, None, pointer, ctypes.c_int, pointer)(array, place, string)
    call = function(environment, CALL_STATIC_VOID, None, pointer, pointer, ctypes.POINTER(pointer))
    call(main_class, method, ctypes.byref(pointer(array)))
    function(machine, DESTROY_VM, ctypes.c_int)()
    assert filled[0] == filled[-1] == ord("x")


main()
