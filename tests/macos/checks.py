"""What a linked program and its functions must be like; the tests of planted faults ask the same functions."""
import plistlib

import macho
import sdk

# A sixteenth of the 512 KiB that macOS gives a thread: what the functions of one call chain need together is far less than
# sixteen times the largest (design 2: crew, digest; queues of libdispatch run Core ML's handlers).
FRAME_MAX = 32 * 1024


MAC_PROGRAM = (macho.CPU_ARM64, macho.EXECUTE, macho.PLATFORM_MACOS, sdk.FLOOR)


def machine(path) -> tuple:
    """What a file is built for, to be compared with MAC_PROGRAM."""
    m = macho.MachO(path)
    return m.cpu, m.kind, m.platform, m.minos


def info_plist(path) -> dict:
    """The Info.plist inside a program, as macOS reads it. KeyError: there is none; plistlib's errors: it is none."""
    return plistlib.loads(macho.MachO(path).sections["__TEXT", "__info_plist"])


def large_frames(rows) -> list:
    """The functions, of (bytes, name), that need more stack than a thread's function should."""
    return sorted(f"{name}: {size} bytes" for size, name in rows if size > FRAME_MAX)
