"""What launchd would make of an agent's plist: its keys against Apple's launch.h, the types of their values against
launchd.plist(5), and the values that aned depends on.

launchd ignores a key that it does not know and a value of a wrong type, without a word: a misspelt ExitTimeOut is found when a
daemon is killed too early."""
import pathlib
import plistlib
import re

# Of launchd.plist(5). A list holds the type of its items; a name in capitals is a dictionary of that group's keys, "{}" one
# with names of the user's choice.
TYPES = {
    "JOB": {
        "Label": str, "Disabled": bool, "UserName": str, "GroupName": str, "Program": "path", "ProgramArguments": [str],
        "BundleProgram": str, "EnableGlobbing": bool, "EnableTransactions": bool, "EnablePressuredExit": bool,
        "KeepAlive": (bool, "KEEPALIVE"), "RunAtLoad": bool, "RootDirectory": "path", "WorkingDirectory": "path",
        "EnvironmentVariables": {"*": str}, "Umask": (int, str), "TimeOut": int, "ExitTimeOut": int, "ThrottleInterval": int,
        "InitGroups": bool, "WatchPaths": ["path"], "QueueDirectories": ["path"], "StartOnMount": bool, "StartInterval": int,
        "StartCalendarInterval": ("CAL", ["CAL"]), "StandardInPath": "path", "StandardOutPath": "path",
        "StandardErrorPath": "path", "Debug": bool, "WaitForDebugger": bool, "SoftResourceLimits": "RESOURCELIMIT",
        "HardResourceLimits": "RESOURCELIMIT", "Nice": int, "ProcessType": str, "AbandonProcessGroup": bool,
        "LowPriorityIO": bool, "LowPriorityBackgroundIO": bool, "MaterializeDatalessFiles": bool, "LaunchOnlyOnce": bool,
        "MachServices": {"*": (bool, "MACH")}, "Sockets": {"*": ("SOCKET", ["SOCKET"])}, "SessionCreate": bool,
        "LegacyTimers": bool, "LimitLoadToSessionType": (str, [str]), "AssociatedBundleIdentifiers": (str, [str]),
    },
    "KEEPALIVE": {
        "SuccessfulExit": bool, "NetworkState": bool, "PathState": {"*": bool}, "OtherJobEnabled": {"*": bool},
        "OtherJobActive": {"*": bool}, "AfterInitialDemand": bool, "Crashed": bool,
    },
    "RESOURCELIMIT": dict.fromkeys(["Core", "CPU", "Data", "FileSize", "MemoryLock", "NumberOfFiles", "NumberOfProcesses",
                                    "ResidentSetSize", "Stack"], int),
    "CAL": dict.fromkeys(["Minute", "Hour", "Day", "Weekday", "Month"], int),
    "MACH": {"ResetAtClose": bool, "HideUntilCheckIn": bool},
    "SOCKET": {
        "SockType": str, "SockPassive": bool, "Bonjour": (bool, str, [str]), "SecureSocketWithKey": str, "SockPathName": "path",
        "SockPathMode": int, "SockPathOwner": int, "SockPathGroup": int, "SockNodeName": str, "SockServiceName": (str, int),
        "SockFamily": str, "SockProtocol": str, "MulticastGroup": str,
    },
}
PREFIX = {"KEEPALIVE": "JOBKEY_KEEPALIVE_", "RESOURCELIMIT": "JOBKEY_RESOURCELIMIT_", "CAL": "JOBKEY_CAL_",
          "MACH": "JOBKEY_MACH_", "SOCKET": "JOBSOCKETKEY_"}
SUN_PATH = 104  # bytes of a socket's address on macOS, with the final NUL
HOME = "/Users/a.user.with.a.long.name"
# what a placeholder may become; others: a folder
SAMPLE = {"LABEL": "dev.aned.daemon", "HOME": HOME, "SOCKET": HOME + "/Library/Application Support/dev.aned.daemon/run/aned.sock"}


def apple_keys(launch_h: str) -> dict:
    """The keys of each group of TYPES, as Apple's header names them."""
    rows = re.findall(r'#define LAUNCH_(JOB\w+)\s+(?:\\\n\s*)?"(\w+)"', launch_h)
    groups = {g: {key for macro, key in rows if macro.startswith(p)} for g, p in PREFIX.items()}
    nested = tuple(p for p in PREFIX.values() if p != "JOBKEY_MACH_") + ("JOBPOLICY_", "JOBINETDCOMPATIBILITY_")
    groups["JOB"] = {key for macro, key in rows if not macro.startswith(nested) and not macro.startswith("JOBKEY_MACH_")}
    return groups


