//! What the pool's tests share.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

pub mod nodes;
pub mod operations;

use farmem_page::{ByteCount, PAGE_BYTES, PageBytes};
use farmem_store::{BlockError, BlockFile, NodesConfig, Pool, PoolConfig, SLAB_BYTES};
use farmem_sys::shared::SharedMemory;
use std::cell::Cell;
use std::sync::Mutex;

pub fn config(frames: usize, blocks: usize) -> PoolConfig {
    PoolConfig {
        limit: ByteCount::new((frames * SLAB_BYTES) as u64),
        capacity: ByteCount::ZERO,
        disk: ByteCount::new((blocks * SLAB_BYTES) as u64),
        nodes: NodesConfig::default(),
        owners: 8,
        seed: 0x5eed,
    }
}

pub fn pool(frames: usize, blocks: usize) -> Pool<SharedMemory> {
    with_config(&config(frames, blocks))
}

pub fn with_config(config: &PoolConfig) -> Pool<SharedMemory> {
    let memory = SharedMemory::create(c"farmem-test-pool", config.memory_bytes().unwrap()).unwrap();
    Pool::create(memory, config).unwrap()
}

/// Numbers that look random, the same for the same seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A page that is different for every number, `noisy_bytes` of it incompressible.
pub fn page(number: u64, noisy_bytes: usize) -> PageBytes {
    let mut random = Random(number);
    let mut page = [0u8; PAGE_BYTES];
    for chunk in page[..noisy_bytes.next_multiple_of(8).min(PAGE_BYTES)].chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes());
    }
    page[PAGE_BYTES - 8..].copy_from_slice(&number.to_le_bytes());
    page
}

/// A disk in memory.
pub struct MemoryFile {
    pub bytes: Mutex<Vec<u8>>,
    /// Operations until one fails; never when negative.
    pub fails_in: Cell<i64>,
    pub error: Cell<BlockError>,
    pub largest_read: Cell<usize>,
    pub reads: Cell<usize>,
    /// Reads that begin here fail.
    pub unreadable_at: Cell<Option<u64>>,
    /// Whether using it ends the user's thread.
    pub dies: Cell<bool>,
}

impl MemoryFile {
    pub fn new(blocks: usize) -> Self {
        Self {
            bytes: Mutex::new(vec![0; blocks * SLAB_BYTES]),
            fails_in: Cell::new(-1),
            error: Cell::new(BlockError::Failed),
            largest_read: Cell::new(0),
            reads: Cell::new(0),
            unreadable_at: Cell::new(None),
            dies: Cell::new(false),
        }
    }
    fn fail(&self) -> Result<(), BlockError> {
        match self.fails_in.get() {
            ..0 => Ok(()),
            0 => Err(self.error.get()),
            left => {
                self.fails_in.set(left - 1);
                Ok(())
            }
        }
    }
}

impl BlockFile for MemoryFile {
    fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), BlockError> {
        assert!(!self.dies.get(), "as asked");
        self.fail()?;
        if self.unreadable_at.get() == Some(offset_bytes) {
            return Err(BlockError::Failed);
        }
        assert!(offset_bytes.is_multiple_of(4096) && out.len().is_multiple_of(4096));
        assert!(out.as_ptr().addr().is_multiple_of(4096), "a disk wants aligned buffers");
        self.largest_read.set(self.largest_read.get().max(out.len()));
        self.reads.set(self.reads.get() + 1);
        out.copy_from_slice(&self.bytes.lock().unwrap()[offset_bytes as usize..][..out.len()]);
        Ok(())
    }
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), BlockError> {
        assert!(!self.dies.get(), "as asked");
        self.fail()?;
        assert!(offset_bytes.is_multiple_of(4096) && bytes.len().is_multiple_of(4096));
        assert!(bytes.as_ptr().addr().is_multiple_of(4096), "a disk wants aligned buffers");
        self.bytes.lock().unwrap()[offset_bytes as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}
