//! Whatever comes to a broker or to a space of it is a packet within its bounds or is refused: no panic. What
//! was understood is encoded to a packet that means the same.
#![no_main]

use farmem_wire::host::{
    FromBroker, HOST_PACKET_BYTES, MOST_NODES_BYTES, MOST_PAGES, MOST_LINK_SLOTS, MOST_SLABS, MOST_WEIGHT, Terms,
    ToBroker,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    understood(bytes);
    // The fuzzer doesn't guess the version: give it the right one.
    if let Ok(mut packet) = <[u8; HOST_PACKET_BYTES]>::try_from(bytes) {
        packet[4..8].copy_from_slice(&ToBroker::TakeLinkSlot.encode()[4..8]);
        understood(&packet);
    }
});

fn understood(packet: &[u8]) {
    let (to, from) = (ToBroker::decode(packet), FromBroker::decode(packet));
    assert!(to.is_none() || from.is_none(), "a packet is from one side alone");
    if let Some(to) = to {
        assert_eq!(ToBroker::decode(&to.encode()), Some(to));
        match to {
            ToBroker::Attach { terms, pool_held, pool_movable, local_held, name } => {
                are_possible(terms);
                assert!(pool_held <= MOST_SLABS && pool_movable <= MOST_SLABS && local_held <= MOST_PAGES);
                assert!(
                    name.iter().all(|&byte| byte == 0 || byte.is_ascii_graphic()),
                    "it is shown on terminals"
                );
            }
            ToBroker::Change { terms } => are_possible(terms),
            ToBroker::Report { holding, .. } => {
                assert!(
                    holding.pool_used <= holding.pool_needed && holding.pool_needed <= holding.pool_wanted
                );
                assert!(holding.pool_wanted <= MOST_SLABS && holding.pool_held <= MOST_SLABS);
                assert!(holding.local_needed <= holding.local_wanted && holding.local_wanted <= MOST_PAGES);
            }
            ToBroker::TakeLinkSlot | ToBroker::Ask => {}
        }
    }
    if let Some(from) = from {
        assert_eq!(FromBroker::decode(&from.encode()), Some(from));
        match from {
            FromBroker::Lease { pool_slabs, local_pages, .. } => {
                assert!(pool_slabs <= MOST_SLABS && local_pages <= MOST_PAGES);
            }
            FromBroker::LinkSlot { number } => assert!(number < MOST_LINK_SLOTS),
            FromBroker::Nodes { length_bytes } => assert!(length_bytes <= MOST_NODES_BYTES),
            FromBroker::Accepted | FromBroker::Refused { .. } => {}
        }
    }
}

fn are_possible(terms: Terms) {
    assert!((1..=MOST_WEIGHT).contains(&terms.weight));
    assert!(terms.pool_guaranteed <= terms.pool_most && terms.pool_most <= MOST_SLABS);
    assert!(terms.local_own <= MOST_PAGES);
}
