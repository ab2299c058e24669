//! The library's data, as its stable ABI lays them out; only what is used has a name of its own.
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::offset_of;

/// Never made here; the library's own.
#[repr(C)]
pub(crate) struct Opaque {
    _private: [u8; 0],
}

/// A function of the driver, in the table that begins a context.
#[repr(C)]
pub(crate) struct Operations {
    _before_poll: [*mut c_void; 11],
    pub(crate) poll: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int>,
    pub(crate) notify: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int>,
    _before_post: [*mut c_void; 12],
    pub(crate) post: Option<unsafe extern "C" fn(*mut QueuePair, *mut Work, *mut *mut Work) -> c_int>,
    _after_post: [*mut c_void; 6],
}

#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Opaque,
    pub(crate) operations: Operations,
}

#[repr(C)]
pub(crate) struct ProtectionDomain {
    _context: *mut Context,
}

#[repr(C)]
pub(crate) struct MemoryRegion {
    _context: *mut Context,
    _domain: *mut ProtectionDomain,
    _address: *mut c_void,
    _length: usize,
    _handle: u32,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
}

#[repr(C)]
pub(crate) struct Channel {
    _context: *mut Context,
    pub(crate) descriptor: c_int,
}

#[repr(C)]
pub(crate) struct CompletionQueue {
    _context: *mut Context,
}

#[repr(C)]
pub(crate) struct QueuePair {
    _pointers: [*mut c_void; 6],
    _handle: u32,
    pub(crate) number: u32,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct Capacity {
    pub(crate) send_works: u32,
    pub(crate) receive_works: u32,
    pub(crate) send_pieces: u32,
    pub(crate) receive_pieces: u32,
    pub(crate) inline_bytes: u32,
}

#[repr(C)]
pub(crate) struct QueuePairWish {
    pub(crate) context: *mut c_void,
    pub(crate) send_queue: *mut CompletionQueue,
    pub(crate) receive_queue: *mut CompletionQueue,
    pub(crate) shared_receive: *mut Opaque,
    pub(crate) capacity: Capacity,
    pub(crate) kind: c_int,
    pub(crate) signals_all: c_int,
}

/// Connections that lose nothing.
pub(crate) const RELIABLE_CONNECTION: c_int = 2;

#[repr(C)]
#[derive(Default)]
pub(crate) struct Route {
    pub(crate) gid: [u64; 2],
    pub(crate) flow_label: u32,
    pub(crate) source_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct Path {
    pub(crate) route: Route,
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    pub(crate) source_bits: u8,
    pub(crate) rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port: u8,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct QueuePairState {
    pub(crate) state: c_int,
    pub(crate) current_state: c_int,
    pub(crate) mtu: c_int,
    pub(crate) migration: c_int,
    pub(crate) q_key: u32,
    pub(crate) receive_sequence: u32,
    pub(crate) send_sequence: u32,
    pub(crate) peer_number: u32,
    pub(crate) access: c_uint,
    pub(crate) capacity: Capacity,
    pub(crate) path: Path,
    pub(crate) other_path: Path,
    pub(crate) partition_index: u16,
    pub(crate) other_partition_index: u16,
    pub(crate) drains: u8,
    pub(crate) is_draining: u8,
    pub(crate) most_reads: u8,
    pub(crate) most_peer_reads: u8,
    pub(crate) not_ready_timer: u8,
    pub(crate) port: u8,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) not_ready_retries: u8,
    pub(crate) other_port: u8,
    pub(crate) other_timeout: u8,
    pub(crate) rate_limit: u32,
}

pub(crate) mod state {
    pub(crate) const INITIAL: i32 = 1;
    pub(crate) const RECEIVES: i32 = 2;
    pub(crate) const SENDS: i32 = 3;
}

pub(crate) mod field {
    pub(crate) const STATE: i32 = 1;
    pub(crate) const ACCESS: i32 = 1 << 3;
    pub(crate) const PARTITION: i32 = 1 << 4;
    pub(crate) const PORT: i32 = 1 << 5;
    pub(crate) const PATH: i32 = 1 << 7;
    pub(crate) const MTU: i32 = 1 << 8;
    pub(crate) const TIMEOUT: i32 = 1 << 9;
    pub(crate) const RETRIES: i32 = 1 << 10;
    pub(crate) const NOT_READY_RETRIES: i32 = 1 << 11;
    pub(crate) const RECEIVE_SEQUENCE: i32 = 1 << 12;
    pub(crate) const MOST_READS: i32 = 1 << 13;
    pub(crate) const NOT_READY_TIMER: i32 = 1 << 15;
    pub(crate) const SEND_SEQUENCE: i32 = 1 << 16;
    pub(crate) const MOST_PEER_READS: i32 = 1 << 17;
    pub(crate) const PEER_NUMBER: i32 = 1 << 20;
}

pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: i32 = 1;
    pub(crate) const REMOTE_WRITE: i32 = 1 << 1;
    pub(crate) const REMOTE_READ: i32 = 1 << 2;
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) local_key: u32,
}

