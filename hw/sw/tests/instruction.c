// SPDX-License-Identifier: MIT OR Apache-2.0
// Instructions come from remote pages too. A wrong path that walks to one fetches nothing and leaves nothing behind.
#include "os.h"

extern char user_image_begin[], user_path[], user_both[];

__asm__(".pushsection .user, \"ax\"\n"
        ".option push\n.option norvc\n"
        // Page 0. user_path(a0): falls into page 1 only for zero; the branch is the last instruction of the page, and the
        // predictor, which does not know it, goes on into page 1.
        "user_path:\n"
        "  mv t0, a0\n"
        "  j 1f\n"
        "3: li a0, 33\n"
        "  ecall\n"
        // user_both(a0): a load from a remote page, and at once a jump to another.
        "user_both:\n"
        "  ld a0, 0(a0)\n"
        "  j 4f\n"
        "  .org user_path + 4096 - 12\n"
        "1: mul t1, t0, t0\n"
        "  div t1, t1, t0\n"
        "  bnez t0, 3b\n"
        // Page 1.
        "  li a0, 77\n"
        "  ecall\n"
        "4: addi a0, a0, 1\n"
        "  ecall\n"
        "  .org user_path + 8192\n"
        ".option pop\n"
        ".popsection\n");

static unsigned unexpected;

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    if (cause == CAUSE_USER_CALL) {
        leave_user(trap, trap->x[10]);
        return;
    }
    unexpected++;
    panic("trap", cause << 48 ^ value);
}

static uint64_t run(const char *at, uint64_t argument) {
    enter_user(USER_BASE + (uint64_t)(at - user_image_begin), user_address(9), argument);
    return user_result();
}

static void make_code_remote(uint64_t id) {
    uint64_t frame = frame_take();
    memcpy((void *)frame, user_image_begin + PAGE_BYTES, PAGE_BYTES);
    check(evict(frame, id));
    *user_entry(1) = remote_entry(id, USER_BITS);
    fence();
    flush_all();
}

int main(void) {
    paging_start();
    pfa_start(1000000);
    uint64_t first = frame_take();
    memcpy((void *)first, user_image_begin, PAGE_BYTES);
    *user_entry(0) = local_entry(first, USER_BITS);
    make_code_remote(500);
    __asm__ volatile("fence.i" ::: "memory");
    for (unsigned i = 0; i < 3; i++) give_frame(frame_take());

    // The wrong path, several times: the predictor learns.
    for (unsigned i = 0; i < 6; i++) check(run(user_path, 5) == 33);
    check(pfa_read(PFA_FETCHES) == 0);
    check(is_remote(*user_entry(1)));
    check(pfa_read(PFA_DROPPED) > 0);
    print_number("walks of wrong paths:", pfa_read(PFA_DROPPED));

    // The right path: no fault, although the same page was dropped before.
    check(run(user_path, 0) == 77);
    check(pfa_read(PFA_FETCHES) == 1);
    check(take_new() == 500);

    // Data and instructions miss together.
    make_code_remote(501);
    make_remote(4, 502);
    check(run(user_both, user_address(4)) == pattern(502, 0) + 1);
    check(pfa_read(PFA_FETCHES) == 3);
    uint64_t one = take_new(), two = take_new();
    check((one == 501 && two == 502) || (one == 502 && two == 501));
    check(unexpected == 0 && pfa_read(PFA_REFUSED) == 0);
    check_quiet();
    return 0;
}
