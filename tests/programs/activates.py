# As managers of services do: starts a command with a listening socket, waits until it says that it is ready, and calls it.
#   activates.py FOLDER COMMAND...
import os
import socket
import struct
import sys

PATIENCE_SECONDS = 60
folder, command = sys.argv[1], sys.argv[2:]
listener = socket.socket(socket.AF_UNIX)
listener.bind(folder + "/service")
listener.listen()
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
notify.bind(folder + "/notify")
notify.settimeout(PATIENCE_SECONDS)
service = os.fork()
if service == 0:
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "NOTIFY_SOCKET": folder + "/notify"}
    os.execvpe(command[0], command, os.environ | environment)
message, details, _, _ = notify.recvmsg(4096, 1024)
sender = struct.unpack("iii", details[0][2])[0]
assert sender == service, "another process than the one that was started is ready"
assert message == b"READY=1\nMAINPID=%d" % service, message
client = socket.socket(socket.AF_UNIX)
client.settimeout(PATIENCE_SECONDS)
client.connect(folder + "/service")
print(client.recv(100).decode())
print("status", os.waitstatus_to_exitcode(os.waitpid(service, 0)[1]))
