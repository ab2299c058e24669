//! How often the buddy allocator has no chunk of the size that is wanted though that much memory is free: by
//! the numbers of frames that it may choose from, for each frame that is lent. The measurement behind
//! docs/adr/0024-spare-numbers.md.
//!
//! Chunks come and go at random, of all orders, each order taking about as much memory as any other; memory
//! is filled to a part, and kept there.
//!
//! `cargo run --release -p farmem-node --example fragmentation`

use farmem_node::Buddy;
use farmem_transport::{Chunk, MOST_ORDER, Order};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Frames that are lent: 1 GiB.
const LENT_FRAMES: u64 = 1 << 18;
/// Grants that are counted.
const GRANTS: u64 = 400_000;

fn main() {
    println!("{:>8} {:>8} {:>12} {:>16}", "filled", "numbers", "refused", "of order 10");
    for filled in [0.5, 0.75, 0.9, 0.95, 0.99] {
        for numbers in [1, 2, 4, 8] {
            let [all, largest] = refused(filled, numbers);
            println!(
                "{:>7.0}% {numbers:>8} {:>11.3}% {:>15.3}%",
                100.0 * filled,
                100.0 * all,
                100.0 * largest
            );
        }
    }
}

/// The part of grants that is refused though there is enough free memory: of all, and of those of the largest
/// order.
fn refused(filled: f64, numbers: u64) -> [f64; 2] {
    let mut random = SmallRng::seed_from_u64(1);
    let mut buddy = Buddy::new(LENT_FRAMES * numbers);
    let mut held: Vec<Chunk> = Vec::new();
    let mut in_use = 0;
    let (mut asked, mut refused) = ([0_u64; 2], [0_u64; 2]);
    let most = (LENT_FRAMES as f64 * filled) as u64;
    while asked[0] < GRANTS {
        let order = any_order(&mut random);
        let frames = u64::from(order.frames());
        // Beyond what is to be filled, somebody gives something back first.
        while in_use + frames > most {
            let chunk = held.swap_remove(random.random_range(0..held.len()));
            in_use -= u64::from(chunk.order().frames());
            buddy.free(chunk);
        }
        let is_largest = order == Order::MOST;
        asked[0] += 1;
        asked[1] += u64::from(is_largest);
        match buddy.allocate(order) {
            Some(chunk) => {
                in_use += frames;
                held.push(chunk);
            }
            None => {
                refused[0] += 1;
                refused[1] += u64::from(is_largest);
            }
        }
    }
    [0, 1].map(|at| refused[at] as f64 / asked[at].max(1) as f64)
}

/// Half as often as the order below it.
fn any_order(random: &mut SmallRng) -> Order {
    let order = random.random::<u32>().trailing_ones().min(MOST_ORDER.into());
    Order::new(order as u8).unwrap_or(Order::MOST)
}
