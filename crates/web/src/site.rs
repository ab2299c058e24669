//! The HTTP server.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Query, Request, State as Shared};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use farmem_client::{Report, applications};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};

use crate::address::{Address, Bound, HostName, Hosts, is_same_secret};
use crate::connections::Bounded;
use crate::inside;
use crate::metrics::{self, Measure, Unit};
use crate::state::State;
use crate::watch::Watch;

/// The page: one file, which asks for nothing from anywhere else.
const PAGE: &str = include_str!("page.html");
/// The longest request to change a limit.
const MOST_BODY_BYTES: usize = 4096;
/// Nothing of the page may come from, or go, elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Changes a limit of the application of a process, as `farmem set PID LIMIT=VALUE` would: what became of it,
/// in a sentence, or why not.
pub type Change = fn(u32, &str) -> Result<String, String>;
/// Figures of the process that is asked, as they are now.
pub type Measures = Arc<Mutex<Vec<Measure>>>;

/// What a site shows.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens.
    pub listen: Address,
    /// Names by which it is asked, in addition to addresses and the machine's name for itself.
    pub names: Vec<HostName>,
    /// Whoever knows this may change limits. From other machines, only those who know it are let in.
    pub token: Option<String>,
    /// What changes them.
    pub change: Option<Change>,
    /// Whether there is a page, or metrics alone. These are for everybody who reaches the address.
    pub has_page: bool,
    /// Whether the applications of this machine are shown.
    pub shows_applications: bool,
    /// More figures.
    pub measures: Measures,
}

impl Options {
    /// Which hosts requests may name.
    fn hosts(&self) -> Hosts {
        match (&self.listen, &self.token) {
            (Address::Unix(_), _) => Hosts::Any,
            (Address::Tcp(_), _) if self.listen.is_local() => Hosts::Local(self.names.clone()),
            // No page of others' knows the token.
            (Address::Tcp(_), Some(_)) => Hosts::Any,
            (Address::Tcp(_), None) => Hosts::Addresses(self.names.clone()),
        }
    }
}

/// A site that listens.
#[derive(Debug)]
pub struct Site {
    options: Options,
    bound: Bound,
}

struct Parts {
    options: Options,
    watch: Arc<Watch>,
}

impl Site {
    /// Begins to listen.
    ///
    /// # Errors
    /// A sentence: the address can't be had, or others than this machine would be let in to the page.
    pub fn bind(options: Options) -> Result<Self> {
        if options.has_page && !options.listen.is_local() && options.token.is_none() {
            bail!(
                "{} can be reached from other machines, and what runs here is not for everybody; give --token FILE, or listen on 127.0.0.1",
                options.listen
            );
        }
        let bound = options.listen.bind()?;
        Ok(Self { options, bound })
    }

    /// Where it is found, with the port that it got.
    ///
    /// # Errors
    /// The kernel doesn't say.
    pub fn address(&self) -> Result<Address> {
        self.bound.address()
    }

    /// Nobody will answer here any more: takes away the file of a socket.
    pub fn leave(&self) {
        if let Bound::Unix(_, path) = &self.bound {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Serves in threads of its own for as long as the process lives. They take no signal.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn serve_beside(self) -> Result<()> {
        let all = nix::sys::signal::SigSet::all();
        let before = all.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
        let started = thread::Builder::new().name("farmem-http".to_owned()).spawn(move || {
            if let Err(error) = self.serve() {
                // Nobody may read there any more: that must not end the process which is served here.
                let _ = writeln!(std::io::stderr(), "farmem: the HTTP server has ended: {error:#}");
            }
        });
        before.thread_set_mask()?;
        started.context("cannot start a thread for the HTTP server")?;
        Ok(())
    }

    /// Serves for as long as the process lives.
    ///
    /// # Errors
    /// The server can't go on.
    pub fn serve(self) -> Result<()> {
        let Self { options, bound } = self;
        let watch = Arc::new(Watch::default());
        if options.shows_applications {
            look_beside(&watch, applications, Arc::default())?;
        }
        let routes = routes(Arc::new(Parts { options, watch }));
        runtime()?.block_on(answer(bound, routes))
    }

    /// Serves in threads of its own until it is ended, with what `look` says instead of all applications. The
    /// threads take no signal that the caller doesn't.
    ///
    /// # Errors
    /// There is no thread or descriptor to be had.
    pub fn serve_until_ended(
        &self,
        look: impl Fn() -> Vec<Report> + Send + 'static,
    ) -> Result<Box<dyn FnOnce() + Send>> {
        let bound = self.bound.try_clone()?;
        let watch = Arc::new(Watch::default());
        let is_ending = Arc::new(AtomicBool::new(false));
        let looking = look_beside(&watch, look, Arc::clone(&is_ending))?;
        let routes = routes(Arc::new(Parts { options: self.options.clone(), watch }));
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let runtime = runtime()?;
        let answering = thread::Builder::new().name("farmem-http".to_owned()).spawn(move || {
            runtime.spawn(answer(bound, routes));
            // It is dropped when it is to end, and what it answers with it.
            let _ = runtime.block_on(ended);
        });
        let answering = answering.context("cannot start a thread for the HTTP server")?;
        Ok(Box::new(move || {
            is_ending.store(true, Ordering::Release);
            drop(end);
            looking.thread().unpark();
            // One that has panicked has ended as well.
            let _ = (looking.join(), answering.join());
        }))
    }
}

/// A thread that looks at applications.
fn look_beside(
    watch: &Arc<Watch>,
    look: impl Fn() -> Vec<Report> + Send + 'static,
    is_ending: Arc<AtomicBool>,
) -> Result<thread::JoinHandle<()>> {
    let watch = Arc::clone(watch);
    thread::Builder::new()
        .name("farmem-watch".to_owned())
        .spawn(move || watch.look_on(look, &is_ending))
        .context("cannot start a thread that looks at applications")
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(4)
        .build()?)
}

async fn answer(bound: Bound, routes: Router) -> Result<()> {
    match bound {
        Bound::Tcp(listener) => axum::serve(Bounded::new(TcpListener::from_std(listener)?), routes).await?,
        Bound::Unix(listener, _path) => {
            axum::serve(Bounded::new(UnixListener::from_std(listener)?), routes).await?
        }
    }
    Ok(())
}

fn routes(parts: Arc<Parts>) -> Router {
    let mut router = Router::new().route("/metrics", get(metrics_of));
    if parts.options.has_page {
        router = router
            .route("/api/state", get(state))
            .route("/api/processes", get(processes))
            .route("/api/regions", get(regions))
            .route("/api/set", post(set));
    }
    // Only the page itself, which shows nothing, is for everybody.
    let mut router = router.layer(middleware::from_fn_with_state(Arc::clone(&parts), let_in));
    if parts.options.has_page {
        router = router.route("/", get(|| async { Html(PAGE) }));
    }
    router
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&parts), guard))
        .with_state(parts)
}

