//! What came of it. All of it follows from the options: the same ones give the same.

use farmem_remote::BLOCK_PAGES;
use serde::Serialize;

use crate::calendar::Happening;
use crate::clock::Time;
use crate::cost::Decision;
use crate::figures::{Figures, Times};
use crate::shared::Shared;

/// A page that the redundancy covers is not lost.
const MOST_COVERED: f64 = 0.0;
/// While all is well the slowest fetch of a hundred takes so many times as long as one in the middle.
const MOST_TAIL: f64 = 3.0;
/// Links of a client with two processors to each node: two lanes, each with one more for what nobody waits
/// for; writer, node monitor and rebuilder.
const LINKS: u64 = 7;
const LANES: u64 = 2;
/// Seconds without a request after which a link gives a sign of life: a quarter of a node's lease.
const SIGN_OF_LIFE: f64 = 7.5;

/// See the module's text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Machines that lend.
    pub nodes: usize,
    /// Machines whose programs use that.
    pub clients: usize,
    /// Simulated time.
    pub hours: f64,
    /// What chance followed from.
    pub seed: u64,
    /// How blocks lay on nodes.
    pub redundancy: String,
    /// Racks.
    pub racks: usize,
    /// What happened to machines.
    pub causes: Causes,
    /// Pages that were far at the end.
    pub far_pages: u64,
    /// Blocks that were written to nodes.
    pub blocks_placed: u64,
    /// Of these, those with fewer shards than they should have, since no other node had room.
    pub blocks_placed_bare: u64,
    /// Blocks of which one rack held more at the end than may be lost.
    pub blocks_exposed: u64,
    /// What was lost.
    pub losses: Losses,
    /// How long it took to have all of the redundancy back.
    pub repairs: Repairs,
    /// How long fetches took.
    pub fetches: Vec<Fetches>,
    /// Times at which others were asked as well, since an answer was late.
    pub fetches_late: u64,
    /// Fetches that came without the node that has the page.
    pub fetches_around: u64,
    /// Fetches of pages that were lost while they were waited for.
    pub fetches_failed: u64,
    /// Clients that go around a node at the end which has been well for half a minute, counted for each node.
    pub shunned: u64,
    /// How full nodes were at the end.
    pub spread: Spread,
    /// Requests that move no page.
    pub messages: Messages,
    /// What decisions cost, in steps.
    pub decisions: Vec<DecisionCost>,
    /// What is wanted of it.
    pub targets: Vec<Target>,
    /// How everything was from time to time.
    pub course: Vec<Point>,
}

/// What happened to machines.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Causes {
    /// Machines that died.
    pub deaths: u64,
    /// Nodes that were restarted.
    pub restarts: u64,
    /// Machines that were slow for a while.
    pub slowdowns: u64,
    /// Nodes that were emptied and left.
    pub departures: u64,
    /// Racks that failed as a whole.
    pub rack_failures: u64,
}

impl Causes {
    pub(crate) fn note(&mut self, happening: Happening) {
        match happening {
            Happening::Dies(_) => self.deaths += 1,
            Happening::Ends(_) => self.restarts += 1,
            Happening::Slows(..) => self.slowdowns += 1,
            Happening::Departs(_) => self.departures += 1,
            Happening::RackFails(..) => self.rack_failures += 1,
            _ => {}
        }
    }
}

/// What was lost, in pages of 4 KiB as they are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Losses {
    /// All.
    pub pages: u64,
    /// Those of which enough was still to be had, or that had lacked shards for more than ten minutes.
    pub pages_covered: u64,
    /// Those of which enough was still there, on machines that could not be reached for longer than clients
    /// wait.
    pub pages_given_up: u64,
}

/// How long it took from a failure until a client's blocks had all their shards again, for each client and
/// failure that took some.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Repairs {
    /// How many.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_seconds: Option<f64>,
    /// All but a hundredth.
    pub p99_seconds: Option<f64>,
    /// The longest.
    pub most_seconds: Option<f64>,
    /// Shards that were rebuilt.
    pub shards: u64,
    /// Clients with something lacking when the time was over.
    pub unfinished: u64,
}

/// How long fetches took that were followed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Fetches {
    /// Which.
    pub when: &'static str,
    /// How many.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_us: Option<f64>,
    /// All but a hundredth.
    pub p99_us: Option<f64>,
    /// All but a thousandth.
    pub p999_us: Option<f64>,
    /// The longest.
    pub most_us: Option<f64>,
}

