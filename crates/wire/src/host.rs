//! What a space (the supervisor of one application) and the host's broker say to each other: packets of fixed
//! size over a Unix socket, with a descriptor where a slot in the link schedule is given, or where the host
//! names memory nodes. A lease is a number, since every space has its pool and its local memory to itself;
//! only how much of them it may fill is agreed.
//!
//! Layout of a packet, little-endian: kind (4 bytes), protocol version (4), fifteen arguments (8 each).

/// Bytes of a packet.
pub const HOST_PACKET_BYTES: usize = 8 + 8 * ARGUMENTS;
/// Both ends must speak the same version.
const VERSION: u32 = 3;
const ARGUMENTS: usize = 15;
const HOLDING_WORDS: usize = 8;

/// A packet.
pub type HostPacket = [u8; HOST_PACKET_BYTES];

/// Bytes of a slab, in which the pool is leased. The store's own slabs have the same size.
pub const LEASED_SLAB_BYTES: u64 = 256 << 10;

/// More slabs than this no pool can have.
pub const MOST_SLABS: u64 = 1 << 24;
/// More pages than this no space can have: 2^47 bytes.
pub const MOST_PAGES: u64 = 1 << 35;
/// The largest weight.
pub const MOST_WEIGHT: u32 = 1000;
/// Slots of the link schedule.
pub const MOST_LINK_SLOTS: u64 = 256;
/// What a host says of memory nodes is no longer.
pub const MOST_NODES_BYTES: u64 = 64 << 10;
/// Longest name of a space.
pub const NAME_BYTES: usize = 64;
const NAME_WORDS: usize = NAME_BYTES / 8;

/// What a space may count on, and what it may have at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Its part against others, 1 to [`MOST_WEIGHT`].
    pub weight: u32,
    /// Slabs that it gets whenever it wants them.
    pub pool_guaranteed: u64,
    /// Slabs that it takes at most.
    pub pool_most: u64,
    /// Its own local memory, in pages.
    pub local_own: u64,
    /// Whether it lends what it doesn't use of that, and borrows what others don't use.
    pub borrows: bool,
}

/// How a space is: what it holds, needs and wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holding {
    /// Slabs that it may fill: those in use, and those that it may still take by the lease it knows.
    pub pool_held: u64,
    /// Slabs that are in use.
    pub pool_used: u64,
    /// Slabs that it needs: those in use, and some to go on with for a moment.
    pub pool_needed: u64,
    /// Slabs that it would like to have.
    pub pool_wanted: u64,
    /// Slabs whose content could move on to its disk.
    pub pool_movable: u64,
    /// Pages that it may have in local memory, or has.
    pub local_held: u64,
    /// Pages that it needs for what it has there.
    pub local_needed: u64,
    /// Pages that it would like to have there.
    pub local_wanted: u64,
}

impl Holding {
    fn is_possible(&self) -> bool {
        let [slabs @ .., local_held, local_needed, local_wanted] = self.words();
        slabs.iter().all(|&slabs| slabs <= MOST_SLABS)
            && [local_held, local_needed, local_wanted].iter().all(|&pages| pages <= MOST_PAGES)
            && self.pool_used <= self.pool_needed
            && self.pool_needed <= self.pool_wanted
            && self.local_needed <= self.local_wanted
    }

    const fn words(&self) -> [u64; HOLDING_WORDS] {
        [
            self.pool_held,
            self.pool_used,
            self.pool_needed,
            self.pool_wanted,
            self.pool_movable,
            self.local_held,
            self.local_needed,
            self.local_wanted,
        ]
    }

    const fn of(words: [u64; HOLDING_WORDS]) -> Self {
        let [
            pool_held,
            pool_used,
            pool_needed,
            pool_wanted,
            pool_movable,
            local_held,
            local_needed,
            local_wanted,
        ] = words;
        Self {
            pool_held,
            pool_used,
            pool_needed,
            pool_wanted,
            pool_movable,
            local_held,
            local_needed,
            local_wanted,
        }
    }
}