/// A work request. What follows the remote key is for other kinds of it.
#[repr(C)]
pub(crate) struct Work {
    pub(crate) id: u64,
    pub(crate) next: *mut Work,
    pub(crate) pieces: *mut Piece,
    pub(crate) piece_count: c_int,
    pub(crate) operation: c_int,
    pub(crate) flags: c_uint,
    pub(crate) immediate: u32,
    pub(crate) remote_address: u64,
    pub(crate) remote_key: u32,
    pub(crate) padding: u32,
    pub(crate) others: [u64; 9],
}

const _: () =
    assert!(size_of::<Work>() == 128 && offset_of!(Work, remote_key) == 48, "as the library has it");

pub(crate) mod operation {
    pub(crate) const WRITE: i32 = 0;
    pub(crate) const READ: i32 = 4;
}

pub(crate) mod flag {
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const SIGNALED: u32 = 1 << 1;
    pub(crate) const INLINE: u32 = 1 << 3;
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: c_int,
    pub(crate) operation: c_int,
    pub(crate) vendor: u32,
    pub(crate) length: u32,
    pub(crate) immediate: u32,
    pub(crate) number: u32,
    pub(crate) source: u32,
    pub(crate) flags: c_uint,
    pub(crate) partition_index: u16,
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    pub(crate) path_bits: u8,
}

const _: () = assert!(size_of::<Completion>() == 48, "as the library has it");

#[repr(C)]
#[derive(Default)]
pub(crate) struct PortState {
    pub(crate) state: c_int,
    pub(crate) most_mtu: c_int,
    pub(crate) mtu: c_int,
    pub(crate) gids: c_int,
    pub(crate) capabilities: u32,
    pub(crate) most_message: u32,
    pub(crate) bad_keys: u32,
    pub(crate) bad_q_keys: u32,
    pub(crate) partitions: u16,
    pub(crate) lid: u16,
    pub(crate) manager_lid: u16,
    pub(crate) bytes: [u8; 9],
    pub(crate) flags: u8,
    pub(crate) capabilities_2: u16,
}

/// The port carries traffic.
pub(crate) const ACTIVE: c_int = 4;

#[repr(C)]
pub(crate) struct DeviceState {
    pub(crate) firmware: [c_char; 64],
    pub(crate) words: [u64; 4],
    pub(crate) vendor: [u32; 3],
    pub(crate) most_queues: c_int,
    pub(crate) most_works: c_int,
    pub(crate) capabilities: c_uint,
    pub(crate) pieces: [c_int; 2],
    pub(crate) completion_queues: [c_int; 2],
    pub(crate) most_regions: c_int,
    pub(crate) most_domains: c_int,
    pub(crate) most_reads: c_int,
    /// More than what any version has had behind that.
    pub(crate) others: [u64; 32],
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    // What a C compiler says of the header of version 44.
    assert!(offset_of!(Context, operations) == 8);
    assert!(offset_of!(Operations, poll) + 8 == 96 && offset_of!(Operations, notify) + 8 == 104);
    assert!(offset_of!(Operations, post) + 8 == 208 && size_of::<Operations>() + 8 == 264);
    assert!(offset_of!(MemoryRegion, local_key) == 36 && offset_of!(MemoryRegion, remote_key) == 40);
    assert!(offset_of!(QueuePair, number) == 52 && offset_of!(Channel, descriptor) == 8);
    assert!(size_of::<QueuePairWish>() == 64 && offset_of!(QueuePairWish, kind) == 52);
    assert!(size_of::<QueuePairState>() == 144 && offset_of!(QueuePairState, path) == 56);
    assert!(offset_of!(QueuePairState, timeout) == 130 && offset_of!(Path, port) == 30);
    assert!(size_of::<PortState>() == 52 && offset_of!(PortState, lid) == 34);
    assert!(size_of::<DeviceState>() > 232 && offset_of!(DeviceState, most_reads) == 144);
};