def fits(value, kind, where, keys, bad) -> bool:
    """Whether `value` is of `kind`; what is wrong inside of it goes to `bad`."""
    if isinstance(kind, tuple):
        return any(fits(value, k, where, keys, bad) for k in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(v, kind[0], where, keys, bad) for v in value)
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(fits(v, kind["*"], f"{where}/{k}", keys, bad) for k, v in value.items())
    if kind == "path":
        return isinstance(value, str)
    if isinstance(kind, str):
        if isinstance(value, dict):
            group(value, kind, where, keys, bad)
        return isinstance(value, dict)
    return type(value) is kind  # a bool is no int here


def group(plist, name, where, keys, bad):
    for key, value in plist.items():
        at = f"{where}/{key}"
        if key not in keys[name]:
            bad.append(f"{at}: Apple's launch.h has no such key")
        elif key not in TYPES[name]:
            bad.append(f"{at}: its type is not known here (tests/macos/launchd.py, TYPES)")
        elif not fits(value, TYPES[name][key], at, keys, bad):
            bad.append(f"{at}: {value!r} is of a wrong type")


def filled(text: str) -> str:
    """The plist as it is installed: @NAME@ is a folder."""
    return re.sub(r"@(\w+)@", lambda m: SAMPLE.get(m.group(1), "/usr/local/" + m.group(1).lower()), text)


def paths(plist, kinds=None):
    """(key, value) of every path, at any depth."""
    for key, value in plist.items():
        kind = (kinds or TYPES["JOB"]).get(key)
        if kind == "path":
            yield key, value
        elif kind == ["path"]:
            yield from ((key, v) for v in value)
    for socket in sockets(plist) if kinds is None else ():
        yield from paths(socket, TYPES["SOCKET"])
    if kinds is None and plist.get("ProgramArguments"):
        yield "ProgramArguments", plist["ProgramArguments"][0]


def sockets(plist) -> list:
    found = []
    for value in plist.get("Sockets", {}).values():
        found += value if isinstance(value, list) else [value]
    return found


def check_values(plist, text, label, socket_name, drain_s) -> list:
    """What aned's agent must say. `text` is the plist's own; `socket_name` is what aned asks launchd for; `drain_s` is how long
    it may take to end."""
    bad = []
    if plist.get("Label") != label:
        bad.append(f"Label: {plist.get('Label')!r}, the file is called {label}")
    if plist.get("ProcessType") != "Interactive":
        bad.append("ProcessType: without Interactive macOS slows the engine down like a background job")
    keep = plist.get("KeepAlive")
    if not isinstance(keep, dict) or not (keep.get("Crashed") is True or keep.get("SuccessfulExit") is False):
        bad.append("KeepAlive: it is started again after a crash, and only then")
    if plist.get("ExitTimeOut", 20) <= drain_s:
        bad.append(f"ExitTimeOut: {plist.get('ExitTimeOut', 20)} s, a daemon that ends takes {drain_s} s")
    for key, value in paths(plist):
        if not value.startswith("/") or re.search(r"[~$]|/\.\./", value):
            bad.append(f"{key}: {value!r} is not absolute; launchd expands neither ~ nor $HOME")
    for number in re.findall(r"<integer>\s*(0\d+)\s*</integer>", text):
        bad.append(f"<integer>{number}</integer> is {int(number)}: launchd reads no octal")
    for name in plist.get("Sockets", {}):
        if name != socket_name:
            bad.append(f"Sockets/{name}: aned asks for {socket_name!r}")
    for socket in sockets(plist):
        check_socket(socket, bad)
    return bad


def check_socket(socket, bad):
    mode, path = socket.get("SockPathMode"), socket.get("SockPathName", "")
    if mode != 0o600:
        bad.append(f"SockPathMode: {mode!r}, the socket is its user's alone with {0o600} (0600)")
    if not path or len(path.encode()) >= SUN_PATH:
        bad.append(f"SockPathName: {path!r} of {len(path.encode())} bytes, macOS takes 1 to {SUN_PATH - 1}")
    if socket.get("SockType", "stream") != "stream":
        bad.append("SockType: a stream")


def check(path: pathlib.Path, launch_h: str, socket_name: str, drain_s: float, text: str = None) -> list:
    """Everything wrong with the agent in `path` (or with `text` in its place)."""
    text = path.read_text() if text is None else text
    plist = plistlib.loads(filled(text).encode())
    bad = []
    group(plist, "JOB", "", apple_keys(launch_h), bad)
    return bad or check_values(plist, text, path.stem, socket_name, drain_s)
