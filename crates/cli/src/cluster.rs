//! `farmem cluster`: which memory nodes a cluster has, and what is to become of them.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use farmem::Failure;
use farmem_page::ByteCount;
use farmem_supervisor::{
    Cluster, ClusterNode, ClusterSource, Destination, Edit, EtcdFiles, Joining, NodeState, Role,
};
use farmem_transport::{FRAME_BYTES, NoRack, NodeStatistics, Rack};
use serde_json::{Value, json};

use crate::amount::{Readable, parse_size};
use crate::arguments::{
    ClusterCommand, ClusterDrainArguments, ClusterJoinArguments, ClusterLeaveArguments, ClusterPlace,
    ClusterRole, ClusterShowArguments, EtcdArguments, SecurityArguments,
};
use crate::node::{self, Said};
use crate::print::print_json;

/// How often a node that is being emptied is asked how far it is.
const LOOK: Duration = Duration::from_secs(1);
/// A node that has just been emptied may be asked before programs have heard of it. They notice a change
/// within a second.
const NOTICED: Duration = Duration::from_secs(2);

/// Shows a cluster, or changes it.
pub(crate) fn cluster(command: ClusterCommand) -> Result<ExitCode, Failure> {
    match command {
        ClusterCommand::Show(arguments) => show(arguments),
        ClusterCommand::Join(arguments) => join(arguments),
        ClusterCommand::Drain(arguments) => drain(arguments),
        ClusterCommand::Leave(arguments) => leave(arguments),
    }
}

/// The files by which etcd is reached.
pub(crate) fn files(arguments: &EtcdArguments) -> EtcdFiles {
    EtcdFiles {
        authority: arguments.cluster_ca.clone(),
        certificate: arguments.cluster_cert.clone(),
        key: arguments.cluster_key.clone(),
        login: arguments.cluster_login.clone(),
    }
}

/// A source that can be asked.
pub(crate) fn reached(source: ClusterSource, arguments: &EtcdArguments) -> Result<ClusterSource, Failure> {
    let name = source.to_string();
    source.with_files(&files(arguments)).map_err(|reason| unusable(&name, &reason))
}

/// Where no cluster is named, there is no etcd that certificates and passwords could be for.
pub(crate) fn without(arguments: &EtcdArguments) -> Result<(), Failure> {
    if files(arguments).is_empty() {
        return Ok(());
    }
    Err(Failure::Unusable(
        "--cluster-ca, --cluster-cert, --cluster-key and --cluster-login are for --cluster etcds://…; give that"
            .to_owned(),
    ))
}

fn unusable(source: &dyn std::fmt::Display, reason: &str) -> Failure {
    Failure::Unusable(format!("cannot use {source}: {reason}"))
}

/// A node of a cluster that lends memory.
pub(crate) struct Lender {
    source: ClusterSource,
    node: ClusterNode,
}

/// The node of that name, for the machine that is to be it.
pub(crate) fn lender(source: &ClusterSource, etcd: &EtcdArguments, name: &str) -> Result<Lender, Failure> {
    let Found { source, cluster } = Found::at(ClusterPlace { source: source.clone(), etcd: etcd.clone() })?;
    let known: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
    let unknown =
        || unusable(&source, &format!("it has no node {name}; its nodes are: {}", known.join(", ")));
    let node = cluster.nodes.iter().find(|node| node.name == name).ok_or_else(unknown)?.clone();
    if !node.role.lends() {
        let reason =
            format!("{name} lends nothing there; give it the role memory or general to have it lend");
        return Err(unusable(&source, &reason));
    }
    Ok(Lender { source, node })
}

impl Lender {
    /// How much it lends.
    pub(crate) fn size(&self) -> Result<ByteCount, Failure> {
        let name = &self.node.name;
        let Some(size) = &self.node.size else {
            let reason = format!("it doesn't say how much {name} lends; add its size, or give --memory");
            return Err(unusable(&self.source, &reason));
        };
        parse_size(size).map_err(|reason| unusable(&self.source, &format!("the size of {name}: {reason}")))
    }

