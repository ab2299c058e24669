//! `farmem node`: a memory node, and what is said to one.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use farmem::Failure;
use farmem_machine::Memory;
use farmem_node::{Options, Server, WantedRdma};
use farmem_page::ByteCount;
use farmem_transport::{
    Answer, CertificateFiles, ClientIdentity, Completion, Destination, FRAME_BYTES, Identity, NodeStatistics,
    Rack, Request, Security, SharedKey, Ticket, connect,
};
use farmem_web::{Measure, Unit};
use nix::sys::signalfd::SignalFd;
use serde_json::json;

use crate::amount::Readable;
use crate::arguments::{
    NodeArguments, NodeCommand, NodeKeygenArguments, NodeStatArguments, SecurityArguments,
};
use crate::certificates;
use crate::cluster;
use crate::host::signals;
use crate::log;
use crate::web::Metrics;

/// Less than this holds not even one chunk of the largest size.
const MEMORY_MINIMUM: ByteCount = ByteCount::new(4 << 20);
/// Where a node listens that is told nothing.
const PORT: u16 = 7431;
/// How long a node that is asked how it is may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a node, or says something to one.
pub(crate) fn node(arguments: &NodeArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        None => lend(arguments),
        Some(NodeCommand::Keygen(arguments)) => keygen(arguments),
        Some(NodeCommand::Stat(arguments)) => stat(arguments),
    }
}

fn lend(arguments: &NodeArguments) -> Result<ExitCode, Failure> {
    let options = options(arguments)?;
    log::begin(arguments.log)?;
    // One or more for each link of each client.
    farmem_sys::descriptors::allow_most();
    let signals = signals().map_err(Failure::Failed)?;
    let mut server =
        Server::bind(&options, Some(&signals)).map_err(|error| Failure::Unusable(format!("{error:#}")))?;
    let addresses = server.addresses().map_err(Failure::Failed)?;
    let addresses: Vec<String> = addresses.iter().map(Destination::to_string).collect();
    log::tell(&format!("farmem node: {} on {}", Readable(options.memory), addresses.join(", ")));
    let names = &arguments.metrics_hosts.names;
    let mut metrics =
        arguments.metrics.as_ref().map(|address| Metrics::begin(address, names, false)).transpose()?;
    while !server.turn().map_err(Failure::Failed)? {
        if let Some(metrics) = &mut metrics {
            metrics.tell(|| measures(&server.statistics()));
        }
    }
    tracing::info!("node asked to end");
    end(&mut server, &signals, Duration::from_secs(arguments.drain.into()))?;
    tracing::info!("node ended");
    Ok(ExitCode::SUCCESS)
}

fn measures(figures: &NodeStatistics) -> Vec<Measure> {
    let measure = |name, meaning, unit, is_total, value: u64| Measure {
        name,
        meaning,
        unit,
        is_total,
        value: value as f64,
    };
    let bytes = |frames: u64| frames * FRAME_BYTES as u64;
    vec![
        measure("node_memory", "Memory that the node lends", Unit::Bytes, false, bytes(figures.frames)),
        measure(
            "node_free",
            "Part of it that is granted to nobody",
            Unit::Bytes,
            false,
            bytes(figures.free_frames),
        ),
        measure("node_clients", "Clients that the node knows", Unit::Count, false, figures.clients.into()),
        measure("node_requests", "Requests answered", Unit::Count, true, figures.requests),
        measure("node_refused", "Requests refused", Unit::Count, true, figures.refused),
        measure("node_read", "What clients have read", Unit::Bytes, true, figures.read_bytes),
        measure("node_written", "Bytes that clients have written", Unit::Bytes, true, figures.written_bytes),
    ]
}

/// All that a node tells.
#[cfg(test)]
pub(crate) fn every_measure() -> Vec<Measure> {
    measures(&NodeStatistics::default())
}

