//! Arrays of references that are read from one element to the next: an adjacency list, a sorted array of
//! objects, the elements of a collection.
//!
//! If a fault is explained by a word, and the next one by a word soon behind it on the same page, the words
//! between and behind are being read in order. Once that has happened a few times, a fault that a word
//! explains brings what the words behind it refer to. A run ends at the first word that refers to nothing:
//! what lies behind an array begins with a header or a length as a rule.

use farmem_page::{PAGE_BYTES, PageBytes, PageIndex, VirtAddr};

use super::links::{BEHIND_BYTES, Compression, Form, HALF_BYTES};

/// How far behind the last word that explained a fault the next one may be, in bytes: those between may refer
/// to pages that are local.
const LOOK_BYTES: usize = 1024;
/// How often words must have followed each other before they are followed.
const TRUSTED: u8 = 3;
const TRUST_LIMIT: u8 = 7;
/// What a run that has misled costs.
const LOSS: u8 = 2;
/// Pages of the last faults that are remembered: between an array and what it refers to a program may read
/// something else.
const RECENT: usize = 3;
/// Kinds of elements that are known at a time. A program that goes through a queue of objects and through an
/// array in each of them reads two in turn.
const ELEMENTS: usize = 2;
/// Null references that a run may pass.
const NULLS: usize = 16;

/// Memory that a follower needs: zeros, which cost nothing until they are used.
pub type Pages = [PageBytes; 2 + RECENT];

/// A page whose words may tell.
#[derive(Debug)]
struct Origin {
    page: Option<PageIndex>,
    /// The byte that was touched there: an object's array lies behind its other fields as a rule.
    touched: usize,
    content: &'static mut PageBytes,
}

impl Origin {
    fn new(content: &'static mut PageBytes) -> Self {
        Self { page: None, touched: 0, content }
    }

    fn set(&mut self, address: VirtAddr, content: &PageBytes) {
        self.page = Some(address.page());
        self.touched = address.get() as usize % PAGE_BYTES;
        self.content.copy_from_slice(content);
    }

    /// The first word soon behind the byte that was touched that refers to `address` or a little before it;
    /// or else, less surely, the first one of the page.
    fn find_any(
        &self,
        address: VirtAddr,
        compression: Option<Compression>,
    ) -> Option<(Element, usize, Sureness)> {
        let found = |start, end, sureness| {
            self.find(start, end, address, compression).map(|(element, at)| (element, at, sureness))
        };
        let behind = self.touched + LOOK_BYTES;
        found(self.touched, behind, Sureness::Likely)
            .or_else(|| found(behind, PAGE_BYTES, Sureness::Chance))
            .or_else(|| found(0, self.touched, Sureness::Chance))
    }

    /// The first word from byte `start` on and before `end` that refers to `address` or a little before it,
    /// and how far before.
    fn find(
        &self,
        start: usize,
        end: usize,
        address: VirtAddr,
        compression: Option<Compression>,
    ) -> Option<(Element, usize)> {
        self.page.filter(|&page| page != address.page())?;
        let form = if compression.is_some() { Form::Compressed } else { Form::Whole };
        let start = start.next_multiple_of(form.bytes());
        let content = self.content.get(start..end.min(PAGE_BYTES))?;
        let (form, at) = match compression {
            Some(compression) => {
                let is_near = compression.is_near(address, BEHIND_BYTES)?;
                (Form::Compressed, position(content.as_chunks().0, |half| is_near(u32::from_ne_bytes(half)))?)
            }
            None => {
                let is_near = |word| address.get().wrapping_sub(u64::from_ne_bytes(word)) < BEHIND_BYTES;
                (Form::Whole, position(content.as_chunks().0, is_near)?)
            }
        };
        let at = start + at * form.bytes();
        let behind = address.get().wrapping_sub(form.read(self.content, at, compression)?);
        Some((Element { form, behind: behind as u16 }, at))
    }
}

