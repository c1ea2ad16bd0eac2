"""The broker's loop: read messages, decide once for all waiters, reply, store.

Laws:
- One round: all that is readable is heard, then one decision, then all answers are sent.
- A client that misbehaves gets an error and is cut off, alone. Every buffer is bounded.
- Every client is of the same user. The folder's rights see to that; the kernel is asked once more
  where it can tell.
- A closed socket is a client that is gone: its permits are settled in the same round.
- The heir of a broker that was killed decides nothing until those who were connected have told
  it what is in flight, or have had the time to.
- What changed is on the disk within `SAVE_S`; money before it is spent (see `service.py`).
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
import traceback
from collections.abc import Mapping
from typing import Final, Self

from headway.base.clock import now_s
from headway.base.folders import Folders
from headway.broker import protocol
from headway.broker.election import BrokerLog, BrokerSocket
from headway.broker.service import STALL_S, AdmissionService
from headway.broker.store import Store, open_admission
from headway.errors import WireError

IDLE_S: Final = 60.0
"""A broker without clients stays for so long: the next command of a shell finds it."""
SAVE_S: Final = 0.25
"""What was learned is written down this often while something changes..."""
SAVE_AGAIN_S: Final = 5.0
"""...and tried again after so long when the disk was full."""
RETURN_S: Final = 0.5
"""How long an heir waits for the clients of its predecessor: they are back in a tenth of that."""
LOOK_S: Final = 2.0
"""How often the broker looks at the calendar, at its socket, and at who never said a word."""


# One client's connection as the broker sees it: bytes in, messages out, all of it bounded.

HELLO_S_MAX: Final = 10.0
"""A client says who it is as soon as it is connected."""


class Peer:
    __slots__ = ("hello", "is_closing", "is_held_up", "messages", "since_s", "sock", "unsent")

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock = sock
        self.since_s = now
        self.hello: protocol.Hello | None = None
        self.is_closing = False
        self.is_held_up = False
        self.messages = protocol.ClientMessages()
        self.unsent = bytearray()

    def put(self, message: protocol.FromBroker) -> None:
        if self.is_closing:
            return
        try:
            self.unsent += protocol.packed(message, protocol.ANSWER_BYTES_MAX)
        except WireError as fault:
            self.unsent += protocol.packed(protocol.Rejected(fault.message))
        if len(self.unsent) > 2 * protocol.ANSWER_BYTES_MAX:
            # It has stopped reading.
            self.unsent.clear()
            self.is_closing = True

    def flush(self) -> bool:
        try:
            while self.unsent:
                del self.unsent[: self.sock.send(self.unsent)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


PEERS_MAX: Final = 512
"""Processes of one user at once; more files than that cannot be open on some systems."""


def _is_same_user(sock: socket.socket) -> bool:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    told = sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", told)
    return bool(uid == os.geteuid())


class BrokerServer:
    def __init__(
        self, place: Folders, door: BrokerSocket, log: BrokerLog, environ: Mapping[str, str]
    ) -> None:
        self._door = door
        self._place = place
        self._log = log
        self._idle_s = _number(environ, "HEADWAY_IDLE_S", IDLE_S)
        self._store = Store(place.memory)
        self._clients: dict[str, Peer] = {}
        kept, now = self._store.load(), now_s()
        self._born_s = self._alone_s = self._looked_s = now
        self._save_s = 0.0
        self._is_changed = False
        self._admission = open_admission(kept, now)
        self._service = AdmissionService(
            self._admission, self._send, lambda: self._save(is_durable=True), log.say,
            stall_s=_number(environ, "HEADWAY_STALL_S", STALL_S),
        )  # fmt: skip
        if kept.notice:
            self._service.notice(kept.notice)
        self._peers: set[Peer] = set()
        self._touched: set[Peer] = set()
        """Those to whom something is to be sent, or who are to be closed."""
        self._bell = socket.socketpair()
        self._bell[1].setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(door.listener, selectors.EVENT_READ)
        self._selector.register(self._bell[0], selectors.EVENT_READ)
        # A socket without anybody behind it: its clients are looking for an heir.
        self._awaited = set(kept.clients) if door.was_left else set()

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._bell[1].fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # The wake-up file tells the loop.
            signal.signal(number, lambda *_: None)
        self._log.say(f"listening at {self._place.socket}")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        self._save_s = 0.0
        self._save(is_durable=True)
        self._door.close(is_awaited=bool(self._peers))
        for peer in list(self._peers):
            self._drop(peer)
        self._selector.close()
        for end in self._bell:
            end.close()
        self._log.say(f"ended{' by ' + kind.__name__ if kind else ''}")

    def run(self) -> None:
        has_rung = False
        while not has_rung and self._keep_house():
            for key, events in self._selector.select(self._nap_s()):
                if isinstance(key.data, Peer):
                    self._touched.add(key.data)
                    if events & selectors.EVENT_READ:
                        self._hear(key.data)
                elif key.fileobj is self._door.listener:
                    self._accept()
                else:
                    has_rung = True
            service = self._service
            if (service.is_due or now_s() >= service.wake_s) and not self._is_waiting():
                service.decide()
            self._flush()

    def _accept(self) -> None:
        try:
            sock, _ = self._door.listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        if not _is_same_user(sock):
            sock.close()
            return
        peer = Peer(sock, now_s())
        self._peers.add(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)
        if len(self._peers) > PEERS_MAX:
            self._refuse(peer, f"{PEERS_MAX} processes are connected: no more can be")

    def _flush(self) -> None:
        touched, self._touched = self._touched, set()
        for peer in touched & self._peers:
            if not peer.flush() or peer.is_closing:
                self._gone(peer)
            elif peer.is_held_up != bool(peer.unsent):
                peer.is_held_up = bool(peer.unsent)
                writing = selectors.EVENT_WRITE if peer.unsent else 0
                self._selector.modify(peer.sock, selectors.EVENT_READ | writing, peer)

    def _drop(self, peer: Peer) -> None:
        if peer in self._peers:
            self._peers.remove(peer)
            self._selector.unregister(peer.sock)
            peer.sock.close()

    def _nap_s(self) -> float:
        due_s = min(self._service.wake_s, self._looked_s + LOOK_S)
        if self._awaited:
            due_s = self._born_s + RETURN_S
        if self._is_changed:
            due_s = min(due_s, self._save_s)
        if not self._peers:
            due_s = min(due_s, self._alone_s + self._idle_s)
        return max(0.0, due_s - now_s())

    def _is_waiting(self) -> bool:
        self._awaited -= self._clients.keys()
        if now_s() >= self._born_s + RETURN_S:
            self._awaited = set()
        return bool(self._awaited)

    def _hear(self, peer: Peer) -> None:
        self._is_changed = True
        try:
            data = peer.sock.recv(protocol.MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone(peer)
            return
        try:
            for message in peer.messages.feed(data):
                if peer.hello is None:
                    self._greet(peer, message)
                else:
                    self._service.handle(peer.hello.client, message)
        except WireError as error:
            self._refuse(peer, f"{error.message} {error.detail or ''}")
        except Exception as fault:
            # The boundary: one client's message must not take the others down.
            self._log.say(traceback.format_exc().replace("\n", " | "))
            self._refuse(peer, f"{type(fault).__name__} in the broker: see {self._place.log}")

    def _greet(self, peer: Peer, message: protocol.FromClient) -> None:
        """Know the client from now on, under its new connection if it had another."""
        if not isinstance(message, protocol.Hello):
            raise WireError("a client says first who it is")
        if message.version != protocol.VERSION:
            raise WireError(
                f"the broker speaks version {protocol.VERSION}, this process version"
                f" {message.version}: one of them is of another headway"
            )
        former = self._clients.get(message.client)
        if former is not None:
            self._gone(former)
        peer.hello = message
        self._clients[message.client] = peer
        self._service.handle(message.client, message)

    def _refuse(self, peer: Peer, why: str) -> None:
        who = peer.hello.client if peer.hello else "a client without a name"
        self._log.say(f"{who} is cut off: {why}")
        peer.put(protocol.Rejected(why[:500]))
        peer.is_closing = True
        self._touched.add(peer)

    def _gone(self, peer: Peer) -> None:
        """A client went away, or was sent away: everything that it held ends."""
        self._drop(peer)
        hello = peer.hello
        if hello is not None and self._clients.get(hello.client) is peer:
            del self._clients[hello.client]
            self._service.left(hello.client)
            self._is_changed = True
        self._alone_s = now_s()

    def _send(self, client: str, message: protocol.FromBroker) -> None:
        peer = self._clients.get(client)
        if peer is not None:
            peer.put(message)
            self._touched.add(peer)

    def _save(self, is_durable: bool = False) -> str:
        """Why what was learned is not on the disk, or nothing."""
        now = now_s()
        is_early = now < self._save_s
        clients = {*self._clients, *self._awaited}
        fault = self._store.save(
            self._admission, now, clients, is_money=is_early, is_durable=is_durable
        )
        if fault or not is_early:
            self._is_changed = bool(fault)
            self._save_s = now + (SAVE_AGAIN_S if fault else SAVE_S)
        if fault:
            self._service.notice(f"what was learned cannot be kept: {fault}")
        return fault

    def _keep_house(self) -> bool:
        """What is due by itself; False when the broker is needed no longer."""
        now = now_s()
        if self._is_changed and now >= self._save_s:
            self._save()
        if now >= self._looked_s + LOOK_S:
            self._looked_s = now
            self._service.turn()
            for peer in list(self._peers):
                if peer.hello is None and now - peer.since_s > HELLO_S_MAX:
                    self._gone(peer)
            if not self._door.is_found():
                self._log.say("the socket was removed or replaced: clients cannot find this one")
                return False
        return bool(self._peers) or now < self._alone_s + self._idle_s


def _number(environ: Mapping[str, str], name: str, otherwise: float) -> float:
    try:
        return float(environ.get(name, otherwise))
    except ValueError:
        return otherwise
