//! The loop: look, draw, wait for a key.

use std::time::{Duration, Instant};

use anyhow::Context;
use farmem_client::{Report, SetError, applications, processes, regions};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::draw::draw;
use crate::inside::Level;
use crate::screen::{Action, Screen};

/// How to show it.
pub struct Options<'a> {
    /// From one look to the next.
    pub interval: Duration,
    /// Changes a limit of the application of a process, as `farmem set PID LIMIT=VALUE` would: what became of
    /// it, in a sentence, or why not.
    pub set: &'a dyn Fn(u32, &str) -> Result<String, String>,
}

/// Shows what runs until a key ends it. The terminal is as before when it returns, also by an error.
///
/// # Errors
/// The terminal fails.
pub fn top(options: &Options<'_>) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("the terminal can't be used")?;
    let outcome = run(&mut terminal, options);
    ratatui::try_restore().context("the terminal can't be restored")?;
    outcome
}

fn run(terminal: &mut ratatui::DefaultTerminal, options: &Options<'_>) -> anyhow::Result<()> {
    let mut screen = Screen::default();
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            look(&mut screen);
            due = Instant::now() + options.interval;
        }
        terminal.draw(|frame| draw(&screen, frame))?;
        if !event::poll(due.saturating_duration_since(Instant::now()))? {
            continue;
        }
        // What isn't a key, a resize above all, only needs drawing.
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match screen.on_key(key) {
            Some(Action::Quit) => return Ok(()),
            Some(Action::Set { process, setting }) => {
                screen.message = (options.set)(process, &setting).unwrap_or_else(|reason| reason);
                due = Instant::now();
            }
            Some(Action::Look) => due = Instant::now(),
            None => {}
        }
    }
}

/// What there is at this moment, as deep as the screen looks: processes and their regions are asked for only
/// while they are shown.
fn look(screen: &mut Screen) {
    screen.update(applications());
    let words = |error: SetError| error.to_string();
    match screen.level {
        Level::Applications => {}
        Level::Processes { application } => {
            let found = processes(&application.to_string()).map_err(words);
            screen.inside.update_processes(found, Instant::now());
        }
        Level::Regions { application, process } => {
            screen.inside.update_regions(regions(&application.to_string(), process).map_err(words));
        }
    }
}

/// One screen as text, of 80 columns: rates between two looks, `interval` apart.
///
/// # Errors
/// None that a user could do anything about.
pub fn once(interval: Duration) -> anyhow::Result<String> {
    let mut screen = Screen::default();
    screen.update(applications());
    std::thread::sleep(interval);
    let reports: Vec<Report> = applications();
    let lines = reports.len() as u16 + 14;
    screen.update(reports);
    let mut terminal = Terminal::new(TestBackend::new(80, lines))?;
    terminal.draw(|frame| draw(&screen, frame))?;
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(80).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    Ok(rows.collect())
}
