#!/usr/bin/env python3
"""`./dev build macos`: aned and anectl for arm64 macOS, optimised, with every library compiled from its source.

    build.py OUT      OUT/macos/daemon/aned and OUT/macos/client/anectl; OUT/macos-deps holds what they are made of

`zig cc` of the PyPI wheel compiles and links. The libraries' sources are Debian's source packages (the archives that upstream
released), llhttp's generated C from PyPI's httptools. libedit is macOS's own: its header from this machine and a list of the
symbols. The programs are signed ad hoc by zig's linker, as arm64 macOS asks; they have run nowhere yet.
"""
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

import checks
import sdk

SUITES = ("bookworm", "trixie")  # a mirror may have lost the archive of one
ARCHIVE_BYTES_MAX = 64 << 20
HTTPTOOLS, LLHTTP = "httptools==0.9.0", "vendor/llhttp"  # llhttp 9.4
UV = """fs-poll.c idna.c inet.c random.c strscpy.c strtok.c threadpool.c timer.c uv-common.c uv-data-getter-setters.c version.c
 unix/async.c unix/core.c unix/dl.c unix/fs.c unix/getaddrinfo.c unix/getnameinfo.c unix/loop-watcher.c unix/loop.c unix/pipe.c
 unix/poll.c unix/process.c unix/random-devurandom.c unix/random-getentropy.c unix/signal.c unix/stream.c unix/tcp.c
 unix/thread.c unix/tty.c unix/udp.c unix/proctitle.c unix/bsd-ifaddrs.c unix/kqueue.c unix/darwin-proctitle.c unix/darwin.c
 unix/fsevents.c""".split()
PCRE2_OTHER = re.compile(  # programs, tests, and what other files include
    r"pcre2_(dftables|fuzzsupport|jit_match|jit_misc|jit_test|printint|ucptables|posix.*)\.c")


@dataclasses.dataclass
class Library:
    """`name`: its .pc file; `link`: its -l; `source`: Debian's source package, or pip's; `prepare(folder)` makes what is missing
    in the unpacked source and returns the C files; `headers`: where a header or a folder of headers goes, and where it is."""
    name: str
    link: str
    source: str
    prepare: object
    headers: dict
    args: list = dataclasses.field(default_factory=list)


def files(*names):
    return lambda folder: [folder / n for n in names]


def prepare_pcre2(folder):
    src = folder / "src"
    for made, generic in (("config.h", "config.h.generic"), ("pcre2.h", "pcre2.h.generic"),
                          ("pcre2_chartables.c", "pcre2_chartables.c.dist")):
        shutil.copy(src / generic, src / made)
    return [f for f in sorted(src.glob("pcre2_*.c")) if not PCRE2_OTHER.fullmatch(f.name)]


def prepare_sqlite(folder):
    """All of SQLite in one file, made by its own scripts (tclsh)."""
    for command in (["./configure", "--disable-readline", "--disable-tcl"], ["make", "-s", "sqlite3.c"]):
        quiet(command, folder)
    return [folder / "sqlite3.c"]


LIBRARIES = [
    Library("libuv", "uv", "libuv1", files(*("src/" + n for n in UV)), {"uv.h": "include/uv.h", "uv": "include/uv"},
            ["-Iinclude", "-Isrc", "-D_DARWIN_UNLIMITED_SELECT=1", "-D_DARWIN_USE_64_BIT_INODE=1"]),
    Library("libcjson", "cjson", "cjson", files("cJSON.c"), {"cjson/cJSON.h": "cJSON.h"}),
    Library("libprotobuf-c", "protobuf-c", "protobuf-c", files("protobuf-c/protobuf-c.c"), {"protobuf-c": "protobuf-c"}, ["-I."]),
    Library("libpcre2-8", "pcre2-8", "pcre2", prepare_pcre2, {"pcre2.h": "src/pcre2.h"},
            ["-Isrc", "-DHAVE_CONFIG_H", "-DPCRE2_CODE_UNIT_WIDTH=8", "-DPCRE2_STATIC", "-DSUPPORT_UNICODE", "-DSUPPORT_JIT"]),
    Library("libutf8proc", "utf8proc", "utf8proc", files("utf8proc.c"), {"utf8proc.h": "utf8proc.h"}, ["-DUTF8PROC_STATIC"]),
    Library("inih", "inih", "libinih", files("ini.c"), {"ini.h": "ini.h"}),
    Library("sqlite3", "sqlite3", "sqlite3", prepare_sqlite, {"sqlite3.h": "sqlite3.h"},
            ["-DSQLITE_THREADSAFE=1", "-DHAVE_FULLFSYNC=1"]),
    Library("libllhttp", "llhttp", HTTPTOOLS, files(*(f"{LLHTTP}/src/{n}.c" for n in ("api", "http", "llhttp"))),
            {"llhttp.h": f"{LLHTTP}/include/llhttp.h"}, [f"-I{LLHTTP}/include"]),
]


