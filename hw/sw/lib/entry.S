# SPDX-License-Identifier: MIT OR Apache-2.0
# Where every program begins: stacks, traps, the way to user mode and back.
    .section .text.entry
    .globl _start
_start:
    csrw mie, zero
    # Every trap comes here. After a reset these hold anything.
    csrw medeleg, zero
    csrw mideleg, zero
    # All of memory is open to the lower modes; paging alone protects. A core without this protection traps here, and goes on.
    la t0, 1f
    csrw mtvec, t0
    li t0, -1
    csrw pmpaddr0, t0
    li t0, 0x1f
    csrw pmpcfg0, t0
    .align 2
1:  la t0, trap_entry
    csrw mtvec, t0
    csrr a0, mhartid
    la sp, stacks
    addi t0, a0, 1
    slli t0, t0, 14
    add sp, sp, t0
    csrw mscratch, zero
    bnez a0, second
    la t0, bss_begin
    la t1, bss_end
1:  bgeu t0, t1, 2f
    sd zero, 0(t0)
    addi t0, t0, 8
    j 1b
2:  call main
    tail machine_exit
second:
    # Hart 1 waits until hart 0 wakes it.
    li t0, 8
    csrw mie, t0
1:  wfi
    csrr t0, mip
    andi t0, t0, 8
    beqz t0, 1b
    csrw mie, zero
    call main_second
2:  wfi
    j 2b

    .align 4
    # mscratch holds the stack for traps from user mode, and zero in machine mode, whose traps stay on the stack they find.
trap_entry:
    csrrw sp, mscratch, sp
    bnez sp, 1f
    csrr sp, mscratch
1:  addi sp, sp, -256
    sd x1, 8(sp)
    sd x3, 24(sp)
    sd x4, 32(sp)
    sd x5, 40(sp)
    sd x6, 48(sp)
    sd x7, 56(sp)
    sd x8, 64(sp)
    sd x9, 72(sp)
    sd x10, 80(sp)
    sd x11, 88(sp)
    sd x12, 96(sp)
    sd x13, 104(sp)
    sd x14, 112(sp)
    sd x15, 120(sp)
    sd x16, 128(sp)
    sd x17, 136(sp)
    sd x18, 144(sp)
    sd x19, 152(sp)
    sd x20, 160(sp)
    sd x21, 168(sp)
    sd x22, 176(sp)
    sd x23, 184(sp)
    sd x24, 192(sp)
    sd x25, 200(sp)
    sd x26, 208(sp)
    sd x27, 216(sp)
    sd x28, 224(sp)
    sd x29, 232(sp)
    sd x30, 240(sp)
    sd x31, 248(sp)
    csrr t0, mscratch
    sd t0, 16(sp)
    csrw mscratch, zero
    csrr t0, mepc
    sd t0, 0(sp)
    mv a0, sp
    csrr a1, mcause
    csrr a2, mtval
    call handle_trap
    csrr t0, mstatus
    srli t0, t0, 11
    andi t0, t0, 3
    bnez t0, 1f
    addi t0, sp, 256
    csrw mscratch, t0
1:  ld t0, 0(sp)
    csrw mepc, t0
    ld x1, 8(sp)
    ld x3, 24(sp)
    ld x4, 32(sp)
    ld x5, 40(sp)
    ld x6, 48(sp)
    ld x7, 56(sp)
    ld x8, 64(sp)
    ld x9, 72(sp)
    ld x10, 80(sp)
    ld x11, 88(sp)
    ld x12, 96(sp)
    ld x13, 104(sp)
    ld x14, 112(sp)
    ld x15, 120(sp)
    ld x16, 128(sp)
    ld x17, 136(sp)
    ld x18, 144(sp)
    ld x19, 152(sp)
    ld x20, 160(sp)
    ld x21, 168(sp)
    ld x22, 176(sp)
    ld x23, 184(sp)
    ld x24, 192(sp)
    ld x25, 200(sp)
    ld x26, 208(sp)
    ld x27, 216(sp)
    ld x28, 224(sp)
    ld x29, 232(sp)
    ld x30, 240(sp)
    ld x31, 248(sp)
    ld x2, 16(sp)
    mret

    # user_load(address), user_store(address, value), user_load_byte(address): with the page tables, in user mode's eyes.
    # A fault inside comes to handle_trap like any other, with MPRV still set: it is cleared there by the trap's MPP.
    .globl user_load, user_store, user_load_byte
user_load:
    li t1, 1 << 17
    li t2, 3 << 11
    csrc mstatus, t2
    csrs mstatus, t1
    ld a0, 0(a0)
    csrc mstatus, t1
    csrs mstatus, t2
    ret
user_load_byte:
    li t1, 1 << 17
    li t2, 3 << 11
    csrc mstatus, t2
    csrs mstatus, t1
    lbu a0, 0(a0)
    csrc mstatus, t1
    csrs mstatus, t2
    ret
user_store:
    li t1, 1 << 17
    li t2, 3 << 11
    csrc mstatus, t2
    csrs mstatus, t1
    sd a1, 0(a0)
    csrc mstatus, t1
    csrs mstatus, t2
    ret

    # enter_user(pc, stack, argument): saves what a callee must keep, so that leave_user can return from here.
    .globl enter_user, user_return
enter_user:
    addi sp, sp, -112
    sd ra, 0(sp)
    sd s0, 8(sp)
    sd s1, 16(sp)
    sd s2, 24(sp)
    sd s3, 32(sp)
    sd s4, 40(sp)
    sd s5, 48(sp)
    sd s6, 56(sp)
    sd s7, 64(sp)
    sd s8, 72(sp)
    sd s9, 80(sp)
    sd s10, 88(sp)
    sd s11, 96(sp)
    csrr t0, mhartid
    slli t0, t0, 3
    la t1, kernel_stacks
    add t1, t1, t0
    sd sp, 0(t1)
    csrw mscratch, sp
    csrw mepc, a0
    li t0, 3 << 11
    csrc mstatus, t0
    mv sp, a1
    mv a0, a2
    mret
user_return:
    csrr t0, mhartid
    slli t0, t0, 3
    la t1, kernel_stacks
    add t1, t1, t0
    ld sp, 0(t1)
    ld ra, 0(sp)
    ld s0, 8(sp)
    ld s1, 16(sp)
    ld s2, 24(sp)
    ld s3, 32(sp)
    ld s4, 40(sp)
    ld s5, 48(sp)
    ld s6, 56(sp)
    ld s7, 64(sp)
    ld s8, 72(sp)
    ld s9, 80(sp)
    ld s10, 88(sp)
    ld s11, 96(sp)
    addi sp, sp, 112
    ret

    .bss
    .align 4
kernel_stacks:
    .space 16
    .section .stacks, "aw", @nobits
    .align 4
stacks:
    .space 32768
