"""launchd/*.plist, and a sample agent with every fault that launchd would not tell of (launchd.py)."""
import pathlib
import re
import xml.parsers.expat

import launchd
import net as nets
import pytest
import sdk

AGENTS = sorted(nets.TOP.joinpath("launchd").glob("*.plist"))
LAUNCH_H = (sdk.wheel() / "lib/libc/include/any-macos-any/launch.h").read_text()
SOCKET_NAME = re.search(r'#define HTTP_LAUNCHD_SOCKET "(\w+)"', nets.TOP.joinpath("daemon/http/http.h").read_text()).group(1)
DRAIN_S = int(re.search(r"^drain_ms = (\d+)", nets.TOP.joinpath("conf/aned.conf").read_text(), re.M).group(1)) / 1000

SAMPLE = """<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict>
<key>Label</key><string>dev.aned.daemon</string>
<key>ProgramArguments</key><array><string>@BIN@/aned</string><string>serve</string></array>
<key>RunAtLoad</key><true/>
<key>KeepAlive</key><dict><key>Crashed</key><true/></dict>
<key>ProcessType</key><string>Interactive</string>
<key>ExitTimeOut</key><integer>30</integer>
<key>SoftResourceLimits</key><dict><key>NumberOfFiles</key><integer>8192</integer></dict>
<key>StandardErrorPath</key><string>@HOME@/Library/Logs/dev.aned.daemon.log</string>
<key>Sockets</key><dict><key>aned</key><dict>
<key>SockPathName</key><string>@HOME@/Library/Application Support/dev.aned.daemon/run/aned.sock</string>
<key>SockPathMode</key><integer>384</integer>
</dict></dict>
</dict></plist>
"""
FAULTS = {  # what is replaced by what, and what is said of it
    "a key misspelt": ("ExitTimeOut", "ExitTimeout", "/ExitTimeout: Apple's launch.h has no such key"),
    "a key misspelt in a group": ("NumberOfFiles", "NumberOfFile", "/SoftResourceLimits/NumberOfFile"),
    "a socket's key misspelt": ("SockPathMode", "SockMode", "/Sockets/aned/SockMode"),
    "a key in the wrong place": ("<key>RunAtLoad</key>", "<key>Crashed</key>", "/Crashed"),
    "a mode that looks octal": ("<integer>384<", "<integer>0600<", "<integer>0600</integer> is 600"),
    "a mode in octal digits": ("<integer>384<", "<integer>600<", "SockPathMode: 600"),
    "a mode open to others": ("<integer>384<", "<integer>438<", "SockPathMode: 438"),
    "a mode of a wrong type": ("<integer>384</integer>", "<string>384</string>", "/SockPathMode: '384' is of a wrong type"),
    "no mode": ("<key>SockPathMode</key><integer>384</integer>", "", "SockPathMode: None"),
    "a number as text": ("<integer>30</integer>", "<string>30</string>", "/ExitTimeOut: '30' is of a wrong type"),
    "a bool as a number": ("<true/>\n<key>KeepAlive", "<integer>1</integer>\n<key>KeepAlive", "/RunAtLoad: 1 is of a wrong type"),
    "an end that is cut off": ("<integer>30<", "<integer>5<", "ExitTimeOut: 5 s"),
    "a background job": ("Interactive", "Background", "ProcessType"),
    "a restart whatever happened": ("<dict><key>Crashed</key><true/></dict>", "<true/>", "KeepAlive"),
    "a path from the home": ("@HOME@/Library/Logs", "~/Library/Logs", "StandardErrorPath"),
    "a path with a variable": ("@HOME@/Library/Logs", "$HOME/Library/Logs", "StandardErrorPath"),
    "a program looked up": ("@BIN@/aned", "aned", "ProgramArguments"),
    "a socket's path too long": ("run/aned.sock", "run/" + "x" * 60, "SockPathName"),
    "a socket of another name": ("<key>aned</key>", "<key>Listeners</key>", "Sockets/Listeners"),
    "another's label": ("<string>dev.aned.daemon<", "<string>com.apple.aned<", "Label"),
}


def faults_of(text, name="dev.aned.daemon"):
    return launchd.check(pathlib.Path(name + ".plist"), LAUNCH_H, SOCKET_NAME, DRAIN_S, text)


def test_types_are_of_apples_keys():
    """The rows of TYPES are keys that launch.h has, in their group."""
    keys = launchd.apple_keys(LAUNCH_H)
    assert sum(len(k) for k in keys.values()) > 90
    assert {g: set(rows) - keys[g] for g, rows in launchd.TYPES.items() if set(rows) - keys[g]} == {}


@pytest.mark.parametrize("path", AGENTS, ids=lambda p: p.name)
def test_agent(path):
    assert launchd.check(path, LAUNCH_H, SOCKET_NAME, DRAIN_S) == []


def test_there_is_an_agent():
    assert [p.stem for p in AGENTS] == ["dev.aned.daemon"]


def test_sample():
    assert faults_of(SAMPLE) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_fault(fault):
    old, new, said = FAULTS[fault]
    assert SAMPLE.count(old) == 1
    assert any(said in row for row in faults_of(SAMPLE.replace(old, new))), fault


def test_broken_xml():
    with pytest.raises(xml.parsers.expat.ExpatError):
        faults_of(SAMPLE.replace("</dict></plist>", "</plist>"))