def quiet(command, cwd, env=None):
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"build: {' '.join(str(c) for c in command)}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


class Sources:
    """Archives of sources, kept in `folder`."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.apt = {}

    def _apt(self, suite):
        """apt's options for the source packages of one suite, of the mirror that this machine uses; nothing else of apt
        sees them."""
        if suite not in self.apt:
            box = self.folder / "apt" / suite
            for sub in ("lists/partial", "cache/archives/partial"):
                box.joinpath(sub).mkdir(parents=True, exist_ok=True)
            rows = quiet(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(CREATED_BY)"], "/").splitlines()
            own = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M).group(1)
            uri = next(r.split()[0] for r in rows if r.split()[1:] == [own, "Packages"])
            keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
            box.joinpath("sources.list").write_text(f"deb-src [signed-by={keyring}] {uri} {suite} main\n")
            self.apt[suite] = [word for option in (
                f"Dir::Etc::SourceList={box}/sources.list", "Dir::Etc::SourceParts=/dev/null", f"Dir::State::Lists={box}/lists",
                f"Dir::Cache={box}/cache", "APT::Sandbox::User=root") for word in ("-o", option)]
            quiet(["apt-get", *self.apt[suite], "-qq", "update"], "/")
        return self.apt[suite]

    def _download(self, source, to):
        if "==" in source:
            quiet([pathlib.Path(sys.prefix, "bin/pip"), "download", "-q", "--disable-pip-version-check", "--no-deps",
                   "--no-binary", ":all:", "-d", to, source], "/")
            return
        for suite in SUITES:
            done = subprocess.run(["apt-get", *self._apt(suite), "-qq", "source", "--tar-only", source], cwd=to,
                                  capture_output=True, text=True)
            if done.returncode == 0:
                return
        sys.exit(f"build: no source of {source} in {', '.join(SUITES)}:\n{done.stderr}")

    def get(self, source) -> pathlib.Path:
        """The unpacked folder of a source."""
        home = self.folder / re.sub(r"\W+", "-", source)
        if not (home / ".done").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            self._download(source, home)
            archive = next(p for p in home.iterdir() if re.search(r"(\.orig\.tar\.|\d\.tar\.)", p.name))
            if archive.stat().st_size > ARCHIVE_BYTES_MAX:
                sys.exit(f"build: {archive} is larger than {ARCHIVE_BYTES_MAX} bytes")
            (home / "src").mkdir()
            quiet(["tar", "xf", archive, "--no-same-owner", "-C", home / "src"], "/")
            (home / ".done").touch()
        return next(p for p in (home / "src").iterdir() if p.is_dir())


class Zig:
    """The wheel's compiler; its cache stays below the build."""

    def __init__(self, cache: pathlib.Path):
        self.program = str(sdk.wheel() / "zig")
        self.env = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
        # zig checks for undefined behaviour by default; the project has builds of its own for that
        self.cc = [self.program, "cc", "-target", f"aarch64-macos.{sdk.FLOOR}", "-fno-sanitize=undefined"]

    def library(self, lib: Library, folder: pathlib.Path, prefix: pathlib.Path, pool) -> None:
        """lib/libNAME.a, its headers and its .pc file."""
        archive = prefix / f"lib/lib{lib.link}.a"
        if archive.exists():
            return
        objects = prefix / "objects" / lib.link
        objects.mkdir(parents=True, exist_ok=True)
        jobs = {}
        for source in lib.prepare(folder):
            output = objects / (source.name + ".o")
            jobs[output] = pool.submit(quiet, [*self.cc, "-O2", "-g0", "-w", *lib.args, "-c", source, "-o", output], folder,
                                       self.env)
        for job in jobs.values():
            job.result()
        for to, source in lib.headers.items():
            copy_headers(folder / source, prefix / "include" / to)
        archive.parent.mkdir(parents=True, exist_ok=True)
        quiet([self.program, "ar", "rcs", archive, *jobs], folder, self.env)


