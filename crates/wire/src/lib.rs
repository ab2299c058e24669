//! What a process's pager and its supervisor say to each other: packets of fixed size over a Unix socket,
//! descriptors with them. Everything that comes in is checked; an unknown or short packet is no message.
//!
//! Layout of a packet, little-endian: kind (4 bytes), protocol version (4), six arguments (8 each).
//!
//! [`host`] is the other protocol: between a supervisor and the broker of the machine.
#![no_std]
#![forbid(unsafe_code)]

pub mod host;

const ARGUMENTS: usize = 6;
/// Bytes of a packet.
pub const PACKET_BYTES: usize = 8 + 8 * ARGUMENTS;
/// Both ends must speak the same version; a command may come from another build than the supervisor that it
/// asks.
const VERSION: u32 = 13;

/// A packet.
pub type Packet = [u8; PACKET_BYTES];

/// Hexadecimal digits of a token.
const TOKEN_DIGITS: usize = 16;

/// How a program reaches its supervisor: the name of a socket, and a secret that only the application's
/// processes are told, in their environment. Written `name:token`, the token in 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address<'a> {
    /// Name of the socket.
    pub name: &'a [u8],
    /// The secret. A process that doesn't know it gets neither ledger nor pool.
    pub token: u64,
}

impl<'a> Address<'a> {
    /// The address of that text; `None` if it is none.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (rest, digits) = text.split_at_checked(text.len().checked_sub(TOKEN_DIGITS)?)?;
        let (b':', name) = rest.split_last()? else { return None };
        let token = digits
            .iter()
            .try_fold(0_u64, |token, &digit| Some(token << 4 | u64::from(char::from(digit).to_digit(16)?)))?;
        Some(Self { name, token })
    }
}

impl core::fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{:016x}", self.name.escape_ascii(), self.token)
    }
}

/// From a pager to its supervisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// A process has started, with nothing of another one's.
    Hello {
        /// The secret of the application; see [`Address`].
        token: u64,
        /// The process that the sender speaks for, as the supervisor sees it; 0 for the sender itself.
        process: u32,
    },
    /// A forked child asks for its userfaultfd and its place in the ledger.
    Inherit {
        /// Its parent's slot in the ledger.
        parent_slot: u32,
        /// The parent's count of forks.
        epoch: u64,
        /// The secret of the application; see [`Address`].
        token: u64,
        /// The process that the sender speaks for, as the supervisor sees it; 0 for the sender itself.
        process: u32,
        /// Pages that count with its parent: those that it shares, and those that the parent has separated
        /// from since the fork.
        shared_pages: u64,
        /// Pages that it has made its own.
        own_pages: u64,
    },
    /// A new userfaultfd comes with this packet: shake hands with the kernel for it, and keep a duplicate.
    Register,
    /// The process has forked; the child's userfaultfd comes with this packet.
    Forked {
        /// The process's count of forks, this one included.
        epoch: u64,
    },
    /// The userfaultfd of a process that maps shared memory, which the sender's pager serves, comes with this
    /// packet: keep a duplicate.
    Keep,
    /// Somebody who isn't a process of the application, and needs no token, asks how it is. The answer is a
    /// report as JSON.
    Query,
    /// Somebody with the right to do so changes limits. The answer is a report as for [`Request::Query`], or
    /// why not, as JSON text.
    Set {
        /// The application's local budget; 0 leaves it.
        budget_pages: u64,
        /// The limit of its far memory, in slabs of [`host::LEASED_SLAB_BYTES`]; 0 leaves it.
        partition_slabs: u32,
        /// The limit of its pool; 0 leaves it.
        pool_bytes: u64,
        /// What its pool is guaranteed, in slabs of [`host::LEASED_SLAB_BYTES`]; `None` leaves it.
        guaranteed_slabs: Option<u32>,
        /// Its part against others of the same host; 0 leaves it.
        weight: u16,
        /// What may be fetched ahead and not used yet; `None` leaves it.
        cache_pages: Option<u32>,
    },
    /// Somebody with the right to change limits asks about processes. The answer is JSON: all processes, or
    /// the regions of one, or a sentence why not.
    Look {
        /// The process whose regions are wanted; 0 for a list of all.
        process: u32,
    },
    /// Somebody with the right to change limits wants all to come back, and the pagers to leave. The answer
    /// is a report as for [`Request::Query`], or why not, as JSON text; the supervisor ends when it is done.
    Withdraw,
    /// Somebody with the right to do so makes the application small, or large again, or asks how far that has
    /// come. The answer is JSON: how large it is, or a sentence why not.
    Resize {
        /// What is wanted.
        step: Resizing,
        /// The budget that it is to have; 0 for the least, or for what it had.
        budget_pages: u64,
    },
    /// Somebody asks whether a process belongs to the application. The answer is `true` or `false`, as JSON.
    Holds {
        /// Its number.
        process: u32,
    },
}

