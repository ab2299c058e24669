//! How all begins: the program, unless it runs already, and all that looks after it.

use std::time::Instant;

use anyhow::{Context, Result};
use farmem_client::Own;
use farmem_wire::Address;
use rustix::process::{Pid, set_child_subreaper};

use crate::application::Application;
use crate::injection;
use crate::limits::controller::Controller;
use crate::options::Options;
use crate::processes::Processes;
use crate::processes::attacher::Attacher;
use crate::processes::door::Door;
use crate::processes::family::Family;
use crate::processes::group::Group;
use crate::program::foreground::Caller;
use crate::program::inherited::Inherited;
use crate::program::life::{Life, Relation};
use crate::program::signals::Signals;
use crate::program::{launch, own_limits};
use crate::queries::listen::listen;
use crate::queries::regions::RegionQuestions;
use crate::reporting::sinks::Sinks;
use crate::supervise::alongside::Alongside;
use crate::supervise::{Subject, Supervisor};
use crate::watch::Watch;

/// Whose program it is.
pub(super) enum Origin<'a> {
    /// A child of the supervisor's is to become it, and to have what the supervisor was given.
    Child(Inherited),
    /// The process that was called is to become it.
    Caller(&'a mut Caller),
    /// It runs already.
    Found(&'a Subject),
}

/// Starts the program, unless it runs already, and all that looks after it.
pub(super) fn start<'a>(options: &'a Options, origin: Origin<'a>) -> Result<Supervisor<'a>> {
    let limits = own_limits::lift()?;
    let application = Application::create(options).map_err(own_limits::explain)?;
    let (listener, name) = listen().context("cannot listen for the program's processes")?;
    let signals = Signals::take()?;
    // Orphans become children of this process: so it knows, when the program has ended, whether anybody is
    // left.
    set_child_subreaper(Some(rustix::process::getpid())).context("cannot adopt the program's orphans")?;
    let mut controller = Controller::begin(application, options)?;
    let application = application.record(options)?;
    let address = Address { name: name.as_bytes(), token: application.token }.to_string();
    let began = Instant::now();
    let (program, group) = match &origin {
        Origin::Caller(caller) => (caller.process(), None),
        Origin::Child(_) => (launch::launch(options, limits, signals.before())?, None),
        Origin::Found(Subject::Process(number)) => (found(Some(*number))?, None),
        Origin::Found(Subject::Group(folder)) => {
            let group = Group::at(folder);
            (found(group.members().first().copied())?, Some(group))
        }
    };
    let family = group.map_or_else(|| Family::of(program), Family::of_group);
    let relation = match origin {
        Origin::Caller(caller) => Relation::Caller(caller.let_begin()?),
        Origin::Child(inherited) => {
            inherited.close(options.stats.as_deref());
            Relation::Child
        }
        Origin::Found(_) => Relation::Found,
    };
    let life = Life::new(program, relation, began);
    let attacher = Attacher::new(application, &address, family);
    if life.is_found() {
        controller.begin_descent(attacher.see().unknown());
    }
    // For the supervisor's own: two links of each lane to each node, and several descriptors for each
    // process. The program has its limit as it was.
    farmem_sys::descriptors::allow_most();
    tracing::info!(
        application = options.name,
        process = life.number(),
        local_bytes = options.local.get(),
        pool_bytes = options.pool.get(),
        nodes = options.nodes.as_ref().map_or(0, |nodes| nodes.nodes.len()),
        "program started"
    );
    injection::start(application);
    let mut alongside = Alongside::of(Own::at(&name));
    alongside.start(application, options, &controller, &attacher);
    Ok(Supervisor {
        options,
        application,
        life,
        signals,
        door: Door::at(listener),
        processes: Processes::new(application),
        attacher,
        controller,
        watch: Watch::new(application),
        regions: RegionQuestions::new(application.ledger),
        sinks: Sinks::of(options),
        alongside,
        onlooker: None,
        is_withdrawing: false,
    })
}

/// The process of that number, if there is one.
fn found(number: Option<u32>) -> Result<Pid> {
    number
        .and_then(|number| Pid::from_raw(i32::try_from(number).ok()?))
        .context("all its processes have ended; look which ones run now, and attach again")
}
