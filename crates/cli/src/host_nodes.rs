//! Which memory nodes a host names: options of `farmem run`, in the words in which they are given there. The
//! broker hands them on, and they hold where a run names no nodes.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use farmem::Failure;
use farmem_broker::named_nodes;
use farmem_supervisor::{ClusterSource, Destination, HostChoice};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::amount::NodeChoice;
use crate::arguments::{ApplicationArguments, Arguments, Command, HostArguments};
use crate::cluster;
use crate::node;

/// What is said of nodes, each under the name of its option. Secrets stay in their files, of which only the
/// names go from hand to hand.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct HostNodes {
    node: Vec<String>,
    cluster: Option<String>,
    cluster_ca: Option<PathBuf>,
    cluster_cert: Option<PathBuf>,
    cluster_key: Option<PathBuf>,
    cluster_login: Option<PathBuf>,
    key: Option<PathBuf>,
    certificate: Option<PathBuf>,
    certificate_key: Option<PathBuf>,
    authority: Option<PathBuf>,
    plain: bool,
    redundancy: Option<String>,
    transport: Option<String>,
}

impl HostNodes {
    /// What the command line of a host says, and of what it doesn't say what the configuration file does:
    /// nodes, the way to etcd, what protects the way to nodes, and the rest.
    pub(crate) fn or(self, file: Self) -> Self {
        let names_nodes = self.names_any();
        let reaches_etcd = [&self.cluster_ca, &self.cluster_cert, &self.cluster_key, &self.cluster_login]
            .iter()
            .any(|path| path.is_some());
        let is_protected = self.plain || self.key.is_some() || self.certificate.is_some();
        let (nodes, etcd, security) = (
            if names_nodes { &self } else { &file },
            if reaches_etcd || names_nodes { &self } else { &file },
            if is_protected { &self } else { &file },
        );
        Self {
            node: nodes.node.clone(),
            cluster: nodes.cluster.clone(),
            cluster_ca: etcd.cluster_ca.clone(),
            cluster_cert: etcd.cluster_cert.clone(),
            cluster_key: etcd.cluster_key.clone(),
            cluster_login: etcd.cluster_login.clone(),
            key: security.key.clone(),
            certificate: security.certificate.clone(),
            certificate_key: security.certificate_key.clone(),
            authority: security.authority.clone(),
            plain: security.plain,
            redundancy: self.redundancy.clone().or(file.redundancy.clone()),
            transport: self.transport.clone().or(file.transport.clone()),
        }
    }

    fn names_any(&self) -> bool {
        !self.node.is_empty() || self.cluster.is_some()
    }

    /// The text for the asker, if nodes are named.
    ///
    /// # Errors
    /// What is said makes no sense.
    pub(crate) fn text(mut self) -> Result<Option<String>, Failure> {
        if self == Self::default() {
            return Ok(None);
        }
        let unusable = |reason| Failure::Unusable(format!("what the host says of nodes: {reason}"));
        if !self.names_any() {
            return Err(unusable("no node and no cluster is named".to_owned()));
        }
        self.complete().map_err(unusable)?;
        let run = self.as_run().map_err(unusable)?;
        if run.cluster.is_none() {
            cluster::without(&run.etcd)?;
        }
        node::refuse_open(&run.node_security, &destinations(run.node))?;
        serde_json::to_string(&self).map(Some).map_err(|error| unusable(error.to_string()))
    }

    /// How it reads, for people.
    pub(crate) fn shown(&self) -> Option<String> {
        self.names_any().then(|| self.cluster.clone().unwrap_or_else(|| self.node.join(", ")))
    }

    /// Whoever reads it is in another folder.
    fn complete(&mut self) -> Result<(), String> {
        let absolute = |path: &Path| std::path::absolute(path).map_err(|error| error.to_string());
        for node in &mut self.node {
            let complete = match node.parse::<Destination>().map_err(|error| error.to_string())? {
                Destination::Unix(path) => Destination::Unix(absolute(&path)?),
                Destination::Shared(path) => Destination::Shared(absolute(&path)?),
                at @ Destination::Tcp { .. } => at,
            };
            *node = complete.to_string();
        }
        if let Some(cluster) = &mut self.cluster
            && let ClusterSource::File(path) = cluster.parse()?
        {
            *cluster = ClusterSource::File(absolute(&path)?).to_string();
        }
        let files = [
            &mut self.cluster_ca,
            &mut self.cluster_cert,
            &mut self.cluster_key,
            &mut self.cluster_login,
            &mut self.key,
            &mut self.certificate,
            &mut self.certificate_key,
            &mut self.authority,
        ];
        for path in files.into_iter().flatten() {
            *path = absolute(path)?;
        }
        Ok(())
    }

