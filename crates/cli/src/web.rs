//! `farmem web`, and `--metrics` of daemons: what happens, by HTTP.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use farmem::Failure;
use farmem_supervisor::SideService;
use farmem_transport::read_secret;
use farmem_web::{Address, HostName, Measure, Measures, Options, Site};

use crate::amount::parse_setting;
use crate::arguments::WebArguments;
use crate::log;
use crate::set;
#[cfg(test)]
use crate::{host, node};

/// Fewer letters can be guessed.
const LEAST_TOKEN: usize = 16;
/// A daemon's figures are updated this often.
const PERIOD: Duration = Duration::from_millis(500);

/// Serves the page until a signal ends the process.
pub(crate) fn web(arguments: &WebArguments) -> Result<ExitCode, Failure> {
    let token = arguments.token.as_deref().map(read_token).transpose()?;
    let options = Options {
        listen: arguments.listen.clone(),
        names: Vec::new(),
        token,
        change: Some(change),
        has_page: true,
        shows_applications: true,
        measures: Measures::default(),
    };
    let site = bind(options)?;
    farmem::say(&format!("farmem web: {}", site.address()?));
    site.serve()?;
    Ok(ExitCode::SUCCESS)
}

fn bind(options: Options) -> Result<Site, Failure> {
    Site::bind(options).map_err(|error| Failure::Unusable(format!("{error:#}")))
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let unusable =
        |reason: String| Failure::Unusable(format!("cannot use --token {}: {reason}", path.display()));
    let text = read_secret(path).map_err(|error| Failure::Unusable(format!("--token: {error}")))?;
    let token = text.trim();
    if token.len() < LEAST_TOKEN || !token.chars().all(|letter| letter.is_ascii_graphic()) {
        return Err(unusable(format!(
            "it must hold one word of at least {LEAST_TOKEN} letters and digits, as from `head -c 24 /dev/urandom | base64`"
        )));
    }
    Ok(token.to_owned())
}

/// As a key of `farmem top` does.
pub(crate) fn change(process: u32, setting: &str) -> Result<String, String> {
    let setting = parse_setting(setting)?;
    set::change(&process.to_string(), &[setting])
        .map(|report| set::sentence(&report))
        .map_err(|error| error.to_string())
}

/// A daemon's own figures, for whoever asks at its address.
pub(crate) struct Metrics {
    measures: Measures,
    due: Instant,
}

impl Metrics {
    /// Answers at that address from now on, while the calling thread goes on.
    pub(crate) fn begin(
        listen: &Address,
        names: &[HostName],
        shows_applications: bool,
    ) -> Result<Self, Failure> {
        let measures = Measures::default();
        let options = Options {
            listen: listen.clone(),
            names: names.to_vec(),
            token: None,
            change: None,
            has_page: false,
            shows_applications,
            measures: Arc::clone(&measures),
        };
        let site = bind(options)?;
        log::tell(&format!("farmem: metrics on {}", site.address()?));
        site.serve_beside()?;
        Ok(Self { measures, due: Instant::now() })
    }

    /// Updates the figures if it is time to.
    pub(crate) fn tell(&mut self, now: impl FnOnce() -> Vec<Measure>) {
        if Instant::now() >= self.due {
            *self.measures.lock().unwrap_or_else(PoisonError::into_inner) = now();
            self.due = Instant::now() + PERIOD;
        }
    }
}

/// The figures of one run, for whoever asks at that address: a service that runs next to its supervisor.
pub(crate) fn side_service(listen: &Address, names: &[HostName]) -> Result<SideService, Failure> {
    let site = Arc::new(bind(Options {
        listen: listen.clone(),
        names: names.to_vec(),
        token: None,
        change: None,
        has_page: false,
        shows_applications: false,
        measures: Measures::default(),
    })?);
    log::tell(&format!("farmem: metrics on {}", site.address()?));
    let left = Arc::clone(&site);
    Ok(SideService::new(move |own| site.serve_until_ended(move || own.reports()), move || left.leave()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use farmem_client::Report;
    use farmem_web::open_metrics;

    use super::*;

    /// The names of the samples that are told of these.
    fn names(reports: &[Report], measures: &[Measure]) -> BTreeSet<String> {
        let text = open_metrics(reports, measures);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
    }

    #[test]
    fn the_dashboard_shows_all_that_hosts_and_nodes_tell_and_names_nothing_that_nobody_tells() {
        let dashboard: serde_json::Value =
            serde_json::from_str(include_str!("../../../docs/grafana-dashboard.json")).expect("JSON");
        let daemons = names(&[], &[host::every_measure(), node::every_measure()].concat());
        let applications = names(&[Report::default()], &[]);
        let panels = dashboard["panels"].as_array().expect("panels");
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let shown: BTreeSet<&str> = targets
            .flat_map(|target| {
                let expression = target["expr"].as_str().expect("an expression");
                expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            })
            .filter(|word| word.starts_with("farmem_"))
            .collect();
        for name in &shown {
            assert!(applications.contains(*name) || daemons.contains(*name), "nobody tells {name}");
        }
        let links =
            ["farmem_link_in_bytes_total", "farmem_link_out_bytes_total", "farmem_node_lacking_bytes"];
        for name in daemons.iter().map(String::as_str).chain(links) {
            assert!(shown.contains(name), "{name} is on no panel");
        }
    }

    #[test]
    fn a_token_that_can_be_guessed_or_read_by_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (text, is_good) in
            [("0123456789abcdef\n", true), ("short", false), ("two words of some length", false)]
        {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            assert_eq!(read_token(&path).is_ok(), is_good, "{text}");
        }
        std::fs::write(&path, "0123456789abcdef").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(read_token(&path).is_err());
        assert!(read_token(&folder.path().join("nothing")).is_err());
    }
}
