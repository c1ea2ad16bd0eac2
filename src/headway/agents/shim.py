"""The small process under which all commands of a run are started; it outlives headway.

Laws:
- What `ended` says is durable first: the record in `shim.log`, with the output in it or synced
  beside it. Everything that ended together is synced once. A command starts only if the log has
  room for its end.
- When headway's end of the socket closes, every running command is ended with all of its
  processes: TERM, a grace, KILL. When this process is killed itself, its guard does that.
- Commands inherit 0, 1, 2, the environment, the umask, and default signals; nothing else. Each is
  a session of its own: no terminal to stop at, and its processes can be found.

Imports only modules that need no start-up time: `json`, `signal`, `socket`, `subprocess`, `typing`
and `dataclasses` would cost 5 to 17 ms each. `LAUNCH` is how it starts without headway's own.
"""

from __future__ import annotations

import errno
import marshal
import mmap
import os
import select
import sys
import time

from headway.agents.capture import READ_BYTES, Capture
from headway.base.process_tree import HAS_PROC, activity, family, is_alive, send
from headway.journal import shim_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

LAUNCH = """
import sys
socket, folder, home = sys.argv[1:]
for folder_of in ("", "agents", "base", "journal"):
    name = "headway." + folder_of if folder_of else "headway"
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [home + "/" + folder_of]
from headway.agents.shim import main
main(int(socket), folder)
"""
"""The program of the shim's process; packages without their `__init__`, which imports more."""

GRACE_S = 2.0
LOOK_AGAIN_S = 0.02
"""How often it is seen whether the rest of a family has ended, within the grace."""
GIVE_UP_S = 1.5
"""A process that does not die of KILL is stuck in the kernel; the shim waits no longer."""
RETRY_S = 0.5
RUNNING_MAX = 16_384
"""Places in the table that the guard reads; far above what a machine can run at once."""

REFUSALS = (
    errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE, errno.ENOSPC, errno.EDQUOT,
)  # fmt: skip
"""The system would not start it now, whatever it is."""

RESET_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM, signal.SIGXFSZ)


def pack(message: tuple[Any, ...]) -> bytes:
    """A message as it travels. Both ends are one interpreter, so its own format will do."""
    body = marshal.dumps(message)
    return len(body).to_bytes(4, "little") + body


def unpack(buffer: bytearray) -> list[tuple[Any, ...]]:
    """The whole messages at the front of a buffer, which loses them."""
    messages = []
    start = 0
    while len(buffer) - start >= 4:
        end = start + 4 + int.from_bytes(buffer[start : start + 4], "little")
        if len(buffer) < end:
            break
        messages.append(marshal.loads(buffer[start + 4 : end]))
        start = end
    del buffer[:start]
    return messages


def found(name: bytes, path: bytes) -> bytes:
    """The program of this name on a command's own PATH, which need not be this process's."""
    if b"/" in name:
        return name
    fault = errno.ENOENT
    for folder in path.split(b":"):
        program = (folder or b".") + b"/" + name
        if os.path.isfile(program):
            if os.access(program, os.X_OK):
                return program
            fault = errno.EACCES
    raise OSError(fault, os.strerror(fault), name)


