//! The cluster file: which machines there are, and what each is for (COMEX §3). The same file lies on all of
//! them.
//!
//! ```toml
//! [[node]]
//! name = "rack1-3"
//! address = "10.0.1.3:7411"
//! role = "memory"        # compute lends nothing; memory and general are the same here
//! size = "64G"           # what it lends when `farmem node --cluster` starts it
//! rack = "3"             # the rack that it tells, when it is started so
//! state = "drain"        # it is to be emptied; left out, it is used
//! ```

use std::collections::BTreeSet;

use farmem_transport::Destination;
use serde::Deserialize;

use crate::membership::Roster;

/// Numbers of nodes have 16 bits.
const MOST_NODES: usize = 1 << 16;

/// What a machine is for. Nothing but whether it lends follows from that: any machine may run programs, and
/// `general` tells people that this one does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It runs programs, and lends nothing.
    Compute,
    /// It lends its memory, and is there for nothing else.
    Memory,
    /// It does both.
    General,
}

impl Role {
    /// Whether others may use its memory.
    pub const fn lends(self) -> bool {
        matches!(self, Self::Memory | Self::General)
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::General => "general",
        }
    }
}

/// What is to be done with a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It is used.
    #[default]
    Active,
    /// It gets nothing new, and what it holds goes to others.
    Drain,
}

impl NodeState {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Drain => "drain",
        }
    }
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterNode {
    /// Its name, for people.
    pub name: String,
    /// Where its node listens, as `HOST:PORT`; compute nodes need none.
    #[serde(default)]
    pub address: Option<String>,
    /// What it is for.
    pub role: Role,
    /// What it lends, as it is written there. A node that runs may have been told otherwise, and says itself
    /// what it lends.
    #[serde(default)]
    pub size: Option<String>,
    /// The rack that it is in, as it is written there. A node that runs says itself where it is.
    #[serde(default)]
    pub rack: Option<String>,
    /// What is to be done with it.
    #[serde(default)]
    pub state: NodeState,
}

/// All machines, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// They.
    #[serde(default, rename = "node")]
    pub nodes: Vec<ClusterNode>,
}

/// What is wrong with a cluster file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClusterError {
    /// It isn't written as it should be.
    #[error("{0}")]
    Syntax(String),
    /// Two machines have one name or one address.
    #[error("{0} is listed twice")]
    Twice(String),
    /// A machine that lends memory has no address.
    #[error("{0} lends memory and so needs an address, as HOST:PORT")]
    NoAddress(String),
    /// An address is none.
    #[error("{address} is not the address of a node: {reason}")]
    Address {
        /// As it is written.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There are more than can be numbered.
    #[error("there are more than {MOST_NODES} nodes")]
    TooMany,
    /// Nobody lends anything.
    #[error("no node in it has the role memory or general")]
    Empty,
}

impl Cluster {
    /// The cluster that a text describes.
    ///
    /// # Errors
    /// It describes none that makes sense.
    pub fn parse(text: &str) -> Result<Self, ClusterError> {
        let cluster: Self =
            toml::from_str(text).map_err(|error| ClusterError::Syntax(error.message().to_owned()))?;
        if cluster.nodes.len() > MOST_NODES {
            return Err(ClusterError::TooMany);
        }
        let mut seen = BTreeSet::new();
        for node in &cluster.nodes {
            for word in std::iter::once(&node.name).chain(&node.address) {
                if !seen.insert(word) {
                    return Err(ClusterError::Twice(word.clone()));
                }
            }
            if node.role.lends() && node.address.is_none() {
                return Err(ClusterError::NoAddress(node.name.clone()));
            }
        }
        if cluster.lenders().next().is_none() {
            return Err(ClusterError::Empty);
        }
        Ok(cluster)
    }

    /// Those that lend memory, and their addresses.
    pub fn lenders(&self) -> impl Iterator<Item = (&ClusterNode, &str)> {
        let lenders = self.nodes.iter().filter(|node| node.role.lends());
        lenders.filter_map(|node| Some((node, node.address.as_deref()?)))
    }

    /// Those that lend memory, as they are to be used.
    ///
    /// # Errors
    /// One has no proper address, or two have the same.
    pub fn roster(&self) -> Result<Roster, ClusterError> {
        let mut nodes: Vec<(Destination, bool)> = Vec::new();
        for (node, address) in self.lenders() {
            let parsed: Destination = address.parse().map_err(|error: farmem_transport::NoDestination| {
                ClusterError::Address { address: address.to_owned(), reason: error.to_string() }
            })?;
            if nodes.iter().any(|(known, _)| *known == parsed) {
                return Err(ClusterError::Twice(address.to_owned()));
            }
            nodes.push((parsed, node.state == NodeState::Drain));
        }
        Ok(Roster::new(nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [[node]]
        name = "front"
        role = "compute"
        [[node]]
        name = "big"
        address = "10.0.0.2:7411"
        role = "memory"
        size = "64G"
        [[node]]
        name = "both"
        address = "10.0.0.3:7411"
        role = "general"
    "#;

    #[test]
    fn nodes_that_lend_are_used_unless_they_are_to_be_emptied() {
        let cluster = Cluster::parse(TEXT).unwrap();
        let lenders: Vec<&str> = cluster.lenders().map(|(_, address)| address).collect();
        assert_eq!(lenders, ["10.0.0.2:7411", "10.0.0.3:7411"]);
        assert_eq!(cluster.nodes[1].size.as_deref(), Some("64G"));
        let drained = TEXT.replace("size =", "state = \"drain\"\n size =");
        let roster = Cluster::parse(&drained).unwrap().roster().unwrap();
        let active: Vec<String> = roster.active().map(Destination::to_string).collect();
        assert_eq!((roster.all().count(), active), (2, vec!["10.0.0.3:7411".to_owned()]));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        let twice = TEXT.replace("10.0.0.3", "10.0.0.2");
        assert_eq!(Cluster::parse(&twice), Err(ClusterError::Twice("10.0.0.2:7411".to_owned())));
        let nowhere = "[[node]]\nname = \"a\"\nrole = \"memory\"";
        assert_eq!(Cluster::parse(nowhere), Err(ClusterError::NoAddress("a".to_owned())));
        assert_eq!(Cluster::parse("[[node]]\nname = \"a\"\nrole = \"compute\""), Err(ClusterError::Empty));
        let odd = Cluster::parse(&TEXT.replace("10.0.0.2:7411", "here")).unwrap();
        assert!(matches!(odd.roster(), Err(ClusterError::Address { .. })));
        assert!(matches!(Cluster::parse(&TEXT.replace("size", "state")), Err(ClusterError::Syntax(_))));
        assert!(matches!(Cluster::parse("node = 3"), Err(ClusterError::Syntax(_))));
        assert!(matches!(Cluster::parse(&TEXT.replace("size", "sise")), Err(ClusterError::Syntax(_))));
    }
}
