//! The supervisor's loop, from the start of a program to its end.
//!
//! Here the parts come together: each knows one thing and calls none of the others, so whatever one of them
//! has to know of another is asked and passed on here.

mod alongside;
mod answers;
mod begin;
mod ends;
mod onlooking;
mod report;
mod rounds;

use std::path::PathBuf;

use anyhow::Result;

use crate::application::Application;
use crate::limits::controller::Controller;
use crate::options::Options;
use crate::processes::Processes;
use crate::processes::attacher::Attacher;
use crate::processes::door::Door;
use crate::program::foreground::{self, Half, Part};
use crate::program::inherited::Inherited;
use crate::program::life::Life;
use crate::program::onlooker::{self, Onlooker, Standing};
use crate::program::signals::Signals;
use crate::queries::regions::RegionQuestions;
use crate::reporting::sinks::Sinks;
use crate::supervise::alongside::Alongside;
use crate::supervise::begin::{Origin, start};
use crate::threads::side_service::SideService;
use crate::watch::Watch;

/// Runs the program under supervision until it has ended. The result is the status to exit with; if a signal
/// ended the program, the same signal ends the calling process.
///
/// Whoever waits for a program waits for that program alone. For processes that it has left behind, a copy of
/// the calling process goes on in the background until the last of them has gone.
///
/// # Errors
/// The program could not be started, or the kernel doesn't permit its management; nothing of it is left.
pub fn supervise(options: &Options) -> Result<u8> {
    if !options.reports_at_end() {
        return supervise_caller(options);
    }
    start(options, Origin::Child(Inherited::now()))
        .map(Supervisor::see_through)
        .inspect_err(|_| options.side_services.iter().for_each(SideService::leave))
}

/// What is attached to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The process of that number, and what comes of it.
    Process(u32),
    /// What is in the control group of that folder and in those below it.
    Group(PathBuf),
}

/// Manages processes that run already, from a copy of the calling process in the background. Returns when
/// they are within their budget, or nothing more can be done; `hear` is told now and then how it stands.
///
/// # Errors
/// Nothing is managed, for the reason that is given.
pub fn attach(options: &Options, subject: &Subject, hear: impl FnMut(&Standing)) -> Result<Standing> {
    let mut onlooker = match foreground::split_off()? {
        Half::Caller(link) => return onlooker::look_on(link, hear),
        Half::Supervisor(link) => Onlooker::new(link),
    };
    match start(options, Origin::Found(subject)) {
        Ok(mut supervisor) => {
            supervisor.onlooker = Some(onlooker);
            supervisor.see_through_found();
        }
        Err(error) => {
            options.side_services.iter().for_each(SideService::leave);
            onlooker.refuse(&format!("{error:#}"));
        }
    }
    std::process::exit(0)
}

/// The calling process becomes the program, and a copy of it the supervisor.
fn supervise_caller(options: &Options) -> Result<u8> {
    let mut caller = match foreground::split()? {
        Part::Program(supervisor) => return Err(supervisor.become_program(options)),
        Part::Supervisor(caller) => caller,
    };
    let refused = start(options, Origin::Caller(&mut caller)).map(Supervisor::see_through_caller).err();
    if let Some(error) = refused {
        options.side_services.iter().for_each(SideService::leave);
        caller.refuse(&error);
    }
    std::process::exit(0)
}

struct Supervisor<'a> {
    options: &'a Options,
    application: Application,
    life: Life<'a>,
    signals: Signals,
    door: Door,
    processes: Processes,
    /// Where pagers come from outside.
    attacher: Attacher,
    controller: Controller,
    watch: Watch,
    regions: RegionQuestions,
    sinks: Sinks,
    alongside: Alongside,
    /// Where the program ran already: the process that waits until it is within its budget.
    onlooker: Option<Onlooker>,
    /// Whether all is to come back, and this process to end.
    is_withdrawing: bool,
}