    /// As if it had been given on the command line of a run, so that the same is refused.
    fn as_run(&self) -> Result<ApplicationArguments, String> {
        let options = serde_json::to_value(self).and_then(serde_json::from_value::<Map<String, Value>>);
        let options = options.map_err(|error| error.to_string())?;
        let mut words = vec!["farmem".to_owned(), "run".to_owned()];
        for (name, value) in &options {
            words.extend(words_of(name, value));
        }
        words.extend(["--".to_owned(), "true".to_owned()]);
        match Arguments::try_parse_from(words) {
            Ok(Arguments { command: Command::Run(run) }) => Ok(run.application),
            Ok(_) => Err("it doesn't run a program".to_owned()),
            Err(error) => {
                let said = error.to_string();
                let complaint = said.lines().next().unwrap_or_default();
                Err(complaint.strip_prefix("error: ").unwrap_or(complaint).to_owned())
            }
        }
    }
}

impl From<&HostArguments> for HostNodes {
    fn from(arguments: &HostArguments) -> Self {
        let (etcd, security) = (&arguments.etcd, &arguments.node_security);
        let transport = arguments.transport.and_then(|transport| transport.to_possible_value());
        Self {
            node: arguments.node.iter().map(Destination::to_string).collect(),
            cluster: arguments.cluster.as_ref().map(ClusterSource::to_string),
            cluster_ca: etcd.cluster_ca.clone(),
            cluster_cert: etcd.cluster_cert.clone(),
            cluster_key: etcd.cluster_key.clone(),
            cluster_login: etcd.cluster_login.clone(),
            key: security.key.clone(),
            certificate: security.certificate.clone(),
            certificate_key: security.certificate_key.clone(),
            authority: security.authority.clone(),
            plain: security.plain,
            redundancy: arguments.redundancy.map(|redundancy| redundancy.to_string()),
            transport: transport.map(|value| value.get_name().to_owned()),
        }
    }
}

/// An option as it is given on a command line: once for each element of a list, not at all if it is absent.
fn words_of(name: &str, value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![format!("--{name}={text}")],
        Value::Array(elements) => elements.iter().flat_map(|element| words_of(name, element)).collect(),
        Value::Bool(true) => vec![format!("--{name}")],
        _ => Vec::new(),
    }
}

fn destinations(nodes: Vec<NodeChoice>) -> Vec<Destination> {
    let at = |node| match node {
        NodeChoice::None => None,
        NodeChoice::At(node) => Some(node),
    };
    nodes.into_iter().filter_map(at).collect()
}

/// The nodes that a run has named; none where it is to have none.
///
/// # Errors
/// It says both.
pub(crate) fn named(nodes: Vec<NodeChoice>) -> Result<Vec<Destination>, Failure> {
    if nodes.len() > 1 && nodes.contains(&NodeChoice::None) {
        return Err(Failure::Unusable("--node none stands alone; name nodes, or give none".to_owned()));
    }
    Ok(destinations(nodes))
}