impl Terms {
    fn is_possible(&self) -> bool {
        (1..=MOST_WEIGHT).contains(&self.weight)
            && self.pool_guaranteed <= self.pool_most
            && self.pool_most <= MOST_SLABS
            && self.local_own <= MOST_PAGES
    }

    fn words(&self) -> [u64; 4] {
        [
            u64::from(self.weight) | u64::from(self.borrows) << 32,
            self.pool_guaranteed,
            self.pool_most,
            self.local_own,
        ]
    }

    fn of(words: [u64; 4]) -> Option<Self> {
        let [first, pool_guaranteed, pool_most, local_own] = words;
        let borrows = match first >> 32 {
            0 => false,
            1 => true,
            _ => return None,
        };
        let terms = Self { weight: first as u32, pool_guaranteed, pool_most, local_own, borrows };
        terms.is_possible().then_some(terms)
    }
}

/// From a space to the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToBroker {
    /// The first packet of a connection: a space wants to be one of the host's. Answered by
    /// [`FromBroker::Accepted`] or [`FromBroker::Refused`].
    Attach {
        /// What it asks for.
        terms: Terms,
        /// Slabs that it holds already, by a lease of an earlier broker.
        pool_held: u64,
        /// Of them, those whose content could move on to its disk.
        pool_movable: u64,
        /// Pages that it has in local memory already.
        local_held: u64,
        /// Its name, zeros at the end; to be shown only.
        name: [u8; NAME_BYTES],
    },
    /// Other terms than before. Answered like [`ToBroker::Attach`]; when refused the old ones stay.
    Change {
        /// What it asks for.
        terms: Terms,
    },
    /// How it is.
    Report {
        /// The last lease that it knows, which is the one that `held` keeps to.
        serial: u64,
        /// What it holds, needs and wants.
        holding: Holding,
        /// Pages that it has moved between local and far memory since it began.
        moved_pages: u64,
    },
    /// It uses memory nodes, and wants a slot where links to them are shared. Answered by
    /// [`FromBroker::LinkSlot`], or not at all when none is left.
    TakeLinkSlot,
    /// Before a space begins: which memory nodes the host names. Answered by [`FromBroker::Nodes`].
    Ask,
}

/// Why a broker refuses terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalReason {
    /// It has not so many slabs left that nobody was promised.
    Pool,
    /// It has not so much local memory left that is nobody's.
    Local,
    /// It has as many spaces as it can have.
    Spaces,
}

/// From the broker to a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromBroker {
    /// The terms hold from now on.
    Accepted,
    /// The terms can't be had.
    Refused {
        /// Why.
        reason: RefusalReason,
        /// What could be had of what is short: slabs or pages.
        most: u64,
    },
    /// How much the space may hold from now on, until the next lease. If that is less than before, it gives
    /// back the rest, and says so by reports with this serial number.
    Lease {
        /// Grows from one lease to the next.
        serial: u64,
        /// Slabs of its pool.
        pool_slabs: u64,
        /// Pages of local memory.
        local_pages: u64,
    },
    /// The space's slot in the link schedule, whose memory file comes along.
    LinkSlot {
        /// Which.
        number: u64,
    },
    /// Which memory nodes the host names, in a memory file that comes along; none, and no file, where nothing
    /// is said.
    Nodes {
        /// Bytes of what is said.
        length_bytes: u64,
    },
}

fn pack(kind: u32, arguments: &[u64]) -> HostPacket {
    let mut packet = [0; HOST_PACKET_BYTES];
    packet[..4].copy_from_slice(&kind.to_le_bytes());
    packet[4..8].copy_from_slice(&VERSION.to_le_bytes());
    for (place, argument) in packet[8..].chunks_exact_mut(8).zip(arguments) {
        place.copy_from_slice(&argument.to_le_bytes());
    }
    packet
}

