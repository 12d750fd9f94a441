"""Lock this process in: from then on it computes and speaks over its two pipes, and can do nothing else.

What holds everywhere: limits (`resource`) by which it can open no file, socket or pipe, write no file and start no
process, and on memory and processor time. Linux adds what needs neither root nor a daemon: namespaces without a
network, Landlock without a single path, a seccomp filter of system calls, and the loss of root's privileges. `lock`
says which of them the system has.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from ctypes import c_char_p, c_int, c_long, c_size_t, c_ulong, c_void_p

MECHANISMS = ("limits", "namespaces", "landlock", "seccomp")
NEW_SPACES = 0x10000000 | 0x40000000 | 0x08000000 | 0x04000000  # users, network, System V memory, host name
DEATH_SIGNAL, NO_NEW_PRIVILEGES, SECCOMP, FILTER = 1, 38, 22, 2  # of prctl
CAPABILITIES = 0x20080522  # version 3 of their form
CREATE_RULESET, RESTRICT_SELF = 444, 446  # system calls of Landlock
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32 = 0x40000000  # numbers of another kind of system call, on x86_64
REFUSED = """
    open 2 -1, creat 85 -1, openat 257 56, openat2 437 437, truncate 76 45, rename 82 -1, renameat 264 38,
    renameat2 316 276, link 86 -1, linkat 265 37, symlink 88 -1, symlinkat 266 36, unlink 87 -1,
    unlinkat 263 35, mkdir 83 -1, mkdirat 258 34, rmdir 84 -1, mknod 133 -1, mknodat 259 33, chmod 90 -1,
    fchmodat 268 53, chown 92 -1, fchownat 260 54, utimensat 280 88, chroot 161 51, mount 165 40,
    umount2 166 39, open_tree 428 428, fsopen 430 430, open_by_handle_at 304 265, memfd_create 319 279,
    socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, io_uring_setup 425 425, shmget 29 194,
    shmat 30 196, msgget 68 186, semget 64 190, mq_open 240 180, add_key 248 217, request_key 249 218,
    keyctl 250 219, clone 56 220, clone3 435 435, fork 57 -1, vfork 58 -1, execve 59 221, execveat 322 281,
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kill 62 129, tkill 200 130,
    tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, pidfd_open 434 434,
    pidfd_send_signal 424 424, setrlimit 160 164, prlimit64 302 261, unshare 272 97, setns 308 268,
    bpf 321 280, perf_event_open 298 241, userfaultfd 323 282
"""  # system calls: name, number on x86_64 and on aarch64 (-1: there is none)


def separate() -> list[str]:
    """Leave the users', the network's and the memory's common spaces; before any thread is started.

    Returns the mechanisms that hold. The process also ends when its parent does.
    """
    if sys.platform != "linux":
        return []
    libc = _libc()
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    return ["namespaces"] if libc.unshare(c_int(NEW_SPACES)) == 0 else []


def lock(memory: int, processor_seconds: int) -> list[str]:
    """Take from this process, for good, all that a computation does not need; returns the mechanisms that hold.

    memory: bytes. Whatever it has not imported before, it cannot import later.
    """
    held, limited = [], []
    if sys.platform == "linux":
        libc = _libc()
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        held += ["landlock"] * _landlock(libc)
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: processor_seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        soft = value - 1 if kind == resource.RLIMIT_CPU else value  # ends with a signal that says why
        try:
            resource.setrlimit(kind, (soft, value))
        except ValueError:  # some systems cannot limit memory
            continue
        limited.append(kind)
    if sys.platform == "linux":
        libc.capset(struct.pack("=Ii", CAPABILITIES, 0), bytes(24))  # none; by root's, limits could be lifted
        held += ["seccomp"] * _seccomp(libc)
    return ["limits"] * (len(limited) == len(limits)) + held


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [c_int, c_ulong, c_ulong, c_ulong, c_ulong]
    libc.syscall.restype = c_long
    return libc


def _landlock(libc: ctypes.CDLL) -> bool:
    """Handle all that this kernel's Landlock can refuse, and allow none of it."""
    version = libc.syscall(c_long(CREATE_RULESET), c_void_p(None), c_size_t(0), c_int(1))
    if version < 1:
        return False
    files = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)  # kinds of access to files
    attributes = struct.pack("=Q", 2**files - 1)
    attributes += struct.pack("=Q", 3) * (version >= 4)  # TCP: bind and connect
    attributes += struct.pack("=Q", 3) * (version >= 6)  # abstract sockets and signals to other processes
    size = c_size_t(len(attributes))
    ruleset = libc.syscall(c_long(CREATE_RULESET), c_char_p(attributes), size, c_int(0))
    if ruleset < 0:
        return False
    held = libc.syscall(c_long(RESTRICT_SELF), c_int(ruleset), c_int(0)) == 0
    os.close(ruleset)
    return held


def _seccomp(libc: ctypes.CDLL) -> bool:
    """A filter by which the refused system calls fail with "not permitted"."""
    if platform.machine() not in ARCHITECTURES or sys.maxsize < 2**32:
        return False
    column, architecture = ARCHITECTURES[platform.machine()]
    named = [call.split() for call in REFUSED.split(",")]
    numbers = [int(pair[column]) for _, *pair in named if int(pair[column]) >= 0]
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    rules = [(load, 0, 0, 4), (equal, 1, 0, architecture), (end, 0, 0, 0x80000000)]  # else it is killed
    rules += [(load, 0, 0, 0), (at_least, len(numbers) + 1, 0, X32)]
    rules += [(equal, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    rules += [(end, 0, 0, 0x7FFF0000), (end, 0, 0, 0x00050000 | 1)]  # allowed; "not permitted"
    content = b"".join(struct.pack("=HBBI", *rule) for rule in rules)
    text = ctypes.create_string_buffer(content, len(content))
    program = struct.pack("@HP", len(rules), ctypes.addressof(text))
    holder = ctypes.create_string_buffer(program, len(program))
    return libc.prctl(SECCOMP, FILTER, ctypes.addressof(holder), 0, 0) == 0
