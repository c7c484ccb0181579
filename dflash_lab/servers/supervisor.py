"""Runs one command in a process group of its own and ends the group when the lab is gone.

    python supervisor.py GRACE_SECONDS COMMAND [ARGUMENT ...]

Standard input is a pipe whose other end the lab holds: it closes when the lab closes it or dies, kill -9 included.
Then, and on SIGTERM, SIGINT or SIGHUP, the group gets SIGTERM, and SIGKILL after the grace. Started as a plain
script, so it imports nothing but the standard library. Exits with the command's own code.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
KILL_SECONDS = 5.0

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Supervisor:
    """One command and everything it starts."""

    def __init__(self, command: list[str], grace: float) -> None:
        self.grace = grace
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for number in (*ENDING, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        # Orphans of the command become ours and are reaped; a container's first process may never do that.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.woken = woken
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )

    def run(self) -> int:
        """Wait until the command ends or is no longer wanted; end its group; return its exit code."""
        while self.child.returncode is None:
            ready, _, _ = select.select([0, self.woken], [], [], 1.0)
            if 0 in ready and not os.read(0, 4096):
                break
            if self.woken in ready and set(os.read(self.woken, 4096)) & ENDING:
                break
            self.reap()
        self.end_group()
        code = self.child.returncode
        return 137 if code is None else code if code >= 0 else 128 - code

    def end_group(self) -> None:
        """SIGTERM, then SIGKILL to whatever of the group is left after the grace."""
        for number, seconds in ((signal.SIGTERM, self.grace), (signal.SIGKILL, KILL_SECONDS)):
            deadline = time.monotonic() + seconds
            if not self.signal(number):
                return
            while self.signal(0) and time.monotonic() < deadline:
                self.reap()
                time.sleep(0.02)

    def signal(self, number: int) -> bool:
        """Send to the group; False when nothing of it is left."""
        try:
            os.killpg(self.child.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def reap(self) -> None:
        """Collect every process that ended, the command's own exit code among them."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self.child.pid:
                    self.child.returncode = os.waitstatus_to_exitcode(status)


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the pipe alone watches."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(Supervisor(sys.argv[2:], float(sys.argv[1])).run())
