// SPDX-License-Identifier: MIT OR Apache-2.0
// The first and only program: prepares swap and a memory group, and runs one benchmark in it, as the simulator says:
//
//   register kRun   0 nothing   1 latency of a touch   2 quicksort   3 gen   4 what may go wrong
//   kPages          pages of data        kLimit  pages that may be here (0: all)
//   kAccelerated    0: by faults   n: by the accelerator, n frames in the FreeQ
//   kEvictions      evictions at once; by faults: 0 to wait for each
//   kThreshold      pages in the NewQ for an interrupt; 0: none
//   kDaemon         1: kpfad runs
//   kPause          microseconds of sleep after each of the first benchmark's touches; of the fourth, which case: 0 for all
//
// What the simulator says is read after the boot: a snapshot of the machine made before serves for all runs.
#include "benchmarks.h"
#include "system.h"

enum { PAGE_BYTES = 4096, SWAP_PAGES = 2048, OVERHEAD_PAGES = 4 };
enum { RUN, PAGES, LIMIT, ACCELERATED, EVICTIONS, THRESHOLD, DAEMON, PAUSE, SETTINGS };

// The kernel shows the simulator's registers as a file, a number on each line.
static void settings_read(uint64_t *settings) {
    char text[256];
    long file = call(SYS_openat, -100, "/proc/pfa_settings", 0);
    if (file < 0) stop("settings", file);
    long bytes = call(SYS_read, file, text, sizeof text - 1);
    call(SYS_close, file, 0, 0);
    text[bytes > 0 ? bytes : 0] = 0;
    const char *at = text;
    for (int i = 0; i < SETTINGS; i++) {
        settings[i] = 0;
        while (*at >= '0' && *at <= '9') settings[i] = settings[i] * 10 + (uint64_t)(*at++ - '0');
        if (*at) at++;
    }
}

static void make_swap(void) {
    static uint8_t header[PAGE_BYTES];
    long result = call6(SYS_mknodat, -100, (long)"/ram0", 0060600, 1 << 8, 0, 0);
    if (result) stop("swap device", result);
    ((uint32_t *)header)[256] = 1;              // version
    ((uint32_t *)header)[257] = SWAP_PAGES - 1; // last page
    memcpy(header + PAGE_BYTES - 10, "SWAPSPACE2", 10);
    long file = call(SYS_openat, -100, "/ram0", 1);
    if (file < 0) stop("swap device", file);
    result = call(SYS_write, file, header, PAGE_BYTES);
    if (result != PAGE_BYTES) stop("swap header", result);
    call(SYS_close, file, 0, 0);
    result = call(SYS_swapon, "/ram0", 0, 0);
    if (result) stop("swapon", result);
}

static void run(const uint64_t *settings) {
    if (settings[LIMIT]) number_file("/group/one/memory.max", "", (settings[LIMIT] + OVERHEAD_PAGES) * PAGE_BYTES);
    // The fourth has processes of its own in the group.
    if (settings[RUN] != 4) put_file("/group/one/cgroup.procs", "0");
    if (settings[ACCELERATED]) {
        number_file("/proc/pfa", "batch ", settings[ACCELERATED]);
        number_file("/proc/pfa", "evictions ", settings[EVICTIONS]);
        number_file("/proc/pfa", "threshold ", settings[THRESHOLD]);
        number_file("/proc/pfa", "kpfad ", settings[DAEMON]);
        if (settings[RUN] != 4) put_file("/proc/pfa", "attach");
    }
    if (!settings[ACCELERATED] && settings[EVICTIONS]) {
        number_file("/proc/pfa", "evictions ", settings[EVICTIONS]);
        put_file("/proc/pfa", "asynchronous 1");
    }
    uint8_t *data = settings[RUN] == 4 ? 0 : (uint8_t *)call6(SYS_mmap, 0, (long)(settings[PAGES] * PAGE_BYTES), 3, 0x22, -1, 0);
    put_file("/proc/pfa", "reset");
    uint64_t begin = cycle();
    int right = 0;
    switch (settings[RUN]) {
    case 1: right = latency(data, settings[PAGES], settings[PAUSE]); break;
    case 2: right = quicksort((uint32_t *)data, settings[PAGES] * (PAGE_BYTES / 4)); break;
    case 3: right = gen(data, settings[PAGES] * PAGE_BYTES); break;
    case 4: right = trouble(settings[PAGES], settings[PAUSE]); break;
    default: break;
    }
    print_number("cycles", cycle() - begin);
    print_number("right", (uint64_t)right);
    show_file("/proc/pfa");
}

int main(void) {
    uint64_t settings[SETTINGS];
    call(SYS_mkdirat, -100, "/proc", 0755);
    call(SYS_mkdirat, -100, "/group", 0755);
    call6(SYS_mount, (long)"proc", (long)"/proc", (long)"proc", 0, 0, 0);
    long result = call6(SYS_mount, (long)"none", (long)"/group", (long)"cgroup2", 0, 0, 0);
    if (result) stop("memory groups", result);
    make_swap();
    put_file("/group/cgroup.subtree_control", "+memory");
    call(SYS_mkdirat, -100, "/group/one", 0755);
    // Reading the settings ends the boot.
    settings_read(settings);
    long child = call6(SYS_clone, 17, 0, 0, 0, 0, 0);
    if (child == 0) {
        run(settings);
        call(SYS_exit, 0, 0, 0);
    }
    int status = 1;
    call6(SYS_wait4, child, (long)&status, 0, 0, 0, 0);
    print_number("status", (uint64_t)status);
    call(SYS_reboot, 0xfee1dead, 0x28121969, 0x4321fedc);
    return 0;
}