class ShimServer:
    def __init__(self, control: int, folder: str, table: mmap.mmap) -> None:
        self.control = control
        self.log = shim_log.ShimLog(folder)
        self.poll = select.poll()
        self.capture = Capture(self.poll)
        self.table = table
        self.free = list(range(RUNNING_MAX - 1, -1, -1))
        self.running: dict[int, shim_log.StartedCommand] = {}
        self.by_id: dict[int, shim_log.StartedCommand] = {}
        self.ending: dict[int, shim_log.StartedCommand] = {}
        self.refused: list[shim_log.StartedCommand] = []
        self.buffer = bytearray()
        self.is_open = True
        self.give_up_s = float("inf")
        self.environment = dict(os.environb)
        self.here = os.getcwd()
        self.woken, waker = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.end_all())
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def serve(self) -> None:
        poll = self.poll
        poll.register(self.control, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        while self.is_open or (self.running and time.monotonic() < self.give_up_s):
            for fd, _ in poll.poll(self._patience_ms()):
                if fd == self.woken:
                    os.read(self.woken, READ_BYTES)
                elif fd != self.control:
                    self.capture.hear(fd)
                elif not self._listen():
                    poll.unregister(self.control)
                    # What has ended by itself before is kept as that, not as ended by us.
                    self._reap()
                    self.end_all()
            self.capture.retry()
            self._kill_what_is_due(time.monotonic())
            self._reap()
        self.log.close()

    def end_all(self) -> None:
        """Headway is gone, or the system wants this process gone: nothing is left behind."""
        self.is_open = False
        now = time.monotonic()
        self.give_up_s = min(self.give_up_s, now + GRACE_S + GIVE_UP_S)
        self._end(list(self.running.values()), shim_log.ORPHANED, now)

    def _listen(self) -> bool:
        try:
            data = os.read(self.control, READ_BYTES)
        except OSError:
            data = b""
        self.buffer += data
        for message in unpack(self.buffer):
            if not self.is_open:
                continue  # It hears of that when this process has ended.
            if message[0] == "start":
                self._start(*message[1:])
            elif message[0] == "look":
                self._tell([("looked", message[1], self._look())])
            elif message[1] in self.by_id:
                self._end([self.by_id[message[1]]], message[0], time.monotonic())
        return bool(data)

    def _look(self) -> list[tuple[int, int, int, int, int]]:
        """What every running command does: its processes that are busy, ticks of CPU, pages of
        memory, bytes of output."""
        seen = activity(set(self.running))
        written = {
            pid: sum(stream.size + len(stream.text) for stream in command.streams)
            for pid, command in self.running.items()
        }
        return [(one.id, *seen[pid], written[pid]) for pid, one in self.running.items()]

    def _start(self, id: int, key: str, attempt: int, what: tuple[Any, ...]) -> None:
        argv, environment, folder, stdin = what
        command = shim_log.StartedCommand(id, key, attempt)
        try:
            if folder != self.here:
                os.chdir(folder)
                self.here = folder
            self.log.must_have_room()
            command.pid = self._spawn(command, argv, environment, stdin)
            command.place = self.free.pop()
        except (OSError, ValueError) as fault:
            self._refuse(command, fault)
            return
        self.running[command.pid] = command
        self.by_id[id] = command
        self._put(command.place, command.pid)
        self.capture.started(command.pid, command.streams)

    def _spawn(
        self,
        command: shim_log.StartedCommand,
        argv: list[bytes],
        more: dict[bytes, bytes],
        stdin: bytes | None,
    ) -> int:
        if not self.free:
            raise OSError(errno.EAGAIN, f"{RUNNING_MAX} commands are running")
        source = "/dev/null"
        if stdin is not None:
            source = shim_log.output_path(self.log.folder, command.key, command.attempt, "in")
            with open(source, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(stdin)
        command.streams = self.capture.open(
            [shim_log.output_path(self.log.folder, command.key, command.attempt, name)
             for name in ("out", "err")]
        )  # fmt: skip
        out, err = command.streams
        environment = {**self.environment, **more} if more else self.environment
        options: dict[str, Any] = {
            "file_actions": (
                (os.POSIX_SPAWN_OPEN, 0, source, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out.theirs, 1),
                (os.POSIX_SPAWN_DUP2, err.theirs, 2),
            ),
            "setsid": True,
            "setsigmask": (),
            "setsigdef": RESET_SIGNALS,
        }
        program = found(argv[0], environment.get(b"PATH", os.defpath.encode()))
        try:
            return os.posix_spawn(program, argv, environment, **options)
        except OSError as fault:
            if fault.errno != errno.ENOEXEC:
                raise
            # A script that does not say by whom it is read is read by a shell, says POSIX.
            argv = [b"/bin/sh", program, *argv[1:]]
            return os.posix_spawn(argv[0], argv, environment, **options)
        finally:
            if stdin is not None:
                shim_log.unlink(source)

    def _refuse(self, command: shim_log.StartedCommand, fault: Exception) -> None:
        """What cannot be started ends as a shell would say: 127 if not found, 126 otherwise."""
        number = fault.errno if isinstance(fault, OSError) else errno.EAGAIN
        code = 127 if number == errno.ENOENT else 126
        if number in REFUSALS:
            command.reason = shim_log.REFUSED
        name = fault.filename if isinstance(fault, OSError) and fault.filename else b""
        shown = os.fsdecode(name) if isinstance(name, bytes) else str(name)
        said = f"{shown}: {os.strerror(number or 0)}\n".encode(errors="replace")
        for stream in command.streams:
            self.capture.drop(stream)
        command.ends = [(0, b""), (len(said), said)]
        command.status = code << 8
        self.refused.append(command)

    def _reap(self) -> None:
        ended, self.refused = self.refused, []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            command = self.running.get(pid)
            if command is not None:
                command.status = status
                cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6)
                command.usage = (cpu_us, usage.ru_maxrss)
                if command.reason == shim_log.EXIT:
                    ended.append(self._forget(command))
        for command in list(self.ending.values()):
            rest = any(is_alive(pid, began) for pid, began in command.family.items())
            if command.status is not None and not rest:
                ended.append(self._forget(command))
        if ended:
            self._tell(self.log.keep(ended))

    def _forget(self, command: shim_log.StartedCommand) -> shim_log.StartedCommand:
        del self.running[command.pid], self.by_id[command.id]
        command.ends = [self.capture.end(stream) for stream in command.streams]
        self.ending.pop(command.pid, None)
        self._put(command.place, 0)
        self.free.append(command.place)
        return command

    def _end(self, commands: list[shim_log.StartedCommand], reason: str, now: float) -> None:
        for command in commands:
            if command.reason != shim_log.EXIT:
                continue
            command.reason = reason
            command.kill_s = now + GRACE_S
            command.family = family(command.pid)
            self.ending[command.pid] = command
            send(command.pid, command.family, signal.SIGTERM)
            send(command.pid, command.family, signal.SIGCONT)

    def _kill_what_is_due(self, now: float) -> None:
        for command in self.ending.values():
            if command.kill_s <= now:
                command.family |= family(command.pid)
                leader = command.pid if command.status is None or not HAS_PROC else 0
                send(leader, command.family, signal.SIGKILL)

    def _patience_ms(self) -> float | None:
        """How long there is nothing to do; None is until a message or the end of a command."""
        if self.ending or self.refused:
            return LOOK_AGAIN_S * 1000 if self.ending else 0
        return RETRY_S * 1000 if self.capture.waiting else None

    def _tell(self, messages: list[tuple[Any, ...]]) -> None:
        data = b"".join(pack(message) for message in messages)
        try:
            while data:
                data = data[os.write(self.control, data) :]
        except OSError:
            # Headway is gone; what ended is in the log.
            return

    def _put(self, place: int, pid: int) -> None:
        self.table[4 * place : 4 * place + 4] = pid.to_bytes(4, sys.byteorder)


def guard(table: mmap.mmap) -> None:
    """Fork a process that ends all commands if this one is killed, and itself when this one ends.

    It shares the table of what runs, so that it costs nothing per command.
    PR_SET_PDEATHSIG would reach only the direct child, and needs a fork of Python per command."""
    wait, hold = os.pipe()
    if os.fork() != 0:
        os.close(wait)
        return
    os.setsid()
    os.close(hold)
    os.read(wait, 1)
    for pid in {*memoryview(table).cast("I")} - {0}:
        send(pid, family(pid), signal.SIGKILL)
    os._exit(0)


def main(control: int, folder: str) -> None:
    os.set_inheritable(control, False)
    table = mmap.mmap(-1, 4 * RUNNING_MAX)
    guard(table)
    try:
        ShimServer(control, folder, table).serve()
    except OSError:
        os._exit(1)  # A full disk: headway notices that the shim ended.
    # Taking the interpreter apart in order would only take time.
    os._exit(0)
