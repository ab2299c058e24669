//! Machines that lend memory, as they are, whatever anybody believes of them.

use farmem_transport::{Frame, Incarnation, Rack};

use crate::chance::Chance;
use crate::clock::Time;
use crate::demand::lent_part;
use crate::options::Options;

/// A node forgets who has said nothing for so long (`--lease` of `farmem node`).
pub(crate) const LEASE: Time = 30_000_000_000;

/// How a machine behaves to those who want something of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    /// It answers.
    Up,
    /// Nothing comes back.
    Silent,
    /// It says at once that nobody listens.
    Refusing,
}

/// Which node it is for a client: with another one, all that it held there is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Identity {
    started: u32,
    /// How often it has forgotten the client.
    forgotten: u32,
}

impl Identity {
    pub(crate) fn incarnation(self) -> Incarnation {
        Incarnation(u128::from(self.started) << 32 | u128::from(self.forgotten))
    }
}

struct Machine {
    rack: usize,
    /// What it says of that.
    rack_name: Option<Rack>,
    /// Chunks of a shard's size.
    lent: u64,
    granted: u64,
    next_frame: u32,
    returned: Vec<Frame>,
    started: u32,
    presence: Presence,
    /// How many times as long as usual it takes.
    slowness: f64,
    changed_at: Time,
    failed_at: Option<Time>,
    /// Whether it still holds what it held.
    is_whole: bool,
    messages: u64,
}

fn name(rack: usize) -> Option<Rack> {
    format!("rack-{rack}").parse().ok()
}

/// What a client has been granted.
#[derive(Clone, Copy, Default)]
struct Account {
    granted: u32,
    forgotten: u32,
    started: u32,
}

pub(crate) struct Machines {
    machines: Vec<Machine>,
    /// By node and client.
    accounts: Vec<Account>,
    clients: usize,
}

impl Machines {
    pub(crate) fn new(options: &Options, chance: &mut Chance) -> Self {
        let chunk_bytes = options.redundancy.order().bytes() as f64;
        let machine = |node: usize| Machine {
            rack: node / options.rack_size,
            rack_name: options.names_racks.then(|| name(node / options.rack_size)).flatten(),
            lent: ((options.machine_bytes as f64 * lent_part(chance) / chunk_bytes) as u64).max(1),
            granted: 0,
            next_frame: 0,
            returned: Vec::new(),
            started: 1,
            presence: Presence::Up,
            slowness: 1.0,
            changed_at: 0,
            failed_at: None,
            is_whole: true,
            messages: 0,
        };
        Self {
            machines: (0..options.nodes).map(machine).collect(),
            accounts: vec![Account::default(); options.nodes * options.clients],
            clients: options.clients,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.machines.len()
    }

    pub(crate) fn rack(&self, node: usize) -> usize {
        self.machines[node].rack
    }

    /// The rack that it says it is in.
    pub(crate) fn rack_name(&self, node: usize) -> Option<Rack> {
        self.machines[node].rack_name
    }

    pub(crate) fn in_rack(&self, rack: usize) -> Vec<usize> {
        (0..self.len()).filter(|node| self.machines[*node].rack == rack).collect()
    }

    pub(crate) fn lent(&self, node: usize) -> u64 {
        self.machines[node].lent
    }

    pub(crate) fn granted(&self, node: usize) -> u64 {
        self.machines[node].granted
    }

    pub(crate) fn presence(&self, node: usize) -> Presence {
        self.machines[node].presence
    }

    pub(crate) fn slowness(&self, node: usize) -> f64 {
        self.machines[node].slowness
    }

    /// When it last failed, came back, slowed down or recovered.
    pub(crate) fn changed_at(&self, node: usize) -> Time {
        self.machines[node].changed_at
    }

    /// When it last failed.
    pub(crate) fn failed_at(&self, node: usize) -> Option<Time> {
        self.machines[node].failed_at
    }

    /// Whether it still holds what it held before it failed.
    pub(crate) fn is_whole(&self, node: usize) -> bool {
        self.machines[node].is_whole
    }

    pub(crate) fn messages(&self, node: usize) -> u64 {
        self.machines[node].messages
    }

    /// How many don't answer.
    pub(crate) fn down(&self) -> usize {
        self.machines.iter().filter(|machine| machine.presence != Presence::Up).count()
    }

    /// A request arrived that moves no page.
    pub(crate) fn message(&mut self, node: usize) {
        self.machines[node].messages += 1;
    }

    fn account(&mut self, node: usize, client: u32) -> (&mut Machine, &mut Account) {
        let machine = &mut self.machines[node];
        let account = &mut self.accounts[node * self.clients + client as usize];
        if account.started != machine.started {
            *account = Account { granted: 0, forgotten: 0, started: machine.started };
        }
        (machine, account)
    }

    pub(crate) fn identity(&self, node: usize, client: u32) -> Identity {
        let started = self.machines[node].started;
        let account = &self.accounts[node * self.clients + client as usize];
        let forgotten = if account.started == started { account.forgotten } else { 0 };
        Identity { started, forgotten }
    }

    /// Grants up to so many chunks.
    pub(crate) fn grant(&mut self, node: usize, client: u32, count: usize) -> Vec<Frame> {
        let (machine, account) = self.account(node, client);
        let count = (count as u64).min(machine.lent.saturating_sub(machine.granted));
        machine.granted += count;
        account.granted += count as u32;
        let mut next = || {
            machine.returned.pop().unwrap_or_else(|| {
                machine.next_frame = machine.next_frame.wrapping_add(1);
                Frame::new(machine.next_frame)
            })
        };
        (0..count).map(|_| next()).collect()
    }

    pub(crate) fn release(&mut self, node: usize, client: u32, frames: Vec<Frame>) {
        let (machine, account) = self.account(node, client);
        let count = (frames.len() as u32).min(account.granted);
        account.granted -= count;
        machine.granted -= u64::from(count);
        machine.returned.extend(frames);
    }

    /// Nobody wants any more what a client was granted.
    pub(crate) fn forget(&mut self, node: usize, client: u32) {
        let (machine, account) = self.account(node, client);
        machine.granted -= u64::from(account.granted);
        account.granted = 0;
        account.forgotten += 1;
    }

    /// It doesn't answer any more. What it held is still there, or not.
    pub(crate) fn fail(&mut self, node: usize, presence: Presence, is_whole: bool, now: Time) {
        let machine = &mut self.machines[node];
        (machine.presence, machine.changed_at, machine.failed_at) = (presence, now, Some(now));
        machine.is_whole = is_whole;
    }

    /// It answers again, and holds nothing.
    pub(crate) fn start(&mut self, node: usize, now: Time) {
        let machine = &mut self.machines[node];
        machine.started += 1;
        machine.granted = 0;
        machine.returned.clear();
        (machine.presence, machine.slowness, machine.changed_at) = (Presence::Up, 1.0, now);
        machine.is_whole = true;
    }

    /// It can be reached again, with all that it held; unless its clients' leases have ended meanwhile.
    pub(crate) fn return_whole(&mut self, node: usize, now: Time) {
        if now - self.machines[node].changed_at > LEASE {
            return self.start(node, now);
        }
        (self.machines[node].presence, self.machines[node].changed_at) = (Presence::Up, now);
    }

    pub(crate) fn set_slowness(&mut self, node: usize, slowness: f64, now: Time) {
        (self.machines[node].slowness, self.machines[node].changed_at) = (slowness, now);
    }
}
