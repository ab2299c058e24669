//! What the screen shows, and what keys do to it.

use crate::inside::{Inside, Level};
use farmem_client::{Rates, Report};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// An application as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) report: Report,
    pub(crate) rates: Rates,
}

/// A limit that can be changed by a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    Local,
    Pool,
    Partition,
    Cache,
    Weight,
}

impl Limit {
    /// Its name in `farmem set`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Pool => "pool",
            Self::Partition => "partition",
            Self::Cache => "cache",
            Self::Weight => "weight",
        }
    }
}

/// The line that a new limit is typed into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) limit: Limit,
    pub(crate) text: String,
}

/// What a key asks for beyond the screen itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Quit,
    /// Change a limit of the application with that process, as `farmem set` would: `local=512M`.
    Set {
        process: u32,
        setting: String,
    },
    /// Look again at once: the screen shows something else.
    Look,
}

/// All that is on the screen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen {
    pub(crate) rows: Vec<Row>,
    /// The process of the selected application. It stays selected while others come and go.
    selected: Option<u32>,
    /// A limit that is being typed.
    pub(crate) entry: Option<Entry>,
    /// What became of the last change.
    pub(crate) message: String,
    /// How deep it looks.
    pub(crate) level: Level,
    pub(crate) inside: Inside,
}

impl Screen {
    /// Shows what was found now.
    pub(crate) fn update(&mut self, reports: Vec<Report>) {
        let before = std::mem::take(&mut self.rows);
        self.rows = reports
            .into_iter()
            .map(|report| {
                let rates = match before.iter().find(|row| row.report.process == report.process) {
                    Some(row) => Rates::between(&row.report, &report),
                    None => Rates::since_start(&report),
                };
                Row { report, rates }
            })
            .collect();
        self.rows.sort_by(|one, other| {
            (&one.report.name, one.report.process).cmp(&(&other.report.name, other.report.process))
        });
        if self.position().is_none() {
            self.selected = self.rows.first().map(|row| row.report.process);
            self.entry = None;
        }
        // An application that has ended has no inside.
        if let Some(application) = self.application()
            && self.rows.iter().all(|row| row.report.process != application)
        {
            self.level = Level::Applications;
            self.message = "it has ended".to_owned();
        }
    }

    /// The application whose inside is shown.
    fn application(&self) -> Option<u32> {
        match self.level {
            Level::Applications => None,
            Level::Processes { application } | Level::Regions { application, .. } => Some(application),
        }
    }

    /// Which row is selected.
    pub(crate) fn position(&self) -> Option<usize> {
        self.rows.iter().position(|row| Some(row.report.process) == self.selected)
    }

    /// The selected application.
    pub(crate) fn selection(&self) -> Option<&Row> {
        self.position().map(|at| &self.rows[at])
    }

