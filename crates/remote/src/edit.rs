//! Changes of a cluster's text, by which everything that people wrote around them stays: comments, order, and
//! how it is laid out.

use toml_edit::{ArrayOfTables, DocumentMut, Table, TomlError, value};

use crate::cluster::{Cluster, ClusterError, ClusterNode, NodeState, Role};

/// A change of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// A node takes part, or takes part again.
    Join(Joining),
    /// The node of this name is to be emptied, and stays.
    Drain(String),
    /// The node of this name is no longer named.
    Leave(String),
}

/// A node that is to take part. Of one that is named already nothing needs to be said again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Joining {
    /// Its name, for people.
    pub name: String,
    /// Where it listens.
    pub address: Option<String>,
    /// What it is for; `memory` where nothing is said.
    pub role: Option<Role>,
    /// What it lends, as it is to be written there.
    pub size: Option<String>,
    /// The rack that it is in, as it is to be written there.
    pub rack: Option<String>,
}

/// Why a change can't be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EditError {
    /// What is there is no cluster, or what would be there.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// There is none of that name.
    #[error("it has no node {name}; its nodes are: {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names that are there.
        known: Vec<String>,
    },
    /// A node without an address.
    #[error("it has no node {0} yet; give --address HOST:PORT to add it")]
    NoAddress(String),
    /// Another node has the name.
    #[error(
        "{name} is in it already, with {what} {is}; take it out first (`farmem cluster leave`), or give the new one another name"
    )]
    Other {
        /// The name.
        name: String,
        /// What is not the same.
        what: &'static str,
        /// What it is there.
        is: String,
    },
    /// A node that lends nothing.
    #[error("{0} lends no memory, so there is nothing to empty")]
    LendsNothing(String),
    /// The nodes are not tables of their own.
    #[error("its nodes are written as one list; write each as a [[node]] of its own")]
    OneList,
}

impl Edit {
    /// The text after the change: the same where it is as it is wanted already.
    ///
    /// # Errors
    /// The text is no cluster's, the change doesn't fit it, or what would come of it is no cluster.
    pub fn apply(&self, text: &str) -> Result<String, EditError> {
        let cluster = Cluster::parse(text)?;
        let mut document: DocumentMut =
            text.parse().map_err(|error: TomlError| ClusterError::Syntax(error.message().to_owned()))?;
        let nodes = document
            .get_mut("node")
            .and_then(|nodes| nodes.as_array_of_tables_mut())
            .ok_or(EditError::OneList)?;
        match self {
            Self::Join(joining) => match find(&cluster, &joining.name) {
                Ok((at, node)) => {
                    joining.compare(node)?;
                    set_state(nodes, at, node, NodeState::Active);
                }
                Err(_) => nodes.push(joining.table()?),
            },
            Self::Drain(name) => {
                let (at, node) = find(&cluster, name)?;
                if !node.role.lends() {
                    return Err(EditError::LendsNothing(name.clone()));
                }
                set_state(nodes, at, node, NodeState::Drain);
            }
            Self::Leave(name) => {
                let (at, _) = find(&cluster, name)?;
                let left = take_out(nodes, at);
                if !left.is_empty() {
                    let after = document.trailing().as_str().unwrap_or_default().to_owned();
                    document.set_trailing(left + &after);
                }
            }
        }
        let changed = document.to_string();
        // Whoever follows it must be able to read it.
        Cluster::parse(&changed)?.roster()?;
        Ok(changed)
    }
}

fn find<'a>(cluster: &'a Cluster, name: &str) -> Result<(usize, &'a ClusterNode), EditError> {
    cluster.nodes.iter().enumerate().find(|(_, node)| node.name == name).ok_or_else(|| EditError::Unknown {
        name: name.to_owned(),
        known: cluster.nodes.iter().map(|node| node.name.clone()).collect(),
    })
}

impl Joining {
    /// Nothing may be said of a node that is not so.
    fn compare(&self, node: &ClusterNode) -> Result<(), EditError> {
        let other = |what, is: &Option<String>| {
            let is = is.clone().unwrap_or_else(|| "none".to_owned());
            Err(EditError::Other { name: self.name.clone(), what, is })
        };
        if self.address.is_some() && self.address != node.address {
            return other("address", &node.address);
        }
        if self.size.is_some() && self.size != node.size {
            return other("size", &node.size);
        }
        if self.rack.is_some() && self.rack != node.rack {
            return other("rack", &node.rack);
        }
        if self.role.is_some_and(|role| role != node.role) {
            return other("role", &Some(node.role.name().to_owned()));
        }
        Ok(())
    }

    fn table(&self) -> Result<Table, EditError> {
        let role = self.role.unwrap_or(Role::Memory);
        if role.lends() && self.address.is_none() {
            return Err(EditError::NoAddress(self.name.clone()));
        }
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        table.insert("name", value(&self.name));
        table.insert("role", value(role.name()));
        for (key, text) in [("address", &self.address), ("size", &self.size), ("rack", &self.rack)] {
            if let Some(text) = text {
                table.insert(key, value(text));
            }
        }
        Ok(table)
    }
}

/// Writes a node's state, unless it is that; what stands next to it stays.
fn set_state(nodes: &mut ArrayOfTables, at: usize, node: &ClusterNode, state: NodeState) {
    let Some(table) = nodes.get_mut(at).filter(|_| node.state != state) else { return };
    match table.get_mut("state").and_then(|item| item.as_value_mut()) {
        Some(known) => {
            let decor = known.decor().clone();
            *known = state.name().into();
            *known.decor_mut() = decor;
        }
        None => {
            table.insert("state", value(state.name()));
        }
    }
}