/// What is wanted of an application's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resizing {
    /// To know it.
    Look = 0,
    /// Less.
    Shrink = 1,
    /// More.
    Grow = 2,
}

impl Resizing {
    fn from_number(number: u64) -> Option<Self> {
        [Self::Look, Self::Shrink, Self::Grow].into_iter().find(|&step| step as u64 == number)
    }
}

/// From a supervisor to a pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To [`Request::Hello`]: ledger and pool come with this packet, in this order, and then the disk's file
    /// if there is one.
    Welcome {
        /// The process's slot in the ledger.
        slot: u32,
        /// Bytes of the pool's file.
        pool_bytes: u64,
        /// [`HAS_DISK`] or nothing.
        flags: u32,
    },
    /// To [`Request::Inherit`]: the userfaultfd comes with this packet, then the pool, then the disk's file
    /// if there is one.
    Inherited {
        /// The process's slot in the ledger.
        slot: u32,
        /// Bytes of the pool's file.
        pool_bytes: u64,
        /// [`HAS_DISK`] or nothing.
        flags: u32,
    },
    /// Done.
    Done,
    /// The request can't be met: the kernel's error number, or 0.
    Refused {
        /// An error number of the kernel.
        errno: u32,
    },
}

/// Flag of [`Reply::Welcome`] and [`Reply::Inherited`]: a descriptor of the disk's file is there.
pub const HAS_DISK: u32 = 2;

/// Arguments that a kind doesn't use are 0.
fn pack<const N: usize>(kind: u32, arguments: [u64; N]) -> Packet {
    const { assert!(N <= ARGUMENTS) };
    let mut packet = [0; PACKET_BYTES];
    packet[..4].copy_from_slice(&kind.to_le_bytes());
    packet[4..8].copy_from_slice(&VERSION.to_le_bytes());
    for (place, argument) in packet[8..].chunks_exact_mut(8).zip(arguments) {
        place.copy_from_slice(&argument.to_le_bytes());
    }
    packet
}

fn unpack(bytes: &[u8]) -> Option<(u32, [u64; ARGUMENTS])> {
    let packet: &Packet = bytes.try_into().ok()?;
    let word = |at: usize| u32::from_le_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let argument = |index: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&packet[8 + 8 * index..16 + 8 * index]);
        u64::from_le_bytes(bytes)
    };
    (word(4) == VERSION).then(|| (word(0), core::array::from_fn(argument)))
}

/// One more than the number, or 0 for none.
fn pack_option(number: Option<u32>) -> u64 {
    number.map_or(0, |number| u64::from(number) + 1)
}

/// The inverse of [`pack_option`]; `None` of what it never gives.
fn unpack_option(argument: u64) -> Option<Option<u32>> {
    match argument {
        0 => Some(None),
        more => Some(Some((more - 1).try_into().ok()?)),
    }
}

