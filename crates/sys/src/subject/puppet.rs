//! Calls that the kernel allows only inside the program's address space, made by a process that has that
//! address space and nothing else of the program.
//!
//! The puppet sleeps on a word of memory that it shares with its pager. When the word changes it makes the
//! calls that are written down there, and says so in another word. Its code is position-independent, needs no
//! stack, and touches no memory but the shared one and what it is told to copy.
//!
//! The program can write all of it. What comes back is therefore believed no more than what the program
//! itself says: lengths are checked against what was asked for, and contents are the program's own.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use farmem_page::{PAGE_BYTES, PageBytes, PageCount, PageIndex, PageRange};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::Attached;
use crate::lock::Lock;
use crate::uffd::WAKE;
use crate::wait::{self, Scope, Sleepers};

/// Frames on their way out that there is room for.
pub const STAGED: PageCount = PageCount::new(512);
const _: () = assert!(super::objects::STAGING.count().get() == STAGED.get(), "evictors count on so many");
/// Bytes of the memory that pager and puppet share: a page of words, and as many pages as may be staged.
pub const SHARED_BYTES: usize = PAGE_BYTES * (1 + STAGED.get() as usize);
/// How often a caller looks whether the puppet is still there.
const LOOK_NS: u64 = 100_000_000;

/// One call: its number, six arguments, its result.
#[repr(C)]
struct Call {
    number: AtomicU64,
    arguments: [AtomicU64; 6],
    result: AtomicU64,
}
const _: () = assert!(size_of::<Call>() == 64, "as the puppet's code counts");

/// Calls that are made in one go, at most.
const CALLS: usize = 2 * MOST_MOVES;
/// Moves that are made in one go, at most.
pub(crate) const MOST_MOVES: usize = 16;
/// Words of the structure that a move's call points to; the last one tells how many bytes have arrived.
const MOVE_WORDS: usize = 5;
/// The number that stands for copying: to, from, and where the count of bytes lies, which may be negative for
/// nothing.
const COPY: u64 = u64::MAX;

/// The first page of the shared memory.
#[repr(C)]
struct Control {
    /// Changes when there is something to do.
    request: AtomicU32,
    /// Follows it when that is done.
    done: AtomicU32,
    /// How many calls.
    count: AtomicU32,
    padding: [u32; 13],
    calls: [Call; CALLS],
    /// Structures that calls point to.
    scratch: [AtomicU64; MOVE_WORDS * MOST_MOVES],
}
const _: () = assert!(size_of::<Control>() <= PAGE_BYTES);
const CALLS_AT: usize = core::mem::offset_of!(Control, calls);
const _: () = assert!(CALLS_AT == 64, "as the puppet's code counts");

core::arch::global_asm!(
    ".pushsection .text.farmem_puppet, \"ax\"",
    ".balign 16",
    ".globl farmem_puppet_begin",
    ".hidden farmem_puppet_begin",
    "farmem_puppet_begin:",
    // r12: the shared memory; r13d: the last request that is done.
    "cld",
    "2: mov eax, [r12]",
    "cmp eax, r13d",
    "jne 3f",
    "mov eax, 202", // futex(request, WAIT, done, forever)
    "mov rdi, r12",
    "xor esi, esi",
    "mov edx, r13d",
    "xor r10d, r10d",
    "syscall",
    "jmp 2b",
    "3: mov r13d, eax",
    "mov r14d, [r12 + 8]",
    "lea r15, [r12 + 64]",
    "4: test r14d, r14d",
    "jz 7f",
    "mov rax, [r15]",
    "cmp rax, -1",
    "je 5f",
    "mov rdi, [r15 + 8]",
    "mov rsi, [r15 + 16]",
    "mov rdx, [r15 + 24]",
    "mov r10, [r15 + 32]",
    "mov r8, [r15 + 40]",
    "mov r9, [r15 + 48]",
    "syscall",
    "mov [r15 + 56], rax",
    "jmp 6f",
    "5: mov rdi, [r15 + 8]",
    "mov rsi, [r15 + 16]",
    "mov rcx, [r15 + 24]",
    "mov rcx, [rcx]",
    "test rcx, rcx",
    "jle 6f",
    "rep movsb",
    "6: add r15, 64",
    "dec r14d",
    "jmp 4b",
    "7: mov [r12 + 4], r13d",
    "mov eax, 202", // futex(done, WAKE, 1)
    "lea rdi, [r12 + 4]",
    "mov esi, 1",
    "mov edx, 1",
    "syscall",
    "jmp 2b",
    ".globl farmem_puppet_end",
    ".hidden farmem_puppet_end",
    "farmem_puppet_end:",
    ".popsection",
);

