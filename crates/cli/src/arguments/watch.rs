//! Looking at applications that run, and changing their limits.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farmem_web::{Address, HostName};

use super::heading;
use crate::amount::{Setting, parse_interval, parse_name, parse_setting};

/// Show the applications that run under Farmem now.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem stat redis --json\n  farmem stat redis --regions")]
pub(crate) struct StatArguments {
    /// Only applications with this name
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Show the processes of this application and their memory, region by region: what is local, far and hot,
    /// and how well it compresses
    ///
    /// NAME may also be the PID of the application's program.
    #[arg(long, requires = "name")]
    pub(crate) regions: bool,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what an application waits for and what would help.
///
/// The time that its threads waited for pages is divided by cause: pages in the pool, on memory nodes, on
/// disk; decompression (from a sample); other pages that had to leave first; memory touched for the first
/// time. Time spent waiting for a processor is not included: that looks the same with and without paging. The
/// estimate of how much local memory would help is based on how long pages are away before they come back.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem explain redis\n  farmem explain 4711 --over 5s --json")]
pub(crate) struct ExplainArguments {
    /// The application's name, or the PID of its program
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    /// Look only at the next TIME, such as 5s [default: all since the application's start]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) over: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Watch the applications that run under Farmem and change their limits.
///
/// FAULT/s is the number of faults served; WAITS the time that threads waited for pages, summed over threads;
/// AHEAD the share of far pages that were already there when they were needed. The lower part shows the
/// selected application. Keys: arrows, or j and k, select; Enter shows processes and regions; l, p, t, c and
/// w change local memory, pool, limit of far memory, swap cache and weight, as `farmem set` does; q quits.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem top\n  farmem top --once --interval 5s")]
pub(crate) struct TopArguments {
    /// Time between refreshes, such as 5s
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    pub(crate) interval: Duration,
    /// Print one screen to standard output, with rates over one interval, and exit
    #[arg(long)]
    pub(crate) once: bool,
}

/// Show the applications that run under Farmem in a browser and to Prometheus.
///
/// One page with live charts of the last ten minutes: how each application is doing, why, and what would
/// help. The same figures for Prometheus are at /metrics. Without a token, nothing can be changed, and only
/// this machine has access. With one, anybody who knows it can change limits as `farmem set` does.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem web\n  head -c 24 /dev/urandom | base64 >token; chmod 600 token; farmem web --listen 0.0.0.0:7430 --token token"
)]
pub(crate) struct WebArguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "127.0.0.1:7430")]
    pub(crate) listen: Address,
    /// File with the token that allows changes and requests from other machines
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
}

/// The names by which Prometheus knows the machine.
#[derive(Args, Debug, Default)]
pub(crate) struct MetricsHosts {
    /// Names by which Prometheus may ask for the metrics
    ///
    /// They are separated by commas. Addresses are always allowed.
    #[arg(
        long = "metrics-host",
        value_name = "NAME[,…]",
        value_delimiter = ',',
        requires = "metrics",
        help_heading = heading::WATCHING
    )]
    pub(crate) names: Vec<HostName>,
}

/// Change the limits of an application while it runs.
///
/// Either all limits change or none. With more local memory, pages come back automatically, the most
/// recently stored ones first. Only root and the user who runs the application may change its limits.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem set redis local=512M\n  farmem set 4711 local=25% pool=2G weight=2\n\nLimits:\n  \
                  local=SIZE|N%             RAM of the application, as --local\n  pool=[MIN-]SIZE           limit of \
                  the compressed pool, as --pool\n  partition=SIZE            limit of far memory, as --partition\n  cache=SIZE                limit of the swap cache, as \
                  --cache\n  weight=WEIGHT             weight against others, as --weight"
)]
pub(crate) struct SetArguments {
    /// The application's name, or the PID of its program
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    /// The new limits
    #[arg(value_name = "LIMIT=VALUE", required = true, value_parser = parse_setting)]
    pub(crate) settings: Vec<Setting>,
    /// Print the application's figures afterwards as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
