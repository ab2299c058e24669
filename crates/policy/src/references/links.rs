//! Where, seen from the address that it touches, a program finds the address that it touches next.
//!
//! A program that searches a hash table reads a reference in an array, then others in the entries of a chain.
//! One that goes through a tree finds its way by two of them. So several links are known at a time, and which
//! of them is taken depends on how the program came.

use farmem_page::{PAGE_BYTES, PageBytes, VirtAddr};

/// How far a word may lie before or behind the address that was touched, in bytes: fields of one object.
const REACH_BYTES: usize = 256;
/// How far behind a word's value the program may go on: a reference is to the start of an object, what is
/// touched lies in it.
pub(super) const BEHIND_BYTES: u64 = 256;
const WORD_BYTES: usize = size_of::<u64>();
pub(super) const HALF_BYTES: usize = size_of::<u32>();
const WORDS: usize = 2 * REACH_BYTES / WORD_BYTES;
/// Links that are known at a time.
pub(super) const LINKS: usize = 4;
/// Ways to come to an address: by no link that is known, or by one of them.
const WAYS: usize = 1 + LINKS;
/// How often a link must have been taken before it is followed.
const TRUSTED: u8 = 3;
/// Trust that is enough: a link that misleads must lose it soon.
const TRUST_LIMIT: u8 = 7;
/// What a link that has misled loses.
const LOSS: u8 = 2;

/// How the program came to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way(u8);

impl Way {
    /// By no link that is known.
    pub(super) const UNKNOWN: Self = Self(0);

    fn by(link: usize) -> Self {
        Self(1 + link as u8)
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// How references of four bytes stand for addresses: `base + (reference << shift)`, 0 for none. Java VMs have
/// such.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compression {
    base: u64,
    shift: u32,
}

impl Compression {
    /// `None` for a shift that no reference of four bytes can have.
    pub const fn new(base: u64, shift: u32) -> Option<Self> {
        if shift <= MOST_SHIFT { Some(Self { base, shift }) } else { None }
    }

    /// What is added to a shifted reference.
    pub const fn base(self) -> u64 {
        self.base
    }

    /// By how many bits a reference is shifted.
    pub const fn shift(self) -> u32 {
        self.shift
    }

    /// Where what can be referred to ends at the latest.
    pub const fn end(self) -> u64 {
        self.base.saturating_add(1 << (u32::BITS + self.shift))
    }

    /// Whether a reference is to `address`, or to less than `bytes` before it. `None` if none can be.
    pub(super) fn is_near(self, address: VirtAddr, bytes: u64) -> Option<impl Fn(u32) -> bool> {
        let distance = address.get().checked_sub(self.base)?;
        let latest = u32::try_from(distance >> self.shift).ok()?;
        let rest = distance - (u64::from(latest) << self.shift);
        let most = ((bytes - 1).saturating_sub(rest) >> self.shift) as u32;
        Some(move |reference: u32| reference != 0 && latest.wrapping_sub(reference) <= most)
    }

    pub(super) fn address(self, reference: u32) -> u64 {
        self.base.wrapping_add(u64::from(reference) << self.shift)
    }
}

/// Objects are aligned to 256 bytes at most.
const MOST_SHIFT: u32 = 8;

/// How a reference is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// As an address.
    Whole,
    /// In four bytes.
    Compressed,
}

impl Form {
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Whole => WORD_BYTES,
            Self::Compressed => HALF_BYTES,
        }
    }

    /// What a word at that place of a page refers to; 0 for nothing.
    pub(super) fn read(
        self,
        content: &PageBytes,
        at: usize,
        compression: Option<Compression>,
    ) -> Option<u64> {
        let bytes = content.get(at..at + self.bytes())?;
        match self {
            Self::Whole => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
            Self::Compressed => {
                let reference = u32::from_ne_bytes(bytes.try_into().ok()?);
                if reference == 0 { Some(0) } else { Some(compression?.address(reference)) }
            }
        }
    }
}