impl Request {
    /// The packet of this request.
    pub fn encode(self) -> Packet {
        match self {
            Self::Hello { token, process } => pack(1, [token, process.into()]),
            Self::Inherit { parent_slot, epoch, token, process, shared_pages, own_pages } => {
                pack(2, [parent_slot.into(), epoch, token, process.into(), shared_pages, own_pages])
            }
            Self::Register => pack(3, []),
            Self::Forked { epoch } => pack(4, [epoch]),
            Self::Query => pack(5, []),
            Self::Look { process } => pack(8, [process.into()]),
            Self::Withdraw => pack(9, []),
            Self::Holds { process } => pack(10, [process.into()]),
            Self::Keep => pack(11, []),
            Self::Resize { step, budget_pages } => pack(12, [step as u64, budget_pages]),
            Self::Set {
                budget_pages,
                partition_slabs,
                pool_bytes,
                guaranteed_slabs,
                weight,
                cache_pages,
            } => pack(
                7,
                [
                    budget_pages,
                    partition_slabs.into(),
                    pool_bytes,
                    pack_option(guaranteed_slabs),
                    weight.into(),
                    pack_option(cache_pages),
                ],
            ),
        }
    }

    /// The request of a packet; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, [first, second, third, fourth, fifth, sixth]) = unpack(bytes)?;
        Some(match kind {
            1 => Self::Hello { token: first, process: second.try_into().ok()? },
            2 => Self::Inherit {
                parent_slot: first.try_into().ok()?,
                epoch: second,
                token: third,
                process: fourth.try_into().ok()?,
                shared_pages: fifth,
                own_pages: sixth,
            },
            3 => Self::Register,
            4 => Self::Forked { epoch: first },
            5 => Self::Query,
            7 => Self::Set {
                budget_pages: first,
                partition_slabs: second.try_into().ok()?,
                pool_bytes: third,
                guaranteed_slabs: unpack_option(fourth)?,
                weight: fifth.try_into().ok()?,
                cache_pages: unpack_option(sixth)?,
            },
            8 => Self::Look { process: first.try_into().ok()? },
            9 => Self::Withdraw,
            10 => Self::Holds { process: first.try_into().ok()? },
            11 => Self::Keep,
            12 => Self::Resize { step: Resizing::from_number(first)?, budget_pages: second },
            _ => return None,
        })
    }
}

impl Reply {
    /// The packet of this reply.
    pub fn encode(self) -> Packet {
        match self {
            Self::Welcome { slot, pool_bytes, flags } => pack(101, [slot.into(), pool_bytes, flags.into()]),
            Self::Inherited { slot, pool_bytes, flags } => pack(102, [slot.into(), pool_bytes, flags.into()]),
            Self::Done => pack(103, []),
            Self::Refused { errno } => pack(104, [errno.into()]),
        }
    }

