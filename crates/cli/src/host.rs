//! `farmem host`: the machine's broker.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use farmem::Failure;
use farmem_broker::{Figures, LEAST_POOL, Options, Server};
use farmem_client::is_any_running;
use farmem_machine::Memory;
use farmem_page::ByteCount;
use farmem_web::{Measure, Unit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::Deserialize;

use crate::amount::{Readable, parse_bandwidth, parse_size};
use crate::arguments::HostArguments;
use crate::host_nodes::HostNodes;
use crate::log;
use crate::manage;
use crate::web::Metrics;

/// What a configuration file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    pool: Option<String>,
    local: Option<String>,
    socket: Option<PathBuf>,
    manage: Option<PathBuf>,
    #[serde(rename = "bandwidth-in")]
    bandwidth_in: Option<String>,
    #[serde(rename = "bandwidth-out")]
    bandwidth_out: Option<String>,
    #[serde(default)]
    nodes: HostNodes,
}

/// Where the broker of this user listens unless told otherwise; `None` when there is no place for it.
pub(crate) fn default_socket() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/farmem/host.socket"));
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_absolute())?;
    Some(Path::new(&folder).join("farmem/host.socket"))
}

/// Runs the broker until a signal ends it.
pub(crate) fn host(arguments: HostArguments) -> Result<ExitCode, Failure> {
    let (metrics, log) = (arguments.metrics.clone(), arguments.log);
    let names = arguments.metrics_hosts.names.clone();
    let Start { options, nodes, manage } = options(arguments)?;
    let rules = manage.as_deref().map(manage::File::open).transpose()?;
    log::begin(log)?;
    let signals = match rules {
        Some(_) => signals_but_for_rules(),
        None => signals(),
    };
    let signals = signals.map_err(Failure::Failed)?;
    let mut server = Server::bind(&options).map_err(|error| Failure::Unusable(format!("{error:#}")))?;
    let local =
        options.local.map_or_else(String::new, |local| format!(", {} of local memory", Readable(local)));
    log::tell(&format!(
        "farmem host: {} for pools{local}, on {}",
        Readable(options.pool),
        options.socket.display()
    ));
    if let Some(nodes) = nodes {
        log::tell(&format!("farmem host: programs that name no memory nodes use {nodes}"));
    }
    if let Some(rules) = rules {
        manage::begin(rules, &options.socket).map_err(Failure::Failed)?;
    }
    let mut metrics = metrics.map(|address| Metrics::begin(&address, &names, true)).transpose()?;
    while !server.turn(Some(&signals)).map_err(Failure::Failed)? {
        if let Some(metrics) = &mut metrics {
            metrics.tell(|| measures(&options, &server.figures()));
        }
    }
    tracing::info!("host ended");
    Ok(ExitCode::SUCCESS)
}

fn measures(options: &Options, figures: &Figures) -> Vec<Measure> {
    let gauge = |name, meaning, unit, value| Measure { name, meaning, unit, is_total: false, value };
    let mut measures = vec![
        gauge(
            "host_pool",
            "Memory for the pools of all applications together",
            Unit::Bytes,
            options.pool.get() as f64,
        ),
        gauge(
            "host_pool_free",
            "Part of it that no application is charged with",
            Unit::Bytes,
            figures.pool_free.get() as f64,
        ),
        gauge("host_applications", "Applications that hold leases", Unit::Count, figures.spaces as f64),
    ];
    if let Some(local) = options.local {
        let meaning = "Local memory of all applications together";
        measures.push(gauge("host_local", meaning, Unit::Bytes, local.get() as f64));
        let meaning = "Part of it that no application is charged with";
        measures.push(gauge("host_local_free", meaning, Unit::Bytes, figures.local_free.get() as f64));
    }
    measures
}

/// All that a host may tell.
#[cfg(test)]
pub(crate) fn every_measure() -> Vec<Measure> {
    let options = Options {
        socket: PathBuf::new(),
        pool: LEAST_POOL,
        local: Some(LEAST_POOL),
        is_successor: false,
        bandwidth_in: None,
        bandwidth_out: None,
        nodes: None,
    };
    measures(&options, &Figures { pool_free: LEAST_POOL, local_free: LEAST_POOL, spaces: 0 })
}

/// The signals that end a daemon, as something to wait for: what is to end removes its socket first.
pub(crate) fn signals() -> anyhow::Result<SignalFd> {
    signals_of(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])
}

/// The same where SIGHUP asks for rules to be read again: it is blocked in this thread, and in those that it
/// begins.
fn signals_but_for_rules() -> anyhow::Result<SignalFd> {
    SigSet::from(Signal::SIGHUP).thread_block()?;
    signals_of(&[Signal::SIGINT, Signal::SIGTERM])
}

fn signals_of(signals: &[Signal]) -> anyhow::Result<SignalFd> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// What a host begins with.
struct Start {
    options: Options,
    /// Which nodes it names, for people.
    nodes: Option<String>,
    /// The file of rules.
    manage: Option<PathBuf>,
}