/// The first of `words` that is wanted. Most often there is none: so they are looked at by the dozen, without
/// a branch for each.
fn position<const BYTES: usize>(
    words: &[[u8; BYTES]],
    is_wanted: impl Fn([u8; BYTES]) -> bool,
) -> Option<usize> {
    const AT_ONCE: usize = 32;
    let mut chunks = words.chunks(AT_ONCE).enumerate();
    chunks.find_map(|(chunk, words)| {
        let is_any = words.iter().fold(false, |any, &word| any | is_wanted(word));
        let at = || words.iter().position(|&word| is_wanted(word));
        is_any.then(at)?.map(|at| chunk * AT_ONCE + at)
    })
}

/// Whether a word is what has led to a fault. Objects that were made together refer to each other, so that
/// one of a page of them often refers to where a program goes that has not read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sureness {
    Likely,
    Chance,
}

/// How an element leads to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Element {
    form: Form,
    behind: u16,
}

/// A kind of element, and how often such have followed each other.
#[derive(Clone, Copy, Debug)]
struct Known {
    element: Element,
    trust: u8,
}

impl Known {
    fn is_trusted(self) -> bool {
        self.trust >= TRUSTED
    }

    fn gain(&mut self) {
        self.trust = (self.trust + 1).min(TRUST_LIMIT);
    }

    fn lose(&mut self, trust: u8) {
        self.trust = self.trust.saturating_sub(trust);
    }
}

/// Whether a word explains a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Explained {
    Not,
    /// One of another page than the fault before.
    Elsewhere,
    /// The same, but one that the program may not have come by.
    ByChance,
    /// One that lies behind that which explained the fault before.
    Onward,
}

/// What is known of arrays that one thread reads.
#[derive(Debug)]
pub(super) struct Sweep {
    known: [Known; ELEMENTS],
    /// Which of them explains the last fault.
    active: Option<usize>,
    /// Which of them the last run went by.
    running: Option<usize>,
    /// The page that is being read, and where its last word was that explained a fault.
    current: Origin,
    cursor: Option<usize>,
    /// Whether more than one fault was explained there, or a run began there.
    is_confirmed: bool,
    /// The pages of the last faults, the latest first, and one that may be read next.
    recent: [Origin; RECENT],
    ahead: Origin,
    wanted: Option<PageIndex>,
}

impl Sweep {
    /// `pages` is memory to keep what pages hold.
    pub(super) fn new(pages: &'static mut Pages) -> Self {
        let [current, ahead, recent @ ..] = pages.each_mut();
        Self {
            known: [Known { element: Element { form: Form::Whole, behind: 0 }, trust: 0 }; ELEMENTS],
            active: None,
            running: None,
            current: Origin::new(current),
            cursor: None,
            is_confirmed: false,
            recent: recent.map(Origin::new),
            ahead: Origin::new(ahead),
            wanted: None,
        }
    }

    /// A fault at `address`: learns whether a word explains it.
    pub(super) fn learn(&mut self, address: VirtAddr, compression: Option<Compression>) -> Explained {
        if let Some(cursor) = self.cursor {
            let start = cursor + HALF_BYTES;
            let found = self.current.find(start, start + LOOK_BYTES, address, compression);
            if let Some((element, at)) = found.filter(|&(_, at)| at > cursor) {
                self.is_confirmed = true;
                self.move_to(at);
                let before = self.active;
                self.recognise(element);
                if let Some(active) = self.active.filter(|_| self.active == before) {
                    self.known[active].gain();
                }
                return Explained::Onward;
            }
        }
        let found = self.recent.iter_mut().chain([&mut self.ahead]).find_map(|origin| {
            let found = origin.find_any(address, compression)?;
            core::mem::swap(origin, &mut self.current);
            Some(found)
        });
        let Some((element, at, sureness)) = found else { return Explained::Not };
        if let Some(active) = self.active.filter(|_| self.cursor.is_some() && !self.is_confirmed) {
            self.known[active].lose(1);
        }
        self.recognise(element);
        self.is_confirmed = false;
        self.move_to(at);
        match sureness {
            Sureness::Likely => Explained::Elsewhere,
            Sureness::Chance => Explained::ByChance,
        }
    }

