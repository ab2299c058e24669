//! Looking at applications that run, and changing their limits.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farmem_web::{Address, HostName};

use crate::amount::{Setting, parse_interval, parse_name, parse_setting};

/// Show the applications that run under Farmem now.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem stat redis --json\n  farmem stat redis --regions")]
pub(crate) struct StatArguments {
    /// Only the applications of this name
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Its processes and their regions: what is local, what is far, how hot, how well packed. Of the one application with this name, or this process number
    #[arg(long, requires = "name")]
    pub(crate) regions: bool,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tell what an application waits for, and what would help.
///
/// The time that its threads waited for pages is divided by cause: pages in the pool, on memory nodes, on disk; unpacking (from a sample); other
/// pages that had to leave first; memory touched for the first time. Waiting for a processor is no part of it: that looks the same with and without
/// paging. How much local memory would help is estimated from how long pages are away before they come back.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem explain redis\n  farmem explain 4711 --over 5s --json")]
pub(crate) struct ExplainArguments {
    /// The application's name, or its program's process number
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    /// Look at what happens in so long a time from now on [default: at all since its start]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) over: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Watch the applications that run under Farmem, and change their limits.
///
/// FAULT/s are faults served; WAITS is the time that threads waited for pages, summed over them; AHEAD the part of the far pages that were there
/// when they were wanted. Below stands more of the selected application. Keys: arrows or j and k select; l, p and w change local memory, pool
/// and weight, as `farmem set` does; q ends it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem top\n  farmem top --once --interval 5s")]
pub(crate) struct TopArguments {
    /// Time from one look to the next
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    pub(crate) interval: Duration,
    /// Print one screen to standard output, with rates over one interval, and end
    #[arg(long)]
    pub(crate) once: bool,
}

/// Show the applications that run under Farmem in a browser, and to Prometheus.
///
/// One page with live charts of the last ten minutes: how each application is doing, why, and what would help. The same figures for Prometheus are at
/// /metrics. Without a token nothing can be changed, and only this machine is let in; with one, who knows it can change limits as `farmem set` does.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem web\n  head -c 24 /dev/urandom | base64 >token; chmod 600 token; farmem web --listen 0.0.0.0:7430 --token token"
)]
pub(crate) struct WebArguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "127.0.0.1:7430")]
    pub(crate) listen: Address,
    /// File with the token that allows changes, and requests from other machines
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
}

/// How Prometheus calls the machine.
#[derive(Args, Debug, Default)]
pub(crate) struct MetricsHosts {
    /// Names by which Prometheus asks for --metrics, beside addresses; several are separated by commas
    #[arg(long = "metrics-host", value_name = "NAME", value_delimiter = ',', requires = "metrics")]
    pub(crate) names: Vec<HostName>,
}

/// Change the limits of an application while it runs.
///
/// Either all of them change or none. With more local memory, pages come back by themselves, the most recently stored ones
/// first. Only the user who runs the application, and root, may change its limits.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem set redis local=512M\n  farmem set 4711 local=25% pool=2G weight=2\n\nLimits:\n  \
                  local=SIZE|PERCENT%       local memory to keep, as --local\n  pool=[GUARANTEED-]SIZE    limit of \
                  the compressed pool, as --pool\n  partition=SIZE            limit of far memory, as --partition\n  cache=SIZE                limit of the swap cache, as \
                  --cache\n  weight=WEIGHT             part against others, as --weight"
)]
pub(crate) struct SetArguments {
    /// The application's name, or its program's process number
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    /// The new limits
    #[arg(value_name = "LIMIT=VALUE", required = true, value_parser = parse_setting)]
    pub(crate) settings: Vec<Setting>,
    /// Print how the application is afterwards, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
