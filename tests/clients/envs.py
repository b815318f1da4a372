"""Environments of clients: made once below the build folder, by pip or npm, and what their programs are told."""
import json
import os
import pathlib
import subprocess
import sys
import tarfile


class Failed(Exception):
    pass


def last_words(text):
    """The line of an output that says most of what went wrong."""
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    telling = [x for x in lines if "rror" in x or "refused" in x] or lines
    return telling[-1][-300:] if telling else "no word"


def env_name(packages):
    """Rows with the same packages share their environment."""
    if not packages:
        return "none"
    return packages[0].rpartition("==" if "==" in packages[0] else "@")[0].replace("/", "-").lstrip("@")


def install(client, build):
    """The folder of its environment."""
    folder = build / "clients" / (("npm-" if client.npm else "py-") + client.env)
    stamp = folder / ".packages"
    if stamp.exists() and stamp.read_text() == " ".join(client.packages):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if client.npm:
        steps = [["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", *client.packages]]
    else:
        steps = [[sys.executable, "-m", "venv", folder],
                 *([[folder / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *client.packages]] if client.packages else [])]
    for step in steps:
        r = subprocess.run([str(x) for x in step], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if r.returncode != 0:
            raise Failed("not installed: " + last_words(r.stderr or r.stdout))
    stamp.write_text(" ".join(client.packages))
    return folder


def source(package, build):
    """The folder with what the sdist of NAME==VERSION has, its examples and tests too."""
    name = package.replace("==", "-")
    folder = build / "clients" / "sdist"
    if not (folder / name).exists():
        box = folder / "archives"
        box.mkdir(parents=True, exist_ok=True)
        r = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                            "--no-binary", ":all:", "-d", str(box), package], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if r.returncode != 0:
            raise Failed("no sdist: " + last_words(r.stderr or r.stdout))
        with tarfile.open(box / f"{name}.tar.gz") as t:
            t.extractall(folder, filter="data")
    return folder / name


def version_of(package, folder, npm=False):
    """name version, as it is installed. package: as it is asked for."""
    name = package.replace("==", "@")
    name = name[0] + name[1:].split("@")[0].split("[")[0]
    if npm:
        return f"{name} {json.loads((folder / 'node_modules' / name / 'package.json').read_text())['version']}"
    r = subprocess.run([folder / "bin" / "pip", "show", name], capture_output=True, text=True)
    return f"{name} {r.stdout.split('Version: ')[-1].split()[0] if 'Version: ' in r.stdout else '?'}"


def environment(client, world, folder, home):
    """client: its kind and program. ANED_MODEL is for the caller to add."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ANTHROPIC_", "OLLAMA_", "CLAUDE", "ANED_"))}
    path = f"{folder / 'bin'}:{env['PATH']}"
    return {**env, "PATH": path, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "ANED_BASE": f"http://127.0.0.1:{world.port}",
            "ANED_KEY": world.key, "ANED_KIND": client.kind, "ANED_ENV": str(folder),
            "ANED_PROGRAM": client.program, "NO_PROXY": "*", "no_proxy": "*", "TERM": "dumb"}