unsafe extern "C" {
    static farmem_puppet_begin: u8;
    static farmem_puppet_end: u8;
}

/// The puppet's code, which runs at any address: with the shared memory's address in `r12`, and 0 in `r13`.
pub fn code() -> &'static [u8] {
    let (begin, end) = (&raw const farmem_puppet_begin, &raw const farmem_puppet_end);
    // SAFETY: both are labels around the same code, which is never written.
    unsafe { core::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// Where the puppet's things lie in the program's address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// All of it, unusable pages around it included.
    pub all: PageRange,
    /// The shared memory.
    pub shared: u64,
    /// Where frames are moved to on their way out.
    pub staging: PageIndex,
    /// The same for pages that the program may run, if it has such. Frames move only between mappings of the
    /// same protection.
    pub executable_staging: Option<PageIndex>,
    /// The userfaultfd's number in the puppet.
    pub uffd: u32,
}

/// The puppet of a program.
#[derive(Debug)]
pub struct Puppet {
    number: u32,
    places: Places,
    /// The shared memory, here.
    shared: Shared,
    /// The last request. Its holder may ask.
    asked: Lock<u32>,
    /// The processor that it was told to stay on, plus one.
    processor: AtomicU32,
    is_lost: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Shared(*mut u8);

// SAFETY: the memory is never unmapped; its words are atomics, and the rest is read by the holder of the
// frames alone.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn control(self) -> &'static Control {
        // SAFETY: the mapping is SHARED_BYTES long, aligned to a page, never unmapped, and made of integers.
        unsafe { &*self.0.cast::<Control>() }
    }
}

/// Why the puppet has not done what it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost;

/// What a move and the copy of what was moved have come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    /// The call's result.
    pub(crate) result: Result<(), Errno>,
    /// Bytes that have arrived by the kernel's count; negative for none.
    pub(crate) bytes: i64,
}

