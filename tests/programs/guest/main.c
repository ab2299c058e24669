/* The first process of a guest: loads the kernel's modules, starts a server, and carries bytes between it and the machine
 * outside until it ends. Then the guest is switched off. A guest needs no other program, no shell and no network.
 *
 * Of the file system it expects `/modules/0`, `/modules/1` and so on, in the order in which they are loaded. Its arguments
 * are the server's program and what that is started with; the server listens on `/server.socket`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* The first port of the first virtio-serial device that is no console. */
static const char port_path[] = "/dev/vport0p1";
static const char socket_path[] = "/server.socket";

enum { pause_us = 10000, pauses = 3000 };

/* The kernel panics when its first process ends, and the machine with it: outside that counts as a failure. */
static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void load_modules(void)
{
    for (int number = 0;; number++) {
        char path[32];
        snprintf(path, sizeof path, "/modules/%d", number);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            return;
        if (syscall(SYS_finit_module, file, "", 0) != 0)
            fail(path);
        close(file);
    }
}

/* The kernel finds its devices while this program runs already. */
static int open_port(void)
{
    for (int tried = 0; tried < pauses; tried++) {
        int port = open(port_path, O_RDWR | O_CLOEXEC);
        if (port >= 0)
            return port;
        usleep(pause_us);
    }
    fail(port_path);
    return -1;
}

static int connect_to_server(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, socket_path);
    for (int tried = 0; tried < pauses; tried++) {
        int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (server >= 0 && connect(server, (struct sockaddr *)&address, sizeof address) == 0)
            return server;
        close(server);
        usleep(pause_us);
    }
    fail(socket_path);
    return -1;
}

/* Passes on what comes, until one side has ended. A port that nobody outside has opened reads as one at its end. */
static void carry(int from, int to, int waits_for_somebody)
{
    static char bytes[1 << 16];
    for (;;) {
        ssize_t count = read(from, bytes, sizeof bytes);
        if (count == 0 && waits_for_somebody) {
            usleep(pause_us);
            continue;
        }
        if (count <= 0)
            return;
        for (ssize_t done = 0; done < count;) {
            ssize_t more = write(to, bytes + done, count - done);
            if (more <= 0)
                return;
            done += more;
        }
    }
}

int main(int count, char **arguments)
{
    if (count < 2)
        fail("a server's program");
    mkdir("/dev", 0755);
    mkdir("/proc", 0755);
    if (mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) != 0 || mount("proc", "/proc", "proc", 0, NULL) != 0)
        fail("mount");
    load_modules();
    int port = open_port();
    pid_t started = fork();
    if (started == 0) {
        execv(arguments[1], arguments + 1);
        fail(arguments[1]);
    }
    int server = connect_to_server();
    puts("the guest serves");
    fflush(stdout);
    if (fork() == 0) {
        carry(port, server, 1);
        _exit(0);
    }
    carry(server, port, 0);
    int status;
    if (waitpid(started, &status, 0) != started || status != 0)
        fail("the server's end");
    reboot(RB_POWER_OFF);
    fail("reboot");
}
