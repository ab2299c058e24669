//! Programs that run already: managed from now on, and left again.

use std::path::PathBuf;

use clap::Args;

use super::{ApplicationArguments, Progress, heading};
use crate::amount::parse_name;

/// Manage programs that run already, within a budget of local memory.
///
/// The process and all that comes of it, or all of a control group, keep at most the budget in local memory
/// from now on. What is above it leaves at a bounded pace; the command returns when they are within it.
/// Nothing in them is changed or restarted, and `farmem detach` undoes it. They must be programs of 64 bits.
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

/// What is attached to.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct SubjectArguments {
    /// The process, with all that comes of it
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) process: Option<u32>,
    /// All processes of this control group, and of those below it
    ///
    /// Its folder, or its path below /sys/fs/cgroup.
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// All processes of this unit of systemd
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) unit: Option<String>,
    /// All processes of this container: its ID, or as much of it as is unique
    #[arg(long, value_name = "ID", value_parser = parse_name)]
    pub(crate) container: Option<String>,
}

/// Bring back all that is far of an application, and leave it.
///
/// Its processes go on without Farmem, and no part of Farmem stays in them. It is refused when there is no
/// memory for what is far. Only root and the user who runs the application may do this.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem detach redis\n  farmem detach 4711 --json")]
pub(crate) struct DetachArguments {
    /// The application's name, or the PID of its program
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) watching: WatchingArguments,
}

/// How it is told what becomes of programs that run already.
#[derive(Args, Debug)]
pub(crate) struct WatchingArguments {
    /// Show on standard error how it goes
    ///
    /// Without this it is shown on a terminal only.
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always"
    )]
    pub(crate) progress: Option<Progress>,
    /// Print what came of it as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
