use farmem_transport::{Frame, Rack};
use proptest::prelude::*;

use super::*;

const ANY: fn(usize) -> u64 = |_| u64::MAX;
const ALL: fn(usize) -> bool = |_| true;

fn coded(data: u8, parity: u8) -> Redundancy {
    Redundancy::new(data, parity).unwrap()
}

fn rack(number: usize) -> Option<Rack> {
    format!("rack-{number}").parse().ok()
}

fn frames(chunks: usize) -> Vec<Frame> {
    (0..chunks as u32).map(|chunk| Frame::new(chunk * 64)).collect()
}

/// Nodes with so many chunks, in racks of these sizes, one rack after the other.
fn table(redundancy: Redundancy, racks: &[usize], chunks: usize) -> BlockTable {
    let mut table = BlockTable::new(99, redundancy, racks.iter().sum());
    let numbers = racks.iter().enumerate().flat_map(|(number, size)| std::iter::repeat_n(number, *size));
    for (node, number) in numbers.enumerate() {
        table.set_rack(node, rack(number));
        table.admit(node, chunks as u64);
        table.granted(node, &frames(chunks));
    }
    table
}

fn keep(table: &mut BlockTable, block: u32) -> Shards {
    let allotment = table.allot(block, 1, ANY).unwrap();
    assert!(table.settle(&allotment, ALL, Checks::from([])));
    allotment.shards
}

fn fill(table: &mut BlockTable, blocks: std::ops::Range<u32>) {
    for block in blocks {
        keep(table, block);
    }
}

/// How many shards of a block are in each rack that has some, the most first.
fn in_racks(table: &BlockTable, block: u32) -> Vec<usize> {
    let mut counts = HashMap::<u16, usize>::new();
    for (_, address) in table.located(block).unwrap().shards.iter() {
        *counts.entry(table.nodes[usize::from(address.node)].rack.unwrap()).or_default() += 1;
    }
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}

/// All that a rack held is lost. The blocks of which too little is left.
fn lose_rack(table: &mut BlockTable, lost: u16) -> Vec<u32> {
    let of_rack = |node: &usize| table.nodes[*node].rack == Some(lost);
    let nodes: Vec<usize> = (0..table.nodes.len()).filter(of_rack).collect();
    nodes.into_iter().flat_map(|node| table.lose(node)).collect()
}

#[test]
fn a_block_lies_in_as_many_racks_as_it_has_shards_where_there_are_so_many() {
    let mut table = table(coded(4, 2), &[3; 7], 64);
    for block in 0..100 {
        keep(&mut table, block);
        assert_eq!(in_racks(&table, block), [1; 6]);
    }
    assert_eq!((table.racks(), table.exposed()), (7, 0));
}

#[test]
fn with_fewer_racks_none_has_more_than_may_be_lost() {
    for (redundancy, racks, counts) in [
        (coded(4, 2), 3, vec![2, 2, 2]),
        (coded(8, 4), 3, vec![4, 4, 4]),
        (coded(2, 1), 3, vec![1, 1, 1]),
        (Redundancy::MIRROR, 2, vec![1, 1]),
    ] {
        let mut table = table(redundancy, &vec![6; racks], 64);
        fill(&mut table, 0..60);
        (0..60).for_each(|block| assert_eq!(in_racks(&table, block), counts));
        assert_eq!(table.exposed(), 0);
        assert_eq!(lose_rack(&mut table, 1), [0; 0]);
    }
}

#[test]
fn with_too_few_racks_blocks_are_whole_as_even_as_can_be_and_counted() {
    for (racks, counts) in [(&[8, 8][..], [3, 3]), (&[4, 2], [4, 2])] {
        let mut table = table(coded(4, 2), racks, 64);
        fill(&mut table, 0..20);
        (0..20).for_each(|block| assert_eq!(in_racks(&table, block), counts));
        assert_eq!((table.exposed(), table.is_bare()), (20, false));
        table.release(&(0..5).collect::<Vec<_>>());
        assert_eq!(table.exposed(), 15);
        assert_eq!(
            table.next_exposed(ANY).map(|(_, allotment)| allotment.block),
            None,
            "there is no better place"
        );
    }
}

