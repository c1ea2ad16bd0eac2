"""The small process under which all commands of a run are started; it outlives headway.

Laws:
- What `ended` reports is durable first: the record in `shim.log`, with the output in it or synced
  beside it. Everything that ended together is synced once. A command starts only if the log has
  room for its end.
- When headway's end of the socket closes, every running command is ended with all of its
  processes: TERM, a grace, KILL. When this process is killed itself, its guard does that.
- Commands inherit 0, 1, 2, the environment, the umask, and default signals; nothing else. Each is
  a session of its own: no terminal to stop at, and its processes can be found.
- A command never meets a full disk by writing to stdout or stderr: it is the shim that writes. What
  the disk does not take stays in memory, up to a limit; after that the command waits.
- What a command wrote before it ended is its output. What its background processes write later is
  read and dropped, so that they do not die of it.

Imports only modules that need no start-up time: `json`, `signal`, `socket`, `subprocess`, `typing`
and `dataclasses` would cost 5 to 17 ms each. `LAUNCH` is how it starts without headway's own.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import marshal
import mmap
import os
import resource  # While files can be opened: when none can be, it raises the limit.
import select
import sys
import termios
import time

from headway.base.process_tree import (
    HAS_PROC,
    activity,
    family,
    is_alive,
    left_in_session,
    send,
)
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
for folder_of in ("", "agents", "base", "journal", "workspaces"):
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


def fork_into(
    spec: str, argv: list[bytes], environment: dict[bytes, bytes], files: tuple[str, int, int]
) -> int:
    """Start a command in a workspace, or an observed one: by a fork of this process, because an
    interpreter of its own takes 15 ms of CPU to start."""
    if "headway.workspaces.enter" not in sys.modules:  # Once, for all forks.
        import headway.workspaces.supervisor  # noqa: F401
        from headway.workspaces import syscalls

        if syscalls.IS_KNOWN:
            syscalls.observed_calls(True), syscalls.observed_calls(False)
        gc.freeze()  # A collection in the fork would copy all of this memory.
    from headway.workspaces import enter

    opened = os.open(files[0], os.O_RDONLY)  # The caller removes the file.
    # Until its handlers are its own, no signal that is for this process may reach it.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid:
            os.close(opened)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if pid:
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *RESET_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        for fd, theirs in enumerate((opened, *files[1:])):
            os.dup2(theirs, fd)
        os.environb.clear()
        os.environb.update(environment)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        enter.main(spec, [os.fsdecode(word) for word in argv])
    finally:
        os._exit(enter.FAULT_CODE)


# What commands write to their pipes.

INLINE_BYTES_MAX = 16_384
"""Output up to this size needs no file: it is kept in the log itself."""
HELD_BYTES_MAX = 1_048_576
"""Of one output, what is held in memory while the disk takes nothing: an agent's whole answer."""
READ_BYTES = 262_144


