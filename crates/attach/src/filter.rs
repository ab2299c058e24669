//! What a puppet may ask of the kernel: what its pager has it do, and nothing else.
//!
//! The program can write whatever the puppet is told to do. A puppet is made by one of the program's threads,
//! with the rights and filters of that moment. When the program gives some of these up later, as servers and
//! sandboxes do, the puppet must not be the way back to them.

use linux_raw_sys::general as raw;

/// Calls that a puppet makes with whatever arguments: it sleeps and wakes, discards pages, unlocks them,
/// takes away what it has mapped itself, and ends. None of them can map, lock, open or signal anything.
const CALLS: [u32; 5] =
    [raw::__NR_futex, raw::__NR_madvise, raw::__NR_munlock, raw::__NR_munmap, raw::__NR_exit];
/// The requests of a userfaultfd have this in their second byte.
const USERFAULTFD: u32 = 0xaa00;

/// Bytes of an instruction.
const INSTRUCTION_BYTES: usize = 8;

/// Places in what a filter sees of a call.
const CALL: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;

const X86_64: u32 = 0xc000_003e;
const ALLOW: u32 = 0x7fff_0000;
/// The call isn't made, and returns `EPERM`.
const REFUSE: u32 = 0x0005_0001;

/// An instruction of the kernel's packet filters: what it does, how many follow that are left out when it
/// holds and when it doesn't, and a number.
type Instruction = (u16, u8, u8, u32);

fn load(place: u32) -> Instruction {
    (0x20, 0, 0, place)
}

fn end(verdict: u32) -> Instruction {
    (0x06, 0, 0, verdict)
}

/// The next instruction is for that number alone.
fn if_it_is(number: u32) -> Instruction {
    (0x15, 0, 1, number)
}

/// The next instruction is for all but that number.
fn unless_it_is(number: u32) -> Instruction {
    (0x15, 1, 0, number)
}

/// The filter of a puppet whose userfaultfd has that number.
fn instructions(uffd: u32) -> Vec<Instruction> {
    let mask: Instruction = (0x54, 0, 0, 0xff00);
    let mut program = vec![load(ARCHITECTURE), unless_it_is(X86_64), end(REFUSE), load(CALL)];
    for call in CALLS {
        program.extend([if_it_is(call), end(ALLOW)]);
    }
    program.extend([unless_it_is(raw::__NR_ioctl), end(REFUSE)]);
    program.extend([load(FIRST_ARGUMENT), unless_it_is(uffd), end(REFUSE)]);
    program.extend([load(SECOND_ARGUMENT), mask, unless_it_is(USERFAULTFD), end(REFUSE), end(ALLOW)]);
    program
}

/// What the kernel reads of a filter at that address: its head, and the instructions behind it.
pub(crate) fn at(address: u64, uffd: u32) -> Vec<u8> {
    const HEAD_BYTES: usize = 16;
    let program = instructions(uffd);
    let mut bytes = Vec::with_capacity(HEAD_BYTES + program.len() * INSTRUCTION_BYTES);
    bytes.extend((program.len() as u64).to_ne_bytes());
    bytes.extend((address + HEAD_BYTES as u64).to_ne_bytes());
    for (what, if_so, if_not, number) in program {
        bytes.extend(what.to_ne_bytes());
        bytes.extend([if_so, if_not]);
        bytes.extend(number.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const UFFD: u32 = 5;

    /// What the kernel would make of a call.
    fn verdict(architecture: u32, call: u32, arguments: [u32; 2]) -> u32 {
        let program = instructions(UFFD);
        let (mut at, mut loaded) = (0, 0);
        loop {
            let (what, if_so, if_not, number) = program[at];
            at += 1;
            match what {
                0x20 => {
                    loaded = match number {
                        CALL => call,
                        ARCHITECTURE => architecture,
                        FIRST_ARGUMENT => arguments[0],
                        SECOND_ARGUMENT => arguments[1],
                        place => panic!("{place} is no place"),
                    }
                }
                0x15 => at += usize::from(if loaded == number { if_so } else { if_not }),
                0x54 => loaded &= number,
                0x06 => return number,
                what => panic!("{what} is no instruction"),
            }
        }
    }

    #[test]
    fn what_a_pager_asks_of_its_puppet_is_allowed() {
        const MOVE: u32 = 0xc028_aa05;
        for call in CALLS {
            assert_eq!(verdict(X86_64, call, [0, 0]), ALLOW);
        }
        assert_eq!(verdict(X86_64, raw::__NR_ioctl, [UFFD, MOVE]), ALLOW);
    }

    #[test]
    fn everything_else_is_refused() {
        const OTHER: u32 = 0x5401;
        const I386: u32 = 0x4000_0003;
        let is_allowed = |call: u32| CALLS.contains(&call) || call == raw::__NR_ioctl;
        for call in (0..1000).filter(|&call| !is_allowed(call)) {
            assert_eq!(verdict(X86_64, call, [UFFD, USERFAULTFD]), REFUSE, "call {call}");
        }
        // The same numbers with another bit, or of other processors, are other calls.
        assert_eq!(verdict(X86_64, raw::__NR_futex | 0x4000_0000, [0, 0]), REFUSE);
        assert_eq!(verdict(I386, raw::__NR_futex, [0, 0]), REFUSE);
        assert_eq!(verdict(X86_64, raw::__NR_ioctl, [UFFD + 1, USERFAULTFD]), REFUSE);
        assert_eq!(verdict(X86_64, raw::__NR_ioctl, [UFFD, OTHER]), REFUSE);
    }

    #[test]
    fn the_head_says_where_the_instructions_are() {
        let bytes = at(0x1000, UFFD);
        let count = u64::from_ne_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(bytes.len(), 16 + count * INSTRUCTION_BYTES);
        assert_eq!(u64::from_ne_bytes(bytes[8..16].try_into().unwrap()), 0x1010);
    }
}