    /// What a key does.
    pub(crate) fn on_key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        if self.entry.is_some() {
            return self.on_key_in_entry(key.code);
        }
        if self.level != Level::Applications {
            return self.on_key_inside(key.code);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Action::Quit),
            KeyCode::Enter | KeyCode::Right => {
                let application = self.selected?;
                self.message.clear();
                self.inside = Inside::default();
                self.level = Level::Processes { application };
                return Some(Action::Look);
            }
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Char('l') => self.begin(Limit::Local),
            KeyCode::Char('p') => self.begin(Limit::Pool),
            KeyCode::Char('t') => self.begin(Limit::Partition),
            KeyCode::Char('c') => self.begin(Limit::Cache),
            KeyCode::Char('w') => self.begin(Limit::Weight),
            _ => {}
        }
        None
    }

    fn on_key_inside(&mut self, code: KeyCode) -> Option<Action> {
        match (code, self.level) {
            (KeyCode::Char('q'), _) => return Some(Action::Quit),
            (KeyCode::Enter | KeyCode::Right, Level::Processes { application }) => {
                let process = self.inside.selected_process()?;
                self.inside.forget_regions();
                self.level = Level::Regions { application, process };
                return Some(Action::Look);
            }
            (KeyCode::Esc | KeyCode::Left | KeyCode::Backspace, Level::Regions { application, .. }) => {
                self.level = Level::Processes { application };
                return Some(Action::Look);
            }
            (KeyCode::Esc | KeyCode::Left | KeyCode::Backspace, _) => self.level = Level::Applications,
            (KeyCode::Up | KeyCode::Char('k'), level) => self.select_inside(level, -1),
            (KeyCode::Down | KeyCode::Char('j'), level) => self.select_inside(level, 1),
            _ => {}
        }
        None
    }

    fn select_inside(&mut self, level: Level, step: isize) {
        match level {
            Level::Regions { .. } => self.inside.select_region(step),
            Level::Processes { .. } | Level::Applications => self.inside.select_process(step),
        }
    }

    fn on_key_in_entry(&mut self, code: KeyCode) -> Option<Action> {
        let entry = self.entry.as_mut()?;
        match code {
            KeyCode::Esc => self.entry = None,
            KeyCode::Backspace => {
                entry.text.pop();
            }
            KeyCode::Char(letter) => entry.text.push(letter),
            KeyCode::Enter => {
                let entry = self.entry.take()?;
                let process = self.selected?;
                let setting = format!("{}={}", entry.limit.name(), entry.text.trim());
                return (!entry.text.trim().is_empty()).then_some(Action::Set { process, setting });
            }
            _ => {}
        }
        None
    }

    fn begin(&mut self, limit: Limit) {
        if self.selected.is_some() {
            self.entry = Some(Entry { limit, text: String::new() });
            self.message.clear();
        }
    }

    fn select(&mut self, step: isize) {
        let Some(position) = self.position() else { return };
        let next = position.saturating_add_signed(step).min(self.rows.len() - 1);
        self.selected = Some(self.rows[next].report.process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farmem_client::ProcessReport;
    use std::time::Instant;

    fn screen(names: &[(&str, u32)]) -> Screen {
        let mut screen = Screen::default();
        screen.update(reports(names));
        screen
    }

    fn reports(names: &[(&str, u32)]) -> Vec<Report> {
        let report =
            |&(name, process): &(&str, u32)| Report { name: name.to_owned(), process, ..Report::default() };
        names.iter().map(report).collect()
    }

    fn press(screen: &mut Screen, keys: &str) -> Option<Action> {
        keys.chars().fold(None, |_, letter| {
            let code = match letter {
                '\n' => KeyCode::Enter,
                '<' => KeyCode::Backspace,
                '!' => KeyCode::Esc,
                letter => KeyCode::Char(letter),
            };
            screen.on_key(KeyEvent::new(code, KeyModifiers::NONE))
        })
    }

    #[test]
    fn the_selected_application_stays_selected_while_others_come_and_go() {
        let mut screen = screen(&[("beta", 2), ("alpha", 1)]);
        assert_eq!(screen.position(), Some(0));

        press(&mut screen, "jjj");
        screen.update(reports(&[("alpha", 1), ("beta", 2), ("aardvark", 9)]));
        assert_eq!(screen.selection().map(|row| row.report.process), Some(2));

        screen.update(reports(&[("alpha", 1)]));
        assert_eq!(screen.selection().map(|row| row.report.process), Some(1));
        screen.update(Vec::new());
        assert_eq!(press(&mut screen, "jkl5\n"), None);
    }

    #[test]
    fn a_typed_limit_becomes_a_setting_of_the_selected_application() {
        let mut screen = screen(&[("alpha", 1), ("beta", 2)]);
        let set = |setting: &str| Some(Action::Set { process: 2, setting: setting.to_owned() });

        assert_eq!(press(&mut screen, "jl512K<M\n"), set("local=512M"));
        assert_eq!(press(&mut screen, "p1G-2G\n"), set("pool=1G-2G"));
        assert_eq!(press(&mut screen, "t2G\n"), set("partition=2G"));
        assert_eq!(press(&mut screen, "c0\n"), set("cache=0"));
        assert_eq!(press(&mut screen, "wq\n"), set("weight=q"));
        assert_eq!(press(&mut screen, "l\n"), None);
        assert_eq!(press(&mut screen, "l512M!"), None);
        assert_eq!(press(&mut screen, "q"), Some(Action::Quit));
    }

    #[test]
    fn enter_goes_into_an_application_and_a_process_and_escape_comes_back() {
        let mut screen = screen(&[("alpha", 1), ("beta", 2)]);
        assert_eq!(press(&mut screen, "j\n"), Some(Action::Look));
        assert_eq!(screen.level, Level::Processes { application: 2 });
        assert_eq!(press(&mut screen, "\n"), None, "no process is known yet");

        let process = |process| ProcessReport { process, ..ProcessReport::default() };
        screen.inside.update_processes(Ok(vec![process(2), process(7)]), Instant::now());
        assert_eq!(press(&mut screen, "j\n"), Some(Action::Look));
        assert_eq!(screen.level, Level::Regions { application: 2, process: 7 });

        press(&mut screen, "!");
        assert_eq!(screen.level, Level::Processes { application: 2 });
        press(&mut screen, "!");
        assert_eq!(screen.level, Level::Applications);
        assert_eq!(press(&mut screen, "q"), Some(Action::Quit));
    }

    #[test]
    fn the_inside_of_who_has_ended_is_left() {
        let mut screen = screen(&[("alpha", 1), ("beta", 2)]);
        press(&mut screen, "\n");
        screen.update(reports(&[("beta", 2)]));
        assert_eq!((screen.level, screen.message.as_str()), (Level::Applications, "it has ended"));
    }

    #[test]
    fn an_entry_ends_when_its_application_has_gone() {
        let mut screen = screen(&[("alpha", 1)]);
        press(&mut screen, "l51");
        screen.update(reports(&[("beta", 2)]));
        assert_eq!(screen.entry, None);
    }
}