/// What the broker is to do.
fn options(arguments: HostArguments) -> Result<Start, Failure> {
    let file = arguments.config.as_deref().map_or_else(|| Ok(Configuration::default()), read)?;
    let nodes = HostNodes::from(&arguments);
    let memory = Memory::current().map_err(|error| Failure::Unusable(error.to_string()))?;
    let size = |name: &str, text: &Option<String>| {
        let unusable = |reason| Failure::Unusable(format!("{name} of the configuration file: {reason}"));
        text.as_deref().map(parse_size).transpose().map_err(unusable)
    };
    let pool = arguments
        .pool
        .or(size("pool", &file.pool)?)
        .unwrap_or_else(|| ByteCount::new(memory.spare(ByteCount::ZERO).get() / 2).max(LEAST_POOL));
    let local = arguments.local.or(size("local", &file.local)?);
    if pool < LEAST_POOL {
        return Err(Failure::Unusable(format!(
            "a pool of {} is too small; give --pool at least {}",
            Readable(pool),
            Readable(LEAST_POOL)
        )));
    }
    let asked = ByteCount::new(pool.get().saturating_add(local.map_or(0, ByteCount::get)));
    if asked > memory.usable() {
        return Err(Failure::Unusable(format!(
            "{} for pools and local memory are more than the {} that this user may use; give less",
            Readable(asked),
            Readable(memory.usable())
        )));
    }
    let manage = arguments.manage.or(file.manage);
    let socket = arguments.socket.or(file.socket).or_else(default_socket).ok_or_else(|| {
        Failure::Unusable("there is no runtime directory for the socket; name one with --socket".to_owned())
    })?;
    let bandwidth = |name: &str, text: &Option<String>| {
        let unusable = |reason| Failure::Unusable(format!("{name} of the configuration file: {reason}"));
        text.as_deref().map(parse_bandwidth).transpose().map_err(unusable)
    };
    let bandwidth_in = arguments.bandwidth_in.or(bandwidth("bandwidth-in", &file.bandwidth_in)?);
    let bandwidth_out = arguments.bandwidth_out.or(bandwidth("bandwidth-out", &file.bandwidth_out)?);
    let nodes = nodes.or(file.nodes);
    let shown = nodes.shown();
    let nodes = nodes.text()?;
    let is_successor = is_any_running();
    let options = Options { socket, pool, local, is_successor, bandwidth_in, bandwidth_out, nodes };
    Ok(Start { options, nodes: shown, manage })
}

fn read(path: &Path) -> Result<Configuration, Failure> {
    let read = || -> anyhow::Result<Configuration> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a configuration file", path.display()))
    };
    read().map_err(|error| {
        let sentence = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
        Failure::Unusable(sentence)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{EtcdArguments, MetricsHosts, SecurityArguments};

    fn arguments(config: Option<PathBuf>) -> HostArguments {
        HostArguments {
            pool: None,
            local: None,
            bandwidth_in: None,
            bandwidth_out: None,
            node: Vec::new(),
            cluster: None,
            etcd: EtcdArguments::default(),
            node_security: SecurityArguments::default(),
            redundancy: None,
            transport: None,
            socket: Some("/x/host.socket".into()),
            metrics: None,
            metrics_hosts: MetricsHosts::default(),
            log: None,
            manage: None,
            config,
        }
    }

    fn options_of(text: &str) -> Result<Options, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.toml");
        std::fs::write(&path, text).unwrap();
        options(HostArguments { socket: None, ..arguments(Some(path)) }).map(|start| start.options)
    }

    #[test]
    fn a_file_gives_what_the_command_line_does_not() {
        let options =
            options_of("pool = \"64M\"\nlocal = \"32M\"\nsocket = \"/y/s\"\nbandwidth-in = \"100M\"\n")
                .unwrap();
        assert_eq!(options.pool, ByteCount::new(64 << 20));
        assert_eq!(options.local, Some(ByteCount::new(32 << 20)));
        assert_eq!(options.socket, Path::new("/y/s"));
        assert_eq!((options.bandwidth_in, options.bandwidth_out), (Some(ByteCount::new(100 << 20)), None));
        assert_eq!(options.nodes, None);
        let options =
            options_of("socket = \"/y/s\"\n[nodes]\ncluster = \"/c\"\nkey = \"/k\"\nredundancy = \"4+2\"\n")
                .unwrap();
        let nodes = options.nodes.unwrap();
        for word in ["\"cluster\":\"/c\"", "\"key\":\"/k\"", "\"redundancy\":\"4+2\""] {
            assert!(nodes.contains(word), "{nodes}");
        }
    }

    #[test]
    fn a_file_with_mistakes_is_refused_in_one_line() {
        for text in [
            "pool = 5",
            "pool = \"much\"",
            "speed = \"9\"",
            "pool",
            "pool = \"900000T\"",
            "pool = \"1K\"",
            "[nodes]\nkey = \"/k\"",
            "[nodes]\nkeys = 3",
        ] {
            let Err(Failure::Unusable(sentence)) = options_of(text) else { panic!("{text} is accepted") };
            assert!(sentence.lines().count() == 1, "{sentence}");
        }
    }

    #[test]
    fn without_words_there_is_a_pool_that_the_machine_can_spare() {
        assert!(options(arguments(None)).unwrap().options.pool >= LEAST_POOL);
    }
}
