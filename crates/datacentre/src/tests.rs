use std::time::Duration;

use farmem_remote::Redundancy;

use super::*;

/// Machines to which nothing happens.
fn quiet() -> Options {
    Options {
        nodes: 20,
        clients: 10,
        duration: Duration::from_secs(600),
        machine_bytes: 4 << 30,
        far_bytes: 16 << 20,
        rack_size: 5,
        failures: 0.0,
        restarts: 0.0,
        slowdowns: 0.0,
        departures: 0.0,
        ..Options::default()
    }
}

fn outcome(options: &Options) -> Outcome {
    simulate(options).expect("it can be simulated").0
}

/// So many of a thing happen in ten minutes on twenty machines, on average.
fn rate(count: f64) -> f64 {
    count / 20.0 * 144.0
}

#[test]
fn the_same_seed_gives_the_same_and_another_one_another() {
    let options = Options { failures: rate(3.0), restarts: rate(2.0), slowdowns: rate(2.0), ..quiet() };
    let first = outcome(&options);
    assert_eq!(first, outcome(&options));
    assert_eq!(first.to_string(), outcome(&options).to_string());
    assert_ne!(first, outcome(&Options { seed: 2, ..options }));
}

#[test]
fn where_nothing_happens_nothing_is_lost_late_or_lacking() {
    let outcome = outcome(&quiet());
    assert_eq!((outcome.losses.pages, outcome.repairs.count, outcome.fetches_failed), (0, 0, 0), "{outcome}");
    assert!(outcome.far_pages > 0 && outcome.fetches[0].count > 100, "{outcome}");
    assert_eq!(outcome.fetches[1].count + outcome.fetches[2].count, 0, "{outcome}");
    assert!(outcome.targets.iter().all(|target| target.is_met), "{outcome}");
}

#[test]
fn nodes_that_die_one_at_a_time_lose_nothing_with_parity_and_are_made_good() {
    // Restarts take seconds, and repair does: two at once are rare, three are not to be had.
    for seed in 1..4 {
        let outcome = outcome(&Options { failures: rate(2.0), seed, ..quiet() });
        assert_eq!(outcome.losses.pages, 0, "{outcome}");
        if outcome.causes.deaths > 0 {
            assert!(outcome.repairs.count > 0 && outcome.repairs.shards > 0, "{outcome}");
            assert!(outcome.fetches[2].count > 0, "{outcome}");
        }
    }
}

#[test]
fn with_one_copy_what_a_dead_node_held_is_lost_and_no_more_was_promised() {
    let outcome = outcome(&Options { redundancy: Redundancy::NONE, failures: rate(4.0), ..quiet() });
    assert!(outcome.causes.deaths > 0 && outcome.losses.pages > 0, "{outcome}");
    assert_eq!(outcome.losses.pages_covered, 0, "{outcome}");
}

#[test]
fn two_copies_of_which_both_go_at_once_are_lost_and_no_more_was_promised() {
    // Four racks of five: two copies are in the same one now and then, where nobody says which that is.
    let options = Options {
        redundancy: Redundancy::MIRROR,
        names_racks: false,
        rack_failures: 4.0 / 4.0 * 144.0 / 2.0,
        ..quiet()
    };
    let outcome = outcome(&options);
    assert!(outcome.causes.rack_failures > 0 && outcome.losses.pages > 0, "{outcome}");
    assert_eq!(outcome.losses.pages_covered, 0, "{outcome}");
}

#[test]
fn a_rack_that_fails_takes_nothing_with_it_where_nodes_say_in_which_they_are() {
    // Half a failure of each of five racks of four, in a day's tenth of an hour: most seeds have one or two.
    let mut failures = 0;
    for (data, parity, seed) in [(4, 2, 1), (4, 2, 2), (8, 4, 1), (8, 4, 2), (2, 1, 1), (1, 1, 2)] {
        let redundancy = Redundancy::new(data, parity).expect("a redundancy");
        let options = Options { redundancy, rack_size: 4, rack_failures: 144.0 / 5.0, seed, ..quiet() };
        let outcome = outcome(&options);
        if outcome.causes.rack_failures > 1 {
            // Another one may have failed before all was spread again.
            continue;
        }
        failures += outcome.causes.rack_failures;
        assert_eq!((outcome.losses.pages, outcome.fetches_failed), (0, 0), "{outcome}");
    }
    assert!(failures > 0);
}

#[test]
fn with_too_few_racks_some_blocks_are_exposed_and_counted() {
    let outcome = outcome(&Options { rack_size: 10, ..quiet() });
    assert!(outcome.blocks_exposed > 0 && outcome.blocks_placed_bare == 0, "{outcome}");
    let enough = self::outcome(&Options { rack_size: 7, ..quiet() });
    assert_eq!((enough.blocks_exposed, enough.blocks_placed_bare), (0, 0), "{enough}");
}

#[test]
fn a_slow_node_is_gone_around() {
    let outcome = outcome(&Options { slowdowns: rate(4.0), ..quiet() });
    assert!(outcome.causes.slowdowns > 0, "{outcome}");
    assert!(outcome.fetches_around > 0, "{outcome}");
    // Dozens of times as slow, and yet.
    let [_, _, touching] = outcome.fetches[..] else { panic!("three kinds of fetches") };
    assert!(touching.p50_us < Some(1_000.0), "{outcome}");
}

#[test]
fn nodes_that_were_slow_are_used_again() {
    for seed in 1..4 {
        let options = Options { slowdowns: rate(4.0), duration: Duration::from_secs(3600), seed, ..quiet() };
        let outcome = outcome(&options);
        assert!(outcome.causes.slowdowns > 0 && outcome.fetches_around > 0, "{outcome}");
        assert_eq!(outcome.shunned, 0, "{outcome}");
    }
}

#[test]
fn a_node_that_is_emptied_loses_nothing_and_leaves_nothing_lacking() {
    let outcome = outcome(&Options { departures: rate(3.0), ..quiet() });
    assert!(outcome.causes.departures > 0, "{outcome}");
    assert_eq!((outcome.losses.pages, outcome.repairs.unfinished), (0, 0), "{outcome}");
}

#[test]
fn the_report_asks_for_nothing_from_elsewhere() {
    let page = page(&outcome(&quiet()));
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme: dark"));
    assert!(!page.contains("http") && !page.contains("src=") && !page.contains("<script"));
}

#[test]
fn options_that_make_no_sense_are_refused_in_a_sentence() {
    for options in [
        Options { nodes: 5, ..quiet() },
        Options { clients: 0, ..quiet() },
        Options { failures: f64::NAN, ..quiet() },
        Options { oversubscription: 0.5, ..quiet() },
        Options { duration: Duration::ZERO, ..quiet() },
    ] {
        let refused = simulate(&options).err().map(|unfit| unfit.to_string()).unwrap_or_default();
        assert!(!refused.is_empty() && !refused.contains('\n'), "{refused}");
    }
}