impl Puppet {
    /// The puppet of that number, which hasn't begun. `memory` is the shared memory, as long as
    /// [`SHARED_BYTES`].
    ///
    /// # Errors
    /// What `mmap` returns; [`Errno::BUSY`] when there is something in the words for requests and answers:
    /// the first request would count as answered, or what nobody has asked for would be done.
    pub fn new(number: u32, places: Places, memory: &OwnedFd) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let shared = unsafe {
            mmap(
                core::ptr::null_mut(),
                SHARED_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory,
                0,
            )
        }?;
        let shared = Shared(shared.cast());
        let control = shared.control();
        let words = [&control.request, &control.done, &control.count];
        if words.iter().any(|word| word.load(Ordering::Acquire) != 0) {
            return Err(Errno::BUSY);
        }
        Ok(Self {
            number,
            places,
            shared,
            asked: Lock::new(0),
            processor: AtomicU32::new(0),
            is_lost: AtomicBool::new(false),
        })
    }

    /// Its number, as this process sees it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Where its things lie.
    pub fn places(&self) -> Places {
        self.places
    }

    /// Where frames are moved to that the program may run, or that it may not; `None` where there is no such
    /// place.
    pub(crate) fn staging(&self, is_executable: bool) -> Option<PageRange> {
        let start = if is_executable { self.places.executable_staging? } else { self.places.staging };
        Some(PageRange::at(start, STAGED))
    }

    /// Whether frames are staged there.
    pub(crate) fn is_staged(&self, frame: PageIndex) -> bool {
        self.nth_staged(frame).is_some()
    }

    /// The number of a staged frame. Only one of the two places is in use at a time.
    fn nth_staged(&self, frame: PageIndex) -> Option<u64> {
        [false, true]
            .into_iter()
            .filter_map(|is_executable| self.staging(is_executable))
            .find(|staging| staging.contains(frame))
            .map(|staging| frame.get() - staging.start.get())
    }

    /// Whether it does nothing any more.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// It does nothing any more, though the program may go on.
    pub fn note_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// The copy of a staged frame.
    pub(crate) fn staged(&self, page: PageIndex) -> &PageBytes {
        let nth = self.nth_staged(page).expect("a frame outside the staging area") as usize;
        // SAFETY: inside the shared memory. The puppet writes there only when it is told to, which needs
        // `&mut` of the frames; a program that writes there changes what its own page holds.
        unsafe { &*self.shared.0.add((1 + nth) * PAGE_BYTES).cast::<PageBytes>() }
    }

    /// Makes up to [`MOST_MOVES`] moves, each to a place among the staged frames or anywhere else, and copies
    /// to the shared memory what was moved to the former. `moved` hears of each move, in order.
    pub(crate) fn move_pages(
        &self,
        opcode: u32,
        mode: u64,
        moves: impl Iterator<Item = (PageRange, PageIndex)> + Clone,
        mut moved: impl FnMut(Moved),
    ) -> Result<(), Lost> {
        let mut asked = self.asked.lock();
        let control = self.shared.control();
        let mut calls = 0;
        for (nth, (from, to)) in moves.clone().take(MOST_MOVES).enumerate() {
            let words = [to.addr().get(), from.start.addr().get(), from.count().bytes().get(), mode, 0];
            for (place, word) in control.scratch[nth * MOVE_WORDS..].iter().zip(words) {
                place.store(word, Ordering::Relaxed);
            }
            let scratch = self.scratch(nth * MOVE_WORDS);
            let number = linux_raw_sys::general::__NR_ioctl.into();
            self.write(calls, number, [self.places.uffd.into(), opcode.into(), scratch, 0, 0, 0]);
            calls += 1;
            if let Some(copy) = self.copy_of(to) {
                let arrived = self.scratch(nth * MOVE_WORDS + MOVE_WORDS - 1);
                self.write(calls, COPY, [copy, to.addr().get(), arrived, 0, 0, 0]);
                calls += 1;
            }
        }
        self.call(&mut asked, calls as u32)?;
        let mut call = 0;
        for (nth, (from, to)) in moves.take(MOST_MOVES).enumerate() {
            let arrived = control.scratch[nth * MOVE_WORDS + MOVE_WORDS - 1].load(Ordering::Relaxed) as i64;
            let bytes =
                arrived.min(from.count().bytes().get() as i64) / PAGE_BYTES as i64 * PAGE_BYTES as i64;
            moved(Moved { result: self.result(call).map(drop), bytes });
            call += if self.is_staged(to) { 2 } else { 1 };
        }
        Ok(())
    }

    /// Where that word lies in the program's address space.
    fn scratch(&self, nth: usize) -> u64 {
        self.places.shared + (core::mem::offset_of!(Control, scratch) + nth * size_of::<u64>()) as u64
    }

    /// Copies staged frames to the shared memory; they must be there.
    pub(crate) fn copy_staged(&self, frames: PageRange) -> Result<(), Lost> {
        let mut asked = self.asked.lock();
        let control = self.shared.control();
        control.scratch[0].store(frames.count().bytes().get(), Ordering::Relaxed);
        let scratch = self.scratch(0);
        let from = frames.start.addr().get();
        if let Some(copy) = self.copy_of(frames.start) {
            self.write(0, COPY, [copy, from, scratch, 0, 0, 0]);
            self.call(&mut asked, 1)?;
        }
        Ok(())
    }

    /// Whether it can do what it is for. A filter of the program's may end it for a call, or refuse the one
    /// without which nothing leaves. It makes one of each kind, for nothing: nobody waits for a page of its
    /// own, and no byte is discarded.
    pub fn works(&self) -> bool {
        let (uffd, own) = (self.places.uffd.into(), self.places.staging.addr().get());
        for (place, word) in self.shared.control().scratch.iter().zip([own, PAGE_BYTES as u64]) {
            place.store(word, Ordering::Relaxed);
        }
        let discard = linux_raw_sys::general::MADV_DONTNEED.into();
        let discarded = self.make(linux_raw_sys::general::__NR_madvise, [own, 0, discard, 0, 0, 0]);
        let woken =
            self.make(linux_raw_sys::general::__NR_ioctl, [uffd, WAKE.into(), self.scratch(0), 0, 0, 0]);
        // Before its user has shaken hands a userfaultfd refuses everything in this way.
        discarded.is_ok() && matches!(woken, Ok(Ok(_) | Err(Errno::INVAL)))
    }

    /// Tells it to end, and doesn't wait for that. Nothing happens while it is in the midst of something.
    pub fn tell_to_end(&self) {
        let Some(mut asked) = self.asked.try_lock() else { return };
        self.write(0, linux_raw_sys::general::__NR_exit.into(), [0; 6]);
        self.ask(&mut asked, 1);
        self.note_lost();
    }

    /// Makes one call.
    pub(crate) fn make(&self, number: u32, arguments: [u64; 6]) -> Result<Result<u64, Errno>, Lost> {
        let mut asked = self.asked.lock();
        self.write(0, number.into(), arguments);
        self.call(&mut asked, 1)?;
        Ok(self.result(0))
    }

    /// Where the shared memory has the copy of a staged frame, in the program's address space.
    fn copy_of(&self, frame: PageIndex) -> Option<u64> {
        self.nth_staged(frame).map(|nth| self.places.shared + (1 + nth) * PAGE_BYTES as u64)
    }

    fn write(&self, nth: usize, number: u64, arguments: [u64; 6]) {
        let call = &self.shared.control().calls[nth];
        call.number.store(number, Ordering::Relaxed);
        for (place, argument) in call.arguments.iter().zip(arguments) {
            place.store(argument, Ordering::Relaxed);
        }
    }

    fn result(&self, nth: usize) -> Result<u64, Errno> {
        let result = self.shared.control().calls[nth].result.load(Ordering::Relaxed) as i64;
        if (-4095..0).contains(&result) {
            Err(Errno::from_raw_os_error(-result as i32))
        } else {
            Ok(result as u64)
        }
    }

    /// Has the first `count` calls made, and waits for that.
    fn call(&self, asked: &mut u32, count: u32) -> Result<(), Lost> {
        if self.is_lost.load(Ordering::Acquire) {
            return Err(Lost);
        }
        self.follow();
        self.ask(asked, count);
        let control = self.shared.control();
        loop {
            let done = control.done.load(Ordering::Acquire);
            if done == *asked {
                return Ok(());
            }
            let began_ns = crate::thread::now_ns();
            wait::wait(&control.done, done, Some(LOOK_NS), Scope::Machine);
            let is_late = crate::thread::now_ns() - began_ns >= LOOK_NS;
            if is_late && super::attached().is_some_and(Attached::is_puppet_gone) {
                self.note_lost();
            }
            if control.done.load(Ordering::Acquire) != *asked && self.is_lost.load(Ordering::Acquire) {
                return Err(Lost);
            }
        }
    }

    /// Asks for the first `count` calls.
    fn ask(&self, asked: &mut u32, count: u32) {
        let control = self.shared.control();
        *asked = asked.wrapping_add(1);
        control.count.store(count, Ordering::Relaxed);
        control.request.store(*asked, Ordering::Release);
        wait::wake(&control.request, Sleepers::One, Scope::Machine);
    }

    /// Keeps the puppet on the calling thread's processor: on another one it would have to be woken there.
    fn follow(&self) {
        let here = crate::thread::processor() as u32 + 1;
        if self.processor.swap(here, Ordering::Relaxed) != here {
            crate::affinity::keep_on(self.number, here - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::pwrite;

    #[test]
    fn what_was_left_in_the_words_is_no_answer() {
        let places = Places {
            all: PageRange::new(PageIndex::new(1), PageIndex::new(2)),
            shared: 0,
            staging: PageIndex::new(1),
            executable_staging: None,
            uffd: 3,
        };
        let memory = memfd_create(c"puppet", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&memory, SHARED_BYTES as u64).expect("its size");
        assert!(Puppet::new(1, places, &memory).is_ok());
        pwrite(&memory, &[1], 4).expect("a word");
        assert_eq!(Puppet::new(1, places, &memory).err(), Some(Errno::BUSY));
    }
}