/// After the first signal: until nobody is there any more, time is up, or a second one comes.
fn end(server: &mut Server, signals: &SignalFd, patience: Duration) -> Result<(), Failure> {
    let end = Instant::now() + patience;
    let next = || signals.read_signal().map(|signal| signal.is_some()).context("cannot read signals");
    next()?;
    server.drain();
    while server.has_clients() && Instant::now() < end {
        if server.turn()? && next()? {
            break;
        }
    }
    Ok(())
}

/// How much to lend, where to listen, and in which rack.
struct Terms {
    memory: ByteCount,
    listen: Vec<Destination>,
    rack: Option<Rack>,
}

/// The terms: as the command line says, and what it doesn't say as the cluster does.
fn terms(arguments: &NodeArguments) -> Result<Terms, Failure> {
    let (mut memory, mut listen, mut rack) = (arguments.memory, arguments.listen.clone(), arguments.rack);
    match (&arguments.cluster, &arguments.name) {
        (Some(source), Some(name)) => {
            let lender = cluster::lender(source, &arguments.etcd, name)?;
            if memory.is_none() {
                memory = Some(lender.size()?);
            }
            if listen.is_empty() {
                listen.push(lender.address()?);
            }
            if rack.is_none() {
                rack = lender.rack()?;
            }
        }
        _ => cluster::without(&arguments.etcd)?,
    }
    if listen.is_empty() {
        listen.push(Destination::Tcp { host: "127.0.0.1".to_owned(), port: PORT });
    }
    Ok(Terms { memory: memory.unwrap_or(ByteCount::ZERO), listen, rack })
}

fn options(arguments: &NodeArguments) -> Result<Options, Failure> {
    let Terms { memory, listen, rack } = terms(arguments)?;
    if memory < MEMORY_MINIMUM {
        return Err(Failure::Unusable(format!(
            "{} is too little to lend; give --memory at least {}",
            Readable(memory),
            Readable(MEMORY_MINIMUM)
        )));
    }
    let usable = Memory::current().map_err(|error| Failure::Unusable(error.to_string()))?.usable();
    if memory > usable {
        return Err(Failure::Unusable(format!(
            "{} are more than the {} that this user may use; lend less",
            Readable(memory),
            Readable(usable)
        )));
    }
    let security = security(&arguments.security, &listen)?;
    Ok(Options {
        listen,
        security,
        memory,
        lease: Duration::from_secs(arguments.lease.into()),
        rack,
        rdma: match arguments.rdma.as_str() {
            "auto" => WantedRdma::Auto,
            "none" => WantedRdma::None,
            device => WantedRdma::Device(device.to_owned()),
        },
    })
}

/// Refuses addresses off this machine where nothing is said of what protects the way to them.
pub(crate) fn refuse_open(arguments: &SecurityArguments, addresses: &[Destination]) -> Result<(), Failure> {
    match addresses.iter().find(|address| !address.is_local()).filter(|_| arguments.is_silent()) {
        None => Ok(()),
        Some(address) => Err(Failure::Unusable(format!(
            "{address} is not on this machine alone; give --key (`farmem node keygen` makes one), or --plain if anybody \
             there may read and change what is stored"
        ))),
    }
}

/// What protects connections to or from some addresses. Off this machine nothing goes unprotected unless that
/// was asked for.
pub(crate) fn security(
    arguments: &SecurityArguments,
    addresses: &[Destination],
) -> Result<Security, Failure> {
    let identity =
        match (&arguments.key, &arguments.certificate, &arguments.certificate_key, &arguments.authority) {
            (Some(key), ..) => SharedKey::load(key).and_then(|key| Identity::with_key(&key)),
            (None, Some(certificate), Some(key), Some(authority)) => {
                Identity::with_certificates(&CertificateFiles {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    authority: authority.clone(),
                })
            }
            _ => return refuse_open(arguments, addresses).map(|()| Security::Plain),
        };
    identity.map(Security::Tls).map_err(|error| Failure::Unusable(error.to_string()))
}