    /// An element of that kind explains a fault. One that isn't known takes the place of the one that is
    /// trusted least, once that is trusted no more.
    fn recognise(&mut self, element: Element) {
        self.active = self.known.iter().position(|known| known.element == element);
        if self.active.is_none()
            && let Some((index, weakest)) =
                self.known.iter_mut().enumerate().min_by_key(|(_, known)| known.trust)
        {
            weakest.lose(1);
            if weakest.trust == 0 {
                weakest.element = element;
                self.active = Some(index);
            }
        }
    }

    fn move_to(&mut self, at: usize) {
        self.cursor = Some(at);
        if at + LOOK_BYTES >= PAGE_BYTES {
            self.wanted = self.current.page.and_then(|page| page.offset(1));
        }
    }

    /// The thread has faulted at `address`, whose page holds `content`.
    pub(super) fn touched(&mut self, address: VirtAddr, content: &PageBytes) {
        self.recent.rotate_right(1);
        self.recent[0].set(address, content);
    }

    /// The thread reads in order from `page` on: its words may be what explains the next faults.
    pub(super) fn reads_on(&mut self, page: PageIndex) {
        self.wanted = Some(page);
    }

    /// A page that it would like to see.
    pub(super) fn wanted(&mut self) -> Option<PageIndex> {
        self.wanted.take()
    }

    /// What that page holds.
    pub(super) fn show(&mut self, page: PageIndex, content: &PageBytes) {
        self.ahead.set(page.addr(), content);
    }

    /// Whether runs are to be followed at all.
    pub(super) fn is_trusted(&self) -> bool {
        self.known.iter().any(|known| known.is_trusted())
    }

    /// The elements behind the one that explains the last fault.
    pub(super) fn run(&mut self, compression: Option<Compression>) -> Option<Run<'_>> {
        self.running = self.active.filter(|&active| self.known[active].is_trusted());
        self.run_in(&self.current, self.cursor?, compression)
    }

    /// Those behind the word at byte `at` of the page of the last fault.
    pub(super) fn run_behind(&mut self, at: usize, compression: Option<Compression>) -> Option<Run<'_>> {
        let best = self.known.iter().enumerate().max_by_key(|(_, known)| known.trust);
        self.running = best.filter(|(_, known)| known.is_trusted()).map(|(index, _)| index);
        self.run_in(&self.recent[0], at, compression)
    }

    fn run_in<'a>(&self, origin: &'a Origin, at: usize, compression: Option<Compression>) -> Option<Run<'a>> {
        let element = self.known[self.running?].element;
        let (content, at) = (&*origin.content, at + element.form.bytes());
        Some(Run { content, at, nulls: NULLS, element, compression })
    }

    /// A run has begun at the cursor.
    pub(super) fn begin(&mut self) {
        self.is_confirmed = true;
    }

    /// A run has led where the program went, or has not.
    pub(super) fn settle(&mut self, has_led: bool) {
        let Some(running) = self.running else { return };
        if has_led {
            self.known[running].gain();
        } else {
            self.known[running].lose(LOSS);
        }
    }

    /// Nothing is known of where the thread is.
    pub(super) fn lose_track(&mut self) {
        self.cursor = None;
        self.recent.iter_mut().for_each(|origin| origin.page = None);
    }
}

/// Elements of an array, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    content: &'a PageBytes,
    at: usize,
    nulls: usize,
    element: Element,
    compression: Option<Compression>,
}

impl Iterator for Run<'_> {
    type Item = VirtAddr;

    fn next(&mut self) -> Option<VirtAddr> {
        loop {
            let value = self.element.form.read(self.content, self.at, self.compression)?;
            self.at += self.element.form.bytes();
            if value != 0 {
                return value.checked_add(self.element.behind.into()).map(VirtAddr::new);
            }
            self.nulls = self.nulls.checked_sub(1)?;
        }
    }
}
