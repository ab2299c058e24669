use super::*;
use farmem_transport::Frame;
use proptest::prelude::*;

const ANY: fn(usize) -> u64 = |_| u64::MAX;
const ALL: fn(usize) -> bool = |_| true;
const NOTHING: fn(usize) -> bool = |_| false;

fn coded(data: u8, parity: u8) -> Redundancy {
    Redundancy::new(data, parity).unwrap()
}

fn table(redundancy: Redundancy, nodes: usize, chunks: u32) -> BlockTable {
    let mut table = BlockTable::new(99, redundancy, nodes);
    for node in 0..nodes {
        table.admit(node, u64::from(chunks));
        table.granted(node, &(0..chunks).map(|chunk| Frame::new(chunk * 64)).collect::<Vec<_>>());
    }
    table
}

fn no_checks() -> Checks {
    Checks::from([])
}

fn keep(table: &mut BlockTable, block: u32) -> Shards {
    let allotment = table.allot(block, 1, ANY).unwrap();
    assert!(table.settle(&allotment, ALL, no_checks()));
    allotment.shards
}

fn count(table: &BlockTable, block: u32) -> usize {
    table.located(block).map_or(0, |located| located.shards.count())
}

#[test]
fn a_mirrored_block_survives_one_node_and_is_mirrored_again() {
    let mut table = table(Redundancy::MIRROR, 3, 8);
    let shards = keep(&mut table, 5);
    let [one, other] = [shards.get(0).unwrap(), shards.get(1).unwrap()];
    assert_ne!(one.node, other.node);
    assert_eq!(table.lose(one.node.into()), []);
    assert_eq!((table.is_bare(), table.lacking()), (true, 1));
    let (located, allotment) = table.next_bare(ANY).unwrap();
    assert_eq!(located.shards.iter().collect::<Vec<_>>(), [(1, other)]);
    assert_eq!(table.settle_rebuilt(&located, &allotment, ALL), 1);
    assert_eq!((count(&table, 5), table.is_bare(), table.rebuilt()), (2, false, 1));
    assert_eq!(table.lose(other.node.into()), []);
    assert_eq!(table.located(5).unwrap().shards.get(0), allotment.shards.get(0));
}

#[test]
fn of_a_coded_block_any_two_nodes_may_be_lost_and_the_third_takes_it_along() {
    for lost in (0_u32..1 << 6).filter(|lost| lost.count_ones() == 3) {
        let mut table = table(coded(4, 2), 6, 8);
        keep(&mut table, 5);
        let mut gone = (0..6).filter(|node| lost >> node & 1 == 1).map(|node| table.lose(node));
        assert_eq!([gone.next(), gone.next(), gone.next()], [Some(vec![]), Some(vec![]), Some(vec![5])]);
        drop(gone);
        assert_eq!((count(&table, 5), table.lacking(), table.used().sum::<u64>()), (0, 0, 0));
    }
}

