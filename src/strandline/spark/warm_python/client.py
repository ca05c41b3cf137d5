"""What Spark starts in the place of Python: asks the warm process for a child, and lives as long as that does.

Copied beside the server's socket as a script of its own, and run without `site`: it must start in no time. It imports
nothing but the standard library, and nothing of that which is large.
"""

import os
import socket
import sys

SOCKET_NAME = "warm.sock"


def main() -> int:
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    arguments = sys.argv[1:]
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if "-m" not in arguments:
            raise OSError("only modules are run by the warm process")
        asked.connect(os.path.join(here, SOCKET_NAME))
        fields = [os.getcwdb(), b"%d" % len(arguments), *map(os.fsencode, arguments)]
        fields += [name + b"=" + value for name, value in os.environb.items()]
        content = b"\0".join(fields)
        socket.send_fds(asked, [len(content).to_bytes(4, "big")], [0, 1, 2])
        asked.sendall(content)
        if asked.recv(1) != b"+":
            raise OSError("the warm process cannot do it")
    except OSError:
        asked.close()
        os.execv(sys.executable, [sys.executable, *arguments])
    # The child has them now. One that stays open here would hide from Spark that the child has closed it.
    for stream in (0, 1, 2):
        os.close(stream)
    ended = asked.recv(1)
    return ended[0] if ended else 1


if __name__ == "__main__":
    os._exit(main())