/// What a run says of nodes, completed by what its host does if the run names none and doesn't refuse them.
/// The host, if it named the nodes.
///
/// # Errors
/// The broker can't be asked, or what it says makes no sense.
pub(crate) fn complete(run: &mut ApplicationArguments, host: &HostChoice) -> Result<Option<String>, Failure> {
    let HostChoice::At(socket) = host else { return Ok(None) };
    if !run.node.is_empty() || run.cluster.is_some() {
        return Ok(None);
    }
    let text = named_nodes(socket).map_err(|error| Failure::Unusable(format!("{error:#}")))?;
    let Some(text) = text else { return Ok(None) };
    let unusable = |reason: String| {
        Failure::Unusable(format!(
            "cannot use the nodes that the broker on {} names: {reason}; `--node none` does without",
            socket.display()
        ))
    };
    let said: HostNodes = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
    let said = said.as_run().map_err(unusable)?;
    run.node = said.node;
    run.cluster = said.cluster;
    if cluster::files(&run.etcd).is_empty() {
        run.etcd = said.etcd;
    }
    if run.node_security.is_silent() {
        run.node_security = said.node_security;
    }
    run.redundancy = run.redundancy.or(said.redundancy);
    run.transport = run.transport.or(said.transport);
    Ok(Some(format!("the broker on {} says so, and `--node none` does without", socket.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &str) -> ApplicationArguments {
        let words = format!("farmem run {words} -- true");
        match Arguments::try_parse_from(words.split_whitespace()).unwrap().command {
            Command::Run(run) => run.application,
            other => panic!("{other:?}"),
        }
    }

    fn host(words: &str) -> HostNodes {
        let words = format!("farmem host {words}");
        match Arguments::try_parse_from(words.split_whitespace()).unwrap().command {
            Command::Host(host) => HostNodes::from(&*host),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_host_says_comes_out_as_options_of_a_run() {
        let words = "--node 10.0.0.7:7431,unix:/x --key /k --redundancy mirror --transport tcp";
        let text = host(words).text().unwrap().unwrap();
        let said: HostNodes = serde_json::from_str(&text).unwrap();
        let (said, wanted) = (said.as_run().unwrap(), run(words));
        assert_eq!(format!("{said:?}"), format!("{wanted:?}"));
        assert_eq!(host("--pool 8G").text().unwrap(), None);
    }

    #[test]
    fn the_command_line_of_a_host_counts_before_its_file() {
        let file = || HostNodes {
            cluster: Some("etcds://a:1/k".to_owned()),
            cluster_ca: Some("/ca".into()),
            key: Some("/k".into()),
            redundancy: Some("mirror".to_owned()),
            ..HostNodes::default()
        };
        assert_eq!(host("").or(file()), file());
        let nodes = host("--node 10.0.0.7:7431 --redundancy 4+2").or(file());
        assert_eq!((nodes.cluster, nodes.cluster_ca), (None, None));
        assert_eq!((nodes.key, nodes.redundancy.as_deref()), (Some("/k".into()), Some("4+2")));
        let open = host("--plain").or(file());
        assert_eq!((open.key, open.plain, open.cluster_ca), (None, true, Some("/ca".into())));
    }

    #[test]
    fn files_are_named_so_that_every_folder_finds_them() {
        let here = std::env::current_dir().unwrap();
        let text = host("--cluster cluster.toml --key node.key").text().unwrap().unwrap();
        let said: HostNodes = serde_json::from_str(&text).unwrap();
        assert_eq!(said.cluster.as_deref(), here.join("cluster.toml").to_str());
        assert_eq!(said.key, Some(here.join("node.key")));
    }

    #[test]
    fn what_makes_no_sense_is_refused_when_the_host_starts() {
        let refusal = |nodes: HostNodes| match nodes.text() {
            Err(Failure::Unusable(sentence)) => sentence,
            other => panic!("{other:?}"),
        };
        let node = || HostNodes { node: vec!["10.0.0.7:7431".to_owned()], ..HostNodes::default() };
        assert!(refusal(node()).contains("give --key"));
        assert!(refusal(host("--key /k")).contains("no node and no cluster"));
        assert!(refusal(host("--node unix:/x --cluster-ca /ca")).contains("--cluster etcds"));
        let nodes = |text: &str| toml::from_str::<HostNodes>(text).unwrap();
        assert!(refusal(nodes("node = ['here']")).contains("neither HOST:PORT"));
        assert!(refusal(nodes("node = ['none']")).contains("neither HOST:PORT"));
        assert!(refusal(nodes("node = ['unix:/x']\nredundancy = 'all'")).contains("'all'"));
        assert!(
            refusal(nodes("node = ['unix:/x']\nkey = '/k'\nplain = true")).contains("cannot be used with")
        );
        assert!(refusal(nodes("node = ['unix:/x']\ncluster = 'x'")).contains("cannot be used with"));
        assert!(toml::from_str::<HostNodes>("nodes = ['unix:/x']").is_err());
    }

    #[test]
    fn a_run_that_names_nodes_or_refuses_them_asks_nobody() {
        let nowhere = HostChoice::At("/nowhere/host.socket".into());
        for words in ["--node none", "--node unix:/x", "--cluster x"] {
            assert_eq!(complete(&mut run(words), &nowhere).ok(), Some(None), "{words}");
        }
        assert!(complete(&mut run(""), &nowhere).is_err());
        assert_eq!(complete(&mut run(""), &HostChoice::None).ok(), Some(None));
        assert_eq!(named(run("--node none").node).ok(), Some(Vec::new()));
        assert!(named(run("--node none,unix:/x").node).is_err());
    }
}