#[test]
fn all_that_a_block_lacks_is_made_at_once_where_nodes_have_room() {
    let mut table = table(coded(4, 2), 8, 8);
    let shards = keep(&mut table, 5);
    for shard in [0, 4] {
        table.lose(shards.get(shard).unwrap().node.into());
    }
    let (located, allotment) = table.next_bare(ANY).unwrap();
    assert_eq!(allotment.shards.iter().map(|(shard, _)| shard).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(table.settle_rebuilt(&located, &allotment, |shard| shard == 4), 1);
    assert_eq!((table.lacking(), count(&table, 5)), (1, 5));
}

#[test]
fn without_a_node_that_has_none_of_a_block_it_stays_bare() {
    let mut table = table(coded(4, 2), 6, 8);
    keep(&mut table, 5);
    table.lose(2);
    assert!(table.next_bare(ANY).is_none());
    table.admit(2, 8);
    table.granted(2, &[Frame::new(0)]);
    let (located, allotment) = table.next_bare(ANY).unwrap();
    assert_eq!(table.settle_rebuilt(&located, &allotment, ALL), 1);
    assert!(!table.is_bare());
}

#[test]
fn what_was_rebuilt_for_a_block_that_was_written_meanwhile_is_dropped() {
    let mut table = table(coded(2, 1), 4, 8);
    keep(&mut table, 5);
    table.lose(usize::from(table.located(5).unwrap().shards.get(0).unwrap().node));
    let (located, allotment) = table.next_bare(ANY).unwrap();
    keep(&mut table, 5);
    assert!(!table.is_current(5, &located));
    assert_eq!(table.settle_rebuilt(&located, &allotment, ALL), 0);
    assert_eq!((count(&table, 5), table.used().sum::<u64>()), (3, 3));
}

#[test]
fn a_node_that_leaves_gets_nothing_more_and_its_shards_go_where_the_block_has_none() {
    for redundancy in [Redundancy::NONE, Redundancy::MIRROR, coded(2, 1)] {
        let mut table = table(redundancy, redundancy.shards() + 1, 32);
        for block in 0..16 {
            keep(&mut table, block);
        }
        let node = usize::from(table.located(0).unwrap().shards.get(0).unwrap().node);
        let under_way = table.allot(16, 1, ANY).unwrap();
        assert!(!table.is_any_leaving());
        table.set_leaving(node, true);
        assert!(table.settle(&under_way, ALL, no_checks()));
        while let Some((located, allotment)) = table.next_leaving(ANY) {
            assert_eq!(table.settle_rebuilt(&located, &allotment, ALL), 1);
            let shards = table.located(allotment.block).unwrap().shards;
            assert_eq!(shards.count(), redundancy.shards());
        }
        assert_eq!((table.used_on(node), table.is_any_leaving(), table.rebuilt()), (0, false, 0));
        assert_eq!(table.used().sum::<u64>(), 17 * redundancy.shards() as u64);
        assert_eq!(table.give_back(node, WrittenBy::Mover, usize::MAX).len(), 32, "all of it goes back");
        keep(&mut table, 17);
        assert_eq!(table.used_on(node), 0);
        assert_eq!(table.retire(node), []);
        assert_eq!(table.lent(), 32 * redundancy.shards() as u64);
    }
}

#[test]
fn where_no_other_node_has_room_a_shard_stays() {
    let mut table = table(Redundancy::MIRROR, 2, 8);
    keep(&mut table, 5);
    table.set_leaving(1, true);
    assert!(table.next_leaving(ANY).is_none());
    assert_eq!((table.used_on(1), count(&table, 5), table.is_any_leaving()), (1, 2, true));
    table.set_leaving(1, false);
    assert!(table.next_leaving(ANY).is_none());
    assert!(!table.is_any_leaving());
    table.set_leaving(1, true);
    assert_eq!(table.drop_leaving(|block| block == 5), [5]);
    assert_eq!(table.used().sum::<u64>(), 0);
}

#[test]
fn a_node_that_is_leaving_takes_what_has_no_other_place_at_all() {
    let mut table = table(Redundancy::NONE, 2, 2);
    table.set_leaving(1, true);
    table.set_full(0, true);
    table.set_last_resort(true);
    let nodes: Vec<u16> = (0..2).map(|block| keep(&mut table, block).get(0).unwrap().node).collect();
    assert_eq!((nodes, table.room(0), table.needs_leaving()), (vec![0, 0], 2, true));
    assert_eq!(keep(&mut table, 2).get(0).unwrap().node, 1);
    table.set_last_resort(false);
    assert_eq!((table.allot(3, 1, ANY), table.room(0), table.needs_leaving()), (None, 0, false));
    // It goes from there as soon as there is room.
    table.granted(0, &[Frame::new(640)]);
    assert_eq!(table.next_leaving(ANY).unwrap().1.block, 2);
}

#[test]
fn what_was_moved_for_a_node_that_was_lost_meanwhile_takes_its_place() {
    let mut table = table(Redundancy::MIRROR, 3, 8);
    let shards = keep(&mut table, 5);
    let node = usize::from(shards.get(0).unwrap().node);
    table.set_leaving(node, true);
    let (located, allotment) = table.next_leaving(ANY).unwrap();
    table.lose(node);
    assert_eq!(table.settle_rebuilt(&located, &allotment, ALL), 1);
    assert_eq!((table.lacking(), count(&table, 5), table.used_on(node)), (0, 2, 0));
}

#[test]
fn a_shard_that_was_moved_for_a_node_that_stays_after_all_is_dropped() {
    let mut table = table(Redundancy::NONE, 2, 8);
    let shards = keep(&mut table, 5);
    let node = usize::from(shards.get(0).unwrap().node);
    table.set_leaving(node, true);
    let (located, allotment) = table.next_leaving(ANY).unwrap();
    table.set_leaving(node, false);
    assert_eq!(table.settle_rebuilt(&located, &allotment, ALL), 0);
    assert_eq!((table.located(5).unwrap().shards, table.used().sum::<u64>()), (shards, 1));
}

#[test]
fn a_shard_that_is_not_what_was_written_is_lost_alone() {
    let mut table = table(coded(2, 1), 3, 1);
    keep(&mut table, 5);
    let located = table.located(5).unwrap().clone();
    assert!(!table.lose_shard(5, &located, 1, LostChunk::Returned));
    assert!(!table.lose_shard(5, &located, 1, LostChunk::Returned), "it is known already");
    assert_eq!((count(&table, 5), table.lacking()), (2, 1));
    let node = usize::from(located.shards.get(1).unwrap().node);
    assert_eq!(table.give_back(node, WrittenBy::Mover, 0), [Frame::new(0)]);
    assert!(table.lose_shard(5, &located, 0, LostChunk::Gone));
    assert_eq!((count(&table, 5), table.lacking()), (0, 0));
}

#[test]
fn a_chunk_goes_back_by_the_lane_of_the_write_that_spoiled_it() {
    let mut table = table(Redundancy::MIRROR, 3, 8);
    let gone = keep(&mut table, 5).get(0).unwrap().node;
    table.lose(gone.into());
    let (located, allotment) = table.next_bare(ANY).unwrap();
    let (_, unsure) = allotment.shards.iter().next().unwrap();
    assert_eq!(table.settle_rebuilt(&located, &allotment, NOTHING), 0);
    let node = usize::from(unsure.node);
    assert_eq!(table.give_back(node, WrittenBy::Mover, 0), []);
    assert_eq!(table.give_back(node, WrittenBy::Rebuilder, 0), [unsure.frame]);
}

#[test]
fn an_only_copy_is_lost_with_its_node() {
    let mut table = table(Redundancy::NONE, 1, 8);
    keep(&mut table, 5);
    assert_eq!(table.lose(0), [5]);
    assert_eq!((count(&table, 5), table.room(3)), (0, 0));
}

#[test]
fn what_was_written_to_a_node_that_was_lost_meanwhile_is_not_kept() {
    let mut table = table(Redundancy::NONE, 1, 8);
    let allotment = table.allot(5, 1, ANY).unwrap();
    table.lose(0);
    table.admit(0, 8);
    assert!(!table.settle(&allotment, ALL, no_checks()));
    assert_eq!((count(&table, 5), table.in_hand(0)), (0, 0));
}

#[test]
fn a_chunk_whose_write_nobody_is_sure_of_is_given_back_and_not_used_again() {
    let mut table = table(Redundancy::NONE, 1, 1);
    let allotment = table.allot(5, 1, ANY).unwrap();
    assert!(!table.settle(&allotment, NOTHING, no_checks()));
    assert_eq!(table.allot(6, 1, ANY), None);
    assert_eq!(table.give_back(0, WrittenBy::Mover, 0), [Frame::new(0)]);
}

#[test]
fn a_node_that_owes_an_answer_gets_nothing_and_keeps_what_it_has() {
    let mut table = table(Redundancy::NONE, 2, 8);
    let node = usize::from(keep(&mut table, 5).get(0).unwrap().node);
    table.set_silent(node, true);
    table.admit(node, 8);
    let chosen: Vec<usize> =
        (6..14).map(|block| keep(&mut table, block).get(0).unwrap().node.into()).collect();
    assert!(!chosen.contains(&node) && table.room(3) == 3 && count(&table, 5) == 1);
    table.set_silent(node, false);
    assert_eq!(usize::from(keep(&mut table, 20).get(0).unwrap().node), node);
    table.set_silent(node, true);
    table.lose(node);
    assert!(!table.is_silent(node), "another incarnation of it owes nothing");
}

#[test]
fn no_more_is_given_back_at_once_than_one_request_takes() {
    let mut table = BlockTable::new(99, Redundancy::NONE, 1);
    table.admit(0, 2000);
    table.granted(0, &(0..1500).map(|chunk| Frame::new(chunk * 64)).collect::<Vec<_>>());
    let allotment = table.allot(5, 1, ANY).unwrap();
    table.settle(&allotment, NOTHING, no_checks());
    let spoiled = allotment.shards.get(0).unwrap().frame;
    let first = table.give_back(0, WrittenBy::Mover, usize::MAX);
    assert!(first.len() == farmem_transport::MOST_CHUNKS && first.contains(&spoiled));
    let second = table.give_back(0, WrittenBy::Mover, usize::MAX);
    assert_eq!((first.len() + second.len(), table.in_hand(0)), (1500, 0));
}

#[test]
fn fewer_nodes_take_fewer_shards_as_long_as_they_are_enough() {
    let mut table = table(coded(2, 1), 3, 8);
    table.suspend(0);
    assert_eq!((table.room(0), keep(&mut table, 5).count(), table.is_bare()), (8, 2, true));
    table.suspend(1);
    assert_eq!((table.room(0), table.allot(6, 1, ANY)), (0, None));
}

#[test]
fn a_block_waits_for_a_node_that_may_grant_a_chunk_for_its_other_shards() {
    let mut table = table(Redundancy::MIRROR, 2, 1);
    keep(&mut table, 5);
    table.granted(1, &[Frame::new(64)]);
    assert_eq!(table.allot(6, 1, ANY), None, "the other node has not been asked");
    table.set_full(0, true);
    assert_eq!((keep(&mut table, 6).count(), table.lacking()), (1, 1));
}

#[test]
fn a_block_is_rather_whole_than_a_node_s_load_slow() {
    let mut table = table(Redundancy::MIRROR, 2, 8);
    let allotment = table.allot(5, 1, |node| if node == 0 { 0 } else { u64::MAX }).unwrap();
    assert_eq!(allotment.shards.count(), 2);
    assert_eq!(table.allot(6, 1, |_| 0), None);
}

#[test]
fn room_is_what_different_nodes_have_for_each_block() {
    let mut table = BlockTable::new(1, coded(2, 1), 4);
    for (node, chunks) in [9, 3, 2, 1].into_iter().enumerate() {
        table.admit(node, 10);
        table.granted(node, &(0..chunks).map(Frame::new).collect::<Vec<_>>());
        table.set_full(node, true);
    }
    // Two more shards for each block than the roomiest node takes must be elsewhere: 6 of them.
    assert_eq!(table.room(0), 3);
    for block in 0..3 {
        keep(&mut table, block);
    }
    assert!((0..3).all(|block| count(&table, block) >= 2));
}

#[test]
fn parity_takes_turns_among_the_nodes() {
    let mut table = table(coded(4, 2), 6, 64);
    let mut parities = [0; 6];
    for block in 0..60 {
        let shards = keep(&mut table, block);
        for shard in [4, 5] {
            parities[usize::from(shards.get(shard).unwrap().node)] += 1;
        }
    }
    assert_eq!(parities, [20; 6]);
}

#[test]
fn blocks_that_no_slab_has_any_more_are_released() {
    let mut table = table(Redundancy::NONE, 1, 2);
    keep(&mut table, 5);
    keep(&mut table, 6);
    table.release(&[5, 99]);
    assert_eq!((count(&table, 5), count(&table, 6), table.in_hand(0)), (0, 1, 1));
}

#[test]
fn a_node_that_may_hold_no_more_is_passed_over() {
    let mut table = table(Redundancy::NONE, 2, 100);
    for block in 0..20 {
        let allotment = table.allot(block, 1, |node| if node == 0 { 4 } else { u64::MAX }).unwrap();
        table.settle(&allotment, ALL, no_checks());
    }
    assert!(table.used().next().unwrap() <= 4);
}

proptest! {
    #[test]
    fn every_chunk_is_in_one_hand(
        operations in prop::collection::vec((0_u8..9, 0_u32..24, any::<u8>(), any::<bool>()), 1..300),
        redundancy in prop::sample::select(vec![Redundancy::NONE, Redundancy::MIRROR, coded(2, 1), coded(4, 2)]),
    ) {
        const CHUNKS: u32 = 10;
        const NODES: usize = 7;
        let mut table = table(redundancy, NODES, CHUNKS);
        let mut lost = [false; NODES];
        let mut given = [0; NODES];
        for (what, block, written, is_rare) in operations {
            let node = block as usize % NODES;
            let is_written = |shard: usize| written >> (shard % 8) & 1 == 1 || is_rare;
            match what {
                0..=3 => if let Some(allotment) = table.allot(block, block as u16 % 2, ANY) {
                    table.settle(&allotment, is_written, no_checks());
                },
                4 => table.release(&[block]),
                5 | 6 => if let Some((located, allotment)) = table.next_bare(ANY) {
                    table.settle_rebuilt(&located, &allotment, is_written);
                },
                7 if is_rare => if let Some((_, allotment)) = table.next_bare(ANY) {
                    table.cancel(&allotment);
                },
                7 => {
                    if let Some(located) = table.located(block).cloned() {
                        table.lose_shard(block, &located, usize::from(written) % 6, LostChunk::Returned);
                    }
                    given[node] += table.give_back(node, WrittenBy::Mover, 1).len();
                    given[node] += table.give_back(node, WrittenBy::Rebuilder, 0).len();
                }
                _ => if is_rare {
                    table.lose(node);
                    lost[node] = true;
                },
            }
            for node in 0..NODES {
                let mut hands: Vec<Frame> = table.nodes[node].free.clone();
                for by in [WrittenBy::Mover, WrittenBy::Rebuilder] {
                    hands.extend(table.nodes[node].spoiled(by).iter());
                }
                let shards: Vec<Frame> = table.blocks.values().flat_map(|kept| kept.located.shards.iter())
                    .filter(|(_, address)| usize::from(address.node) == node)
                    .map(|(_, address)| address.frame).collect();
                prop_assert_eq!(shards.len() as u64, table.nodes[node].used);
                hands.extend(shards);
                let count = hands.len();
                hands.sort_unstable();
                hands.dedup();
                prop_assert_eq!(count, hands.len(), "a chunk is in two hands");
                prop_assert!(lost[node] || count + given[node] == CHUNKS as usize);
            }
            let mut lacking = 0;
            for (block, kept) in &table.blocks {
                let count = kept.located.shards.count();
                prop_assert!(count >= redundancy.data());
                prop_assert_eq!(count < redundancy.shards(), table.bare.contains(block));
                lacking += redundancy.shards() - count;
                let mut nodes: Vec<u16> = kept.located.shards.iter().map(|(_, address)| address.node).collect();
                nodes.sort_unstable();
                nodes.dedup();
                prop_assert_eq!(nodes.len(), count, "two shards are on one node");
            }
            prop_assert_eq!(lacking as u64, table.lacking());
        }
    }
}