#[test]
fn nodes_that_name_no_rack_are_chosen_as_ever() {
    let nodes = 12;
    let mut named = BlockTable::new(99, coded(4, 2), nodes);
    for node in 0..nodes {
        named.admit(node, 64);
        named.granted(node, &frames(64));
    }
    let mut own = table(coded(4, 2), &vec![1; nodes], 64);
    for block in 0..50 {
        assert_eq!(keep(&mut named, block), keep(&mut own, block), "each is a rack of its own");
    }
    assert_eq!((named.racks(), named.exposed(), own.exposed()), (0, 0, 0));
}

#[test]
fn with_one_copy_no_rack_is_worse_than_a_node() {
    let mut table = table(Redundancy::NONE, &[4], 8);
    keep(&mut table, 5);
    assert_eq!(table.exposed(), 0);
}

#[test]
fn what_a_rack_held_is_rebuilt_where_no_rack_gets_too_much() {
    let mut table = table(coded(4, 2), &[4; 4], 64);
    fill(&mut table, 0..40);
    for lost in [0, 1] {
        assert_eq!(lose_rack(&mut table, lost), [0; 0]);
        while let Some((located, allotment)) = table.next_bare(ANY) {
            table.settle_rebuilt(&located, &allotment, ALL);
        }
        assert_eq!((table.is_bare(), lost == 1), (false, table.exposed() > 0));
        let counts = if lost == 0 { vec![2, 2, 2] } else { vec![3, 3] };
        (0..40).for_each(|block| assert_eq!(in_racks(&table, block), counts));
    }
    // A rack is there again, empty: what two hold too much of goes there.
    for node in 0..4 {
        table.admit(node, 64);
        table.granted(node, &frames(64));
    }
    while let Some((located, allotment)) = table.next_exposed(ANY) {
        assert!(table.settle_rebuilt(&located, &allotment, ALL) > 0);
    }
    assert_eq!((table.exposed(), table.is_bare()), (0, false));
    (0..40).for_each(|block| assert_eq!(in_racks(&table, block), [2, 2, 2]));
    assert_eq!(lose_rack(&mut table, 3), [0; 0]);
}

#[test]
fn what_leaves_a_node_goes_where_no_rack_gets_too_much() {
    let mut table = table(coded(2, 1), &[2, 2, 2], 64);
    fill(&mut table, 0..30);
    table.set_leaving(3, true);
    while let Some((located, allotment)) = table.next_leaving(ANY) {
        assert!(table.settle_rebuilt(&located, &allotment, ALL) > 0);
    }
    assert_eq!((table.used_on(3), table.exposed()), (0, 0));
    (0..30).for_each(|block| assert_eq!(in_racks(&table, block), [1; 3]));
}

#[test]
fn a_block_waits_for_a_node_of_another_rack_that_may_grant_a_chunk() {
    let mut table = table(Redundancy::MIRROR, &[2, 1], 8);
    let taken = table.give_back(2, WrittenBy::Mover, 8);
    assert_eq!((taken.len(), table.allot(5, 1, ANY)), (8, None));
    table.set_full(2, true);
    keep(&mut table, 5);
    assert_eq!((in_racks(&table, 5), table.exposed()), (vec![2], 1));
    table.granted(2, &taken);
    keep(&mut table, 6);
    assert_eq!((in_racks(&table, 6), table.exposed()), (vec![1, 1], 1));
    let (located, allotment) = table.next_exposed(ANY).unwrap();
    assert_eq!(table.settle_rebuilt(&located, &allotment, ALL), 1);
    assert_eq!((in_racks(&table, 5), table.exposed()), (vec![1, 1], 0));
}

#[test]
fn a_block_is_rather_spread_than_the_load_of_a_node_that_joins_slow() {
    let mut table = table(coded(2, 1), &[3, 3, 3], 8);
    let most = |node: usize| if node < 3 { 0 } else { u64::MAX };
    let allotment = table.allot(5, 1, most).unwrap();
    assert!(table.settle(&allotment, ALL, Checks::from([])));
    assert_eq!(in_racks(&table, 5), [1; 3]);
    assert_eq!(table.allot(6, 1, |_| 0), None);
}