impl Fetches {
    fn new(when: &'static str, times: &Times) -> Self {
        let us = |quantile| times.quantile(quantile).map(|ns| ns / 1e3);
        Self {
            when,
            count: times.count(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            most_us: times.most().map(|ns| ns / 1e3),
        }
    }
}

/// How full nodes were, each compared with what it lends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// All that was stored, of all that was lent, in percent.
    pub mean_percent: f64,
    /// The emptiest node.
    pub least_percent: f64,
    /// Half of the nodes were no fuller.
    pub p50_percent: f64,
    /// All but a hundredth of them.
    pub p99_percent: f64,
    /// The fullest node.
    pub most_percent: f64,
    /// What was granted ahead of need, and empty, of all that was lent.
    pub reserved_percent: f64,
    /// Nodes that had nothing left to grant.
    pub exhausted_nodes: u64,
}

impl Spread {
    pub(crate) fn new(shared: &Shared, stored: &[u64]) -> Self {
        let lent: Vec<u64> = (0..stored.len()).map(|node| shared.machines.lent(node)).collect();
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let mut full: Vec<f64> =
            stored.iter().zip(&lent).map(|(stored, lent)| percent(*stored, *lent)).collect();
        full.sort_by(f64::total_cmp);
        let at = |quantile: f64| full[((full.len() - 1) as f64 * quantile).round() as usize];
        let (all_stored, all_lent) = (stored.iter().sum::<u64>(), lent.iter().sum::<u64>());
        let granted: u64 = (0..stored.len()).map(|node| shared.machines.granted(node)).sum();
        let is_exhausted = |node: &usize| shared.machines.granted(*node) >= lent[*node];
        Self {
            mean_percent: percent(all_stored, all_lent),
            least_percent: at(0.0),
            p50_percent: at(0.5),
            p99_percent: at(0.99),
            most_percent: at(1.0),
            reserved_percent: percent(granted.saturating_sub(all_stored), all_lent),
            exhausted_nodes: (0..stored.len()).filter(is_exhausted).count() as u64,
        }
    }
}

/// Requests that move no page, and links, for each node.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Messages {
    /// Requests for chunks, releases, introductions, questions and farewells in a second, for a node on
    /// average.
    pub per_second: f64,
    /// The same for the node that had most of them.
    pub most_per_second: f64,
    /// Signs of life that idle links give, beyond these; counted from how many links there are.
    pub signs_of_life_per_second: f64,
    /// Links to a node when each client has two processors. `farmem node` takes 4096.
    pub links: u64,
}

/// What decisions of one kind cost, in steps: nodes, shards, blocks or applications that they look at.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DecisionCost {
    /// Which.
    pub decision: Decision,
    /// How many there were.
    pub count: u64,
    /// Steps on average.
    pub mean_steps: f64,
    /// The largest.
    pub most_steps: u64,
}

/// What is wanted, and what was reached.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Target {
    /// What, in words.
    pub wanted: &'static str,
    /// At most so much.
    pub at_most: f64,
    /// What came out; nothing, where there was nothing to measure.
    pub reached: Option<f64>,
    /// Whether that is so.
    pub is_met: bool,
}

/// How everything was at one time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// When.
    pub hours: f64,
    /// Fetches since the point before: half of them took no longer.
    pub fetch_p50_us: Option<f64>,
    /// All but a hundredth.
    pub fetch_p99_us: Option<f64>,
    /// Shards that blocks lacked, at most since the point before.
    pub lacking_shards: u64,
    /// Pages that were lost until then.
    pub lost_pages: u64,
    /// Machines that didn't answer.
    pub down: u64,
    /// Requests that move no page since the point before, in a second and for a node.
    pub messages_per_second: f64,
    /// How full nodes were: the emptiest one.
    pub least_percent: f64,
    /// One in the middle.
    pub p50_percent: f64,
    /// The fullest one.
    pub most_percent: f64,
    /// Pages that were far.
    pub far_pages: u64,
}

/// What clients know at the end.
pub(crate) struct Clients {
    pub(crate) blocks: u64,
    pub(crate) exposed: u64,
    pub(crate) rebuilt: u64,
    pub(crate) unfinished: u64,
    pub(crate) shunned: u64,
}

pub(crate) fn pages(blocks: u64) -> u64 {
    blocks * BLOCK_PAGES as u64
}