/// A word's place and what follows from its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    form: Form,
    /// What is left of the touched address when it is divided by a word's bytes. Objects are aligned: with
    /// another rest it is another of their fields.
    rest: u8,
    /// From the touched address to the word, in bytes.
    offset: i16,
    /// From the word's value to the address that is touched next, in bytes; less than [`BEHIND_BYTES`].
    behind: u16,
}

impl Link {
    /// The address that follows `address`, whose page is `content`. `None` where the word lies on another
    /// page, or refers to nothing.
    fn follow(
        self,
        address: VirtAddr,
        content: &PageBytes,
        compression: Option<Compression>,
    ) -> Option<VirtAddr> {
        if rest_of(address.get()) != self.rest {
            return None;
        }
        let at = (address.get() as usize % PAGE_BYTES).checked_add_signed(self.offset.into())?;
        let value = self.form.read(content, at, compression)?;
        (value != 0).then(|| value.checked_add(self.behind.into()).map(VirtAddr::new))?
    }
}

/// Links that led from one address to the next ones, a bit for each pair of a way and a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Taken(u32);

impl Taken {
    pub(super) fn add(&mut self, way: Way, link: usize) {
        self.0 |= 1 << (way.index() * LINKS + link);
    }

    fn pairs(self) -> impl Iterator<Item = (usize, usize)> {
        (0..WAYS * LINKS).filter(move |bit| self.0 >> bit & 1 != 0).map(|bit| (bit / LINKS, bit % LINKS))
    }
}

/// The words around an address, as they were when it was touched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    address: u64,
    way: Way,
    /// From the touched address to the first word, in bytes.
    first: i16,
    count: u8,
    words: [u64; WORDS],
}

impl Surroundings {
    pub(super) fn new(address: VirtAddr, way: Way, content: &PageBytes) -> Self {
        let at = address.get() as usize % PAGE_BYTES;
        let aligned = at - at % WORD_BYTES;
        let start = aligned.saturating_sub(REACH_BYTES);
        let end = (aligned + REACH_BYTES).min(PAGE_BYTES);
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(content[start..end].chunks_exact(WORD_BYTES)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        let count = ((end - start) / WORD_BYTES) as u8;
        Self { address: address.get(), way, first: (start as i64 - at as i64) as i16, count, words }
    }

    /// The links that lead from here to `address`.
    fn links_to(&self, address: VirtAddr, compression: Option<Compression>) -> impl Iterator<Item = Link> {
        let words = &self.words[..usize::from(self.count)];
        let behind = move |value: u64| address.get().wrapping_sub(value);
        let is_near = move |value: u64| behind(value) < BEHIND_BYTES;
        let is_elsewhere = self.address != address.get();
        // Most often there is none: that is found out first, without a branch for each word.
        let is_any = is_elsewhere && words.iter().fold(false, |any, &word| any | is_near(word));
        let link = move |form, at: usize, value| Link {
            form,
            rest: rest_of(self.address),
            offset: self.first + at as i16,
            behind: behind(value) as u16,
        };
        let whole = words.iter().enumerate().filter(move |&(_, &word)| is_any && is_near(word));
        let whole = whole.map(move |(at, &word)| link(Form::Whole, at * WORD_BYTES, word));
        let compression = compression.filter(|_| is_elsewhere && !is_any);
        let compressed = compression.into_iter().flat_map(move |compression| {
            let decoded = move |half: u32| compression.address(half);
            let is_any = words.iter().fold(false, |any, &word| {
                any | halves(word).into_iter().fold(false, |any, half| any | is_near(decoded(half)))
            });
            let all = words.iter().flat_map(|&word| halves(word)).enumerate();
            let near = all.filter(move |&(_, half)| is_any && half != 0 && is_near(decoded(half)));
            near.map(move |(at, half)| link(Form::Compressed, at * HALF_BYTES, decoded(half)))
        });
        whole.chain(compressed)
    }
}

fn rest_of(address: u64) -> u8 {
    (address % WORD_BYTES as u64) as u8
}

/// The halves of a word, as they lie in memory.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// The links that are known, and how far they are trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    compression: Option<Compression>,
    known: [Option<Link>; LINKS],
    /// By the way to where a link was taken, and by link.
    trust: [[u8; LINKS]; WAYS],
}