/// Takes a node out. The text before it that isn't about it stays before the next one, or is the answer when
/// it was the last. What stands right above a node is about it; above the first one it may be about the
/// cluster.
fn take_out(nodes: &mut ArrayOfTables, at: usize) -> String {
    let prefix = |table: &Table| {
        let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str());
        prefix.unwrap_or_default().to_owned()
    };
    let before = nodes.get(at).map(prefix).unwrap_or_default();
    nodes.remove(at);
    let kept = match before.rfind("\n\n") {
        _ if at == 0 => before,
        Some(end) => before[..=end].to_owned(),
        None => String::new(),
    };
    match nodes.get_mut(at) {
        Some(next) => {
            let after = prefix(next);
            // One empty line between them is enough.
            let after = if kept.is_empty() || kept.ends_with("\n\n") {
                after.trim_start_matches('\n')
            } else {
                &after
            };
            let after = if at > 0 && kept.is_empty() { format!("\n{after}") } else { after.to_owned() };
            next.decor_mut().set_prefix(kept + &after);
            String::new()
        }
        None => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# The cluster of the west wing.

# Runs programs.
[[node]]
name = "front"
role = "compute"

# Rack 3. Its fan is loud.
[[node]]
role = "memory"   # lends
name = "memory-1"
address = "10.0.0.7:7431"
size = "64G"

# -- new machines --

# Rack 4.
[[node]]
name = "memory-2"
role = "general"
address = "10.0.0.8:7431"
state = "drain"   # until Monday
# The end.
"#;

    fn drain(name: &str) -> Edit {
        Edit::Drain(name.to_owned())
    }

    fn leave(name: &str) -> Edit {
        Edit::Leave(name.to_owned())
    }

    fn join(name: &str, address: Option<&str>) -> Edit {
        let address = address.map(str::to_owned);
        Edit::Join(Joining { name: name.to_owned(), address, ..Joining::default() })
    }

    #[test]
    fn a_node_is_drained_and_used_again_and_nothing_else_changes() {
        let drained = drain("memory-1").apply(TEXT).unwrap();
        assert_eq!(drained, TEXT.replace("size = \"64G\"\n", "size = \"64G\"\nstate = \"drain\"\n"));
        assert_eq!(drain("memory-1").apply(&drained).as_ref(), Ok(&drained), "it is so already");
        let again = join("memory-2", None).apply(TEXT).unwrap();
        assert_eq!(again, TEXT.replace("\"drain\"", "\"active\""));
        assert_eq!(join("memory-1", Some("10.0.0.7:7431")).apply(TEXT).as_deref(), Ok(TEXT));
    }

    #[test]
    fn a_node_joins_after_the_others() {
        let joining = Joining {
            name: "memory-3".to_owned(),
            address: Some("10.0.0.9:7431".to_owned()),
            role: None,
            size: Some("8G".to_owned()),
            rack: Some("4".to_owned()),
        };
        let text = Edit::Join(joining).apply(TEXT).unwrap();
        let added = "\n[[node]]\nname = \"memory-3\"\nrole = \"memory\"\naddress = \"10.0.0.9:7431\"\nsize = \"8G\"\nrack = \"4\"\n";
        assert_eq!(text, TEXT.replace("# The end.\n", "") + added + "# The end.\n");
        let front = Joining { name: "front-2".to_owned(), role: Some(Role::Compute), ..Joining::default() };
        assert!(Edit::Join(front).apply(TEXT).unwrap().contains("name = \"front-2\"\nrole = \"compute\"\n"));
    }

    #[test]
    fn a_node_leaves_with_what_is_said_of_it_and_nothing_else() {
        let (_, rest) = TEXT.split_once("# Rack 3").unwrap();
        let (block, _) = rest.split_once("\n# -- new").unwrap();
        let without = leave("memory-1").apply(TEXT).unwrap();
        assert_eq!(without, TEXT.replace(&format!("# Rack 3{block}\n"), ""));
        // The last one, and what stands before and after it.
        let without = leave("memory-2").apply(TEXT).unwrap();
        assert!(without.ends_with("size = \"64G\"\n\n# -- new machines --\n# The end.\n"), "{without}");
        // The first one.
        let without = leave("front").apply(TEXT).unwrap();
        assert!(without.starts_with("# The cluster of the west wing.\n\n# Runs programs.\n"), "{without}");
        assert!(
            without.contains("# Rack 3. Its fan is loud.\n[[node]]\nrole = \"memory\"   # lends\n"),
            "{without}"
        );
        assert!(!without.contains("front"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        let refusal = |edit: Edit, text: &str| edit.apply(text).unwrap_err().to_string();
        assert!(refusal(drain("memory-9"), TEXT).contains("front, memory-1, memory-2"));
        assert!(refusal(drain("front"), TEXT).contains("nothing to empty"));
        assert!(refusal(join("memory-9", None), TEXT).contains("--address"));
        assert!(refusal(join("memory-1", Some("10.0.0.9:1")), TEXT).contains("10.0.0.7:7431"));
        assert!(refusal(join("memory-9", Some("10.0.0.7:7431")), TEXT).contains("twice"));
        assert!(refusal(join("memory-9", Some("here")), TEXT).contains("not the address of a node"));
        let one = leave("memory-2").apply(TEXT).unwrap();
        assert!(refusal(leave("memory-1"), &one).contains("no node in it has the role memory or general"));
        let list = "node = [{ name = \"a\", role = \"memory\", address = \"a:1\" }]";
        assert_eq!(drain("a").apply(list), Err(EditError::OneList));
        assert!(drain("a").apply("Dear Sir,").is_err());
    }
}
