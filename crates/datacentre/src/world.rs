//! The simulation: one event after the other, each to whom it happens.

use std::net::Ipv4Addr;

use farmem_remote::Roster;
use farmem_transport::Destination;

use crate::calendar::{Happening, draw};
use crate::chance::Chance;
use crate::client::Client;
use crate::clock::{Clock, Time, ns};
use crate::cost::{Costs, Timing};
use crate::figures::Figures;
use crate::machines::{Machines, Presence};
use crate::network::Network;
use crate::options::{Options, Unfit};
use crate::outcome::{Causes, Clients, Outcome, Point, Spread, outcome, point};
use crate::shared::{Event, Shared};

/// Looks at how everything is, in all.
const SAMPLES: Time = 120;
const LEAST_SAMPLE: Time = 1_000_000_000;
/// Streams of chance that are no client's.
const CALENDAR: u64 = 1;
const MACHINES: u64 = 2;
/// The port at which all nodes listen.
const PORT: u16 = 7431;

/// Simulates a datacentre. What came of it, and what took how long here, which is never the same twice.
///
/// # Errors
/// The options are none that can be simulated.
pub fn simulate(options: &Options) -> Result<(Outcome, Vec<Timing>), Unfit> {
    options.check()?;
    let mut world = World::new(options);
    world.run();
    Ok((world.outcome(), world.shared.costs.timings()))
}

struct World<'a> {
    shared: Shared<'a>,
    clients: Vec<Client>,
    /// Which nodes are to be used.
    is_named: Vec<bool>,
    causes: Causes,
    course: Vec<Point>,
    messages: u64,
    sampled_at: Time,
}

impl<'a> World<'a> {
    fn new(options: &'a Options) -> Self {
        let addresses = (0..options.nodes).map(address).collect();
        let mut shared = Shared {
            options,
            clock: Clock::new(),
            machines: Machines::new(options, &mut Chance::new(options.seed, MACHINES)),
            network: Network::new(options),
            figures: Figures::default(),
            costs: Costs::default(),
            addresses,
            roster: Roster::default(),
        };
        let clients = (0..options.clients as u32)
            .map(|number| {
                let mut client = Client::new(&shared, number);
                client.begin(&mut shared);
                client
            })
            .collect();
        for (at, happening) in draw(options, &mut Chance::new(options.seed, CALENDAR)) {
            shared.clock.at(at, Event::Happening(happening));
        }
        shared.clock.at(0, Event::Sample);
        Self {
            shared,
            clients,
            is_named: vec![true; options.nodes],
            causes: Causes::default(),
            course: Vec::new(),
            messages: 0,
            sampled_at: 0,
        }
    }

    fn end(&self) -> Time {
        ns(self.shared.options.duration)
    }

    fn run(&mut self) {
        let end = self.end();
        while let Some(event) = self.shared.clock.next(end) {
            self.pass(event);
        }
        self.sample();
    }