class Stream:
    """One output of a command: in memory while it is short, else in a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd, self.theirs = os.pipe()
        os.set_blocking(self.fd, False)
        self.text = bytearray()
        self.file = -1
        self.size = 0
        self.is_over = False

    @property
    def is_full(self) -> bool:
        return len(self.text) > HELD_BYTES_MAX

    def read(self) -> bool:
        """Read what the pipe holds; False if its writing end is closed."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return True
        if not self.is_over:
            self.text += data
            self.spill()
        return bool(data)

    def read_rest(self) -> None:
        """Take what the pipe holds now, and not what background processes add meanwhile."""
        left = int.from_bytes(fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        while left:
            data = os.read(self.fd, left)
            left -= len(data)
            self.text += data
        self.spill()

    def spill(self) -> None:
        """Write a long output to its file, as far as the disk takes it."""
        if self.file < 0 and len(self.text) <= INLINE_BYTES_MAX:
            return
        try:
            if self.file < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self.file = os.open(self.path, flags, 0o600)
            while self.text:
                written = os.write(self.file, self.text)
                self.size += written
                del self.text[:written]
        except OSError:
            return

    def end(self) -> tuple[int, bytes | None]:
        """The command has ended: the size of its output, and the output unless a file has it."""
        self.is_over = True
        if self.file < 0:
            return len(self.text), bytes(self.text)
        try:
            self.spill()
            if not self.text:
                os.fsync(self.file)
                return self.size, None
        except OSError:
            pass
        finally:
            whole = b"" if not self.text else os.pread(self.file, self.size, 0) + self.text
            os.close(self.file)
            self.file = -1
            self.text.clear()
        return len(whole), whole


class Capture:
    def __init__(self, poll: select.poll) -> None:
        self.poll = poll
        self.streams: dict[int, Stream] = {}
        self.waiting: list[Stream] = []
        """Not read for now: the disk does not take what they have."""
        self.limits: tuple[int, int] | None = None
        """Of open files, as commands are to have them."""

    def open(self, paths: list[str]) -> list[Stream]:
        made: list[Stream] = []
        try:
            for path in paths:
                made.append(self._opened(path))
        except OSError:
            for stream in made:
                self.drop(stream)
            raise
        return made

    def _opened(self, path: str) -> Stream:
        try:
            stream = Stream(path)
        except OSError as fault:
            if fault.errno != errno.EMFILE or self.limits is not None:
                raise
            self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.limits[1], self.limits[1]))
            stream = Stream(path)
        self.streams[stream.fd] = stream
        self.poll.register(stream.fd, select.POLLIN)
        return stream

    def started(self, pid: int, streams: list[Stream]) -> None:
        for stream in streams:
            os.close(stream.theirs)
            stream.theirs = -1
        if self.limits is not None:
            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, self.limits)
            except OSError:
                return

    def hear(self, fd: int) -> None:
        stream = self.streams.get(fd)
        if stream is None:
            return  # Its command has ended in this very round.
        if not stream.read():
            self.drop(stream)
        elif stream.is_full:
            self.poll.unregister(fd)
            self.waiting.append(stream)

    def retry(self) -> None:
        waiting, self.waiting = self.waiting, []
        for stream in waiting:
            stream.spill()
            if stream.is_full:
                self.waiting.append(stream)
            else:
                self.poll.register(stream.fd, select.POLLIN)

    def end(self, stream: Stream) -> tuple[int, bytes | None]:
        if stream.fd in self.streams:
            stream.read_rest()
        output = stream.end()
        if stream in self.waiting:
            self.waiting.remove(stream)
            self.poll.register(stream.fd, select.POLLIN)
        if stream.fd in self.streams and not stream.read():
            self.drop(stream)
        return output

    def drop(self, stream: Stream) -> None:
        if self.streams.pop(stream.fd, None) is None:
            return  # It was dropped before.
        if stream in self.waiting:
            self.waiting.remove(stream)
        else:
            self.poll.unregister(stream.fd)
        os.close(stream.fd)
        # The next pipe may have its number: a stream that is over must not meet it again.
        stream.fd = -1
        if stream.theirs >= 0:
            os.close(stream.theirs)


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
                continue  # Headway notices when this process has ended.
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
        argv, environment, folder, stdin, spec = what
        command = shim_log.StartedCommand(id, key, attempt)
        try:
            if folder != self.here:
                os.chdir(folder)
                self.here = folder
            self.log.must_have_room()
            command.pid = self._spawn(command, argv, environment, stdin, spec)
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
        spec: str,
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
        if spec:
            try:
                return fork_into(spec, argv, environment, (source, out.theirs, err.theirs))
            finally:
                if stdin is not None:
                    shim_log.unlink(source)
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
            # A script without an interpreter line is run by a shell, by POSIX.
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
        words = f"{shown}: {os.strerror(number or 0)}\n".encode(errors="replace")
        for stream in command.streams:
            self.capture.drop(stream)
        command.ends = [(0, b""), (len(words), words)]
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
            if command.status is None or rest:
                continue
            # Processes that were started while the others were being ended.
            command.family = left_in_session(command.pid)
            if command.family:
                send(0, command.family, signal.SIGTERM)
            else:
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
    give_up_s = time.monotonic() + GIVE_UP_S
    for pid in {*memoryview(table).cast("I")} - {0}:
        # Again, for what was started meanwhile.
        while (processes := family(pid)) and time.monotonic() < give_up_s:
            send(pid, processes, signal.SIGKILL)
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
