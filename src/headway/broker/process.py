"""The broker process: `python -m headway.broker.process --lock FILE`, started by `election`.

It holds the file lock for as long as it lives, listens on a socket that only its user can reach,
remembers what was learned, and ends when no client was connected for a while. It can be killed
at any time: its clients start the next one and tell it where they stand.

This file is what is needed before the process is on its own; the rest is imported after that.
"""

from __future__ import annotations

import gc
import os
import sys

from headway.errors import HeadwayError

LOCK_OPTION = "--lock"
GARBAGE_OBJECTS = 20_000
"""Young objects before a collection: messages hold no cycles, so there is little to find."""


def main(arguments: list[str]) -> int:
    """Become the broker; the process that started this one held the lock and hands it over."""
    from headway.base.folders import folders, prepare

    place = folders(os.environ)
    try:
        prepare(place)
        handle = int(arguments[arguments.index(LOCK_OPTION) + 1])
        os.set_inheritable(handle, False)
        if os.fork():
            os._exit(0)
    except HeadwayError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    from headway.broker.election import BrokerLog, BrokerSocket

    log, door = BrokerLog(place.log), BrokerSocket(place.socket)
    from headway.broker.server import BrokerServer

    with BrokerServer(place, door, log, os.environ) as server:
        # What is loaded by now stays; the collector need not walk it while clients wait.
        gc.freeze()
        gc.set_threshold(GARBAGE_OBJECTS)
        server.run()
    os.close(handle)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
