//! What runs alongside the supervisor's loop: its own threads, and side services. All of it ends before the
//! supervisor splits for the background, and begins again in the copy.

use farmem_client::Own;

use crate::application::Application;
use crate::carrier;
use crate::limits::controller::Controller;
use crate::options::Options;
use crate::processes::attacher::Attacher;
use crate::say::say;
use crate::threads::side_service::{Ending, SideService};
use crate::threads::worker::Worker;
use crate::threads::{mover, packer};

/// What runs now.
pub(super) struct Alongside {
    /// Where side services find the supervisor.
    own: Own,
    workers: Vec<Worker>,
    side_services: Vec<Ending>,
}

impl Alongside {
    /// Nothing yet.
    pub(super) fn of(own: Own) -> Self {
        Self { own, workers: Vec::new(), side_services: Vec::new() }
    }

    /// Starts the threads that look after what the processes have stored, and how much they may, and side
    /// services. One of these that can't begin is named: the program goes on without it.
    pub(super) fn start(
        &mut self,
        application: Application,
        options: &Options,
        controller: &Controller,
        attacher: &Attacher,
    ) {
        // In this order: the mover first looks for what others have left half done.
        let of_pool = mover::start(application).into_iter().chain(packer::start(application));
        let recorder = application.recorder.map(|recorder| recorder.start());
        self.workers = of_pool
            .chain([controller.start()])
            .chain(carrier::start(application))
            .chain(recorder)
            .chain(attacher.start())
            .collect();
        let begin = |service: &SideService| {
            service.begin(self.own.clone()).map_err(|error| say(&format!("{error:#}"))).ok()
        };
        self.side_services = options.side_services.iter().filter_map(begin).collect();
    }

    /// Ends all of it, and waits until the threads have gone.
    pub(super) fn stop(&mut self) {
        self.side_services.drain(..).for_each(|end| end());
        self.workers.drain(..).for_each(Worker::stop);
    }
}
