"""A config file against a process that runs with it: is what runs what is on disk?"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from dflash_lab.config.checks.finding import Finding
from dflash_lab.config.files import NAME, ConfigFile, read
from dflash_lab.config.patch import compare
from dflash_lab.errors import LabError

SLACK = 0.02  # seconds: the kernel keeps a process' start in hundredths


def start_time(pid: int) -> float | None:
    """When a process was started, in seconds since 1970; None when it is gone or this is no Linux."""
    try:
        # The command's name, in brackets, may hold spaces: count fields after the last bracket.
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        now = datetime.now().timestamp()
    except (OSError, ValueError, IndexError):
        return None
    return now - uptime + ticks / os.sysconf("SC_CLK_TCK")


def stale_process(
    file: ConfigFile, started: float | None, path: Path | str | None = None, sha256_loaded: str | None = None
) -> list[Finding]:
    """Reasons to doubt that the process runs with this file; empty when nothing speaks against it.

    `started` in seconds since 1970; `path` the folder or file the process was started with; `sha256_loaded` the hash
    of the config it loaded, when known: that alone is proof, and the times are not looked at then.
    """
    findings = []
    if path is not None:
        findings += _another_copy(file, Path(path).expanduser())
    if sha256_loaded is not None:
        if sha256_loaded != file.sha256:
            findings.append(
                Finding(
                    "error",
                    NAME,
                    sha256_loaded,
                    f"The process loaded a config with sha256 {sha256_loaded[:12]}, on disk is {file.sha256[:12]}",
                    file.sha256,
                    "Restart the process: it runs with another content",
                    check="another_hash",
                )
            )
    elif started is not None and started < file.mtime_ns / 1e9 - SLACK:
        written, begun = (f"{datetime.fromtimestamp(t):%Y-%m-%d %H:%M:%S}" for t in (file.mtime_ns / 1e9, started))
        findings.append(
            Finding(
                "error",
                NAME,
                begun,
                f"The process was started at {begun}, the file was written at {written}",
                written,
                "Restart the process: it still runs with the content from before",
                check="started_before_the_file",
            )
        )
    return findings


def _another_copy(file: ConfigFile, path: Path) -> list[Finding]:
    path = path / NAME if path.is_dir() else path
    if path.resolve() == file.path.resolve():
        return []
    try:
        other = read(path)
    except LabError as error:
        content = f"and that cannot be read: {error.what}"
    else:
        fields = [difference.field for difference in compare(file.raw, other.raw)]
        content = f"which differs in {', '.join(fields)}" if fields else "which says the same"
    return [
        Finding(
            "error" if content != "which says the same" else "warning",
            NAME,
            str(path),
            f"The process was started with another copy, {path}, {content}",
            str(file.path),
            "An edit of this file never reaches that process",
            check="another_copy",
        )
    ]