/// Refuses what was meant for another host, and tells browsers what a page may do.
async fn guard(Shared(parts): Shared<Arc<Parts>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let mut response = match parts.options.hosts().admit(host) {
        true => next.run(request).await,
        false => (StatusCode::MISDIRECTED_REQUEST, "this is not that host\n").into_response(),
    };
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let headers = headers.map(|(name, value): (HeaderName, _)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

/// From other machines, only those who know the token, if there is one.
async fn let_in(Shared(parts): Shared<Arc<Parts>>, request: Request<Body>, next: Next) -> Response {
    let options = &parts.options;
    if options.listen.is_local() || options.token.is_none() || parts.knows_token(request.headers()) {
        return next.run(request).await;
    }
    refused()
}

fn refused() -> Response {
    let headers = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, headers, "the token is missing, or is another one\n").into_response()
}

impl Parts {
    fn knows_token(&self, headers: &HeaderMap) -> bool {
        let given =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        match (&self.options.token, given) {
            (Some(token), Some(given)) => is_same_secret(token, given),
            _ => false,
        }
    }

    /// Any user of this machine reaches a port: they see how applications do, but only those who know the
    /// token, or may write to the socket's file, see where their memory lies.
    fn tells_addresses(&self, headers: &HeaderMap) -> bool {
        matches!(self.options.listen, Address::Unix(_)) || self.knows_token(headers)
    }

    fn reports(&self) -> Vec<Report> {
        self.watch.sight().applications.iter().map(|seen| seen.now.clone()).collect()
    }
}

async fn metrics_of(Shared(parts): Shared<Arc<Parts>>) -> impl IntoResponse {
    let mut measures = parts.options.measures.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if parts.options.shows_applications {
        measures.push(Measure {
            name: "applications_left_out",
            meaning: "Applications that run but report no figures",
            unit: Unit::Count,
            is_total: false,
            value: parts.watch.sight().left_out as f64,
        });
    }
    ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics::text(&parts.reports(), &measures))
}

#[derive(Debug, Deserialize)]
struct Since {
    #[serde(default)]
    since: u64,
}

async fn state(
    Shared(parts): Shared<Arc<Parts>>,
    Query(Since { since }): Query<Since>,
    headers: HeaderMap,
) -> Response {
    let is_writable = parts.options.token.is_some() && parts.options.change.is_some();
    let state = State::new(&parts.watch.sight(), since, is_writable, parts.knows_token(&headers));
    as_json(&state)
}

fn as_json(answer: &impl Serialize) -> Response {
    match serde_json::to_string(answer) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The program of an application, by its number.
#[derive(Debug, Deserialize)]
struct Application {
    application: u32,
}

/// One of its processes.
#[derive(Debug, Deserialize)]
struct Process {
    application: u32,
    process: u32,
}

async fn processes(Query(Application { application }): Query<Application>) -> Response {
    looked(move || inside::processes_of(application)).await
}

async fn regions(
    Shared(parts): Shared<Arc<Parts>>,
    Query(Process { application, process }): Query<Process>,
    headers: HeaderMap,
) -> Response {
    let with_addresses = parts.tells_addresses(&headers);
    looked(move || inside::regions_of(application, process, with_addresses)).await
}

/// What an application answers, which may take it a second: others are answered meanwhile.
async fn looked<T: Serialize + Send + 'static>(
    look: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Response {
    match tokio::task::spawn_blocking(look).await {
        Ok(Ok(found)) => as_json(&found),
        Ok(Err(reason)) => (StatusCode::UNPROCESSABLE_ENTITY, reason).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    process: u32,
    setting: String,
}

/// Changes a limit. What pages of others make a browser send has no token.
async fn set(Shared(parts): Shared<Arc<Parts>>, headers: HeaderMap, body: String) -> Response {
    let Some(change) = parts.options.change.filter(|_| parts.options.token.is_some()) else {
        return (
            StatusCode::FORBIDDEN,
            "limits can be changed where `farmem web` was started with --token\n",
        )
            .into_response();
    };
    if !parts.knows_token(&headers) {
        return refused();
    }
    let Ok(Wanted { process, setting }) = serde_json::from_str(&body) else {
        return (StatusCode::BAD_REQUEST, "send {\"process\": PID, \"setting\": \"LIMIT=VALUE\"}\n")
            .into_response();
    };
    match tokio::task::spawn_blocking(move || change(process, &setting)).await {
        Ok(Ok(sentence)) => sentence.into_response(),
        Ok(Err(reason)) => (StatusCode::UNPROCESSABLE_ENTITY, reason).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
