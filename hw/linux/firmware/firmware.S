# SPDX-License-Identifier: MIT OR Apache-2.0
# Machine mode below Linux: the few calls of the SBI that a kernel for one hart needs, the timer, and reads of `time`, which this core
# leaves to software. Kernel and device tree are part of the image.
#include "snapshot.h"
#include "../../sw/lib/pfa_registers.h"
    .equ CLINT_COMPARE, CLINT_TIME_COMPARE
    .equ SIMULATOR, 0x60000000
    .equ ACCELERATOR, 0x10020000
    # What the device tree gives to the kernel.
    .equ KERNEL_BEGIN, 0x80200000
    .equ KERNEL_END, 0x82000000

    .section .text.entry, "ax"
    .globl _start
_start:
    # One hart runs the kernel.
    csrw mie, zero
    csrr t0, mhartid
    beqz t0, 2f
1:  wfi
    j 1b
2:  la sp, stack_end
    csrw mscratch, sp
#ifdef SPIKE
    la t0, model_entry
#else
    la t0, trap
#endif
    csrw mtvec, t0
    li t0, -1
    csrw pmpaddr0, t0
    li t0, 0x1f
    csrw pmpcfg0, t0
#ifndef SPIKE
    # The kernel may have its own memory read and written by the accelerator, and nothing else, until the next reset.
    li t1, ACCELERATOR
    li t0, KERNEL_BEGIN
    sd t0, PFA_FRAME_BASE(t1)
    li t0, KERNEL_END
    sd t0, PFA_FRAME_LIMIT(t1)
    li t0, 1
    sd t0, PFA_FRAME_LOCK(t1)
#endif
    # Supervisor's: its calls from user mode, page faults, break points, misaligned instructions, accesses nobody answers.
#ifdef SPIKE
    # The model sees page faults and accesses that nobody answers first.
    li t0, 0x010b
#else
    li t0, 0xb1ab
#endif
    csrw medeleg, t0
    li t0, 0x222
    csrw mideleg, t0
    # User and supervisor may count cycles and instructions; `time` traps anyhow.
    li t0, 5
    csrw mcounteren, t0
    csrw scounteren, t0
#ifdef RESUME
    # Goes on where another machine was stopped.
    li s0, SNAPSHOT_STATE
    .macro put_word state, address
    ld t0, \state(s0)
    li t1, \address
    sw t0, (t1)
    .endm
    put_word STATE_PLIC_PRIORITY, PLIC_PRIORITY
    put_word STATE_PLIC_ENABLE, PLIC_ENABLE
    put_word STATE_PLIC_THRESHOLD, PLIC_THRESHOLD
    ld t0, STATE_TIME(s0)
    li t1, CLINT_TIME
    sd t0, (t1)
    ld t0, STATE_TIME_COMPARE(s0)
    li t1, CLINT_TIME_COMPARE
    sd t0, (t1)
    .macro put_csr name, state
    ld t0, \state(s0)
    csrw \name, t0
    .endm
    put_csr satp, STATE_SATP
    put_csr stvec, STATE_STVEC
    put_csr sscratch, STATE_SSCRATCH
    put_csr sepc, STATE_SEPC
    put_csr scause, STATE_SCAUSE
    put_csr stval, STATE_STVAL
    put_csr mstatus, STATE_MSTATUS
    put_csr mip, STATE_MIP
    put_csr mie, STATE_MIE
    put_csr mepc, STATE_REGISTERS
    fence.i
    sfence.vma
    .irp n, 1,2,3,4,5,6,7,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    ld x\n, STATE_REGISTERS + 8*\n(s0)
    .endr
    ld s0, STATE_REGISTERS + 8*8(s0)
    mret
#else
    csrw satp, zero
    li t0, 3 << 11
    csrc mstatus, t0
    li t0, 1 << 11
    csrs mstatus, t0
    la t0, kernel
    csrw mepc, t0
    li a0, 0
    la a1, device_tree
    mret
#endif

#ifdef SPIKE
    # What the model may do for a trap, or give on to the supervisor, which would have had it otherwise.
    .align 2
model_entry:
    csrrw sp, mscratch, sp
    addi sp, sp, -256
    sd t0, 40(sp)
    csrr t0, mcause
    bltz t0, 1f
    addi t0, t0, -5
    beqz t0, 2f
    addi t0, t0, -2
    beqz t0, 2f
    addi t0, t0, -5
    beqz t0, 2f
    addi t0, t0, -1
    beqz t0, 2f
    addi t0, t0, -2
    beqz t0, 2f
1:  ld t0, 40(sp)
    addi sp, sp, 256
    csrrw sp, mscratch, sp
    j trap