    /// The reply of a packet; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, [first, second, third, ..]) = unpack(bytes)?;
        Some(match kind {
            101 => Self::Welcome {
                slot: first.try_into().ok()?,
                pool_bytes: second,
                flags: third.try_into().ok()?,
            },
            102 => Self::Inherited {
                slot: first.try_into().ok()?,
                pool_bytes: second,
                flags: third.try_into().ok()?,
            },
            103 => Self::Done,
            104 => Self::Refused { errno: first.try_into().ok()? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn an_address_survives_being_written() {
        for token in [0, 1, u64::MAX] {
            let text = Address { name: b"farmem/17", token }.to_string();
            assert_eq!(Address::parse(text.as_bytes()), Some(Address { name: b"farmem/17", token }));
        }
    }

    #[test]
    fn what_has_no_token_is_no_address() {
        for text in
            [&b""[..], b"farmem/17", b"farmem/17:12", b"farmem/17:00000000000000zz", b"0123456789abcdef"]
        {
            assert_eq!(Address::parse(text), None);
        }
    }

    #[test]
    fn requests_survive_their_encoding() {
        for request in [
            Request::Hello { token: u64::MAX, process: 0 },
            Request::Hello { token: 1, process: u32::MAX },
            Request::Inherit {
                parent_slot: 3,
                epoch: u64::MAX,
                token: 1,
                process: 7,
                shared_pages: 5,
                own_pages: u64::MAX,
            },
            Request::Inherit {
                parent_slot: u32::MAX,
                epoch: 0,
                token: u64::MAX - 1,
                process: 0,
                shared_pages: u64::MAX,
                own_pages: 0,
            },
            Request::Register,
            Request::Forked { epoch: 9 },
            Request::Query,
            Request::Look { process: 0 },
            Request::Look { process: u32::MAX },
            Request::Withdraw,
            Request::Holds { process: u32::MAX },
            Request::Resize { step: Resizing::Look, budget_pages: 0 },
            Request::Resize { step: Resizing::Shrink, budget_pages: u64::MAX },
            Request::Resize { step: Resizing::Grow, budget_pages: 1 },
            Request::Set {
                budget_pages: u64::MAX,
                partition_slabs: 1,
                pool_bytes: 1,
                guaranteed_slabs: None,
                weight: 0,
                cache_pages: Some(0),
            },
            Request::Set {
                budget_pages: 0,
                partition_slabs: u32::MAX,
                pool_bytes: 0,
                guaranteed_slabs: Some(u32::MAX),
                weight: u16::MAX,
                cache_pages: None,
            },
        ] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
    }

    #[test]
    fn replies_survive_their_encoding() {
        for reply in [
            Reply::Welcome { slot: 5, pool_bytes: u64::MAX, flags: HAS_DISK },
            Reply::Inherited { slot: 1, pool_bytes: 1 << 40, flags: HAS_DISK },
            Reply::Done,
            Reply::Refused { errno: 13 },
        ] {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    /// What commands of version 0.2.0 of Farmem send to supervisors, by docs/formats/wire.md.
    #[test]
    fn questions_of_version_0_2_0_are_understood_and_sent() {
        let set = Request::Set {
            budget_pages: 4096,
            partition_slabs: 12,
            pool_bytes: 1 << 30,
            guaranteed_slabs: Some(7),
            weight: 100,
            cache_pages: None,
        };
        for (request, kind, arguments) in [
            (Request::Query, 5, [0; 6]),
            (set, 7, [4096, 12, 1 << 30, 8, 100, 0]),
            (Request::Look { process: 17 }, 8, [17, 0, 0, 0, 0, 0]),
            (Request::Withdraw, 9, [0; 6]),
            (Request::Holds { process: 17 }, 10, [17, 0, 0, 0, 0, 0]),
            (Request::Resize { step: Resizing::Shrink, budget_pages: 4 }, 12, [1, 4, 0, 0, 0, 0]),
        ] {
            let mut packet = [0; 56];
            packet[0] = kind;
            packet[4] = 13;
            for (field, argument) in packet[8..].chunks_exact_mut(8).zip(arguments) {
                field.copy_from_slice(&u64::to_le_bytes(argument));
            }
            assert_eq!(Request::decode(&packet), Some(request));
            assert_eq!(request.encode(), packet);
        }
    }

    #[test]
    fn short_long_foreign_and_unknown_packets_are_refused() {
        assert_eq!(Request::decode(&[]), None);
        assert_eq!(Request::decode(&[0; PACKET_BYTES + 1]), None);
        assert_eq!(Request::decode(&pack(99, [])), None);
        assert_eq!(Request::decode(&pack(2, [u64::MAX])), None);
        assert_eq!(Request::decode(&pack(7, [0, u64::MAX])), None);
        assert_eq!(Request::decode(&pack(8, [1 << 32])), None);
        assert_eq!(Request::decode(&pack(7, [0, 0, 0, u64::MAX])), None);
        assert_eq!(Request::decode(&pack(12, [3])), None);
        let mut other_version = Request::Register.encode();
        other_version[4] ^= 0xff;
        assert_eq!(Request::decode(&other_version), None);
        assert_eq!(Reply::decode(&Request::Register.encode()), None);
    }
}
