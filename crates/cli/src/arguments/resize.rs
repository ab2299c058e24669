//! Making an application small while nobody uses it, and large again.

use std::time::Duration;

use clap::Args;
use farmem_page::ByteCount;

use super::attach::WatchingArguments;
use crate::amount::{parse_budget, parse_interval, parse_name};

/// Make an idle application small, and remember how large it was.
///
/// Its pages move to its pool, and on to memory nodes and disk where it has those. It goes on running: what
/// it touches comes back, and other pages leave for it. Without --to it is left 4 MiB for each of its
/// processes, with which one that waits for work hardly ever waits for a page. What can't leave, or has no
/// room to go to, stays, and the budget rises again by as much: no program is ended for having been shrunk.
/// `farmem grow` gives it back its budget. The command returns when the application is small, or when for two
/// seconds nothing more has left. Only root and the user who runs the application may do this.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem shrink notebook\n  farmem shrink 4711 --to 64M --timeout 10s --json\n\nExit status: 0 it is small, 1 it \
                  isn't as small as --to said, or not in time, 2 it can't be shrunk."
)]
pub(crate) struct ShrinkArguments {
    /// The application's name, or the PID of its program
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    /// RAM that it is left, all its processes together [default: 4M for each process]
    #[arg(long, value_name = "SIZE", value_parser = parse_budget)]
    pub(crate) to: Option<ByteCount>,
    #[command(flatten)]
    pub(crate) watching: ResizeWatching,
}

/// Give an application that was shrunk its budget again.
///
/// The command returns when the budget is raised. Pages come back when the program touches them, and by
/// themselves meanwhile, those that left last first, as far as the budget has room. A budget that followed
/// the program (--local auto) does so again. Only root and the user who runs the application may do this.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem grow notebook\n  farmem grow notebook --fetch\n  farmem grow 4711 --to 2G --json\n\nExit status: 0 done, \
                  1 not in time, 2 it can't grow."
)]
pub(crate) struct GrowArguments {
    /// The application's name, or the PID of its program
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    /// RAM that it may use, all its processes together [default: what it had before it was shrunk]
    #[arg(long, value_name = "SIZE", value_parser = parse_budget)]
    pub(crate) to: Option<ByteCount>,
    /// Return when all that there is room for has come back
    #[arg(long)]
    pub(crate) fetch: bool,
    #[command(flatten)]
    pub(crate) watching: ResizeWatching,
}

/// How long it is waited for, and how it is told what becomes of it.
#[derive(Args, Debug)]
pub(crate) struct ResizeWatching {
    /// Time to wait at most, from 100ms to 1h; what was begun goes on afterwards
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "60s")]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) shown: WatchingArguments,
}