/// All of it.
pub(crate) fn outcome(
    shared: &Shared,
    causes: Causes,
    clients: &Clients,
    spread: Spread,
    course: Vec<Point>,
) -> Outcome {
    let (options, figures) = (shared.options, &shared.figures);
    let seconds_of = |ns: Option<f64>| ns.map(|ns| ns / 1e9);
    let fetches = vec![
        Fetches::new("all well", &figures.outside),
        Fetches::new("something failed, slow or lacking", &figures.during),
        Fetches::new("pages on the machine concerned", &figures.touching),
    ];
    let losses = Losses {
        pages: pages(figures.lost_blocks),
        pages_covered: pages(figures.covered_blocks),
        pages_given_up: pages(figures.given_up_blocks),
    };
    let targets = targets(&losses, fetches[0]);
    Outcome {
        nodes: options.nodes,
        clients: options.clients,
        hours: options.duration.as_secs_f64() / 3600.0,
        seed: options.seed,
        redundancy: options.redundancy.to_string(),
        racks: options.racks(),
        causes,
        far_pages: pages(clients.blocks),
        blocks_placed: figures.placed,
        blocks_placed_bare: figures.placed_bare,
        blocks_exposed: clients.exposed,
        losses,
        repairs: Repairs {
            count: figures.repairs.count(),
            p50_seconds: seconds_of(figures.repairs.quantile(0.5)),
            p99_seconds: seconds_of(figures.repairs.quantile(0.99)),
            most_seconds: seconds_of(figures.repairs.most()),
            shards: clients.rebuilt,
            unfinished: clients.unfinished,
        },
        fetches,
        fetches_late: figures.late,
        fetches_around: figures.around,
        fetches_failed: figures.failed_fetches,
        shunned: clients.shunned,
        spread,
        messages: messages(shared),
        decisions: Decision::ALL.iter().map(|decision| cost(shared, *decision)).collect(),
        targets,
        course,
    }
}

fn targets(losses: &Losses, calm: Fetches) -> Vec<Target> {
    let lost = losses.pages_covered as f64;
    let tail = calm.p99_us.zip(calm.p50_us).map(|(p99, p50)| p99 / p50);
    vec![
        Target {
            wanted: "pages lost that the redundancy covers",
            at_most: MOST_COVERED,
            reached: Some(lost),
            is_met: lost <= MOST_COVERED,
        },
        Target {
            wanted: "fetches while all is well: p99 / p50",
            at_most: MOST_TAIL,
            reached: tail,
            is_met: tail.is_none_or(|tail| tail <= MOST_TAIL),
        },
    ]
}

fn messages(shared: &Shared) -> Messages {
    let options = shared.options;
    let seconds = options.duration.as_secs_f64();
    let of_node = |node: usize| shared.machines.messages(node) as f64 / seconds;
    let rates: Vec<f64> = (0..shared.machines.len()).map(of_node).collect();
    // Lanes that carry fetches all the time need give no other sign.
    let fetches_of_lane = options.fetches / options.nodes as f64 / LANES as f64;
    let idle = if fetches_of_lane * SIGN_OF_LIFE > 1.0 { LINKS - LANES } else { LINKS };
    Messages {
        per_second: rates.iter().sum::<f64>() / rates.len() as f64,
        most_per_second: rates.iter().copied().fold(0.0, f64::max),
        signs_of_life_per_second: (options.clients as u64 * idle) as f64 / SIGN_OF_LIFE,
        links: options.clients as u64 * LINKS,
    }
}

fn cost(shared: &Shared, decision: Decision) -> DecisionCost {
    let cost = shared.costs.get(decision);
    let mean_steps = cost.steps as f64 / cost.count.max(1) as f64;
    DecisionCost { decision, count: cost.count, mean_steps, most_steps: cost.most_steps }
}

/// How everything is at this moment. `messages` is how many there were since the point before, and `passed`
/// how much time.
pub(crate) fn point(
    shared: &mut Shared,
    stored: &[u64],
    blocks: u64,
    (messages, passed): (u64, Time),
) -> Point {
    let spread = Spread::new(shared, stored);
    let down = shared.machines.down() as u64;
    let hours = shared.clock.elapsed().as_secs_f64() / 3600.0;
    let figures: &mut Figures = &mut shared.figures;
    let us = |quantile| figures.recent.quantile(quantile).map(|ns| ns / 1e3);
    let (fetch_p50_us, fetch_p99_us) = (us(0.5), us(0.99));
    figures.recent.clear();
    let seconds = (passed as f64 / 1e9).max(1e-9);
    Point {
        hours,
        fetch_p50_us,
        fetch_p99_us,
        lacking_shards: std::mem::replace(&mut figures.most_lacking, figures.lacking),
        lost_pages: pages(figures.lost_blocks),
        down,
        messages_per_second: messages as f64 / seconds / stored.len() as f64,
        least_percent: spread.least_percent,
        p50_percent: spread.p50_percent,
        most_percent: spread.most_percent,
        far_pages: pages(blocks),
    }
}