    fn pass(&mut self, event: Event) {
        let shared = &mut self.shared;
        let clients = &mut self.clients;
        match event {
            Event::Demand(client) => clients[client as usize].look_after_demand(shared),
            Event::Move(client) => clients[client as usize].move_out(shared),
            Event::Moved(client) => clients[client as usize].moved(shared),
            Event::Granted(client, grant) => clients[client as usize].granted(shared, grant),
            Event::Doubt(client, node, identity) => clients[client as usize].notice(shared, node, identity),
            Event::Look(client, node) => clients[client as usize].look(shared, node),
            Event::Mend(client) => clients[client as usize].mend(shared),
            Event::Mended(client) => clients[client as usize].mended(shared),
            Event::Fetch(client) => clients[client as usize].fetch(shared),
            Event::Read(client, reading) => clients[client as usize].read(shared, *reading),
            Event::Follow(client) => clients[client as usize].follow(shared),
            Event::Happening(happening) => self.happen(happening),
            Event::Sample => {
                self.sample();
                let pause = (self.end() / SAMPLES).max(LEAST_SAMPLE);
                self.shared.clock.after(pause, Event::Sample);
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.shared.clock.now();
        self.causes.note(happening);
        match happening {
            Happening::Dies(node) => self.fail(node, Presence::Silent, false),
            Happening::Ends(node) => self.fail(node, Presence::Refusing, false),
            Happening::Starts(node) => self.shared.machines.start(node, now),
            Happening::Slows(node, slowness) => {
                self.shared.machines.set_slowness(node, slowness, now);
                self.shared.figures.slow += 1;
                let shared = &mut self.shared;
                self.clients.iter_mut().for_each(|client| client.plan_touches(shared, node as u16, f64::MAX));
            }
            Happening::Recovers(node) => {
                self.shared.machines.set_slowness(node, 1.0, now);
                self.shared.figures.slow -= 1;
            }
            Happening::Departs(node) => self.name(node, false),
            Happening::Joins(node) => self.name(node, true),
            Happening::RackFails(rack, is_emptied) => {
                let nodes = self.shared.machines.in_rack(rack);
                nodes.into_iter().for_each(|node| self.fail(node, Presence::Silent, !is_emptied));
            }
            Happening::RackReturns(rack, is_empty) => {
                for node in self.shared.machines.in_rack(rack) {
                    match is_empty {
                        true => self.shared.machines.start(node, now),
                        false => self.shared.machines.return_whole(node, now),
                    }
                }
            }
        }
    }

    fn fail(&mut self, node: usize, presence: Presence, is_whole: bool) {
        let shared = &mut self.shared;
        shared.machines.fail(node, presence, is_whole, shared.clock.now());
        for client in &mut self.clients {
            client.stricken(shared, node as u16);
            client.plan_touches(shared, node as u16, f64::MAX);
        }
    }

    /// The list of nodes changes, as somebody has written it.
    fn name(&mut self, node: usize, is_named: bool) {
        self.is_named[node] = is_named;
        let shared = &mut self.shared;
        let named = shared.addresses.iter().zip(&self.is_named).filter(|(_, is_named)| **is_named);
        shared.roster = Roster::new(named.map(|(address, _)| (address.clone(), false)).collect());
        self.clients.iter_mut().for_each(|client| client.hear_of_change(shared));
    }

    fn sample(&mut self) {
        let stored = self.stored();
        let rack_size = self.shared.options.rack_size;
        self.shared.network.set_shares(&stored, rack_size);
        let blocks = self.clients.iter().map(Client::kept).sum();
        let messages: u64 = (0..stored.len()).map(|node| self.shared.machines.messages(node)).sum();
        let now = self.shared.clock.now();
        let since = (messages - self.messages, now - self.sampled_at);
        (self.messages, self.sampled_at) = (messages, now);
        // Nodes were asked for what is held ahead before there was time.
        let since = if now == 0 { (0, 1) } else { since };
        self.course.push(point(&mut self.shared, &stored, blocks, since));
    }

    fn stored(&self) -> Vec<u64> {
        let mut stored = vec![0; self.shared.machines.len()];
        self.clients.iter().for_each(|client| client.add_stored(&mut stored));
        stored
    }

    fn outcome(&mut self) -> Outcome {
        let clients = Clients {
            blocks: self.clients.iter().map(Client::kept).sum(),
            exposed: self.clients.iter().map(Client::exposed).sum(),
            rebuilt: self.clients.iter().map(Client::rebuilt).sum(),
            unfinished: self.shared.figures.bare_clients,
            shunned: self.clients.iter_mut().map(|client| client.shunned(&mut self.shared)).sum(),
        };
        let spread = Spread::new(&self.shared, &self.stored());
        outcome(&self.shared, self.causes, &clients, spread, std::mem::take(&mut self.course))
    }
}

/// Where a node listens. Nobody connects to it.
fn address(node: usize) -> Destination {
    let [_, _, high, low] = (node as u32).to_be_bytes();
    Destination::Tcp { host: Ipv4Addr::new(10, 0, high, low).to_string(), port: PORT }
}