    /// The rack that it is in, if that is said.
    pub(crate) fn rack(&self) -> Result<Option<Rack>, Failure> {
        let rack = self.node.rack.as_ref().map(|rack| rack.parse());
        rack.transpose().map_err(|error: NoRack| {
            unusable(&self.source, &format!("the rack of {}: {error}", self.node.name))
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Result<Destination, Failure> {
        let name = &self.node.name;
        let missing = || format!("it doesn't say where {name} listens; add its address, or give --listen");
        destination(&self.node)?.ok_or_else(|| unusable(&self.source, &missing()))
    }
}

/// A cluster, and where it is.
struct Found {
    source: ClusterSource,
    cluster: Cluster,
}

impl Found {
    fn at(place: ClusterPlace) -> Result<Self, Failure> {
        let source = reached(place.source, &place.etcd)?;
        let text = source.read().map_err(|reason| unusable(&source, &reason))?;
        let cluster = Cluster::parse(&text).map_err(|error| unusable(&source, &error.to_string()))?;
        Ok(Self { source, cluster })
    }

    fn node(&self, name: &str) -> Option<&ClusterNode> {
        self.cluster.nodes.iter().find(|node| node.name == name)
    }

    fn edit(&self, edit: &Edit) -> Result<bool, Failure> {
        self.source.edit(edit).map_err(|reason| unusable(&self.source, &reason))
    }
}

/// Where a node of a cluster listens, if it lends.
fn destination(node: &ClusterNode) -> Result<Option<Destination>, Failure> {
    let Some(address) = node.address.as_deref().filter(|_| node.role.lends()) else { return Ok(None) };
    let parsed = address.parse::<Destination>();
    parsed
        .map(Some)
        .map_err(|error| Failure::Unusable(format!("{address} is not the address of a node: {error}")))
}

/// What a node says of itself, or why nothing is known of it.
fn ask(address: &Destination, security: &SecurityArguments) -> Result<Said, String> {
    let security =
        node::security(security, std::slice::from_ref(address)).map_err(|failure| failure.to_string())?;
    node::ask(address, &security).map_err(|error| format!("{error:#}"))
}

fn bytes(frames: u64) -> u64 {
    frames * FRAME_BYTES as u64
}

fn granted(figures: &NodeStatistics) -> u64 {
    bytes(figures.frames.saturating_sub(figures.free_frames))
}

/// What a running node lends, and where it says that it is, where that is not what the cluster says of it.
fn difference(node: &ClusterNode, said: &Said) -> Option<String> {
    let rack = node.rack.as_deref().and_then(|here| {
        let there = said.rack.map_or_else(|| "no rack".to_owned(), |rack| format!("rack {rack}"));
        let is_there = said.rack.is_some_and(|rack| rack.name() == here);
        (!is_there).then(|| format!("it says that it is in {there}, and in rack {here} here"))
    });
    let differences: Vec<String> = lends(node, &said.figures).into_iter().chain(rack).collect();
    (!differences.is_empty()).then(|| differences.join("; "))
}

fn lends(node: &ClusterNode, figures: &NodeStatistics) -> Option<String> {
    let size = node.size.as_ref()?;
    let lent = readable(bytes(figures.frames));
    match parse_size(size) {
        // As many frames as a node makes of it.
        Ok(said) if said.pages().get() == figures.frames => None,
        Ok(_) => Some(format!("it lends {lent}, and its size here is {size}")),
        Err(_) => Some(format!("it lends {lent}, and its size here, {size}, is not a size")),
    }
}

fn readable(bytes: u64) -> String {
    Readable(ByteCount::new(bytes)).to_string()
}

fn show(arguments: ClusterShowArguments) -> Result<ExitCode, Failure> {
    let found = Found::at(arguments.place)?;
    let mut asked = Vec::new();
    for node in &found.cluster.nodes {
        asked.push(destination(node)?);
    }
    // All at once: one that doesn't answer keeps nobody waiting.
    let answers: Vec<Option<Result<Said, String>>> = thread::scope(|scope| {
        let security = &arguments.security;
        let asking = |address: &Option<Destination>| {
            let address = address.clone()?;
            Some(scope.spawn(move || ask(&address, security)))
        };
        let asking: Vec<_> = asked.iter().map(asking).collect();
        let answer = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("it could not be asked".to_owned()))
        };
        asking.into_iter().map(|thread| thread.map(answer)).collect()
    });
    let nodes = found.cluster.nodes.iter().zip(&answers);
    if arguments.json {
        let shown: Vec<Value> = nodes.map(|(node, answer)| as_json(node, answer.as_ref())).collect();
        print_json(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{:<20} {:<8} {:<7} {:<24} {:>10} {:>10} {:>8}",
        "NAME", "ROLE", "STATE", "ADDRESS", "LENT", "GRANTED", "CLIENTS"
    );
    for (node, answer) in nodes {
        let figures = match answer {
            Some(Ok(said @ Said { figures, .. })) => format!(
                "{:>10} {:>10} {:>8}  {}",
                readable(bytes(figures.frames)),
                readable(granted(figures)),
                // The process that asks is one.
                figures.clients.saturating_sub(1),
                difference(node, said).unwrap_or_default()
            ),
            Some(Err(reason)) => format!("  {reason}"),
            None => String::new(),
        };
        let address = node.address.as_deref().unwrap_or("-");
        let line = format!(
            "{:<20} {:<8} {:<7} {address:<24} {figures}",
            node.name,
            node.role.name(),
            node.state.name()
        );
        println!("{}", line.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(node: &ClusterNode, answer: Option<&Result<Said, String>>) -> Value {
    let mut shown = json!({
        "name": node.name,
        "role": node.role.name(),
        "state": node.state.name(),
        "address": node.address,
        "size": node.size,
        "rack": node.rack,
    });
    match answer {
        Some(Ok(said @ Said { figures, .. })) => {
            shown["lent_bytes"] = bytes(figures.frames).into();
            shown["granted_bytes"] = granted(figures).into();
            shown["clients"] = figures.clients.saturating_sub(1).into();
            if let Some(rack) = said.rack {
                shown["rack"] = rack.name().into();
            }
            if let Some(difference) = difference(node, said) {
                shown["trouble"] = difference.into();
            }
        }
        Some(Err(reason)) => shown["trouble"] = reason.as_str().into(),
        None => {}
    }
    shown
}

fn join(arguments: ClusterJoinArguments) -> Result<ExitCode, Failure> {
    let found = Found::at(arguments.place)?;
    let joining = Joining {
        name: arguments.name,
        address: arguments.address.map(|address| address.to_string()),
        role: arguments.role.map(|role| match role {
            ClusterRole::Compute => Role::Compute,
            ClusterRole::Memory => Role::Memory,
            ClusterRole::General => Role::General,
        }),
        size: arguments.size,
        rack: arguments.rack.map(|rack| rack.to_string()),
    };
    let name = joining.name.clone();
    if !found.edit(&Edit::Join(joining))? {
        eprintln!("farmem: {name} takes part already");
    }
    Ok(ExitCode::SUCCESS)
}

fn drain(arguments: ClusterDrainArguments) -> Result<ExitCode, Failure> {
    let found = Found::at(arguments.place)?;
    let is_new = found.edit(&Edit::Drain(arguments.name.clone()))?;
    let is_used = |node: &ClusterNode| node.state == NodeState::Active && node.name != arguments.name;
    if !found.cluster.nodes.iter().any(|node| node.role.lends() && is_used(node)) {
        eprintln!(
            "farmem: no other node of {} is used; programs that are started now are refused, and others keep what they have no other place for",
            found.source
        );
    }
    let node = found.node(&arguments.name).map(destination).transpose()?.flatten();
    match node.filter(|_| arguments.wait) {
        Some(address) => {
            let end = arguments.timeout.map(|timeout| Instant::now() + timeout);
            if is_new {
                thread::sleep(NOTICED);
            }
            wait(&arguments.name, &address, &arguments.security, end)
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Waits until a node has granted nothing, and says how far it is whenever that has changed.
fn wait(
    name: &str,
    address: &Destination,
    security: &SecurityArguments,
    end: Option<Instant>,
) -> Result<ExitCode, Failure> {
    let mut said = None;
    loop {
        let Said { figures, .. } = ask(address, security).map_err(|reason| {
            Failure::Unusable(format!(
                "{name} is to be emptied, but can't be asked how far it is: {reason}; `farmem stat --json` says for each program what is \
                 left (node_leaving_bytes)"
            ))
        })?;
        let left = granted(&figures);
        if said.replace(left) != Some(left) {
            eprintln!("farmem: {name} holds {} of {}", readable(left), readable(bytes(figures.frames)));
        }
        if left == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Err(Failure::Failed(anyhow::anyhow!(
                "{name} still holds {}; it goes on being emptied",
                readable(left)
            )));
        }
        thread::sleep(LOOK);
    }
}

fn leave(arguments: ClusterLeaveArguments) -> Result<ExitCode, Failure> {
    let found = Found::at(arguments.place)?;
    let name = &arguments.name;
    let address = found.node(name).map(destination).transpose()?.flatten();
    if let (Some(address), false) = (address, arguments.now) {
        let ways = "`farmem cluster drain --wait` empties it first, `--now` takes it out all the same";
        match ask(&address, &arguments.security) {
            Ok(said) if granted(&said.figures) == 0 => {}
            Ok(Said { figures, .. }) => {
                let held = readable(granted(&figures));
                return Err(Failure::Unusable(format!("{name} still holds {held}; {ways}")));
            }
            Err(reason) => {
                return Err(Failure::Unusable(format!(
                    "{name} can't be asked whether it holds anything: {reason}; `--now` takes it out all the same"
                )));
            }
        }
    }
    found.edit(&Edit::Leave(name.clone()))?;
    Ok(ExitCode::SUCCESS)
}