impl Links {
    pub(super) const fn new() -> Self {
        Self { compression: None, known: [None; LINKS], trust: [[0; LINKS]; WAYS] }
    }

    /// From now on references of four bytes are understood so. Links of such references that are known say
    /// nothing any more.
    pub(super) fn understand(&mut self, compression: Option<Compression>) {
        if self.compression != compression {
            *self = Self { compression, ..Self::new() };
        }
    }

    pub(super) fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// A fault at `address`, after those around which `history` was found, the latest first: learns how the
    /// program came, and says it.
    pub(super) fn learn<'a>(
        &mut self,
        history: impl Iterator<Item = &'a Surroundings>,
        address: VirtAddr,
    ) -> Way {
        let mut new = None;
        for from in history {
            for link in from.links_to(address, self.compression) {
                if let Some(index) = self.known.iter().position(|&known| known == Some(link)) {
                    let trust = &mut self.trust[from.way.index()][index];
                    *trust = (*trust + 1).min(TRUST_LIMIT);
                    return Way::by(index);
                }
                new = new.or(Some((from.way, link)));
            }
        }
        let Some((way, link)) = new else { return Way::UNKNOWN };
        match self.replace_weakest(link) {
            Some(index) => {
                self.trust[way.index()][index] = 1;
                Way::by(index)
            }
            None => Way::UNKNOWN,
        }
    }

    /// Makes `link` known in the place of the one that is trusted least. While all are trusted, that one is
    /// trusted a little less.
    fn replace_weakest(&mut self, link: Link) -> Option<usize> {
        let trust_in = |index: usize| self.trust.iter().map(|of_way| of_way[index]).max().unwrap_or(0);
        let weakest = (0..LINKS).min_by_key(|&index| (self.known[index].is_some(), trust_in(index)))?;
        if trust_in(weakest) >= TRUSTED {
            self.trust.iter_mut().for_each(|of_way| of_way[weakest] = of_way[weakest].saturating_sub(1));
            return None;
        }
        self.trust.iter_mut().for_each(|of_way| of_way[weakest] = 0);
        self.trust[Way::by(weakest).index()] = [0; LINKS];
        self.known[weakest] = Some(link);
        Some(weakest)
    }

    /// Whether there is a link to follow at all.
    pub(super) fn are_trusted(&self) -> bool {
        self.trust.as_flattened().iter().any(|&trust| trust >= TRUSTED)
    }

    /// Where the program may go from `address`, to which it came by `way` and whose page is `content`; what
    /// it is expected to do last comes first.
    pub(super) fn follow(
        &self,
        address: VirtAddr,
        way: Way,
        content: &PageBytes,
        mut visit: impl FnMut(usize, Way, VirtAddr),
    ) {
        let trust = &self.trust[way.index()];
        for level in TRUSTED..=TRUST_LIMIT {
            // Of equal trust, what was learnt first is done first.
            for index in (0..LINKS).rev().filter(|&index| trust[index] == level) {
                if let Some(next) =
                    self.known[index].and_then(|link| link.follow(address, content, self.compression))
                {
                    visit(index, Way::by(index), next);
                }
            }
        }
    }

    /// Where in its page the word of link `index` lies, seen from `address`.
    pub(super) fn place(&self, index: usize, address: VirtAddr) -> Option<usize> {
        (address.get() as usize % PAGE_BYTES).checked_add_signed(self.known[index]?.offset.into())
    }

    /// The links that were `taken` have led where the program went, or have not.
    pub(super) fn settle(&mut self, taken: Taken, have_led: bool) {
        for (way, link) in taken.pairs() {
            let trust = &mut self.trust[way][link];
            *trust = if have_led { (*trust + 1).min(TRUST_LIMIT) } else { trust.saturating_sub(LOSS) };
        }
    }
}

const _: () = assert!(WAYS * LINKS <= u32::BITS as usize, "every pair has a bit");
const _: () =
    assert!(BEHIND_BYTES <= u16::MAX as u64 && REACH_BYTES <= i16::MAX as usize && WORDS <= u8::MAX as usize);
