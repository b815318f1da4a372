"""A reader of Mach-O files for arm64: what a test wants to know of a linked program."""
import pathlib
import struct

MAGIC = 0xFEEDFACF  # 64-bit, little-endian
CPU_ARM64 = 0x0100000C
EXECUTE = 2
LC_SYMTAB, LC_SEGMENT_64, LC_BUILD_VERSION = 0x2, 0x19, 0x32
LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB = 0xC, 0x80000018
PLATFORM_MACOS = 1
N_STAB, N_TYPE, N_EXT, N_UNDF = 0xE0, 0x0E, 0x01, 0x00


class MachO:
    """cpu, kind and platform are numbers of Apple's headers; `sections` maps (segment, section) to bytes; `dylibs` are install
    names in the order of their ordinals; `imports` maps an undefined symbol to the install name of its library."""

    def __init__(self, path):
        self.data = pathlib.Path(path).read_bytes()
        magic, self.cpu, _, self.kind, commands, _, _, _ = struct.unpack_from("<8I", self.data)
        if magic != MAGIC:
            raise ValueError(f"{path}: no 64-bit Mach-O file")
        self.sections, self.dylibs, self.imports = {}, [], {}
        self.platform = self.minos = None
        symtab = None
        at = 32
        for _ in range(commands):
            command, size = struct.unpack_from("<2I", self.data, at)
            if command == LC_SEGMENT_64:
                self._segment(at)
            elif command in (LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB):
                self.dylibs.append(self._text(at + struct.unpack_from("<I", self.data, at + 8)[0]))
            elif command == LC_BUILD_VERSION:
                self.platform, version = struct.unpack_from("<2I", self.data, at + 8)
                self.minos = f"{version >> 16}.{version >> 8 & 255}"
            elif command == LC_SYMTAB:
                symtab = struct.unpack_from("<4I", self.data, at + 8)
            at += size
        if symtab is not None:
            self._symbols(*symtab)

    def _text(self, at):
        return self.data[at:self.data.index(b"\0", at)].decode()

    def _segment(self, at):
        count = struct.unpack_from("<I", self.data, at + 64)[0]
        for i in range(count):
            here = at + 72 + 80 * i
            section, segment = (self.data[a:a + 16].rstrip(b"\0").decode() for a in (here, here + 16))
            size, offset = struct.unpack_from("<QI", self.data, here + 40)
            self.sections[segment, section] = self.data[offset:offset + size]

    def _symbols(self, offset, count, strings, _):
        for i in range(count):
            name, kind, _, desc, _ = struct.unpack_from("<IBBHQ", self.data, offset + 16 * i)
            if not kind & N_STAB and kind & N_TYPE == N_UNDF and kind & N_EXT:
                ordinal = desc >> 8
                library = self.dylibs[ordinal - 1] if 1 <= ordinal <= len(self.dylibs) else ordinal
                self.imports[self._text(strings + name)] = library