fn keygen(arguments: &NodeKeygenArguments) -> Result<ExitCode, Failure> {
    let Some(folder) = &arguments.certificates else {
        let path = arguments.key.as_deref().unwrap_or_else(|| Path::new("node.key"));
        if !arguments.hosts.is_empty() {
            return Err(Failure::Unusable("a key names no hosts; give one FILE".to_owned()));
        }
        let key = SharedKey::generate().context("cannot draw a random number")?;
        key.save(path).map_err(|error| Failure::Unusable(error.to_string()))?;
        return Ok(ExitCode::SUCCESS);
    };
    // The first word is taken for a file, and is a host here.
    let first = arguments.key.iter().map(|host| host.to_string_lossy().into_owned());
    let hosts: Vec<String> = first.chain(arguments.hosts.iter().cloned()).collect();
    if hosts.is_empty() {
        return Err(Failure::Unusable("name the hosts of the nodes, as clients reach them".to_owned()));
    }
    certificates::make(folder, &hosts)?;
    Ok(ExitCode::SUCCESS)
}

fn stat(arguments: &NodeStatArguments) -> Result<ExitCode, Failure> {
    let security = security(&arguments.security, std::slice::from_ref(&arguments.node))?;
    let Said { rack, figures } =
        ask(&arguments.node, &security).with_context(|| format!("cannot ask {}", arguments.node))?;
    if arguments.json {
        let text = serde_json::to_string_pretty(&shown(rack, &figures)).map_err(anyhow::Error::from)?;
        println!("{text}");
    } else {
        let bytes = |frames: u64| Readable(ByteCount::new(frames * FRAME_BYTES as u64)).to_string();
        println!(
            "{} of {} free; {} clients; {} read, {} written; {} requests, {} refused{}",
            bytes(figures.free_frames),
            bytes(figures.frames),
            // The process that asks is one.
            figures.clients.saturating_sub(1),
            Readable(ByteCount::new(figures.read_bytes)),
            Readable(ByteCount::new(figures.written_bytes)),
            figures.requests,
            figures.refused,
            rack.map(|rack| format!("; in rack {rack}")).unwrap_or_default(),
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(rack: Option<Rack>, figures: &NodeStatistics) -> serde_json::Value {
    json!({
        "rack": rack.map(|rack| rack.to_string()),
        "memory_bytes": figures.frames * FRAME_BYTES as u64,
        "free_bytes": figures.free_frames * FRAME_BYTES as u64,
        "free_chunks_by_order": figures.free_chunks,
        "clients": figures.clients.saturating_sub(1),
        "requests": figures.requests,
        "refused": figures.refused,
        "read_bytes": figures.read_bytes,
        "written_bytes": figures.written_bytes,
    })
}

/// What a node says of itself.
pub(crate) struct Said {
    /// The rack that it is in.
    pub(crate) rack: Option<Rack>,
    /// How it is.
    pub(crate) figures: NodeStatistics,
}

/// Comes as a client, asks how a node is, and leaves.
pub(crate) fn ask(node: &Destination, security: &Security) -> anyhow::Result<Said> {
    let mut identity = [0; 16];
    rustix::rand::getrandom(&mut identity, rustix::rand::GetRandomFlags::empty())?;
    let client = ClientIdentity { space: u128::from_le_bytes(identity), lane: 0 };
    let mut link = connect(node, client, security, PATIENCE)?;
    let rack = link.node().rack;
    let deadline = Instant::now() + PATIENCE;
    let mut done: Vec<Completion> = Vec::new();
    for (ticket, request) in (1..).map(Ticket).zip([Request::Statistics, Request::Leave]) {
        link.submit(ticket, request, deadline)?;
    }
    while done.len() < 2 {
        link.complete(&mut done, PATIENCE)?;
    }
    match done.swap_remove(0).result? {
        Answer::Statistics(figures) => Ok(Said { rack, figures }),
        _ => anyhow::bail!("the node answers something else"),
    }
}
