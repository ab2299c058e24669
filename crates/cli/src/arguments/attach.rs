//! Programs that run already: managed from now on, and left again.

use std::path::PathBuf;

use clap::Args;

use super::{ApplicationArguments, Progress, heading};
use crate::amount::parse_name;

/// Manage programs that run already, within a budget of local memory.
///
/// From now on, the process and its descendants, or all processes of a control group, keep at most the budget
/// in local memory. Memory above the budget leaves at a bounded rate; the command returns when they are
/// within it. The programs are not changed or restarted, and `farmem detach` undoes it. They must be 64-bit
/// programs.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem attach --local 512M 4711\n  farmem attach --local 25% --pool 2G --unit redis\n  farmem attach --local 1G \
                  --container 3f4e5d6c7b8a\n  farmem attach --local 1G --cgroup /sys/fs/cgroup/system.slice/redis.service\n\nSizes take K, M, G or T (of \
                  1024), or none for bytes. Percentages are of what this user may use."
)]
pub(crate) struct AttachArguments {
    #[command(flatten)]
    pub(crate) application: ApplicationArguments,
    #[command(flatten)]
    pub(crate) subject: SubjectArguments,
    // Last: the heading is for all that follows.
    #[command(flatten, next_help_heading = heading::WATCHING)]
    pub(crate) watching: WatchingArguments,
}

/// The programs to attach to.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct SubjectArguments {
    /// The process and its descendants
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) process: Option<u32>,
    /// All processes of this control group and of those below it
    ///
    /// Its directory, or its path below /sys/fs/cgroup.
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// All processes of this systemd unit
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) unit: Option<String>,
    /// All processes of this container: its ID, or a unique prefix of it
    #[arg(long, value_name = "ID", value_parser = parse_name)]
    pub(crate) container: Option<String>,
}

/// Bring back an application's far memory, and stop managing it.
///
/// Its processes go on without Farmem, and no part of Farmem stays in them. The command is refused when there
/// is not enough memory for what is far. Only root and the user who runs the application may do this.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem detach redis\n  farmem detach 4711 --json\n  sudo farmem detach --all"
)]
pub(crate) struct DetachArguments {
    /// The application's name, or the PID of its program
    #[arg(value_name = "NAME|PID", value_parser = parse_name, required_unless_present = "all")]
    pub(crate) name: Option<String>,
    /// All applications, one after the other
    ///
    /// An application that can't be detached is named, and the others are detached. A host that manages
    /// programs by rules leaves them alone from then on.
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) watching: WatchingArguments,
}

/// How progress is shown for programs that run already.
#[derive(Args, Debug)]
pub(crate) struct WatchingArguments {
    /// Show progress on standard error
    ///
    /// By default, only on a terminal.
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always"
    )]
    pub(crate) progress: Option<Progress>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
