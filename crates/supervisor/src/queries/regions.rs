//! Asking a process for its regions, which it alone knows: by way of the ledger's region report, one process
//! at a time, while the supervisor goes on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use farmem_telemetry::{Ledger, ProcessSlot, SlotState};

use crate::queries::query::Query;
use crate::reporting::inside;

/// A process answers within some rounds of its bookkeeper; one that is stopped doesn't. Shorter than an asker
/// waits for the supervisor.
const PATIENCE: Duration = Duration::from_millis(800);
/// Questions that may wait for the one before.
const MOST_WAITING: usize = 8;

/// Questions for regions: one that a process is asked, and those that wait.
pub(crate) struct RegionQuestions {
    ledger: Ledger<'static>,
    asked: Option<Asked>,
    waiting: VecDeque<(Query, u32)>,
}

struct Asked {
    query: Option<Query>,
    process: u32,
    slot: usize,
    question: u64,
    deadline: Instant,
}

impl RegionQuestions {
    pub(crate) fn new(ledger: Ledger<'static>) -> Self {
        Self { ledger, asked: None, waiting: VecDeque::new() }
    }

    /// Takes a question for the regions of a process.
    pub(crate) fn take(&mut self, query: Query, process: u32) {
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back((query, process));
        } else {
            query.refuse("too many ask for regions at once; try again");
        }
    }

    /// Goes on with what was asked: to be called often.
    pub(crate) fn look(&mut self) {
        self.hear();
        while self.asked.is_none()
            && let Some((query, process)) = self.waiting.pop_front()
        {
            let is_it = |slot: &ProcessSlot<'_>| slot.process() == process && slot.state() != SlotState::Free;
            let Some(slot) = self.ledger.slots().find(is_it) else {
                query.refuse(&format!("process {process} does not belong to this application"));
                continue;
            };
            let Some(question) = self.ledger.region_report().ask(slot.index()) else {
                query.refuse("the process that was asked before has not answered yet; try again");
                continue;
            };
            let deadline = Instant::now() + PATIENCE;
            self.asked = Some(Asked { query: Some(query), process, slot: slot.index(), question, deadline });
        }
    }

    fn hear(&mut self) {
        let Some(asked) = &mut self.asked else { return };
        let report = self.ledger.region_report();
        if let Some(gathered) = report.answer(asked.question) {
            if let Some(query) = asked.query.take() {
                query.answer(&inside::regions(asked.process, &gathered));
            }
            self.asked = None;
            return;
        }
        let slot = self.ledger.slot(asked.slot);
        let has_gone =
            slot.is_none_or(|slot| slot.state() == SlotState::Free || slot.process() != asked.process);
        if !has_gone && Instant::now() < asked.deadline {
            return;
        }
        if let Some(query) = asked.query.take() {
            query.refuse(&format!(
                "process {} doesn't answer: it is stopped, or has just ended",
                asked.process
            ));
        }
        if report.take_back(asked.question, has_gone) {
            self.asked = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use farmem_page::{PageCount, PageIndex, PageRange};
    use farmem_sys::link::Link;
    use farmem_telemetry::{Gathered, RegionFigures};

    use super::*;
    use crate::application::Application;
    use crate::queries::query::Question;
    use farmem_client::RegionsReport;

    const PROCESS: u32 = 77;

    fn with_process() -> (Ledger<'static>, RegionQuestions) {
        let ledger = Application::for_test().ledger;
        ledger.header(farmem_telemetry::Header::SlotsUsed).store(2, std::sync::atomic::Ordering::Release);
        ledger.slot(1).unwrap().assign(PROCESS);
        (ledger, RegionQuestions::new(ledger))
    }

    fn ask(questions: &mut RegionQuestions, process: u32) -> Link {
        let (query, end) = Query::for_test(Question::Regions(process));
        questions.take(query, process);
        questions.look();
        end
    }

    fn answer(end: &Link) -> Vec<u8> {
        let mut text = vec![0; 64 << 10];
        let (length, _) = end.receive(&mut text).unwrap();
        text.truncate(length);
        text
    }

    #[test]
    fn what_a_process_tells_is_passed_on() {
        let (ledger, mut questions) = with_process();
        let first = ask(&mut questions, PROCESS);
        let second = ask(&mut questions, PROCESS);
        for _ in 0..2 {
            let question = ledger.region_report().question(1).unwrap();
            let range = PageRange::at(PageIndex::new(16), PageCount::new(8));
            let mut gathered = Gathered::new();
            gathered.add(RegionFigures { resident: 3, hot: 2, ..RegionFigures::new(range) });
            assert!(ledger.region_report().tell(question, &gathered));
            questions.look();
        }

        for end in [first, second] {
            let report: RegionsReport = serde_json::from_slice(&answer(&end)).unwrap();
            let region = &report.regions[0];
            assert_eq!((report.process, report.count, region.start, region.end), (PROCESS, 1, 65536, 98304));
            assert_eq!((region.resident_bytes, region.hot_bytes, region.idle()), (12288, 8192, None));
        }
    }

    #[test]
    fn a_question_about_an_unrelated_process_or_one_that_ends_is_told_why_not() {
        let (ledger, mut questions) = with_process();
        let end = ask(&mut questions, 5);
        assert!(serde_json::from_slice::<String>(&answer(&end)).unwrap().contains("does not belong to this"));

        let end = ask(&mut questions, PROCESS);
        ledger.slot(1).unwrap().set_state(SlotState::Free);
        questions.look();
        assert!(serde_json::from_slice::<String>(&answer(&end)).unwrap().contains("doesn't answer"));
        assert_eq!(ledger.region_report().question(1), None, "the question was taken back");
    }
}