#[test]
fn a_node_that_says_later_where_it_is_counts_there_from_then_on() {
    let mut table = table(Redundancy::MIRROR, &[1, 1], 8);
    keep(&mut table, 5);
    table.set_rack(1, rack(0));
    assert_eq!(table.exposed(), 1);
    table.set_rack(1, None);
    assert_eq!(table.exposed(), 0);
    table.set_rack(1, rack(0));
    table.lose(0);
    assert_eq!(table.exposed(), 0, "the other one is all that there is of it");
}

#[test]
fn nodes_in_racks_are_filled_evenly() {
    let mut table = table(coded(4, 2), &[10; 25], 64);
    for block in 0..1_000 {
        keep(&mut table, block);
        assert_eq!(in_racks(&table, block), [1; 6]);
    }
    // 24 shards on average.
    assert!(table.used().all(|used| used <= 29), "{:?}", table.used().max());
}

proptest! {
    #[test]
    fn no_rack_has_more_of_a_block_than_it_has_to(
        racks in prop::collection::vec(1_usize..6, 1..9),
        room in prop::collection::vec(0_usize..4, 45),
        code in prop::sample::select(vec![(1, 1), (2, 1), (4, 2), (8, 4)]),
    ) {
        let redundancy = coded(code.0, code.1);
        let mut table = table(redundancy, &racks, 0);
        let nodes = racks.iter().sum::<usize>();
        (0..nodes).for_each(|node| {
            table.granted(node, &frames(room[node]));
            table.set_full(node, true);
            table.admit(node, 8);
        });
        for block in 0..20 {
            let mut rooms = vec![0; racks.len()];
            for node in (0..nodes).filter(|node| table.in_hand(*node) > 0) {
                rooms[usize::from(table.nodes[node].rack.unwrap())] += 1;
            }
            let placed = |bound: usize| rooms.iter().map(|room: &usize| *room.min(&bound)).sum::<usize>();
            let Some(allotment) = table.allot(block, 1, ANY) else {
                prop_assert!(placed(MOST_SHARDS) < redundancy.data());
                continue;
            };
            prop_assert!(table.settle(&allotment, ALL, Checks::from([])));
            let counts = in_racks(&table, block);
            let wanted = redundancy.shards().min(placed(MOST_SHARDS));
            prop_assert_eq!(counts.iter().sum::<usize>(), wanted, "as many as ever");
            let has_to = (1..).find(|bound| placed(*bound) >= wanted).unwrap();
            prop_assert!(counts[0] <= has_to.max(redundancy.parity()), "{:?} of {:?}", counts, rooms);
        }
    }

    #[test]
    fn exposed_are_the_blocks_that_a_rack_would_take_along_whatever_happens(
        operations in prop::collection::vec((0_u8..8, 0_u32..20, any::<bool>()), 1..150),
        racks in prop::collection::vec(1_usize..4, 2..6),
    ) {
        let redundancy = coded(4, 2);
        let mut table = table(redundancy, &racks, 8);
        let nodes = table.nodes.len();
        for (what, block, is_so) in operations {
            let node = block as usize % nodes;
            match what {
                0..=2 => if let Some(allotment) = table.allot(block, 1, ANY) {
                    table.settle(&allotment, ALL, Checks::from([]));
                },
                3 => {
                    table.lose(node);
                    table.admit(node, 8);
                    table.granted(node, &frames(8));
                },
                4 => if let Some((located, allotment)) = table.next_bare(ANY) {
                    table.settle_rebuilt(&located, &allotment, |_| is_so);
                },
                5 => if let Some((located, allotment)) = table.next_exposed(ANY) {
                    let before = table.exposed();
                    prop_assert!(!is_so || table.settle_rebuilt(&located, &allotment, ALL) > 0);
                    prop_assert!(table.exposed() <= before);
                    if !is_so {
                        table.cancel(&allotment);
                    }
                },
                6 => table.set_leaving(node, is_so),
                _ => table.set_rack(node, rack(block as usize % 4).filter(|_| is_so)),
            }
            for (block, kept) in &table.blocks {
                let in_racks = racks::InRacks::of(&table.nodes, kept.located.shards, &[]);
                prop_assert_eq!(table.exposed.contains(block), in_racks.fullest() > 2);
            }
            prop_assert!(table.exposed.iter().all(|block| table.blocks.contains_key(block)));
        }
    }
}