2:
    .irp n, 1,3,4,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    sd x\n, 8*\n(sp)
    .endr
    csrr t0, mscratch
    sd t0, 16(sp)
    csrr t0, mepc
    sd t0, 0(sp)
    mv a0, sp
    csrr a1, mcause
    csrr a2, mtval
    call model_trap
    mv t0, a0
    ld t1, 0(sp)
    csrw mepc, t1
    ld t1, 16(sp)
    csrw mscratch, t1
    bnez t0, 3f
    .irp n, 1,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    ld x\n, 8*\n(sp)
    .endr
    addi sp, sp, 256
    addi sp, sp, -32
    sd t0, 0(sp)
    sd t1, 8(sp)
    sd t2, 16(sp)
    j forward
3:
    .irp n, 1,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    ld x\n, 8*\n(sp)
    .endr
    addi sp, sp, 256
    csrrw sp, mscratch, sp
    mret
#endif

    .align 2
trap:
    csrrw sp, mscratch, sp
    addi sp, sp, -32
    sd t0, 0(sp)
    sd t1, 8(sp)
    sd t2, 16(sp)
    csrr t0, mcause
    bltz t0, timer
    li t1, 9
    beq t0, t1, call
    li t1, 2
    bne t0, t1, stop
    # csrrs rd, time, x0
    csrr t0, mtval
    li t1, 0xfffff07f
    and t1, t0, t1
    li t2, 0xc0102073
    sext.w t1, t1
    sext.w t2, t2
    bne t1, t2, forward
    srli t0, t0, 7
    andi t0, t0, 31
    li t1, CLINT_TIME
    ld t2, 0(t1)
    # One place of two instructions for each register.
    la t1, set_register
    slli t0, t0, 3
    add t1, t1, t0
    csrr t0, mepc
    addi t0, t0, 4
    csrw mepc, t0
    jr t1
    .option push
    .option norvc
set_register:
    j return
    nop
    .irp n, 1,2,3,4
    .if \n == 2
    csrw mscratch, t2
    .else
    mv x\n, t2
    .endif
    j return
    .endr
    sd t2, 0(sp)
    j return
    sd t2, 8(sp)
    j return
    sd t2, 16(sp)
    j return
    .irp n, 8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    mv x\n, t2
    j return
    .endr
    .option pop

    # An illegal instruction is supervisor's affair.
forward:
    csrr t0, mcause
    csrw scause, t0
    csrr t0, mtval
    csrw stval, t0
    csrr t0, mepc
    csrw sepc, t0
    csrr t0, stvec
    csrw mepc, t0
    # sstatus: SPP from MPP, SPIE from SIE, SIE off. The trap returns to supervisor mode.
    csrr t0, mstatus
    li t1, 1 << 8 | 1 << 5
    csrc mstatus, t1
    srli t1, t0, 3
    andi t1, t1, 1 << 8
    csrs mstatus, t1
    slli t1, t0, 4
    andi t1, t1, 1 << 5
    csrs mstatus, t1
    csrci mstatus, 2
    li t1, 3 << 11
    csrc mstatus, t1
    li t1, 1 << 11
    csrs mstatus, t1
    j return

timer:
    # Becomes supervisor's timer interrupt, until the next call that sets the timer.
    li t0, 1 << 7
    csrc mie, t0
    li t0, 1 << 5
    csrs mip, t0
return:
    ld t0, 0(sp)
    ld t1, 8(sp)
    ld t2, 16(sp)
    addi sp, sp, 32
    csrrw sp, mscratch, sp
    mret

call:
    csrr t0, mepc
    addi t0, t0, 4
    csrw mepc, t0
    beqz a7, set_timer
    li t0, 1
    beq a7, t0, put_character
    li t0, 8
    beq a7, t0, power_off
    li t0, 0x10
    beq a7, t0, base
    li a0, -2
    j return
set_timer:
    li t0, CLINT_COMPARE
    sd a0, 0(t0)
    li t0, 1 << 5
    csrc mip, t0
    li t0, 1 << 7
    csrs mie, t0
    li a0, 0
    j return
put_character:
#ifdef SPIKE
    li t0, 0x0101000000000000
    or t0, t0, a0
    la t1, tohost
    sd t0, 0(t1)
1:  ld t0, 0(t1)
    bnez t0, 1b
#else
    li t0, SIMULATOR
    sd a0, 0(t0)
#endif
    li a0, 0
    j return
power_off:
    li t1, 0
    j end
    # An implementation of version 0.1: nothing beyond the legacy calls.
base:
    li a0, -2
    j return
    # What nobody should do: the simulation ends.
stop:
    li t1, 3
end:
#ifdef SPIKE
    slli t1, t1, 1
    ori t1, t1, 1
    la t0, tohost
    sd t1, 0(t0)
#else
    li t0, SIMULATOR
    sd t1, 8(t0)
#endif
1:  j 1b

    .data
    .align 4
    .space 4096
stack_end:
#ifdef SPIKE
    .section .tohost, "aw"
    .align 6
    .globl tohost, fromhost
tohost: .dword 0
    .align 6
fromhost: .dword 0
#endif
#ifdef RESUME
    .section .device_tree, "awx"
    .incbin "memory"
#else
    .section .device_tree, "a"
    .align 3
device_tree:
    .incbin "system.dtb"
    .section .kernel, "ax"
kernel:
    .incbin "Image"
#endif