def copy_headers(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=lambda d, names: [
            n for n in names if "." in n and not n.endswith(".h")])
    else:
        shutil.copy(source, target)


def make_libraries(zig, out) -> pathlib.Path:
    """Every library below `out`; returns the folder of the .pc files."""
    sources, prefix = Sources(out / "sources"), out / "usr"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for lib in LIBRARIES:
            folder = sources.get(lib.source)
            zig.library(lib, folder, prefix, pool)
            sdk.write(out / f"pkgconfig/{lib.name}.pc",
                      f"Name: {lib.name}\nDescription: for macOS\nVersion: {version_of(folder, lib)}\n"
                      f"Cflags: -isystem{prefix}/include\nLibs: -L{prefix}/lib -l{lib.link}\n")
    shutil.copy("/usr/include/histedit.h", prefix / "include")
    sdk.write(prefix / "lib/libedit.tbd", sdk.tbd("/usr/lib/libedit.3.dylib", sdk.exported("edit")))
    return out / "pkgconfig"


def version_of(folder, lib):
    """From the name of the folder, or from llhttp's header."""
    if lib.source == HTTPTOOLS:
        text = (folder / lib.headers["llhttp.h"]).read_text()
        return ".".join(re.search(rf"LLHTTP_VERSION_{p} (\d+)", text).group(1) for p in ("MAJOR", "MINOR", "PATCH"))
    return re.search(r"(\d[\d.]*)$", folder.name).group(1)


def configure(zig, out, pkgconfig, top):
    """Configured again when the cross file changed."""
    prefix, apple, build = pkgconfig.parent / "usr", pkgconfig.parent / "apple", out / "macos"
    sdk.make_frameworks(apple)
    frameworks = apple / "System/Library/Frameworks"
    # -Werror here: meson's own option would give zig's linker a flag that it does not know
    text = sdk.cross_file(zig.cc, [zig.program, "ar"], pkgconfig,
                          ["-Werror", f"-Wframe-larger-than={checks.FRAME_MAX}", f"-isystem{prefix}/include",
                           f"-isystem{apple}/usr/local/include", f"-iframework{frameworks}"],
                          link_args=[f"-L{prefix}/lib", f"-L{apple}/usr/lib", f"-F{frameworks}"])
    stamp = build / ".cross"
    if stamp.exists() and stamp.read_text() == text:
        return build
    shutil.rmtree(build, ignore_errors=True)
    cross = pkgconfig.parent / "cross.ini"
    sdk.write(cross, text)
    quiet([pathlib.Path(sys.prefix, "bin/meson"), "setup", build, top, "--cross-file", cross,
           "-Dbuildtype=release"], top, zig.env)
    stamp.write_text(text)
    return build


def main(out: pathlib.Path) -> None:
    top = pathlib.Path(__file__).resolve().parents[2]
    zig = Zig(out / "macos-deps/zig-cache")
    pkgconfig = make_libraries(zig, out / "macos-deps")
    build = configure(zig, out, pkgconfig, top)
    quiet(["ninja", "-C", build, "daemon/aned", "client/anectl"], top, zig.env)
    for name in ("daemon/aned", "client/anectl"):
        if checks.machine(build / name) != checks.MAC_PROGRAM:
            sys.exit(f"build: {build / name} is no program for arm64 macOS {sdk.FLOOR}")
        print(f"built: {build / name} ({checks.info_plist(build / name)['CFBundleIdentifier']})")


if __name__ == "__main__":
    try:
        main(pathlib.Path(sys.argv[1]).resolve())
    except sdk.fetch.Missing as e:
        sys.exit(f"build: {e}")
