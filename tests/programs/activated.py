# A service as a manager starts it: it is given a socket and the address to which it says that it is ready. It keeps 48 MiB, and answers one client with what it finds wrong.
import os
import socket

assert os.environ["LISTEN_PID"] == str(os.getpid()), "the socket is meant for another process"
assert os.environ["LISTEN_FDS"] == "1"
listener = socket.socket(fileno=3)
data = bytearray(48 << 20)
pages = len(data) >> 12
for turn in range(3):
    for page in range(pages):
        data[page << 12] = (data[page << 12] + page) % 251
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.connect(os.environ["NOTIFY_SOCKET"])
notify.send(b"READY=1\nMAINPID=%d" % os.getpid())
client = listener.accept()[0]
wrong = sum(data[page << 12] != page % 251 * 3 % 251 for page in range(pages))
client.sendall(b"%d pages, %d wrong" % (pages, wrong))