fn unpack(bytes: &[u8]) -> Option<(u32, [u64; ARGUMENTS])> {
    let packet: &HostPacket = bytes.try_into().ok()?;
    let (kind, rest) = packet.split_first_chunk::<4>()?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let mut arguments = [0; ARGUMENTS];
    for (argument, bytes) in arguments.iter_mut().zip(rest.chunks_exact(8)) {
        *argument = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some((u32::from_le_bytes(*kind), arguments))
}

fn name_words(name: &[u8; NAME_BYTES]) -> [u64; NAME_WORDS] {
    let mut words = [0; NAME_WORDS];
    for (word, bytes) in words.iter_mut().zip(name.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn name_of(words: &[u64]) -> Option<[u8; NAME_BYTES]> {
    let mut name = [0; NAME_BYTES];
    for (bytes, word) in name.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
    let (letters, rest) = name.split_at(length);
    let is_plain = letters.iter().all(u8::is_ascii_graphic) && rest.iter().all(|&byte| byte == 0);
    is_plain.then_some(name)
}

impl ToBroker {
    /// The packet of this message.
    pub fn encode(&self) -> HostPacket {
        let mut words = [0; ARGUMENTS];
        let kind = match self {
            Self::Attach { terms, pool_held, pool_movable, local_held, name } => {
                words[..4].copy_from_slice(&terms.words());
                words[4..7].copy_from_slice(&[*pool_held, *pool_movable, *local_held]);
                words[7..7 + NAME_WORDS].copy_from_slice(&name_words(name));
                1
            }
            Self::Change { terms } => {
                words[..4].copy_from_slice(&terms.words());
                2
            }
            Self::Report { serial, holding, moved_pages } => {
                words[..2].copy_from_slice(&[*serial, *moved_pages]);
                words[2..2 + HOLDING_WORDS].copy_from_slice(&holding.words());
                3
            }
            Self::TakeLinkSlot => 4,
            Self::Ask => 5,
        };
        pack(kind, &words)
    }

    /// The message of a packet; `None` if it is none, or says what can't be.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, words) = unpack(bytes)?;
        let terms = || Terms::of(*words.first_chunk()?);
        Some(match kind {
            1 => {
                let [pool_held, pool_movable, local_held] = [words[4], words[5], words[6]];
                if pool_held.max(pool_movable) > MOST_SLABS || local_held > MOST_PAGES {
                    return None;
                }
                let name = name_of(&words[7..])?;
                Self::Attach { terms: terms()?, pool_held, pool_movable, local_held, name }
            }
            2 => Self::Change { terms: terms()? },
            3 => {
                let holding = Holding::of(*words[2..].first_chunk()?);
                if !holding.is_possible() {
                    return None;
                }
                Self::Report { serial: words[0], moved_pages: words[1], holding }
            }
            4 => Self::TakeLinkSlot,
            5 => Self::Ask,
            _ => return None,
        })
    }
}

impl FromBroker {
    /// The packet of this message.
    pub fn encode(&self) -> HostPacket {
        match *self {
            Self::Accepted => pack(101, &[]),
            Self::Refused { reason, most } => {
                let reason = match reason {
                    RefusalReason::Pool => 1,
                    RefusalReason::Local => 2,
                    RefusalReason::Spaces => 3,
                };
                pack(102, &[reason, most])
            }
            Self::Lease { serial, pool_slabs, local_pages } => pack(103, &[serial, pool_slabs, local_pages]),
            Self::LinkSlot { number } => pack(104, &[number]),
            Self::Nodes { length_bytes } => pack(105, &[length_bytes]),
        }
    }

    /// The message of a packet; `None` if it is none, or says what can't be.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, [first, second, third, ..]) = unpack(bytes)?;
        Some(match kind {
            101 => Self::Accepted,
            102 => {
                let reason = match first {
                    1 => RefusalReason::Pool,
                    2 => RefusalReason::Local,
                    3 => RefusalReason::Spaces,
                    _ => return None,
                };
                Self::Refused { reason, most: second }
            }
            103 if second <= MOST_SLABS && third <= MOST_PAGES => {
                Self::Lease { serial: first, pool_slabs: second, local_pages: third }
            }
            104 if first < MOST_LINK_SLOTS => Self::LinkSlot { number: first },
            105 if first <= MOST_NODES_BYTES => Self::Nodes { length_bytes: first },
            _ => return None,
        })
    }
}

/// A space's name as it goes into a packet: what is not plain becomes a dot, what is too long is cut.
pub fn packed_name(name: &str) -> [u8; NAME_BYTES] {
    let mut packed = [0; NAME_BYTES];
    for (place, byte) in packed.iter_mut().zip(name.bytes()) {
        *place = if byte.is_ascii_graphic() { byte } else { b'.' };
    }
    packed
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const TERMS: Terms =
        Terms { weight: 3, pool_guaranteed: 5, pool_most: 9, local_own: MOST_PAGES, borrows: true };
    const HOLDING: Holding = Holding {
        pool_held: 1,
        pool_used: 1,
        pool_needed: 2,
        pool_wanted: 3,
        pool_movable: MOST_SLABS,
        local_held: 5,
        local_needed: 6,
        local_wanted: 7,
    };

    #[test]
    fn messages_survive_their_encoding() {
        for message in [
            ToBroker::Attach {
                terms: TERMS,
                pool_held: 7,
                pool_movable: 6,
                local_held: 8,
                name: packed_name("redis"),
            },
            ToBroker::Attach {
                terms: TERMS,
                pool_held: 0,
                pool_movable: 0,
                local_held: 0,
                name: packed_name(&"x".repeat(99)[..]),
            },
            ToBroker::Change { terms: Terms { borrows: false, weight: MOST_WEIGHT, ..TERMS } },
            ToBroker::Report { serial: u64::MAX, holding: HOLDING, moved_pages: 11 },
            ToBroker::TakeLinkSlot,
            ToBroker::Ask,
        ] {
            assert_eq!(ToBroker::decode(&message.encode()), Some(message));
        }
        for message in [
            FromBroker::Accepted,
            FromBroker::Refused { reason: RefusalReason::Pool, most: 4 },
            FromBroker::Refused { reason: RefusalReason::Local, most: 0 },
            FromBroker::Refused { reason: RefusalReason::Spaces, most: u64::MAX },
            FromBroker::Lease { serial: 1, pool_slabs: MOST_SLABS, local_pages: 0 },
            FromBroker::LinkSlot { number: MOST_LINK_SLOTS - 1 },
            FromBroker::Nodes { length_bytes: MOST_NODES_BYTES },
        ] {
            assert_eq!(FromBroker::decode(&message.encode()), Some(message));
        }
    }

    /// A packet as version 0.2.0 of Farmem sends it, by docs/formats/host.md.
    fn of_0_2_0(kind: u32, arguments: &[u64]) -> [u8; 128] {
        let mut packet = [0; 128];
        packet[..4].copy_from_slice(&kind.to_le_bytes());
        packet[4] = 3;
        for (field, argument) in packet[8..].chunks_exact_mut(8).zip(arguments) {
            field.copy_from_slice(&argument.to_le_bytes());
        }
        packet
    }

    #[test]
    fn packets_of_version_0_2_0_are_understood_and_sent() {
        let name = u64::from_le_bytes(*b"redis\0\0\0");
        let attach = ToBroker::Attach {
            terms: TERMS,
            pool_held: 7,
            pool_movable: 6,
            local_held: 8,
            name: packed_name("redis"),
        };
        let report = ToBroker::Report { serial: 4, holding: HOLDING, moved_pages: 11 };
        for (message, packet) in [
            (attach, of_0_2_0(1, &[1 << 32 | 3, 5, 9, 1 << 35, 7, 6, 8, name])),
            (ToBroker::Change { terms: TERMS }, of_0_2_0(2, &[1 << 32 | 3, 5, 9, 1 << 35])),
            (report, of_0_2_0(3, &[4, 11, 1, 1, 2, 3, 1 << 24, 5, 6, 7])),
            (ToBroker::TakeLinkSlot, of_0_2_0(4, &[])),
            (ToBroker::Ask, of_0_2_0(5, &[])),
        ] {
            assert_eq!(ToBroker::decode(&packet), Some(message));
            assert_eq!(message.encode(), packet);
        }
        let refused = FromBroker::Refused { reason: RefusalReason::Local, most: 4 };
        let lease = FromBroker::Lease { serial: 2, pool_slabs: 16, local_pages: 9 };
        for (message, packet) in [
            (FromBroker::Accepted, of_0_2_0(101, &[])),
            (refused, of_0_2_0(102, &[2, 4])),
            (lease, of_0_2_0(103, &[2, 16, 9])),
            (FromBroker::LinkSlot { number: 5 }, of_0_2_0(104, &[5])),
            (FromBroker::Nodes { length_bytes: 99 }, of_0_2_0(105, &[99])),
        ] {
            assert_eq!(FromBroker::decode(&packet), Some(message));
            assert_eq!(message.encode(), packet);
        }
    }

    #[test]
    fn what_cannot_be_is_no_message() {
        let terms = |terms| ToBroker::Change { terms }.encode();
        let report = |holding| ToBroker::Report { serial: 1, holding, moved_pages: 0 }.encode();
        for packet in [
            terms(Terms { weight: 0, ..TERMS }),
            terms(Terms { weight: MOST_WEIGHT + 1, ..TERMS }),
            terms(Terms { pool_guaranteed: 10, ..TERMS }),
            terms(Terms { pool_most: u64::MAX, ..TERMS }),
            terms(Terms { local_own: MOST_PAGES + 1, ..TERMS }),
            report(Holding { pool_held: MOST_SLABS + 1, ..HOLDING }),
            report(Holding { pool_needed: 4, ..HOLDING }),
            report(Holding { pool_used: 3, ..HOLDING }),
            report(Holding { local_wanted: 5, ..HOLDING }),
            ToBroker::Attach {
                terms: TERMS,
                pool_held: u64::MAX,
                pool_movable: 0,
                local_held: 0,
                name: packed_name("a"),
            }
            .encode(),
            ToBroker::Attach {
                terms: TERMS,
                pool_held: 0,
                pool_movable: 0,
                local_held: 0,
                name: [7; NAME_BYTES],
            }
            .encode(),
            pack(99, &[]),
            [0xff; HOST_PACKET_BYTES],
        ] {
            assert_eq!(ToBroker::decode(&packet), None);
        }
        assert_eq!(ToBroker::decode(&[]), None);
        assert_eq!(ToBroker::decode(&[1; HOST_PACKET_BYTES + 1]), None);
        assert_eq!(FromBroker::decode(&pack(103, &[1, MOST_SLABS + 1, 0])), None);
        assert_eq!(FromBroker::decode(&pack(102, &[9, 0])), None);
        assert_eq!(FromBroker::decode(&pack(104, &[MOST_LINK_SLOTS])), None);
        assert_eq!(FromBroker::decode(&pack(105, &[MOST_NODES_BYTES + 1])), None);
        let mut other_version = FromBroker::Accepted.encode();
        other_version[4] ^= 0xff;
        assert_eq!(FromBroker::decode(&other_version), None);
    }

    #[test]
    fn a_name_of_control_characters_is_made_plain() {
        assert_eq!(name_of(&name_words(&packed_name("a\nb"))), Some(packed_name("a.b")));
    }
}
